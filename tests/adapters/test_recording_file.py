"""The recorder's file from outside: its tables, its side files, its limits, and who may read it in which way."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from leaks import nothing_stays_open
from tools import mounted

from supervisor.adapters.recorder import store
from supervisor.adapters.recorder.store import NotUsable, Recording, RecordingReader, read
from supervisor.model.recording import FIGURES_OF_ITS_OWN, GPUS, HOST, PROGRAMS, Row
from supervisor.policy.box.readings import Spread
from supervisor.policy.upkeep.resolution import TIERS

ROOT = Path(__file__).resolve().parents[2]
TEN_S, MINUTE, *_ = TIERS
WORDS = ("RUNNING", "training", "light")


def row(at_s: float, program: str = "Pong", token: str = "a", **values: float | Spread | None) -> Row:
    return Row(at_s, 1.8e9 + at_s, (program, token), WORDS, values)


def gpu(at_s: float, **values: float | Spread | None) -> Row:
    return Row(at_s, 1.8e9 + at_s, ("GPU-0", ""), (None,), values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.sqlite"


@pytest.fixture
def recording(path: Path) -> Iterator[Recording]:
    made = Recording(path, now_s=0.0)
    yield made
    made.close()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


# --- its tables ----------------------------------------------------------------------------------------------------------


def test_a_new_file_is_a_recorders_and_gives_freed_pages_back(path: Path, recording: Recording) -> None:
    found = [
        query(path, f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version", "auto_vacuum", "journal_mode")
    ]
    assert found == [0x584C5243, 2, 2, "wal"], "2: incremental, without which a bound on the file is none"


def test_the_tables_of_a_sheet_and_what_makes_them_fast(path: Path, recording: Recording) -> None:
    """Files of older versions have these very names: another one would hide the whole past."""

    def columns(table: str) -> list[str]:
        return [str(name) for _, name, *_ in query(path, f"PRAGMA table_info({table})")]

    fixed = ["at_s", "wall_s", "readings", "subject"]
    series = ["used_bytes", "utilisation", "temperature_c", "power_w"]
    assert columns("gpus_10") == fixed + series, "a reading is its own least and most"
    assert columns("gpus_60") == fixed + series + [f"{name}__{end}" for name in series for end in ("least", "most")]
    assert columns("gpus_subject") == ["id", "gpu", "worker_phase", "reasons"]
    assert columns("label") == ["id", "text"]
    tables = {name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    times = ("10", "60", "600", "3600", "21600", "86400")
    sheets = ("programs", "figures", "host", "gpus")
    assert tables == {"label", *(f"{sheet}_{end}" for sheet in sheets for end in (*times, "subject"))}
    indices = {name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")}
    assert indices == {
        *(f"{sheet}_subject_by" for sheet in sheets), *(f"{sheet}_{time}_at" for sheet in sheets for time in times),
        *(f"{sheet}_{time}_of" for sheet in sheets if sheet != "host" for time in times),
    }, "the host is one subject"  # fmt: skip


def test_one_subject_of_many_rows_is_stored_once(path: Path, recording: Recording) -> None:
    recording.add({"programs": [row(10.0 * number) for number in range(600)]})
    recording.add({"programs": [row(10.0 * number, token="b") for number in range(600, 1200)]})
    recording.close()
    again = Recording(path, now_s=12_000.0)
    again.add({"programs": [row(12_000.0, token="b")]})
    again.close()
    assert query(path, "SELECT count(*) FROM programs_subject") == [(2,)]
    assert query(path, "SELECT text FROM label ORDER BY id") == [("Pong",), ("a",), *((word,) for word in WORDS), ("b",)]
    found = list(read(path, PROGRAMS, TEN_S, 0.0, 1e9, ()))
    assert [each.keys for each in found] == [("Pong", "a")] * 600 + [("Pong", "b")] * 601
    assert {each.words for each in found} == {WORDS}


def test_more_subjects_than_one_query_asks_for_are_all_known(path: Path, recording: Recording) -> None:
    told = [row(float(number), token=f"t{number}") for number in range(1_101)]
    recording.add({"programs": told})
    for subjects in ((), ("Pong",)):
        found = list(read(path, PROGRAMS, TEN_S, 0.0, 1e9, subjects))
        assert [each.keys for each in found] == [each.keys for each in told]
        assert {each.words for each in found} == {WORDS}


def test_a_subject_that_is_deleted_while_somebody_reads_is_a_question_mark(path: Path, recording: Recording) -> None:
    recording.add({"programs": [row(10.0)], "gpus": [gpu(10.0)], "figures": [Row(10.0, 0.0, ("Pong", "kl", "a"), (), {})]})
    recording.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db, RecordingReader(path) as reader:
        for sheet in ("programs", "gpus", "figures"):
            db.execute(f"DELETE FROM {sheet}_subject")
        found = [(each.keys, each.words) for sheet in (PROGRAMS, GPUS, FIGURES_OF_ITS_OWN)
                 for each in reader.rows(sheet, TEN_S, 0.0, 99.0)]  # fmt: skip
    assert found == [(("?", "?"), ("?", "?", "?")), (("?", "?"), ("?",)), (("?", "?", "?"), ())]


# --- its limits ----------------------------------------------------------------------------------------------------------


def test_deleted_rows_make_the_file_smaller(path: Path, recording: Recording) -> None:
    empty = recording.size_bytes
    recording.add({"programs": [row(10.0 * number, loss=1.0) for number in range(2_000)]})
    assert recording.size_bytes > empty + 100_000
    recording.forget(TEN_S.keep_s + 50_000.0, 1 << 30)
    assert recording.size_bytes <= empty + 2 * 4096


# --- opening it ----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_never_finished_is_made_anew(path: Path) -> None:
    left = path.with_name("recording.sqlite.new")
    left.write_bytes(b"killed while it was made")
    Recording(path, now_s=0.0).close()
    assert os.listdir(path.parent) == ["recording.sqlite"]


@pytest.mark.parametrize("sheet", ["programs", "host", "figures", "gpus"])
def test_rows_of_a_minute_ahead_are_this_journals_and_later_ones_of_an_earlier_one(path: Path, sheet: str) -> None:
    recording = Recording(path, now_s=0.0)
    keys = {"programs": ("Pong", "a"), "host": (), "figures": ("Pong", "kl", "a"), "gpus": ("GPU-0", "")}[sheet]
    words = {"programs": WORDS, "host": ("light",), "figures": (), "gpus": (None,)}[sheet]
    recording.add({sheet: [Row(0.0, 0.0, keys, words, {}), Row(5_000.0, 0.0, keys, words, {})]})
    recording.close()
    Recording(path, now_s=4_940.0).close()
    with pytest.raises(NotUsable, match=re.escape(f"{path} has rows that are newer than this journal") + "$"):
        Recording(path, now_s=4_939.9)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"no database at all, but long enough to be one" * 100, "file is not a database"), (b"", "is not a recorder's file")],
)
def test_why_a_file_is_not_usable_and_that_nothing_is_left_open(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    for opened in (lambda: Recording(path, now_s=0.0), lambda: RecordingReader(path)):
        with nothing_stays_open(), pytest.raises(NotUsable) as caught:
            opened()
        assert str(caught.value) in (f"{path}: {why}", f"{path} {why}")
    assert path.read_bytes() == content


def test_a_damaged_file_says_where(path: Path) -> None:
    recording = Recording(path, now_s=0.0)
    recording.add({"programs": [row(10.0 * number, loss=1.0) for number in range(2_000)]})
    recording.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(NotUsable, match=f"^{re.escape(str(path))} is damaged: "):
        Recording(path, now_s=30_000.0)


def test_a_missing_file_is_said_by_its_name_and_readers_of_it_find_nothing(tmp_path: Path) -> None:
    none = tmp_path / "none.sqlite"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(str(none))}: nothing was recorded$"):
        RecordingReader(none)
    assert list(read(none, HOST, TEN_S, 0.0, 1e9, ())) == []
    assert os.listdir(tmp_path) == [], "nobody who asks makes one"


def test_a_file_is_read_whatever_its_directory_is_called(tmp_path: Path) -> None:
    path = tmp_path / "100% of? #1 & more" / "recording.sqlite"
    path.parent.mkdir()
    recording = Recording(path, now_s=0.0)
    recording.add({"programs": [row(10.0)]})
    assert [each.at_s for each in read(path, PROGRAMS, TEN_S, 0.0, 99.0, ())] == [10.0]
    recording.close()
    assert [each.at_s for each in read(path, PROGRAMS, TEN_S, 0.0, 99.0, ())] == [10.0]


def test_a_file_on_a_disk_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """SQLite cannot create the memory there that its readers and writers share."""
    code = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom supervisor.adapters.recorder.store import Recording, read\n"
        "from supervisor.model.recording import PROGRAMS, Row\nfrom supervisor.policy.upkeep.resolution import TIERS\n"
        "disk = Path(sys.argv[1])\nrecording = Recording(disk / 'a.sqlite', now_s=0.0)\n"
        "recording.add({'programs': [Row(10.0, 0.0, ('Pong', 'a'), (None,) * 3, {})]})\nrecording.close()\n"
        "subprocess.run(['mount', '-o', 'remount,ro', str(disk)], check=True)\n"
        "print([each.at_s for each in read(disk / 'a.sqlite', PROGRAMS, TIERS[0], 0.0, 99.0, ())])\n"
    )
    (disk := tmp_path / "disk").mkdir()
    done = subprocess.run(
        [*mounted("size=4m", disk), sys.executable, "-c", code, str(disk)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[10.0]\n", "")


def test_what_cannot_be_opened_is_an_error_of_the_disk_and_no_damage(path: Path) -> None:
    path.mkdir()
    with nothing_stays_open(), pytest.raises(IsADirectoryError, match="a directory, not a regular file"):
        RecordingReader(path)


# --- its side files ------------------------------------------------------------------------------------------------------


def test_the_side_files_of_a_removed_one_go_with_it(path: Path) -> None:
    for end in ("-wal", "-shm", "-other"):
        path.with_name(f"recording.sqlite{end}").touch()
    store.remove_leftovers(path)
    assert os.listdir(path.parent) == ["recording.sqlite-other"]
    store.remove_leftovers(path)


def test_a_file_is_set_aside_with_its_log_in_the_place_of_the_last_one(path: Path) -> None:
    for name, text in (
        ("recording.sqlite", "new"), ("recording.sqlite-wal", "its log"), ("recording.sqlite.old", "older"),
        ("recording.sqlite.old-wal", "older log"),
    ):  # fmt: skip
        path.with_name(name).write_text(text)
    assert store.set_aside(path) == path.with_name("recording.sqlite.old")
    left = {each.name: each.read_text() for each in path.parent.iterdir()}
    assert left == {"recording.sqlite.old": "new", "recording.sqlite.old-wal": "its log"}
    path.with_name("recording.sqlite-shm").write_text("memory")
    store.set_aside(path)
    assert path.with_name("recording.sqlite.old-shm").read_text() == "memory"
