"""Errors that say nothing about a file or a process: at this moment the machine lacks descriptors, memory or threads.

Such an error passes. Code that answers other errors with "there is no such file" raises this one instead: a worker whose
/proc/PID/stat cannot be opened for lack of a descriptor is not gone.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_LACK: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
NO_THREAD: Final = "can't start new thread"


def is_lack(error: BaseException) -> bool:
    """Whether the same call may succeed later, when the lack is over."""
    if isinstance(error, OSError):
        return error.errno in _LACK
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_THREAD in str(error))


def is_named(text: str) -> bool:
    """Whether the last words of another process are such an error."""
    words = (*map(os.strerror, _LACK), NO_THREAD, MemoryError.__name__)
    return any(each in text for each in words)


def check(error: Exception) -> None:
    """Raise the error again if it is a lack."""
    if is_lack(error):
        raise error
