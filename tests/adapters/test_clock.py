"""Journal time never steps: over daemon restarts, reboots, and whatever is done to the wall clock."""

import threading
import time
from types import SimpleNamespace

import pytest
from fakes import FakeClock

from supervisor.adapters.host.boot import AliveMark
from supervisor.adapters.host.clock import SystemClock, journal_offset, local_zone
from supervisor.model.inputs import ClockMoved, Sampled
from supervisor.shell.sampler import Sampler

HOUR_S = 3600.0


def mark(at_s=1_000.0, wall_s=1_800_050_000.0, boot_s=900.0):
    return AliveMark("b" * 32, 1, at_s, wall_s, boot_s)


def now_after(last, *, same_boot, boot_now_s, wall_now_s, journal_at_s=0.0):
    """Journal time at the daemon's start."""
    offset_s = journal_offset(
        last, same_boot=same_boot, journal_at_s=journal_at_s, boot_now_s=boot_now_s, wall_now_s=wall_now_s
    )
    return offset_s + boot_now_s


BOOTED_S = 1_800_050_045.0  # 40 s down, 5 s up


@pytest.mark.parametrize(
    ("last", "same_boot", "wall_now_s", "now_s"),
    [
        (None, False, 1.7e9, 0.0),  # the first start
        *((mark(boot_s=-55.0), True, 1_800_050_060.0 + step_s, 1_060.0) for step_s in (0.0, HOUR_S, -HOUR_S)),
        (mark(), False, BOOTED_S, 1_045.0),
        (mark(), False, BOOTED_S - HOUR_S, 1_005.0),  # set back over the reboot: the time since the boot has certainly passed
        (mark(), False, BOOTED_S + HOUR_S, 1_045.0 + HOUR_S),  # set ahead: it is believed
        # A board without a battery begins in 1970; between that and the clock that the network has set lie 56 years.
        (mark(wall_s=9.0), False, BOOTED_S, 1_005.0), (mark(), False, 12.0, 1_005.0), (mark(wall_s=9.0), False, 12.0, 1_005.0),
    ],
)  # fmt: skip
def test_journal_time_goes_on_where_it_was_and_by_the_downtime(last, same_boot, wall_now_s, now_s):
    """Within a boot the wall clock does not matter."""
    assert now_after(last, same_boot=same_boot, boot_now_s=5.0, wall_now_s=wall_now_s) == pytest.approx(now_s)


def test_a_restarted_container_does_not_gain_its_hosts_uptime():
    # Another boot id is given, but CLOCK_BOOTTIME runs on: the host had been up for 30 days.
    last = mark(boot_s=30 * 86_400.0)
    now_s = now_after(last, same_boot=False, boot_now_s=30 * 86_400.0 + 60, wall_now_s=1_800_050_060.0)
    assert now_s == pytest.approx(1_060.0)


def test_stamps_of_workers_are_converted_there_and_back():
    clock = SystemClock(offset_s=-123.5)
    at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert clock.from_boot_ns(at_ns) == pytest.approx(clock.now_s(), abs=60.0)
    assert clock.to_boot_ns(clock.from_boot_ns(at_ns)) == pytest.approx(at_ns, abs=1_000)
    assert clock.from_boot_ns(5_250_000_000) == -118.25
    assert clock.to_boot_ns(-118.25) == 5_250_000_000
    assert clock.to_boot_ns(-123.5) == clock.to_boot_ns(-1e9) == 0, "before the boot there was nothing"


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 2.5])
def test_a_wall_clock_that_is_set_is_reported_once_and_moves_no_deadline(step_s):
    clock, posted = FakeClock(), []
    moved = threading.Event()
    probes = SimpleNamespace(sample=dict, reports=tuple)
    dark = SimpleNamespace(newest=lambda: None)
    sampler = Sampler(probes, clock, SimpleNamespace(post=posted.append), 1.0, threading.Event(), moved.set, dark, dark)
    sampler.look()
    clock.advance(1)
    clock.step_wall(step_s)
    sampler.look()
    for _ in range(3):
        clock.advance(1)
        clock.step_wall(0.001)  # it is being disciplined, which is no step
        sampler.look()
    assert [item.step_s for item in posted if isinstance(item, ClockMoved)] == [pytest.approx(step_s)]
    assert moved.is_set(), "what goes by the calendar was told"
    assert [item.now_s for item in posted if isinstance(item, Sampled)] == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]


@pytest.mark.parametrize(
    ("zone", "at_wall_s", "found"),
    [
        ("UTC", 1.8e9, ("UTC", 0.0)), ("Asia/Kolkata", 1.8e9, ("IST", 19_800.0)), ("America/New_York", 1.8e9, ("EST", -18_000.0)),
        ("Europe/Berlin", 1_800_000_000.0, ("CET", 3_600.0)), ("Europe/Berlin", 1_815_000_000.0, ("CEST", 7_200.0)),
    ],
)  # fmt: skip
def test_the_local_time_of_a_moment_and_its_name(monkeypatch, zone, at_wall_s, found):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_zone(at_wall_s) == found
    finally:
        monkeypatch.undo()
        time.tzset()
