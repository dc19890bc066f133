"""The journal: what was acknowledged is there, whatever happens to the process, the disk or the file."""

import contextlib
import errno
import os
import re
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from journal_kit import names

from supervisor.adapters.journal import schema as journal_schema
from supervisor.adapters.journal import sqlite as journal_sqlite
from supervisor.adapters.journal.sqlite import Journal, JournalReader, JournalRefused, open_or_salvage, salvage
from supervisor.model.codec import MalformedFact
from supervisor.model.facts import ClockStepped, DaemonStopped, Examined, Finished, JournalSalvaged, Stamped

BOOT = "0123456789abcdef0123456789abcdef"
WRITER = Path(__file__).with_name("journal_writer.py")
PAGE_BYTES = 4096
NOBODY = 65534


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def finished(number, why=""):
    return Finished(why=why or f"fact {number}", program=f"program-{number}")


def append(journal, *facts, at_s=1.0):
    return journal.append(facts, at_s=at_s, wall_s=1.7e9, boot_id=BOOT)


def filled(path, count):
    """A journal of `count` facts, closed: everything is in the main file."""
    with contextlib.closing(Journal(path)) as journal:
        return append(journal, *(finished(number) for number in range(1, count + 1)))


def read_all(path):
    with contextlib.closing(Journal(path)) as journal:
        return list(journal.read())


def raw(path):
    return contextlib.closing(sqlite3.connect(path, isolation_level=None))


# --- writing and reading ---------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back_with_its_stamp(path):
    facts = [finished(1), Examined(why="é\n\ud800", program="", token="", evidence={"stack": "…"}), DaemonStopped(why="")]
    with contextlib.closing(Journal(path)) as journal:
        stamped = journal.append(facts, at_s=1.25, wall_s=1.7e9, boot_id=BOOT)
        assert stamped == [Stamped(seq, 1.25, 1.7e9, BOOT, fact) for seq, fact in enumerate(facts, 1)]
        assert list(journal.read()) == stamped
        assert list(journal.read(after_seq=2)) == stamped[2:]
        assert list(journal.read(after_seq=3)) == []
    assert read_all(path) == stamped


@pytest.mark.parametrize("times", [{"at_s": float("nan"), "wall_s": 1.0}, {"at_s": 1.0, "wall_s": float("inf")}])
def test_a_fact_needs_finite_times_and_one_that_cannot_be_read_back_keeps_all_of_them_out(path, times):
    with contextlib.closing(Journal(path)) as journal:
        with pytest.raises(ValueError, match="a fact needs finite times"):
            journal.append([finished(1)], **times, boot_id=BOOT)
        with pytest.raises(MalformedFact):
            append(journal, finished(1), ClockStepped(why="", step_s=float("nan")))
        assert list(journal.read()) == []


@pytest.mark.usefixtures("no_umask")
def test_its_files_are_its_owners_alone(path):
    with contextlib.closing(Journal(path)) as journal:
        append(journal, finished(1))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.rglob("*")}
    files = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "since-000000000001.jsonl")
    assert modes == {**dict.fromkeys(files, 0o600), "journal-copy": 0o700}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fact SET body = '{}'",
        "DELETE FROM fact",
        "INSERT OR REPLACE INTO fact SELECT seq, 0, 0, '', '', 1, '', 0 FROM fact",
    ],
)
def test_history_is_not_edited(path, statement):
    stamped = filled(path, 2)
    with raw(path) as db, pytest.raises(sqlite3.IntegrityError, match="the journal is append-only"):
        db.execute(statement)
    assert read_all(path) == stamped


# --- processes that die, processes beside each other ----------------------------------------------------------------------


def start_writer(path, name):
    # Unbuffered: `communicate` with a timeout passes over what `readline` has left in a buffer, and begins within a line.
    return subprocess.Popen([sys.executable, WRITER, path, name], stdout=subprocess.PIPE, bufsize=0)


