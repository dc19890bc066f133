"""The accounts add up, whatever happens; what a second is booked as is told by tables."""

from core_kit import Core, settings, spec

from supervisor.core import accounts, facts
from supervisor.core.ledger import fold_accounts


def sheets(core, **window):
    """Seconds by account of each program and of the slots, everything checked to add up first."""
    assert accounts.check(core.journal, core.now_s) == []
    found = accounts.summary(fold_accounts(core.journal).closed(core.now_s), **window)
    return {sheet.name: {str(a): round(s, 6) for a, s in sheet.seconds.items()} for sheet in (*found.programs, found.slots)}


def test_a_program_that_starts_trains_and_stalls():
    core = Core(settings("Pong", slots=1))
    core.begin()
    core.spawned("Pong")
    core.later(20.0).look(Pong={})
    core.watch(100.0, Pong={})
    stuck_s = core.now_s
    core.watch(40.0, Pong={"progress_at_s": stuck_s, "live_at_s": lambda now: now})
    assert core.told_at(facts.Stalled) == stuck_s + 31.0
    booked = sheets(core)["Pong"]
    assert booked == {"DETECT": 31.0, "TERMINATE": 9.0, "STARTUP": 20.0, "PRODUCTIVE": 100.0}
    assert sheets(core)["slots"] == booked


def test_a_free_slot_is_idle_and_a_full_one_makes_wait():
    core = Core(settings("A", "B", spec("C", autostart=False), slots=1))
    core.begin()
    core.spawned("A")
    core.later(10.0).woke()
    assert sheets(core) == {
        "A": {"STARTUP": 10.0},
        "B": {"ADMISSION": 10.0},
        "C": {"IDLE": 10.0},
        "slots": {"STARTUP": 10.0},
    }


def test_the_sheet_of_a_journal_in_which_nothing_was_ever_begun():
    assert accounts.check([], 0.0) == []
