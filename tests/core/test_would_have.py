"""What each level would have kept: measured, with its bound, or never measured."""

import pytest
from test_cost_view import an_hour, told

from supervisor.model.state import State
from supervisor.reports.cost_view import Games
from supervisor.reports.ledger import Ledger, fold_accounts
from supervisor.reports.report_view import would_have


def row(name, **known):
    return {
        "name": name, "in_force": False, "up_s": 0.0, "reboots": 0.0, "mtbf_s": None, "mtbf_bound_s": None, "steps_per_min": None,
        "speed": None, "speed_error": None, "veto": "", **known,
    }  # fmt: skip


def test_a_reviewed_level_has_a_speed_with_an_error_and_a_bound_of_its_reboots():
    heavy = row("heavy", up_s=86_400.0, reboots=1.0, steps_per_min=30_000.0, speed_error=0.03)
    (found,) = would_have(Ledger(), Games(None, State()), [heavy], 36_000.0)
    assert found["kept_steps"] == pytest.approx(17.93e6, rel=0.001)
    assert found["kept_steps_least"] == pytest.approx(17.04e6, rel=0.001)
    assert found["why"] == ""


def test_a_level_without_a_review_has_what_was_kept_there_and_else_nobody_knows():
    closed = fold_accounts(an_hour().rows).closed(3600.0)
    found = would_have(closed, Games(told(), State()), [row("light"), row("huge")], 7200.0)
    assert [(each["kept_steps"], each["kept_steps_least"], each["why"]) for each in found] == [
        (pytest.approx(6_000_000), None, ""), (None, None, "never measured"),
    ]  # fmt: skip
    short = fold_accounts(an_hour().rows[:2]).closed(120.0)
    assert would_have(short, Games(told(), State()), [row("light")], 60.0)[0]["why"] == "only 2m measured"
    idle = fold_accounts(an_hour().rows[:2]).closed(7200.0)
    assert would_have(idle, Games(told(), State()), [row("light")], 60.0)[0]["why"] == "no step was kept there"
    early = row("light", steps_per_min=9.0, speed_error=0.0)
    assert would_have(short, Games(told(), State()), [early], 60.0)[0]["kept_steps"] is None, "it has not run since"
