"""A real daemon after its journal was damaged, cut or removed: it starts, it says so, and nobody is started twice."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sqlite3
from pathlib import Path

import pytest
from box import PATIENCE, Box, until


def flip(box: Box, *words: bytes) -> None:
    """One bit of a fact each, wherever it lies by now."""
    with contextlib.closing(sqlite3.connect(box.state / "journal.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = box.state / "journal.sqlite"
    data = bytearray(path.read_bytes())
    for word in words:
        data[data.index(word)] ^= 1
    path.write_bytes(data)


def test_a_damaged_journal_is_reported_where_one_looks_and_what_was_answered_holds(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    pid = box.wait_phase("a", "RUNNING")["pid"]
    box.wait_phase("b", "RUNNING")
    assert "b: stopped" in box.ctl("stop", "b").stdout
    box.kill_daemon()
    flip(box, b"a slot of level", b"OperatorAsked")
    box.start()
    told = box.facts("JournalSalvaged")[0]
    assert told["lost"] == 0
    assert "its CRC does not match" in told["error"]
    assert box.program("b")["phase"] == "STOPPED"
    assert box.facts()[told["seq"] - 1 :][0]["kind"] in {"DaemonStarted", "JournalSalvaged"}
    status = box.ctl("status").stdout
    assert status.startswith("the journal was damaged ")
    assert "0 facts lost" in status
    assert told["kept_as"] in status
    assert "journal salvaged" in box.ctl("history").stdout
    (alert,) = (box.state / "reboot_alerts.log").read_text().splitlines()
    assert " JOURNAL damaged " in alert
    assert box.wait_phase("a", "RUNNING")["pid"] == pid
    until(lambda: len(box.shims()) == 1, 20, "exactly one worker")


def test_a_journal_that_was_removed_while_no_daemon_ran_is_built_again_from_its_spare(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.stop_daemon() == 0
    before = box.facts()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (box.state / name).unlink(missing_ok=True)
    box.start()
    told = box.facts("JournalSalvaged")[0]
    assert (told["kept"], told["lost"], told["kept_as"]) == (len(before), 0, "")
    assert box.facts()[: len(before)] == before
    box.wait_phase("a", "RUNNING")


@pytest.mark.fault("journal-removed")
def test_a_journal_removed_under_a_daemon_is_written_anew_and_what_was_answered_holds(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    before = box.facts()
    pid = box.program("b")["pid"]
    for file in box.state.glob("journal.sqlite*"):
        file.unlink()
    assert "a: stopped" in box.ctl("stop", "a").stdout
    restored = box.wait_fact("JournalSalvaged")
    assert "removed" in restored["error"]
    assert (restored["kept"], restored["lost"], restored["kept_as"]) == (len(before), 0, "")
    assert box.facts()[: len(before)] == before, "under the old numbers"
    box.kill_daemon()
    box.start()
    assert box.program("a")["phase"] == "STOPPED", "what was answered is true"
    assert box.wait_phase("b", "RUNNING")["pid"] == pid
    assert len(box.facts("JournalSalvaged")) == 1
    assert "journal salvaged" in box.ctl("history").stdout


@pytest.mark.fault("journal-removed")
def test_a_journal_removed_while_nothing_happens_is_restored_within_seconds(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    (box.state / "journal.sqlite-wal").unlink()
    # A reader that comes first makes an empty WAL: then it was replaced.
    until(lambda: "journal.sqlite-wal was re" in box.ctl("history").stdout, 20, "it to be restored and reported")
    assert len(box.shims()) == 1


@pytest.mark.fault("state-away")
def test_a_state_directory_that_is_away_holds_up_what_is_new_until_it_is_back(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b", keys="autostart = false"))
    box.start()
    box.wait_phase("a", "RUNNING")
    away = box.state.with_name("away")
    box.state.rename(away)
    box.state.mkdir()
    try:
        said = until(
            lambda: box.ctl("status").stdout.startswith("the journal has not been writable"), 20, "status to say it"
        )
        assert said
        assert get_health(box)[0] == 503
        assert "refused, because the journal cannot be written" in box.ctl("start", "b").stdout
        until(lambda: "the state directory " in box.ctl("status").stdout, 20, "status to say what is away")
        assert not list(box.state.glob("journal.sqlite*")), "no new journal is begun there"
    finally:
        until(lambda: put_back(box, away), 20, "it to be back")
    until(lambda: get_health(box)[0] == 200, 20, "health after it came back")
    assert "b: started" in box.ctl("start", "b").stdout
    box.wait_phase("a", "RUNNING")  # it may have died of a checkpoint that had no directory


def put_back(box: Box, away: Path) -> bool:
    """In place of what a worker or its shim makes there meanwhile."""
    shutil.rmtree(box.state, ignore_errors=True)
    with contextlib.suppress(OSError):
        away.rename(box.state)
    return not away.exists()


def get_health(box: Box) -> tuple[int, str]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(10.0 * PATIENCE)
        probe.connect(str(box.runtime / "supervisor.sock"))
        probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := probe.recv(65536):
            answer += part
    return int(answer.split()[1]), answer.decode()
