"""Backups and the way back to one, by hand: what is recorded before what is done."""

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, gpu, gpus, kinds, of, reply, settings, spec

from supervisor.features.alerts.messages import WriteAlert
from supervisor.features.backups.messages import (
    Backup,
    BackupChecked,
    BackupDue,
    BackupMade,
    BackupRestored,
    CheckBackup,
    RestoreBackup,
)
from supervisor.features.backups.record import BackupRecord
from supervisor.features.backups.settings import BackupSettings
from supervisor.model.inputs import Asked, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level
from supervisor.policy.box.gate import GateSettings


def ask(core, verb, *names, text=""):
    core.request += 1
    return core.give(Asked(core.now_s, verb, core.request, names, "", "alice", 1000, text))


def running(*names, **more):
    return Core(settings(*(names or ("Pong", "Qbert")), **more)).running(*(names or ("Pong", "Qbert")))


def rolling(core, *names, backup="b"):
    """Asked for and verified."""
    _, code, kept_as = reply(ask(core, Verb.ROLLBACK, *names, text=backup))
    assert code == 80
    core.give(BackupChecked(core.now_s, kept_as, "", names or ("Pong", "Qbert")))
    return kept_as


# --- making one --------------------------------------------------------------------------------------------------------


def test_a_backup_is_on_record_before_it_is_begun_and_ends_once():
    core = running()
    asked = ask(core, Verb.BACKUP, text="Before Friday")
    name, code, text = reply(asked)
    assert (code, text) == (80, "started")
    assert name.endswith("-before-friday")
    assert kinds(asked) == ["OperatorAsked", "BackupIntended"]
    assert of(asked, Backup) == [Backup(name, "Before Friday", "operator", ("Pong", "Qbert"))]
    assert of(core.later(1).woke(), Backup) == []
    made = core.give(BackupMade(core.now_s, name, "", {"Pong": 5}, 2_000_000, "link", ("old",)))
    (fact,) = of(made, facts.BackedUp)
    assert (
        fact.why
        == f"backup {name} is complete: 1 program, 2.0 MB (link); no checkpoint yet of Qbert; older ones removed: old"
    )
    assert core.state.backups.making == ()
    assert [(end.name, end.ok) for end in core.state.backups.ends] == [(name, True)]
    assert kinds(core.give(BackupMade(core.now_s, name))) == []
    both, _, _ = reply(ask(core, Verb.BACKUP))
    whole = core.give(BackupMade(core.now_s, both, "", {"Pong": 5, "Qbert": 6}, 1_000_000, "copy"))
    assert of(whole, facts.BackedUp)[0].why == f"backup {both} is complete: 2 programs, 1.0 MB (copy)"


def test_a_program_that_could_not_be_saved_is_named_and_an_alert():
    core = running()
    name, _, _ = reply(ask(core, Verb.BACKUP))
    made = core.give(BackupMade(core.now_s, name, "", {"Pong": 5}, 2_000_000, "link", (), {"Qbert": "x is no name"}))
    (fact,) = of(made, facts.BackedUp)
    assert fact.why == f"backup {name} lacks Qbert: 1 program, 2.0 MB (link); Qbert could not be saved: x is no name"
    assert fact.missed == {"Qbert": "x is no name"}
    assert [(end.name, end.ok, end.text) for end in core.state.backups.ends] == [(name, False, fact.why)]
    assert [command.notice.kind for command in of(made, WriteAlert)] == ["backup"]
    name, _, _ = reply(ask(core.later(10_000.0), Verb.BACKUP))
    failed = core.give(BackupMade(core.now_s, name, "the disk is full"))
    assert [command.notice.kind for command in of(failed, WriteAlert)] == ["backup"]


def test_another_daemon_begins_anew_what_the_one_before_did_not_finish():
    core = running()
    name, _, _ = reply(ask(core, Verb.BACKUP))
    again = core.later(5).begin()
    assert [command.name for command in of(again, Backup)] == [name]


def test_the_calendar_is_answered_once():
    core = running()
    wall_s = core.wall_offset_s
    assert kinds(core.give(BackupDue(core.now_s, wall_s - 10))) == []  # before there was anything
    due = core.give(BackupDue(core.now_s, wall_s + 0.5))
    (fact,) = of(due, facts.BackupIntended)
    assert (fact.cause, fact.programs, fact.due_wall_s) == ("calendar", ("Pong", "Qbert"), wall_s + 0.5)
    assert fact.name.endswith("-calendar")
    assert kinds(core.give(BackupDue(core.now_s, wall_s + 0.5))) == []


