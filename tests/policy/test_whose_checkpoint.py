"""Whether a checkpoint is one of this training, by its number."""

from __future__ import annotations

import pytest

from supervisor.policy.worker.whose_checkpoint import Shown


def seen(*sightings: tuple[int, int, int]) -> bool | None:
    shown = Shown()
    for number, low, high in sightings:
        shown = shown.saw(number, low, high)
    return shown.counts_steps


@pytest.mark.parametrize(
    ("sightings", "counts"),
    [
        (((40, 41, 45), (80, 80, 90)), True),
        (((200, 20, 220), (400, 220, 420)), True),  # the output is read once a second
        (((40, 41, 45), (40, 60, 65)), None),  # one checkpoint, seen twice
        (((1, 9, 12), (2, 9, 12)), None),
        (((5, 1200, 1210), (6, 1320, 1330)), False),  # epochs
        (((4000, 1000, 1010), (8000, 2000, 2010)), False),  # frames
        (((40, 20, 80), (80, 160, 170)), True),  # at the edge of half and of twice
        (((40, 81, 90), (80, 161, 170)), False),
        (((40, 41, 45), (10_040, 80, 85)), None),  # another writer
        (((40, 41, 45), (10_040, 80, 85), (80, 81, 90), (120, 120, 125)), True),
    ],
)
def test_whether_numbers_count_the_shown_steps(sightings: tuple[tuple[int, int, int], ...], counts: bool | None) -> None:
    assert seen(*sightings) is counts


COUNTS = Shown(steps=343, counts_steps=True)
OWN = (200, 240, 280, 320)
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("shown", "number", "before_s", "foreign"),
    [
        (COUNTS, 10_120, 0.0, True),
        (COUNTS, 2 * 343 + 80, 0.0, False),
        (COUNTS, 2 * 343 + 81, 0.0, True),
        (Shown(before=5000, first=2500, steps=4000, counts_steps=True), 10_120, 0.0, True),
        (Shown(before=5000, first=0, steps=343, counts_steps=True), 10_120, 0.0, False),  # it may count from 0 in each
        (Shown(steps=343), 10_120, 0.0, False),
        (Shown(steps=343, counts_steps=False), 10_120, 0.0, False),
        (Shown(counts_steps=True), 10_120, 0.0, False),
        (Shown(target=1000, configured=True), 5000, 1.0, True),
        (Shown(target=1000, configured=True), 5000, -1.0, False),
        (Shown(target=1000, configured=True), 1024, 1.0, False),  # the end of its last rollout
        (Shown(target=1000), 5000, 1.0, False),  # perhaps the bar of an epoch, and a training that was moved here
        (Shown(target=1000), 5000, DAY_S + 1.0, True),
        (Shown(target=1000), 1000, 2 * DAY_S, False),
        (Shown(target=1000, counts_steps=False), 5000, 2 * DAY_S, False),
        (Shown(), 5000, 2 * DAY_S, False),
    ],
)
def test_whose_it_is(shown: Shown, number: int, before_s: float, foreign: bool) -> None:
    assert bool(shown.foreign(number, shown.limit((*OWN, number)), before_s)) is foreign


def test_a_restart_adds_what_an_attempt_has_shown() -> None:
    assert Shown(first=1, steps=300).begins() == Shown(before=300)
    assert Shown().begins() == Shown()
    assert Shown(before=300).total == 300
    assert Shown().total is None
    assert Shown(steps=10, counts_steps=True).limit((15,)) == 20
    assert Shown(steps=10, counts_steps=True).limit((4, 8)) == 28
