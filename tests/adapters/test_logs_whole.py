"""Rotation at each of its edges: what is kept byte for byte, who is looked at when, and what is logged."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import eventually
from leaks import open_files
from structlog.testing import capture_logs

from supervisor.adapters.process import endings, logs
from supervisor.adapters.process.logs import LogGuard, rotate
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(first, first + count))


def contents(directory: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in directory.iterdir()}


# --- rotation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (lines(11), lines(11)),
        (lines(20), lines(20)),
        (lines(19) + b"no newline", lines(19)),
        (lines(21), lines(10, 11)),
        (b"12345" + lines(20), lines(10, 10)),
        (b"1234" + lines(20) + b"5", lines(9, 11) + b"5"),
        (b"x" * 101, b"x" * 101),
        (b"x" * 200, b"x" * 200),
        (b"x" * 201, b"x" * 100),
        (lines(10) + b"x" * 150, b"x" * 100),
        (lines(19) + b"x" * 9 + b"\n" + b"y" * 5, lines(8, 11) + b"x" * 9 + b"\n" + b"y" * 5),
    ],
)
def test_what_is_kept_of_a_log_with_a_limit_of_100_bytes(tmp_path: Path, log: bytes, kept: bytes) -> None:
    path, before = tmp_path / "out.log", open_files()
    path.write_bytes(log)
    assert rotate(path, 100, 1)
    assert contents(tmp_path) == {"out.log": b"", "out.log.1": kept}
    assert open_files() <= before


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (lines(10) + b"x" * 130 + b"\n" + lines(2), b"x" * 79 + b"\n" + lines(2)),
        (lines(20) + b"x" * 4 + b"\n" + lines(1), lines(8, 12) + b"x" * 4 + b"\n" + lines(1)),
        (b"x" * 185 + b"\n" + b"y" * 14, b"x" * 185 + b"\n"),
        (b"x" * 182 + b"\n" + b"y" * 17, b"x" * 182 + b"\n" + b"y" * 17),
    ],
)
def test_a_line_that_is_longer_than_is_looked_for_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: bytes, kept: bytes
) -> None:
    """Its beginning or end is looked for within 16 bytes here, in place of 64 KiB."""
    monkeypatch.setattr(logs, "_LINE_BYTES", 16)
    path = tmp_path / "out.log"
    path.write_bytes(log)
    assert rotate(path, 100, 1)
    assert (tmp_path / "out.log.1").read_bytes() == kept


@pytest.mark.parametrize(("size", "factor", "rotated"), [(100, 1, False), (101, 1, True), (200, 2, False), (201, 2, True)])
def test_a_log_is_rotated_above_its_limit(tmp_path: Path, size: int, factor: int, rotated: bool) -> None:
    path, before = tmp_path / "out.log", open_files()
    path.write_bytes(b"x" * size)
    assert rotate(path, 100, 1, factor) is rotated
    assert path.stat().st_size == (0 if rotated else size)
    assert open_files() <= before


def test_a_copy_is_for_the_owner_and_the_group(tmp_path: Path) -> None:
    path, before = tmp_path / "out.log", os.umask(0)
    try:
        path.write_bytes(lines(11))
        rotate(path, 100, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.log.1").stat().st_mode) == 0o640


@pytest.mark.parametrize("refuses", ["create", "sendfile"])
@pytest.mark.parametrize(("number", "is_raised"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)])
def test_a_copy_that_fails_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool, refuses: str
) -> None:
    path, before = tmp_path / "out.log", open_files()
    (tmp_path / "out.log.1").write_bytes(b"older")
    path.write_bytes(lines(11))

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*((logs, refuses) if refuses == "create" else (logs.os, refuses)), refuse)
    if is_raised:
        with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error$"):
            rotate(path, 100, 2)
    else:
        assert rotate(path, 100, 2)
    assert contents(tmp_path) == {"out.log": lines(11) if is_raised else b"", "out.log.1": b"older"}
    assert open_files() <= before


def test_missing_copies_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(lines(11))
    for number in (1, 3, 4, 5):
        (tmp_path / f"out.log.{number}").write_bytes(b"%d" % number)
    assert rotate(path, 100, 4)
    assert contents(tmp_path) == {
        "out.log": b"", "out.log.1": lines(11), "out.log.2": b"1", "out.log.4": b"3", "out.log.5": b"5",
    }  # fmt: skip


def test_an_end_at_a_page_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the first part of a write that is going on; a seek waits for that."""
    path, real, calls = tmp_path / "out.log", os.sendfile, []
    path.write_bytes(b"x" * 4096)

    def sendfile(out: int, fd: int, at: int, count: int) -> int:
        calls.append(("send", at, count))
        if calls == [("send", 0, 1 << 20)]:
            return 0
        return real(out, fd, at, count)

    def lseek(_fd: int, at: int, whence: int) -> int:
        calls.append(("seek", at, whence))
        with path.open("ab") as writer:
            writer.write(b"y" * 10 if len(calls) > 3 else b"")
        raise OSError(errno.ENXIO, "No such device or address")

    monkeypatch.setattr(logs.os, "sendfile", sendfile)
    monkeypatch.setattr(logs.os, "lseek", lseek)
    assert rotate(path, 4_000_000, 1, factor=0)
    whole, rest = ("send", 0, 1 << 20), ("send", 4096, 1 << 20)
    assert calls == [whole, ("seek", 0, os.SEEK_HOLE), whole, rest, ("seek", 0, os.SEEK_HOLE), rest, ("send", 4106, 1 << 20)]
    assert (tmp_path / "out.log.1").read_bytes() == b"x" * 4096 + b"y" * 10


