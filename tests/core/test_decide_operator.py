"""What operators ask for in every phase, what the config changes, and the orderly end."""

import dataclasses
from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor import config
from supervisor.deciding.context import DecisionContext
from supervisor.model.codes import SUCCESS
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import Began, BootEvidence, ConfigFaulty, ConfigLoaded, Survival
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.model.settings import SECTIONS
from supervisor.policy.worker.stall import StallSettings
from supervisor.reports.view import program_views

OK, BAD_NAME, SHUTDOWN_STATE, ALREADY_STARTED, NOT_RUNNING = 80, 10, 6, 60, 70


def answer(decision, request=None):
    """The reply to a request (the only one, where none is named), or None while it waits."""
    replies = [reply for reply in of(decision, commands.Reply) if request in {None, reply.request_id}]
    assert len(replies) <= 1
    return replies[0].results if replies else None


AFTER = {  # verb -> phase -> (code or None: answered later, phase at once)
    "start": {
        Phase.QUEUED: (OK, Phase.QUEUED), Phase.GATED: (OK, Phase.GATED),
        Phase.STARTING: (ALREADY_STARTED, Phase.STARTING),
        Phase.RUNNING: (ALREADY_STARTED, Phase.RUNNING), Phase.STOPPING: (OK, Phase.STOPPING),
        Phase.BACKOFF: (OK, Phase.STARTING), Phase.DONE: (OK, Phase.STARTING), Phase.STOPPED: (OK, Phase.STARTING),
        Phase.FATAL: (OK, Phase.STARTING), Phase.EXITED: (OK, Phase.STARTING),
    },
    "stop": {
        Phase.QUEUED: (OK, Phase.STOPPED), Phase.GATED: (OK, Phase.STOPPED), Phase.STARTING: (None, Phase.STOPPING),
        Phase.RUNNING: (None, Phase.STOPPING), Phase.STOPPING: (None, Phase.STOPPING),
        Phase.BACKOFF: (OK, Phase.STOPPED), Phase.DONE: (NOT_RUNNING, Phase.DONE), Phase.STOPPED: (NOT_RUNNING, Phase.STOPPED),
        Phase.FATAL: (OK, Phase.STOPPED), Phase.EXITED: (OK, Phase.STOPPED),
    },
    "restart": {
        Phase.QUEUED: (OK, Phase.QUEUED), Phase.GATED: (OK, Phase.GATED), Phase.STARTING: (None, Phase.STOPPING),
        Phase.RUNNING: (None, Phase.STOPPING), Phase.STOPPING: (None, Phase.STOPPING),
        Phase.BACKOFF: (OK, Phase.STARTING), Phase.DONE: (OK, Phase.STARTING), Phase.STOPPED: (OK, Phase.STARTING),
        Phase.FATAL: (OK, Phase.STARTING), Phase.EXITED: (OK, Phase.STARTING),
    },
    "signal": {
        phase: (OK if phase in {Phase.RUNNING, Phase.STOPPING} else NOT_RUNNING, phase) for phase in Phase
    },
}  # fmt: skip


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("verb", list(AFTER))
def test_every_verb_in_every_phase_is_answered(verb, phase):
    core = Core(settings("Pong", slots=1)).into(phase)
    code, after = AFTER[verb][phase]
    decision = core.ask(verb, "Pong", signal="SIGUSR2" if verb == "signal" else "")
    assert core.phase("Pong") is after
    results = answer(decision)
    if verb == "signal" and code == OK:
        assert results is None, "answered with the result of the signal"
        (command,) = of(decision, commands.SendSignal)
        assert (command.programs, command.signal) == ((("Pong", core.program("Pong").attempt.token),), "SIGUSR2")
        assert command.request_id == core.request
        return
    if code is None:
        assert results is None, "answered once it is down"
        results = answer(core.ended("Pong", code=75), core.request)
        code = OK
    assert [(name, found) for name, found, _ in results] == [("Pong", code)]
    assert all(text for *_, text in results)
    if verb == "stop":
        assert core.program("Pong").wanted == (phase is Phase.DONE)
    if verb == "restart":
        assert core.phase("Pong") in {Phase.STARTING, Phase.QUEUED, Phase.GATED}
    assert core.told(facts.OperatorAsked)[-1].args == (("Pong", "SIGUSR2") if verb == "signal" else ("Pong",))
    assert core.told(facts.OperatorAsked)[-1].uid == 1000


