"""The recorder on real files: what it holds after kills, damage and removal, its resolutions, its bound."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeClock
from leaks import nothing_stays_open
from structlog.testing import capture_logs
from tools import ROOT, mounted
from traces_kit import thread_begun_by

from supervisor.features.recorder.adapters import store
from supervisor.features.recorder.adapters.store import NotUsable, RecordedFiles, Recording
from supervisor.features.recorder.adapters.thread import Recorder
from supervisor.features.recorder.rules.recording import (
    FIGURES_OF_ITS_OWN,
    GPUS,
    HOST,
    PROGRAMS,
    Row,
    as_places,
    by_name,
    one_by_one,
    tracks_of,
)  # fmt: skip
from supervisor.features.recorder.rules.resolution import TIERS
from supervisor.policy.box.readings import Spread
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import pages

TEN_S, MINUTE, TEN_MIN, HOUR, SIX_HOURS, DAY = TIERS
WALL_S = 1_800_000_000.0
WORDS = ("RUNNING", "training", "light")


def row(at_s: float, program: str = "Pong", token: str = "a", **values: float | None) -> Row:
    return Row(at_s, WALL_S + at_s, (program, token), WORDS, values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.sqlite"


@pytest.fixture
def recording(path: Path) -> Iterator[Recording]:
    made = Recording(path, now_s=0.0)
    yield made
    made.close()


def held(path: Path) -> RecordedFiles:
    paths = SimpleNamespace(recording=path, run_dir=path.with_name)
    return RecordedFiles(paths)  # type: ignore[arg-type]


def track_of(path: Path, tier: store.Tier) -> Any:
    return tracks_of(PROGRAMS, rows(path, tier))["Pong",]


def rows(path: Path, tier: store.Tier = TEN_S, since_s: float = 0.0, until_s: float = 1e12, *names: str) -> list[Row]:
    return list(held(path).rows(PROGRAMS, tier, since_s, until_s, names))


def fill(recording: Recording, until_s: float, *programs: str, from_s: float = 0.0) -> None:
    """Many moments, in one commit."""
    moments = [from_s + place * TEN_S.period_s for place in range(int((until_s - from_s) / TEN_S.period_s))]
    told = [row(at_s, name, env_steps=10.0 * at_s, loss=at_s) for at_s in moments for name in programs or ("Pong",)]
    recording.add(
        {"programs": told, "host": [Row(at_s, WALL_S + at_s, (), ("light",), {"io_full": 0.5}) for at_s in moments]}
    )


# --- reading what was written --------------------------------------------------------------------------------------------


def test_readings_come_back_as_they_were(path: Path, recording: Recording) -> None:
    recording.add({"programs": [row(10.0, env_steps=5.0, loss=None), row(10.0, "Qbert", env_steps=7.0)]})
    pong, qbert = rows(path)
    assert (pong.at_s, pong.wall_s, pong.keys, pong.words) == (
        10.0, WALL_S + 10.0, ("Pong", "a"), ("RUNNING", "training", "light")
    )  # fmt: skip
    assert (pong.values["env_steps"], pong.values["loss"], pong.readings) == (5.0, None, 1)
    assert qbert.values["env_steps"] == 7.0
    assert [each.keys[0] for each in rows(path, TEN_S, 0.0, 99.0, "Qbert", "Nobody")] == ["Qbert"]
    assert rows(path, TEN_S, 10.1) == rows(path, TEN_S, 0.0, 10.0) == []


def test_figures_of_other_names_come_back_by_name_at_every_resolution(path: Path, recording: Recording) -> None:
    for at_s in range(0, 120, 10):
        own = {"kl": float(at_s)} | ({} if at_s < 60 else {"success_rate": 1.0})
        recording.add({"figures": [as_places(at_s, WALL_S + at_s, "Pong", "a", 7 * at_s, own)]})
    recording.fold(120.0)
    assert held(path).names() == {"kl", "kl\nsuccess_rate"}
    found = [(each.at_s, by_name(each)) for each in held(path).rows(FIGURES_OF_ITS_OWN, MINUTE, 0.0, 1e9, ("Pong",))]
    assert found == [(0.0, {"kl": 25.0}), (60.0, {"kl": 85.0, "success_rate": 1.0})]
    finest = list(one_by_one(held(path).rows(FIGURES_OF_ITS_OWN, TEN_S, 110.0, 1e9, ())))
    assert [(each.keys, each.values) for each in finest] == [
        (("Pong", "a", "kl"), {"env_steps": 770, "value": 110.0}), (("Pong", "a", "success_rate"), {"env_steps": 770, "value": 1.0}),
    ]  # fmt: skip


DAY_S = 86_400.0
AWAY_S = (20 * DAY_S + 1800.0, 20 * DAY_S + 9000.0)  # two hours without a box


class Weeks:
    """A program of a box that has recorded for `days`, ten minutes a reading; pages of its file."""

    def __init__(self, path: Path, days: int) -> None:
        self.path, self.now_s, self.lost = path, days * DAY_S, 0.0
        self.state, self.memory = SimpleNamespace(programs={"Pong": None}), SimpleNamespace(watches={})
        recording = Recording(path, now_s=self.now_s)
        store.fill(recording, PROGRAMS, TEN_MIN, self._readings())
        recording.fold(self.now_s)
        recording.close()

    def _readings(self) -> Iterator[Row]:
        """Every five hours an attempt dies and its last 20 minutes are lost; once a rollback takes back a day."""
        steps = resumed = 0.0
        attempt = 1
        for at_s in range(0, int(self.now_s), 600):
            if AWAY_S[0] <= at_s < AWAY_S[1]:
                continue
            if at_s and at_s % 18_000 == 0:
                back = 144_000.0 if at_s == 30 * 18_000 else 2_000.0
                self.lost += back
                attempt, resumed = attempt + 1, steps - back
                steps = resumed
            steps += 1000.0
            yield row(
                float(at_s), token=f"{attempt:03}", env_steps=steps, resumed_step=resumed, attempt=float(attempt),
                mean_return=steps / 1e5,
            )  # fmt: skip

    def curves(self, **asked: str) -> dict[str, Any]:
        (pong,) = (page := pages()["curves"].of(self, {"series": "mean_return", "points": "1000", **asked}))["subjects"]  # type: ignore[arg-type]
        return {**pong, "period_s": page["period_s"]}

    def closed(self) -> tuple[Ledger, float]:
        return Ledger(first_s=0.0, at_s=self.now_s), WALL_S + self.now_s

    def of(self, _: type) -> RecordedFiles:
        return held(self.path)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Weeks:
    return Weeks(tmp_path_factory.mktemp("weeks") / "recording.sqlite", 120)


def test_every_resolution_draws_as_lost_what_was_lost(weeks: Weeks) -> None:
    for tier in (TEN_MIN, HOUR, SIX_HOURS, DAY):
        track = track_of(weeks.path, tier)
        fates = track.fates()
        assert sum(fate.lost or 0.0 for fate in fates) == pytest.approx(weeks.lost, rel=0.02), tier
        assert None not in [fate.lost for fate in fates]
        lost = sum(fate.end is not None and not fate.kept for fate in fates) / len(fates)
        assert lost <= 1.3 * weeks.lost / (weeks.now_s / 600 * 1000.0) + 0.01, "a row of which a small part was lost is kept"
    whole = weeks.curves()
    assert whole["env_steps"] == sorted(whole["env_steps"]) or not all(whole["kept"])
    kept = [steps for steps, keep in zip(whole["env_steps"], whole["kept"], strict=True) if keep]
    assert kept == sorted(kept)


@pytest.mark.parametrize("window_d", [8, 13, 30, 41, 60, 89, 119])
def test_a_window_of_any_length_is_fine_enough_and_has_no_point_in_a_gap(weeks: Weeks, window_d: int) -> None:
    found = weeks.curves(since=f"{window_d * DAY_S}s", until=f"{DAY_S}s" if window_d == 119 else "now")
    finest = next(tier for tier in (TEN_MIN, HOUR, SIX_HOURS) if tier.keep_s >= window_d * DAY_S)
    assert 600 <= len(found["at_s"]) <= 1000 or found["period_s"] == finest.period_s
    assert not [at_s for at_s in found["at_s"] if AWAY_S[0] < at_s and at_s + found["period_s"] <= AWAY_S[1]]
    assert len(set(found["at_s"])) == len(found["at_s"]), "attempts that share a period share a point"


def test_rows_from_before_losses_were_kept_get_what_can_be_known(weeks: Weeks, tmp_path: Path) -> None:
    """An older file: without the columns, and with hours only of the newest 90 days."""
    path = tmp_path / "recording.sqlite"
    path.write_bytes(weeks.path.read_bytes())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for tier in TIERS:
            for name in ("first_attempt", "first_steps", "resumed_within", "lost_steps"):
                db.execute(f"ALTER TABLE programs_{tier.period_s:.0f} DROP COLUMN {name}")
        db.execute("DELETE FROM programs_3600 WHERE at_s < ?", (weeks.now_s - 90 * DAY_S,))
    with contextlib.closing(sqlite3.connect(path)) as db:
        before = {at_s for (at_s,) in db.execute("SELECT at_s FROM programs_21600")}
    recording = Recording(path, now_s=weeks.now_s)
    recording.fold(weeks.now_s)
    recording.close()
    for tier, unknown in ((HOUR, 0), (SIX_HOURS, 30 * 4), (DAY, 30)):
        track = track_of(path, tier)
        fates = track.fates()
        assert {*track.at_s} == before if tier is SIX_HOURS else track.at_s
        assert [fate.lost for fate in fates[: unknown - 1]].count(None) >= unknown * 0.9
        assert None not in [fate.lost for fate in fates[unknown:]]
        assert all(fate.kept for fate in fates[:unknown]), "unknown is not lost"


def test_the_attempts_of_a_long_period_share_a_row(path: Path, recording: Recording) -> None:
    """A box that reboots every 20 minutes would have 18 rows of each program in six hours."""
    for hour in range(7):
        recording.add({"programs": [row(3600.0 * hour, "Pong", f"t{hour}", env_steps=10.0 * hour, resumed_step=hour)]})
    recording.fold(7 * 3600.0)
    assert [each.keys[1] for each in rows(path, HOUR)] == [f"t{hour}" for hour in range(7)]
    six, rest = rows(path, SIX_HOURS)
    assert (six.keys, six.readings, six.values["env_steps"], six.values["resumed_step"]) == (("Pong", "t5"), 6, 50.0, 0.0)
    assert rest.keys == ("Pong", "t6")
    (day,) = rows(path, DAY)
    assert (day.keys, day.readings, day.values["env_steps"]) == (("Pong", "t6"), 7, 60.0), "not over: folded for its reader"


# --- resolutions ---------------------------------------------------------------------------------------------------------


def test_periods_that_are_over_are_folded_and_the_present_one_is_folded_for_its_reader(
    path: Path, recording: Recording
) -> None:
    fill(recording, 200.0)
    recording.fold(200.0)
    folded = rows(path, MINUTE)
    assert [each.at_s for each in folded] == [0.0, 60.0, 120.0, 180.0]
    assert [each.readings for each in folded] == [6, 6, 6, 2]
    assert folded[1].values["loss"] == Spread(60.0, 85.0, 110.0)
    assert folded[1].values["env_steps"] == 1100.0, "the newest of a total"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("SELECT count(*) FROM programs_60").fetchone() == (3,)
    (hour,) = rows(path, HOUR)
    assert (hour.at_s, hour.readings) == (0.0, 20)
    assert hour.values["loss"] == Spread(0.0, pytest.approx(95.0), 190.0)


def test_folding_goes_on_where_it_stopped_and_tells_nothing_twice(path: Path) -> None:
    for until_s in (130.0, 700.0, 4000.0):
        recording = Recording(path, now_s=until_s)
        newest = rows(path)
        fill(recording, until_s, from_s=newest[-1].at_s + 10.0 if newest else 0.0)
        recording.fold(until_s)
        recording.fold(until_s)
        recording.close()
    for tier, count in ((TEN_S, 400), (MINUTE, 67), (TEN_MIN, 7), (HOUR, 2)):
        found = rows(path, tier)
        assert len(found) == count
        assert sum(each.readings for each in found) == 400


def test_two_attempts_in_one_period_are_two_rows(path: Path, recording: Recording) -> None:
    recording.add({"programs": [row(0.0, token="a", loss=1.0)]})
    recording.add({"programs": [row(10.0, token="b", loss=3.0)]})
    recording.fold(60.0)
    assert [(each.keys[1], each.values["loss"]) for each in rows(path, MINUTE)] == [
        ("a", Spread(1.0, 1.0, 1.0)), ("b", Spread(3.0, 3.0, 3.0)),
    ]  # fmt: skip


# --- its bound -----------------------------------------------------------------------------------------------------------


def test_what_is_older_than_its_tier_is_kept_is_forgotten(path: Path, recording: Recording) -> None:
    fill(recording, 600.0)
    recording.fold(600.0)
    recording.forget(TEN_S.keep_s + 300.0, 1 << 30)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("SELECT min(at_s), count(*) FROM programs_10").fetchone() == (300.0, 30)
        assert db.execute("SELECT count(*) FROM programs_60").fetchone() == (10,)
        assert db.execute("SELECT count(*) FROM host_10").fetchone() == (30,)


def test_a_file_that_is_too_large_becomes_smaller_and_keeps_the_newest(path: Path, recording: Recording) -> None:
    now_s = TEN_S.keep_s / 2
    fill(recording, now_s, *"ABCDE")
    recording.fold(now_s)
    large = recording.size_bytes
    for _ in range(9):  # once a minute; the first time cuts by the size as a whole, empty tables included
        recording.forget(now_s, large // 2)
    assert recording.size_bytes <= large // 2
    recording.close()  # the log goes into the file
    assert path.stat().st_size <= large // 2
    for tier in (TEN_S, MINUTE):
        found = rows(path, tier)
        assert found[-1].at_s == pytest.approx(now_s, abs=tier.period_s)
        assert 0.4 * now_s < found[0].at_s < 0.9 * now_s


# --- harm ----------------------------------------------------------------------------------------------------------------


def test_what_was_added_is_there_after_a_kill(path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom supervisor.features.recorder.adapters.store import Recording\n"
        "from supervisor.features.recorder.rules.recording import Row\n"
        "recording = Recording(Path(sys.argv[1]), now_s=0.0)\n"
        "for at in range(10, 1000000, 10):\n"
        "    recording.add({'programs': [Row(float(at), 0.0, ('Pong', 'a'), (None,) * 3, {'env_steps': float(at)})]})\n"
        "    print(at, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(20)]
    child.send_signal(signal.SIGKILL)
    told += [int(line) for line in child.stdout.read().split()]
    child.stdout.close()
    child.wait()
    assert [each.at_s for each in rows(path)][: len(told)] == told
    Recording(path, now_s=1e6).close()


def test_a_log_that_a_power_cut_has_torn_costs_its_newest_moments_alone(path: Path, tmp_path: Path) -> None:
    """Whatever is left of the log that was not synced: nothing, some bytes, or pages of zeros."""
    recording = Recording(path, now_s=0.0)
    for moment in range(1, 6):
        recording.add({"programs": [row(10.0 * moment, name, loss=1.0) for name in ("Pong", "Qbert")]})
    whole, log = path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()
    recording.close()
    seen = set()
    for number, cut in enumerate([*range(0, len(log), len(log) // 40), len(log)]):
        for left in (log[:cut], log[:cut] + bytes(len(log) - cut)):
            torn = tmp_path / f"torn{number}-{len(left)}.sqlite"
            torn.write_bytes(whole)
            torn.with_name(f"{torn.name}-wal").write_bytes(left)
            after = Recording(torn, now_s=60.0)
            found = [(each.at_s, each.keys[0]) for each in rows(torn)]
            after.add({"programs": [row(60.0)]})
            assert rows(torn)[-1].at_s == 60.0
            after.close()
            assert found == [(10.0 * at, name) for at in range(1, len(found) // 2 + 1) for name in ("Pong", "Qbert")]
            seen.add(len(found))
    assert {0, 10} <= seen
    assert len(seen) == 6, "each moment is whole or not there"


def test_a_reader_never_finds_half_a_file(path: Path) -> None:
    """It asks as fast as it can while files are begun anew: there is none, or there is one with its tables."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom types import SimpleNamespace\n"
        "from supervisor.features.recorder.rules.recording import PROGRAMS\n"
        "from supervisor.features.recorder.rules.resolution import TIERS\n"
        "from supervisor.features.recorder.adapters.store import RecordedFiles\n"
        "files = RecordedFiles(SimpleNamespace(recording=sys.argv[1]))\n"
        "print('ready', flush=True)\nfound = 0\n"
        "while not Path(sys.argv[1] + '.over').exists():\n"
        "    found += len(list(files.rows(PROGRAMS, TIERS[0], 0.0, 9e9, ())))\n"
        "    if found: Path(sys.argv[1] + '.found').touch()\n"
        "print(found)\n"
    )
    reader = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(reader, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        made = 0
        # A busy machine may leave the reader behind: it goes on until that one has found a file, or has ended.
        while made < 12 or (child.poll() is None and not Path(f"{path}.found").exists()):
            made += 1
            recording = Recording(path, now_s=0.0)
            recording.add({"programs": [row(10.0)]})
            recording.close()
            path.unlink()
        Path(f"{path}.over").touch()
        found, error = child.communicate()
    assert child.returncode == 0, error
    assert int(found) > 0


def test_labels_that_no_row_needs_any_more_are_forgotten(path: Path, recording: Recording) -> None:
    def labels() -> set[str]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return {text for (text,) in db.execute("SELECT text FROM label")}

    for number in range(3):
        recording.add({"programs": [row(10.0 * number, token=f"t{number}", env_steps=1.0)], "gpus": [
            Row(10.0 * number, WALL_S, ("GPU-0", ""), (None,), {"power_w": 1.0})
        ]})  # fmt: skip
    assert {"t0", "t1", "t2", "Pong", "GPU-0"} <= labels()
    recording.forget(TEN_S.keep_s + 15.0, 1 << 30)
    assert {"t2", "Pong", "GPU-0", ""} <= labels()
    assert not {"t0", "t1"} & labels()
    recording.add({"programs": [row(TEN_S.keep_s, token="t0", env_steps=1.0)]})
    assert [each.keys for each in rows(path)] == [("Pong", "t2"), ("Pong", "t0")], "and made again"


# --- the thread ----------------------------------------------------------------------------------------------------------


class Box:
    """A recorder whose period is a call of `record`."""

    def __init__(self, path: Path) -> None:
        self.clock, self.most_mb, self.path = FakeClock(), 64, path
        self.recorder = Recorder(path, self.take, lambda: self.most_mb, self.clock)

    def take(self) -> dict[str, list[Row]]:
        return {"programs": [row(self.clock.now_s(), env_steps=self.clock.now_s())]}

    def record(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(10.0)
            self.recorder.record()

    @property
    def count(self) -> int:
        return len(rows(self.path))


@pytest.fixture
def box(path: Path) -> Iterator[Box]:
    made = Box(path)
    yield made
    made.recorder._close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_is_made_again(box: Box, how: str) -> None:
    box.record(3)
    if how == "removed":
        for end in ("", "-wal", "-shm"):
            box.path.with_name(box.path.name + end).unlink()
    else:
        other = box.path.with_name("other.sqlite")
        Recording(other, now_s=0.0).close()
        other.rename(box.path)
    with capture_logs() as logged:
        box.record(2)
    assert logged == [{"event": "recording_removed", "path": str(box.path), "log_level": "warning"}]
    assert box.count == 2


def test_a_damaged_file_is_set_aside_and_the_next_period_is_recorded(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.path.write_bytes(b"junk" * 5000)

    def refused(_path: Path) -> Path:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch, capture_logs() as logged:
        patch.setattr("supervisor.features.recorder.adapters.thread.set_aside", refused)
        box.record()
    assert [each["event"] for each in logged] == ["recording_not_set_aside"]
    with capture_logs() as logged:
        box.record(2)
    why, kept_as = f"{box.path}: file is not a database", str(box.path.with_name("recording.sqlite.old"))
    assert [(each["event"], each["why"], each["kept_as"]) for each in logged] == [("recording_set_aside", why, kept_as)]
    assert box.count == 1
    assert box.path.with_name("recording.sqlite.old").read_bytes() == b"junk" * 5000


def test_nothing_is_made_in_the_place_of_another_state_directory(box: Box) -> None:
    box.record()
    away = box.path.parent.with_name("away")
    box.path.parent.rename(away)
    with capture_logs() as logged:
        box.record()
        box.path.parent.mkdir()
        box.record()
    assert logged == []
    assert not box.path.exists()
    box.path.parent.rmdir()
    away.rename(box.path.parent)
    box.record()
    assert box.count == 2


def test_what_cannot_be_written_is_reported_once_and_tried_again(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object, **_more: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(sqlite3, "connect", refused)
        box.record(3)
    ((event, level, error),) = [(each["event"], each["log_level"], each["error"]) for each in logs]
    assert (event, level) == ("nothing_recorded", "error")
    assert error.startswith(str(box.path))
    box.record(2)
    assert box.count == 2


def test_a_directory_in_its_place_is_put_aside(box: Box) -> None:
    box.path.mkdir()
    box.record(2)
    assert box.count == 2
    assert box.path.with_name(f"{box.path.name}.found").is_dir()


def test_trouble_is_over_when_ten_minutes_had_none(box: Box) -> None:
    """On a full disk one write in twenty succeeds: what comes between is the same trouble."""
    good, told = box.recorder._take, []

    def fails_after(calm_s: float) -> None:
        box.clock.advance(calm_s - 20.0)
        box.record()
        box.recorder._take = lambda: 1 / 0  # type: ignore[assignment, return-value]
        with capture_logs() as logs:
            box.record()
        box.recorder._take = good
        told.append([each["event"] for each in logs])

    for calm_s in (50.0, 600.0, 600.0, 600.5):
        fails_after(calm_s)
    assert told == [["nothing_recorded"], [], [], ["nothing_recorded"]]


def test_a_daemon_that_starts_again_goes_on_in_the_same_file(box: Box) -> None:
    box.record(2)
    box.recorder._close()
    again = Box(box.path)
    again.clock.at_s = box.clock.at_s
    again.record(2)
    again.recorder._close()
    assert again.count == 4
    anew = Box(box.path)  # its journal has begun again
    anew.clock.at_s = 0.0
    with capture_logs() as logs:
        anew.record(2)
    anew.recorder._close()
    assert [each["why"] for each in logs] == [f"{box.path} has rows that are newer than this journal"]
    assert [each.at_s for each in rows(box.path)] == [20.0]


def test_a_file_is_kept_within_the_size_that_is_set(box: Box) -> None:
    box.most_mb = 0
    box.record()
    assert not box.path.exists()
    box.most_mb, box.clock.at_s = 1, 20_000.0
    told = [row(float(at_s), loss=1.0) for at_s in range(20_001)]
    box.recorder._take = lambda: {"programs": told}
    box.record()
    kept = [each.at_s for each in rows(box.path)]
    assert kept == [float(at_s) for at_s in range(20_001)][-len(kept) :]
    assert 5_000 < len(kept) < 20_000, "the smallest size that can be set keeps something"


def test_a_disk_that_is_full_is_reported_once_and_nothing_of_what_was_there_is_lost(tmp_path: Path) -> None:
    """A real file system of 1 MiB that something else fills."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom structlog.testing import capture_logs\nfrom test_recorder import Box\n"
        "box, ballast = Box(Path(sys.argv[1]) / 'recording.sqlite'), Path(sys.argv[1]) / 'ballast'\n"
        "box.record(3)\n"
        "with capture_logs() as logs:\n"
        "    try:\n"
        "        ballast.write_bytes(bytes(2 << 20))\n"
        "    except OSError as error:\n"
        "        assert error.errno == 28, error\n"
        "    box.record(400)\n"
        "assert [each['event'] for each in logs] == ['nothing_recorded'], logs\n"
        "kept = [each.at_s for each in __import__('test_recorder').rows(box.path)]\n"
        "assert kept[:3] == [1010.0, 1020.0, 1030.0] and len(kept) < 403, kept\n"
        "ballast.unlink()\n"
        "box.record(2)\n"
        "assert [each.at_s for each in __import__('test_recorder').rows(box.path)] == [*kept, 5040.0, 5050.0]\n"
        "assert not list(box.path.parent.glob('*.old*')), 'a full disk is no damage'\n"
    )
    (disk := tmp_path / "disk").mkdir()
    found = os.pathsep.join([str(ROOT), *(str(ROOT / "tests" / each) for each in ("", "adapters"))])
    done = subprocess.run(
        [*mounted("size=1m", disk), sys.executable, "-c", code, str(disk)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": found}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_its_thread_has_a_name_and_leaves_nothing_open(path: Path) -> None:
    with nothing_stays_open():
        box = Box(path)
        found = thread_begun_by(box.recorder.start, "recorder")
        assert found.daemon
        box.recorder.stop()
        found.join(60)
        assert box.count == 1


# --- the file from outside -------------------------------------------------------------------------------------------------


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def test_a_new_file_is_a_recorders_syncs_each_moment_and_gives_freed_pages_back(path: Path, recording: Recording) -> None:
    found = [query(path, f"PRAGMA {name}")[0][0] for name in ("auto_vacuum", "journal_mode")]
    assert found == [2, "wal"], "2: incremental, without which a bound on the file is none"
    assert recording._db.execute("PRAGMA synchronous").fetchone() == (2,), "a power cut costs nothing that was added"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_tables_of_a_sheet(path: Path, recording: Recording) -> None:
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


def test_more_subjects_than_one_query_asks_for_are_all_known(path: Path, recording: Recording) -> None:
    told = [row(float(number), token=f"t{number}") for number in range(1_101)]
    recording.add({"programs": told})
    for subjects in ((), ("Pong",)):
        found = list(held(path).rows(PROGRAMS, TEN_S, 0.0, 1e9, subjects))
        assert [each.keys for each in found] == [each.keys for each in told]
        assert {each.words for each in found} == {WORDS}


def test_a_subject_that_is_deleted_while_somebody_reads_is_a_question_mark(path: Path, recording: Recording) -> None:
    gpus, figures = Row(10.0, 0.0, ("GPU-0", ""), (None,), {}), Row(10.0, 0.0, ("Pong", "kl", "a"), (), {})
    recording.add({"programs": [row(10.0)], "gpus": [gpus], "figures": [figures]})
    recording.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for sheet in ("programs", "gpus", "figures"):
            db.execute(f"DELETE FROM {sheet}_subject")
    found = [(each.keys, each.words) for sheet in (PROGRAMS, GPUS, FIGURES_OF_ITS_OWN)
             for each in held(path).rows(sheet, TEN_S, 0.0, 99.0, ())]  # fmt: skip
    assert found == [(("?", "?"), ("?", "?", "?")), (("?", "?"), ("?",)), (("?", "?", "?"), ())]


# --- opening it ----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_never_finished_is_made_anew(path: Path) -> None:
    left = path.with_name("recording.sqlite.new")
    left.write_bytes(b"killed while it was made")
    Recording(path, now_s=0.0).close()
    assert os.listdir(path.parent) == ["recording.sqlite"]


def test_rows_of_a_minute_ahead_are_this_journals_and_later_ones_of_an_earlier_one(path: Path) -> None:
    recording = Recording(path, now_s=0.0)
    recording.add({"host": [Row(at_s, 0.0, (), ("light",), {}) for at_s in (0.0, 5_000.0)]})
    recording.close()
    Recording(path, now_s=4_940.0).close()
    with pytest.raises(NotUsable, match=re.escape(f"{path} has rows that are newer than this journal") + "$"):
        Recording(path, now_s=4_939.9)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no database at all, but long enough to be one" * 100, ": file is not a database"),
        (b"", " is not a recorder's file"),
        ("CREATE TABLE theirs (x)", " is not a recorder's file"),
        ("PRAGMA user_version = 99", " was written by another extralife (format 99, known is 2)"),
    ],
)
def test_why_a_file_is_not_usable_and_that_nothing_is_left_open(path: Path, content: bytes | str, why: str) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        if "99" in content:
            Recording(path, now_s=0.0).close()
        query(path, content)
    before = path.read_bytes()
    reads = [] if "format 99" in why else [held(path).names]
    for opened in (lambda: Recording(path, now_s=0.0), *reads):
        with nothing_stays_open(), pytest.raises(NotUsable) as caught:
            opened()
        assert str(caught.value) == f"{path}{why}"
    assert path.read_bytes() == before


def test_a_damaged_file_says_where(path: Path) -> None:
    recording = Recording(path, now_s=0.0)
    recording.add({"programs": [row(10.0 * number, loss=1.0) for number in range(2_000)]})
    recording.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(NotUsable, match=f"^{re.escape(str(path))} is damaged: "):
        Recording(path, now_s=30_000.0)


def test_readers_of_a_missing_file_find_nothing(tmp_path: Path) -> None:
    none = held(tmp_path / "none.sqlite")
    assert list(none.rows(HOST, TEN_S, 0.0, 1e9, ())) == none.held(HOST, 0.0, 1e9, (), 1) == []
    assert none.names() == set()
    assert os.listdir(tmp_path) == [], "nobody who asks makes one"


def test_a_file_is_read_whatever_its_directory_is_called(tmp_path: Path) -> None:
    path = tmp_path / "100% of? #1 & more" / "recording.sqlite"
    path.parent.mkdir()
    recording = Recording(path, now_s=0.0)
    recording.add({"programs": [row(10.0)]})
    assert [each.at_s for each in held(path).rows(PROGRAMS, TEN_S, 0.0, 99.0, ())] == [10.0]
    recording.close()
    assert [each.at_s for each in held(path).rows(PROGRAMS, TEN_S, 0.0, 99.0, ())] == [10.0]


def test_a_file_on_a_disk_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """SQLite cannot create the memory there that its readers and writers share."""
    code = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom types import SimpleNamespace\n"
        "from supervisor.features.recorder.adapters.store import RecordedFiles, Recording\n"
        "from supervisor.features.recorder.rules.recording import PROGRAMS, Row\n"
        "from supervisor.features.recorder.rules.resolution import TIERS\n"
        "disk = Path(sys.argv[1])\nrecording = Recording(disk / 'a.sqlite', now_s=0.0)\n"
        "recording.add({'programs': [Row(10.0, 0.0, ('Pong', 'a'), (None,) * 3, {})]})\nrecording.close()\n"
        "subprocess.run(['mount', '-o', 'remount,ro', str(disk)], check=True)\n"
        "files = RecordedFiles(SimpleNamespace(recording=disk / 'a.sqlite'))\n"
        "print([each.at_s for each in files.rows(PROGRAMS, TIERS[0], 0.0, 99.0, ())])\n"
    )
    (disk := tmp_path / "disk").mkdir()
    done = subprocess.run(
        [*mounted("size=4m", disk), sys.executable, "-c", code, str(disk)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[10.0]\n", "")


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
