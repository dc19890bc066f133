"""The daily report: each line of it as a whole, and every limit from both sides."""

import time

import pytest

from supervisor.api import night

WALL_S = 1_763_700_000.0  # 2025-11-21 04:40 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def row(name, **known):
    base = {"phase": "RUNNING", "trained_s": 7200.0, "kept_steps": 1_000_000.4, "lost_steps": 500}
    return {"name": name, **base, "first_return": -20.14, "last_return": 18.26, **known}


def level(name, kept, least=None, **known):
    return {"name": name, "in_force": False, "kept_steps": kept, "kept_steps_least": least, "why": "", **known}


def broke(what, *programs, why="no progress"):
    return {"what": what, "count": 3, "programs": [*programs], "newest_wall_s": WALL_S, "why": why}


HERE = level("medium", 1000.0, in_force=True)
NEXT = {"level": "medium", "days": 4.26, "usd": 61.2, "why": "", "line": "medium: no reboot in 40m"}
NOT_KNOWN = {"level": "light", "days": None, "usd": None, "why": "Pong: it has\nno target", "line": ""}


def found(**known):
    return {
        "since_wall_s": WALL_S - 43_000.0, "until_wall_s": WALL_S, "length_s": 43_000.0, "programs": [row("Pong")],
        "broke": [], "reboots": 2, "kept_steps": 41_000_000.4, "useful_share": 0.931, "usd": 7.2, "next": NEXT,
        "levels": [HERE], "needs": [], **known,
    }  # fmt: skip


def test_the_report_asks_for_the_last_day_and_is_one_text(monkeypatch):
    asked = []

    class Report:
        def of(self, *asked_for):
            asked.append(asked_for)
            return found()

    monkeypatch.setattr(night, "pages", lambda: {"report": Report()})
    assert night.daily_report("sources").split("\n") == [
        f"Nothing to do. {night.headline(found())}",
        "Pong: RUNNING, 1M steps kept, 500 lost, return -20.1 -> 18.3",
        "nothing broke",
        "next: all is done in 4d 6h for $61.20 at level medium; medium: no reboot in 40m",
    ]
    assert asked == [("sources", {"since": "86400s"})]


def test_a_bad_night_is_reported_up_to_the_limits_of_each_part():
    """Four programs, three causes with four names each, three needs; of a sentence 120 characters. The others are counted."""
    told = night.lines(
        found(
            programs=[row(f"p\x1b{number}", phase="DO\nNE") for number in range(5)],
            broke=[broke(f"s\n{number}", "a", "b", "c", "d\t", "e", why="\x07" + "y" * 200) for number in range(5)],
            needs=["\x07" + "x" * 116, "x" * 130, "c", "d"],
            levels=[HERE, level("he\navy", 2000.0, 1500.0), level("un\tknown", None, why="never measured")],
        )
    )
    expected = "1k are expected of the level in force"
    assert told[0] == f"Do: \\x07{'x' * 116}; {'x' * 120}; c; ... and 1 more"
    assert told[2:] == [
        *(f"p\\x1b{number}: DO NE, 1M steps kept, 500 lost, return -20.1 -> 18.3" for number in range(4)),
        "... and 1 more programs",
        *(f"broke: 3 x s {number} (a, b, c, d ): \\x07{'y' * 116}" for number in range(3)),
        "... and 2 more causes",
        "next: all is done in 4d 6h for $61.20 at level medium; medium: no reboot in 40m",
        f"levels: he avy would have kept 2k steps in this time (at least 1.5k); {expected}; never measured: un known",
    ]


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"lost_steps": 0}, "Pong: RUNNING, 1M steps kept, return -20.1 -> 18.3"),
        ({"lost_steps": None}, "Pong: RUNNING, 1M steps kept, return -20.1 -> 18.3"),
        ({"last_return": None, "lost_steps": 1}, "Pong: RUNNING, 1M steps kept, 1 lost"),
        ({"last_return": 0.0, "kept_steps": 17.0}, "Pong: RUNNING, 17 steps kept, 500 lost, return -20.1 -> 0.0"),
    ],
)
def test_of_a_program_only_what_is_known_is_reported(known, line):
    assert night.lines(found(programs=[row("Pong", **known)]))[1] == line
    assert night.returns(row("Pong", last_return=None)) == "-"


