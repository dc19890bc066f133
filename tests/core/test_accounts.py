"""What each second is booked as, by worked examples: facts at moments, and the table that follows from them."""

import json
import math

import pytest
from adding_up import account_errors
from core_kit import Core, settings, spec
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import facts
from supervisor.model.codec import as_text
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep.accounting import Account
from supervisor.reports import accounts
from supervisor.reports.accounts_view import accounts_view, since_s
from supervisor.reports.ledger import Ledger, ProgramTimeline, Slice, fold_accounts
from supervisor.reports.pages import Since

WALL_S = 1_800_000_000.0


class Story:
    """A journal written by hand: `at(seconds, fact, ...)`."""

    def __init__(self, *programs, slots=1, level="light", autostart=True):
        self.rows = []
        self.at(0, facts.DaemonStarted("first", 1, "1", clean=True, salt=""), facts.LevelChosen("set", level, slots))
        self.at(0, *(facts.ProgramConfigured("new", name, "d", autostart) for name in programs))
        self.number = 0

    def at(self, at_s, *told):
        for fact in told:
            self.rows.append(Stamped(len(self.rows) + 1, float(at_s), WALL_S + at_s, "b", fact))
        return self

    # short for what comes often

    def start(self, at_s, name="P", trains=None):
        self.number += 1
        self.token = f"{name}{self.number}"
        self.at(at_s, facts.SpawnIntended("free", name, self.token, self.number, "d", "light"))
        return self if trains is None else self.at(trains, facts.BecameReady("trains", name, self.token, trains - at_s))

    def tallied(self, at_s, from_s, until_s=None, stall=0.0, doing="training", steps=None, name="P", **seconds):
        until_s = at_s if until_s is None else until_s
        return self.at(at_s, facts.Tallied("t", name, self.token, from_s, until_s, seconds, stall, doing, steps))

    def resumed(self, at_s, step, lost=None, lost_s=None, name="P"):
        return self.at(at_s, facts.Resumed("r", name, self.token, step, lost, lost_s))

    def saved(self, at_s, step, name="P"):
        return self.at(at_s, facts.Checkpointed("c", name, self.token, step, 0.1, 0.1))

    def dies(self, at_s, steps=None, ended=None, cause="killed", name="P", until=None, counted=True):
        gone = facts.Exited("gone", name, self.token, cause, None, 9, steps, None, counted=counted, ended_at_s=ended)
        then = facts.BackedOff("wait", name, at_s if until is None else until, 0.0, slow=False)
        return self.at(at_s, gone, then)

    def summary(self, now_s, since=None, until=None):
        assert account_errors(self.rows, now_s) == []
        return accounts.summary(fold_accounts(self.rows).closed(now_s), since_s=since, until_s=until)

    def booked(self, now_s, name="P", **window):
        """Seconds by account of a program (or of the slots)."""
        found = self.summary(now_s, **window)
        sheet = found.slots if name == "slots" else next(each for each in found.programs if each.name == name)
        return {account.value: round(seconds, 6) for account, seconds in sheet.seconds.items() if seconds > 1e-9}


def test_the_worked_example_of_the_rule():
    """The table of `policy/upkeep/accounting.py`, to the second."""
    story = Story("P").start(0)
    story.tallied(20, 0, starting=12, restoring=8).at(20, facts.BecameReady("trains", "P", "P1", 20.0))
    story.resumed(20, 0).saved(470, 45_000).tallied(530, 20, until_s=500, stall=1.0, training=480, steps=48_000)
    story.at(
        530, facts.Stalled("hang", "P", "P1", "hang", 30.0, 30.0), facts.StopIntended("s", "P", "P1", "stall", "x", 3.0)
    )
    story.dies(534, steps=48_000, until=539, cause="stalled").start(539).resumed(555, 45_000, 3_000).at(
        559, facts.BecameReady("trains", "P", "P2", 20.0)
    )
    booked = story.booked(1000)
    assert booked.pop("SAVING") == pytest.approx(1.0, abs=0.1)
    assert booked.pop("LOST") == pytest.approx(30.0, abs=0.5)
    assert booked.pop("TRAINING") == pytest.approx(890.0, abs=0.5)
    assert booked == {"RESTARTING": 79.0}
    assert story.booked(1000, "slots") == story.booked(1000)
    sheet = story.summary(1000).slots
    assert (sheet.failures, sheet.mttd_s, sheet.mttr_s, sheet.lost_steps) == (1, 30.0, 59.0, 3000)
    assert sheet.ettr == pytest.approx(0.89, abs=0.001)
    assert sheet.availability == 1.0


