"""The page `incidents`: one trouble and what followed from it, grouped by cause."""

import json

import pytest
from core_kit import WALL_S, Core, settings
from fakes import FakeSources

from supervisor.model import facts
from supervisor.model.codec import as_text
from supervisor.model.facts import Stamped
from supervisor.records import replace
from supervisor.reports.incidents import incidents
from supervisor.reports.pages import BadQuery, pages

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe\x00"


def journal(*told, step_s=10.0):
    """Facts ten seconds apart; those in a list are of one transaction."""
    rows = []
    for place, each in enumerate(told, 1):
        for fact in each if isinstance(each, list) else [each]:
            rows.append(Stamped(len(rows) + 1, place * step_s, WALL_S + place * step_s, "boot", fact))
    return rows


def page(rows, **query):
    return pages()["incidents"].of(FakeSources(journal=rows, now_s=rows[-1].at_s, wall_s=rows[-1].wall_s), query)


def told(rows):
    """(cause, kinds of the facts) of each incident."""
    return [(each.what, [type(row.fact).__name__ for row in each.rows]) for each in incidents(rows)]


def begun(token="t1", attempt=1):
    return facts.SpawnIntended("a slot is free", "Pong", token, attempt, "d", "light")


def ready(token="t1"):
    return facts.BecameReady("trains", "Pong", token, 1.0)


def stalled(kind="hang", token="t1"):
    return facts.Stalled("no progress for 5s", "Pong", token, kind, 5.0, 4.0)


def stop(reason, token="t1"):
    return facts.StopIntended("asked to leave", "Pong", token, reason, "x", 3.0)


def killed(token="t1"):
    return facts.KillIntended("did not exit", "Pong", token, 3.0)


def exited(cause, token="t1", **more):
    return facts.Exited("it ended", "Pong", token, cause, 1, None, 500, 400, **more)


def waits():
    return facts.BackedOff("restarts in 1s", "Pong", 0.0, 1.0, slow=False)


def resumed(token="t2", lost=100):
    return facts.Resumed("resumed", "Pong", token, 400, lost)


def rebooted(*names, last_sign_s=None, end="power"):
    return facts.HostRebooted(
        "the host rebooted", "a", "b", "unclean", "boot id", 7.0, 1000.0, "heavy", names, dict.fromkeys(names, 9),
        last_sign_s=last_sign_s, end=end, last_words=("panic",),
    )  # fmt: skip


