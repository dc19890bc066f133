"""Out of memory is told apart from every other failure of the same words, with the real errors of the real libraries."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import preload
import pytest
import torch
from tools import ROOT

from workers import background, contract, out_of_memory

REFUSE_CODE = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit("this kernel has no PR_SET_MDWE")
"""
CONVOLVE = """
import resource, sys
from pathlib import Path
import torch
from workers import out_of_memory

torch.set_num_threads(1)
frames, network = torch.zeros(2, 4, 8, 8), torch.nn.Conv2d(4, 32, 3)
if sys.argv[1] == "little":  # enough for the tensors, too little for what oneDNN compiles
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 10), resource.RLIM_INFINITY))
try:
    network(frames)
except RuntimeError as error:
    print(error, out_of_memory.is_out(error), out_of_memory.is_refused_code(error), sep="|")
else:
    print("fine")
"""


WORK = """
import runpy
import torch
from workers.algorithms.dqn import Learner

# Which of our layers oneDNN makes code for depends on the CPU. For this one it does on all of x86.
Learner.train = lambda *_: torch.nn.Conv2d(4, 32, 3)(torch.zeros(2, 4, 8, 8))
runpy.run_module("workers", run_name="__main__")
"""


def python(code: str, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, **more
    )
    if "no PR_SET_MDWE" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


def convolve(room: str, refuse: str = "") -> str:
    done = python(refuse + CONVOLVE, room)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_convolution_without_memory_for_its_code_ran_out_of_memory() -> None:
    said, *classes = convolve("little").split("|")
    assert said in {"could not create a primitive", "std::bad_alloc"}, "by the processor and the build of torch"
    assert classes == ["True", "False"]


def test_a_convolution_in_a_service_that_may_not_make_code_did_not_run_out_of_memory() -> None:
    assert convolve("all", REFUSE_CODE) == "could not create a primitive|False|True"


def test_a_worker_whose_service_may_not_make_code_says_what_to_do(tmp_path: Path) -> None:
    """No restart and no smaller batch helps: it is told as a mistake of the configuration, in one sentence."""
    env = {**os.environ, contract.ENV_RUN_DIR: str(tmp_path)}
    done = python(REFUSE_CODE + WORK, "--program=Catch", "--num-envs=2", "--batch-size=16", "--threads=1", env=env)
    assert done.returncode == contract.EXIT_CONFIG, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "workers: torch may not make machine code here: take MemoryDenyWriteExecute= out of the service's unit "
        "(systemctl edit extralife)"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("algo", ["dqn", "pqn"])
def test_a_worker_on_a_box_without_room_for_a_thread_says_so_and_is_started_again(tmp_path: Path, algo: str) -> None:
    """As the kernel refuses one at a limit: CPython says it in its words, envpool in those of C++."""
    preload.no_forks(tmp_path, refused=True)
    env = {**os.environ, **preload.environment(tmp_path), contract.ENV_RUN_DIR: str(tmp_path / "run")}
    done = subprocess.run(
        [sys.executable, "-m", "workers", "--program=Catch", f"--algo={algo}", "--num-envs=4", "--threads=1"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == contract.EXIT_FAILED, done.stderr
    assert done.stderr.splitlines()[-1] == f"workers: {background.NO_THREADS}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (MemoryError(), "host"),
        (np.exceptions.AxisError(3, 1), None),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "host"),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), "gpu"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "gpu"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"), "host"),
        (RuntimeError("std::bad_alloc"), "host"),
        (RuntimeError("could not create a primitive"), "host"),
        (RuntimeError("could not execute a primitive"), "host"),
        (RuntimeError("could not create a memory object"), "host"),
        (RuntimeError("could not create a primitive descriptor for the matmul primitive. Run workload with"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), None),
        (ValueError("could not create a primitive"), None),
    ],
)
def test_where_memory_ran_out(error: Exception, where: str | None) -> None:
    assert out_of_memory.is_out(error) == (where is not None)
    assert not out_of_memory.is_refused_code(error)
    if where:
        assert out_of_memory.describe(error, 64)["where"] == where
