"""Facts by kind, program and number are found with the journal's indexes, and are those that reading everything would give."""

import contextlib
import itertools
import sqlite3

import pytest
from journal_kit import never, night, written
from structlog.testing import capture_logs

from supervisor.adapters.journal import schema
from supervisor.adapters.journal.archive import compact
from supervisor.adapters.journal.sqlite import Journal, JournalReader
from supervisor.model import codec
from supervisor.model.facts import BackupIntended, Finished, HostRebooted, OperatorAsked, Stamped
from supervisor.reports.facts_view import select

QUIET = ("Checkpointed", "Tallied", "Snapshot", "IntervalChosen")
KINDS = [(), ("Exited",), ("HostRebooted", "Exited", "Exited"), ("NoSuch",), (*(set(codec.kinds()) - set(QUIET)),)]
PROGRAMS = [None, "A", "C", "Ünï-s1", "nobody", "", 'with "quotes"']


@pytest.fixture(scope="module")
def facts():
    found = night(3, 2400.0, 2400.0, 2400.0, 600.0, odds={"crash_s": 900.0, "reboot_s": 3600.0})
    more = [
        Finished('quoted: "program":"A" and "A"', "Ünï-s1"), OperatorAsked("", "stop", ("A",), None),
        HostRebooted("", "a", "b", "unclean", "", 1.0, 2.0, "light", ("Ünï-s1",), {"A": 4}),
        BackupIntended("", "b-1", "", "operator", ("C", 'with "quotes"')),
    ]  # fmt: skip
    last = found[-1]
    return [*found, *(Stamped(last.seq + n, last.at_s, last.wall_s, "b", fact) for n, fact in enumerate(more, 1))]


@pytest.fixture
def path(facts, tmp_path):
    return written(tmp_path / "journal.sqlite", facts)


def compared(path, facts):
    with JournalReader(path) as reader:
        for kinds, program, limit, after in itertools.product(KINDS, PROGRAMS, (1, 50, 10_000, -1, -50), (0, 300)):
            whole = select((each for each in facts if each.seq > after), program, limit, kinds, {})
            found = reader.search(after, kinds, program, limit)
            assert select(found, program, limit, kinds, {}) == whole, (kinds, program, limit, after)
            assert len(found) == len(whole), "nothing is decoded that is not wanted"


def test_a_search_finds_what_reading_everything_finds(facts, path):
    compared(path, facts)


def test_an_archived_fact_is_not_found(facts, path):
    moved = compact(path, before_wall_s=facts[-1].wall_s, most_bytes=2**40, pause=never)
    assert moved is not None
    compared(path, facts[moved.facts :])


def test_a_journal_without_indexes_is_read_and_gets_them_at_the_next_start(facts, path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX fact_by_kind")
        db.execute("DROP INDEX fact_by_program")
    compared(path, facts)
    for expected in (["journal_indexed"], []):
        with capture_logs() as said, contextlib.closing(Journal(path)):
            pass
        assert [each["event"] for each in said] == expected
    compared(path, facts)


def test_the_newest_facts_cost_the_same_in_a_long_journal(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        for test in ("kind = 'Exited'", f"{schema.OF_PROGRAM} = 'A'"):
            plan = db.execute(f"EXPLAIN QUERY PLAN SELECT * FROM fact WHERE {test} ORDER BY seq DESC LIMIT 9").fetchall()
            assert len(plan) == 1
            assert "USING INDEX fact_by_" in plan[0][3]
