from __future__ import annotations

from supervisor.policy.worker.intervention import Intervention, helped, may_repeat, newest, noted


def test_after_two_without_effect_there_is_no_third_of_that_kind() -> None:
    done = noted((), Intervention("slow", 10.0, "no step for 30m", step=500))
    assert may_repeat(done, "slow")
    done = noted(done, Intervention("slow", 20.0, "no step for 30m", step=500))
    assert not may_repeat(done, "slow")
    assert may_repeat(done, "aside")
    assert newest(done, "slow") == Intervention("slow", 20.0, "no step for 30m", step=500, fruitless=2)


def test_the_furthest_step_without_effect_is_remembered() -> None:
    done = noted(noted((), Intervention("slow", 10.0, step=500)), Intervention("slow", 20.0, step=450))
    assert newest(done, "slow") == Intervention("slow", 20.0, step=500, fruitless=2)
    assert newest(noted(helped(done, "slow"), Intervention("slow", 30.0, step=450)), "slow") == Intervention(
        "slow", 30.0, step=450
    )


def test_an_effect_ends_the_count_of_its_kind_alone() -> None:
    done = noted(noted((), Intervention("slow", 10.0)), Intervention("aside", 11.0, replaced="a.pt"))
    assert may_repeat(helped(noted(done, Intervention("slow", 20.0)), "slow"), "slow")
    assert newest(helped(done, "slow"), "aside") == Intervention("aside", 11.0, replaced="a.pt")
