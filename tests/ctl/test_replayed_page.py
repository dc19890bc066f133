"""`simulate --journal`: what a journal tells of each level, boxes drawn from it, and journals that are refused."""

import json
import sqlite3

import pytest
from running import ctl

from supervisor.adapters.journal.archive import compact
from supervisor.adapters.journal.sqlite import Journal
from supervisor.ctl.past import NoPast, past_of, rows_of
from supervisor.ctl.replayed import page
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.snapshot import encoded
from supervisor.model.state import Climb, State
from supervisor.policy.level import load
from supervisor.policy.level.load import LoadSettings
from supervisor.simulation.compare import ORACLE, OURS, replay
from supervisor.simulation.past import Past, Record, drawn_from, world

NAMES = ("light", "medium", "heavy")
LAID = facts.LadderLaid("a ladder of 3", NAMES, ("1", "2", "3"), encoded(load.begin(3)))
H = 3600.0


def chosen(level, before="", *, trial=False):
    return facts.LevelChosen("", level, 1, trial, before, "the rule")


def reboot(down_s=200.0):
    return facts.HostRebooted("", "a", "b", "unclean", "", down_s, None, "heavy", (), {})


def story(deaths=5, light=180):
    """30 h at light (six reviews an hour), 5 h at medium, and a heavy that dies after 17 minutes, so many times. (seconds, fact)"""
    at_s, told = (
        100.0,
        [(0.0, facts.IntervalChosen("", "Pong", 240.0)), (50.0, reboot()), (100.0, LAID), (100.0, chosen("light"))],
    )

    def ran(level, reviews, reading):
        nonlocal at_s
        for _ in range(reviews):
            at_s += 600.0
            told.append((at_s, facts.Reviewed("", level, 600.0, reading, "{}")))

    ran("light", light, 1000.0)
    told.append((at_s, chosen("medium", "light", trial=True)))
    told.append((at_s, chosen("medium", "medium")))
    ran("medium", 30, 1500.0)
    for _ in range(deaths):
        told.append((at_s, chosen("heavy", "medium", trial=True)))
        ran("heavy", 1, 1900.0)
        at_s += 620.0
        told += [(at_s, reboot(180.0)), (at_s, facts.RebootJudged("", "heavy", 1.0, 420.0, "{}"))]
        told += [(at_s, chosen("medium", "heavy")), (at_s + 20.0, facts.LevelSettled("", "medium", 20.0, 30.0))]
        ran("medium", 6, 1500.0)
    told.append((at_s, facts.RebootJudged("it was meant", "medium", 0.0, 0.0, "{}")))
    return told


def stamped(told):
    return [Stamped(seq, at_s, at_s, "boot", fact) for seq, (at_s, fact) in enumerate(told, 1)]


def written(path, told):
    journal = Journal(path)
    for at_s, fact in told:
        journal.append([fact], at_s=at_s, wall_s=1e9 + at_s, boot_id="boot")
    journal.close()
    return path


# --- what the facts tell -------------------------------------------------------------------------------------------------


def test_what_the_journal_tells_of_each_level():
    past = past_of(stamped(story()))
    light, medium, heavy = past.records
    assert (light.up_s, light.reboots) == (30 * H, 0.0)
    assert (medium.up_s, medium.reboots) == (10 * H, 0.0)
    assert (heavy.reboots, heavy.died_s) == (5.0, (1020.0,) * 5)
    assert heavy.wear_s == 1020.0
    assert past.path[:3] == ((0.0, 0), (30 * H, 1), (35 * H, 2))
    assert len(past.deaths) == 5
    assert {level for _, level in past.deaths} == {2}
    assert past.meant == 1
    assert past.unit == 0
    assert (past.costs.downtime_s, past.costs.interval_s, past.costs.change_s) == (180.0, 240.0, 30.0)
    at = world(past)
    assert (at.review_s, at.interval_s, at.change_s, at.downtime_s) == (600.0, 240.0, 30.0, (180.0, 200.0))
    assert at.unrelated_h == pytest.approx(sum(record.up_s for record in past.records) / H)


def test_reboots_that_come_at_any_time_are_no_wear():
    assert Record(H, 4.0, (100.0, 2000.0, 700.0, 60.0)).wear_s is None
    assert Record(H, 2.0, (1000.0, 1010.0)).wear_s is None


