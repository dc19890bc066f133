"""How far back after a divergence, and when to stop."""

import pytest

from supervisor.policy.divergence import DivergenceSettings, after, persists

DEFAULT = DivergenceSettings()


@pytest.mark.fault("nan")
def test_the_worked_example_of_its_docstring():
    first = after(DEFAULT, number=1, newest_step=100_000, resumed_step=None)
    assert (first.from_step, first.give_up) == (100_000, False)
    assert first.why == "roll-back 1 of 3: checkpoints from step 100,000 on are set aside, other chance is drawn"
    assert after(DEFAULT, number=2, newest_step=101_000, resumed_step=90_000).from_step == 90_000
    assert after(DEFAULT, number=3, newest_step=80_000, resumed_step=80_000).from_step == 80_000
    last = after(DEFAULT, number=4, newest_step=70_000, resumed_step=70_000)
    assert last.give_up
    assert last.why == "diverged again after 3 roll-backs"


@pytest.mark.fault("nan")
@pytest.mark.parametrize(
    ("number", "newest", "resumed", "from_step"),
    [(1, None, None, None), (2, None, 500, None), (2, 900, None, 900), (2, 900, 0, 900), (1, 900, 100, 900)],
)
def test_without_a_checkpoint_there_is_none_to_set_aside(number, newest, resumed, from_step):
    verdict = after(DEFAULT, number=number, newest_step=newest, resumed_step=resumed)
    assert (verdict.from_step, verdict.give_up) == (from_step, False)
    assert ("there is no checkpoint yet" in verdict.why) == (from_step is None)


@pytest.mark.fault("nan")
@pytest.mark.parametrize(("since_s", "does"), [(None, False), (0.0, True), (940.0, True), (941.0, False)])
def test_bad_updates_must_last(since_s, does):
    assert persists(DEFAULT, now_s=1000.0, bad_since_s=since_s) is does