def test_every_wait_has_its_name():
    story = Story("P", slots=1).at(10, facts.GaveUp("bad config", "P")).at(20, facts.Requeued("update", "P"))
    story.at(22, facts.Gated("GPU 0 is full", "P", 0, 8, 4))
    story.start(25, trains=30).dies(40, until=60).at(61, facts.Requeued("no slot", "P")).start(70)
    story.at(75, facts.SpawnFailed("fork", "P", story.token, "fork"), facts.BackedOff("wait", "P", 90.0, 15.0, slow=False))
    assert story.booked(100) == {"WAITING": 10 + 5 + 9, "IDLE": 10.0, "RESTARTING": 56.0, "TRAINING": 10.0}  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (1, {"RESTARTING": 100.0}),
        (2, {"RESTARTING": 100.0, "WAITING": 100.0}),  # B waits beside a free slot: not idle, and not B's alone
        (4, {"RESTARTING": 100.0, "WAITING": 100.0}),  # nothing waits for the others: they are no waste
        (0, {"RESTARTING": 100.0}),  # a worker that has yet to leave a lowered level
    ],
)
def test_a_free_slot_is_booked_as_what_keeps_it_free(slots, expected):
    story = Story("A", "B", slots=slots).start(0, "A")
    assert story.booked(100, "slots") == expected


def test_one_program_on_two_slots_that_trains_all_the_time_is_all_useful():
    story = Story("P", slots=2).start(0, trains=0).tallied(100, 0, training=100)
    assert story.summary(100).slots.ettr == 1.0
    story.at(100, facts.GaveUp("a bad config", "P"))
    assert story.booked(150, "slots") == {"TRAINING": 100.0, "IDLE": 100.0}, "both slots, once nothing trains or waits"


def test_a_slot_is_paid_for_as_long_as_it_exists():
    story = (
        Story(*"ABCD", slots=2).at(50, facts.LevelChosen("up", "medium", 4)).at(80, facts.LevelChosen("down", "light", 1))
    )
    found = story.summary(100)
    assert found.slots.wall_s == 2 * 50 + 4 * 30 + 1 * 20
    assert found.slots.ettr == 0.0
    assert accounts.summary(Ledger().closed(5.0)).slots.ettr is None, "nothing paid: not 0 %"


def test_what_left_the_config_stays_in_the_books():
    story = Story("P").start(0, trains=10).at(60, facts.StopIntended("s", "P", "P1", "config", "x", 3.0))
    story.dies(65, counted=False, cause="stopped").at(65, facts.ProgramRemoved("gone", "P"))
    story.at(80, facts.ProgramConfigured("back", "P", "d")).at(85, facts.Wanted("w", "Nobody", run=True, by="x"))
    assert story.booked(100) == {"RESTARTING": 15.0, "TRAINING": 50.0, "WAITING": 20.0}
    assert story.summary(100).programs[0].wall_s == 85.0, "while it was not in the config, it was nobody's"


# --- nobody looks --------------------------------------------------------------------------------------------------------


def daemon(last_sign_s=None, clean=False):
    return facts.DaemonStarted("again", 2, "1", clean=clean, salt="", last_sign_s=last_sign_s)


