"""The rule of the end of the work. Random ends: `tests/sim/when_done/test_nights_of_the_meter.py`."""

from dataclasses import replace

import pytest

from supervisor.features.when_done.record import EndRecord, Step
from supervisor.features.when_done.rules import Outlook, Seen, causes_of, holds_on, next_step, retry_s
from supervisor.features.when_done.settings import BUDGET, CAUSES, DONE, STUCK, WhenDoneSettings
from supervisor.policy.upkeep.cost import CostSettings, limit_reached

RULES = WhenDoneSettings(("stop-me",), CAUSES)


@pytest.mark.parametrize(
    ("when", "work", "over_budget", "causes"),
    [
        (CAUSES, [], False, ()),
        (CAUSES, [], True, (BUDGET,)),
        (CAUSES, [Outlook.DONE], True, (DONE, BUDGET)),
        (CAUSES, [Outlook.DONE, Outlook.OPEN], False, ()),
        (CAUSES, [Outlook.DONE, Outlook.OPEN], True, (BUDGET,)),
        (CAUSES, [Outlook.DONE, Outlook.OVER], False, (STUCK,)),
        (CAUSES, [Outlook.DONE, Outlook.GIVEN_UP], False, (DONE, STUCK)),
        (CAUSES, [Outlook.GIVEN_UP], False, (STUCK,)),
        (CAUSES, [Outlook.OVER, Outlook.OPEN], False, ()),
        ((DONE,), [Outlook.DONE, Outlook.OVER], True, ()),
        ((DONE,), [Outlook.DONE, Outlook.GIVEN_UP], True, (DONE,)),
        ((STUCK,), [Outlook.DONE], False, ()),
        ((BUDGET,), [Outlook.DONE], True, (BUDGET,)),
    ],
)
def test_the_causes(when, work, over_budget, causes):
    assert causes_of(replace(RULES, when=when), work, over_budget=over_budget) == causes


@pytest.mark.parametrize(
    ("cause", "now", "holds"),
    [
        (DONE, (DONE,), True), (STUCK, (DONE,), True), (DONE, (STUCK, BUDGET), True), (DONE, (BUDGET,), False),
        (BUDGET, (DONE, BUDGET), True), (BUDGET, (DONE,), False), (STUCK, (), False),
    ],
)  # fmt: skip
def test_an_end_keeps_its_cause(cause, now, holds):
    assert holds_on(EndRecord(cause), now) is holds


def test_the_wait_between_two_tries():
    assert [retry_s(count) for count in (1, 2, 3, 6, 7, 8, 2000)] == [60.0, 120.0, 240.0, 1920.0, 3600.0, 3600.0, 3600.0]


def test_a_limit_needs_a_price_and_a_clock():
    rules = CostSettings(1.2, 10.0, "2027-01-15T08:00:00Z")
    assert limit_reached(rules, paid_s=30_000.0, wall_s=None) == "$10.00 of the budget of $10.00 are spent"
    assert limit_reached(rules, paid_s=29_999.0, wall_s=None) == ""
    assert limit_reached(rules, paid_s=0.0, wall_s=1_799_999_999.0) == ""
    assert limit_reached(rules, paid_s=0.0, wall_s=1_800_000_000.0).startswith("the time of [cost] until, 2027")
    assert limit_reached(CostSettings(None, 10.0), paid_s=1e9, wall_s=None) == ""


def test_without_a_command_there_is_no_end():
    assert next_step(WhenDoneSettings(), EndRecord(), Seen((DONE,)), 9.0) == (Step.WAIT, None)
