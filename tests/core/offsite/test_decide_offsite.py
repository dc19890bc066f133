"""Copies off the box, by hand: when one begins, what follows from its end, and what another box's lease means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, reply, settings
from fakes import FakeSources

from supervisor.features.alerts.messages import WriteAlert
from supervisor.features.backups.settings import BackupSettings
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.rules import END
from supervisor.features.offsite.messages import (
    Claim,
    Lease,
    LeaseFound,
    OffsiteCopy,
    OffsiteDone,
    OffsiteDue,
    OffsiteTakeOver,
    OffsiteTend,
    Origin,
)
from supervisor.features.offsite.page import offsite_view, trouble
from supervisor.features.offsite.record import OffsiteRecord
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.inputs import Asked, Survival, Terminated, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import Level

RULES = OffsiteSettings(repository="/srv/copies", every_s=900.0, late_s=3600.0, timeout_s=600.0, reboot_s=20.0)
A1, B2 = Lease("a", 1, "ada"), Lease("b", 2, "bob", since_s=5.0)
ERROR = "restic snapshots: connection refused"


def ask(core, text):
    core.request += 1
    return core.give(Asked(core.now_s, Verb.OFFSITE, core.request, (), "", "alice", 1000, text))


def done(core, what="copy", error="", **more):
    cause = more.pop("cause", "period")
    found = {} if error else {"snapshot": "abc", "as_of_s": core.now_s, "steps": {"Pong": 5}, "size_bytes": 2_000_000}
    return core.give(OffsiteDone(core.now_s, what, cause, error, **((found if what == "copy" else {}) | more)))


def copies(decision):
    return [(each.cause, each.look_only) for each in of(decision, OffsiteCopy)]


def running(rules=RULES, **more):
    """Two programs train, the first look at the repository is over, and this box holds it."""
    core = Core(settings("Pong", "Qbert", offsite=rules, backup=BackupSettings(calendar="off", before_level=False), **more))
    assert copies(core.begin()) == [("start", True)]
    core.running("Pong", "Qbert")
    core.give(LeaseFound(core.now_s, Claim.HELD, A1))
    done(core, "look")
    return core


def copied(core):
    """The first copy is made."""
    assert copies(core.later(59.0).woke()) == [("period", False)]
    done(core)
    return core


# --- when ----------------------------------------------------------------------------------------------------------------


def test_a_first_look_then_a_first_copy_then_one_each_period():
    core = running()
    assert core.state.offsite.token == "a"
    assert core.wake_at_s == 60.0
    copied(core)
    (fact,) = of(core.last, facts.OffsiteCopied)
    assert fact.why == "copied off the box as abc: checkpoints of 1 program, 2.0 MB, 0.0 MB new, in 0s"
    assert core.wake_at_s == 960.0
    assert copies(core.later(899.0).woke()) == []
    assert copies(core.later(1.0).woke()) == [("period", False)]
    assert copies(core.later(30.0).woke()) == [], "one at a time"


def test_without_a_repository_nothing_happens():
    core = Core(settings("Pong"))
    assert of(core.begin(), OffsiteCopy) == []
    core.later(5000.0).woke()
    assert kinds(core.give(OffsiteDue(core.now_s, "check", core.wall_offset_s + 5.0))) == []
    assert reply(ask(core, "now"))[1:] == (30, "no repository is configured: set [offsite] repository (docs/offsite.md)")


def test_another_level_is_a_reason_at_once_and_so_is_the_operator():
    core = copied(running())
    changed = core.later(10.0).load(replace(core.settings, level=Level("heavy", 2, 256)))
    assert copies(changed) == [("level", False)]
    done(core, cause="level")
    assert core.state.offsite.asked == ""
    asked = ask(core.later(10.0), "now")
    assert reply(asked) == ("now", 80, "started")
    assert kinds(asked) == ["OperatorAsked", "OffsiteAsked"]
    assert copies(asked) == [("operator", False)]


@pytest.mark.parametrize(("at_s", "when", "lost_s"), [(-660.0, "11m ago", 660.0), (None, "at an unknown time", None)])
def test_a_box_that_continues_another_ones_trainings_says_once_for_how_long_that_was_silent(at_s, when, lost_s):
    core = running()
    origin = Origin("ada", "a", None if at_s is None else core.now_s + at_s)
    (fact,) = of(core.give(LeaseFound(core.now_s, Claim.HELD, B2, origin)), facts.OffsiteHeld)
    assert fact.why == (
        "this box holds the repository of copies (generation 2) and continues the trainings of box ada, whose last known "
        f"sign of life came {when}"
    )
    assert (fact.after, fact.since_s) == ("ada", origin.at_s)
    page = offsite_view(core.state, core.settings, Memory(), now_s=core.now_s)
    assert page["after"] == {"box": "ada", "lost_s": lost_s}
    (again,) = of(core.give(LeaseFound(core.now_s, Claim.HELD, Lease("c", 3, "bob"), origin)), facts.OffsiteHeld)
    assert again.after == "", "the operator took over later"


def test_a_disk_on_other_hardware_names_the_copy_that_it_knows_until_it_holds_a_lease_of_its_own():
    core = copied(running())
    stamped = facts.Stamped(1, 1.0, 1.0, "b", facts.BoxIdentified("another", "ada", {}, another=True))
    core.state = replace(core.state, offsite=core.state.offsite.after(stamped))
    (copy,) = of(core.later(900.0).woke(), OffsiteCopy)
    assert copy.moved_with == "abc"
    core.give(LeaseFound(core.now_s, Claim.HELD, Lease("new", 2, "ada")))
    assert not core.state.offsite.moved


def test_a_program_whose_code_the_next_box_lacks_waits_for_it_and_the_others_train():
    core = Core(settings("Pong", "mine", offsite=RULES))
    core.begin()
    lacks, why = {"mine": "mine waits: its script x.py is missing"}, "mine waits: its script x.py is missing"
    found = core.give(LeaseFound(core.now_s, Claim.HELD, A1, Origin("ada", "a", None), lacks))
    assert [each.error for each in of(found, facts.OffsiteFailed)] == [why]
    (held,) = core.memory.held
    assert (held.programs, held.why) == (("mine",), why)
    done(core, "look")
    assert copies(core.later(61.0).woke()) == [("start", True)], "it looks again each minute"
    again = core.give(LeaseFound(core.now_s, Claim.HELD, A1, Origin("ada", "a", None), lacks))
    assert of(again, facts.OffsiteFailed) == []
    done(core, "look", error=ERROR, missing={})
    assert core.memory.held == (), "it is there now, and the repository is away"


def test_a_reason_that_comes_while_a_copy_is_made_needs_another_one():
    core = copied(running())
    core.later(900.0).woke()
    as_of_s = core.now_s
    core.later(5.0).load(replace(core.settings, level=Level("heavy", 2, 256)))
    ended = core.later(5.0).give(OffsiteDone(core.now_s, "copy", "period", "", "abd", as_of_s=as_of_s))
    assert copies(ended) == [("level", False)]


def test_what_the_operator_asked_for_is_not_replaced_by_a_lesser_reason():
    core = running()
    core.later(60.0).woke()
    ask(core.later(1.0), "now")
    core.later(1.0).load(replace(core.settings, level=Level("heavy", 2, 256)))
    assert core.state.offsite.asked == "operator"


# --- failures ------------------------------------------------------------------------------------------------------------


def test_a_failure_is_on_record_and_tried_again_ever_more_rarely():
    core = copied(running())
    core.later(900.0).woke()
    failed = done(core, error=ERROR)
    (fact,) = of(failed, facts.OffsiteFailed)
    assert fact.why == f"the copy off the box failed: {ERROR}"
    assert (core.state.offsite.failures, core.state.offsite.error) == (1, ERROR)
    assert core.wake_at_s == core.now_s + 60.0
    assert copies(core.later(60.0).woke()) == [("period", False)]
    done(core, error=ERROR)
    assert core.wake_at_s == core.now_s + 120.0
    assert copies(core.later(120.0).woke()) == [("period", False)]
    done(core)
    assert (core.state.offsite.failures, core.state.offsite.error) == (0, "")


def test_what_the_operator_asked_for_is_tried_once():
    core = copied(running())
    ask(core.later(10.0), "now")
    failed = done(core, error=ERROR, cause="operator")
    assert copies(failed) == []
    assert core.state.offsite.asked == ""
    assert core.wake_at_s == 960.0


def test_a_program_that_could_not_be_copied_is_named():
    core = running()
    core.later(60.0).woke()
    ended = done(core, missed={"Qbert": "x is damaged"})
    assert of(ended, facts.OffsiteCopied)[0].why.endswith("; not copied: Qbert: x is damaged")
    assert [each.notice.kind for each in of(ended, WriteAlert)] == ["offsite"]
    core.later(900.0).woke()
    again = done(core, missed={"Qbert": "y is damaged"})
    assert of(again, WriteAlert) == [], "the alert is not repeated with each copy"


@pytest.mark.parametrize(("lacks", "verified"), [("/root/code", True), ("Pong", False)])
def test_the_last_copy_counts_without_a_directory_of_also_and_not_without_a_program(lacks, verified):
    core = running(replace(RULES, also=("/root/code",)))
    core.later(60.0).woke()
    ended = done(core, cause="done", missed={lacks: "it has more than 100 MB"})
    assert of(ended, facts.OffsiteCopied)[0].verified is verified


@pytest.mark.parametrize(
    ("first", "error", "why"),
    [
        (True, "", "the newest copy off the box is 1h old, and no copy has finished since"),
        (True, ERROR, f"the newest copy off the box is 1h old: {ERROR}"),
        (False, ERROR, f"nothing was copied off the box in 1h: {ERROR}"),
    ],
)
def test_a_copy_that_is_too_old_is_told_once_and_is_an_alert(first, error, why):
    core = copied(running()) if first else running()
    if error:
        core.later(900.0).woke()
        done(core, error=error)
    since_s = core.state.offsite.copied.at_s if first else 0.0
    told = core.later(since_s + 3600.0 - core.now_s).woke()
    (fact,) = of(told, facts.OffsiteLate)
    assert fact.why == why
    assert [each.notice.kind for each in of(told, WriteAlert)] == ["offsite"]
    assert of(core.later(600.0).woke(), facts.OffsiteLate) == []
    if not core.memory.copying.doing:
        core.later(900.0).woke()
    done(core)
    assert not core.state.offsite.late


def test_where_nothing_trains_no_copy_is_made_and_none_is_too_old():
    core = copied(running())
    for name in ("Pong", "Qbert"):
        core.ask(Verb.STOP, name)
        core.ended(name, code=75)
    assert copies(core.later(900.0).woke()) == [("period", False)], "what the programs saved when they left"
    done(core)
    assert core.wake_at_s is None
    assert of(core.later(9000.0).woke(), facts.OffsiteLate) == []


def test_another_daemon_looks_first_and_copies_what_was_not_finished():
    core = copied(running())
    core.later(900.0).woke()
    again = core.later(5.0).begin(*(core.survivor(name, Survival.ALIVE) for name in ("Pong", "Qbert")))
    assert copies(again) == [("start", True)]
    assert copies(done(core, "look", ERROR)) == [("period", False)]


# --- upkeep --------------------------------------------------------------------------------------------------------------


def test_the_calendars_are_answered_once_and_their_ends_are_on_record():
    core = running()
    wall_s = core.wall_offset_s
    assert of(core.give(OffsiteDue(core.now_s, "forget", wall_s - 10)), OffsiteTend) == []
    due = core.give(OffsiteDue(core.now_s, "forget", wall_s + 0.5))
    assert of(due, OffsiteTend) == [OffsiteTend("forget", wall_s + 0.5)]
    core.give(OffsiteDue(core.now_s, "check", wall_s + 0.5))
    core.give(OffsiteDue(core.now_s, "check", wall_s + 0.5))
    ended = done(core, "forget", due_wall_s=wall_s + 0.5)
    assert of(ended, facts.OffsiteTended)[0].why == "old copies were removed from the repository"
    assert of(ended, OffsiteTend) == [OffsiteTend("check", wall_s + 0.5)]
    failed = done(core, "check", "restic check: pack is damaged", due_wall_s=wall_s + 0.5)
    assert of(failed, facts.OffsiteFailed)[0].why == "the check of the repository failed: restic check: pack is damaged"
    assert [each.notice.kind for each in of(failed, WriteAlert)] == ["offsite"]
    assert kinds(core.give(OffsiteDue(core.now_s, "check", wall_s + 0.5))) == []
    ask(core, "check")
    mended = done(core, "check", read_percent=5)
    assert of(mended, facts.OffsiteTended)[0].why == (
        "the repository was checked: no errors in its structure and in 5 % of its data; the other data was not read"
    )
    assert core.state.offsite.tended["check"].read_percent == 5
    tended = core.state.offsite.tended["check"]
    assert (tended.error, tended.due_wall_s) == ("", wall_s + 0.5), "a check by hand answers no calendar"


def test_a_copy_that_somebody_waits_for_takes_the_place_of_a_check():
    core = copied(running())
    ask(core, "check")
    assert core.memory.copying.doing == "check"
    (command,) = of(ask(core, "now"), OffsiteCopy)
    assert (command.urgent, command.cause) == (True, "operator")
    assert of(done(core, cause="operator"), OffsiteTend) == [OffsiteTend("check")], "and it is begun anew"


# --- the lease -----------------------------------------------------------------------------------------------------------


def fenced():
    core = copied(running())
    core.later(900.0).woke()
    core.give(LeaseFound(core.now_s, Claim.LOST, B2))
    return core


def test_a_box_on_which_another_has_taken_over_stops_its_programs_and_starts_none():
    core = fenced()
    assert kinds(core.last)[0] == "OffsiteFenced"
    assert [each.notice.kind for each in of(core.last, WriteAlert)] == ["offsite"]
    assert sorted(each.program for each in of(core.last, commands.AskToLeave)) == ["Pong", "Qbert"]
    assert kinds(done(core, error="the repository belongs to box bob")) == [], "the fence says it all"
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75)
        assert core.state.programs[name].phase is Phase.QUEUED
    assert of(core.later(1000.0).woke(), commands.Spawn) == []
    assert core.give(LeaseFound(core.now_s, Claim.LOST, B2)).facts == ()
    assert reply(ask(core, "now"))[2].startswith("box bob has taken over")
    again = core.begin()
    assert of(again, commands.Spawn) == [], "over reboots, and without the repository"
    assert trouble(offsite_view(core.state, core.settings, core.memory, now_s=core.now_s)) == (
        "box bob has taken over these trainings, so no program runs here"
    )


@pytest.mark.parametrize("verb", [Verb.START, Verb.RESTART])
def test_a_start_on_a_fenced_box_is_refused_with_the_remedy(verb):
    core = fenced()
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75)
    said = "cannot start here: box bob has taken over; `extralifectl offsite take-over` brings the programs back"
    assert reply(core.ask(verb, "Pong")) == ("Pong", 30, said)


def pointed(core, repository="/srv/other"):
    """The operator has configured another repository; what is read first there."""
    done(core, error="x")
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75)
    return core.load(replace(core.settings, offsite=replace(RULES, repository=repository)))


def placed(core):
    """A fence that knows of which repository it is."""
    place = core.settings.offsite.place
    core.give(LeaseFound(core.now_s, Claim.LOST, replace(B2, place=place)))
    return core


def test_a_fenced_box_that_is_given_another_repository_goes_on_once_that_says_nothing_of_a_take_over():
    core = placed(copied(running()))
    assert copies(pointed(core)) == [("start", True)]
    assert of(core.last, commands.Spawn) == [], "not before it has been read"
    done(core, "look", ERROR)
    assert core.wake_at_s == core.now_s + 60.0
    assert copies(core.to_wake()) == [("start", True)], "it is asked until it says something"
    held = core.give(LeaseFound(core.now_s, Claim.HELD, Lease("n", 1, "ada", place=core.settings.offsite.place)))
    assert sorted(each.spec.name for each in of(held, commands.Spawn)) == ["Pong", "Qbert"]


def test_nor_does_another_boxs_repository_keep_it_down():
    core = placed(copied(running()))
    pointed(core)
    eve = Lease("e", 1, "eve", place=core.settings.offsite.place)
    free = core.give(LeaseFound(core.now_s, Claim.FOREIGN, eve))
    assert of(free, facts.OffsiteReleased)[0].why.startswith("this repository is box eve's")
    assert sorted(each.spec.name for each in of(free, commands.Spawn)) == ["Pong", "Qbert"]


def test_the_same_repository_written_otherwise_changes_nothing():
    core = placed(copied(running()))
    pointed(core, "/srv/../srv/copies")
    same = core.give(LeaseFound(core.now_s, Claim.FOREIGN, replace(B2, place=core.settings.offsite.place)))
    assert same.facts == ()
    assert of(same, commands.Spawn) == []


def test_take_over_brings_the_programs_back():
    core = fenced()
    done(core, error="x")
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75)
    asked = ask(core, "take-over")
    assert of(asked, OffsiteTakeOver) == [OffsiteTakeOver()]
    held = core.give(LeaseFound(core.now_s, Claim.HELD, Lease("c", 3, "ada")))
    assert kinds(held)[0] == "OffsiteHeld"
    assert sorted(each.spec.name for each in of(held, commands.Spawn)) == ["Pong", "Qbert"]
    done(core, "take-over")
    assert core.give(LeaseFound(core.now_s, Claim.HELD, Lease("c", 3, "ada"))).facts == ()


def test_a_take_over_that_fails_says_why():
    core = fenced()
    done(core, error="x")
    ask(core, "take-over")
    failed = done(core, "take-over", ERROR)
    assert of(failed, facts.OffsiteFailed)[0].why == f"the take-over of the repository failed: {ERROR}"
    assert (core.state.offsite.failures, core.state.offsite.ended_well) == (0, False)


# --- the end -------------------------------------------------------------------------------------------------------------


def leave(core, *, by="the host's shutdown"):
    if by == "shutdown":
        core.ask(Verb.SHUTDOWN)
    else:
        core.give(Terminated(core.now_s, by, host=by != "SIGTERM"))
    core.ended("Pong", code=75)
    return core.ended("Qbert", code=75)


def test_an_orderly_reboot_waits_for_a_last_copy():
    core = copied(running())
    ending = leave(core.later(30.0))
    (command,) = of(ending, OffsiteCopy)
    assert (command.cause, command.limit_s, command.urgent) == ("reboot", 20.0, True)
    assert of(ending, commands.EndDaemon) == []
    assert of(core.later(5.0).woke(), commands.EndDaemon) == []
    assert of(done(core, cause="reboot"), commands.EndDaemon) == [commands.EndDaemon(reexec=False)]


def test_and_no_longer_than_it_may():
    core = copied(running())
    leave(core.later(30.0))
    assert core.wake_at_s == core.now_s + 20.0
    assert of(core.later(20.0).woke(), commands.EndDaemon) == [commands.EndDaemon(reexec=False)]


def test_after_sigterm_the_last_copy_ends_before_the_box():
    core = copied(running())
    end = EndNotice("aws terminate", "aws", END, "spot terminate", core.now_s + 38.0)
    core.give(EndNoticesRead(core.now_s, (end,), {}))
    ending = leave(core.later(30.0), by="SIGTERM")
    assert [(each.cause, each.limit_s) for each in of(ending, OffsiteCopy)] == [("stop", 8.0)]
    core.give(Terminated(core.now_s, "the host's shutdown", host=True))
    assert core.memory.last_copy == "reboot"
    core.give(Terminated(core.now_s, "SIGTERM"))
    assert core.memory.last_copy == "reboot"
    assert of(core.later(8.0).woke(), commands.EndDaemon) == [commands.EndDaemon(reexec=False)]


@pytest.mark.parametrize("case", ["no time", "fenced"])
def test_other_ends_do_not_wait(case):
    core = copied(running(replace(RULES, reboot_s=0.0) if case == "no time" else RULES)).later(30.0)
    if case == "fenced":
        core.give(LeaseFound(core.now_s, Claim.LOST, B2))
    ended = leave(core)
    assert of(ended, OffsiteCopy) == []
    assert of(ended, commands.EndDaemon)


@pytest.mark.parametrize(("by", "then"), [("shutdown", "idle"), ("SIGTERM", "left"), ("the host's shutdown", "900")])
def test_the_last_copy_says_whether_the_box_comes_back(by, then):
    assert [each.then for each in of(leave(copied(running()).later(30.0), by=by), OffsiteCopy)] == [then]


def test_a_copy_made_after_an_announced_end_says_that_every_program_has_left():
    core = copied(running())
    end = EndNotice("aws terminate", "aws", END, "spot terminate", core.now_s + 20.0)
    core.give(EndNoticesRead(core.now_s, (end,), {}))
    core.ended("Pong", code=75)
    ended = core.ended("Qbert", code=75)
    assert [each.then for each in of(ended, OffsiteCopy)] == ["left"]


def test_a_copy_promises_the_next_one_and_the_promise_is_kept_by_a_box_that_stopped_training():
    core = running()
    (command,) = of(core.later(60.0).woke(), OffsiteCopy)
    assert command.then == "900"
    done(core, then=command.then)
    core.later(1.0).ask(Verb.STOP, "Pong", "Qbert")
    core.ended("Pong", code=75)
    core.ended("Qbert", code=75)
    done(core, cause="operator", then="900")
    assert core.state.offsite.copied.then == "900"
    assert core.wake_at_s == core.now_s + 900.0, "nothing has trained since, and yet"
    (command,) = of(core.later(900.0).woke(), OffsiteCopy)
    assert command.then == "idle"
    done(core, then=command.then)
    assert of(core.later(5000.0).woke(), OffsiteCopy) == []
    assert [each.then for each in of(core.ask(Verb.START, "Pong"), OffsiteCopy)] == ["900"], "at once"


def test_a_shorter_promise_counts_after_a_change_of_the_period_and_a_longer_one_does_not():
    core = running()
    core.later(60.0).woke()
    done(core, then="60")
    assert core.wake_at_s == core.now_s + 60.0
    core.later(60.0).woke()
    done(core, then="5000")
    assert core.wake_at_s == core.now_s + 900.0


def test_when_all_is_done_the_copy_says_so():
    core = running()
    core.ended("Pong", code=0)
    core.ended("Qbert", code=0)
    assert [core.state.programs[each].phase for each in ("Pong", "Qbert")] == [Phase.DONE, Phase.DONE]
    assert [each.then for each in of(core.later(60.0).woke(), OffsiteCopy)] == ["done"]


def test_while_the_daemon_ends_nothing_is_begun():
    core = copied(running())
    core.give(Terminated(core.now_s, "SIGTERM"))
    assert reply(ask(core, "now"))[1] == 6


# --- what people see -----------------------------------------------------------------------------------------------------


def test_the_page_tells_age_size_and_error():
    core = copied(running())
    done(core, "check", read_percent=5)
    checked = {"check": {"wall_s": core.now_s + core.wall_offset_s, "error": "", "read_percent": 5}}
    core.later(100.0).woke()
    found = offsite_view(core.state, core.settings, core.memory, now_s=core.now_s)
    assert found == {
        "age_s": 100.0, "late": False, "late_s": 3600.0, "every_s": 900.0,
        "copied": {
            "snapshot": "abc", "cause": "period", "wall_s": 0.0, "steps": {"Pong": 5}, "size_bytes": 2_000_000,
            "sent_bytes": 0, "took_s": 0.0, "missed": {},
        },
        "doing": "", "asked": "", "error": "", "failures": 0, "generation": 1, "fence": None, "after": None,
            "tended": checked, "ends": 2,
        "ended": "copied off the box as abc: checkpoints of 1 program, 2.0 MB, 0.0 MB new, in 0s", "ended_well": True,
    }  # fmt: skip
    lost = fenced()
    view = offsite_view(lost.state, lost.settings, lost.memory, now_s=lost.now_s)
    assert (view["doing"], view["ends"], view["ended_well"]) == ("copy", 3, False)
    assert view["fence"] == {"box": "bob", "since_wall_s": 5.0}
    assert trouble(found) == ""
    assert trouble(None) == ""
    assert trouble({**found, "late": True}) == "the newest copy off the box is too old"
    assert trouble({**found, "late": True, "error": ERROR}) == f"the newest copy off the box is too old: {ERROR}"
    checked = {"check": {"wall_s": 1.0, "error": "restic check: bad"}}
    assert trouble({**found, "tended": checked}) == "the repository of copies: restic check: bad"
    assert trouble({**found, "tended": {"check": {"wall_s": 1.0, "error": ""}}}) == ""
    assert offsite_view(core.state, None, Memory(), now_s=0.0) is None


def test_a_fact_of_a_later_version_changes_nothing():
    record = OffsiteRecord()
    assert record.after(facts.Stamped(0, 0.0, 0.0, "boot", facts.OffsiteFact("x"))) == record


# --- the first look ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rebooted():
    """A box that held the repository comes back after a reboot; its first look is under way."""
    core = running()
    decision = core.reboot("boot-2")
    assert copies(decision) == [("start", True)]
    assert not of(decision, commands.Spawn)
    assert core.wake_at_s == core.now_s + 10.0
    (alert,) = of(decision, commands.AlertReboot)
    assert alert.resuming == ("Pong", "Qbert")
    return core


def spawned(core):
    return [each.spec.name for each in of(core.last, commands.Spawn)]


def test_after_a_reboot_nothing_starts_before_the_lease_is_read(rebooted):
    rebooted.later(2.0).woke()
    assert spawned(rebooted) == []
    rebooted.give(LeaseFound(rebooted.now_s, Claim.HELD, A1))
    assert spawned(rebooted) == ["Pong", "Qbert"]


@pytest.mark.parametrize("answer", ["an error", "none"])
def test_a_repository_that_cannot_be_reached_costs_seconds_and_stops_nobody(rebooted, answer):
    if answer == "none":
        rebooted.later(10.0).woke()
    else:
        done(rebooted, "look", ERROR)
    assert spawned(rebooted) == ["Pong", "Qbert"]


def test_its_metrics():
    from supervisor.features.metrics.families import metrics_view

    def found(core):
        sources = FakeSources(core.state, settings=core.settings, memory=core.memory, now_s=core.now_s)
        return {
            each.name.removeprefix("extralife_offsite_"): each.samples[0][1]
            for each in metrics_view(sources)
            if each.samples
        }

    assert "copy_age_seconds" not in found(running()), "there is no copy yet"
    assert found(running())["copy_late"] == found(running())["failures"] == 0.0
    core = copied(running())
    core.later(900.0).woke()
    done(core, error="refused")
    assert {"copy_age_seconds": 900.0, "copy_size_bytes": 2e6, "failures": 1.0, "fenced": 0.0}.items() <= found(core).items()
    assert found(fenced())["fenced"] == 1.0
