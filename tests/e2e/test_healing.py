"""Workers that go wrong in every way of the first night are healed: real daemon, real processes, real signals."""

from __future__ import annotations

import os
import signal

import pytest
from box import FLOOR_S, Box, until


@pytest.mark.fault("killed")
def test_a_worker_killed_with_9_is_replaced_at_once(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    first = box.wait_phase("a", "RUNNING")
    until(lambda: (box.program("a").get("steps") or 0) > 60, 10, "a checkpoint to exist")
    os.kill(first["pid"], signal.SIGKILL)
    exited = box.wait_fact("Exited", "a")
    assert (exited["cause"], exited["signal"], exited["counted"]) == ("killed", signal.SIGKILL, True)
    box.wait_fact("BecameReady", "a", count=2)
    again = box.wait_phase("a", "RUNNING")
    assert again["pid"] != first["pid"]
    resumed = box.facts("Resumed", "a")[1]
    assert resumed["step"] >= 50
    assert resumed["lost_steps"] is not None
    assert 0 <= resumed["lost_steps"] <= 60
    assert box.program("a")["restarts"] == 1


@pytest.mark.fault("stopped")
def test_a_stopped_worker_is_continued_and_not_killed(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    first = box.wait_phase("a", "RUNNING")
    os.kill(first["pid"], signal.SIGSTOP)
    stalled = box.wait_fact("Stalled", "a")
    assert stalled["stall"] == "stopped"
    box.wait_fact("Revived", "a")
    after = box.wait_phase("a", "RUNNING")
    assert after["pid"] == first["pid"]
    assert not box.facts("Exited", "a")


@pytest.mark.parametrize(
    ("fault", "stall"),
    [
        pytest.param("gil", "gil", marks=pytest.mark.fault("gil"), id="gil"),
        pytest.param("hang", "hang", id="hang"),
        pytest.param("envpool-hang", "hang", marks=pytest.mark.fault("envpool-hang"), id="envpool"),
    ],
)
def test_a_worker_that_does_not_get_on_is_examined_ended_and_replaced(box: Box, fault: str, stall: str) -> None:
    box.config(box.trainer("a", fault, "--once", "--after", "30"), floor_s=FLOOR_S)
    box.start()
    stalled = box.wait_fact("Stalled", "a", timeout_s=40)
    assert stalled["stall"] == stall, stalled
    examined = box.wait_fact("Examined", "a")
    exited = box.wait_fact("Exited", "a")
    assert exited["cause"] == "stalled"
    assert examined["seq"] < exited["seq"], "evidence comes before healing"
    if fault != "gil":  # faulthandler's own handler runs in C: it dumps even while a call is blocked
        assert "trainer.py" in "".join(examined["evidence"].values())
    box.wait_fact("BecameReady", "a", count=2)
    assert box.wait_phase("a", "RUNNING")["restarts"] == 1
    told = box.ctl("explain", "a").stdout
    assert f"stall {stall}" in told
    assert {"gil": "none of its threads ran for", "hang": "in do", "envpool-hang": "in recv"}[fault] in told
    assert "wchan: " in told
    assert "begins at step 0" in told, "its last lines"


@pytest.mark.fault("segfault")
def test_a_segfault_inside_envpool_is_a_crash_and_is_healed(box: Box) -> None:
    box.config(box.trainer("a", "segfault", "--once", "--after", "30"))
    box.start()
    exited = box.wait_fact("Exited", "a", timeout_s=40)
    assert (exited["cause"], exited["signal"]) == ("crash", signal.SIGSEGV)
    box.wait_fact("BecameReady", "a", count=2)
    told = box.ctl("explain", "a").stdout
    assert "killed by SIGSEGV" in told
    assert "Fatal Python error: Segmentation fault" in told, "what faulthandler wrote is among its last lines"


@pytest.mark.fault("dies-at-once")
def test_death_at_once_every_time_ends_in_slow_retry_with_a_time(box: Box) -> None:
    extra = "[restart]\nwindow_deaths = 4\nbase_delay_s = 0.05\nslow_retry_s = 3600.0\n"
    box.config(box.trainer("a", "die", "--after", "1") + box.trainer("b"), extra=extra)
    box.start()
    program = until(lambda: (p := box.program("a")).get("slow_retry") and p, 60, "the breaker to open")
    assert program["phase"] == "BACKOFF"
    assert 3000 < program["retry_in_s"] <= 3600
    assert len(box.facts("Exited", "a")) == 4
    assert "died on purpose" in box.facts("Exited", "a")[-1]["why"]
    assert box.wait_phase("b", "RUNNING")["restarts"] == 0, "the neighbour is not disturbed"


@pytest.mark.fault("ignores-sigterm")
def test_a_worker_that_ignores_sigterm_is_killed_after_its_grace(box: Box) -> None:
    box.config(box.trainer("a", "ignore-term"))
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.ctl("stop", "a").stdout == "a: stopped\n"
    assert box.facts("KillIntended", "a")
    assert box.facts("Exited", "a")[0]["signal"] == signal.SIGKILL
    assert box.program("a")["phase"] == "STOPPED"


@pytest.mark.fault("orphans")
def test_grandchildren_in_their_own_session_are_gone_before_the_next_start(box: Box) -> None:
    box.config(box.trainer("a", "grandchild"))
    box.start()
    first = box.wait_phase("a", "RUNNING")
    until(lambda: box.named("sleep"), 10, "the grandchild")
    os.kill(first["pid"], signal.SIGKILL)
    exited = box.wait_fact("Exited", "a")
    assert len(exited["leftovers"]) == 1
    assert "sleep" in exited["leftovers"][0]
    assert "1 leftover process" in exited["why"]
    box.wait_fact("BecameReady", "a", count=2)
    until(lambda: len(box.pids()) == 3, 10, "one shim, one worker, one grandchild")