def test_two_writers_killed_in_mid_append_lose_nothing_that_was_acknowledged(path):
    acknowledged = {}
    Journal(path).close()  # made by one; in the field the lock of the state directory sees to that
    for turn in range(4):
        writers = {f"{turn}-{each}": start_writer(path, f"{turn}-{each}") for each in "ab"}
        said = dict.fromkeys(writers, b"")
        try:
            for name, writer in writers.items():
                said[name] += writer.stdout.readline()  # it writes: the kill comes somewhere in its loop
            for _ in range(3 * turn):  # elsewhere in each turn
                said[f"{turn}-a"] += writers[f"{turn}-a"].stdout.readline()
        finally:
            for writer in writers.values():
                writer.send_signal(signal.SIGKILL)
        for name, writer in writers.items():
            rest, _ = writer.communicate(timeout=60)
            lines = [line.split() for line in (said[name] + rest).decode().splitlines() if len(line.split()) == 3]
            acknowledged |= {(name, int(number)): (int(first), int(second)) for number, first, second in lines}
        kept = read_all(path)
        by_seq = {each.seq: each.fact for each in kept}
        assert [each.seq for each in kept] == list(range(1, len(kept) + 1))
        for (name, number), (first, second) in acknowledged.items():
            assert by_seq[first] == ClockStepped(why=f"{name} {number}", step_s=float(number))
            assert by_seq[second] == Finished(why=str(number), program=name)
        # All or nothing: what was committed and not acknowledged came in pairs too.
        steps = [each.fact.why for each in kept if isinstance(each.fact, ClockStepped)]
        pairs = [f"{each.fact.program} {each.fact.why}" for each in kept if isinstance(each.fact, Finished)]
        assert steps == pairs
    assert acknowledged


def test_a_reader_sees_what_a_living_writer_has_committed(path):
    with contextlib.closing(Journal(path)) as journal, JournalReader(path) as reader:
        stamped = append(journal, finished(1), finished(2))
        assert list(reader.read()) == stamped
        stamped += append(journal, finished(3))
        assert list(reader.read(after_seq=2)) == stamped[2:]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._db.execute("INSERT INTO fact SELECT * FROM fact")


def killed_writer(path):
    """A journal whose writer was killed: its WAL holds what the main file does not."""
    writer = start_writer(path, "killed")
    try:
        lines = [writer.stdout.readline() for _ in range(5)]
    finally:
        writer.kill()
        writer.communicate(timeout=60)
    assert path.with_name("journal.sqlite-wal").stat().st_size > 0
    return len(lines) * 2


@pytest.fixture
def readable_dir():
    """A directory that another user can read and not write; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="extralife-test-") as folder:
        yield Path(folder)
        Path(folder).chmod(0o700)


@contextlib.contextmanager
def without_permission_to_write(folder):
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)  # permissions mean nothing to root
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("kept", [("-wal", "-shm"), ("-wal",), ()], ids=["wal and shm", "wal alone", "closed in order"])
def test_a_reader_needs_no_permission_to_write_and_leaves_no_copy_behind(readable_dir, tmp_path, monkeypatch, kept):
    path, scratch = readable_dir / "state" / "journal.sqlite", readable_dir / "scratch"
    for each in (readable_dir, path.parent, scratch):
        each.mkdir(exist_ok=True)
        each.chmod(0o777)
    if kept:
        count = killed_writer(path)
        if "-shm" not in kept:
            path.with_name("journal.sqlite-shm").unlink()
    else:
        count = len(filled(path, 4))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    files = names(path.parent)
    with without_permission_to_write(path.parent), JournalReader(path) as reader:
        assert len(list(reader.read())) >= count
    assert (names(path.parent), names(scratch)) == (files, [])


# --- a disk that fails ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_file_longer_than(size_bytes):
    """The kernel refuses writes beyond (EFBIG; Python ignores SIGXFSZ): a real failed write at a byte of our choice."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_append_that_fails_at_any_byte_leaves_nothing_and_the_next_one_works(path):
    """The same append, cut at byte 0, 512, 1024 ... of what it writes, until it gets through."""
    kept = filled(path, 3)
    big = [finished(number, why="x" * 3000) for number in range(4)]
    failures = 0
    with contextlib.closing(Journal(path)) as journal:
        kept += append(journal, finished(4))
        wal = path.with_name("journal.sqlite-wal")
        start = wal.stat().st_size
        for cut in range(0, 200 * 512, 512):
            error = None
            try:
                with no_file_longer_than(start + cut):
                    kept += append(journal, *big)
            except OSError as caught:
                error = caught
            if error is None:
                break
            failures += 1
            assert error.filename == str(path)
            assert error.errno in (errno.ENOSPC, errno.EIO), error
            with JournalReader(path) as reader:
                assert list(reader.read()) == kept
        assert failures > 10
        kept += append(journal, finished(5))
        assert list(journal.read()) == kept
    assert read_all(path) == kept


