"""Files of a program's own directory: opened without waiting, without following, and read within bounds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from leaks import open_files

from supervisor.adapters import files


def test_a_regular_file_is_opened_as_asked_and_from_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    here = os.open(tmp_path, os.O_RDONLY)
    before = open_files()
    for fd in (files.open_regular(path), files.open_regular("file", dir_fd=here)):
        assert os.read(fd, 100) == b"content"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"x")
        os.close(fd)
    fd = files.open_regular(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"!")
    os.close(fd)
    assert path.read_bytes() == b"content!"
    assert open_files() <= before
    os.close(here)


def test_what_is_no_regular_file_is_refused_and_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("nothing")
    before = open_files()
    for path in (str(tmp_path / "fifo"), str(tmp_path), "/dev/null"):
        with pytest.raises(OSError) as refused:
            files.open_regular(path)
        assert (refused.value.args, refused.value.filename) == ((errno.EINVAL, "not a regular file"), path)
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


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert files.read_bounded(str(tmp_path / "none"), 10) == b""
    assert files.read_bounded("a\0b", 10) == b""


def test_a_new_file_takes_the_place_of_the_old_one_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.write_text("old")
    second = tmp_path / "second"
    os.link(path, second)
    old = os.umask(0)
    try:
        for mode, args in ((0o600, ()), (0o640, (0o640,))):
            fd = files.create(path, *args)
            os.write(fd, b"new")
            os.close(fd)
            assert (path.stat().st_mode & 0o777, path.read_bytes()) == (mode, b"new")
    finally:
        os.umask(old)
    assert second.read_text() == "old"
