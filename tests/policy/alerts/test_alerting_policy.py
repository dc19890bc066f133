"""Which alerts go out, when, and what is told as one: tables, and a bucket that no sequence of alerts gets around."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.alerts import rules as alerting
from supervisor.features.alerts.rules import KINDS, MOST_OWED, Gone, Notice
from supervisor.features.alerts.settings import AlertSettings, target_name

HOUR = 3600.0
DOCS = Path(__file__).parents[3] / "docs/alerts.md"
RULES = AlertSettings()


def test_each_kind_has_a_message_id_of_its_own():
    ids = [kind.message_id for kind in KINDS.values()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


@pytest.mark.parametrize(
    ("rules", "kind", "severity", "goes"),
    [
        (AlertSettings(), "finished", "info", True),
        (AlertSettings(min_severity="warning"), "finished", "info", False),
        (AlertSettings(min_severity="warning"), "quarantine", "warning", True),
        (AlertSettings(min_severity="critical"), "quarantine", "warning", False),
        (AlertSettings(kinds=("reboot",)), "reboot", "info", True),
        (AlertSettings(kinds=("reboot",)), "fatal", "critical", False),
    ],
)
def test_what_is_wanted(rules, kind, severity, goes):
    assert alerting.wanted(rules, kind, severity) is goes


def test_the_bucket_is_full_at_first_and_refills_by_one_each_five_minutes():
    assert alerting.tokens(RULES, Gone(), 0.0) == 12.0
    empty = Gone(0.0, 7200.0)
    assert alerting.tokens(RULES, empty, 7200.0) == 0.0
    assert alerting.tokens(RULES, empty, 7500.0) == pytest.approx(1.0)
    assert alerting.tokens(RULES, empty, 7200.0 + HOUR) == 12.0
    assert alerting.tokens(RULES, empty, 7200.0 + 99 * HOUR) == 12.0
    assert alerting.tokens(RULES, empty, 0.0) == 0.0, "no time has passed"
    assert alerting.tokens(AlertSettings(at_most_per_h=2), Gone(9.0, 0.0), 0.0) == 2.0, "a smaller bucket holds no more"


def test_when_the_next_one_may_go():
    assert alerting.same("fatal", "Pong") == "fatal/Pong"
    assert alerting.due_s(RULES, Gone(), "fatal/Pong", 50.0) == 50.0
    told = Gone(11.0, 0.0, {"fatal/Pong": 0.0})
    assert alerting.due_s(RULES, told, "fatal/Pong", 50.0) == HOUR
    assert alerting.due_s(RULES, told, "fatal/Enduro", 50.0) == 50.0
    assert alerting.due_s(RULES, told, "fatal/Pong", HOUR) == HOUR
    assert alerting.due_s(RULES, Gone(0.0, 50.0), "fatal/Pong", 50.0) == 350.001, "a hair late"
    assert alerting.due_s(RULES, Gone(1.0, 50.0), "fatal/Pong", 50.0) == 50.0, "with a whole token at once"


@given(
    st.integers(1, 120),
    st.lists(st.tuples(st.floats(0.0, 2000.0), st.sampled_from("abcdefgh")), min_size=1, max_size=150),
    st.sampled_from([0.0, 600.0, 3600.0]),
)
def test_no_hour_has_more_than_twice_the_limit_and_a_deadline_holds(most, arrivals, within_s):
    """A full bucket and what refills meanwhile: twice the limit in the first hour, the limit in each one after."""
    rules, gone, now_s, out = AlertSettings(at_most_per_h=most, same_within_s=within_s), Gone(), 0.0, []
    for gap_s, key in arrivals:
        now_s += gap_s
        due_s = alerting.due_s(rules, gone, key, now_s)
        if due_s <= now_s:
            assert alerting.tokens(rules, gone, now_s) >= 1.0
            assert now_s >= gone.last_s.get(key, float("-inf")) + within_s  # as `due_s` adds: a difference may round
            left = alerting.tokens(rules, gone, now_s) - 1.0
            gone = Gone(left, now_s, {**gone.last_s, key: now_s})
            out.append(now_s)
        else:
            assert alerting.due_s(rules, gone, key, due_s) <= due_s, "at the deadline it may go: no loop around it"
    for first_s in out:
        assert sum(first_s <= at_s < first_s + HOUR for at_s in out) <= 2 * most


def test_a_failing_target_is_left_alone_for_longer_each_time_up_to_a_quarter_of_an_hour():
    assert [alerting.retry_s(failures) for failures in (1, 2, 3, 6, 7, 8, 10_000)] == [15, 30, 60, 480, 900, 900, 900]


def test_what_is_too_old_or_too_much_is_dropped_the_oldest_first():
    day = 86_400.0
    assert alerting.overdue(RULES, [("a", 0.0), ("b", day)], 3 * day - 1) == ()
    assert alerting.overdue(RULES, [("a", 0.0), ("b", day)], 3 * day) == ("a",)
    at_s = 2944.34285777222  # the sum, less this, is rounded to below three days
    assert alerting.overdue(RULES, [("a", at_s)], at_s + 3 * day) == ("a",)
    many = [(str(number), 0.0) for number in range(MOST_OWED + 2)]
    assert alerting.overdue(RULES, many, 1.0) == ("0", "1")


def test_targets_have_names_that_give_nothing_away():
    rules = AlertSettings(urls=("json://me:secret@host/x", "JSON://me:secret@host/y", "ntfy://topic"), command=("page",))
    assert [re.sub("-[0-9a-f]{6}$", "", name) for name in rules.targets] == ["json", "json", "ntfy", "command"]
    assert len(set(rules.targets)) == 4
    assert AlertSettings(urls=("ntfy://topic",) * 2).targets == rules.targets[2:3]
    assert "secret" not in repr(rules)
    assert re.fullmatch("json-[0-9a-f]{6}", target_name("json://\udcff")), "no text is refused"
    assert AlertSettings().targets == ()
    assert AlertSettings(keep_days=2).keep_s == 2 * 86_400.0


def test_some_of_the_targets():
    rules = AlertSettings(urls=("json://host/x", "ntfy://topic"), command=("page",), keep_days=2)
    for targets in ((), rules.targets[:1], rules.targets[1:], rules.targets):
        assert rules.only(targets).targets == tuple(targets)
    assert rules.only(rules.targets) == rules
    assert rules.only(()).keep_days == 2


def test_what_is_said():
    assert alerting.summary(1, "x", 3000.0) == "x", "only held back"
    assert alerting.summary(12, "x", 3600.0) == "12 alerts of this kind in the last hour, the newest: x"
    assert alerting.summary(3, "x", 7200.0) == "3 alerts of this kind in the last 2h, the newest: x"
    notice = Notice("00ff", "fatal", "critical", "Pong: no such game", 0.0, "Pong")
    do = "Do: extralifectl explain Pong, correct the cause, then extralifectl start Pong."
    assert alerting.body(notice) == f"Pong: no such game\n{do}\n[critical, id 00ff]"
    assert alerting.body(notice, "https://box.example").split("\n")[2] == "https://box.example"
    for dropped, said in ((1, "1 earlier alert"), (2, "2 earlier alerts")):
        text = alerting.body(Notice("00ff", "reboot", "critical", "up", 0.0, dropped=dropped))
        assert text == f"up\nNothing to do.\n({said} may not have arrived)\n[critical, id 00ff]"
    assert alerting.body(Notice("00ff", "report", "info", "Nothing to do. All trained", 0.0)).startswith(
        "Nothing to do. All trained\n["
    )


@pytest.mark.parametrize(
    ("kind", "severity", "program", "title"),
    [
        ("fatal", "critical", "Pong", "Pong on box: given up"),
        ("fatal", "warning", "Pong", "Pong on box: ended, perhaps before its target"),
        ("reboot", "info", "", "box: rebooted"),
        ("notice", "info", "", "box: this box does not end"),
    ],
)
def test_a_title_says_what_happened_and_where(kind, severity, program, title):
    assert alerting.title(Notice("00ff", kind, severity, "", 0.0, program), "box") == title


@pytest.mark.parametrize("rules", [AlertSettings(kinds=("stall",)), AlertSettings(min_severity="critical")])
def test_the_daily_report_goes_out_whatever_kinds_and_severities_do(rules):
    assert alerting.wanted(rules, alerting.REPORT, "info")


@pytest.mark.parametrize(
    ("kind", "severity", "text", "action"),
    [
        ("gpu", "critical", "", "Do: nvidia-smi, then reset the GPU or reboot the box"),
        ("gpu", "warning", "", "Nothing to do"),  # fewer than before, or another model
        ("done", "warning", "", "Do: extralifectl report; extralifectl when-done cancel keeps the box"),
        ("done", "info", "", "Nothing to do"),
        ("finished", "info", "", "Nothing to do"),
        ("report", "info", "Nothing to do. Since 08:00: all trained", "Nothing to do"),
        ("report", "info", "Do: Pong was given up\nSince 08:00", "Do: read its first line"),
    ],
)
def test_the_first_words_are_what_must_be_done(kind, severity, text, action):
    assert alerting.action(Notice("00ff", kind, severity, text, 0.0)) == action


def test_the_table_of_kinds_in_the_docs_is_that_of_the_code():
    rows = [line.split(" | ") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    told = {row[0].strip("|` "): (row[3], row[4].strip("|` ")) for row in rows if len(row) == 5}
    what = {name: kind.do.format(program="NAME") or "nothing" for name, kind in KINDS.items()}
    assert told == {name: (what[name], kind.message_id) for name, kind in KINDS.items()}
