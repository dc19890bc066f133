"""Where a script goes on, by the first steps that it shows."""

import pytest

from supervisor.policy.script.resume_step import ANEW, RESUMED, SHOWN, UNKNOWN, Evidence, beginning, judge

WAIT = ("", 0)
LAY = {"found": True, "saved": 16_600, "made": 16_640}


@pytest.mark.parametrize(
    ("firsts", "found"),
    [
        ((), (None, 0)), ((7,), (7, 0)), ((7, 9), (7, 2)), ((7, 9, 12), (7, 2)), ((0, 900, 901), (900, 1)),
        ((2048, 4096, 6144), (2048, 2048)), ((900, 880, 890), (900, 20)), ((0, 10, 11), (0, 10)),
    ],
)  # fmt: skip
def test_a_counter_that_is_set_begins_where_it_is_set(firsts, found):
    assert beginning(firsts) == found


@pytest.mark.parametrize(
    ("firsts", "more", "verdict"),
    [
        ((0, 16_601, 16_602), LAY, (RESUMED, 16_600)),
        ((16_601,), LAY, (RESUMED, 16_600)),
        ((0,), LAY, WAIT),
        ((0, 16_601), LAY, WAIT),
        ((2048, 4096, 6144), LAY, (UNKNOWN, 0)),
        ((2048, 4096, 6144), LAY | {"given": True}, (ANEW, 16_600)),
        ((2048, 4096, 6144), LAY | {"given": True, "anew": False}, (SHOWN, 2048)),
        ((2048, 4096, 6144), LAY | {"anew": True}, (ANEW, 16_600)),
        ((17_000,), LAY | {"anew": True}, (ANEW, 16_600)),
        ((12_001, 12_002, 12_003), LAY, (SHOWN, 12_001)),
        ((1660, 1661, 1662), LAY, (UNKNOWN, 0)),
        ((1661, 1662, 1663), LAY, (SHOWN, 1661)),
        ((0, 1, 2), LAY | {"given": True, "target": 291}, WAIT),
        ((0, 1, 2), LAY | {"given": True, "target": 50_000}, (ANEW, 16_600)),
        ((5, 6, 7), {"found": False, "made": 16_640}, (SHOWN, 5)),
        ((5, 6, 7), {"found": False, "made": 16_640, "anew": True}, (SHOWN, 5)),
        ((5, 6, 7), {"made": 16_640}, (UNKNOWN, 0)),
        ((5, 6, 7), {"made": 16_640, "anew": False}, (SHOWN, 5)),
        ((5, 6, 7), {"made": 16_640, "anew": True}, (UNKNOWN, 0)),
        ((5, 6, 7), {"found": True, "made": 16_640, "given": True}, (UNKNOWN, 0)),
        ((16_641,), {"made": 16_640}, (SHOWN, 16_641)),
        ((5,), {}, (SHOWN, 5)),
        ((5, 6, 7), {"found": True, "saved": 900}, (SHOWN, 5)),
        ((), LAY, WAIT),
    ],
)
def test_the_verdict_on_the_first_steps(firsts, more, verdict):
    assert judge(Evidence(firsts, **more), final=False) == verdict


@pytest.mark.parametrize(
    ("firsts", "more", "verdict"),
    [
        ((), LAY, (RESUMED, 16_600)), ((), LAY | {"anew": True}, (ANEW, 16_600)), ((), {"made": 16_640}, (UNKNOWN, 0)),
        ((2048,), LAY, (SHOWN, 2048)), ((500,), LAY, (UNKNOWN, 0)), ((500,), LAY | {"given": True}, (ANEW, 16_600)),
        ((0,), LAY | {"target": 291}, (UNKNOWN, 0)),
    ],
)  # fmt: skip
def test_the_verdict_where_no_more_steps_are_awaited(firsts, more, verdict):
    assert judge(Evidence(firsts, **more), final=True) == verdict
