"""Out of memory: every row of the table, whose kill it was, and which batch comes next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker import out_of_memory

HOST, GPU = out_of_memory.OUT_OF_MEMORY, out_of_memory.CUDA_OUT_OF_MEMORY


@pytest.mark.fault("memory-error")
@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (("Traceback (most recent call last):", '  File "x.py", line 3, in f', "MemoryError"), HOST),
        (("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB",), HOST),
        (("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array",), HOST),
        (("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you",), HOST),
        (("OSError: [Errno 12] Cannot allocate memory",), HOST),
        (("terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc"), HOST),
        (("workers: out of memory (host) with batch 512: MemoryError",), HOST),
        (("workers: out of memory (gpu) with batch 512: OutOfMemoryError: CUDA out of memory.",), GPU),
        (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",), GPU),
        (("torch.cuda.OutOfMemoryError: CUDA out of memory.",), GPU),
        (("RuntimeError: CUDA error: out of memory", "CUDA kernel errors might be asynchronously reported"), GPU),
        (("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",), GPU),
        (("MemoryError", "ValueError: bad shape"), None),  # caught, and something else after it
        (("ValueError: bad shape", "MemoryError", "resource_tracker: 1 leaked object"), HOST),
        (("the MemoryError of yesterday",), None),
        (("MemoryErrors: 0",), None),
        ((), None),
    ],
)  # fmt: skip
def test_the_last_error_decides(lines, cause):
    assert out_of_memory.of_last_lines(lines) == cause


@pytest.mark.fault("oom-kill")
@pytest.mark.parametrize(
    ("oom_kills", "accounted", "left"),
    [(None, 3, None), ((0, 0), None, 0), ((0, 1), None, 1), ((3, 5), 4, 1), ((3, 5), 5, 0), ((0, 1), 7, 1), ((5, 5), 3, 0)],
)
def test_a_kill_counts_against_one_attempt_only(oom_kills, accounted, left):
    assert out_of_memory.kills(oom_kills, accounted) == left


@pytest.mark.fault("oom-kill")
def test_two_killed_at_once_are_both_killed_and_a_later_plain_kill_is_not():
    """Three lived while the counter rose from 0 to 2; two of them died of it, the third of kill -9 an hour later."""
    accounted, told = None, []
    for _ in range(3):
        said = out_of_memory.oom_kill(line="", oom_kills=(0, 2), accounted=accounted)
        told.append(bool(said))
        accounted = out_of_memory.accounted_after((0, 2), accounted, killed=bool(said))
    assert told == [True, True, False]
    assert out_of_memory.accounted_after(None, 4, killed=True) == 4
    assert out_of_memory.accounted_after((0, 2), None, killed=False) == 2, "a kill of something else is nobody's"


@pytest.mark.fault("oom-kill")
def test_the_kernels_own_line_is_worth_more_than_a_counter():
    assert out_of_memory.oom_kill(line="Killed process 7", oom_kills=(0, 0), accounted=None) == "Killed process 7"
    assert out_of_memory.oom_kill(line="", oom_kills=None, accounted=None) == ""
    said = out_of_memory.oom_kill(line="", oom_kills=(3, 4), accounted=None)
    assert said == "it acted in a cgroup that the worker shares, while it ran"


@pytest.mark.parametrize(
    ("batch", "smaller"), [(2048, 1024), (512, 256), (96, 48), (24, 8), (16, 8), (8, None), (100, 50), (7, 1), (1, None)]
)
def test_the_next_smaller_batch_that_divides(batch, smaller):
    assert out_of_memory.next_batch(batch) == smaller


@given(st.integers(1, 65536))
def test_it_always_divides_and_is_the_largest_that_does(batch):
    smaller = out_of_memory.next_batch(batch)
    unit = 8 if batch % 8 == 0 else 1
    fits = [size for size in range(unit, batch, unit) if batch % size == 0]
    assert smaller == max(fits, default=None)


@pytest.mark.parametrize(
    ("ran_with", "fallback", "lowered", "next_one"),
    [
        (2048, None, False, 1024), (2048, 768, False, 768), (768, 768, True, 384), (512, 768, False, 256),
        (768, 768, False, 384), (8, None, True, None),
    ],
)  # fmt: skip
def test_a_fallback_batch_comes_first(ran_with, fallback, lowered, next_one):
    assert out_of_memory.smaller_batch(ran_with, fallback=fallback, lowered=lowered) == next_one


@pytest.mark.parametrize(
    ("oom_kills", "limit_bytes", "said"),
    [
        ((0, 1), 6600 * 2**20, "it acted in the worker's own cgroup (its limit is 6,600 MiB)"),
        ((0, 3), None, "it acted in the worker's own cgroup (the box had no memory left)"),
        ((0, 0), 6600 * 2**20, ""),
        (None, None, ""),
    ],
)
def test_a_cgroup_of_its_own_counts_nobody_elses_kills(oom_kills, limit_bytes, said):
    """What earlier deaths have accounted for was counted elsewhere."""
    assert out_of_memory.oom_kill(line="", oom_kills=oom_kills, accounted=5, own=True, limit_bytes=limit_bytes) == said
