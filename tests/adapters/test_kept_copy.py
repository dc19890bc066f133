"""The copy that is kept of a checkpoint which its script writes over: real files, cut in the middle of a write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import BootClock, Inbox, eventually
from test_own_checkpoints import plain, spec, to_start
from test_whole_files import saved
from tools import no_descriptors

from supervisor.adapters import threads
from supervisor.adapters.copies import kept_copy
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.process import own_checkpoints, own_scans
from supervisor.adapters.process.own_checkpoints import Place, place_of
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.worker import newest_whole

TORN = b"PK\x03\x04 begun"


class Script:
    """A script with its checkpoints in `work`, the looks of its daemon, and its kept copy."""

    def __init__(self, directory: Path, glob: str = "*.pt") -> None:
        self.work, self.inbox, self.number = directory / "work", Inbox(), 0
        self.work.mkdir()
        paths = Paths(str(directory / "state"), "/run")
        self.run_dir = Path(paths.run_dir("Pong"))
        self.run_dir.mkdir(parents=True)
        self.spec: ProgramSpec = spec(self.work, glob)
        self.place: Place = place_of(self.spec, str(self.run_dir))  # type: ignore[assignment]
        self.own = OwnCheckpoints(paths, BootClock(), self.inbox, KeptCopies())

    def starts(self, *aside: str, killed: bool = True, **more: object) -> OwnCheckpoint:
        """What the next attempt begins with, after a kill of the one before or an orderly end."""
        self.number += 1
        more = {"doubt_from_wall_s": time.time() - 5.0 if killed else None, **more}
        paths = tuple(str(self.work / name) for name in aside)
        begun: list[str | None] = []
        order = to_start(self.spec, f"t{self.number}", paths, **more)  # type: ignore[arg-type]
        self.own.before_start(order, begun.append, pytest.fail)
        assert eventually(lambda: begun)
        return self.inbox.expect(CheckpointsFound).found

    def looks_until(self, marked: str) -> None:
        """Looks of a running program until there is a copy of this file or directory as it is now."""
        path = str(self.work / marked)
        assert eventually(lambda: self.own.newest(self.spec) and (kept := self.kept) is not None and kept.is_of(path))
        assert eventually(lambda: not self.own._of(self.spec).copying.locked())  # type: ignore[union-attr]

    def looks(self, times: int = 20) -> None:
        for _ in range(times):
            self.own.newest(self.spec)
            time.sleep(0.01)
        self.looks_end()

    def looks_end(self) -> None:
        assert eventually(lambda: not self.own._of(self.spec).copying.locked())  # type: ignore[union-attr]

    @property
    def kept(self) -> own_checkpoints.KeptCopy | None:
        return KeptCopies().of(self.place)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_scans, "_START_WAIT_S", 55.0)
    monkeypatch.setattr(own_scans, "_LOOK_S", 0.0)
    monkeypatch.setattr(own_scans, "_SOON_S", 0.0)
    monkeypatch.setattr(own_scans, "_LOOK_SHARE", 1e9)
    monkeypatch.setattr(own_scans, "_COPY_SHARE", 1e9)
    monkeypatch.setattr(newest_whole, "_SETTLED_S", 0.0)


@pytest.fixture
def script(tmp_path: Path, quick: None) -> Iterator[Script]:
    made = Script(tmp_path)
    yield made
    made.own.close()


def test_an_only_file_that_is_cut_in_the_middle_of_a_write_is_put_back_from_its_copy(script: Script) -> None:
    script.starts(killed=False)
    whole = saved(script.work / "last.pt").read_bytes()
    script.looks_until("last.pt")
    (script.work / "last.pt").write_bytes(TORN)
    script.looks(3)
    found = script.starts()
    assert (found.path, found.put_back, found.torn) == (str(script.work / "last.pt"), True, "")
    assert (script.work / "last.pt").read_bytes() == whole
    assert (script.work / ".last.pt.bad").read_bytes() == TORN
    assert sorted(path.name for path in script.run_dir.iterdir()) == ["kept", "starts.json"]
    assert not script.starts().put_back, "it is in its place now"
    for number in range(5):
        (script.work / "last.pt").write_bytes(TORN + b"%d" % number)
        assert script.starts().put_back
    assert {path.read_bytes() for path in script.work.glob(".*.bad")} == {TORN + b"%d" % number for number in (2, 3, 4)}


def test_one_written_just_before_a_kill_stays_until_starts_die_of_it(script: Script) -> None:
    script.starts(killed=False)
    plain(script.work / "last.pt", 10.0)
    script.looks_until("last.pt")
    cut = plain(script.work / "last.pt", 1.0)
    cut.write_bytes(b"half")
    found = script.starts()
    assert (found.path, found.sure, found.put_back, found.spare) == (str(cut), False, False, script.kept.place)  # type: ignore[union-attr]
    assert cut.read_bytes() == b"half"
    found = script.starts("last.pt")
    assert (found.path, found.put_back) == (str(cut), True)
    assert (cut.read_bytes(), (script.work / ".last.pt.bad").read_bytes()) == (b"some bytes", b"half")
    assert script.starts(doubt_from_wall_s=time.time() - 4.0).sure, "a copy is whole, whatever its time"


def test_one_that_was_set_aside_on_trial_comes_back_in_place_of_the_copy(script: Script) -> None:
    script.starts(killed=False)
    last = plain(script.work / "last.pt", 9.0)
    script.looks_until("last.pt")
    plain(last, 0.0).write_bytes(b"newer bytes")
    assert script.starts("last.pt").put_back
    assert last.read_bytes() == b"some bytes"
    assert script.starts(back=(str(last),)).path == str(last)
    assert last.read_bytes() == b"newer bytes"
    script.starts("last.pt")
    plain(last, 0.0).write_bytes(b"newest bytes")
    script.starts(back=(str(last),))
    assert last.read_bytes() == b"newest bytes", "the trial has saved"


def test_what_its_script_wrote_in_place_of_one_on_trial_stays_although_the_copy_is_of_it(script: Script) -> None:
    script.starts(killed=False)
    last = plain(script.work / "last.pt")
    last.write_bytes(b"cut")
    script.starts("last.pt")
    plain(last, -1.0)
    script.looks_until("last.pt")
    assert script.starts(back=(str(last),)).path == str(last)
    assert last.read_bytes() == b"some bytes"


def test_one_that_its_script_replaces_by_a_rename_is_whole_also_just_before_a_kill(script: Script) -> None:
    script.starts(killed=False)
    for _ in range(2):
        plain(script.work / "aside", -1.0).rename(script.work / "last.pt")
        script.looks_until("last.pt")
    plain(script.work / "aside", 0.0).rename(script.work / "last.pt")
    found = script.starts()
    assert (found.sure, found.put_back, list(script.work.glob(".*"))) == (True, False, [])


OFTEN = """
import os, sys, time
for number in range(100, 1000):
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(2):
            file.write(b"%d" % number * 500)
            time.sleep(float(sys.argv[2]))
    os.rename(sys.argv[1], sys.argv[3])
    time.sleep(1.0)