@pytest.mark.parametrize("verb", list(AFTER))
def test_a_name_that_is_not_there(verb):
    core = Core(settings("Pong")).running("Pong")
    assert answer(core.ask(verb, "Pung")) == (("Pung", BAD_NAME, "no such program"),)
    assert core.phase("Pong") is Phase.RUNNING


def test_one_request_for_several_is_answered_once_the_last_is_down():
    core = Core(settings("A", "B", "C", slots=2)).running("A", "B")
    decision = core.ask("stop", "A", "B", "C", "D")
    assert answer(decision) is None
    other = core.ask("stop", "B")
    assert answer(other) is None
    assert answer(core.ended("A", code=75)) is None
    replies = of(core.ended("B", code=75), commands.Reply)
    assert [(reply.request_id, reply.results) for reply in replies] == [
        (1, (("A", OK, "stopped"), ("B", OK, "stopped"), ("C", OK, "stopped"), ("D", BAD_NAME, "no such program"))),
        (2, (("B", OK, "stopped"),)),
    ]


def test_a_request_that_waits_for_a_worker_in_the_kernel_is_answered_so():
    core = Core(settings("Pong")).running("Pong")
    deep = {"progress_at_s": core.now_s, "proc_state": "D"}
    core.watch(31, Pong=deep)
    assert answer(core.ask("stop", "Pong")) is None
    decision = core.to_wake()
    assert of(decision, commands.KillTree)
    ((name, code, text),) = answer(decision)
    assert (name, code) == ("Pong", 30)
    assert text == (
        "did not exit within 20s: SIGKILL to its whole process tree; "
        "it is inside a kernel call (state D) and ends when that call returns"
    )
    assert answer(core.to_wake()) is None, "once"
    core.ended("Pong", signal=9)
    assert core.phase("Pong") is Phase.STOPPED


ROOTS = ("python3(812) of root",)


@pytest.mark.parametrize("seen", [{}, {"untouchable": ROOTS}])
def test_sigkills_without_effect_end_with_an_answer_an_alert_and_no_third(seen):
    from supervisor.features.alerts.settings import AlertSettings

    core = Core(settings("Pong", alerts=AlertSettings(command=("page",)))).running("Pong")
    core.look(Pong=seen)
    (view,) = program_views(core.state, {"Pong": core.sample("Pong", **seen)}, core.settings, now_s=core.now_s)
    assert (view["trouble"], "extralife may not signal" in view["why"]) == (("untouchable", True) if seen else (None, False))
    answers = [answer(core.ask("stop", "Pong"))]
    while core.wake_at_s is not None and len(answers) < 9:
        answers.append(answer(core.to_wake()))
    kills, (failed,) = core.told(facts.KillIntended), core.told(facts.NotEnded)
    assert len(kills) == (1 if seen else 2)
    assert ("python3(812) of root" in kills[0].why, "python3(812) of root" in failed.why) == (bool(seen), bool(seen))
    assert [each for each in answers if each] == [(("Pong", 30, failed.why),)]
    assert [fact.alert for fact in core.told(facts.AlertRaised)] == ["unended"]
    (view,) = program_views(core.state, {"Pong": core.sample("Pong", **seen)}, core.settings, now_s=core.now_s)
    assert (view["phase"], view["trouble"], view["why"]) == ("STOPPING", "unended", failed.why)
    again = core.ask("restart", "Pong")
    assert answer(again) == (("Pong", 30, failed.why),), "at once"
    assert of(again, commands.KillTree), "a person's request is tried"
    assert of(core.terminate(), commands.EndDaemon), "nothing is asked again"
    core.begin(core.survivor("Pong", Survival.ALIVE))
    core.ended("Pong", signal=9)
    assert core.phase("Pong") is Phase.STARTING