def test_no_more_is_copied_than_twice_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is faster than the copy adds a line to each piece."""
    path, real, counts = tmp_path / "out.log", os.sendfile, []
    path.write_bytes(lines(11))

    def sendfile(out: int, fd: int, at: int, count: int) -> int:
        counts.append(count)
        with path.open("ab") as writer:
            writer.write(b"y" * 25 + b"\n")
        return real(out, fd, at, min(count, 30))

    monkeypatch.setattr(logs.os, "sendfile", sendfile)
    assert rotate(path, 100, 1)
    assert counts == [200, 170, 140, 110, 80, 50, 20]
    assert (tmp_path / "out.log.1").read_bytes() == lines(11) + (b"y" * 25 + b"\n") * 3


# --- the guard ----------------------------------------------------------------------------------------------------------


class Time:
    """The guard's clock, which stands still."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def clock_gettime(self, clock: int) -> float:
        assert clock == self.CLOCK_BOOTTIME
        return self.at_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    made = Time()
    monkeypatch.setattr(logs, "time", made)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    programs = tuple(ProgramSpec(name, ("x",), "d") for name in ("Pong", "Qbert"))
    for spec in programs:
        Path(paths.run_dir(spec.name)).mkdir(parents=True)
    return Settings(paths, programs=programs, daemon=DaemonSettings(log_max_bytes=100, log_backups=2))


def test_every_log_of_every_program_is_looked_at(settings: Settings) -> None:
    """Not one that has none, or whose size has no limit."""
    silent = replace(settings.programs[0], name="Silent", stdout_log="NONE", stderr_log="NONE")
    programs = (silent, *settings.programs)
    files = [Path(settings.paths.log(spec.name, channel)) for spec in settings.programs for channel in ("stdout", "stderr")]
    for path in files:
        path.write_bytes(lines(11))
    guard = LogGuard(lambda: replace(settings, programs=programs))
    with capture_logs() as said:
        guard.look()
    assert said == [{"event": "log_rotated", "path": str(path), "log_level": "info"} for path in files]
    for path in files:
        assert (path.read_bytes(), path.with_name(f"{path.name}.1").read_bytes()) == (b"", lines(11))