"""


SUSPENDED = """
import os, signal, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(b"half")
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_copy_of_an_only_file_stays_while_its_script_is_suspended_or_dead_within_a_write(
    tmp_path: Path, quick: None, number: signal.Signals
) -> None:
    """Its file is quiet for as long as one likes, and closed once the script is dead, which the daemon may not know yet."""
    script = Script(tmp_path, "last.pickle")
    script.starts(killed=False)
    last = plain(script.work / "last.pickle")
    script.looks_until("last.pickle")
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED, str(last), str(int(number))])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        progress_at_s, later = script.own._clock.now_s() - 60.0, time.time() + 1.0
        os.utime(last, (later, later))  # surely after the start

        def looked_at() -> bool:
            script.own.newest(script.spec, (process.pid,), progress_at_s)
            known = script.own._of(script.spec).scanner.known.get("last.pickle")  # type: ignore[union-attr]
            return known is not None and known.files[0].size_bytes == len(b"half") and known.looks > 3

        assert eventually(looked_at)
        script.looks_end()
    finally:
        process.kill()
        process.wait(30.0)
    assert [path.read_bytes() for path in (script.run_dir / "kept/own/files").iterdir()] == [b"some bytes"]
    found = script.starts(doubt_from_wall_s=later + 5.0)
    assert (found.sure, found.spare) == (False, script.kept.place), "it may be cut, and its output may name it"  # type: ignore[union-attr]
    assert script.starts("last.pickle").put_back
    assert last.read_bytes() == b"some bytes"