def test_a_dead_daemon_is_told_from_a_living_worker():
    """Adopted and proven: its own time. Waiting for the daemon: the daemon's. Idle: idle as before."""
    story = Story("P", "Q", "R", slots=2).at(0, facts.StayedDown("no", "R")).start(0, trains=10).at(100, daemon(70.0))
    assert story.booked(101) == {"RESTARTING": 10.0, "TRAINING": 61.0, "DOWN": 30.0}, "nothing is proven yet"
    story.tallied(101, 70, training=28, blind=3)
    assert story.booked(101) == {"RESTARTING": 10.0, "TRAINING": 60.0 + 28.0, "DOWN": 3.0}
    assert story.booked(101, "Q") == {"WAITING": 71.0, "DOWN": 30.0}
    assert story.booked(101, "R") == {"IDLE": 101.0}
    assert story.booked(101, "slots")["DOWN"] == 33.0, "one slot of Q's, and what P could not prove"


def test_without_a_sign_of_life_the_last_fact_is_one():
    story = Story("P").start(0, trains=10).at(100, daemon())
    assert story.booked(100) == {"RESTARTING": 10.0, "DOWN": 90.0}
    assert Story("P").start(0, trains=10).at(100, daemon(5.0)).booked(100)["DOWN"] == 90.0, "nor an older one"


def test_a_daemon_that_was_ended_in_order_leaves_the_box_idle_until_the_next_start():
    story = Story("P").start(0, trains=10).at(50, facts.StopIntended("s", "P", "P1", "shutdown", "x", 3.0))
    story.dies(52, cause="stopped", counted=False).at(52, facts.Requeued("goes on", "P"), facts.DaemonStopped("in order"))
    assert story.booked(100) == {"RESTARTING": 12.0, "TRAINING": 40.0, "IDLE": 48.0}
    story.at(120, daemon(119.0, clean=True)).start(120)
    assert story.booked(130) == {"RESTARTING": 22.0, "TRAINING": 40.0, "IDLE": 68.0}


def test_a_daemon_that_stood_still():
    story = Story("P").start(0, trains=10).at(100, facts.DaemonSuspended("gap", 60.0, 130.0))
    assert story.booked(100) == {"RESTARTING": 10.0, "TRAINING": 30.0, "DOWN": 60.0}
    assert story.tallied(100, 40, training=60).booked(100) == {"RESTARTING": 10.0, "TRAINING": 90.0}
    told_first = Story("P").start(0, trains=10).tallied(100, 40, training=60)
    told_first.at(100, facts.DaemonSuspended("gap", 60.0, 130.0))
    assert told_first.booked(100) == {"RESTARTING": 10.0, "TRAINING": 90.0}, "in whatever order the turn told it"


def test_a_dead_daemon_that_is_not_back():
    ledger = fold_accounts(Story("P").start(0, trains=10).rows)
    found = accounts.summary(ledger.closed(100.0, last_sign_s=60.0)).slots.seconds
    assert {str(a): s for a, s in found.items()} == {"RESTARTING": 10.0, "TRAINING": 50.0, "DOWN": 40.0}


def rebooted(**more):
    known = {"last_sign_wall_s": WALL_S + 100, "boot_wall_s": WALL_S + 140, "last_sign_s": 100.0, **more}
    return facts.HostRebooted("r", "b", "c", "unclean", "boot id", 40.0, 900.0, "light", ("P",), {"P": 9000}, **known)


def gone(ended=100.0):
    return facts.Exited("host", "P", "P1", "reboot", None, None, 9000, None, ended_at_s=ended)


@pytest.mark.parametrize(
    ("reboot", "off", "on"),
    [
        (rebooted(), 40.0, 10.0),
        (rebooted(last_sign_s=None), 130.0, 10.0),  # no sign at all: since the last fact
        (rebooted(boot_wall_s=None), 50.0, 0.0),
        (rebooted(boot_wall_s=WALL_S + 90), 0.0, 50.0),  # a wall clock that says the boot came first
        (rebooted(last_sign_s=500.0), 0.0, 0.0),
    ],
)
def test_a_reboot_splits_its_downtime(reboot, off, on):
    story = Story("P", "Q", slots=2).at(5, facts.StayedDown("no", "Q")).start(10, trains=10)
    story.at(150, reboot, daemon(reboot.last_sign_s), gone(), facts.Requeued("resumes", "P")).start(150, trains=170)
    booked = story.booked(200)
    assert booked.get("DOWN", 0.0) == off + on
    assert "DOWN" not in story.booked(200, "Q"), "it was down anyway"
    assert story.booked(200, "slots").get("DOWN", 0.0) == off + on, "the other slot had no work"
    sheet = story.summary(200).programs[0]
    assert (sheet.failures, sheet.reboots) == (0, 1)
    assert sheet.mttr_s == 170.0 - (150.0 - off - on)


