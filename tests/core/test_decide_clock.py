"""A boot whose clock begins in 1970: all of its times are mended once the network has set it."""

import pytest
from core_kit import Core, commands, facts, kinds, of, settings

from supervisor.model.codec import as_text, of_text
from supervisor.model.fold import fold_all, with_times
from supervisor.model.inputs import ClockMoved
from supervisor.model.state import State
from supervisor.reports.ledger import fold_accounts
from supervisor.reports.status_view import box_view

NOW_S = 1_795_237_320.0


def in_1970(core, boot="boot-2", **evidence):
    """The box restarts 50 s after its last sign of life, and 3 s before the daemon starts; its clock says 1970."""
    sign_wall_s = core.wall_offset_s + core.now_s
    core.later(53.0)
    right_offset_s, core.wall_offset_s = core.wall_offset_s, 12.0 - core.now_s
    core.reboot(boot, down_s=None, last_sign_wall_s=sign_wall_s, last_sign_s=core.now_s - 53.0, boot_wall_s=9.0, **evidence)
    core.spawned("Pong")
    core.later(1.0).look(Pong={})
    return right_offset_s


def set_clock(core, right_offset_s):
    step_s, core.wall_offset_s = right_offset_s - core.wall_offset_s, right_offset_s
    return core.give(ClockMoved(core.now_s, step_s))


def test_the_times_of_the_boot_are_mended_once_it_is_set():
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    right = in_1970(core)
    assert core.state.reboots[-1].wall_s == 12.0
    assert core.state.reboots[-1].down_s is None, "unknown, not 56 years"
    rebooted_s = core.state.reboots[-1].at_s
    decision = set_clock(core.later(60.0), right)
    assert kinds(decision) == ["ClockSet"]
    state = core.state
    assert state.reboots[-1].wall_s == pytest.approx(right + rebooted_s, abs=0.1)
    assert state.reboots[-1].down_s == pytest.approx(50.0)
    assert state.programs["Pong"].started_wall_s == pytest.approx(right + rebooted_s, abs=0.1)
    assert state.daemon_since_wall_s == pytest.approx(right + rebooted_s, abs=0.1)
    (told,) = of(decision, commands.AlertClock)
    assert (told.number, told.reboot_wall_s, told.down_s) == (
        1,
        pytest.approx(right + rebooted_s, abs=0.1),
        pytest.approx(50.0),
    )
    assert all(wall_s > 1.7e9 for wall_s in times(state)), "no time of 1970 is left"
    assert fold_all(core.journal) == of_text(State, as_text(state)) == state


def times(state):
    found = []
    with_times(state, lambda wall_s: found.append(wall_s) or wall_s)
    assert found
    return found


def test_a_clock_that_is_set_while_no_daemon_looks_is_noticed_by_the_next():
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    right = in_1970(core)
    core.later(60.0)
    core.wall_offset_s = right
    decision = core.begin(core.survivor("Pong", "alive"), boot_wall_s=right + core.now_s - 64.0)
    assert kinds(decision)[:2] == ["ClockSet", "DaemonStarted"]
    assert core.state.reboots[-1].down_s == pytest.approx(50.0)
    set_clock(core.later(9.0), right + 0.5)
    assert core.told(facts.ClockStepped), "a later step is a step"
    assert len(core.told(facts.ClockSet)) == 1


def test_the_move_that_was_noticed_already_is_not_told_twice():
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    right = in_1970(core)
    step_s, core.wall_offset_s = right - core.wall_offset_s, right
    core.later(5.0).look(Pong={})
    assert len(core.told(facts.ClockSet)) == 1
    core.give(ClockMoved(core.now_s, step_s))
    assert not core.told(facts.ClockStepped)


def test_without_a_reboot_or_what_its_downtime_takes_only_times_are_mended():
    fresh = Core(settings("Pong"), wall_offset_s=12.0).running("Pong")
    fresh.wall_offset_s = NOW_S
    decision = fresh.later(5.0).look(Pong={})
    assert (fresh.told(facts.ClockSet)[0].reboot_wall_s, of(decision, commands.AlertClock)) == (None, [])
    known = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    known.later(60.0).reboot("boot-2", boot_wall_s=None)
    known.spawned("Pong")
    assert not known.told(facts.ClockSet)
    blind = Core(settings("Pong"), wall_offset_s=12.0).running("Pong")
    blind.later(60.0).reboot("boot-2", boot_wall_s=9.0, last_sign_wall_s=50.0)
    blind.wall_offset_s = NOW_S
    blind.later(5.0).look()
    assert blind.told(facts.ClockSet)[-1].down_s is None, "the boot before had no clock either"


def test_a_downtime_that_would_be_negative_is_unknown():
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    right = in_1970(core)
    set_clock(core.later(60.0), right - 3600.0)
    assert core.state.reboots[-1].down_s is None


def test_reboots_of_a_day_are_counted_by_journal_time():
    """By a clock of 1970 all reboots that ever were would be of the last 24 h."""
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    core.later(600.0).reboot("boot-2")
    core.later(200_000.0)
    in_1970(core, "boot-3")
    shown = box_view(core.state, now_s=core.now_s, boot_at_s=None)
    assert (shown["reboots_24h"], shown["last_reboot"]["ago_s"]) == (1, 1.0)


def test_windows_of_the_accounts_go_by_the_mended_clock():
    core = Core(settings("Pong"), wall_offset_s=NOW_S).running("Pong")
    right = in_1970(core)
    set_clock(core.later(60.0), right)
    clocks = fold_accounts(core.journal).clocks
    assert clocks
    assert all(wall_s == pytest.approx(at_s + right, abs=0.1) for at_s, wall_s in clocks)