@pytest.mark.parametrize(("aside", "pause_s"), [("aside", 0.1), ("last.pickle", 0.7)])
def test_of_one_that_is_saved_every_second_each_copy_is_whole(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, aside: str, pause_s: float
) -> None:
    monkeypatch.setattr(newest_whole, "_SETTLED_S", 5.0)
    script, copies = Script(tmp_path, "last.pickle"), set[bytes]()
    script.starts(killed=False)
    writer = subprocess.Popen([sys.executable, "-c", OFTEN, aside, str(pause_s), "last.pickle"], cwd=script.work)

    def three() -> bool:
        script.looks(1)
        with contextlib.suppress(OSError):  # the next one takes its place
            copies.update(path.read_bytes() for path in (script.run_dir / "kept/own/files").iterdir())
        return len(copies) == 3

    try:
        assert eventually(three)
    finally:
        writer.kill()
        writer.wait(30.0)
    assert {each == each[:3] * 1000 for each in copies} == {True}


def test_a_directory_that_is_written_over_and_kills_its_script_is_put_back(tmp_path: Path, quick: None) -> None:
    """Each shard is whole, but not all are of one save: the suspect is set aside, and the copy is what lies before it."""
    script = Script(tmp_path, "last")
    script.starts(killed=False)
    for rank in range(2):
        saved(plain(script.work / "last" / f"rank{rank}.pt"))
    script.looks_until("last")
    saved(script.work / "last" / "rank0.pt", 500)
    os.unlink(script.work / "last" / "rank1.pt")
    before = time.time() - 1.0  # surely before the start: the clock of files ticks every 4 ms
    os.utime(script.work / "last" / "rank0.pt", (before, before))
    found = script.starts()
    assert (found.put_back, found.spare) == (False, str(script.run_dir / "kept/own/files"))
    script.looks()
    assert len(script.kept.marks) == 2, "what lay there at the start does not take the place of the copy"  # type: ignore[union-attr]
    assert script.starts("last").put_back
    assert sorted(path.name for path in (script.work / "last").iterdir()) == ["rank0.pt", "rank1.pt"]
    assert (script.work / ".last.bad" / "rank0.pt").exists()
    os.rename(script.work / "last", script.work / "gone")
    assert script.starts().put_back, "that another state of it was set aside is no reason"


def test_of_a_script_that_replaces_its_file_the_copy_is_a_link(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_copy.durable, "clone", lambda *_: "")  # no file system that shares blocks
    script.starts(killed=False)
    for size in (300, 400):
        saved(script.work / "aside", size).rename(script.work / "last.pt")
        script.looks_until("last.pt")
    inode = (script.work / "last.pt").stat().st_ino
    kept = next(path for path in (script.run_dir / "kept").rglob("checkpoint") if path.is_file())
    assert kept.stat().st_ino == inode
    os.unlink(script.work / "last.pt")
    assert script.starts().put_back
    assert (script.work / "last.pt").stat().st_ino != kept.stat().st_ino, "what a script may write over is never the copy"