def test_a_move_to_another_box_is_no_reboot():
    moved = facts.HostRebooted("r", "b", "c", "moved", "boot id", 40.0, 900.0, "light", (), {}, last_sign_s=100.0)
    story = Story("P").start(0, trains=10).at(150, moved)
    assert story.summary(200).slots.reboots == 0
    assert since_s(fold_accounts(story.rows).closed(200.0), Since(boot=True)) == 150.0


def taken_over(since_s=300.0):
    """A copy of 300 goes on at 960 on another box."""
    story = Story("P").start(0, trains=20)
    gone = facts.HostRebooted("r", "b", "c", "moved", "w", 600.0, None, "light", ("P",), {}, 300, 900, last_sign_s=300.0)
    story.at(950, gone, facts.DaemonStarted("again", 2, "1", clean=False, salt=""))
    story.at(950, facts.Exited("ended", "P", story.token, "reboot", None, None, None, None), facts.Requeued("r", "P"))
    return story.at(952, facts.OffsiteHeld("held", "t2", 2, "", "ada", since_s))


@pytest.mark.parametrize(
    ("since_s", "now_s", "price", "seconds", "usd"),
    [(300.0, 2000, 2.0, 660.0, 660 / 1800), (300.0, 955, None, 655.0, None), (None, 2000, 2.0, None, None)],
)
def test_the_time_from_a_lost_box_to_training_on_the_next_one_has_its_price(since_s, now_s, price, seconds, usd):
    story = taken_over(since_s)
    if now_s > 960:
        story.start(955, trains=960)
    closed = fold_accounts(story.rows).closed(now_s)
    for ledger in (closed, Ledger.of_json(json.loads(json.dumps(closed.as_json())))):
        (found,) = accounts_view(ledger, accounts.summary(ledger), WALL_S + now_s, price)["take_overs"]
        assert found == {"box": "ada", "seconds": seconds, "trains": now_s > 960, "usd": usd}
    assert accounts_view(closed, accounts.summary(closed, until_s=900), WALL_S + now_s, price)["take_overs"] == []
    assert story.booked(now_s)["DOWN"] == 650.0


def test_a_box_that_did_not_wait_for_the_lease_trains_from_then_on():
    story = taken_over()
    held = story.rows.pop()
    story.start(951, trains=951).at(952, held.fact)
    assert fold_accounts(story.rows).take_overs[0].trains_s == 952


def test_a_box_that_was_stopped_after_its_work_was_not_down():
    story = Story("P", slots=2).start(0, trains=10).dies(50, cause="finished", counted=False)
    story.at(50, facts.Finished("all steps", "P"), facts.DaemonStopped("in order")).at(
        150, rebooted(), daemon(100.0, clean=True)
    )
    assert story.booked(150, "slots") == {"RESTARTING": 10.0, "TRAINING": 40.0, "IDLE": 200.0}


def test_a_box_that_goes_down_after_the_daemon_was_stopped():
    story = Story("P").start(0, trains=10).dies(50, cause="stopped", counted=False)
    story.at(50, facts.Requeued("goes on", "P"), facts.DaemonStopped("in order"))
    story.at(150, rebooted(), daemon(100.0, clean=True))
    assert story.booked(150) == {"RESTARTING": 10.0, "TRAINING": 40.0, "DOWN": 100.0}
    assert story.summary(150).programs[0].reboots == 0, "it did not run then"


# --- detection, death, repair --------------------------------------------------------------------------------------------