def test_a_daemon_that_ends_does_not_wait_for_what_it_cannot_end_and_its_successor_starts_nothing_beside_it():
    core = Core(settings("A", "B", slots=2)).running("A", "B")
    core.look(A={"untouchable": ROOTS}, B={})
    core.ask("shutdown")
    core.ended("B", code=75)
    while not core.memory.ended:
        core.to_wake()
    assert "A: it runs on: extralife may not signal python3(812) of root" in core.told(facts.DaemonStopped)[-1].why
    core.begin(core.survivor("A", Survival.ALIVE))
    assert core.phase("A") is Phase.STOPPING
    assert not core.later(3600.0).woke().facts


def test_one_look_in_state_d_is_no_grip_of_the_kernels():
    core = Core(settings("Pong")).running("Pong")
    core.ask("stop", "Pong")
    core.look(Pong={"proc_state": "D"})
    assert answer(core.to_wake()) is None, "perhaps it only waits for its disk"
    ((_, code, text),) = answer(core.to_wake())
    assert (code, "it is inside a kernel call" in text) == (30, True)


def test_start_while_it_still_leaves_brings_it_back():
    core = Core(settings("Pong")).running("Pong")
    core.ask("stop", "Pong")
    decision = core.ask("start", "Pong")
    assert answer(decision) == (("Pong", OK, "will be started once it has exited"),)
    core.ended("Pong", code=75)
    assert core.phase("Pong") is Phase.STARTING
    assert core.told(facts.Requeued)[-1].why == "the operator started it again"


def test_start_is_a_fresh_start():
    core = Core(settings("Pong")).into(Phase.BACKOFF)
    assert core.program("Pong").deaths.streak == 2
    core.ask("start", "Pong")
    assert (core.program("Pong").deaths.streak, core.program("Pong").deaths.at_s) == (0, ())
    core.spawned("Pong")
    core.ended("Pong", code=1)
    assert core.phase("Pong") is Phase.STARTING


def test_what_the_operator_stopped_stays_stopped_over_daemons_and_reboots():
    core = Core(settings("Pong", "Qbert")).running("Pong", "Qbert")
    core.ask("stop", "Pong")
    core.begin(core.survivor("Pong", Survival.ALIVE), core.survivor("Qbert", Survival.ALIVE))
    assert core.phase("Pong") is Phase.STOPPING
    assert of(core.last, commands.AskToLeave), "the daemon may have died between the fact and the signal"
    core.ended("Pong", code=75)
    assert core.phase("Pong") is Phase.STOPPED
    core.begin(core.survivor("Qbert", Survival.ALIVE))
    assert core.phase("Pong") is Phase.STOPPED
    core.later(500.0).reboot("boot-2")
    assert core.phase("Pong") is Phase.STOPPED
    assert core.phase("Qbert") is Phase.STARTING
    core.load(replace(core.settings, programs=(spec("Pong", digest="Pong-2"), spec("Qbert"))))
    assert core.phase("Pong") is Phase.STOPPED, "a new config is not the operator's `start`"


def test_stopped_while_the_host_went_down():
    core = Core(settings("Pong")).running("Pong")
    core.ask("stop", "Pong")
    core.later(9.0).reboot("boot-2")
    assert core.phase("Pong") is Phase.STOPPED


# --- SIGTERM, SIGKILL ---------------------------------------------------------------------------------------------------


def test_the_kill_is_due_over_a_daemons_death():
    core = Core(settings(spec("Pong", stop_grace_s=20.0))).running("Pong")
    core.ask("stop", "Pong")
    core.later(5.0).begin(core.survivor("Pong", Survival.ALIVE))
    assert not of(core.last, commands.KillTree)
    assert core.wake_at_s == core.attempt("Pong").stop.asked_at_s + 20.0
    assert of(core.to_wake(), commands.KillTree)


