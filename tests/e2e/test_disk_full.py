"""The disk under the journal: full, failing, and with room again. Real daemons on a real file system that is really full."""

from __future__ import annotations

import contextlib
import json
import os
import resource
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


class SmallDisk:
    """A mount namespace in which the state directory lies on 80 MB of tmpfs, and the programs' directories do not."""

    def __init__(self, box: Box) -> None:
        self.box = box
        programs = box.directory / "programs"
        for directory in (box.state, programs):
            directory.mkdir()
        mount = (
            f"mount -t tmpfs -o size=80m tmpfs {box.state} && mkdir {box.state}/programs && "
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
            for size in (2**20, 4096):  # until ENOSPC, or a short write
                with contextlib.suppress(OSError):
                    while os.write(ballast.fileno(), bytes(size)) == size:
                        pass

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


@pytest.fixture
def disk(box: Box) -> Iterator[SmallDisk]:
    made = SmallDisk(box)
    try:
        if not made.works:
            pytest.skip("no mount namespaces here; the test that fails writes with RLIMIT_FSIZE stands in")
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

    disk.fill()
    os.kill(pids["a"], signal.SIGKILL)
    error = until(lambda: box.status()["daemon"]["journal"]["error"], 20, "the status to say that the journal is stuck")
    assert "full" in error
    before = box.facts()
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
    assert box.facts() == before, "nothing is begun that is not on record"

    disk.make_room()
    stalled = box.wait_fact("JournalStalled")
    box.wait_fact("BecameReady", "a", count=2)
    until(lambda: said(hook, "the journal could not be written for"), 30, "the end of it to be told")
    told = box.facts()
    assert [fact["seq"] for fact in told] == list(range(1, len(told) + 1))
    assert told[: len(before)] == before
    assert told[len(before)] == stalled, "it is the first thing that is told"
    assert "full" in stalled["error"]
    assert stalled["for_s"] > 1.0
    assert len([fact for fact in told if fact["kind"] == "Exited"]) == 1
    assert len(box.facts("SpawnIntended", "a")) == 2
    assert not box.facts("Wanted"), "what was refused is not done later"
    assert box.program("b")["pid"] == pids["b"]
    assert box.status()["daemon"]["journal"]["error"] == ""
    assert "journal stalled" in box.ctl("history").stdout
    assert "the journal has not been writable" not in box.ctl("status").stdout


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