def test_a_stall_with_what_was_seen_decided_and_lost():
    rows = journal(
        begun(attempt=3), ready(), stalled(), stalled("gil"),
        facts.Examined("examined", "Pong", "t1", {"stacks": HOSTILE * 100, "wchan": "futex", "stdout": "a" * 2000 + "end", "x": ""}),
        stop("stall"), killed(), exited("stalled"), waits(), begun("t2", 4), resumed(), ready("t2"),
        facts.Recovered("healthy", "Pong", "t2", 300.0), facts.Requeued("much later", "Pong"),
    )  # fmt: skip
    found = page(rows, chars="50")
    (cause,) = found["causes"]
    assert (cause["what"], cause["count"], cause["programs"], cause["lost_steps"]) == ("stall (hang)", 1, ["Pong"], 100)
    (one,) = cause["incidents"]
    assert (one["attempt"], one["token"], one["seq"], one["goes_on"]) == (3, "t1", 3, False)
    assert one["outage_s"] == 12 * 10.0 - (40.0 - 5.0), "from its last sign of progress until it trained again"
    assert [row["kind"] for row in one["story"] if row["decision"]] == ["StopIntended", "KillIntended", "BackedOff"]
    stacks = next(each for row in one["story"] for each in row["evidence"] if each["title"] == "stacks")
    assert stacks == {"title": "stacks", "text": (HOSTILE * 100)[:50], "cut": True}, "hostile bytes stay data"
    evidence = {each["title"]: each for row in one["story"] for each in row["evidence"]}
    assert {*evidence} == {"stacks", "wchan", "stdout"}
    assert evidence["stdout"]["text"].endswith("end")
    assert evidence["wchan"] == {"title": "wchan", "text": "futex", "cut": False}
    assert one["story"][0]["measured"] == {"stall": "hang", "age_s": 5.0, "limit_s": 4.0}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [exited("crash"), waits(), exited("crash", "t2"), waits()],
            [("crash", ["Exited", "BackedOff"]), ("crash", ["Exited", "BackedOff"])], id="each attempt is one",
        ),
        pytest.param(
            [stalled(), facts.Revived("moves again", "Pong", "t1", 1.0), stalled(), exited("crash")],
            [("stall (hang)", ["Stalled", "Revived"]), ("stall (hang)", ["Stalled", "Exited"])], id="a stall that is over",
        ),
        pytest.param(
            [facts.CheckpointFailed("disk full", "Pong", "t1", "ENOSPC"), exited("crash")],
            [("a checkpoint was not written", ["CheckpointFailed"]), ("crash", ["Exited"])], id="two causes in one attempt",
        ),
        pytest.param(
            [facts.CheckpointBad("bad", "Pong", "t1", "a", "x"), facts.CheckpointBad("bad", "Pong", "t1", "b", "x")],
            [("damaged checkpoint", ["CheckpointBad"] * 2)], id="two damaged checkpoints of one start",
        ),
        pytest.param(
            [facts.Reported("out of memory", "Pong", "t1", "out_of_memory", ""), exited("cuda_out_of_memory")],
            [("out of GPU memory", ["Reported", "Exited"])], id="last words",
        ),
        pytest.param([facts.Reported("hello", "Pong", "t1", "note", "")], [], id="any other report"),
        pytest.param([killed(), exited("stopped")], [("did not leave in time", ["KillIntended", "Exited"])], id="it was killed"),
        pytest.param([stop("operator"), exited("stopped"), waits()], [], id="as somebody asked"),
        pytest.param(
            [stalled(), stop("operator"), exited("stopped"), facts.StayedDown("down", "Pong"), waits()],
            [("stall (hang)", ["Stalled", "Exited"])], id="what follows an end in order is not about it",
        ),
        pytest.param([exited("done")], [], id="done"),
        pytest.param([exited("stalled")], [("stall", ["Exited"])], id="the fact that told of it is lost"),
        pytest.param([exited("strange")], [("strange", ["Exited"])], id="a cause of a newer daemon"),
        pytest.param([facts.GaveUp("cannot work", "Pong")], [("given up", ["GaveUp"])], id="given up at once"),
        pytest.param(
            [exited("config"), facts.GaveUp("cannot work", "Pong")],
            [("a configuration that cannot work", ["Exited", "GaveUp"])], id="given up after a death",
        ),
        pytest.param(
            [facts.Sickened("q", "Pong", "t1", "exploding", "rollback", 9, {"loss": "1"}), stop("sick"), exited("sick")],
            [("unhealthy training (exploding)", ["Sickened", "StopIntended", "Exited"])], id="an illness",
        ),
        pytest.param(
            [facts.SpawnFailed("no fork", "Pong", "t1", "EAGAIN"), waits()],
            [("a start failed", ["SpawnFailed", "BackedOff"])], id="a start",
        ),
    ],
)  # fmt: skip
def test_what_belongs_together(rows, expected):
    assert told(journal(*rows)) == expected


def test_a_reboot_is_one_incident_of_the_box_with_all_its_programs():
    judged = facts.RebootJudged("counts", "heavy", 1.0, 9.0, "")
    lower = facts.LevelChosen("back to light", "light", 1, by="the rule")
    rows = journal(
        facts.RebootJudged("of no reboot that is known", "heavy", 1.0, 9.0, ""),
        [rebooted("Pong", last_sign_s=12.0), facts.DaemonStarted("after a reboot", 1, "v", clean=False, salt="", last_sign_s=2.0),
         exited("reboot"), facts.Requeued("resumes", "Pong"), judged, lower],
        begun("t2", 2), resumed(), ready("t2"), facts.LevelChosen("up", "heavy", 2), exited("crash", "t2"),
    )  # fmt: skip
    reboot, crash = incidents(rows)
    assert [type(row.fact).__name__ for row in reboot.rows] == [
        "HostRebooted", "Exited", "Requeued", "RebootJudged", "LevelChosen", "Resumed",
    ]  # fmt: skip
    assert (reboot.what, reboot.level, reboot.programs()) == ("reboot of the host, unclean (power)", "heavy", ("Pong",))
    assert (reboot.began_s, reboot.over_s) == (12.0, 50.0)
    assert (crash.what, crash.attempt, crash.level, crash.goes_on) == ("crash", 2, "heavy", True)
    assert page(rows, program="Qbert")["causes"] == []
    assert page(rows, program="Pong")["count"] == 2
    measured = page(rows)["causes"][1]["incidents"][0]["story"][0]["measured"]
    assert measured == {"cause": "unclean", "end": "power", "down_s": 7.0, "up_s": 1000.0}
    assert incidents(journal(rebooted(end="")))[0].began_s == 3.0


