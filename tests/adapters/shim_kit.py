"""A shim as a process of its own, for the tests of what it starts, records and ends."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

from attempts_kit import REPO

from workers.exit_record import ExitRecord

SHIM = REPO / "supervisor" / "shim.py"
# Processes are found by it on the whole machine, where other tests run too.
TOKEN, OTHER = secrets.token_hex(16), secrets.token_hex(16)


class Shim:
    """One started shim and the answers it gave."""

    def __init__(self, order: dict) -> None:
        self.order = order
        stdin = os.memfd_create("order")
        os.write(stdin, json.dumps(order).encode())
        os.lseek(stdin, 0, os.SEEK_SET)
        args = [sys.executable, "-S", "-I", str(SHIM), "Pong", "1"]
        self.process = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE, env={})
        os.close(stdin)

    def answer(self) -> dict:
        with self.process.stdout as stdout:
            return json.loads(stdout.readline())

    def exit(self) -> ExitRecord:
        self.process.wait(60)
        return ExitRecord.from_json(Path(self.order["attempt_dir"], "exit.json").read_text())
