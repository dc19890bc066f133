"""Journals of older schemas: every step, a real old file, and a kill at any moment of the upgrade."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from supervisor.adapters.journal import schema
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.model.codec import decode
from supervisor.model.facts import Finished, JournalSalvaged, Stamped
from supervisor.model.state import fold_all

DATA = Path(__file__).with_name("data")


def old_facts():
    """What the journal of schema 1 says, from a copy of its rows as text."""
    rows = [json.loads(line) for line in (DATA / "journal-schema-1.jsonl").read_text().splitlines()]
    return [Stamped(*row[:4], decode(*row[4:7])) for row in rows]


@pytest.fixture
def old(tmp_path):
    """A journal that an extralife of schema 1 has written: a simulated night of three programs."""
    path = tmp_path / "journal.sqlite"
    shutil.copyfile(DATA / "journal-schema-1.sqlite", path)
    return path


def raw(path):
    return contextlib.closing(sqlite3.connect(path, isolation_level=None))


def made(db):
    found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return {name: " ".join(sql.split()) for name, sql in found}


def test_step_1_to_2_keeps_every_fact_and_the_old_file(old):
    before = old.read_bytes()
    journal, facts, found = open_or_salvage(old, wall_s=1.0)
    assert facts == old_facts()
    assert found is None
    assert journal.upgraded == old.with_name("journal.sqlite.schema-1")
    assert journal.upgraded.read_bytes() == before
    assert list(journal.read()) == facts
    assert journal.append([Finished("", "p")], at_s=0.0, wall_s=0.0, boot_id="")[0].seq == facts[-1].seq + 1
    journal.close()
    assert fold_all(JournalReader(old).read())
    with raw(old) as db:
        assert schema.version(db) == schema.told_version(db) == 2
        assert schema.floor(db) == 0
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute("UPDATE fact SET body = '{}'")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute("DELETE FROM fact WHERE seq = 1")
    again = Journal(old)
    assert again.upgraded is None
    again.close()


@pytest.mark.parametrize("start", range(1, schema.SCHEMA))
def test_an_upgraded_journal_is_made_like_a_new_one(tmp_path, start):
    with raw(tmp_path / "new.sqlite") as new, raw(tmp_path / "old.sqlite") as old:
        schema.climb(new, 0)
        schema.climb(old, 0, start)
        assert made(old) != made(new)
        schema.climb(old, start)
        assert made(old) == made(new)
        for name in ("user_version", "application_id"):
            assert schema.pragma(old, name) == schema.pragma(new, name)


def test_a_reader_reads_an_old_journal_as_it_is(old):
    before = old.read_bytes()
    with JournalReader(old) as reader:
        assert list(reader.read()) == old_facts()
    assert old.read_bytes() == before


def test_the_log_of_a_dead_daemon_comes_along(old, tmp_path):
    with raw(old) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        row = (61, 9.0, 9.0, "b", "Finished", 1, '{"why":"last","program":"p"}', 0)
        db.execute(schema.INSERT, (*row[:7], schema.crc_of(row, 1)))
        dead = tmp_path / "dead.sqlite"
        for suffix in ("", "-wal"):
            shutil.copyfile(schema.beside(old, suffix), schema.beside(dead, suffix))
    journal, facts, _ = open_or_salvage(dead, wall_s=1.0)
    journal.close()
    assert facts == [*old_facts(), Stamped(61, 9.0, 9.0, "b", Finished("last", "p"))]
    assert schema.beside(journal.upgraded, "-wal").stat().st_size > 0


def test_a_damaged_old_journal_is_rebuilt_as_a_new_one(old):
    with old.open("r+b") as file:
        file.seek(old.read_bytes().index(b"resumed at step"))
        file.write(b"X")
    journal, facts, found = open_or_salvage(old, wall_s=1.0)
    journal.close()
    assert journal.upgraded is None
    assert found.lost == 1
    assert isinstance(facts[-1].fact, JournalSalvaged)
    assert all(fact in old_facts() for fact in facts[:-1])
    assert len(facts) == 60
    with raw(old) as db:
        assert schema.version(db) == 2


def test_a_step_that_is_wrong_leaves_the_old_journal(old, monkeypatch):
    wrong = (*schema.STEPS[1][:-1], "UPDATE fact SET body = 'x' WHERE seq = 7", schema.STEPS[1][-1])
    monkeypatch.setitem(schema.STEPS, 1, wrong)
    before = old.read_bytes()
    with pytest.raises(OSError, match="the upgraded journal is not what the old one was"):
        Journal(old)
    assert old.read_bytes() == before
    monkeypatch.undo()
    Journal(old).close()
    with JournalReader(old) as reader:
        assert list(reader.read()) == old_facts()


def test_a_disk_without_room_for_an_upgrade_leaves_the_old_journal(old):
    import resource

    before = old.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OSError, match="journal"):
            Journal(old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert old.read_bytes() == before


class PowerCut(BaseException):
    """The process ends here."""


def test_an_upgrade_cut_short_at_any_sync_is_done_by_the_next_start(old, tmp_path, monkeypatch):
    real_sync, whole, cut = schema.sync, False, 0
    while not whole:
        folder = tmp_path / str(cut)
        folder.mkdir()
        path = folder / "journal.sqlite"
        shutil.copyfile(old, path)
        left = iter(range(cut))

        def sync(target, left=left):
            if next(left, None) is None:
                raise PowerCut
            real_sync(target)

        monkeypatch.setattr(schema, "sync", sync)
        with contextlib.suppress(PowerCut):
            Journal(path).close()
            whole = True
        monkeypatch.setattr(schema, "sync", real_sync)
        journal, facts, found = open_or_salvage(path, wall_s=1.0)
        journal.close()
        assert (facts, found) == (old_facts(), None)
        left_over = sorted(each.name for each in folder.iterdir())
        assert left_over == ["journal.sqlite", "journal.sqlite.schema-1"]
        cut += 1
    assert cut == 6, "it syncs the copy, the old one's name, the new one's, the old WAL's end and the swap"


def test_an_upgrade_killed_at_any_moment_leaves_the_old_or_the_new(old, tmp_path):
    """Real SIGKILLs, spread over the time that an upgrade takes."""
    seen = set()
    for turn in range(40):
        folder = tmp_path / str(turn)
        folder.mkdir()
        path = folder / "journal.sqlite"
        shutil.copyfile(old, path)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                Journal(path)
            os._exit(0)
        until = time.monotonic() + turn * 0.0005
        while time.monotonic() < until:
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with raw(path) as db:
            seen.add(schema.version(db))
        journal, facts, found = open_or_salvage(path, wall_s=1.0)
        journal.close()
        assert (facts, found) == (old_facts(), None)
        shutil.rmtree(folder)
    assert 1 in seen
