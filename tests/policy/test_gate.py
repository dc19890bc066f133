"""The gate, row by row of its rule."""

from dataclasses import replace

import pytest

from supervisor.policy.box.gate import MB, Answer, Verdict, Wish, check
from supervisor.policy.box.readings import Gpu, Gpus

WISH = Wish(
    gpu=0, pinned=False, claimed=True, configured_bytes=12_000 * MB, learned_bytes=None, poll_s=5.0, timeout_s=600.0, on_timeout="start",
    fallback_batch=None, waited_s=None,
)  # fmt: skip


SHORT = "12,000 MiB on GPU 0 (as configured); 3,000 MiB are free"


def box(*free_mb, total_mb=80_000, lost=""):
    seconds = tuple(each * MB for each in free_mb)
    return Gpus(
        (Gpu(0, lost=lost, total_bytes=total_mb * MB, free_bytes=seconds[-1] if seconds else None, free_by_second=seconds),)
    )


def ask(gpus, reserved_mb=0, **more):
    return check(replace(WISH, **more), gpus, reserved_bytes=reserved_mb * MB)


@pytest.mark.parametrize(
    ("gpus", "wish", "answer", "said", "free_mb"),
    [
        (None, {"configured_bytes": 0, "claimed": False}, Answer.START, "", None),
        (None, {"configured_bytes": 0}, Answer.SOON, "", None),
        (None, {}, Answer.SOON, "", None),
        (Gpus(None, "nvmlDeviceGetMemoryInfo has not answered for 9s", 9.0), {}, Answer.START, "", None),
        (Gpus((), absent=True), {"pinned": True}, Answer.START, "", None),
        (Gpus(()), {}, Answer.START, "", None),
        (box(70_000), {"gpu": None}, Answer.START, "", None),
        (box(70_000), {"pinned": True, "gpu": 3}, Answer.GIVE_UP, "gpu = 3, but this box has 1 GPU, 0 to 0: correct `gpu`", None),
        (Gpus((Gpu(0), Gpu(1))), {"pinned": True, "gpu": 2}, Answer.GIVE_UP, "gpu = 2, but this box has 2 GPUs, 0 to 1: correct `gpu`", None),
        (box(70_000), {"pinned": True, "gpu": 3, "claimed": False}, Answer.START, "", None),
        (box(lost="it needs a reset"), {"claimed": False}, Answer.START, "", None),
        (box(lost="it needs a reset"), {}, Answer.WAIT, "GPU 0 does not answer (it needs a reset): waits until that GPU is back", None),
        (box(70_000, total_mb=10_000), {}, Answer.GIVE_UP, "GPU 0 has 10,000 MiB in all, but min_free_mb asks for 12,000 MiB: lower min_free_mb, or pin it to a larger GPU", None),
        (box(12_000, total_mb=12_000), {}, Answer.START, "", 12_000),
        (box(), {}, Answer.WAIT, "waits for 12,000 MiB on GPU 0 (as configured); how much is free is not known", None),
        (box(), {"waited_s": 600.0}, Answer.START, "waited 10m for 12,000 MiB on GPU 0 (as configured); how much is free is not known: starts anyway", None),
        (box(), {"configured_bytes": 0, "learned_bytes": 9_000 * MB}, Answer.START, "", None),
        (box(), {"pinned": True, "configured_bytes": 0}, Answer.START, "", None),
        (box(11_999), {}, Answer.WAIT, "waits for 12,000 MiB on GPU 0 (as configured); 11,999 MiB are free", 11_999),
        (box(70_000), {"learned_bytes": 71_000 * MB}, Answer.WAIT, "waits for 71,000 MiB on GPU 0 (as used before); 70,000 MiB are free", 70_000),
        (box(3_000, 70_000, 70_000, 70_000, 70_000, 70_000), {}, Answer.START, "", 70_000),
        (box(3_000, 70_000), {"poll_s": 1.0}, Answer.START, "", 70_000),
        (box(70_000, 3_000, 70_000, 70_000, 70_000, 70_000), {}, Answer.WAIT, f"waits for {SHORT}", 3_000),
        (box(12_000), {"behind": "Qbert"}, Answer.WAIT, "waits behind Qbert: needs 12,000 MiB on GPU 0 (as configured); 12,000 MiB are free", 12_000),
        (box(3_000), {"behind": "Qbert"}, Answer.WAIT, f"waits for {SHORT}", 3_000),
        (box(3_000), {"waited_s": 599.0}, Answer.WAIT, f"waits for {SHORT}", 3_000),
        (box(3_000), {"waited_s": 600.0}, Answer.START, f"waited 10m for {SHORT}: starts anyway", 3_000),
        (box(3_000), {"waited_s": 600.0, "on_timeout": "wait"}, Answer.WAIT, f"waits for {SHORT}", 3_000),
        (box(3_000), {"waited_s": 600.0, "on_timeout": "give_up"}, Answer.GIVE_UP, f"waited 10m for {SHORT}", 3_000),
    ],
)  # fmt: skip
def test_each_row(gpus, wish, answer, said, free_mb):
    assert ask(gpus, **wish) == Verdict(answer, said, None, None if free_mb is None else free_mb * MB)


def test_the_fallback_batch_comes_before_what_else_is_to_be_done_then():
    for on_timeout in ("start", "wait", "give_up"):
        verdict = ask(box(3_000), waited_s=600.0, fallback_batch=256, on_timeout=on_timeout)
        assert verdict == Verdict(Answer.START, f"waited 10m for {SHORT}: starts with batch 256", 256, 3_000 * MB)


def test_what_others_that_are_starting_will_take_is_not_free():
    assert ask(box(20_000), reserved_mb=8_000).answer is Answer.START
    assert ask(box(20_000), reserved_mb=8_001).answer is Answer.WAIT
    assert ask(box(20_000), reserved_mb=90_000).free_bytes == 0