# --- the end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["shutdown", "SIGTERM"])
def test_an_orderly_end_waits_for_all(how):
    core = Core(settings("A", "B", "C", slots=2)).running("A", "B")
    decision = core.ask("shutdown") if how == "shutdown" else core.terminate()
    assert [fact.program for fact in of(decision, facts.StopIntended)] == ["A", "B"]
    if how == "shutdown":
        assert answer(decision) == ()
    assert core.phase("C") is Phase.QUEUED
    core.ended("A", code=75)
    assert core.phase("A") is Phase.QUEUED, "nothing is started any more"
    assert not of(core.last, commands.EndDaemon)
    assert answer(core.ask("start", "C")) == (("C", SHUTDOWN_STATE, "extralife is shutting down"),)
    assert core.terminate().facts == (), "asked twice is asked once"
    assert kinds(core.ask("shutdown")) == ["OperatorAsked"]
    last = core.ended("B", signal=9)
    assert kinds(last)[-1] == "DaemonStopped"
    assert [command.reexec for command in of(last, commands.EndDaemon)] == [False]
    assert core.memory.ended
    assert core.wake_at_s is None
    assert core.state.clean
    core.later(60.0).begin()
    assert core.told(facts.DaemonStarted)[-1].clean
    assert sorted(core.state.live) == ["A", "B"]
    assert core.program("A").restarts == 0


def test_an_end_with_nothing_running_is_at_once():
    core = Core(settings("Pong")).into(Phase.BACKOFF)
    decision = core.terminate()
    assert kinds(decision) == ["DaemonStopping", "DaemonStopped"]
    assert core.wake_at_s is None
    core.begin()
    assert core.phase("Pong") is Phase.BACKOFF
    empty = Core(settings())
    empty.begin()
    assert of(empty.terminate(), facts.DaemonStopped)[0].why == "no worker was running"


def test_reload_keeps_the_workers():
    core = Core(settings("Pong", "Qbert", slots=1)).running("Pong")
    decision = core.ask("reload")
    assert kinds(decision) == ["OperatorAsked", "DaemonStopping"]
    assert [command.reexec for command in of(decision, commands.EndDaemon)] == [True]
    assert core.phase("Pong") is Phase.RUNNING
    core.begin(core.survivor("Pong", Survival.ALIVE))
    started = core.told(facts.DaemonStarted)[-1]
    assert (started.clean, started.adopted) == (True, 1)
    assert started.why == "started, 1 running worker adopted"


@pytest.mark.parametrize("how", ["restart", "config", "reboot"])
def test_what_ran_keeps_its_slot_over_what_is_not_its_own_doing(how):
    """C has waited longer than anyone, and goes on waiting: the night's programs are the ones that resume."""
    core = Core(settings("A", "B", "C", slots=2)).running("A", "B")
    core.later(100.0)
    if how == "reboot":
        core.reboot("boot-2")
    elif how == "restart":
        core.ask("restart", "B")
        core.ended("B", code=75)
    else:
        core.load(replace(core.settings, programs=(spec("A"), spec("B", digest="B-2"), spec("C"))))
        core.ended("B", code=75)
    assert sorted(core.state.live) == ["A", "B"]
    core.running(*(name for name in core.state.live if core.phase(name) is Phase.STARTING))
    core.ended("A", code=0)
    assert core.phase("C") is Phase.STARTING


def test_a_daemon_that_dies_while_it_ends_goes_on_with_training():
    core = Core(settings("Pong")).running("Pong")
    core.terminate()
    core.begin(core.survivor("Pong", Survival.ALIVE))
    assert not core.state.stopping
    core.ended("Pong", code=75)
    assert core.phase("Pong") is Phase.STARTING
    assert core.told(facts.Requeued)[-1].why == "resumes when extralife starts again"


# --- the config ---------------------------------------------------------------------------------------------------------


def test_an_update_touches_only_what_it_changes():
    core = Core(settings("A", "B", "C", slots=4)).running("A", "B", "C")
    decision = core.load(settings(spec("A", priority=5), spec("B", digest="B-2"), "D", slots=4))
    assert [(fact.program, fact.reason) for fact in of(decision, facts.StopIntended)] == [("B", "config"), ("C", "config")]
    assert core.phase("A") is Phase.RUNNING, "priority needs no restart"
    assert core.phase("D") is Phase.STARTING
    core.ended("B", code=75)
    assert core.phase("B") is Phase.STARTING
    assert core.told(facts.SpawnIntended)[-1].digest == "B-2"
    core.ended("C", signal=9)
    assert "C" not in core.state.programs
    assert core.told(facts.ProgramRemoved)[0].program == "C"
    assert core.told(facts.OperatorAsked)[-1].request == "update"


