"""The accounts of any journal that the core can write add up, however it is cut, folded or looked at.

Three sources of journals: implausible inputs in any order, whole simulated nights, and the same nights with facts lost.
What a simulated worker really trained is known to the world, so the books can be held against the truth as well.
"""

import itertools
import os
from math import fsum

import pytest
from adding_up import account_errors, ledger_errors
from boxes import HOUR_S, night
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant
from test_any_inputs import AnyInputs
from training import STEPS_PER_S

from supervisor.model import facts
from supervisor.policy.upkeep.accounting import Account
from supervisor.reports import accounts
from supervisor.reports.ledger import Ledger, fold_accounts

EXAMPLES = 10 * int(os.environ.get("SIM_SEEDS", "2"))


class AnyInputsAddUp(AnyInputs):
    """What `AnyInputs` does, with a ledger that goes along."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()

    @invariant()
    def every_second_is_booked_once(self):
        if hasattr(self, "core"):
            for stamped in self.core.journal[self.ledger.seq :]:
                self.ledger.add(stamped)
            assert ledger_errors(self.ledger, self.core.now_s) == []

    def teardown(self):
        super().teardown()
        if hasattr(self, "core"):
            assert fold_accounts(self.core.journal) == self.ledger, "in one go, or fact by fact"


TestAnyInputsAddUp = AnyInputsAddUp.TestCase
TestAnyInputsAddUp.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip

NIGHTS = {}


def journal(box, seed):
    """(facts, journal time at the end, what is true at the end) of a night; each is told once."""
    if (box, seed) not in NIGHTS:
        found = night(box, seed, length_s=5 * HOUR_S)
        assert found.error is None, found.error
        world = found.world
        for worker in world.alive():
            worker.advance(world.now_s)
        at = {worker.name: worker.steps for worker in world.alive() if worker.resumed is not None}
        NIGHTS[box, seed] = world.core.journal, world.core.now_s, {n: at.get(n, d.newest()) for n, d in world.disks.items()}
    return NIGHTS[box, seed]


nights = st.sampled_from([("usual", 1), ("rough", 1), ("rough", 2), ("poisoned", 1)])
shares = st.floats(0.0, 1.0)


def totals(ledger, **window):
    found = accounts.summary(ledger, **window)
    return {(sheet.name, a): sheet.seconds.get(a, 0.0) for sheet in (found.slots, *found.programs) for a in Account}


@pytest.mark.parametrize(("box", "seed"), [("usual", 1), ("rough", 1), ("rough", 2), ("poisoned", 1)])
def test_a_night_adds_up_and_is_near_the_truth(box, seed):
    """What is kept, by the books, is what the workers' positions are worth; looks are 20 s apart here."""
    told, now_s, true_steps = journal(box, seed)
    assert account_errors(told, now_s) == []
    found = accounts.summary(fold_accounts(told).closed(now_s))
    kept_s = sum(s.seconds.get(Account.TRAINING, 0.0) for s in found.programs)
    true_s = sum(true_steps[sheet.name] for sheet in found.programs) / STEPS_PER_S
    assert kept_s == pytest.approx(true_s, rel=0.05), "booked and trained"
    lost_s = found.slots.seconds.get(Account.LOST, 0.0)
    assert lost_s == pytest.approx(found.slots.lost_steps / STEPS_PER_S, rel=0.5, abs=10.0)
    assert found.slots.failures > 3


@given(nights, shares)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_journal_in_two_parts_gives_the_same_books(which, share):
    told, now_s, _ = journal(*which)
    cut = int(share * len(told))
    part = fold_accounts(told[:cut])
    kept = part.copy()
    part.closed(told[cut - 1].at_s if cut else 0.0)  # a look at it changes nothing
    assert part == kept
    assert fold_accounts(told[cut:], part) == fold_accounts(told)
    assert part.closed(now_s) == fold_accounts(told).closed(now_s)
    assert ledger_errors(kept, told[cut - 1].at_s if cut else 0.0) == [], "and adds up at every moment"


@given(nights, st.lists(shares, min_size=1, max_size=4))
@settings(max_examples=EXAMPLES, deadline=None)
def test_windows_add_up(which, cuts):
    told, now_s, _ = journal(*which)
    ledger = fold_accounts(told).closed(now_s)
    edges = [ledger.first_s, *sorted(share * now_s for share in cuts), now_s]
    parts = [totals(ledger, since_s=a, until_s=b) for a, b in itertools.pairwise(edges)]
    whole = totals(ledger)
    for key, seconds in whole.items():
        assert fsum(part.get(key, 0.0) for part in parts) == pytest.approx(seconds, abs=1e-5), key
    accounts.merge(ledger, [ledger.first_s, *sorted({share * now_s for share in cuts} - {0.0})])
    assert totals(ledger) == pytest.approx(whole, abs=1e-5), "merged by day"
    for since_s, until_s in itertools.pairwise(edges):
        found = accounts.summary(ledger, since_s=since_s, until_s=until_s)
        for sheet in (found.slots, *found.programs):
            assert fsum(sheet.seconds.values()) == pytest.approx(sheet.wall_s, abs=1e-5)
    counted = [accounts.summary(ledger, since_s=a, until_s=b).slots for a, b in itertools.pairwise(edges)]
    assert sum(part.failures for part in counted) <= accounts.summary(ledger).slots.failures


@given(nights, st.randoms(use_true_random=False))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_journal_that_lost_facts_still_adds_up_to_the_wall(which, chance):
    """What nobody can tell any more is UNKNOWN then; it is not lost, and nothing stumbles over it."""
    told, now_s, _ = journal(*which)
    left = [stamped for stamped in told if chance.random() < 0.9]
    said = account_errors(left, now_s)
    assert all("belong to no known account" in sentence for sentence in said), said


@given(nights)
@settings(max_examples=4, deadline=None)
def test_lost_was_trained_before(which):
    """Without its rollbacks a journal has so much more training, and nothing else is different."""
    told, now_s, _ = journal(*which)
    ahead = [stamped for stamped in told if not isinstance(stamped.fact, facts.Resumed)]
    with_, without = (totals(fold_accounts(rows).closed(now_s)) for rows in (told, ahead))
    for (name, account), seconds in with_.items():
        if account in {Account.LOST, Account.TRAINING}:
            continue
        assert seconds == pytest.approx(without[name, account], abs=1e-5)
    for name in {name for name, _ in with_}:
        trained = sum(with_[name, a] for a in (Account.LOST, Account.TRAINING))
        before = sum(without[name, a] for a in (Account.LOST, Account.TRAINING))
        assert trained == pytest.approx(before, abs=1e-5)
        assert without[name, Account.LOST] == 0.0
