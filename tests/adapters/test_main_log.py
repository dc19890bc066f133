"""The daemon's own log: rotated away, removed, read-only. Real files."""

import contextlib
import logging

import pytest

from supervisor.adapters.foundations import of_path
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
    assert handler.identity() is None, "it is opened by its first line"
    write(handler, "one")
    assert handler.identity().same(of_path(path))
    path.rename(tmp_path / "extralife.log.1")
    path.touch()
    assert not handler.identity().same(of_path(path))
    handler.reopen()
    write(handler, "two")
    assert path.read_text().splitlines() == ["log_opened_anew", "two"]
    assert (tmp_path / "extralife.log.1").read_text() == "one\n"
    handler.close()


def test_a_line_that_cannot_be_written_is_trouble_and_no_traceback(tmp_path, capsys):
    path = tmp_path / "none" / "extralife.log"
    handler = log_at(path)
    write(handler, "one")
    assert handler.trouble() == "it cannot be written: No such file or directory"
    with pytest.raises(OSError, match="No such file"):
        handler.reopen()
    assert capsys.readouterr().err == ""
    path.parent.mkdir()
    handler.reopen()
    assert handler.trouble() == ""
    write(handler, "two")
    assert path.read_text().splitlines()[-1] == "two"
    handler.close()


def test_a_full_disk_stays_trouble_although_the_file_can_be_opened():
    handler = log_at("/dev/full")
    write(handler, "one")
    assert handler.trouble() == "it cannot be written: No space left on device"
    with pytest.raises(OSError, match="No space left"):
        handler.reopen()
    assert handler.trouble()
    with contextlib.suppress(OSError):  # what is still in the buffer
        handler.stream.close()
    handler.stream = None
    handler.close()
