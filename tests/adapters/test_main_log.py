"""The daemon's own log: rotated away, removed, read-only. Real files."""

import contextlib
import errno
import logging
import os
import resource
import stat

import pytest

from supervisor import files
from supervisor.adapters.foundations import Watched, check_row
from supervisor.adapters.main_log import MainLog


def log_at(path):
    handler = MainLog(str(path), max_bytes=2**20, backups=1)
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def write(handler, text):
    handler.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))


def test_what_somebody_rotates_away_is_opened_anew(tmp_path):
    path = tmp_path / "extralife.log"
    handler = log_at(path)
    write(handler, "one")
    path.rename(tmp_path / "extralife.log.1")
    path.touch()
    write(handler, "two")
    path.unlink()
    write(handler, "three")
    handler.reopen()
    assert path.read_text().splitlines() == ["three", "log_opened_anew"]
    assert (tmp_path / "extralife.log.1").read_text() == "one\n"
    handler.close()


def test_a_line_that_cannot_be_written_is_trouble_and_no_traceback(tmp_path, capsys):
    path = tmp_path / "none" / "extralife.log"
    handler = log_at(path)
    row = Watched("main log", handler.baseFilename, lambda: None, check=handler.trouble)
    assert check_row(row) is None, "no line was written yet"
    write(handler, "one")
    assert handler.trouble() == check_row(row).detail == "it cannot be written: No such file or directory"
    with pytest.raises(OSError, match="No such file"):
        handler.reopen()
    assert capsys.readouterr().err == ""
    path.parent.mkdir()
    assert check_row(row) is None, "before another line"
    write(handler, "two")
    assert path.read_text().splitlines()[-1] == "two"
    handler.close()


def test_a_link_to_a_log_elsewhere_stays_and_its_target_is_rotated(tmp_path):
    path, target = tmp_path / "extralife.log", tmp_path / "var.log"
    path.symlink_to(target)
    handler = MainLog(str(path), max_bytes=15, backups=1)
    for text in ("first line", "second line"):
        write(handler, text)
    handler.close()
    assert (path.readlink(), path.read_text()) == (target, "second line\n")
    assert (tmp_path / "var.log.1").read_text() == "first line\n"


def make_socket(path):
    os.mknod(path, 0o600 | stat.S_IFSOCK)


@pytest.fixture
def full_disk():
    """A limit in place of a full disk: files can be opened, and no byte can be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stays_trouble_although_the_file_can_be_opened(tmp_path, full_disk):
    handler = log_at(tmp_path / "extralife.log")
    write(handler, "one")
    assert handler.trouble() == "it cannot be written: File too large"
    with pytest.raises(OSError) as failed:
        handler.reopen()
    assert failed.value.args == (errno.EIO, "File too large")
    assert handler.trouble()
    with contextlib.suppress(OSError):  # what is still in the buffer
        handler.stream.close()
    handler.stream = None
    handler.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_socket])
def test_another_kind_of_file_under_its_name_or_a_rotated_one_is_put_aside(tmp_path, make):
    path = tmp_path / "extralife.log"
    handler = MainLog(str(path), max_bytes=15, backups=1)
    make(path)
    make(tmp_path / "extralife.log.1")
    write(handler, "line one")
    write(handler, "line two")
    assert handler.trouble() == ""
    handler.close()
    kinds = {each.name: stat.S_IFMT(each.lstat().st_mode) for each in tmp_path.iterdir()}
    assert (path.read_text(), (tmp_path / "extralife.log.1").read_text()) == ("line two\n", "line one\n")
    assert kinds["extralife.log.found"] == kinds["extralife.log.1.found"] != stat.S_IFREG
    assert [name for _, _, name in files.put_aside] == [f"{path}.found", f"{path}.1.found"]