@pytest.mark.parametrize("copied", [True, False])
def test_a_copy_is_no_link_to_a_file_that_its_script_writes_over_after_another_one_was_renamed_here(
    script: Script, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """The file is another one than at the look before, but its script has not replaced it: the next write would be in it."""
    monkeypatch.setattr(kept_copy.durable, "clone", lambda *_: "")  # no file system that shares blocks
    script.starts(killed=False)
    last = saved(script.work / "last.pt")
    if copied:
        script.looks_until("last.pt")
        last.write_bytes(TORN)
        assert script.starts().put_back
    else:
        last.write_bytes(TORN)
        script.looks(3)
        script.starts("last.pt")
    later = time.time() + 1.0  # surely after the start
    os.utime(saved(last, 300), (later, later))
    script.looks_until("last.pt")
    (kept,) = (path for path in (script.run_dir / "kept/own/files").iterdir())
    assert kept.stat().st_ino != last.stat().st_ino


def test_what_is_kept_beside_others(script: Script) -> None:
    """A script that writes each file once has the one before; of a path that is used again there is a copy."""
    script.starts(killed=False)
    for step in (1, 2, 3):
        plain(script.work / f"step={step}.pt")
        saved(script.work / f"step={step}.pt")
        script.looks(5) if step > 1 else None
    assert script.kept is None
    saved(script.work / "step=3.pt", 500)
    script.looks_until("step=3.pt")


def test_a_checkpoint_that_is_gone_comes_back_after_a_kill_and_not_if_somebody_removed_it(script: Script) -> None:
    script.starts(killed=False)
    path = saved(script.work / "last.pt")
    script.looks_until("last.pt")
    path.unlink()
    found = script.starts(killed=False)
    note = f"nothing matches checkpoint_glob {script.work}/*.pt; a copy of {path} is kept in {script.run_dir}/kept/own/files"
    assert (found.path, found.note) == ("", note)
    assert script.starts().put_back
    saved(script.work / "later.pt")
    path.unlink()
    assert script.starts().path == str(script.work / "later.pt"), "it is newer than the copy"


def test_after_a_rollback_the_copy_is_no_longer_put_back(script: Script) -> None:
    script.starts(killed=False)
    saved(script.work / "step=3.pt")
    script.looks_until("step=3.pt")
    script.starts(from_step=2)
    assert script.kept is None


def test_a_disk_without_room_keeps_no_copy_and_says_so(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.starts(killed=False)
    size = saved(script.work / "step=1.pt").stat().st_size
    room = (1 + 2 + 10) * size
    monkeypatch.setattr(kept_copy.os, "statvfs", lambda _: SimpleNamespace(f_bavail=room - 1, f_frsize=1))
    says = f"no copy of step=1.pt is kept, because only {(room - 1) / 1e6:,.0f} MB are free in {script.run_dir}"
    assert eventually(lambda: (found := script.own.newest(script.spec)) and found.note == says)
    monkeypatch.setattr(kept_copy.os, "statvfs", lambda _: SimpleNamespace(f_bavail=room, f_frsize=1))
    script.looks_until("step=1.pt")


def test_a_copy_from_another_place_is_not_the_copy_of_this_one(script: Script) -> None:
    script.starts(killed=False)
    saved(script.work / "last.pt")
    script.looks_until("last.pt")
    assert KeptCopies().of(replace(script.place, base="/elsewhere")) is None


def test_a_copy_that_cannot_be_put_back_is_logged_and_the_start_goes_on(script: Script) -> None:
    script.starts(killed=False)
    saved(script.work / "last.pt")
    script.looks_until("last.pt")
    (script.run_dir / "kept/own/files/checkpoint").write_bytes(b"rotten")
    (script.work / "last.pt").write_bytes(TORN)
    found = script.starts()
    assert (found.path, found.torn, found.put_back) == ("", str(script.work / "last.pt"), False)
    assert (script.work / "last.pt").read_bytes() == TORN


def test_a_start_waits_until_a_lack_of_descriptors_no_longer_hides_the_copy(script: Script) -> None:
    script.starts(killed=False)
    saved(script.work / "last.pt")
    script.looks_until("last.pt")
    (script.work / "last.pt").write_bytes(TORN)
    begun: list[str | None] = []
    with no_descriptors():
        script.own.before_start(to_start(script.spec, "t9", doubt_from_wall_s=time.time()), begun.append, pytest.fail)
        assert eventually(lambda: "start-Pong" in {each.name for each in threads.failing()})
        assert not begun
    assert eventually(lambda: begun)
    assert script.inbox.expect(CheckpointsFound).found.put_back


def test_the_copy_of_a_checkpoint_that_was_set_aside_itself_is_not_put_back(script: Script) -> None:
    script.starts(killed=False)
    saved(script.work / "last.pt")
    script.looks_until("last.pt")
    (script.work / "last.pt").rename(script.work / ".last.pt.bad")
    assert not script.starts().put_back
