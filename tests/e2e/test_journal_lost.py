"""A real daemon after its journal was damaged, cut or removed: it starts, it says so, and nobody is started twice."""

from __future__ import annotations

import contextlib
import sqlite3

from box import Box, until


def flip(box: Box, word: bytes) -> None:
    """One bit of a fact, wherever it lies by now."""
    with contextlib.closing(sqlite3.connect(box.state / "journal.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = box.state / "journal.sqlite"
    data = bytearray(path.read_bytes())
    data[data.index(word)] ^= 1
    path.write_bytes(data)


def test_a_damaged_journal_is_told_where_one_looks(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    pid = box.wait_phase("a", "RUNNING")["pid"]
    box.kill_daemon()
    flip(box, b"a slot of level")
    box.start()
    told = box.facts("JournalSalvaged")[0]
    assert told["lost"] == 1
    assert "its CRC does not match" in told["error"]
    assert box.facts()[told["seq"] - 1 :][0]["kind"] in {"DaemonStarted", "JournalSalvaged"}
    status = box.ctl("status").stdout
    assert status.startswith("the journal was damaged ")
    assert "1 facts lost" in status
    assert told["kept_as"] in status
    assert "journal salvaged" in box.ctl("history").stdout
    (alert,) = (box.state / "reboot_alerts.log").read_text().splitlines()
    assert " JOURNAL damaged " in alert
    assert box.wait_phase("a", "RUNNING")["pid"] in {pid, *box.pids()}
    until(lambda: len(box.shims()) == 1, 20, "exactly one worker")


def test_a_journal_that_was_removed_is_missed(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    seq = box.facts()[-1]["seq"]
    assert box.stop_daemon() == 0
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (box.state / name).unlink(missing_ok=True)
    box.start()
    told = box.facts("JournalSalvaged")[0]
    assert told["kept"] == 0
    assert told["lost"] >= seq
    box.wait_phase("a", "RUNNING")