def test_two_stalls_of_one_attempt_and_one_that_heals_itself():
    story = Story("P").start(0).at(30, facts.Stalled("s", "P", "P1", "silent", 20.0, 20.0))
    story.at(35, facts.Stalled("s", "P", "P1", "stopped", 25.0, 20.0)).at(40, facts.Revived("r", "P", "P1", 10.0))
    assert story.booked(50) == {"RESTARTING": 50.0}
    story.at(50, facts.BecameReady("trains", "P", "P1", 50.0)).at(90, facts.Stalled("s", "P", "P1", "hang", 500.0, 30.0))
    assert story.booked(90) == {"RESTARTING": 90.0}, "an age that reaches back over all there was"
    story.at(95, facts.Revived("r", "P", "P1", 5.0))
    assert story.booked(100)["TRAINING"] == 5.0
    sheet = story.summary(100).slots
    assert (sheet.failures, sheet.mttr_s) == (2, ((40 - 10) + (95 - 0)) / 2)


def test_one_long_outage_of_three_deaths():
    """It never trained in between: that is one repair, and three failures."""
    story = Story("P").start(0, trains=10).dies(100).start(100).dies(103, until=105).start(105).dies(108, until=112)
    story.start(112, trains=120)
    sheet = story.summary(200).slots
    assert (sheet.failures, sheet.mttr_s) == (3, 20.0)


def test_nobody_waits_for_what_the_operator_stopped():
    story = Story("P").start(0, trains=10).dies(50, until=60).at(55, facts.StayedDown("stopped", "P"))
    story.at(500, facts.Requeued("start", "P")).start(500, trains=510)
    assert story.summary(600).slots.mttr_s is None


def test_facts_of_another_attempt_change_nothing():
    story = Story("P").start(0, trains=10)
    before = story.booked(100)
    story.at(50, facts.StopIntended("late", "P", "old", "operator", "x", 3.0), facts.Recovered("r", "P", "P1", 60.0))
    story.at(50, facts.OperatorAsked("x", "status", (), None), facts.ClockStepped("s", 5.0))
    assert story.booked(100) == before


# --- what readings tell --------------------------------------------------------------------------------------------------


def test_phases_of_a_worker_are_booked_where_they_were():
    story = Story("P").start(0)
    story.tallied(20, 0, importing=4, building=6, restoring=7, compiling=3).at(20, facts.BecameReady("t", "P", "P1", 20.0))
    story.tallied(120, 20, training=80, evaluating=15, saving=5, stall=2.0, doing="evaluating")
    assert story.booked(130) == {"RESTARTING": 20.0, "TRAINING": 103.0, "SAVING": 7.0}
    half = story.booked(130, since=20.0, until=70.0)
    assert half == {"TRAINING": 46.5, "SAVING": 3.5}, "inside nobody knows what came first"
    assert story.tallied(130, 130).booked(130)["TRAINING"] == 103.0, "of no time, nothing"


def test_a_job_that_is_suspended_waits_until_it_goes_on():
    story = Story("P").start(0, trains=10).tallied(100, 10, training=40, suspended=50, doing="suspended")
    story.tallied(300, 100, suspended=60, training=140)
    assert story.booked(310) == {"RESTARTING": 10.0, "TRAINING": 190.0, "WAITING": 110.0}


def test_a_tally_after_a_reboot_leaves_the_time_off_as_it_is():
    story = Story("P").start(0, trains=10).at(150, rebooted()).tallied(150, 10, training=130, blind=10)
    booked = story.booked(150)
    assert (booked["RESTARTING"], booked["DOWN"]) == (10.0, pytest.approx(50.0 + 90.0 * 10 / 140))


def test_a_tally_never_exceeds_its_window_nor_touches_what_is_not_its():
    story = Story("P").start(0, trains=10).at(60, facts.Stalled("s", "P", "P1", "hang", 30.0, 30.0))
    story.tallied(60, -50, until_s=500, training=10_000)
    assert story.booked(60) == {"TRAINING": 20.0, "RESTARTING": 40.0}


# --- lost ----------------------------------------------------------------------------------------------------------------


def lost(story, now_s=400):
    return round(story.booked(now_s).get("LOST", 0.0), 6)


