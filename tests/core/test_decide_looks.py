"""A look that sees what the one before saw is passed over; nobody may notice but the CPU."""

import random
from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, kinds, of, settings, spec

from supervisor.deciding import healing
from supervisor.model.settings import Progress
from supervisor.policy.worker.restart import RestartSettings
from supervisor.policy.worker.stall import StallSettings

_ONCE = 10**9  # each turn is decided once, so that judgements can be counted


def quiet(core):
    """What is seen of a worker that shows nothing new from now on."""
    return {"progress_at_s": core.now_s, "live_at_s": None}


@pytest.fixture
def judged(monkeypatch):
    """The programs that were judged, look by look."""
    seen = []
    judge = healing._judge
    monkeypatch.setattr(healing, "_judge", lambda turn, name, sample: (seen.append(name), judge(turn, name, sample)))
    return seen


def test_what_is_seen_again_is_not_judged_again(judged):
    core = Core(settings("Pong", "Qbert"), checks=_ONCE).running("Pong", "Qbert")
    same, moving = quiet(core), {}
    core.watch(1, Pong=same, Qbert=moving)
    del judged[:]
    core.watch(4, Pong=same, Qbert=moving)
    assert judged == ["Qbert"] * 4
    core.watch(2, Pong=same, Qbert=moving)
    assert judged.count("Pong") == 1, "what goes by the clock is seen to every five seconds"


def test_a_stall_is_found_by_the_first_look_after_its_limit():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=7.3))).running("Pong")
    began_s = core.now_s
    core.watch(8, period_s=0.5, Pong=quiet(core))
    assert core.told_at(facts.Stalled) - began_s == 7.5


def test_a_shorter_limit_counts_at_the_next_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=60.0))).running("Pong")
    same = quiet(core)
    core.watch(20, Pong=same)
    core.load(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=10.0)))
    assert [type(fact).__name__ for fact in core.watch(1, Pong=same)] == ["Stalled"]


def test_evidence_that_has_come_is_acted_upon_at_the_next_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG, stall_timeout_s=10.0))).running("Pong")
    same = quiet(core)
    core.watch(11, Pong=same)
    core.evidence("Pong")
    core.watch(1, Pong=same)
    assert of(core.last, commands.AskToLeave), "it is asked to leave"


def test_a_gap_reaches_to_the_last_look_that_saw_no_progress():
    core = Core(settings(spec("Pong", progress=Progress.LOG))).running("Pong")
    core.watch(10, Pong={})
    core.watch(23, Pong=quiet(core))
    core.watch(1, Pong={})
    assert [fact.gap_s for fact in core.told(facts.GapLearned)] == [23.0]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_found_otherwise_or_later_than_by_looking_every_time(seed, monkeypatch):
    """The same readings, once with every look judged: the same stalls, kills, gaps and starts at the same times."""
    chance = random.Random(seed)
    sources = [Progress.BEAT, Progress.LOG, Progress.FILES, Progress.NOTIFY, Progress.NONE]
    specs = [
        spec(f"p{i}", progress=source, stall_timeout_s=chance.choice([None, 8.0, 20.0])) for i, source in enumerate(sources)
    ]
    script = [
        {s.name: (chance.random() < 0.01, chance.random() < 0.1, chance.choice("SSSSSSSSSSSTRD"), chance.random()) for s in specs}
        for _ in range(400)
    ]  # fmt: skip

    def play():
        core = Core(
            settings(*specs, slots=5, stall=StallSettings(coarse_floor_s=30.0), restart=RestartSettings(healthy_s=60.0))
        )
        core.checks = _ONCE
        core.running(*(s.name for s in specs))
        moved_s = dict.fromkeys((s.name for s in specs), core.now_s)
        state = dict.fromkeys((s.name for s in specs), "S")
        for step in script:
            core.later(1.0)
            for name, (dies, moves, letter, luck) in step.items():
                program = core.program(name)
                if program.attempt is None:
                    continue
                if program.attempt.pid is None:
                    core.spawned(name)
                    moved_s[name], state[name] = core.now_s, "S"
                elif dies or (program.attempt.stop is not None and luck < 0.5):
                    core.ended(name, signal=9)
                elif program.attempt.stall is not None and not program.attempt.examined and luck < 0.8:
                    core.evidence(name)
                if moves:
                    moved_s[name], state[name] = core.now_s, letter
            live = [name for name in step if core.program(name).attempt is not None and core.attempt(name).pid is not None]
            core.look(
                **{name: {"progress_at_s": moved_s[name], "live_at_s": None, "proc_state": state[name]} for name in live}
            )
        # A checkpoint interval may be chosen up to five seconds later.
        return [(item.at_s, item.fact) for item in core.journal if not isinstance(item.fact, facts.IntervalChosen)]

    told = play()
    assert {"Stalled", "Examined", "Exited"} <= {type(fact).__name__ for _, fact in told}
    monkeypatch.setattr(healing, "_is_settled", lambda *_: False)
    assert told == play()


def test_a_report_is_heard_at_any_look():
    core = Core(settings(spec("Pong", progress=Progress.LOG))).running("Pong")
    same = quiet(core)
    core.watch(2, Pong=same)
    core.later(1.0)
    told = core.look(core.report("Pong", "resumed", step=5), Pong=same)
    assert kinds(told) == ["Resumed"]
    assert core.attempt("Pong") == replace(core.attempt("Pong"), resumed_step=5)
