"""Which GPU a program uses, by CUDA_VISIBLE_DEVICES: indexes, UUIDs, slices, none."""

import pytest

from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.policy.box.visible import gpu_seen, hides_all

FOUR = Gpus(tuple(Gpu(index, f"GPU-{letter * 8}-0") for index, letter in enumerate("abcd")))


@pytest.mark.parametrize(
    ("visible", "place", "index"),
    [
        (None, 0, 0),
        (None, 2, 2),
        ("2,3", 0, 2),
        ("2,3", 1, 3),
        (" 1 , 0", 1, 0),
        ("2", 1, None),
        ("", 0, None),
        ("-1", 0, None),
        ("-1,2", 1, None),
        ("1,-1,2", 0, 1),
        ("1,-1,2", 1, None),
        ("GPU-cccccccc-0", 0, 2),
        ("GPU-dd", 0, 3),
        ("GPU-", 0, None),
        ("dd", 0, None),
        ("dd-GPU-dd", 0, None),
        ("GPU-ffff", 0, None),
        ("GPU-ffff,1", 1, None),
        ("MIG-GPU-bbbbbbbb-0/7/0", 0, 1),
        ("MIG-0f3c-11", 0, None),
        ("all", 0, None),
    ],
)
def test_the_gpu_at_a_place_of_what_cuda_shows(visible, place, index):
    assert gpu_seen(visible, place, FOUR) == index


@pytest.mark.parametrize(
    ("visible", "place", "hides"),
    [
        (None, 9, False),
        ("3", 0, False),
        ("3", 1, True),
        ("4", 0, True),
        ("", 0, True),
        ("-1", 0, True),
        ("GPU-ffff", 0, True),
        ("GPU-dd,9", 0, False),
        ("GPU-dd,9", 1, True),
        ("MIG-GPU-ffff/7/0", 0, True),
        ("MIG-0f3c-11", 0, False),
    ],
)
def test_whether_cuda_certainly_shows_none(visible, place, hides):
    assert hides_all(visible, place, FOUR) is hides
    assert not hides_all(visible, place, Gpus(None)), "of a box whose GPUs are not known that is not known"


@pytest.mark.parametrize("gpus", [None, Gpus(None), Gpus(())])
def test_a_uuid_needs_the_driver_and_an_index_does_not(gpus):
    assert gpu_seen("GPU-aa", 0, gpus) is None
    assert gpu_seen("3", 0, gpus) == 3
