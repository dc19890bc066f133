"""Those who are told: a real HTTP server that takes Apprise's json:// alerts, or hangs, or refuses; and real hooks."""

import json
import socket
import socketserver
import stat
import threading
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools import PYTHON


class Receiver:
    """A web server that does what `mode` says: take (200), refuse (500), hang (until the end), or is down."""

    def __init__(self):
        self.mode = "take"
        self.got = []
        self.headers = []
        self.asked = 0
        self._over = threading.Event()
        self._server = None
        # One that is free, and stays ours between `down` and `up`: bound by a socket that nobody can connect to.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server's: both may be bound to it
        self._kept.bind(("127.0.0.1", 0))
        self.port = self._kept.getsockname()[1]

    @property
    def url(self):
        return f"json://me:hunter2@127.0.0.1:{self.port}/s3cret?rto=60&cto=2"

    def up(self, mode="take"):
        self.mode = mode
        if self._server is None:
            receiver = self

            class Handler(BaseHTTPRequestHandler):
                def do_POST(self):
                    body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                    receiver.asked += 1
                    if receiver.mode == "hang":
                        receiver._over.wait(60)
                        return
                    if receiver.mode == "take":
                        receiver.headers.append(dict(self.headers))
                        receiver.got.append(body)
                    self.send_response(200 if receiver.mode == "take" else 500)
                    self.send_header("content-length", "0")
                    self.end_headers()

                def log_message(self, *_): ...

            self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
            self._server.daemon_threads = True
            threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def down(self):
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        return self

    def close(self):
        self._over.set()
        self.down()
        self._kept.close()


class Mailbox:
    """A mail server that takes every message, as far as Apprise speaks SMTP with it."""

    def __init__(self):
        self.got = []
        mailbox = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.wfile.write(b"220 mail\r\n")
                while (line := self.rfile.readline().upper()) and not line.startswith(b"QUIT"):
                    if line.startswith(b"DATA"):
                        self.wfile.write(b"354 go on\r\n")
                        text = b"".join(iter(self.rfile.readline, b".\r\n"))
                        mailbox.got.append(message_from_bytes(text, policy=policy.default))
                    self.wfile.write(b"250 ok\r\n")
                self.wfile.write(b"221 bye\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"mailto://127.0.0.1:{self._server.server_address[1]}?from=box@example.org&to=me@example.org"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Hook:
    """A command hook: a script that notes what it was told, and then does what `body` says."""

    def __init__(self, directory, body=""):
        self.notes, self.file = directory / "notes.jsonl", directory / "hook.py"
        self.write(body)

    def write(self, body):
        self.file.write_text(
            # A shell starts the interpreter, whose path may have a space in it: the kernel would end it there.
            f"#!/bin/sh\n'''exec' {PYTHON} \"$0\" \"$@\"\n' '''\nimport json, os, sys\n"
            f"told = json.load(sys.stdin)\n"
            f"env = {{k: v for k, v in os.environ.items() if k.startswith('EXTRALIFE_ALERT_') or k == 'NOTIFY_SOCKET'}}\n"
            f"line = json.dumps({{'told': told, 'env': env, 'pid': os.getpid(), 'argv': sys.argv[1:]}}) + '\\n'\n"
            f"os.write(os.open({str(self.notes)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), line.encode())\n{body}\n"
        )
        self.file.chmod(self.file.stat().st_mode | stat.S_IXUSR)

    @property
    def argv(self):
        return (str(self.file), "an argument")

    def got(self):
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []
