"""Read-ahead after a reboot: the disk reads the large files of a start while Python still imports its first modules.

The page cache is empty then. An import requests one page at a time and waits for each; libtorch alone is hundreds of
megabytes. With posix_fadvise the kernel reads ahead in the background; pages that are already in memory cost nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers.contract import CHECKPOINTS_DIR, parse_checkpoint_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES: Final = {"torch": "lib/*.so*", "envpool": "atari/*.so*"}
_LEAST_BYTES: Final = 1 << 20  # smaller files are not worth a call: other reads of the directory bring them in


def begin(run_dir: Path | None) -> threading.Thread:
    """Read ahead, in a thread. A failure only costs speed, so it is not reported."""
    thread = threading.Thread(target=_read_ahead, args=(run_dir,), name="prefetch", daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be started now
        thread.start()
    return thread


def files(run_dir: Path | None) -> Iterator[Path]:
    """The large libraries, in the order in which they are imported, then the newest checkpoint."""
    for package, pattern in _LIBRARIES.items():
        found = importlib.util.find_spec(package)
        for directory in (found.submodule_search_locations or ()) if found is not None else ():
            large = [path for path in Path(directory).glob(pattern) if path.stat().st_size >= _LEAST_BYTES]
            yield from sorted(large, key=lambda path: -path.stat().st_size)
    if run_dir is not None:
        saved = [path for path in (run_dir / CHECKPOINTS_DIR).glob("*") if parse_checkpoint_name(path.name)]
        for checkpoint in sorted(saved, key=lambda path: path.stat().st_mtime)[-1:]:
            yield from (path for path in checkpoint.glob("*") if path.is_file())


def _read_ahead(run_dir: Path | None) -> None:
    with contextlib.suppress(OSError):
        for path in files(run_dir):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)
