"""The heartbeat of a real daemon: it begins, beats, stops with the deciding loop, and says when it ends on purpose."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from box import PATIENCE, Box, until
from ping_service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def test_a_heartbeat_ends_with_the_deciding_loop_and_says_when_it_ends_on_purpose(box: Box, service: Service) -> None:
    box.config(box.trainer("a"), extra=f'[heartbeat]\nurl = "{service.url()}"\nevery_s = 5')
    box.start()
    box.wait_phase("a", "RUNNING")
    until(lambda: len(service.got) >= 3, 30, "pings")
    paths, bodies = [path for _, path, _, _ in service.got], [body for _, _, body, _ in service.got]
    assert paths[:3] == ["/ping/s3cret/start", "/ping/s3cret", "/ping/s3cret"]
    assert "trained" in bodies[-1]
    assert "s3cret" not in box.ctl("config", "--json").stdout + box.ctl("maintail").stdout
    pid = json.loads(box.ctl("status", "--json").stdout)["daemon"]["pid"]
    while service.arrived.acquire(blocking=False):
        pass
    os.kill(pid, signal.SIGSTOP)
    assert not service.arrived.acquire(timeout=8 * PATIENCE), "nothing that stands still pings"
    os.kill(pid, signal.SIGCONT)
    until(lambda: service.arrived.acquire(blocking=False), 30, "a ping")
    box.ctl("shutdown")
    until(lambda: service.got[-1][2] == "extralife is shutting down", 30, "the last ping")
