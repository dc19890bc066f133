"""Shares of time by what it was spent on, with a clock that is stepped, and with events of a device that is none."""

import pytest

from workers.stopwatch import ACT, ENV, LEARN, REST, Stopwatch


class Clock:
    def __init__(self):
        self.now = 0
        self.looks = 0

    def __call__(self):
        self.looks += 1
        return self.now


def test_shares_add_up_and_begin_anew():
    clock = Clock()
    watch = Stopwatch(clock)
    for part, took in ((ACT, 1), (ENV, 2), (LEARN, 6), (REST, 1)):
        watch.to(part)
        clock.now += took
    assert watch.shares() == {"act": 0.1, "env": 0.2, "learn": 0.6, "copy": 0.0, "save": 0.0, "test": 0.0, "rest": 0.1}
    assert watch.shares() == {}, "no time has passed"
    clock.now += 5
    assert watch.shares()["rest"] == 1.0, "what it was busy with goes on over a look"


class Event:
    """Of a device that is `lag` behind the processor: recorded now, it happens when the device gets there."""

    made = 0

    def __init__(self, clock):
        Event.made += 1
        self._clock, self.at = clock, None

    def record(self):
        self.at = self._clock.device_ms

    def synchronize(self):
        assert self.at is not None

    def elapsed_time(self, later):
        return later.at - self.at


def test_on_a_device_its_own_time_line_counts():
    """The processor hands over an update in no time and then waits for it while acting: that is learning all the same."""
    clock = Clock()
    clock.device_ms = 0.0
    watch = Stopwatch(clock, lambda: Event(clock))
    for _ in range(3):
        watch.to(LEARN)
        clock.device_ms += 8.0
        watch.to(ACT)
        clock.now += 8_000_000
        clock.device_ms += 2.0
    watch.to(REST)
    assert watch.shares() == pytest.approx(
        {"act": 0.2, "env": 0.0, "learn": 0.8, "copy": 0.0, "save": 0.0, "test": 0.0, "rest": 0.0}
    )
