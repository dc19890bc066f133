"""The disk under the journal: full, failing, and with room again. Real daemons on a real file system that is really full."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alert_receiver import Hook
from box import PATIENCE, ROOT, Box, until

from supervisor.policy.box.prechecks import is_full


class SmallDisk:
    """A mount namespace in which the state directory lies on 80 MB of tmpfs, and the programs' directories do not."""

    options = "size=80m"

    def __init__(self, box: Box) -> None:
        self.box = box
        programs = box.directory / "programs"
        for directory in (box.state, programs):
            directory.mkdir()
        mount = (
            f"mount -t tmpfs -o {self.options} tmpfs {box.state} && mkdir {box.state}/programs && "
            f"mount --bind {programs} {box.state}/programs && echo ready && exec sleep 600"
        )
        self.holder = subprocess.Popen(["unshare", "-rm", "sh", "-c", mount], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.holder.stdout is not None
        self.works = self.holder.stdout.readline() == b"ready\n"

    @property
    def state(self) -> Path:
        """The state directory as the daemon sees it."""
        return Path(f"/proc/{self.holder.pid}/root{self.box.state}")

    def command(self) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-U", "-m", "--preserve-credentials"]

    def fill(self) -> None:
        with (self.state / "ballast").open("ab") as ballast:
            for size in (2**20, 4096, 4096, 4096):  # until ENOSPC, or a short write
                with contextlib.suppress(OSError):
                    while os.write(ballast.fileno(), bytes(size)) == size:
                        pass
                with contextlib.suppress(OSError):
                    os.fsync(ballast.fileno())  # btrfs gives back a part of what it had set aside

    def facts(self, kind: str | None = None, program: str | None = None) -> list[dict[str, Any]]:
        """As `Box.facts`, through the daemon: SQLite does not find its way into another namespace."""
        rows = [json.loads(line) for line in self.box.ctl("journal").stdout.splitlines()]
        told = [{**row["fields"], **{key: row[key] for key in ("seq", "kind", "program", "why")}} for row in rows]
        return [fact for fact in told if kind in (None, fact["kind"]) and program in (None, fact["program"])]

    def make_room(self) -> None:
        (self.state / "ballast").unlink()

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()


class FewInodes(SmallDisk):
    """Room for many bytes, and for 300 files."""

    options = "size=200m,nr_inodes=300"

    def fill(self) -> None:
        ballast = self.state / "ballast"
        ballast.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            for number in range(301):
                (ballast / f"{time.monotonic_ns()}-{number}").touch()

    def make_room(self) -> None:
        shutil.rmtree(self.state / "ballast")


class Quota(SmallDisk):
    """The state directory is a subvolume of btrfs with a limit of 80 MB: df shows free space, and writes meet EDQUOT."""

    def __init__(self, box: Box) -> None:
        self.box, self.place = box, box.directory / "btrfs"
        image = box.directory / "btrfs.img"
        self.place.mkdir()
        programs = box.directory / "programs"
        programs.mkdir()
        commands = (
            f"truncate -s 400M {image} && mkfs.btrfs -q {image} && mount -o loop {image} {self.place} && "
            f"btrfs quota enable {self.place} && btrfs subvolume create {self.place}/state && "
            f"btrfs qgroup limit 80M {self.place}/state && ln -s {programs} {self.place}/state/programs"
        )
        self.works = subprocess.run(["sh", "-c", commands], capture_output=True, check=False).returncode == 0
        box.state = self.place / "state"

    @property
    def state(self) -> Path:
        return self.box.state

    def command(self) -> list[str]:
        return []

    def close(self) -> None:
        subprocess.run(["umount", self.place], capture_output=True, check=False)


@pytest.fixture(params=[SmallDisk, Quota])
def disk(box: Box, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    made: SmallDisk = request.param(box)
    try:
        if not made.works:
            pytest.skip("no such file system can be mounted here; the test that fails writes with RLIMIT_FSIZE stands in")
        yield made
    finally:
        box.close()
        made.close()


def start_on(disk: SmallDisk, box: Box) -> None:
    """The daemon, inside the namespace."""
    env = {**os.environ, "EXTRALIFE_BOOT_FILES": str(box.boot_files), "PYTHONPATH": str(ROOT)}
    with box.log.open("ab") as log:
        box.daemon = subprocess.Popen(
            [*disk.command(), sys.executable, "-m", "supervisor", "-c", str(box.config_file)],
            cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    box.daemons.append(box.daemon)
    until(box._serves, 30, f"the daemon to serve; its log: {box.tail()}")


def said(hook: Hook, words: str) -> bool:
    return any(each["told"]["kind"] == "disk" and words in each["told"]["text"] for each in hook.got())


@pytest.mark.fault("disk-full-journal")
def test_a_full_disk_holds_up_what_is_new_and_nothing_else(
    box: Box, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Hook(box.directory)
    alerts = f"[alerts]\ncommand = {json.dumps(hook.argv)}\nsame_within_s = 0.0"
    box.config(box.trainer("a") + box.trainer("b") + box.trainer("c", keys="autostart = false"), extra=alerts)
    start_on(disk, box)
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    pids = {name: box.program(name)["pid"] for name in "ab"}
    monkeypatch.setattr(box, "facts", disk.facts)

    before = box.facts()
    disk.fill()
    os.kill(pids["a"], signal.SIGKILL)

    def stuck() -> Any:
        disk.fill()  # btrfs gives room back with each commit
        return box.status()["daemon"]["journal"]["error"]

    error = until(stuck, 20, "the status to say that the journal is stuck")
    assert is_full(error)
    assert "the journal has not been writable for" in box.ctl("status").stdout
    until(lambda: said(hook, "the journal cannot be written ("), 30, "somebody to be told, although nothing can be recorded")

    steps = box.program("b")["steps"]
    until(lambda: box.program("b")["steps"] > steps + 20, 20, "b to train on, and status to show it")

    began = time.monotonic()
    for request in (("start", "c"), ("stop", "b"), ("shutdown",)):
        asked = box.ctl(*request)
        assert "the journal cannot be written" in asked.stdout + asked.stderr
        assert asked.returncode != 0, request
    assert time.monotonic() - began < 15 * PATIENCE, "an operator gets an answer, and soon"
    disk.make_room()
    stalled = box.wait_fact("JournalStalled")
    box.wait_fact("BecameReady", "a", count=2)
    until(lambda: said(hook, "the journal could not be written for"), 30, "the end of it to be told")
    told = box.facts()
    assert [fact["seq"] for fact in told] == list(range(1, len(told) + 1))
    assert told[: len(before)] == before
    kinds = {fact["kind"] for fact in told[len(before) : told.index(stalled)]}
    assert not kinds & {"Exited", "SpawnIntended", "Wanted"}, "nothing was begun that was not on record"
    assert is_full(stalled["error"])
    assert stalled["for_s"] > 1.0
    assert len([fact for fact in told if fact["kind"] == "Exited"]) == 1
    assert len(box.facts("SpawnIntended", "a")) == 2
    assert not box.facts("Wanted"), "what was refused is not done later"
    assert box.program("b")["pid"] == pids["b"]
    assert box.status()["daemon"]["journal"]["error"] == ""
    assert "journal stalled" in box.ctl("history").stdout
    assert "the journal has not been writable" not in box.ctl("status").stdout


def test_without_a_free_inode_workers_train_on_it_is_reported_and_the_next_daemon_starts(box: Box) -> None:
    disk = FewInodes(box)
    try:
        if not disk.works:
            pytest.skip("no such file system can be mounted here")
        box.config(box.trainer("a"))
        start_on(disk, box)
        pid = box.wait_phase("a", "RUNNING")["pid"]
        disk.fill()
        until(lambda: "has no free inode" in box.ctl("status").stdout, 30, "the status to say so")
        box.kill_daemon()
        disk.fill()
        start_on(disk, box)
        assert box.program("a")["pid"] == pid
        until(lambda: "has no free inode" in box.ctl("report").stdout, 30, "the next daemon to say so, too")
        disk.make_room()
        until(lambda: "no free inode" not in box.ctl("status").stdout, 30, "its end")
    finally:
        box.close()
        disk.close()


@contextlib.contextmanager
def writes_fail(pid: int, from_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes: the write fails, and SQLite calls it an I/O error."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (from_bytes, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.fault("disk-full-journal")
def test_a_disk_that_fails_to_write_is_waited_for_and_an_end_is_not(box: Box) -> None:
    box.config(box.trainer("a"))
    daemon = box.start()
    pid = box.wait_phase("a", "RUNNING")["pid"]
    with writes_fail(daemon.pid, 4096):
        assert "the journal cannot be written" in box.ctl("stop", "a").stdout
        assert "disk I/O error" in box.status()["daemon"]["journal"]["error"]
    stalled = box.wait_fact("JournalStalled")
    assert "disk I/O error" in stalled["error"]
    assert box.program("a")["pid"] == pid
    assert not box.facts("Wanted")

    with writes_fail(daemon.pid, 4096):
        assert box.stop_daemon() == 1, "a disk that never has room does not make the daemon immortal"
    assert not box.facts("DaemonStopping")
    assert box.pids(), "the workers are left alone, as if the daemon had been killed"
    box.start()
    assert box.wait_phase("a", "RUNNING")["pid"] == pid
    assert box.facts("DaemonStarted")[-1]["adopted"] == 1


def test_a_start_without_room_ends_with_a_sentence_and_the_next_one_adopts(box: Box, disk: SmallDisk) -> None:
    box.config(box.trainer("a"))
    start_on(disk, box)
    pid = box.wait_phase("a", "RUNNING")["pid"]
    box.kill_daemon()
    disk.fill()
    with pytest.raises(AssertionError, match=r"the daemon ended with 1(.|\n)*(start without it|exceeded; make room)"):
        start_on(disk, box)
    disk.make_room()
    start_on(disk, box)
    assert box.wait_phase("a", "RUNNING")["pid"] == pid


STORES = """
import sys
from pathlib import Path
from supervisor.adapters.journal.sqlite import Journal, JournalReader
from supervisor.features.recorder.adapters.store import Recording
from supervisor.model.facts import DaemonStopping
state = Path(sys.argv[1])
journal, recording = Journal(state / "j.sqlite"), Recording(state / "r.sqlite", now_s=0.0)
append = lambda: journal.append([DaemonStopping("why", False, "who")], at_s=1.0, wall_s=1.0, boot_id="b")
append(), recording.add({})
print("filled", flush=True), input()
for store in (append, lambda: recording.add({}), lambda: JournalReader(state / "j.sqlite", may_copy=False)):
    try:
        store()
    except OSError as error:
        print(error.strerror)
recording.close(), journal.close()
print("open to the end")
"""


@pytest.mark.parametrize("disk", [Quota], indirect=True)
def test_no_database_stores_through_memory_where_that_needs_room(box: Box, disk: SmallDisk) -> None:
    """Such a store would end the process by SIGBUS."""
    command = [sys.executable, "-c", STORES, str(disk.state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as stores:
        assert stores.stdout is not None
        assert stores.stdout.readline() == "filled\n"
        disk.fill()
        answers = stores.communicate("\n", timeout=30 * PATIENCE)[0]
    assert answers.splitlines() == ["Disk quota exceeded"] * 3 + ["open to the end"]
    assert box.daemon is None
