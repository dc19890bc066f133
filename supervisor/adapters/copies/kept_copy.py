"""Keeps a copy of a script's newest whole checkpoint where the script writes over it, and puts the copy back.

A script that always saves to `last.pt` has one checkpoint. A kill in the middle of a write leaves none. So the daemon copies
each new state of such a checkpoint to `kept/` in the program's run directory: a clone where the file system can, a link
where the script replaces its files, else a copy. There is one copy of each program, and two while a new one is made. A copy
is made only if the disk then still has room for two more, and beyond that for ten more or 1 GiB.

`kept/checkpoint.json` lists the files with their sizes, times and digests, as in a backup. A new copy is complete before
the old one is renamed to `kept.old/`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

from supervisor import lack
from supervisor.adapters import durable
from supervisor.adapters.copies import own
from supervisor.adapters.copies.own import OwnSaved
from supervisor.adapters.process.own_checkpoints import KEPT, KeptCopy, Place, marks_of
from supervisor.adapters.process.whole_files import File
from supervisor.as_user import as_daemon
from supervisor.policy.worker.newest_whole import Candidate

_OLD: Final = f"{KEPT}.old"
_NEW: Final = f"{KEPT}.tmp"
_LIST: Final = "checkpoint.json"
_LEAST_FREE_BYTES: Final = 1 << 30


class KeptCopies:
    """The copies of all programs. The functions that copy are slow."""

    def of(self, place: Place) -> KeptCopy | None:
        """The copy that can be put back into this place; None: there is none."""
        with as_daemon():
            found = _read(place)
        if found is None:
            return None
        directory, saved = found
        return KeptCopy(f"{place.base}/{saved.path}", saved.step, marks_of(saved.files), str(directory / own.FILES))

    def keep(self, place: Place, newest: Candidate, files: tuple[File, ...], *, replaced: bool) -> str:
        """Copy this checkpoint, with the files that were whole; `replaced`: its script replaces files.

        Returns why not, as a clause. Raises OSError, also if they are other files by now.
        """
        new, kept, old = (Path(place.run_dir, name) for name in (_NEW, KEPT, _OLD))
        room = os.statvfs(place.run_dir)
        if room.f_bavail * room.f_frsize < 3 * newest.size_bytes + min(10 * newest.size_bytes, _LEAST_FREE_BYTES):
            free_mb = room.f_bavail * room.f_frsize / 1e6
            return f"no copy of {newest.path} is kept, because only {free_mb:,.0f} MB are free in {place.run_dir}"
        shutil.rmtree(new, ignore_errors=True)
        try:
            saved, _ = own.copy_checkpoint(place, newest, files, new, lambda _: None, link=replaced)
            durable.create(new / _LIST, json.dumps({"base": place.base, **saved.to_json()}).encode())
            durable.sync_directory(new)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        if kept.exists():
            shutil.rmtree(old, ignore_errors=True)
            kept.rename(old)
        new.rename(kept)
        durable.sync_directory(kept.parent)
        shutil.rmtree(old, ignore_errors=True)
        return ""

    def put_back(self, place: Place) -> None:
        """Put the copy back into its place. What is newer there is set aside. Raises OSError, ValueError, Unanswered."""
        with as_daemon():
            found = _read(place)
        if found is not None:
            own.stage(*found, place, lambda _: None)
            own.exchange(found[1], place, most_aside=3)

    def drop(self, place: Place) -> None:
        """Remove the copy: the program goes back to an older checkpoint."""
        with as_daemon():
            for name in (_OLD, KEPT):
                shutil.rmtree(Path(place.run_dir, name), ignore_errors=True)


def _read(place: Place) -> tuple[Path, OwnSaved] | None:
    for name in (KEPT, _OLD):
        directory = Path(place.run_dir, name)
        try:
            body = durable.read_json(f"{directory}/{_LIST}")
            if body["base"] == place.base:
                return directory, own.OwnSaved.from_json(body)
        except (OSError, ValueError, KeyError, TypeError) as error:
            lack.check(error)
    return None