def test_a_reboot_just_after_a_step_down_is_on_the_record_of_the_level_that_was_left():
    told = [
        (0.0, LAID),
        (0.0, chosen("heavy")),
        (600.0, facts.Reviewed("", "heavy", 600.0, None, "")),
        (700.0, chosen("medium", "heavy")),
    ]
    told += [(720.0, facts.RebootJudged("", "heavy", 1.0, 20.0, ""))]
    _, medium, heavy = past_of(stamped(told)).records
    assert (medium.up_s, medium.reboots) == (20.0, 0.0)
    assert (heavy.up_s, heavy.reboots, heavy.died_s) == (600.0, 1.0, ())


def test_a_ladder_laid_anew_begins_another_past_with_what_was_remembered():
    known = load.learned(load.begin(2, 1), at_s=H, up_s=2 * H, reading=7.0)
    again = facts.LadderLaid("", ("medium", "huge"), ("2", "4"), encoded(known))
    told = [*story(), (200 * H, again), (201 * H, facts.Reviewed("", "medium", 600.0, None, ""))]
    past = past_of(stamped(told))
    assert past.names == ("medium", "huge")
    assert [record.up_s for record in past.records] == [600.0, 2 * H]
    assert past.path == ((0.0, 0),), "it was at medium"
    assert past.for_s == H
    assert past.unit == 1


def test_a_journal_that_begins_with_a_snapshot_goes_on_from_it():
    known = load.learned(load.begin(3, 1), at_s=H, up_s=2 * H, reading=7.0)
    state = State(level="medium", climb=Climb(load=encoded(known), ladder=tuple((name, "") for name in NAMES)))
    told = [(0.0, facts.Snapshot("", encoded(State()))), (0.0, facts.Snapshot("", encoded(state)))]
    past = past_of(stamped([*told, (600.0, facts.Reviewed("", "medium", 600.0, 7.0, ""))]))
    assert past.records[1].up_s == 2 * H + 600.0
    assert past.speeds.readings == (0, 2, 0)
    assert past.ran_s == (0.0, 600.0, 0.0)


def test_what_an_older_version_remembered_is_not_needed():
    laid = facts.LadderLaid("", NAMES, ("1", "2", "3"), '{"of": "another version"}')
    past = past_of(stamped([(0.0, laid), (1.0, chosen("light")), (600.0, facts.Reviewed("", "light", 600.0, 1.0, ""))]))
    assert past.records[0].up_s == 600.0


def test_a_past_without_training_is_none():
    with pytest.raises(NoPast, match="nothing was trained since its ladder"):
        past_of(stamped([(0.0, LAID), (0.0, chosen("light"))]))
    with pytest.raises(NoPast, match="it has no trials of levels"):
        past_of(stamped([(0.0, chosen("light"))]))


# --- boxes drawn from it -------------------------------------------------------------------------------------------------


def test_boxes_drawn_are_as_sure_as_the_journal_is():
    past = past_of(stamped(story()))
    boxes = [drawn_from(past, seed) for seed in range(200)]
    heavy = [box.regimes[0].wear_min[2] for box in boxes]
    assert all(abs(minutes - 17.0) < 0.01 for minutes in heavy)
    assert 0.5 < sum(box.regimes[0].mtbf_h[0] > 24.0 for box in boxes) / 200 <= 1.0, "30 quiet hours"
    assert all(box.speeds[0] == 1.0 for box in boxes)
    medium = sorted(box.speeds[1] for box in boxes)
    assert medium[20] < 1.5 < medium[180]
    assert medium[180] / medium[20] < 1.4


def test_a_level_that_never_ran_is_drawn_and_never_safer_than_the_one_below():
    past = past_of(stamped(story(deaths=0)))
    boxes = [drawn_from(past, seed).regimes[0] for seed in range(200)]
    assert all(box.mtbf_h[2] <= box.mtbf_h[1] for box in boxes)
    worn = Past(**{**{name: getattr(past, name) for name in Past.__slots__}, "records": (*past.records[:1], Record(H, 3.0, (60.0,) * 3), Record())})  # fmt: skip
    assert all(regime.wear_min[1:] == (1.0, 1.0) for regime in (drawn_from(worn, seed).regimes[0] for seed in range(9)))


def test_the_policy_beside_what_was_and_what_could_be():
    past = past_of(stamped(story()))
    found = replay(past, LoadSettings(names=NAMES), days=None, seed=1, draws=2, start=None)
    ways = {way.name: way for way in found.ways}
    assert list(ways) == ["as it was", OURS, ORACLE, "always light", "always medium", "always heavy"]
    assert ways[ORACLE].share == ways[ORACLE].least == 1.0
    assert ways["as it was"].share < ways[OURS].share
    assert ways["as it was"].reboots == 5.0
    assert found.would_path[0] == (0.0, 0)
    told = "\n".join(page(found))
    assert "after 17 min each time: it wears out" in told
    assert "light      30.0 h        0               1  not yet (MTBF >= 13.0 h at 90 %)" in told
    assert "as it was:\n" in told


