"""How much of a reboot is held against the load: one row a rule."""

import pytest

from supervisor.policy.level.attribution import Attribution, attribute, beyond

UNSURE = "the box went down without a shutdown, and what ran is uncertain: half of it counts against the level"
COUNTS = "the box went down without a shutdown while 8 workers trained: it counts against the level"


@pytest.mark.parametrize(
    ("told", "weight", "left", "says"),
    [
        ({"cause": "operator"}, 0.0, False, "it was intended (operator): does not count against the load"),
        ({"cause": "orderly"}, 0.0, False, "it was intended (orderly): does not count against the load"),
        ({"cause": "provider"}, 0.0, False, "it was intended (provider): does not count against the load"),
        ({"workers": 0}, 0.0, False, "nothing that uses the level was training: does not count against the load"),
        (
            {"sign_age_s": 601.0},
            0.0,
            False,
            "the last sign of life was 10m 1s old, so what ran is unknown: does not count against the load",
        ),
        ({"sign_age_s": 600.0}, 0.5, False, UNSURE),
        ({"sign_age_s": 121.0}, 0.5, False, UNSURE),
        ({"sign_age_s": None}, 0.5, False, UNSURE),
        ({"sign_age_s": 120.0}, 1.0, False, COUNTS),
        ({"workers": 1}, 1.0, False, COUNTS.replace("8 workers", "1 worker")),
        ({"since_change_s": 59.0, "stepped_down": True}, 1.0, True, f"{COUNTS} just left"),
        ({"since_change_s": 60.0, "stepped_down": True}, 1.0, False, COUNTS),
        ({"since_change_s": 20.0, "stepped_down": False}, 1.0, False, COUNTS),
        ({"since_change_s": None, "stepped_down": True}, 1.0, False, COUNTS),
    ],
)
def test_attribution(told, weight, left, says):
    found = attribute(**{"cause": "unclean", "workers": 8, "sign_age_s": 4.0, **told})
    assert found == Attribution(weight, left, says)


@pytest.mark.parametrize(
    ("here", "below", "ran_s", "weight"),
    [
        ((3, 3600.0), (0, 36_000.0), 1200.0, 1.0),  # nothing like it below
        ((3, 3600.0), (20, 36_000.0), 1200.0, 1 / 3),
        ((3, 3600.0), (30, 36_000.0), 1200.0, 0.0),  # as often below
        ((1, 3600.0), (0, 0.0), 1200.0, 1.0),  # the lowest level
        ((1, 0.0), (3, 3600.0), 1200.0, 1.0),
        ((0, 3600.0), (3, 3600.0), 1200.0, 1.0),  # not in the record
        ((3, 3600.0), (0, 36_000.0), 59.0, 0.0),
        ((3, 3600.0), (0, 36_000.0), None, 0.0),
    ],
)
def test_a_container_that_is_killed_is_held_against_the_level_as_far_as_its_record_says_so(here, below, ran_s, weight):
    told = {"workers": 8, "ran_s": ran_s, "share": beyond(here, below)}
    found = attribute("unclean", sign_age_s=4.0, **told)
    assert (found.weight, found.left) == (pytest.approx(weight), False)
    assert attribute("unclean", sign_age_s=None, **told).weight == pytest.approx(weight / 2), "what ran is uncertain"
