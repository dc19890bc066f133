"""How much of a reboot is held against the load: one row a rule."""

import pytest

from supervisor.policy.level.attribution import attribute


@pytest.mark.parametrize(
    ("told", "weight", "left", "says"),
    [
        ({"cause": "operator"}, 0.0, False, "it was intended (operator)"),
        ({"cause": "orderly"}, 0.0, False, "it was intended (orderly)"),
        ({"cause": "provider"}, 0.0, False, "it was intended (provider)"),
        ({"workers": 0}, 0.0, False, "nothing that uses the level was training"),
        ({"sign_age_s": 601.0}, 0.0, False, "10 min old"),
        ({"sign_age_s": 600.0}, 0.5, False, "half of it"),
        ({"sign_age_s": 121.0}, 0.5, False, "half of it"),
        ({"sign_age_s": None}, 0.5, False, "half of it"),
        ({"sign_age_s": 120.0}, 1.0, False, "8 workers training: counts against the level"),
        ({"workers": 1}, 1.0, False, "1 worker training"),
        ({"since_change_s": 20.0, "stepped_down": True}, 1.0, True, "the level just left"),
        ({"since_change_s": 60.0, "stepped_down": True}, 1.0, False, "counts against the level"),
        ({"since_change_s": 20.0, "stepped_down": False}, 1.0, False, "counts against the level"),
        ({"since_change_s": None, "stepped_down": True}, 1.0, False, "counts against the level"),
    ],
)
def test_attribution(told, weight, left, says):
    found = attribute(**{"cause": "unclean", "workers": 8, "sign_age_s": 4.0, **told})
    assert (found.weight, found.left) == (weight, left)
    assert says in found.why
