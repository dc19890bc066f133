"""How the pages of accounts, cost and the report say that a box was lost, and what that may have cost."""

from __future__ import annotations

import pytest

from supervisor.api.night import take_overs

LOST, CHARGED = "box ada was lost or left:", "of the cost if it was charged meanwhile, else saved"


@pytest.mark.parametrize(
    ("seconds", "trains", "usd", "line"),
    [
        (660.0, True, 2.4, f"{LOST} 11m from its last known sign of life to training here; $2.40 {CHARGED}"),
        (60.0, False, None, f"{LOST} 1m from its last known sign of life to now: nothing trains here yet"),
        (None, True, None, f"{LOST} for how long nothing trained until training here is not known"),
    ],
)  # fmt: skip
def test_a_lost_box_has_one_line_with_what_is_known(seconds, trains, usd, line):
    assert take_overs({"take_overs": [{"box": "ada", "seconds": seconds, "trains": trains, "usd": usd}]}) == [line]
    assert take_overs({}) == [], "an older daemon does not send it"
