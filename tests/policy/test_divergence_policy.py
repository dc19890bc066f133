"""How far back after a divergence, and when to stop."""

import pytest

from supervisor.policy.worker.divergence import DivergenceSettings, after, persists

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
@pytest.mark.parametrize(("since_s", "does"), [(None, False), (0.0, True), (940.0, True), (941.0, False)])
def test_bad_updates_must_last(since_s, does):
    assert persists(DEFAULT, now_s=1000.0, bad_since_s=since_s) is does