def test_a_program_that_left_and_came_back_goes_on_counting_its_attempts():
    """Or its first attempt would have the token of the very first one, find that one's exit record, and give itself up."""
    core = Core(settings("A", "B")).running("A", "B")
    first = core.attempt("A")
    core.ask("stop", "A")
    core.ended("A", code=75)
    core.load(settings("B"), only=("A",))
    assert set(core.state.programs) == {"B"}
    core.load(settings("A", "B"), only=("A",))
    again = core.attempt("A")
    assert (first.number, again.number) == (1, 2)
    assert again.token != first.token
    assert core.program("A").exit.wall_s is None, "but for that it is new"
    stranger = Stamped(1, core.now_s, 0.0, "boot", facts.ProgramRemoved("of a journal that lost rows", "nobody"))
    assert fold(core.state, stranger).programs == core.state.programs


def test_an_update_of_one_section_changes_that_one_alone():
    core = Core(settings("A", slots=1)).running("A")
    new = replace(settings("A", "B", slots=3), stall=StallSettings(floor_s=99.0))
    core.load(new, only=("[level]",))
    assert core.state.slots == 3
    assert core.settings.stall == StallSettings()
    assert set(core.state.programs) == {"A"}
    core.load(new, only=("[stall]", "B"))
    assert core.settings.stall.floor_s == 99.0
    assert set(core.state.programs) == {"A", "B"}


def changed(section):
    """The section with every field that can be changed without a look at the others set to another value."""
    other = {}
    for each in dataclasses.fields(section):
        match getattr(section, each.name):
            case bool(value):
                other[each.name] = not value
            case int(value) | float(value):
                other[each.name] = value + 1
            case str(value):
                other[each.name] = f"{value}x"
            case tuple(value):
                other[each.name] = (*value, "x")
            case None if each.type in {"int | None", "float | None"}:
                other[each.name] = 1
            case value if dataclasses.is_dataclass(value):
                other[each.name] = changed(value)
            case value:
                assert value is None, f"this test does not know how to change {each.name}"
    return replace(section, **other)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_can_be_updated_alone(section):
    """A stock client updates section by section. One that is reported as applied must have arrived in the settings."""
    core = Core(settings("A")).running("A")
    new = replace(core.settings, **{section: changed(getattr(core.settings, section))})
    if section == "launcher":
        new = replace(new, launcher=replace(new.launcher, kind="local"))  # another kind waits for the daemon's next start
    assert f"[{section}]" in config.diff(core.settings, config.applicable(core.settings, new)).sections
    core.load(new, only=(f"[{section}]",))
    assert getattr(core.settings, section) == getattr(new, section) != getattr(settings("A"), section)


@pytest.mark.parametrize("named", ["[level]", "[levels]", "[load]"])
def test_the_three_sections_of_the_load_come_together(named):
    core = Core(settings("A")).running("A")
    level, load = changed(core.settings.level), changed(core.settings.load)
    core.load(replace(core.settings, level=level, load=load), only=(named,))
    assert (core.settings.level, core.settings.load) == (level, load)


