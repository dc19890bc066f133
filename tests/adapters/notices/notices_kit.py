"""Small metadata services that answer as AWS, Google and Azure document it, and what can be wrong with one."""

import contextlib
import json
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WALL_S = 1_800_000_000.0
TOKEN = "AQAEAFexampletoken=="


class Metadata:
    """`answers` by path: (status, body). `odd` is what is wrong with it, if anything."""

    def __init__(self, provider, *, ticks=False):
        self.provider, self.answers, self.asked = provider, {}, []
        self.ticks, self.began_s = ticks, time.monotonic()
        self.odd, self.token, self.skew_s, self.flavor = "", TOKEN, 0.0, "Google"
        self.over = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                service.serve(self)

            def do_PUT(self):
                service.serve(self)

            def log_message(self, *_):
                pass

            def date_time_string(self, timestamp=None):
                return formatdate(service.wall_s(), usegmt=True)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def wall_s(self):
        """Its own clock, which stands still unless it `ticks`."""
        return WALL_S + self.skew_s + (time.monotonic() - self.began_s if self.ticks else 0.0)

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def serve(self, request):
        self.asked.append((request.command, request.path, dict(request.headers)))
        with contextlib.suppress(OSError):
            if not self.spoils(request):
                self.send(request, *self.answer(request))

    def spoils(self, request):
        if self.odd == "silent":
            self.over.wait(30)
        elif self.odd == "drips":
            for byte in b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 500:
                request.wfile.write(bytes([byte]))
                if self.over.wait(0.05):
                    break
        elif self.odd == "noise":
            request.wfile.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        elif self.odd == "endless":
            request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not self.over.is_set():
                request.wfile.write(b"x" * 65536)
        else:
            return False
        request.close_connection = True
        return True

    def answer(self, request):
        if self.odd.isdigit():
            return int(self.odd), "<html>oops</html>"
        if self.odd == "garbage":
            return 200, '{"action": [1, 2'
        return getattr(self, self.provider)(request)

    def send(self, request, status, body):
        data = body.encode()
        request.send_response(status)
        if self.provider == "google" and self.flavor:
            request.send_header("Metadata-Flavor", self.flavor)
        if 300 <= status < 400:
            request.send_header("Location", "http://127.0.0.1:1/elsewhere")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def aws(self, request):
        if request.path == "/latest/api/token":
            asked = request.command == "PUT" and request.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
            return (200, self.token) if self.token and asked else (405, "")
        if self.token and request.headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, ""
        return self.answers.get(request.path.removeprefix("/latest/meta-data/"), (404, "<h1>404 - Not Found</h1>"))

    def google(self, request):
        if request.headers.get("Metadata-Flavor") != "Google":
            return 403, "Missing required header"
        usual = {"preempted": (200, "FALSE"), "maintenance-event": (200, "NONE")}
        return (usual | self.answers).get(request.path.removeprefix("/computeMetadata/v1/instance/"), (404, ""))

    def azure(self, request):
        if request.headers.get("Metadata") != "true":
            return 400, '{"error": "Bad request. Required metadata header not specified"}'
        if request.path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return self.answers.get("name", (200, "train-1"))
        if request.path != "/metadata/scheduledevents?api-version=2020-07-01":
            return 404, ""
        return self.answers.get("events", (200, '{"DocumentIncarnation":1,"Events":[]}'))

    # what they announce

    def instance_action(self, action="terminate", left_s=120.0):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall_s() + left_s))
        self.answers["spot/instance-action"] = 200, json.dumps({"action": action, "time": at})

    def rebalance(self):
        self.answers["events/recommendations/rebalance"] = 200, '{"noticeTime": "2027-01-15T08:00:00Z"}'

    def event(self, kind="Preempt", left_s=30.0, machines=("Train-1",), status="Scheduled", id_="A1"):
        not_before = "" if left_s is None else formatdate(self.wall_s() + left_s, usegmt=True)
        return {
            "EventId": id_, "EventStatus": status, "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": list(machines), "NotBefore": not_before, "Description": "", "EventSource": "Platform",
            "DurationInSeconds": -1,
        }  # fmt: skip

    def events(self, *events):
        self.answers["events"] = 200, json.dumps({"DocumentIncarnation": 2, "Events": events})
