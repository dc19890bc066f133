"""Alerts of a service whose daemon fails, on a real systemd: told without the daemon, by the same configuration."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from installed import STATE, UNIT, Installed
from labbox import box_python, until

SERVICE, DAEMON = "d757b11095ea415f937f85215e71ad07", "7165f5c801d44a20aa4e14e143269604"
TOLD, POSTED = f"{STATE}/told.jsonl", "/srv/posted.jsonl"
HOOK = f"#!/bin/sh\ncat >>{TOLD}\necho >>{TOLD}\n"
RECEIVER = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open({POSTED!r}, "ab") as file:
            file.write(body + b"\\n")
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""
CONFIG = """
[daemon]
state_dir = "/var/lib/extralife"
runtime_dir = "/run/extralife"
[alerts]
command = ["/srv/hook"]
urls_file = "/etc/extralife/alert-urls"
same_within_s = 0.0
[program.sleeper]
command = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
progress = "none"
stop_grace_s = 30.0
"""


@pytest.fixture(scope="module", autouse=True)
def _installed(box: Installed) -> None:
    box.write("/srv/hook", HOOK)
    box.write("/srv/receiver.py", RECEIVER)
    box.write("/etc/extralife/alert-urls", "json://me:hunter2@127.0.0.1:8099/\n")
    box.run("chmod", "755", "/srv/hook")
    box.configure(CONFIG)
    box.install("--no-start")
    box.run("chown", "extralife:", "/etc/extralife/alert-urls")
    box.run("chmod", "600", "/etc/extralife/alert-urls")
    box.run("systemd-run", "--unit=receiver", str(box_python()), "/srv/receiver.py")
    box.install()
    assert box.show(UNIT, "ActiveState") == "active"


def told(box: Installed, path: str = TOLD) -> list[dict[str, Any]]:
    lines = box.run("cat", path, check=False).stdout.splitlines()
    return [json.loads(line) for line in lines if line]


def entries(box: Installed, message_id: str) -> list[str]:
    said = box.run("journalctl", f"MESSAGE_ID={message_id}", "-o", "cat", "--no-pager", check=False).stdout
    return said.splitlines()


def test_the_log_in_the_journal_is_text_with_severities(box: Installed) -> None:
    lines = until(
        lambda: [line for line in log_of(box) if line["MESSAGE"].startswith("serving ")], 30,
        "the daemon's log in the journal",
    )  # fmt: skip
    assert {line["PRIORITY"] for line in lines} == {"6"}
    assert not any(line["MESSAGE"].startswith(("{", "<")) for line in log_of(box)), "neither JSON nor a prefix"


def log_of(box: Installed) -> list[dict[str, str]]:
    """What the service's processes have said, with the journal's own fields."""
    said = box.run("journalctl", "-u", UNIT, "_TRANSPORT=stdout", "-o", "json", "--no-pager", check=False).stdout
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [row for row in rows if isinstance(row.get("MESSAGE"), str)]


def test_the_service_may_read_the_secrets_and_reach_everybody(box: Installed) -> None:
    tried = json.loads(box.ctl("alerts", "test", "--json"))["tried"]
    assert [each["ok"] for each in tried] == [True, True], tried
    assert [each["kind"] for each in told(box)] == ["test"]
    assert "a test: " in told(box, POSTED)[0]["message"]


def test_a_daemon_that_dies_while_it_ends_is_a_failed_service_and_that_is_reported_without_it(box: Installed) -> None:
    box.run("systemctl", "stop", "--no-block", UNIT)
    until(lambda: "saving and leaving" in box.show(UNIT, "StatusText"), 60, "it to wait for a program that does not leave")
    box.signal(box.daemon(), signal.SIGKILL)
    until(lambda: box.show(UNIT, "ActiveState") == "failed", 60, "systemd to call that a failure")
    (alert,) = until(lambda: [each for each in told(box) if each["kind"] == "service"], 60, "OnFailure= to tell of it")
    assert alert["severity"] == "critical"
    assert f"{UNIT} has failed (signal, status KILL)" in alert["text"]
    posted = until(lambda: [each for each in told(box, POSTED) if "has failed" in each["message"]], 60, "the URL too")
    assert f"id {alert['id']}" in posted[0]["message"]
    until(lambda: any(" SERVICE failed " in line for line in box.alerts()), 30, "a line in reboot_alerts.log")
    assert entries(box, SERVICE) == [alert["text"]]
    alert_unit = f"extralife-alert@{UNIT}.service"
    until(lambda: box.show(alert_unit, "ActiveState") == "inactive", 60, "the alert's unit to end")
    assert box.show(alert_unit, "Result") == "success"
    assert "hunter2" not in box.run("journalctl", "-o", "cat", "--no-pager", "-b").stdout
    box.run("systemctl", "start", UNIT)
    box.signal(box.daemon(), signal.SIGKILL)  # the one before had received SIGTERM, so its end is no surprise
    until(lambda: [each for each in told(box) if each["kind"] == "daemon"], 60, "the next daemon to tell of the one before")
    assert entries(box, DAEMON)


def test_a_daemon_that_ends_again_and_again_is_told_by_what_can_be_used_of_its_configuration(box: Installed) -> None:
    box.configure(f"[zzz]\n{CONFIG}")
    box.run("sh", "-c", f"rm -rf {STATE}/last-config*")  # else it would start with the last good one
    box.run("systemctl", "reset-failed", UNIT, check=False)
    box.signal(box.daemon(), signal.SIGKILL)
    found = until(
        lambda: [each for each in told(box) if "ends again and again" in each["text"]], 120, "the alert of the fourth start"
    )
    assert found[0]["kind"] == "service"
    until(lambda: [each for each in told(box, POSTED) if "ends again and again" in each["message"]], 60, "the URL too")
    box.configure(CONFIG)
    box.run("systemctl", "restart", UNIT)
    assert box.show(UNIT, "ActiveState") == "active"
