"""A service that gets pings, over real HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service:
    """Answers with `status`; 0: never."""

    def __init__(self):
        self.status, self.got, self.arrived, self.over = 200, [], threading.Semaphore(0), threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                service.got.append((self.command, self.path, body, self.headers.get("X-Api-Key")))
                service.arrived.release()
                if not service.status:
                    service.over.wait()
                self.send_response(service.status or 200)
                if 300 <= service.status < 400:
                    self.send_header("Location", f"http://127.0.0.1:{service.port}/elsewhere")
                self.end_headers()

            do_GET = do_POST  # noqa: N815  http.server's name

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path="/ping/s3cret"):
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