@pytest.mark.parametrize(
    ("known", "rest"),
    [
        ({"reboots": 0}, "1 of 1 trained, 41M steps kept (93.1% of paid time useful), no reboots, $7.20"),
        ({"reboots": 1}, "1 of 1 trained, 41M steps kept (93.1% of paid time useful), 1 reboot, $7.20"),
        ({"usd": None, "useful_share": None}, "1 of 1 trained, 41M steps kept, 2 reboots"),
        (
            {"usd": 0, "useful_share": 0.0, "kept_steps": 7},
            "1 of 1 trained, 7 steps kept (0% of paid time useful), 2 reboots, $0.00",
        ),
        (
            {"programs": [row("a", trained_s=0.5), row("b", trained_s=0.0), row("c", trained_s=None)]},
            "1 of 3 trained, 41M steps kept (93.1% of paid time useful), 2 reboots, $7.20",
        ),
    ],
)
def test_the_headline(known, rest):
    assert night.headline(found(**known)) == f"Since 16:43:20 (11h 56m): {rest}"


@pytest.mark.parametrize(
    ("coming", "line"),
    [
        (NEXT, "all is done in 4d 6h for $61.20 at level medium; medium: no reboot in 40m"),
        (NEXT | {"usd": None, "line": ""}, "all is done in 4d 6h at level medium"),
        (NEXT | {"days_more": 0.44, "level": "a\nb", "line": "c\nd"}, "all is done in 4d 6h +-10h 33m for $61.20 at level a b; c d"),
        (NEXT | {"days_more": None, "usd": 0}, "all is done in 4d 6h for $0.00 at level medium; medium: no reboot in 40m"),
        (NEXT | {"usd": None, "line": "", "but": {"Seaquest": "was given up", "Qbert": "it has none", "a\nb": "was given up"}},
         "all but Seaquest, Qbert, a b are done in 4d 6h at level medium; Seaquest was given up; Qbert: it has none; a b was given up"),
        (NOT_KNOWN, "when all is done is not known: Pong: it has no target"),
        (NOT_KNOWN | {"line": "light: on trial"}, "when all is done is not known: Pong: it has no target; light: on trial"),
    ],
)  # fmt: skip
def test_what_comes_next(coming, line):
    assert night.until_done(coming) == line


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ([], None),
        ([HERE, level("heavy", 1050.0)], None),
        (
            [HERE, level("heavy", 1051.0)],
            "heavy would have kept 1.05k steps in this time; 1k are expected of the level in force",
        ),
        (
            [level("light", 1500.0, 0.0), HERE, level("max", 3000.0), level("heavy", 2000.0, 10.0)],
            "max would have kept 3k steps in this time; 1k are expected of the level in force",
        ),
        (
            [level("light", 1500.0, 0.0), HERE],
            "light would have kept 1.5k steps in this time (at least 0); 1k are expected of the level in force",
        ),
        (
            [level("m", None, in_force=True), level("x", None), level("light", 1.0)],
            "light would have kept 1 steps in this time",
        ),
        ([level("m", 0.0, in_force=True), level("light", 0.0)], None),
        ([HERE, level("a", None, why="never measured"), level("b", None, why="never measured")], "never measured: a, b"),
        ([HERE, level("a", None, why="too few days")], None),
        ([level("medium", 9000.0, in_force=True), level("light", 9000.0)], None),
        ([level("medium", 10.0, in_force=True), level("light", 20.4, 15.6)],
         "light would have kept 20 steps in this time (at least 16); 10 are expected of the level in force"),
    ],
)  # fmt: skip
def test_what_another_level_would_have_kept(levels, told):
    assert night.other_levels(levels) == ([] if told is None else [f"levels: {told}"])
