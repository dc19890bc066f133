"""Remembers the mount point of the state directory, outside of that directory, to detect a missing mount before a start.

If the disk of the state directory is not mounted, the path leads to a directory on the root disk, which is usually empty.
A daemon that starts there begins every training anew, next to the real ones. It also writes its sign of life to the place
where the real journal appears a minute later. The directory itself cannot show this, because it is the wrong one.

So after each start the mount point is written to a small file in the cache directory ($CACHE_DIRECTORY of systemd, else
$XDG_CACHE_HOME/extralife, else ~/.cache/extralife). A later start is refused if nothing is mounted at that mount point.
For a state directory on the root file system there is no file. A cache that cannot be read or written proves nothing and
never prevents a start.

A mount point is a directory on another device than its parent. Bind mounts of the same file system, as systemd makes them
for a service, do not count: outside of the service they do not exist, and no data is missing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from supervisor import files
from supervisor.adapters import durable

_LARGEST_BYTES = 1 << 16


def cache_dir(environ: Mapping[str, str]) -> Path | None:
    """The directory of these files. None if the environment names none."""
    if environ.get("CACHE_DIRECTORY"):
        return Path(environ["CACHE_DIRECTORY"].split(":")[0])
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "extralife" if base else None


def record_of(state_dir: str, cache: Path) -> Path:
    """The file for one state directory."""
    mark = hashlib.blake2b(os.fsencode(os.path.realpath(state_dir)), digest_size=8).hexdigest()
    return cache / f"mount-{mark}.json"


def mount_point(path: str) -> str:
    """The nearest directory, at or above a path, that is on another device than its parent; `/` if there is none.

    Raises OSError.
    """
    at = Path(os.path.realpath(path))
    while at != at.parent:
        if at.lstat().st_dev != at.parent.lstat().st_dev:
            return str(at)
        at = at.parent
    return "/"


def refuse_if_missing(state_dir: str, cache: Path | None) -> None:
    """Raises OSError, with instructions, if the state directory was on a mount that is now missing."""
    if cache is None:
        return
    record = record_of(state_dir, cache)
    try:
        known = durable.read_json(record)["mount_point"]
        there = Path(known)
        mounted = there.parent == there or there.lstat().st_dev != there.parent.lstat().st_dev
    except FileNotFoundError as error:
        if error.filename == str(record):
            return
        mounted = False
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not mounted:
        raise OSError(
            errno.ENXIO,
            f"the state directory {state_dir} was on the file system mounted at {known}, and nothing is mounted there: "
            f"mount it; to begin anew without it, remove {record}",
        )


def remember(state_dir: str, cache: Path | None) -> str:
    """Record the mount point of a state directory in use. Returns the error; empty if there is none."""
    if cache is None:
        return ""
    record = record_of(state_dir, cache)
    try:
        point = mount_point(state_dir)
        if point == "/":
            record.unlink(missing_ok=True)
            return ""
        text = json.dumps({"state_dir": os.path.realpath(state_dir), "mount_point": point}) + "\n"
        with contextlib.suppress(OSError):
            if files.read(record, _LARGEST_BYTES) == text.encode():
                return ""
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(record, text.encode(), aside=record.with_suffix(f".{os.getpid()}"))
    except OSError as error:
        return f"{record}: {error.strerror or error}"
    return ""
