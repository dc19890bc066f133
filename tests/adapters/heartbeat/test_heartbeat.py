"""Pings over real HTTP: what a service gets, and what one that hangs, redirects or fails costs."""

from __future__ import annotations

import pytest
from ping_service import Service

from supervisor.features.heartbeat import part as pings
from supervisor.features.heartbeat.part import Pinger, send
from supervisor.features.heartbeat.rules import DONE, UP, Ping, Target


@pytest.fixture
def service():
    made = Service()
    yield made
    made.close()


def test_a_ping_carries_the_first_line_of_the_report_which_is_made_rarely(service):
    lines = iter(["2 of 2 trained", "never asked for"])
    pinger = Pinger(lambda: [Target(service.url())], lambda: next(lines))
    for word in (UP, UP):
        pinger.perform(Ping(word))
        assert service.arrived.acquire(timeout=60)
        pinger.stop()
    assert service.got == [("POST", "/ping/s3cret", "2 of 2 trained", None)] * 2


def test_the_end_pauses_the_check_with_its_key(service):
    pinger = Pinger(lambda: [Target(service.url("/pause"), True, ("X-Api-Key", "k3y"))], lambda: "")
    pinger.perform(Ping(UP, "text"))
    pinger.perform(Ping(DONE, "the work is over"))
    pinger.stop()
    assert service.got == [("POST", "/pause", "", "k3y")]


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_an_answer_that_is_no_success_is_named_without_the_address(service, status):
    service.status = status
    assert send(Target(service.url()), UP, "text") == f"127.0.0.1 answered with status {status}"
    assert [path for _, path, _, _ in service.got] == ["/ping/s3cret"], "no redirect is followed"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/s3cret", "http://127.0.0.1:99999/s3cret"])
def test_a_service_that_is_away_is_named_without_the_address(url):
    error = send(Target(url), UP, "text")
    assert error
    assert "s3cret" not in error


def test_a_service_that_hangs_delays_neither_the_loop_nor_the_others_nor_the_end(service, monkeypatch):
    monkeypatch.setattr(pings, "_LEAVE_S", 0.1)
    other, service.status = Service(), 0
    try:
        pinger = Pinger(lambda: [Target(service.url()), Target(other.url())], lambda: "")
        for _ in range(3):
            pinger.perform(Ping(UP, "text"))
            assert other.arrived.acquire(timeout=60)
            for thread in [*pinger._busy.values()][1:]:
                thread.join()
        assert service.arrived.acquire(timeout=60)
        assert len(service.got) == 1, "the next ones wait for its time limit"
        pinger.stop()
    finally:
        other.close()