def test_lost_is_booked_where_it_was_computed():
    story = Story("P").start(0, trains=0).resumed(0, 0).saved(60, 600).dies(90, steps=900).start(90, trains=100)
    story.resumed(100, 600, 300)
    assert lost(story) == 30.0
    assert story.booked(400, until=60.0) == {"TRAINING": 60.0}
    assert story.booked(400, since=60.0, until=90.0) == {"LOST": 30.0}, "in the slice in which it was computed"
    assert story.summary(400, since=60.0, until=90.0).slots.lost_steps == 0
    assert story.summary(400, since=90.0).slots.lost_steps == 300, "and counted when it was told"


def test_a_wall_clock_that_jumps_moves_nothing():
    story = Story("P").start(0, trains=10).dies(100, steps=1, until=110).start(110, trains=120)
    jumped = [Stamped(r.seq, r.at_s, r.wall_s - (3600.0 if r.at_s >= 100 else 0.0), r.boot_id, r.fact) for r in story.rows]
    assert fold_accounts(jumped).closed(200.0).timelines == fold_accounts(story.rows).closed(200.0).timelines


def test_between_two_marks_steps_are_even():
    story = Story("P").start(0, trains=0).resumed(0, 0).saved(100, 1000).dies(200, steps=2000).start(200, trains=200)
    assert lost(story.resumed(200, 1500, 500)) == 50.0
    story.dies(300, steps=2500).start(300, trains=300)
    assert lost(story.resumed(300, 1250, 1250)) == 75.0 + 100.0, "deeper: of both attempts, nothing twice"
    story.dies(310, steps=1300).start(310, trains=310)
    assert lost(story.resumed(310, 0, 1300)) == 310.0


def test_a_stall_between_the_marks_is_not_computing():
    story = Story("P").start(0, trains=0).resumed(0, 0).at(360, facts.Stalled("s", "P", "P1", "hang", 60.0, 30.0))
    story.dies(360, steps=3000).start(360, trains=360).resumed(360, 2900, 100)
    assert lost(story) == 10.0
    assert story.booked(400, until=300.0)["LOST"] == 10.0


def test_a_rollback_out_of_a_mixed_slice():
    story = Story("P").start(0, trains=0).resumed(0, 0).tallied(100, 0, training=80, saving=20, steps=1000)
    story.dies(100, steps=1000).start(100, trains=100).resumed(100, 500, 500)
    assert story.booked(100) == {"TRAINING": 40.0, "SAVING": 20.0, "LOST": 40.0}
    story.dies(100, steps=500).start(100, trains=100).resumed(100, 0, 500)
    assert story.booked(100) == {"SAVING": 20.0, "LOST": 80.0}


@pytest.mark.parametrize(
    ("marks", "resumed", "told_s", "expected"),
    [
        ([(100, 1000)], 1000, None, 100.0),  # nothing known of how far it came after it: all of that
        ([(50, 500), (100, 1000)], 1500, None, 50.0),  # a newer one than we had heard of: by the rate until then
        ([(50, 500), (100, 1000)], 9999, None, 0.0),
        ([(100, 1000)], 1500, 30.0, 30.0),  # no rate: what the core said
        ([(100, 1000)], 1500, None, 0.0),
        ([(100, 1000)], 1500, 5000.0, 100.0),  # never more than there was
        ([], 1500, 30.0, 30.0),
        ([], 1500, None, 0.0),
        ([], 1500, 1e-15, 0.0),  # less than a float can tell at that moment
        ([(0.0, 7), (0.0, 9)], 20, 4.0, 4.0),  # marks without time between them are no rate
    ],
)
def test_rollbacks_by_what_is_known(marks, resumed, told_s, expected):
    story = Story("P").start(0, trains=0)
    for at_s, step in marks:
        story.saved(at_s, step)
    story.dies(200).start(200, trains=200).resumed(200, resumed, None, told_s)
    assert lost(story) == expected


