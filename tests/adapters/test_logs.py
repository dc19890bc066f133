"""Rotation under a writer that knows nothing of it; real files, a real writer, a disk that is really full."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.process import logs
from supervisor.adapters.process.logs import LogGuard, rotate
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings


def contents(path):
    return {item.name: item.read_text() for item in path.parent.iterdir()}


def test_a_log_that_does_not_exist_is_no_trouble(tmp_path):
    assert not rotate(tmp_path / "out.log", 5, 3)


def test_generations_move_up_and_the_oldest_goes(tmp_path):
    path = tmp_path / "out.log"
    for number in range(1, 6):
        path.write_text(f"number {number}")
        assert rotate(path, 5, 3)
    assert contents(path) == {"out.log": "", "out.log.1": "number 5", "out.log.2": "number 4", "out.log.3": "number 3"}


def test_without_backups_it_is_only_emptied(tmp_path):
    path = tmp_path / "out.log"
    path.write_text("123456")
    assert rotate(path, 5, 0)
    assert contents(path) == {"out.log": ""}


def test_a_writer_goes_on_at_the_new_end_and_no_line_is_torn(tmp_path):
    """It writes while the log is rotated: what is kept is whole and in order.

    Not beyond twice the bound, where the oldest lines are dropped on purpose: on a busy box it would get there.
    """
    path = tmp_path / "out.log"
    code = (
        "import os, sys\nn = 0\nwhile os.getppid() == int(sys.argv[1]):\n"
        "    if os.fstat(1).st_size < 39_000:\n        n += 1; os.write(1, b'%08d\\n' % n)\n"
    )
    with (
        path.open("ab") as out,
        subprocess.Popen([sys.executable, "-S", "-I", "-c", code, str(os.getpid())], stdout=out) as writer,
    ):
        rotated = 0
        while rotated < 5:
            rotated += rotate(path, 20_000, 100)
        writer.kill()
    kept = []
    for number in range(rotated, 0, -1):
        kept += (tmp_path / f"out.log.{number}").read_text().splitlines()
    kept += path.read_text().splitlines()
    assert len(kept) > 1000
    assert all(len(line) == 8 and line.isdigit() for line in kept), "no line is torn, no hole of NULs"
    numbers = [int(line) for line in kept]
    assert numbers == sorted(numbers)
    assert len(numbers) == len(set(numbers))
    assert numbers[0] == 1


@pytest.mark.parametrize("size_bytes", [2 * 2**20 + 1, 3 * 2**20, 5 * 2**20 + 17])
def test_a_log_of_many_pieces_is_copied_whole(tmp_path, size_bytes):
    """More than one call of the kernel copies at once."""
    path = tmp_path / "out.log"
    whole = b"".join(b"%07d\n" % number for number in range(size_bytes // 8 + 1))[:size_bytes]
    path.write_bytes(whole)
    assert rotate(path, 4 * 2**20, 3, factor=0)
    assert (tmp_path / "out.log.1").read_bytes() == whole
    assert path.stat().st_size == 0


def test_of_a_log_of_many_pieces_far_over_its_bound_the_newest_lines_are_kept(tmp_path):
    path = tmp_path / "out.log"
    most_bytes = 3 * 2**20
    path.write_bytes(b"".join(b"%07d\n" % number for number in range(2**20)))  # 8 MiB
    assert rotate(path, most_bytes, 1)
    kept = (tmp_path / "out.log.1").read_bytes()
    assert len(kept) == most_bytes
    assert kept.splitlines() == [b"%07d" % number for number in range(2**20 - most_bytes // 8, 2**20)]


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
        assert contents(path) == {"out.log": ""}
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_the_copy_is_whole_before_it_has_its_name(tmp_path, monkeypatch):
    path = tmp_path / "out.log"
    path.write_text("123456")

    def dies(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(logs.os, "sendfile", dies)
    with pytest.raises(KeyboardInterrupt):
        rotate(path, 5, 3)
    assert path.read_text() == "123456"
    assert not (tmp_path / "out.log.1").exists()


# --- a flood -------------------------------------------------------------------------------------------------------------


def test_of_a_log_far_over_its_bound_the_newest_whole_lines_are_kept(tmp_path):
    path = tmp_path / "out.log"
    path.write_text("".join(f"{number:09d}\n" for number in range(1000)))
    with capture_logs() as said:
        assert rotate(path, 1000, 3)
    kept = "".join((tmp_path / f"out.log.{number}").read_text() for number in (3, 2, 1)).splitlines()
    assert kept == [f"{number:09d}" for number in range(700, 1000)]
    assert said == [{"event": "log_flood", "path": str(path), "dropped_bytes": 7000, "log_level": "warning"}]


def test_the_guard_waits_for_a_state_directory_that_is_gone(guarded):
    _, settings = guarded
    state_dir = Path(settings.paths.state_dir)
    guard = LogGuard(lambda: settings)
    assert guard._is_due()
    state_dir.rename(state_dir.with_name("away"))
    guard._looked = -1e9, 0
    assert not guard._is_due(), "and it is no error: it is reported where it is looked at"
    state_dir.with_name("away").rename(state_dir)
    assert guard._is_due()


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


def test_a_line_that_is_written_before_the_log_is_emptied_is_copied_too(guarded, monkeypatch):
    log, settings = guarded
    log.write_bytes(b"1" * 149 + b"\n")
    real = logs._shift

    def late(*args):
        with log.open("ab") as writer:
            writer.write(b"late\n")
        real(*args)

    monkeypatch.setattr(logs, "_shift", late)
    LogGuard(lambda: settings).look()
    assert log.with_name("stdout.log.1").read_bytes() == b"1" * 149 + b"\nlate\n"
    assert log.stat().st_size == 0


@pytest.fixture
def guarded(tmp_path):
    paths = Paths(str(tmp_path), str(tmp_path / "run"))
    log = Path(paths.log("Pong", "stdout"))
    log.parent.mkdir(parents=True)
    return log, Settings(paths, programs=(ProgramSpec("Pong", ("x",), "d"),), daemon=DaemonSettings(log_max_bytes=100))


# --- what a program may have put in its log's place ------------------------------------------------------------------------


def test_a_link_in_the_logs_place_is_not_followed_and_told_once(guarded, tmp_path):
    log, settings = guarded
    (tmp_path / "precious").write_text("x" * 1000)
    log.symlink_to(tmp_path / "precious")
    guard = LogGuard(lambda: settings)
    with capture_logs() as said:
        guard.look()
        guard.look()
    assert (tmp_path / "precious").read_text() == "x" * 1000
    (entry,) = said
    assert entry.pop("error")
    assert entry == {"event": "log_rotation_failed", "path": str(log), "log_level": "warning"}


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


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(guarded, make):
    log, settings = guarded
    make(log)
    with capture_logs() as said:
        LogGuard(lambda: settings).look()
    assert [entry["event"] for entry in said] == ["log_rotation_failed"]


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


def test_only_a_log_is_cleared_never_what_a_program_put_in_its_place(tmp_path):
    victim, link, fifo = tmp_path / "victim", tmp_path / "link", tmp_path / "fifo"
    victim.write_text("precious")
    link.symlink_to(victim)
    os.mkfifo(fifo)
    for path in (link, fifo, tmp_path):
        with pytest.raises(OSError, match=r"symbolic links|not a regular file|Is a directory|No such device"):
            logs.clear(path)
    assert victim.read_text() == "precious"
