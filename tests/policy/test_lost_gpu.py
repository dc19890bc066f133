"""A program that needs a GPU waits while it is missing: the rule, row by row."""

import pytest

from supervisor.policy.box.lost_gpu import Claim, lost, refused
from supervisor.policy.box.readings import Gpu, Gpus

ASKS = Claim(asks="min_free_mb = 12000", gpu=0)
RAN = Claim(used=(0,), gpu=0)
ONE, TWO = Gpus((Gpu(0),)), Gpus((Gpu(0), Gpu(1)))
NO_LIBRARY = Gpus((), "this box has no NVIDIA driver", absent=True)
OTHERWISE = 'it waits for its GPU (when_no_gpu = "cpu" lets it use the CPU)'


def what(claim, gpus, most=2):
    """The middle of the sentence: what is missing."""
    found = lost(claim, gpus, most_gpus=most)
    assert not found or (found.startswith(f"{claim.why}, but ") and found.endswith(f": {OTHERWISE}"))
    return found.removeprefix(f"{claim.why}, but ").removesuffix(f": {OTHERWISE}")


@pytest.mark.parametrize("gpus", [NO_LIBRARY, Gpus(()), Gpus(None, "NVML: Driver Not Loaded"), ONE])
def test_what_has_never_used_a_gpu_and_asks_for_none_never_waits(gpus):
    assert lost(Claim(gpu=0, hides="9"), gpus, most_gpus=2) == ""


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (ASKS, "it asks for a GPU (min_free_mb = 12000)"),
        (RAN, "it ran on a GPU before"),
        (Claim(as_others=True), "programs of this box ran on a GPU before"),
    ],
)
def test_the_reason_names_why_it_needs_one_and_what_is_missing(claim, why):
    assert lost(claim, Gpus(()), most_gpus=0) == f"{why}, but this box has no GPU now: {OTHERWISE}"


@pytest.mark.parametrize(
    ("claim", "gpus", "missing"),
    [
        (RAN, ONE, ""),
        (RAN, NO_LIBRARY, "this box has no NVIDIA driver"),
        (Claim(used=(), gpu=0), NO_LIBRARY, ""),  # NVML never saw its GPU: the worker itself looks
        (Claim(used=(), gpu=0, asks="gpu = 0"), NO_LIBRARY, "this box has no NVIDIA driver"),
        (Claim(used=(), gpu=0), Gpus(()), "this box has no GPU now"),
        (RAN, Gpus(None, "NVML: Driver Not Loaded"), "the GPUs cannot be read (NVML: Driver Not Loaded)"),
        (RAN, Gpus(None, "nvmlInit has not answered for 9s", 9.0), "the GPU's driver hangs"),
        (Claim(used=(0,), hides=""), ONE, "CUDA_VISIBLE_DEVICES = '' shows it no GPU of this box"),
        (Claim(used=(1,), gpu=0), ONE, "GPU 1 is gone (this box has 1 GPU)"),
        (Claim(used=(1,), gpu=0, free_choice=False), ONE, ""),
        (Claim(used=(2,), gpu=0), TWO, "GPU 2 is gone (this box has 2 GPUs)"),
        (Claim(asks="gpu = 1", gpu=1, free_choice=False), ONE, "GPU 1 is gone (this box has 1 GPU)"),
        (Claim(asks="gpu = 5", gpu=5, free_choice=False), ONE, ""),  # it never was: the gate refuses the setting
        (Claim(used=(0,), gpu=None), ONE, ""),
        (RAN, Gpus((Gpu(0, lost="it needs a reset"),)), "GPU 0 does not answer (it needs a reset)"),
    ],
)  # fmt: skip
def test_each_row(claim, gpus, missing):
    assert what(claim, gpus) == missing


def test_a_worker_that_finds_none_says_it_in_its_own_words():
    assert refused("torch sees no GPU") == f"its worker found no GPU (torch sees no GPU): {OTHERWISE}"
