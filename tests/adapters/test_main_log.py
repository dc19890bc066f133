"""The daemon's own log: rotated away, removed, read-only. Real files."""

import logging

import pytest

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
