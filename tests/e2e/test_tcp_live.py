"""The TCP port of a real daemon: opened, told when it is taken, and given another password, while a program runs on."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from box import Box, until

FIRST, SECOND = "the first password", "the second password"


def ask(port: int, password: str, target: str, body: Any = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        headers = {"Authorization": f"Bearer {password}", "Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", target, None if body is None else json.dumps(body), headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_the_port_comes_and_goes_with_the_configuration(tmp_path: Path) -> None:
    box = Box(tmp_path)
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text(FIRST)
    programs = '[program.a]\ncommand = ["sleep", "1000"]\nprogress = "none"\n'
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        box.config(programs, extra=f'[http]\nlisten = "127.0.0.1:{port}"\npassword_file = "password"\n')
        try:
            box.start()
            until(lambda: box.program("a")["phase"] == "RUNNING", 30, "the program")
            until(lambda: "in use" in box.status()["daemon"]["http"]["error"], 30, "the trouble in status")
            pid = box.program("a")["pid"]
            assert f"the TCP port 127.0.0.1:{port} of [http] is not open" in box.ctl("status").stdout
            taken.close()
            until(lambda: ask(port, FIRST, "/healthz") == 200, 30, "the port")
            assert ask(port, SECOND, "/healthz") == 401
            secret.write_text(SECOND)
            box.ctl("update")
            until(lambda: ask(port, SECOND, "/healthz") == 200, 30, "the new password")
            assert ask(port, FIRST, "/healthz") == 401
            assert ask(port, SECOND, "/api/v1/ask", {"verb": "signal", "names": ["a"], "signal": "CONT"}) == 200
            asked = box.facts("OperatorAsked")[-1]
            assert "extralife at 127.0.0.1" in asked["why"]
            assert asked["uid"] is None
            box.config(programs)
            box.ctl("update")
            until(lambda: ask(port, SECOND, "/healthz") == 0, 30, "the port to be closed")
            assert (box.program("a")["pid"], box.status()["daemon"]["http"]) == (pid, None)
            for told in (*box.written(), box.log.read_bytes()):
                assert FIRST.encode() not in told
                assert SECOND.encode() not in told
        finally:
            box.close()
