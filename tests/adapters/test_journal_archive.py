"""Compaction: the fold stays, nothing is lost, nobody waits long, and a kill at any moment changes none of that."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import journal_kit
import pytest
from adding_up import ledger_errors
from journal_kit import all_of, never, row, written
from leaks import open_files
from structlog.testing import capture_logs

from supervisor.adapters.host.clock import SystemClock
from supervisor.adapters.housekeeping import Housekeeping
from supervisor.adapters.journal import archive as journal_archive
from supervisor.adapters.journal import schema, spare
from supervisor.adapters.journal import sqlite as journal_sqlite
from supervisor.adapters.journal.archive import compact, folder, read_archive, read_lasting, since_snapshot
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.model.codec import MalformedFact, as_text
from supervisor.model.facts import Fact, Finished, HostRebooted, Snapshot, Stamped
from supervisor.model.fold import fold_all, replay
from supervisor.model.inputs import SnapshotDue
from supervisor.model.settings import JournalSettings, Paths, Settings
from supervisor.model.state import State
from supervisor.reports.ledger import Ledger
from supervisor.shell.inbox import Inbox

ENOUGH = 2**40


SNAPSHOT = Snapshot("", as_text(State()))


@pytest.fixture(scope="module")
def night():
    """Some simulated hours of trouble with snapshots in between; a list of stamped facts."""
    odds = {"crash_s": 900.0, "stall_s": 1800.0, "operator_s": 600.0}
    return journal_kit.night(2, *[2400.0] * 8, 1200.0, odds=odds)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_fold_stays_and_nothing_is_lost(night, tmp_path, share):
    path = written(tmp_path / "journal.sqlite", night)
    before = fold_all(night)
    moved = compact(path, before_wall_s=night[int(len(night) * share)].wall_s, most_bytes=ENOUGH, pause=never)
    kept = all_of(path)
    assert moved.facts == len(night) - len(kept)
    assert isinstance(kept[0].fact, Snapshot)
    assert 0 < len(kept) < len(night)
    assert kept == night[-len(kept) :]
    assert fold_all(kept) == before
    assert replay(kept) == (before, 0)
    assert [*read_archive(folder(path)), *kept] == night
    journal, facts, found = open_or_salvage(path, wall_s=0.0)
    assert (replay(facts), found) == ((before, 0), None)
    assert journal.append([Finished("", "p")], at_s=0.0, wall_s=0.0, boot_id="")[0].seq == night[-1].seq + 1
    journal.close()
    assert moved.archive.stat().st_mode & 0o77 == 0
    assert folder(path).stat().st_mode & 0o77 == 0


def test_again_and_again_the_archive_goes_on_where_it_was(night, tmp_path):
    path = written(tmp_path / "journal.sqlite", night)
    files = []
    for share in (0.3, 0.3, 0.6, 0.9):
        moved = compact(path, before_wall_s=night[int(len(night) * share)].wall_s, most_bytes=ENOUGH, pause=never)
        files += [] if moved is None else [moved.archive]
    assert len(files) == 3
    assert sorted(folder(path).iterdir()) == files == sorted(files)
    assert [*read_archive(folder(path)), *all_of(path)] == night
    first = all_of(path)[0].seq
    assert list(read_archive(folder(path), after_seq=100)) == [each for each in night if 100 < each.seq < first]


def test_accounts_begin_where_the_journal_does(night, tmp_path):
    path = written(tmp_path / "journal.sqlite", night)
    compact(path, before_wall_s=night[len(night) // 2].wall_s, most_bytes=ENOUGH, pause=never)
    whole, rest = Ledger(), Ledger()
    for item in night:
        whole.add(item)
    kept = all_of(path)
    for item in kept:
        rest.add(item)
    now_s = night[-1].at_s + 10.0
    assert ledger_errors(rest, now_s) == ledger_errors(whole, now_s) == []
    assert set(rest.timelines) == set(whole.timelines)
    for name, book in rest.closed(now_s).timelines.items():
        assert sum(sum(piece.seconds.values()) for piece in book.slices) == pytest.approx(now_s - book.from_s)
        assert book.account is whole.timelines[name].account
        assert book.token == whole.timelines[name].token


def test_a_journal_without_a_snapshot_stays_as_it_is(tmp_path):
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(Journal(path)) as journal:
        journal.append([Finished("", "p")] * 50, at_s=0.0, wall_s=0.0, boot_id="")
    assert compact(path, before_wall_s=1e12, most_bytes=0, pause=never) is None
    assert since_snapshot(path) == 50


def test_too_large_is_brought_to_half(night, tmp_path):
    path = written(tmp_path / "journal.sqlite", night)
    size = path.stat().st_size
    moved = compact(path, before_wall_s=0.0, most_bytes=size // 2, pause=never)
    assert moved is not None
    with contextlib.closing(sqlite3.connect(path)) as db:
        used = schema.pragma(db, "page_count") - schema.pragma(db, "freelist_count")
    assert used * 4096 < size * 0.4
    assert fold_all(all_of(path)) == fold_all(night)
    compact(path, before_wall_s=0.0, most_bytes=1, pause=never)
    assert [n for n, each in enumerate(all_of(path)) if isinstance(each.fact, Snapshot)] == [0], "to the newest, at the most"
    assert fold_all(all_of(path)) == fold_all(night)
    assert [*read_archive(folder(path)), *all_of(path)] == night


def test_only_what_is_archived_can_be_removed(night, tmp_path):
    path = written(tmp_path / "journal.sqlite", night)
    compact(path, before_wall_s=night[len(night) // 2].wall_s, most_bytes=ENOUGH, pause=never)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute("DELETE FROM fact WHERE seq = (SELECT min(seq) FROM fact)")


# --- kills --------------------------------------------------------------------------------------------------------------------


def test_a_compaction_killed_at_any_moment_loses_nothing(night, tmp_path):
    """Real SIGKILLs spread over the time that it takes; the next run finishes, and both read the same."""
    before = fold_all(night)
    template = written(tmp_path / "template.sqlite", night)
    until_wall_s = night[int(len(night) * 0.8)].wall_s
    began = time.monotonic()
    copy = tmp_path / "timed.sqlite"
    shutil.copyfile(template, copy)
    compact(copy, before_wall_s=until_wall_s, most_bytes=ENOUGH, pause=never)
    took_s = time.monotonic() - began
    shutil.rmtree(folder(copy))
    floors = set()
    for turn in range(11):
        directory = tmp_path / str(turn)
        directory.mkdir()
        path = directory / "journal.sqlite"
        shutil.copyfile(template, path)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                if turn == 0:  # killed before it does anything, however long its parent stands still
                    signal.pause()
                compact(path, before_wall_s=until_wall_s, most_bytes=ENOUGH, pause=never)
            os._exit(0)
        if turn < 10:  # the last one may finish
            time.sleep(turn * took_s / 10)
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        journal, facts, found = open_or_salvage(path, wall_s=0.0)
        assert found is None
        assert fold_all(facts) == before
        with contextlib.closing(sqlite3.connect(path)) as db:
            floors.add(schema.floor(db))
        known = {each.seq: each for each in (*read_archive(folder(path)), *journal.read())}
        assert [known[each.seq] for each in night] == night
        journal.append([Finished("", "p")], at_s=night[-1].at_s, wall_s=night[-1].wall_s, boot_id=night[-1].boot_id)
        journal.close()
        compact(path, before_wall_s=until_wall_s, most_bytes=ENOUGH, pause=never)
        assert [*read_archive(folder(path)), *all_of(path)][:-1] == night
        assert fold_all(all_of(path)) == fold_all([*night, all_of(path)[-1]])
        shutil.rmtree(directory)
    assert len(floors) > 1, "the first was killed before the floor was set"


# --- beside a daemon -----------------------------------------------------------------------------------------------------------


def test_housekeeping_asks_for_snapshots_and_moves_what_is_old(night, tmp_path, monkeypatch):
    path = written(tmp_path / "journal.sqlite", night)
    settings = Settings(Paths(str(tmp_path), str(tmp_path)), journal=JournalSettings(keep_days=1))
    inbox = Inbox()
    keeper = Housekeeping(lambda: settings, inbox, SystemClock(0.0))
    monkeypatch.setattr(journal_archive, "SNAPSHOT_FACTS", since_snapshot(path) + 1)
    with capture_logs() as said:
        keeper.care_for_journal()
    assert inbox.take(0.0) is None
    assert said == [], "the world's clock runs ahead of ours: nothing is old"
    monkeypatch.setattr(journal_archive, "SNAPSHOT_FACTS", since_snapshot(path))
    monkeypatch.setattr(SystemClock, "wall_s", lambda _: night[-1].wall_s + 86_400.0)
    with capture_logs() as said:
        keeper.care_for_journal()
    due = inbox.take(0.0)
    assert (type(due), due.facts) == (SnapshotDue, since_snapshot(path))
    assert [entry["event"] for entry in said] == ["journal_compacted"]
    assert keeper.journal_defect == ""
    monkeypatch.setattr(spare, "renew", lambda *_: "row 7: its CRC does not match")
    keeper.care_for_journal()
    assert keeper.journal_defect == "row 7: its CRC does not match"
    monkeypatch.undo()
    path.unlink()
    with capture_logs() as said:
        keeper.care_for_journal()
    assert [entry["event"] for entry in said] == ["journal_not_compacted", "journal_not_copied"]
    keeper.stop()


def test_a_reader_in_the_middle_of_the_journal_ends_in_the_same_state(night, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_sqlite, "_READ", journal_sqlite._READ.replace("LIMIT 1000", "LIMIT 50"))
    monkeypatch.setattr(journal_sqlite, "_PAGE_ROWS", 50)
    path = written(tmp_path / "journal.sqlite", night)
    with JournalReader(path) as reader:
        facts = reader.read()
        seen = [next(facts) for _ in range(60)]
        compact(path, before_wall_s=night[-1].wall_s, most_bytes=ENOUGH, pause=never)
        assert fold_all([*seen, *facts]) == fold_all(night)


def test_the_list_of_reboots_outlives_a_compaction(path):
    """Thirty reboots, a snapshot, and one more: a compaction leaves one of them in the journal."""
    reboots = [rebooted(number) for number in range(1, 31)]
    small(path, *reboots, SNAPSHOT, rebooted(31))
    moved = compact(path, before_wall_s=40.0, most_bytes=ENOUGH, pause=never)
    assert moved.facts == 30
    assert [type(each.fact).__name__ for each in all_of(path)] == ["Snapshot", "HostRebooted"]

    def told(after_seq=0, kinds=("HostRebooted",)):
        with JournalReader(path) as reader:
            return [each.seq for each in read_lasting(path, reader.read(after_seq), after_seq, kinds)]

    everything = [*range(1, 31), 31, 32]
    assert told() == everything, "the snapshot is the reader's to leave out"
    assert told(after_seq=29) == [30, 31, 32], "a follower goes on where it was"
    assert told(after_seq=31) == [32]
    assert told(kinds=()) == told(kinds=("Snapshot",)) == told(kinds=("HostRebooted", "Exited")) == [31, 32], (
        "history's window"
    )
    moved.archive.write_bytes(moved.archive.read_bytes()[:-20])
    assert told()[-1] == 32, "what can be read of a damaged archive, and all of the journal"
    moved.archive.unlink()
    assert told() == [31, 32]


# --- row by row ------------------------------------------------------------------------------------------------------------


def rebooted(number: int) -> HostRebooted:
    return HostRebooted(f"reboot {number}", "a", "b", "unclean", "boot id", 1.0, 2.0, "light", ("Pong",), {})


def small(path: Path, *facts: Fact, walls: Sequence[float] = ()) -> list[Stamped]:
    """A journal of these facts, each a second after the one before it (or at its own wall time)."""
    times = walls or [float(seq) for seq in range(1, len(facts) + 1)]
    made = [
        Stamped(seq, seq + 0.5, wall_s, "boot", fact) for seq, (fact, wall_s) in enumerate(zip(facts, times, strict=True), 1)
    ]
    written(path, made)
    return made


def plain(count: int, length: int = 1) -> list[Fact]:
    return [Finished("x" * length, "p")] * count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# --- how they move -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_umask")
def test_a_file_of_the_archive_is_plain_json_that_only_its_owner_can_read(path: Path) -> None:
    told = small(path, *plain(2), SNAPSHOT)
    directory = folder(path)
    directory.mkdir()
    leftover = directory / "facts-000000000001-000000000002.jsonl.gz.building"
    leftover.write_bytes(b"of a run that was killed" * 100)
    leftover.chmod(0o600)
    before = open_files()
    moved = compact(path, before_wall_s=1e9, most_bytes=ENOUGH, pause=never)
    assert moved is not None
    assert open_files() <= before
    assert list(directory.iterdir()) == [moved.archive]
    data = moved.archive.read_bytes()
    assert gzip.decompress(data) == b"".join(json.dumps(row(item)).encode() + b"\n" for item in told[:2])
    assert moved.archive.stat().st_mode & 0o777 == 0o600


def test_a_file_that_does_not_read_back_moves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = small(path, *plain(3), SNAPSHOT)

    def loses_a_line(file: Path) -> None:
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(lines[1:])))

    monkeypatch.setattr(journal_archive, "sync", loses_a_line)
    with pytest.raises(OSError) as failed:
        compact(path, before_wall_s=1e9, most_bytes=ENOUGH, pause=never)
    aside = folder(path) / "facts-000000000001-000000000003.jsonl.gz.building"
    assert str(failed.value) == f"{aside}: the archive file does not read back completely, so no facts were moved"
    assert (all_of(path), list(read_archive(folder(path)))) == (told, [])


# --- reading it ----------------------------------------------------------------------------------------------------------


def archived(directory: Path, first: int, last: int, facts: Sequence[Stamped] | bytes) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / f"facts-{first:012d}-{last:012d}.jsonl.gz"
    text = facts if isinstance(facts, bytes) else b"".join(json.dumps(row(item)).encode() + b"\n" for item in facts)
    file.write_bytes(gzip.compress(text))
    return file


def stamped(*numbers: int, make: Callable[[int], Fact] = rebooted) -> list[Stamped]:
    return [Stamped(number, number + 0.5, 1.0, "boot", make(number)) for number in numbers]


def test_a_file_that_is_cut_or_damaged_anywhere_is_one_sentence(tmp_path: Path) -> None:
    file = archived(tmp_path, 1, 40, stamped(*range(1, 41)))
    whole = file.read_bytes()
    for size in (*range(1, len(whole), 37), len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises((OSError, MalformedFact)):
            list(read_archive(tmp_path))
    file.write_bytes(whole[:30] + bytes(200) + whole[230:])
    with pytest.raises(MalformedFact, match=f"^{re.escape(str(file))}, after line 0: Error -3 while decompressing data: "):
        list(read_archive(tmp_path))