def test_an_update_is_answered_once_its_settings_are_in_force():
    core = Core(settings("A")).running("A")
    decision = core.give(ConfigLoaded(core.now_s, settings("A", "B"), request_id=7))
    assert commands.Reply(7, (("", SUCCESS, ""),)) in decision.commands
    assert [spec.name for spec in decision.settings.programs] == ["A", "B"]
    decision = core.give(ConfigLoaded(core.now_s, settings("A")))
    assert not of(decision, commands.Reply), "nobody waits"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"digest": "A-2"}, "changed in the config: lr 0.0003 -> 0.001, priority 100 -> 5"),
        ({"priority": 5}, "changed without a restart: lr 0.0003 -> 0.001, priority 100 -> 5"),
    ],
)
def test_an_update_and_a_start_record_the_old_and_the_new_value_of_each_setting(after, why):
    changed = (
        ("cost.until", "default -> 10 June"), ("program.A.lr", "0.0003 -> 0.001"), ('program."A.b".lr', "1 -> 2"),
        ("program.A.priority", "100 -> 5"), ("program.gone.lr", "1 -> 2"),
    )  # fmt: skip
    before = settings("A", "A.b", slots=2)
    new = settings(replace(spec("A"), **after), "A.b", slots=2)
    core = Core(before).running("A", "A.b")
    core.give(ConfigLoaded(core.now_s, new, changed=changed))
    fact = core.told(facts.ProgramConfigured)[-1]
    assert (fact.program, fact.why) == ("A", f"{why} (the configuration was updated)")
    assert fact.changed == ("lr 0.0003 -> 0.001", "priority 100 -> 5")
    assert core.told(facts.OperatorAsked)[-1].why == "operator requested update: cost.until default -> 10 June"
    assert core.state.programs["A"].phase is (Phase.RUNNING if fact.live else Phase.STOPPING)
    core.give(ConfigLoaded(core.now_s, new, changed=changed))
    assert core.told(facts.ProgramConfigured)[-1] is fact, "its settings are in force already"
    core = Core(before).running("A", "A.b")
    begun = BootEvidence(core.boot_id, False, "test")
    core.give(Began(core.now_s, new, begun, {}, 101, "1", before=before, changed=changed))
    assert core.told(facts.ProgramConfigured)[-1].why == f"{why} (extralife started)"
    assert core.told(facts.DaemonStarted)[-1].why.endswith(": cost.until default -> 10 June")


def test_of_a_partial_update_only_its_sections_are_named_and_of_many_settings_the_first():
    core = Core(settings("A"))
    changed = (("alerts.mild", "default -> 1"), *((f"cost.{number}", "1 -> 2") for number in range(10)))
    core.give(ConfigLoaded(core.now_s, settings("A"), ("[alerts]",), changed=changed))
    assert core.told(facts.OperatorAsked)[-1].why == "operator requested update: alerts.mild default -> 1"
    core.give(ConfigLoaded(core.now_s, settings("A"), changed=changed))
    assert core.told(facts.OperatorAsked)[-1].why.endswith("cost.6 1 -> 2, and 3 more")


def test_a_refused_configuration_is_on_record_until_a_good_one_is_applied():
    core = Core(settings("A")).running("A")
    decision = core.give(ConfigFaulty(core.now_s, ("line 1: a", "line 2: b"), by="SIGHUP"))
    assert kinds(decision) == ["ConfigRefused"]
    assert decision.facts[0].why == (
        "SIGHUP asked to load a configuration that cannot be used, so the present one stays: line 1: a; line 2: b"
    )
    assert core.state.config.errors == ("line 1: a", "line 2: b")
    core.give(ConfigLoaded(core.now_s, core.settings, ("A",), of_file=False))
    assert core.state.config is not None, "a program was taken out, and the file not read"
    assert "ConfigMended" in kinds(core.load(core.settings))
    assert core.state.config is None
    assert "ConfigMended" not in kinds(core.load(core.settings))


def test_of_many_mistakes_the_first_are_reported():
    core = Core(settings("A"))
    errors = tuple(f"line {number}" for number in range(1, 8))
    decision = core.give(ConfigFaulty(core.now_s, errors, "x.toml as of then", by="start"))
    assert decision.facts[0].why == (
        "started with the last good configuration (x.toml as of then), because the present one cannot be used: "
        "line 1; line 2; line 3; line 4; line 5; and 2 more"
    )
    assert (core.state.config.errors, core.state.config.in_use) == (errors, "x.toml as of then")
    core.begin()
    assert core.state.config is None, "a start that says nothing of it has read the file"


