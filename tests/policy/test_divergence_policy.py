"""How far back after a divergence, and when to stop."""

import pytest

from supervisor.policy.worker.divergence import DivergenceSettings, Losses, after, has_diverged, never_finite

DEFAULT = DivergenceSettings()


@pytest.mark.fault("nan")
def test_the_worked_example_of_its_docstring():
    first = after(DEFAULT, number=1, newest_step=100_000, fine_step=103_000, resumed_step=None)
    assert (first.from_step, first.give_up) == (100_000, False)
    assert first.why == "rollback 1 of 3: checkpoints from step 100,000 on are set aside; restarts with another random seed"
    assert after(DEFAULT, number=2, newest_step=101_000, fine_step=102_000, resumed_step=90_000).from_step == 90_000
    assert after(DEFAULT, number=3, newest_step=80_000, fine_step=None, resumed_step=80_000).from_step == 80_000
    last = after(DEFAULT, number=4, newest_step=70_000, fine_step=None, resumed_step=70_000)
    assert last.give_up
    assert last.why == "diverged again after 3 rollbacks"


@pytest.mark.fault("nan")
@pytest.mark.parametrize(
    ("number", "newest", "fine", "resumed", "from_step"),
    [
        (1, None, None, None, None), (1, None, 50, 10, None), (2, None, None, 500, None), (2, 900, None, None, 900),
        (2, 900, None, 0, 900), (1, 900, None, 100, 900), (1, 900, 700, 100, 700), (2, 900, 700, 100, 100), (1, 900, 0, 0, 900),
    ],
)  # fmt: skip
def test_how_far_back(number, newest, fine, resumed, from_step):
    verdict = after(DEFAULT, number=number, newest_step=newest, fine_step=fine, resumed_step=resumed)
    assert (verdict.from_step, verdict.give_up) == (from_step, False)
    far = "there is no checkpoint yet" if from_step is None else f"checkpoints from step {from_step} on are set aside"
    assert verdict.why == f"rollback {number} of 3: {far}; restarts with another random seed"


@pytest.mark.fault("nan")
@pytest.mark.parametrize(
    ("losses", "diverged", "not_yet"),
    [
        (Losses(), False, False),
        (Losses(True), False, False),
        (Losses(True, bad=2, since_s=940.0), True, False),
        (Losses(True, bad=2, since_s=941.0), False, False),
        (Losses(True, bad=1, since_s=100.0), False, False),  # one bad batch, and no loss since
        (Losses(bad=900, since_s=701.0), False, False),
        (Losses(bad=900, since_s=700.0), False, True),  # it has not learned yet
    ],
)
def test_bad_losses_must_last_and_follow_a_finite_one(losses, diverged, not_yet):
    assert (has_diverged(DEFAULT, losses, 1000.0), never_finite(DEFAULT, losses, 1000.0)) == (diverged, not_yet)


@pytest.mark.parametrize(
    ("bad", "updates", "loss", "then"),
    [
        (0, 0, 0.25, Losses(True, 7)),
        (0, 9, 0.5, Losses(True, 5, 2, 30.0)),  # progress without a new loss proves nothing
        (3, 9, None, Losses(True, 5, 5, 30.0)),
        (3, 3, 0.25, Losses(True, 7, 3, 60.0)),
    ],
)
def test_only_a_finite_loss_ends_bad_ones(bad, updates, loss, then):
    before = Losses(True, 5, 2, 30.0)
    assert before.by_beat(bad=bad, updates=updates, loss=loss, loss_before=0.5, at_s=60.0, step=7) == then


@pytest.mark.parametrize(("bad", "updates", "then"), [(3, 3, Losses(bad=3, since_s=60.0)), (3, 4, Losses(True, 7, 3, 60.0))])
def test_without_a_loss_the_counts_show_a_finite_one(bad, updates, then):
    assert Losses().by_beat(bad=bad, updates=updates, loss=None, loss_before=None, at_s=60.0, step=7) == then
