"""Rotation under a writer that knows nothing of it; real files, a real writer, a disk that is really full."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attempts_kit import eventually
from leaks import open_files
from structlog.testing import capture_logs

from supervisor.adapters import logs
from supervisor.adapters.logs import LogGuard, rotate
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings


def test_generations_move_up_and_the_oldest_goes(tmp_path):
    path = tmp_path / "out.log"
    for number in range(1, 6):
        path.write_text(f"number {number}")
        assert rotate(path, 5, 3)
    newest = {f"out.log.{number}": b"number %d" % (6 - number) for number in (1, 2, 3)}
    assert contents(tmp_path) == {"out.log": b"", **newest}


@pytest.mark.parametrize(
    "opens", ["1", "os.open('/proc/self/fd/1', os.O_WRONLY)"], ids=["its output", "its log opened anew"]
)
def test_nothing_is_lost_that_a_worker_writes_while_its_log_is_rotated(tmp_path, opens):
    """Flat out: it writes more than twice the limit during each copy."""
    path, count = tmp_path / "out.log", 100_000
    code = f"import os\nfd = {opens}\nfor n in range({count}): os.write(fd, b'%08d %s\\n' % (n, b'x' * 90))\n"
    rotations = 0
    with path.open("ab") as out, subprocess.Popen([sys.executable, "-S", "-I", "-c", code], stdout=out) as writer:
        while writer.poll() is None:
            rotations += rotate(path, 50_000, 1000)
    rotate(path, 50_000, 1000, factor=0)
    copies = sorted(tmp_path.glob("out.log.*"), key=lambda copy: -int(copy.suffix[1:]))
    kept = b"".join(copy.read_bytes() for copy in copies)
    assert rotations
    assert len(copies) > 1
    assert [int(line[:8]) for line in kept.splitlines()] == list(range(count))
    assert all(copy.read_bytes().endswith(b"x\n") for copy in copies), "no line is torn"
    assert path.stat().st_size == 0, "a log that is quiet has no hole"


def test_a_really_full_disk(tmp_path):
    """On a tmpfs of its own: the copy does not fit, so the log is emptied without one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    where = tmp_path / "small"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount here: {mounted.stderr.decode().strip()}")
    try:
        path = where / "out.log"
        path.write_text("x" * 50_000)
        assert rotate(path, 30_000, 3)
        assert contents(where) == {"out.log": b""}
    finally:
        subprocess.run(["umount", str(where)], check=True)


# --- a flood -------------------------------------------------------------------------------------------------------------


def test_of_a_log_far_over_its_bound_the_newest_whole_lines_are_kept(tmp_path):
    path = tmp_path / "out.log"
    path.write_text("".join(f"{number:09d}\n" for number in range(1000)))
    with capture_logs() as said:
        assert rotate(path, 1000, 3)
    kept = "".join((tmp_path / f"out.log.{number}").read_text() for number in (3, 2, 1)).splitlines()
    assert kept == [f"{number:09d}" for number in range(700, 1000)]
    assert said == [{"event": "log_flood", "path": str(path), "dropped_bytes": 7000, "log_level": "warning"}]


@pytest.mark.parametrize("away", [False, True], ids=["in bursts", "while no daemon ran"])
def test_of_nine_times_the_limit_ten_copies_lose_nothing_whatever_the_burst(guarded, away):
    """A line of 100 bytes; a burst of 23, which is a rotation more than twice the limit of ten lines."""
    log, settings = guarded
    settings = replace(settings, daemon=replace(settings.daemon, log_max_bytes=1_000, log_backups=10))
    guard, written = LogGuard(lambda: settings), []
    for number in range(90):
        written.append(b"line %04d %s\n" % (number, b"x" * 89))
        with log.open("ab") as writer:
            writer.write(written[-1])
        if not away and number % 23 == 22:
            guard.look(2)
    guard.look()
    copies = [log.with_name(f"stdout.log.{number}") for number in range(10, 0, -1)]
    kept = b"".join(copy.read_bytes() for copy in copies if copy.exists()) + log.read_bytes()
    assert kept == b"".join(written)
    assert all(copy.read_bytes().endswith(b"x\n") for copy in copies if copy.exists()), "no line is torn"


@pytest.fixture
def guarded(tmp_path):
    paths = Paths(str(tmp_path), str(tmp_path / "run"))
    log = Path(paths.log("Pong", "stdout"))
    log.parent.mkdir(parents=True)
    return log, Settings(paths, programs=(ProgramSpec("Pong", ("x",), "d"),), daemon=DaemonSettings(log_max_bytes=100))


# --- what a program may have put in its log's place ------------------------------------------------------------------------


def test_links_in_the_copies_places_are_replaced_not_followed(guarded, tmp_path):
    log, settings = guarded
    (tmp_path / "precious").write_text("precious")
    for name in ("stdout.log.tmp", "stdout.log.1", "stdout.log.2"):
        log.with_name(name).symlink_to(tmp_path / "precious")
    log.write_bytes(b"x" * 150)
    LogGuard(lambda: settings).look()
    assert (tmp_path / "precious").read_text() == "precious"
    assert log.with_name("stdout.log.1").read_bytes() == b"x" * 150
    assert not log.with_name("stdout.log.1").is_symlink()


def test_a_cleared_log_is_empty_and_its_writer_goes_on_at_the_beginning(tmp_path):
    path = tmp_path / "stdout.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"before\n")
        path.with_name("stdout.log.1").write_bytes(b"rotated\n")
        logs.clear(path)
        writer.write(b"after\n")
    assert path.read_bytes() == b"after\n"
    assert path.with_name("stdout.log.1").read_bytes() == b"rotated\n"
    logs.clear(tmp_path / "none")
    assert not (tmp_path / "none").exists()


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
        (lines(19) + b"no newline", lines(19) + b"no newline"),
        (lines(21), lines(10, 11)),
        (b"1234" + lines(20) + b"5", lines(9, 11) + b"5"),
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


def test_the_hole_of_a_writer_that_keeps_its_offset_is_neither_counted_nor_copied(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("wb", buffering=0) as tee, path.open("ab", buffering=0) as worker:
        tee.write(lines(3_000))
        assert rotate(path, 20_000, 3)
        worker.write(lines(7, 3_000))
        tee.write(lines(1_000, 3_007))
        assert path.stat().st_size > 20_000
        assert not rotate(path, 20_000, 3)
        worker.write(lines(1_993, 4_007))
        assert rotate(path, 20_000, 3)
    assert contents(tmp_path) == {"out.log": b"", "out.log.1": lines(3_000, 3_000), "out.log.2": lines(3_000)}


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


def test_a_log_on_a_file_system_that_hangs_does_not_keep_the_others_from_rotation(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, real, guard = threading.Event(), logs._is_small, LogGuard(lambda: settings)
    guard._rounds.hang_s = 0.05
    first, second = (Path(settings.paths.log(spec.name, "stdout")) for spec in settings.programs[:2])
    for path in (first, second):
        path.write_bytes(lines(11))
    monkeypatch.setattr(
        logs, "_is_small", lambda path, limit: (path != str(first) or answers.wait(60)) and real(path, limit)
    )
    assert eventually(lambda: guard.look() or second.stat().st_size == 0)
    assert first.stat().st_size > 0
    answers.set()
    assert eventually(lambda: guard.look() or first.stat().st_size == 0)


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