def test_what_nobody_knows_is_said_to_be_a_guess():
    past = past_of(stamped(story(deaths=0)))
    told = page(replay(past, LoadSettings(names=NAMES), days=1, seed=1, draws=1, start=1))
    assert any(line.startswith("heavy ") and line.split() == ["heavy", "0", "s", "0", "unknown", "unknown"] for line in told)
    assert "heavy never ran: all figures below guess its speed and reboots from usual boxes" in told
    assert not any(line.startswith("as it was") for line in told), "another time than the journal's"


def test_a_time_in_which_even_the_oracle_makes_nothing_has_no_shares():
    told = [(0.0, facts.LadderLaid("", ("light",), ("1",), "")), (0.0, chosen("light"))]
    told += [(250.0 * number, facts.RebootJudged("", "light", 1.0, 250.0, "")) for number in range(1, 9)]
    found = replay(past_of(stamped(told)), LoadSettings(names=("light",)), days=None, seed=1, draws=2, start=None)
    assert found.ways[0].share is None
    assert any(line.startswith("as it was") and " - " in line for line in page(found))


# --- the command ---------------------------------------------------------------------------------------------------------


def test_the_page_and_json_of_a_journal_which_is_only_read(tmp_path):
    path = written(tmp_path / "journal.sqlite", story(light=6))
    before = path.read_bytes(), path.stat().st_mtime_ns
    told = ctl("simulate", "--journal", str(tmp_path), "--why").stdout
    assert "boxes drawn from the journal" in told
    assert "it wears out" in told
    assert "trying medium: expected" in told
    found = json.loads(ctl("simulate", "--journal", str(path), "--days", "1", "--start", "medium", "--json").stdout)
    assert found["days"] == 1
    assert found["would_path"][0] == [0.0, 1]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_the_archive_beside_it_is_read_too(tmp_path):
    told = story(light=6)
    cut = facts.Snapshot("", encoded(State(level="medium")))
    path = written(tmp_path / "journal.sqlite", [*told[:30], (told[29][0], cut), *told[30:]])
    whole = past_of(rows_of(path))
    assert compact(path, before_wall_s=2e9, most_bytes=10**9, pause=lambda _: False) is not None
    assert past_of(rows_of(path)) == whole
    assert whole.records[0].up_s == H
    (archive,) = (tmp_path / "journal-archive").iterdir()
    archive.write_bytes(b"no gzip at all")
    done = ctl("simulate", "--journal", str(path))
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)


def test_a_picture_of_both(tmp_path):
    pytest.importorskip("matplotlib")
    path, out = written(tmp_path / "journal.sqlite", story(deaths=1, light=6)), tmp_path / "both.svg"
    done = ctl("simulate", "--journal", str(path), "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as it was" in out.read_text()


def _schema_99(path):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("UPDATE about SET value = 99 WHERE name = 'schema'")
    db.close()


def _flipped(path):
    data = bytearray(path.read_bytes())
    at = data.index(b"LadderLaid")
    data[at + 40] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_schema_99, "the journal has schema 99, this extralife knows 2: start the newer extralife again"),
        (_flipped, "the journal is damaged"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"not a journal" * 100), "not a database"),
        (lambda path: path.unlink(), "there is no journal"),
    ],
)
def test_a_journal_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, spoil, says):
    path = written(tmp_path / "journal.sqlite", story(deaths=0, light=6))
    spoil(path)
    before = path.read_bytes() if path.exists() else None
    done = ctl("simulate", "--journal", str(path))
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (1, 1, "")
    assert says in done.stdout
    assert str(path) in done.stdout
    assert before is None or path.read_bytes() == before


def test_other_refusals(tmp_path):
    path = written(tmp_path / "journal.sqlite", [(0.0, chosen("light"))])
    done = ctl("simulate", "--journal", str(path))
    assert done.stdout == f'Error: {path}: it has no trials of levels ([load] mode = "climb" makes them)\n'
    assert "takes --host or --journal, not both" in ctl("simulate", "--journal", str(path), "--host", "seed").stdout
    good = written(tmp_path / "good.sqlite", story(deaths=0, light=6))
    assert "--start takes one of light, medium, heavy" in ctl("simulate", "--journal", str(good), "--start", "x").stdout
    long = written(
        tmp_path / "long.sqlite", [*story(deaths=0, light=6), (400 * 24 * H, facts.Reviewed("", "light", 1.0, None, ""))]
    )
    assert "covers 400 days; choose at most 366" in ctl("simulate", "--journal", str(long)).stdout