def test_a_log_that_fails_is_told_once_and_again_after_it_went_well(settings: Settings) -> None:
    path, guard, said = Path(settings.paths.log("Pong", "stdout")), LogGuard(lambda: settings), []
    for is_broken in (True, True, False, True):
        if is_broken:
            path.mkdir(exist_ok=True)
        else:
            path.rmdir()
        with capture_logs() as logged:
            guard.look()
        said += logged
    failed = {
        "event": "log_rotation_failed", "path": str(path), "error": f"[Errno 21] Is a directory: '{path}'", "log_level": "warning",
    }  # fmt: skip
    assert said == [failed, failed]


@pytest.mark.parametrize(
    ("after_s", "lost_bytes", "is_due"),
    [(0.0, 0, False), (4.9, 99, False), (4.9, 100, True), (5.0, 0, True), (5.0, -100, True), (4.9, -100, False)],
)
def test_the_guard_is_due_after_five_seconds_or_after_as_much_as_a_log_may_hold(
    settings: Settings, clock: Time, monkeypatch: pytest.MonkeyPatch, after_s: float, lost_bytes: int, is_due: bool
) -> None:
    disk, asked = SimpleNamespace(f_frsize=1, f_bavail=5_000, f_bfree=9, f_bsize=9), []
    monkeypatch.setattr(logs.os, "statvfs", lambda path: asked.append(path) or disk)
    guard = LogGuard(lambda: settings)
    assert guard._is_due()
    clock.at_s += after_s
    disk.f_bavail -= lost_bytes
    assert guard._is_due() is is_due
    assert asked == [settings.paths.state_dir] * 2
    clock.at_s += 1.0
    disk.f_bavail -= 60
    assert guard._is_due() is (not is_due and (after_s > 4.0 or lost_bytes >= 40)), "the newest look counts"


def test_the_guards_thread_looks_for_twice_the_limit_and_stops(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (Path(settings.paths.log(name, "stdout")) for name in ("Pong", "Qbert"))
    small.write_bytes(b"x" * 200)
    large.write_bytes(b"x" * 201)
    monkeypatch.setattr(logs, "GUARD_S", 0.01)
    LogGuard(lambda: settings).stop()
    guard = LogGuard(lambda: settings)
    guard.start()
    try:
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "log-guard"] == [True]
        assert eventually(lambda: large.stat().st_size == 0)
        assert small.stat().st_size == 200
    finally:
        guard.stop()
    assert "log-guard" not in {thread.name for thread in threading.enumerate()}


# --- where they are -----------------------------------------------------------------------------------------------------


def test_places_are_noted_only_if_they_are_not_the_usual_ones(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    usual = ProgramSpec("Pong", ("x",), "d")
    note = Path(paths.attempt_dir("Pong", 3, "ab"), "logs.json")
    note.parent.mkdir(parents=True)
    endings.note_logs(paths, usual, 3, "ab")
    assert not note.exists()
    assert endings.logs_of(paths, "Pong", 3, "ab") == (paths.log("Pong", "stdout"), paths.log("Pong", "stderr"))
    endings.note_logs(paths, replace(usual, stdout_log="/a/out.log"), 3, "ab")
    assert endings.logs_of(paths, "Pong", 3, "ab") == ("/a/out.log", paths.log("Pong", "stderr"))
    endings.note_logs(paths, replace(usual, stderr_log="NONE"), 3, "ab")
    assert endings.logs_of(paths, "Pong", 3, "ab") == (paths.log("Pong", "stdout"), "")
    note.write_text('["", null]')
    assert endings.logs_of(paths, "Pong", 3, "ab") == ("", "")
    note.write_text('["/a", "/b", "/c"]')
    assert endings.logs_of(paths, "Pong", 3, "ab") == (paths.log("Pong", "stdout"), paths.log("Pong", "stderr"))
    note.write_text('["/a", "/b"]')
    assert endings.logs_of(paths, "Pong", 3, "ab") == ("/a", "/b")