def test_logs_are_cleared_by_those_who_may_block_and_strangers_are_reported():
    core = Core(settings("A")).running("A")
    decision = core.ask("clear", "A", "nobody")
    logs = "/state/programs/A/stdout.log", "/state/programs/A/stderr.log"
    assert of(decision, commands.ClearLogs) == [
        commands.ClearLogs(core.request, (("A", logs),), (("nobody", 10, "no such program"),))
    ]
    assert not of(decision, commands.Reply)
    assert (core.told(facts.OperatorAsked)[-1].request, core.told(facts.OperatorAsked)[-1].uid) == ("clear", 1000)


@pytest.mark.parametrize(
    ("more", "logs"),
    [
        ({"stdout_log": "/var/log/a.log"}, ("/var/log/a.log", "/state/programs/A/stderr.log")),
        ({"redirect_stderr": True}, ("/state/programs/A/stdout.log",)),
        ({"stdout_log": "NONE", "stderr_log": "NONE"}, ()),
    ],
)
def test_the_logs_that_are_cleared_are_those_of_the_configuration(more, logs):
    core = Core(settings(spec("A", **more))).running("A")
    assert [command.programs for command in of(core.ask("clear", "A"), commands.ClearLogs)] == [(("A", logs),)]
    core.load(settings())  # it leaves, and is still known meanwhile
    usual = ("/state/programs/A/stdout.log", "/state/programs/A/stderr.log")
    assert [command.programs for command in of(core.ask("clear", "A"), commands.ClearLogs)] == [(("A", usual),)]


@pytest.mark.parametrize("phase", list(Phase))
def test_a_changed_program_in_every_phase(phase):
    core = Core(settings("Pong", slots=1)).into(phase)
    core.load(replace(core.settings, programs=(spec("Pong", digest="Pong-2"),)))
    program = core.program("Pong")
    assert program.digest == "Pong-2"
    assert (program.deaths.streak, program.deaths.openings) == (0, 0), "changed, it is another program"
    if phase in HAS_PROCESS:
        assert program.phase is Phase.STOPPING
    elif phase in {Phase.STOPPED, Phase.QUEUED, Phase.GATED}:
        assert program.phase is phase
    else:
        assert program.phase is Phase.STARTING


@pytest.mark.parametrize("phase", list(Phase))
def test_a_removed_program_in_every_phase(phase):
    core = Core(settings("Pong", slots=1)).into(phase)
    decision = core.load(settings(slots=1))
    if phase in HAS_PROCESS:
        assert core.phase("Pong") is Phase.STOPPING
        assert of(decision, facts.StopIntended)[0].grace_s == 20.0
        core.spawned("Pong")
        core.look(Pong={})
        core.ended("Pong", code=1)
    assert core.state.programs == {}
    assert core.woke().facts == ()


def test_only_the_named_programs_are_updated():
    core = Core(settings("A", "B", "C", slots=3)).running("A", "B", "C")
    new = settings(spec("A", digest="A-2"), spec("B", digest="B-2"), "D", slots=9)
    core.load(new, only=("A", "D", "C"))
    assert core.phase("A") is Phase.STOPPING
    assert core.phase("B") is Phase.RUNNING
    assert core.program("B").digest == "B-1"
    assert core.phase("C") is Phase.STOPPING, "named, and gone from the file"
    assert core.settings.level.slots == 3, "the rest of the file was not asked for"
    assert core.phase("D") is Phase.QUEUED


def test_a_change_while_it_leaves_for_the_operator_keeps_it_down():
    core = Core(settings("Pong")).into(Phase.STOPPING)
    core.load(settings(spec("Pong", digest="Pong-2")))
    reply = answer(core.ended("Pong", code=75))
    assert reply == (("Pong", OK, "stopped"),)
    assert core.phase("Pong") is Phase.STOPPED


def test_a_program_without_an_attempt_is_not_present():
    core = Core(settings("Pong"))
    core.begin()
    context = DecisionContext(core.settings, core.state, core.memory, core.now_s, 0.0, "boot-1")
    context.state = replace(core.state, programs={"Pong": replace(core.state.programs["Pong"], attempt=None)})
    with pytest.raises(AssertionError, match="Pong has no attempt"):
        context.present("Pong")
