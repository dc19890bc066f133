"""Detects out-of-memory errors, of the host or of the GPU, among all other failures.

Python raises MemoryError, numpy a subclass of it, torch a plain RuntimeError for the host and torch.OutOfMemoryError for
the GPU, and a system call returns ENOMEM. oneDNN, which computes convolutions on a CPU, reports only which operation
failed, not the cause. Once it has accepted an operation (refusals mention a "primitive descriptor"), two causes remain:
no memory for its code and buffers, or a process that may not create machine code. A small executable mapping
distinguishes them. For all causes except the second the remedy is the same: a smaller batch.
"""

from __future__ import annotations

import errno
import mmap
import resource
from typing import Any

import torch

_HOST = ("can't allocate memory", "bad_alloc", "cannot allocate memory")
_ONEDNN = ("could not create a primitive", "could not execute a primitive", "could not create a memory object")
_GPU = ("cuda out of memory", "cuda error: out of memory", "cublas_status_alloc_failed")


def is_out(error: BaseException) -> bool:
    """Whether this error means that memory ran out."""
    return _where(error) is not None


def is_refused_code(error: BaseException) -> bool:
    """Whether oneDNN failed because this process may not create machine code.

    Causes: systemd's MemoryDenyWriteExecute=, PR_SET_MDWE.
    """
    return _is_onednns(error) and not _may_make_code()


def describe(error: BaseException, batch_size: int) -> dict[str, Any]:
    """The report for the supervisor: host or GPU, the batch, and the peak memory use."""
    found: dict[str, Any] = {"where": _where(error) or "host", "batch_size": batch_size, "error": _line(error)}
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if found["where"] == "gpu" and torch.cuda.is_available():
        found["peak_cuda_bytes"] = torch.cuda.max_memory_reserved()
    return found


def _where(error: BaseException) -> str | None:
    if isinstance(error, torch.OutOfMemoryError):
        return "gpu"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "host"
    if isinstance(error, RuntimeError):
        text = str(error).lower()
        if any(sign in text for sign in _GPU):
            return "gpu"
        if any(sign in text for sign in _HOST) or (_is_onednns(error) and _may_make_code()):
            return "host"
    return None


def _is_onednns(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and str(error).strip().lower() in _ONEDNN


def _may_make_code() -> bool:
    """Whether a page may be both writable and executable. A lack of memory for one page does not count as a refusal."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def _line(error: BaseException) -> str:
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first[:300]}" if first else type(error).__name__
