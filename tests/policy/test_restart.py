"""When to start again after a death: the docstring's example, the breaker, forgiveness' absence."""

import pytest

from supervisor.policy.worker.restart import (
    MOST_DEATHS,
    Deaths,
    RestartSettings,
    after_clean_end,
    after_death,
    after_failed_start,
    recent_deaths,
)

DEFAULT = RestartSettings()


def crash_loop(settings, lifetime_s, starts):
    """A program that always lives `lifetime_s`: the verdicts after each of its deaths, and when it died."""
    now_s, deaths, openings, verdicts = 0.0, (), 0, []
    for number in range(1, starts + 1):
        now_s += lifetime_s
        deaths = (*deaths, now_s)[-MOST_DEATHS:]
        verdict = after_death(settings, Deaths(deaths, number, openings), now_s=now_s)
        openings += verdict.slow
        verdicts.append(verdict)
        now_s += verdict.delay_s
    return verdicts, deaths


def test_the_worked_example_of_the_docstring():
    verdicts, deaths = crash_loop(DEFAULT, 0.0, 13)
    assert deaths[:8] == (0, 0, 1, 3, 7, 15, 31, 63)
    assert [v.delay_s for v in verdicts[:7]] == [0, 1, 2, 4, 8, 16, 32]
    assert [v.delay_s / 60 for v in verdicts[7:]] == [30, 60, 120, 240, 360, 360]
    assert [v.slow for v in verdicts] == [False] * 7 + [True] * 6


@pytest.mark.parametrize("lifetime_s", [0.0, 2.0, 15.0, 60.0, 240.0])
def test_the_breaker_counts_deaths_however_long_each_attempt_had_lived(lifetime_s):
    """supervisord counts only deaths inside `startsecs`, one second, and restarts a two-second crasher for ever."""
    verdicts, _ = crash_loop(DEFAULT, lifetime_s, 10)
    assert verdicts[7].slow
    assert not verdicts[6].slow
    assert all(v.slow for v in verdicts[7:])


def test_deaths_that_are_rare_never_open_the_breaker():
    verdicts, _ = crash_loop(DEFAULT, 3600.0 / 6, 200)
    assert not any(v.slow for v in verdicts)
    assert verdicts[-1].delay_s == DEFAULT.max_delay_s


def test_the_window_slides():
    deaths = tuple(float(at) for at in range(0, 7000, 1000))  # seven, over nearly two hours
    assert recent_deaths(DEFAULT, 6000.0, deaths) == (3000.0, 4000.0, 5000.0, 6000.0)
    assert recent_deaths(DEFAULT, 6600.0, deaths) == (3000.0, 4000.0, 5000.0, 6000.0), "the edge still counts"
    assert recent_deaths(DEFAULT, 6600.1, deaths) == (4000.0, 5000.0, 6000.0)


@pytest.mark.parametrize(
    ("streak", "says"),
    [
        (1, "first death since it was healthy: restarts at once"),
        (2, "death 2 since it was healthy: restarts in 1s"),
        (9, "death 9 since it was healthy: restarts in 2m 8s"),
    ],
)
def test_the_reason_is_a_sentence(streak, says):
    assert after_death(DEFAULT, Deaths((0.0,), streak, 0), now_s=0.0).why == says


def test_the_reason_of_a_slow_retry_tells_how_many_and_when():
    first = after_death(DEFAULT, Deaths((63.0,) * 8, 8, 0), now_s=63.0)
    assert first.why == "8 deaths in the last 1h: one trial start after 30m"
    third = after_death(DEFAULT, Deaths((9e4,), 10, 2), now_s=9e4)
    assert third.why == "the trial start died too (slow retry 3): one trial start after 2h"


def test_only_health_closes_the_breaker():
    """The deaths have left the window, but the trial was never healthy: still one trial at a time."""
    verdict = after_death(DEFAULT, Deaths((1e6,), 9, 1), now_s=1e6)
    assert verdict.slow
    assert verdict.delay_s == 2 * DEFAULT.slow_retry_s


def test_starts_after_clean_ends_are_five_seconds_apart():
    assert [after_clean_end(lived_s) for lived_s in (0.0, 2.0, 5.0, 60.0)] == [5.0, 3.0, 0.0, 0.0]


def test_starts_that_come_to_nothing_are_tried_for_as_long_as_it_takes():
    settings = RestartSettings()
    assert [after_failed_start(settings, failures) for failures in range(1, 8)] == [1, 2, 4, 8, 16, 32, 64]
    assert after_failed_start(settings, 1000) == 300.0


@pytest.mark.parametrize(("lived_s", "delay_s", "when"), [(600.0, 0.0, "at once"), (1.0, 4.0, "in 4s")])
def test_an_attempt_that_has_saved_waits_for_nothing(lived_s, delay_s, when):
    verdict = after_death(DEFAULT, Deaths((9e4,) * 8, 8, 2), now_s=9e4, saved=True, lived_s=lived_s)
    assert (verdict.delay_s, verdict.slow) == (delay_s, False)
    assert verdict.why == f"it has saved since its start: restarts {when}"