def test_before_another_level_there_is_a_backup():
    core = running()
    heavy = Level("heavy", 2, 256)
    changed = core.load(replace(core.settings, level=heavy))
    assert [(each.cause, each.label) for each in of(changed, Backup)] == [("level", "before heavy")]
    assert kinds(changed).index("BackupIntended") < kinds(changed).index("LevelChosen")
    more_slots = core.load(replace(core.settings, level=replace(heavy, slots=3)))
    assert of(more_slots, Backup) == [], "the same level with another slot is no risk of its own"


def test_no_backup_before_a_level_where_none_is_wanted_or_nothing_ran():
    core = running(backup=BackupSettings(before_level=False))
    assert of(core.load(replace(core.settings, level=Level("heavy"))), Backup) == []
    fresh = Core(settings(spec("Pong", autostart=False)))
    fresh.begin()
    assert of(fresh.load(replace(fresh.settings, level=Level("heavy"))), Backup) == []


# --- going back ----------------------------------------------------------------------------------------------------------


def test_a_rollback_verifies_first_then_stops_then_restores_then_goes_on():
    core = running()
    asked = ask(core, Verb.ROLLBACK, "Pong", text="b")
    _, _, kept_as = reply(asked)
    assert kinds(asked) == ["OperatorAsked", "RollbackIntended"]
    assert of(asked, CheckBackup) == [CheckBackup("b", ("Pong",), kept_as)]
    assert core.phase("Pong") is Phase.RUNNING, "nothing is touched before the backup is known to be whole"

    begun = core.later(1).give(BackupChecked(core.now_s, kept_as, "", ("Pong",)))
    assert kinds(begun)[0] == "RollbackBegun"
    assert (core.phase("Pong"), core.phase("Qbert")) == (Phase.STOPPING, Phase.RUNNING)
    assert of(begun, RestoreBackup) == []

    left = core.later(1).ended("Pong", code=75, steps=900, ckpt_step=900)
    assert of(left, RestoreBackup) == [RestoreBackup("b", ("Pong",), kept_as)]
    assert of(left, commands.Spawn) == []
    assert core.phase("Pong") is Phase.QUEUED
    assert of(core.later(1).woke(), RestoreBackup) == []

    done = core.later(1).give(BackupRestored(core.now_s, kept_as, "", {"Pong": 500}, kept=True))
    (fact,) = of(done, facts.RolledBackTo)
    assert fact.why == f"rolled back to b: Pong at step 500; the state before it is backup {kept_as}"
    assert core.program("Pong").ckpt.step == 500
    assert [command.spec.name for command in of(done, commands.Spawn)] == ["Pong"]
    assert core.state.backups.rollback is None


def test_a_damaged_backup_is_refused_and_nothing_is_touched():
    core = running()
    _, _, kept_as = reply(ask(core, Verb.ROLLBACK, text="b"))
    refused = core.give(BackupChecked(core.now_s, kept_as, "Pong, ckpt-5: state.json does not match its digest"))
    assert kinds(refused) == ["RollbackFailed"]
    assert "nothing was changed" in of(refused, facts.RollbackFailed)[0].why
    assert {core.phase(name) for name in ("Pong", "Qbert")} == {Phase.RUNNING}
    assert core.state.backups.rollback is None
    assert kinds(core.give(BackupChecked(core.now_s, kept_as, "", ("Pong",)))) == [], "it is over"


def test_a_backup_of_programs_that_are_gone_is_refused():
    core = running()
    _, _, kept_as = reply(ask(core, Verb.ROLLBACK, text="b"))
    refused = core.give(BackupChecked(core.now_s, kept_as, "", ("Gone",)))
    assert "none of the configured programs" in of(refused, facts.RollbackFailed)[0].error


def test_only_one_rollback_at_a_time():
    core = running()
    ask(core, Verb.ROLLBACK, text="b")
    assert reply(ask(core, Verb.ROLLBACK, text="c"))[1:] == (30, "a rollback to b is under way; wait for its end")


