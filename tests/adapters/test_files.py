"""Files of a program's own directory: opened without waiting, without following, and read within bounds."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from leaks import open_files

from supervisor import files
from supervisor.adapters import logs
from supervisor.adapters.logs import rotate
from supervisor.api import logfiles


def test_what_is_no_regular_file_is_refused_and_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("nothing")
    before = open_files()
    for path, number, kind in (
        (str(tmp_path / "fifo"), errno.EINVAL, "FIFO"), (str(tmp_path), errno.EISDIR, "directory"),
        ("/dev/null", errno.EINVAL, "special file"),
    ):  # fmt: skip
        with pytest.raises(OSError) as refused:
            files.open_regular(path)
        assert (refused.value.args, refused.value.filename) == ((number, f"a {kind}, not a regular file"), path)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_regular(tmp_path / "link")
    assert open_files() <= before


@pytest.mark.parametrize(
    ("limit_bytes", "from_byte", "read"),
    [
        (100, 0, b"0123456789"), (10, 0, b"0123456789"), (4, 0, b"6789"), (0, 0, b""), (100, 7, b"789"), (2, 7, b"89"),
        (3, 7, b"789"), (100, 10, b""), (100, 11, b"0123456789"), (4, 11, b"6789"),
    ],
)  # fmt: skip
def test_the_end_of_what_is_new_is_read(tmp_path: Path, limit_bytes: int, from_byte: int, read: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    before = open_files()
    assert files.read_bounded(str(path), limit_bytes, from_byte) == read
    assert open_files() <= before


@pytest.mark.usefixtures("no_umask")
def test_a_new_file_takes_the_place_of_the_old_one_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.write_text("old")
    second = tmp_path / "second"
    os.link(path, second)
    for mode, args in ((0o600, ()), (0o640, (0o640,))):
        fd = files.create(path, *args)
        os.write(fd, b"new")
        os.close(fd)
        assert (path.stat().st_mode & 0o777, path.read_bytes()) == (mode, b"new")
    assert second.read_text() == "old"


# --- the daemon's own ----------------------------------------------------------------------------------------------------


def test_another_kind_of_file_is_put_aside_and_nothing_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    here = os.open(tmp_path, os.O_RDONLY)
    before = open_files()
    for number, make in enumerate((os.mkfifo, Path.mkdir, lambda at: os.mknod(at, stat.S_IFSOCK | 0o600), link_to_itself)):
        make(path)
        os.close(files.open_own(*((path, os.O_WRONLY) if number % 2 else ("alive", os.O_WRONLY)), dir_fd=here))
        assert path.is_file()
        path.unlink()
    os.close(here)
    assert open_files() <= before
    kinds = {each.name: files.kind_of(each.lstat().st_mode) for each in sorted(tmp_path.iterdir())}
    assert kinds == {"alive.found": "FIFO", "alive.found-1": "directory", "alive.found-2": "socket", "alive.found-3": "link"}
    assert [(path, kind) for path, kind, _ in files.put_aside] == [(str(path), kind) for kind in kinds.values()]


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def test_the_right_kind_stays_and_so_does_a_device(tmp_path: Path) -> None:
    path = tmp_path / "extralife.log"
    path.write_text("one")
    for follow, mode in ((False, 0o600), (True, 0o640)):
        os.close(files.open_own(path, os.O_WRONLY | os.O_APPEND, mode, follow=follow))
    (tmp_path / "link").symlink_to(path)
    os.close(files.open_own(tmp_path / "link", os.O_WRONLY, follow=True))
    assert path.read_text() == "one"
    files.make_room(tmp_path, files.DIRECTORY)
    with pytest.raises(OSError, match="a special file, not a regular file"):
        files.open_own("/dev/null", os.O_WRONLY)
    assert not files.put_aside


def test_a_reader_begins_behind_the_hole_of_a_rotated_log(tmp_path: Path) -> None:
    path, line = tmp_path / "stdout.log", b"x" * 99 + b"\n"
    path.write_bytes(line * 300)
    with path.open("ab", buffering=0) as worker:
        for limit in (5_000, 400):  # the second time the hole begins within a block
            assert not rotate(path, 50_000, 1)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(logs, "_empty_if", lambda *_: False)
                assert rotate(path, limit, 5)
            worker.write(b"one\n" * 150)
    size = path.stat().st_size
    assert size == 30_000 + 1_200
    assert path.stat().st_blocks * 512 <= 8192, "what was copied takes no room"
    assert files.read_bounded(str(path), 100_000, log=True) == b"one\n" * 150
    assert files.read_bounded(str(path), 100_000, 30_100, log=True) == b"one\n" * 150
    assert files.read_bounded(str(path), 8, log=True) == b"one\n" * 2
    assert logfiles.read_tail(str(path), 100_000).data == b"one\n" * 150
    found = logfiles.read_from(str(path), "", 100, 8)
    assert (found.data, found.next_offset) == (b"one\n" * 2, size - 592)
    assert logfiles.read_part(str(path), lambda _: (0, 8)) == (b"one\n" * 2, size)