def test_a_reboot_on_the_page_of_a_program_has_its_own_part():
    rows = journal(rebooted("Pong", "Qbert"), resumed(), replace(resumed(lost=7), program="Qbert"), ready("t2"))
    lost = {name: page(rows, **({"program": name} if name else {}))["causes"][0] for name in ("", "Pong", "Qbert")}
    assert [(each["lost_steps"], each["goes_on"]) for each in lost.values()] == [(107, True), (100, False), (7, True)]
    assert lost["Pong"]["programs"] == ["Pong"]


def test_a_file_for_which_the_daemon_restarts_itself_is_in_place_with_the_next_one():
    (found,) = incidents(
        journal(
            facts.FoundationLost("gone", "lock", "/s/lock", "missing", troubled=False),
            facts.DaemonStarted("1 worker adopted", 1, "v", clean=True, salt="", last_sign_s=15.0),
        )
    )
    assert (found.over_s, found.goes_on) == (20.0, False)


def test_troubles_of_the_box_and_their_ends():
    rows = journal(
        facts.FoundationLost("gone", "log directory", "/a", "missing", troubled=False),
        facts.FoundationLost("gone", "runtime directory", "/b", "missing", troubled=True),
        facts.FoundationRestored("back", "log directory", "/a", 10.0, troubled=False),
        facts.GpuLost("lost", 1, "GPU-1", "bus"), facts.GpuBack("back", 1, "GPU-1"), facts.GpuBack("of nothing", 1, "GPU-1"),
        facts.DaemonStarted("after a crash", 1, "v", clean=False, salt="", last_sign_s=65.0),
        facts.JournalStalled("full", "ENOSPC", 4.0, WALL_S),
        facts.ConfigRefused("wrong", ("line 1", "line 2"), "", "ada"), facts.XidReported("xid", 0, "GPU-0", 79, grave=True),
    )  # fmt: skip
    found = {(each.what, each.began_s): (each.over_s, each.goes_on) for each in incidents(rows)}
    assert found == {
        ("file trouble", 10.0): (30.0, False), ("file trouble", 20.0): (None, True), ("a GPU was lost", 40.0): (50.0, False),
        ("the daemon ended without notice", 65.0): (70.0, False), ("the journal could not be written", 76.0): (80.0, False),
        ("configuration refused", 90.0): (None, True), ("GPU error", 100.0): (None, False),
    }  # fmt: skip
    assert page(rows)["causes"][0]["what"] == "file trouble", "the most frequent first"
    refused = next(each for each in page(rows)["causes"] if each["what"] == "configuration refused")
    assert refused["incidents"][0]["story"][0]["evidence"][0]["text"] == "line 1\nline 2"


def test_the_levels_and_attempts_of_a_journal_that_begins_with_a_snapshot():
    core = Core(settings("Pong", "Qbert", slots=1)).running("Pong")
    rows = journal(facts.Snapshot("so far", as_text(core.state)), exited("crash", core.token("Pong")))
    (found,) = incidents(rows)
    assert (found.attempt, found.level) == (1, core.state.level)
    assert core.state.level


def test_a_window_a_number_and_one_by_its_fact():
    rows = journal(*[exited("crash", f"t{number}") for number in range(8)], waits())
    found = page(rows)
    assert (found["count"], len(found["causes"][0]["incidents"]), found["since_s"], found["until_s"]) == (8, 5, 10.0, 90.0)
    assert [each["seq"] for each in found["causes"][0]["incidents"]] == [8, 7, 6, 5, 4], "the newest first"
    assert page(rows, limit="2", since="60s", until="30s")["count"] == 4
    (one,) = page(rows, seq="9")["causes"][0]["incidents"]
    assert [row["seq"] for row in one["story"]] == [8, 9]
    assert page(rows, until="now")["until_wall_s"] == WALL_S + 90.0


def test_a_long_story_is_cut_in_the_middle():
    rows = journal(exited("crash"), *[facts.Requeued(f"again {number}", "Pong") for number in range(100)])
    (one,) = page(rows)["causes"][0]["incidents"]
    assert (len(one["story"]), one["left_out"], one["story"][-1]["why"]) == (60, 41, "again 99")


@pytest.mark.parametrize("text", ["all", "boot", "", "x", "-1s", "@nan", "1e400s"])
def test_an_end_that_makes_no_sense(text):
    with pytest.raises(BadQuery, match=r"^until must be now, seconds as 3600s or a time as @1790000000, not "):
        pages()["incidents"].arguments({"until": text})


def test_a_window_that_ends_before_it_begins():
    with pytest.raises(BadQuery, match=r"^since must lie before until$"):
        page(journal(exited("crash"), waits()), since="0s", until="10s")