def test_the_slot_of_one_that_goes_back_is_not_handed_on():
    core = Core(settings("Pong", "Qbert", slots=1))
    core.begin()
    core.running("Pong")
    kept_as = rolling(core, "Pong")
    left = core.later(1).ended("Pong", code=75)
    assert of(left, commands.Spawn) == []
    done = core.give(BackupRestored(core.now_s, kept_as, "", {"Pong": 5}))
    assert [command.spec.name for command in of(done, commands.Spawn)] == ["Pong"]


@pytest.mark.parametrize(
    ("error", "restored", "says"),
    [
        ("the disk is full", {}, "nothing was changed"),
        ("Qbert: Input/output error", {"Pong": 500}, "already rolled back: Pong"),
    ],
)
def test_a_rollback_that_fails_says_who_got_there_and_all_train_on(error, restored, says):
    core = running()
    kept_as = rolling(core)
    for name in ("Pong", "Qbert"):
        core.ended(name, code=75, ckpt_step=900)
    failed = core.give(BackupRestored(core.now_s, kept_as, error, restored))
    assert says in of(failed, facts.RollbackFailed)[0].why
    assert len(of(failed, commands.Spawn)) == 2
    assert [core.program(name).ckpt.step for name in ("Pong", "Qbert")] == [restored.get("Pong", 900), 900]


def test_a_program_that_was_done_trains_again_and_one_that_was_stopped_stays_down():
    core = running()
    core.ended("Pong", code=0)
    core.ask("stop", "Qbert")
    core.ended("Qbert", code=75)
    kept_as = rolling(core)
    done = core.give(BackupRestored(core.now_s, kept_as, "", {"Pong": 5, "Qbert": 6, "Gone": 7}))
    assert core.phase("Qbert") is Phase.STOPPED
    assert [command.spec.name for command in of(done, commands.Spawn)] == ["Pong"]


def test_one_that_waits_after_a_death_waits_for_the_rollback_instead():
    core = Core(settings("Pong"))
    core.into(Phase.BACKOFF)
    kept_as = rolling(core, "Pong")
    assert of(core.later(1000).woke(), commands.Spawn) == []
    assert of(core.give(BackupRestored(core.now_s, kept_as, "", {"Pong": 5})), commands.Spawn)


def test_one_that_waits_for_memory_waits_for_the_rollback_instead_and_then_for_memory_again():
    core = Core(settings("Pong", gate=GateSettings(min_free_mb=12_000)))
    core.begin()
    core.see(gpus(gpu(free_mb=3_000)))
    assert core.phase("Pong") is Phase.GATED
    kept_as = rolling(core, "Pong")
    assert of(core.later(1).see(gpus(gpu(free_mb=50_000))), commands.Spawn) == [], "its checkpoints are being replaced"
    core.later(1).see(gpus(gpu(free_mb=3_000)))
    core.give(BackupRestored(core.now_s, kept_as, "", {"Pong": 5}))
    assert core.phase("Pong") is Phase.GATED
    assert of(core.later(1).see(gpus(gpu(free_mb=50_000))), commands.Spawn)


def test_nothing_is_begun_while_extralife_ends():
    core = running()
    core.terminate()
    assert reply(ask(core, Verb.BACKUP, text="x")) == ("x", 6, "extralife is shutting down")
    assert reply(ask(core, Verb.BACKUP))[0] == "backup"
    core.give(BackupDue(core.now_s, core.wall_offset_s + 99))
    assert of(core.last, Backup) == []


def test_news_of_a_rollback_that_is_not_is_passed_over():
    core = running()
    assert kinds(core.give(BackupRestored(core.now_s, "x"))) == []
    _, _, kept_as = reply(ask(core, Verb.ROLLBACK, text="b"))
    assert kinds(core.give(BackupRestored(core.now_s, kept_as))) == [], "it was not begun"
    core.give(BackupChecked(core.now_s, kept_as, "", ("Pong",)))
    assert kinds(core.give(BackupChecked(core.now_s, kept_as, "", ("Pong",)))) == [], "it was begun"


def test_facts_of_a_rollback_that_is_not_on_record_change_nothing():
    """A damaged journal may have lost the intent."""
    for fact in (facts.RollbackBegun("w", "b", ("Pong",)), facts.RolledBackTo("w", "b", {}, "k")):
        assert BackupRecord().after(facts.Stamped(0, 0.0, 0.0, "boot", fact)) == BackupRecord()
