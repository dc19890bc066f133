"""Power cuts in the middle of a backup, of a rollback and of a compaction of the journal: nothing that was whole is lost.

Each test cuts the power twice: as soon as the work is seen on the disk, and a little later. The moment is drawn by
`EXTRALIFE_LAB_SEED`; it is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import CONFIG, CTL, GAMES, STATE, UNIT, Installed
from labbox import PATIENCE, until

from workers.contract import TMP_SUFFIX

SEED = int(os.environ.get("EXTRALIFE_LAB_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
_LATER_S = 0.05  # the second cut comes at most so long after the first sign of the work
_FACTS = 6000
# Fills a stopped daemon's journal, with a snapshot in every thousand facts: more than a megabyte, so that the next daemon
# moves a part of it to the archive one minute after its start.
_FILL = """
import sys
from supervisor.adapters.journal.sqlite import open_or_salvage
from supervisor.model.facts import ClockStepped, Snapshot
from supervisor.model.codec import as_text
from supervisor.model.fold import fold_all
from pathlib import Path
journal, stamped, _ = open_or_salvage(Path("/var/lib/extralife/journal.sqlite"), wall_s=0.0)
last = stamped[-1]
text = as_text(fold_all(stamped))
for number in range(int(sys.argv[1]) // 1000):
    some = [ClockStepped(why="of a test " + "x" * 300, step_s=0.0) for _ in range(999)]
    stamps = {"at_s": last.at_s, "wall_s": last.wall_s, "boot_id": last.boot_id}
    journal.append([*some, Snapshot("of a test", text)], **stamps)
journal.close()
"""
# The numbers of all facts, in the archive and in the journal.
_NUMBERS = """
import json
from pathlib import Path
from supervisor.adapters.journal.archive import folder, read_archive
from supervisor.adapters.journal.sqlite import JournalReader
journal = Path("/var/lib/extralife/journal.sqlite")
archived = [stamped.seq for stamped in read_archive(folder(journal))]
with JournalReader(journal) as reader:
    kept = [stamped.seq for stamped in reader.read()]
print(json.dumps([archived, kept]))
"""


@pytest.fixture(scope="module", autouse=True)
def _training(box: Installed) -> None:
    box.configure(CONFIG)
    box.install()
    _trains_and_has_saved(box)
    print(f"EXTRALIFE_LAB_SEED={SEED}")


def _trains_and_has_saved(box: Installed) -> None:
    box.wait_until_trains()
    until(lambda: all(program["ckpt_step"] for program in box.programs().values()), 60, "a checkpoint of each")


def _python(box: Installed, code: str, *args: str) -> str:
    """As the service's own user, with the installed release."""
    as_user = ("setpriv", "--reuid=extralife", "--regid=extralife", "--init-groups")
    return box.run(*as_user, "/opt/extralife/current/.venv/bin/python", "-P", "-c", code, *args).stdout


def _seen(look: Callable[[], Any], what: str, timeout_s: float = 120.0) -> None:
    """Until the work is seen on the disk; it may last for a few milliseconds only."""
    deadline_s = time.monotonic() + timeout_s * PATIENCE
    while not look():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        time.sleep(0.0005)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _cut(box: Installed, cut: int) -> None:
    if cut:
        time.sleep(random.Random(SEED + cut).uniform(0.0, _LATER_S))  # not a wait: the time of the cut is what is tried
    box.cut_power()
    box.boot()


def _begin(box: Installed, *args: str) -> threading.Thread:
    """An action of extralifectl; its answer is not waited for, and the box goes down under it."""

    def ask() -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            box.run(*CTL, *args, check=False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def _nothing_lost(box: Installed, least: dict[str, int]) -> None:
    assert box.integrity() == "ok"
    saved = box.checkpoints()
    assert all(whole for found in saved.values() for _, whole in found), saved
    resumed = {fact["program"]: fact["step"] for fact in box.facts("Resumed")}
    assert all(resumed[name] >= least[name] for name in GAMES), (resumed, least)


def _backups(box: Installed) -> dict[str, dict[str, Any]]:
    """All of them, every byte read."""
    found = {each["name"]: each for each in json.loads(box.ctl("backups", "--check", "--json"))["backups"]}
    assert all(not each["error"] for each in found.values()), found
    return found


@pytest.mark.parametrize("cut", [0, 1])
def test_a_cut_in_a_backup_leaves_a_whole_one_or_none(box: Installed, cut: int) -> None:
    _trains_and_has_saved(box)
    box.ctl("backup", "all", "--label", f"before cut {cut}", check=True)
    before, steps = _backups(box), {name: program["ckpt_step"] for name, program in box.programs().items()}
    place = box.from_outside(f"{STATE}/backups")
    thread = _begin(box, "backup", "all", "--label", f"cut {cut}")
    _seen(lambda: set(_names(place)) - set(before), "a backup being made")
    _cut(box, cut)
    thread.join()
    _trains_and_has_saved(box)
    _nothing_lost(box, steps)
    after = _backups(box)
    assert set(before) <= set(after)
    box.ctl("backup", "all", "--label", f"after cut {cut}", check=True)
    assert len(_backups(box)) == len(after) + 1
    assert not [name for name in box.run("ls", f"{STATE}/backups").stdout.split() if name.endswith(TMP_SUFFIX)]


@pytest.mark.parametrize("cut", [0, 1])
def test_a_cut_in_a_rollback_leaves_one_state_or_the_other(box: Installed, cut: int) -> None:
    _trains_and_has_saved(box)
    box.ctl("backup", "all", "--label", f"to go back to, cut {cut}", check=True)
    before = _backups(box)
    name, newest = max(before.items(), key=lambda item: item[1]["created_wall_s"])
    least = {each["name"]: each["steps"] for each in newest["programs"]}
    places = {game: box.from_outside(f"{STATE}/programs/{game}/checkpoints") for game in GAMES}
    backed_up = {item for game in GAMES for item in _names(box.from_outside(f"{STATE}/backups/{name}/programs/{game}"))}
    until(lambda: not any(backed_up & set(_names(place)) for place in places.values()), 120, "its checkpoints to be pruned")
    thread = _begin(box, "rollback", name, "all")
    _seen(
        lambda: any(item.removesuffix(TMP_SUFFIX) in backed_up for place in places.values() for item in _names(place)),
        "a checkpoint of the backup beside the others",
    )
    _cut(box, cut)
    thread.join()
    _trains_and_has_saved(box)
    _nothing_lost(box, least)
    assert set(before) <= set(_backups(box)), "what there was before is kept, too"


@pytest.mark.parametrize("cut", [0, 1])
def test_a_cut_in_a_compaction_loses_no_fact(box: Installed, cut: int) -> None:
    _trains_and_has_saved(box)
    steps = {name: program["ckpt_step"] for name, program in box.programs().items()}
    box.run("systemctl", "stop", UNIT)
    _python(box, _FILL, str(_FACTS))
    archived, kept = json.loads(_python(box, _NUMBERS))
    box.configure(CONFIG + "[journal]\nmax_mb = 1\n")
    place = box.from_outside(f"{STATE}/journal-archive")
    there = set(_names(place))
    box.run("systemctl", "start", UNIT)
    _seen(lambda: set(_names(place)) - there, "the archive being written", 150.0)
    _cut(box, cut)
    _trains_and_has_saved(box)
    _nothing_lost(box, steps)
    until(lambda: [item for item in _names(box.from_outside(f"{STATE}/journal-archive")) if item.endswith(".gz")], 120, "it")
    now_archived, now_kept = json.loads(_python(box, _NUMBERS))
    assert len(now_kept) < len(kept) + 1000
    assert set(archived) | set(kept) <= set(now_archived) | set(now_kept)
    assert sorted({*now_archived, *now_kept}) == list(range(1, max(now_kept) + 1)), "every number once, without a gap"