@pytest.mark.parametrize("startup_s", [0, 10])
def test_a_resume_that_is_heard_of_late_takes_nothing_from_its_own_attempt(startup_s):
    story = Story("P").start(0, trains=0).resumed(0, 0).saved(100, 1000).dies(200, steps=2000)
    story.start(200, trains=200 + startup_s).resumed(250, 1000, 1000)
    assert lost(story, 250) == 100.0
    assert story.booked(250, since=200.0 + startup_s) == {"TRAINING": 50.0 - startup_s}


def test_lost_time_that_nobody_knows_is_unknown_and_not_zero():
    story = Story("P").start(0, trains=0).saved(40, 500).dies(50).start(50, trains=60).resumed(60, 800)
    sheet = story.summary(100).slots
    assert (sheet.lost_unknown, sheet.lost_s_unknown) == (1, 1), "one mark gives no rate, and nobody told the seconds"
    nothing_known = Story("P").start(0, trains=0).dies(50).start(50, trains=60).resumed(60, 800)
    assert nothing_known.summary(100).slots.lost_s_unknown == 1, "it trained for 50 s, behind a step that nobody knows"
    first = Story("P").start(0).resumed(5, 0)
    assert first.summary(10).slots.lost_s_unknown == 0, "nothing was trained before"
    at_once = Story("P").start(0).resumed(5, 0).dies(6).start(7).resumed(9, 5)
    assert at_once.summary(10).slots.lost_s_unknown == 0


def test_more_loss_than_there_was_training_takes_all_of_it():
    story = Story("P").start(0, trains=0).saved(40, 500).dies(50).start(50, trains=60).resumed(60, 100, 400, 1_000.0)
    assert story.booked(100) == {"LOST": 50.0, "RESTARTING": 10.0, "TRAINING": 40.0}


@pytest.mark.parametrize("part", [0.5, 0.75, 0.999999])
def test_a_loss_that_leaves_less_of_a_slice_than_a_float_can_say_takes_the_whole_slice(part):
    """After half a year a float's next moment is 2 ns away: a slice of no length would be divided by at the next resume."""
    begin_s = 2.0**24
    end_s = math.nextafter(begin_s, math.inf)
    training = Slice(begin_s, end_s, {Account.TRAINING: end_s - begin_s}, holds=True)
    timeline = ProgramTimeline("P", 0.0, end_s, Account.TRAINING, slices=[training], began_s=end_s)
    assert timeline.roll_back(end_s, 0, (end_s - begin_s) * part) == pytest.approx((end_s - begin_s) * part)
    assert all(piece.end_s > piece.start_s for piece in timeline.slices)
    assert timeline.roll_back(end_s, 0, None) is not None, "the account can be asked again"
    assert sum(timeline.slices[0].seconds.values()) == end_s - begin_s


@given(
    st.integers(0, 2**25), st.lists(st.tuples(st.floats(0.001, 1e4), st.integers(0, 400), st.integers(0, 400)), max_size=12)
)
def test_resumes_at_any_step_leave_no_slice_without_length(begin_s, attempts):
    """The same step again and again, as a program that dies before its next checkpoint does it."""
    story, at_s, step = Story("P"), float(begin_s), 0
    for took_s, gained, back in attempts:
        story.start(at_s, trains=at_s).resumed(at_s, step)
        story.saved(at_s + took_s / 3, step + gained).dies(at_s + took_s, steps=step + gained)
        at_s, step = at_s + took_s, max(0, step + gained - back)
    slices = fold_accounts(story.rows).closed(at_s).timelines["P"].slices
    assert account_errors(story.rows, at_s) == []
    assert [piece for piece in slices if piece.end_s <= piece.start_s] == []
    assert bool(slices) == (at_s > 0)


# --- where the journal begins --------------------------------------------------------------------------------------------