def test_a_journal_that_cannot_be_made_leaves_nothing_that_looks_like_one(path):
    with no_file_longer_than(PAGE_BYTES), pytest.raises(OSError, match=re.escape(str(path))):
        Journal(path)
    assert not path.exists()
    assert filled(path, 1) == read_all(path)
    assert names(path.parent) == ["journal.sqlite"]


# --- journals that are not for us -----------------------------------------------------------------------------------------


def test_a_fact_of_a_newer_extralife_is_refused_not_salvaged(path):
    filled(path, 2)
    with raw(path) as db:
        row = journal_sqlite._row(3, 1.0, 1.0, BOOT, "GpuCaughtFire", 1, "{}")
        db.execute(journal_schema.INSERT, row)
    with pytest.raises(JournalRefused, match="row 3: fact kind 'GpuCaughtFire' is unknown here"):
        open_or_salvage(path, wall_s=0.0)
    assert not [name for name in names(path.parent) if "damaged" in name]


# --- damage ---------------------------------------------------------------------------------------------------------------


def scribble(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip_bit(path, word):
    """One bit of the first place where `word` stands in the file."""
    at = path.read_bytes().index(word)
    scribble(path, at, bytes([word[0] ^ 1]))


def copy_journal(source, target):
    for suffix in ("", "-wal"):
        shutil.copyfile(source.with_name(source.name + suffix), target.with_name(target.name + suffix))


def damaged_with_wal(path, folder):
    """A dead daemon's journal: 100 facts in the file, the 42nd damaged, 10 more in the WAL. (path, what can be saved)."""
    stamped = filled(path, 100)
    dead = folder / "dead.sqlite"
    with contextlib.closing(Journal(path)) as journal:
        stamped += append(journal, *(finished(number) for number in range(101, 111)))
        copy_journal(path, dead)
    flip_bit(dead, b"fact 42")
    return dead, stamped[:41] + stamped[42:]


class PowerCut(BaseException):
    """The process ends here."""


def test_a_salvage_cut_short_anywhere_ends_with_every_saved_fact(path, monkeypatch):
    """Dies at its 1st, 2nd, 3rd ... sync until it gets through; the next start always has all that could be read."""
    template, readable = damaged_with_wal(path, path.parent)
    real_sync = journal_schema.sync
    for cut in range(20):
        folder = path.parent / str(cut)
        folder.mkdir()
        copy_journal(template, folder / "journal.sqlite")
        left = iter(range(cut))

        def sync(target, left=left):
            if next(left, None) is None:
                raise PowerCut
            real_sync(target)

        monkeypatch.setattr(journal_schema, "sync", sync)
        whole = False
        with contextlib.suppress(PowerCut):
            salvage(folder / "journal.sqlite", wall_s=1.0, why="row 42")
            whole = True
        monkeypatch.setattr(journal_schema, "sync", real_sync)
        journal, facts, _ = open_or_salvage(folder / "journal.sqlite", wall_s=2.0)
        journal.close()
        assert facts[:-1] == readable
        assert isinstance(facts[-1].fact, JournalSalvaged)
        assert any("damaged" in name for name in names(folder))
        assert not any("rebuil" in name and "building" not in name for name in names(folder))
        if whole:
            break
    assert whole
