"""What is proven over a gap in which nobody looked."""

import pytest

from supervisor.policy.upkeep.accounting import Account, booked_as, proven_s


@pytest.mark.parametrize(
    ("before", "after", "rate", "progress", "proven"),
    [
        (1000, 6600, 100.0, None, 60.0),  # nearly as far as it would have come: all of the minute
        (1000, 2200, 100.0, 59.0, 12.0),  # 1,200 steps are twelve seconds, however fresh its beats
        (1000, 1000, 100.0, 59.0, 0.0),  # not a step further
        (1000, 900, 100.0, 59.0, 0.0),  # another life of it
        (1000, 1001, None, None, 60.0),  # no rate: that it moved is all that can be asked
        (1000, 1001, 0.0, None, 60.0),
        (1000, 4000, 100.0, None, 60.0),  # exactly half: not called slow either
        (None, 6600, 100.0, 42.0, 42.0),  # no steps to compare: up to its newest sign of progress
        (1000, None, 100.0, 100.0, 60.0),  # and never more than the gap
        (None, None, None, -5.0, 0.0),
        (None, None, None, None, 0.0),
    ],
)
def test_what_a_gap_of_a_minute_proves(before, after, rate, progress, proven):
    assert proven_s(60.0, steps_before=before, steps_after=after, rate=rate, progress_s=progress) == proven


def test_every_phase_of_a_worker_has_an_account():
    from workers.contract import WorkerPhase

    booked = {phase.name.lower(): booked_as(phase.name.lower(), ready=True) for phase in WorkerPhase}
    assert booked == {
        "importing": Account.RESTARTING, "building": Account.RESTARTING, "restoring": Account.RESTARTING,
        "compiling": Account.RESTARTING, "training": Account.TRAINING, "evaluating": Account.TRAINING,
        "saving": Account.SAVING, "leaving": Account.RESTARTING,
    }  # fmt: skip
    assert booked_as("suspended", ready=True) is booked_as("suspended", ready=False) is Account.WAITING
    assert booked_as("a phase of its own", ready=True) is Account.TRAINING
    assert booked_as("a phase of its own", ready=False) is Account.RESTARTING