def test_the_books_begin_with_a_snapshot():
    core = Core(settings("A", "B", spec("C", autostart=False), slots=2)).running("A")
    core.spawned("B")
    core.look(A={"steps": 700}, B={"ready": False, "phase": "building"})
    ledger = Ledger()
    ledger.add(Stamped(9, 100.0, WALL_S, "b", facts.Snapshot("older ones are in the archive", as_text(core.state))))
    found = accounts.summary(ledger.closed(110.0))
    booked = {sheet.name: {str(a): s for a, s in sheet.seconds.items()} for sheet in (found.slots, *found.programs)}
    assert booked == {
        "A": {"TRAINING": 10.0}, "B": {"RESTARTING": 10.0}, "C": {"IDLE": 10.0}, "slots": {"RESTARTING": 10.0, "TRAINING": 10.0},
    }  # fmt: skip
    again = ledger.copy()
    again.add(Stamped(10, 110.0, WALL_S + 10, "b", facts.Snapshot("again", as_text(core.state))))
    assert again.timelines == ledger.timelines, "a later one says nothing new"


def test_facts_that_are_missing_leave_seconds_that_nobody_can_book():
    story = Story("P").start(0, trains=10)
    story.at(50, facts.Exited("gone", "P", "P1", "killed", None, 9, None, None))
    assert account_errors(story.rows, 60.0) == [
        "slots: 10.000000 s belong to no known account",
        "P: 10.000000 s belong to no known account",
    ]


# --- from the core, and to people ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (Since(), 0.0),
        (Since(ago_s=50.0), 150.0),
        (Since(ago_s=5000.0), 0.0),
        (Since(boot=True), 140.0),
        (Since(wall_s=WALL_S + 70.0), 70.0),
        (Since(wall_s=WALL_S - 70.0), 0.0),
        (Since(wall_s=WALL_S + 7000.0), 200.0),
    ],
)
def test_windows_are_asked_for_in_words(since, expected):
    story = Story("P").start(0, trains=10).at(150, rebooted(), daemon(100.0), gone(), facts.Requeued("resumes", "P"))
    closed = fold_accounts(story.rows).closed(200.0)
    assert since_s(closed, since) == expected
    assert since_s(fold_accounts(Story("P").rows).closed(50.0), Since(boot=True)) == 0.0
    view = accounts_view(closed, accounts.summary(closed, since_s=since_s(closed, since)), wall_s=WALL_S + 200.0)
    assert view["until_wall_s"] - view["since_wall_s"] == pytest.approx(200.0 - expected)
    assert sum(view["total"]["seconds"].values()) == pytest.approx(view["total"]["wall_s"])
    assert list(view["total"]["seconds"]) == [account.value for account in Account]
    assert view["total"]["reboots"] == (1 if expected < 140.0 else 0)


def test_the_view_of_an_empty_journal():
    empty = Ledger().closed(5.0)
    view = accounts_view(empty, accounts.summary(empty, since_s=since_s(empty, Since(wall_s=3.0))), wall_s=WALL_S)
    assert (view["slots"], view["programs"], view["total"]["ettr"]) == (None, [], None)


def test_what_was_trained_before_a_restart_of_unknown_resume_is_unknown():
    def again(story, at_s):
        return story.at(at_s, facts.ResumeUnknown("u", "P", story.token))

    story = Story("P").start(0, trains=10).dies(110, until=110)
    story.start(110, trains=120)
    assert story.booked(130) == {"RESTARTING": 20.0, "TRAINING": 110.0}, "it may still report it"
    again(story, 130)
    assert story.booked(140) == {"RESTARTING": 20.0, "UNKNOWN": 100.0, "TRAINING": 20.0}
    assert story.booked(140, name="slots") == {"RESTARTING": 20.0, "UNKNOWN": 100.0, "TRAINING": 20.0}
    story.dies(220, until=220).start(220, trains=230)
    again(story, 240)
    assert story.booked(250) == {"RESTARTING": 30.0, "UNKNOWN": 200.0, "TRAINING": 20.0}
    sheet = story.summary(250).programs[0]
    assert (sheet.lost_unknown, sheet.lost_s_unknown, sheet.lost_steps) == (2, 2, 0)
    assert sheet.ettr == 20.0 / 250.0
    story.dies(300, until=300).start(300, trains=310).resumed(311, 40, None)
    booked = story.booked(320)
    assert booked["UNKNOWN"] == 200.0, "a later report says nothing about what came before"
