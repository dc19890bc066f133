"""The core with nothing around it: inputs by hand, and after each one everything that must always hold."""

from dataclasses import dataclass, field, replace

from fakes import sample

from supervisor.deciding.decide import decide
from supervisor.model import commands, facts
from supervisor.model.codec import decode, encode
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import (
    Asked,
    Began,
    BootEvidence,
    ConfigLoaded,
    Ended,
    Ending,
    EvidenceTaken,
    Report,
    Sampled,
    SpawnBroke,
    SpawnSucceeded,
    Survival,
    Survivor,
    Terminated,
    Verb,
    Woke,
)
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import Level, Paths, ProgramSpec, Settings
from supervisor.model.state import State
from supervisor.policy.box.gate import MB, GateSettings
from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.policy.worker.intervention import fruitless

WALL_S = 1_800_000_000.0


def spec(name, **more):
    return ProgramSpec(name=name, argv=("train", name), **{"digest": f"{name}-1", **more})


def settings(*programs, slots=2, **more):
    specs = tuple(item if isinstance(item, ProgramSpec) else spec(item) for item in programs)
    return Settings(Paths("/state", "/run"), level=Level(slots=slots), programs=specs, **more)


def gpu(index=0, *, free_mb=None, total_mb=80_000, **more):
    """A GPU that had so much memory free for as long as anybody has looked."""
    if free_mb is not None:
        more = {"free_bytes": free_mb * MB, "free_by_second": (free_mb * MB,)} | more
    return Gpu(index, f"GPU-{index}", "A100", **{"total_bytes": total_mb * MB} | more)


def gpus(*found, **more):
    return Gpus(found, **more)


def check_program(program):
    """What must hold of every program after every input."""
    name, phase = program.name, program.phase
    assert (program.attempt is not None) == (phase in HAS_PROCESS), f"{name} is {phase} with attempt {program.attempt}"
    assert (program.retry.at_s is not None) == (phase is Phase.BACKOFF), f"{name} is {phase}, retry {program.retry.at_s}"
    assert phase is Phase.BACKOFF or not program.retry.slow
    if program.attempt is not None:
        assert (program.attempt.stop is not None) == (phase is Phase.STOPPING), f"{name} is {phase}, {program.attempt.stop}"
        assert (program.attempt.stall is None) == (program.attempt.stalled_at_s is None)
    assert program.wanted or phase in {Phase.STOPPING, Phase.STOPPED}, f"{name} is not wanted, yet {phase}"
    assert phase is not Phase.STOPPED or not program.wanted, f"{name} is wanted, yet it stays down"
    assert program.deaths.openings == 0 or program.deaths.streak > 0
    assert len(program.deaths.at_s) <= program.deaths.streak


@dataclass
class Core:
    """One state directory: its journal, and the daemon that decides now."""

    settings: Settings
    boot_id: str = "boot-1"
    now_s: float = 0.0
    wall_offset_s: float = WALL_S
    state: State = field(default_factory=State)
    memory: Memory = field(default_factory=Memory)
    journal: list = field(default_factory=list)
    wake_at_s: float | None = None
    last: object = None
    request: int = 0
    checks: int = 3  # every how many turns the same decision is asked for twice
    turns: int = 0

    # one turn

    def give(self, item):
        """Decide, and check what must hold of every decision. Returns it."""
        self.now_s = item.now_s
        args = {"wall_s": self.wall_offset_s + self.now_s, "boot_id": self.boot_id}
        decision = decide(self.settings, self.state, self.memory, item, **args)
        self.turns += 1
        if self.turns % self.checks == 0:
            assert decide(self.settings, self.state, self.memory, item, **args) == decision, (
                "the same again, decided otherwise"
            )
        if decision.state.stopping or decision.memory.ended:
            assert not of(decision, commands.Spawn), "something is started while everything is to end"
        if any(each.by == "foundations" for each in decision.memory.held):
            assert not of(decision, commands.Spawn), "something is started without what it relies on"
        folded = self.state
        for fact in decision.facts:
            assert fact.why.strip(), f"{fact!r} does not say why"
            assert decode(*encode(fact)) == fact
            stamped = Stamped(len(self.journal) + 1, self.now_s, args["wall_s"], self.boot_id, fact)
            folded = fold(folded, stamped)
            self.journal.append(stamped)
        assert folded == decision.state, "the journal would give another state"
        for program in decision.state.programs.values():
            check_program(program)
        assert decision.wake_at_s is None or decision.wake_at_s > self.now_s, "a deadline in the past: a busy loop"
        self.settings, self.state, self.memory = decision.settings, decision.state, decision.memory
        self.wake_at_s, self.last = decision.wake_at_s, decision
        return decision

    @property
    def lacks_files(self):
        """Whether a file or directory that a start relies on is missing or damaged."""
        return any(each.by == "foundations" for each in self.memory.held)

    def later(self, seconds):
        self.now_s += seconds
        return self

    def asleep(self, seconds):
        """The loop slept for so long and had not asked for it."""
        self.memory = replace(self.memory, overslept_s=seconds)
        return self.later(seconds)

    # inputs, by short names

    def begin(self, *survivors, boot=None, rebooted=False, salt="salt", **evidence):
        """A daemon starts: volatile memory is gone, the journal is not."""
        if boot is not None:
            self.boot_id = boot
        self.memory = Memory()
        seen = BootEvidence(self.boot_id, rebooted if self.journal else None, "test", **evidence)
        found = dict(survivors)
        return self.give(Began(self.now_s, self.settings, seen, found, 100, "0.1.0", salt))

    def reboot(self, boot, **evidence):
        return self.begin(boot=boot, rebooted=True, **{"down_s": 60.0, "up_s": 1000.0, **evidence})

    def woke(self):
        return self.give(Woke(self.now_s))

    def to_wake(self):
        """Step the clock to the deadline that was asked for."""
        self.now_s = max(self.now_s, self.wake_at_s)
        return self.woke()

    def spawned(self, name, pid=None):
        token = self.token(name)
        number = self.attempt(name).number
        return self.give(SpawnSucceeded(self.now_s, name, token, pid or 1000 + number, 77, 2000 + number, 78))

    def broke(self, name, error="fork: Resource temporarily unavailable", permanent=False, refused=False):
        return self.give(SpawnBroke(self.now_s, name, self.token(name), error, permanent or refused, refused))

    def sample(self, name, **more):
        """One look at one worker: by default one that trains and has just moved. Figures may stand among the readings."""
        usual = {"proc_state": "S", "live_at_s": self.now_s, "progress_at_s": self.now_s, "phase": "training", "ready": True}
        return sample(self.token(name), **usual | more)

    def look(self, *reports, **samples):
        """`look(Pong={...})`: what differs from a worker that trains."""
        seen = {name: self.sample(name, **(more or {})) for name, more in samples.items()}
        return self.give(Sampled(self.now_s, seen, tuple(reports)))

    def see(self, found=None, host=None):
        """One look at the hardware, and at no worker."""
        return self.give(Sampled(self.now_s, {}, (), None, found, host))

    def watch(self, seconds, period_s=1.0, **samples):
        """Look again and again; returns the facts of all those looks. A value may be a function of the time."""
        told = []
        for _ in range(round(seconds / period_s)):
            self.now_s += period_s
            seen = {
                name: {key: value(self.now_s) if callable(value) else value for key, value in (more or {}).items()}
                for name, more in samples.items()
                if self.state.programs[name].attempt is not None
            }
            told += self.look(**seen).facts
        return told

    def report(self, name, kind, at_ns=1, **fields):
        return (name, self.token(name), Report(kind, {"at_ns": at_ns, **fields}))

    def ended(self, name, **ending):
        return self.give(Ended(self.now_s, name, self.token(name), Ending(**ending)))

    def evidence(self, name, **evidence):
        return self.give(EvidenceTaken(self.now_s, name, self.token(name), evidence or {"stacks": "File x.py"}))

    def ask(self, verb, *names, signal=""):
        self.request += 1
        return self.give(Asked(self.now_s, Verb(verb), self.request, names, signal, "alice", 1000))

    def terminate(self):
        return self.give(Terminated(self.now_s, "SIGTERM"))

    def load(self, new, only=()):
        return self.give(ConfigLoaded(self.now_s, new, only))

    def survivor(self, name, survival, **ending):
        attempt = self.attempt(name)
        alive = survival is Survival.ALIVE
        found = Survivor(
            attempt.token, survival, attempt.pid or (4242 if alive else None), attempt.start_ticks, attempt.shim_pid,
            attempt.shim_start_ticks, Ending(**ending) if ending or survival is Survival.ENDED else None,
        )  # fmt: skip
        return name, found

    # looking

    def program(self, name):
        return self.state.programs[name]

    def fruitless(self, kind, name="Pong"):
        """How many interventions of a kind in a row had no effect so far."""
        return fruitless(self.program(name).interventions, kind)

    def phase(self, name):
        return self.program(name).phase

    def attempt(self, name):
        attempt = self.program(name).attempt
        assert attempt is not None, f"{name} has no attempt, it is {self.phase(name)}"
        return attempt

    def token(self, name):
        return self.attempt(name).token

    def told(self, kind, name=None):
        """All facts of a kind, ever."""
        found = [item.fact for item in self.journal if isinstance(item.fact, kind)]
        return [fact for fact in found if name is None or fact.program == name]

    def told_at(self, kind):
        """When the newest fact of a kind was recorded."""
        return next(item.at_s for item in reversed(self.journal) if isinstance(item.fact, kind))

    # shortcuts to a phase

    def running(self, *names):
        """Started, spawned, trains."""
        if not self.journal:
            self.begin()
        for name in names:
            self.spawned(name)
        self.later(1.0).look(**dict.fromkeys(names))
        for _ in range(4):  # where only the log tells of it, that takes as long as an attempt that died before
            if all(self.phase(name) is Phase.RUNNING for name in names):
                break
            self.later(2 * self.settings.stall.settle_s).look(**dict.fromkeys(names))
        for name in names:
            assert self.phase(name) is Phase.RUNNING
        return self

    def into(self, phase, name="Pong"):
        """The first program in a phase, by the way that it would come there."""
        if phase is Phase.GATED:
            self.settings = replace(self.settings, gate=GateSettings(min_free_mb=1_000))
        self.begin()
        if phase is Phase.GATED:
            self.see(gpus(gpu(free_mb=10)))
        if phase in {Phase.RUNNING, Phase.STOPPING, Phase.BACKOFF, Phase.DONE, Phase.STOPPED, Phase.FATAL, Phase.EXITED}:
            self.running(name)
        if phase is Phase.QUEUED:
            self.load(replace(self.settings, level=replace(self.settings.level, slots=0)))
            self.ended(name, code=75)
        if phase is Phase.BACKOFF:
            self.ended(name, signal=9)
            self.spawned(name)
            self.ended(name, signal=9)
        if phase in {Phase.STOPPING, Phase.STOPPED}:
            self.ask("stop", name)
        if phase is Phase.STOPPED:
            self.ended(name, code=75)
        if phase is Phase.DONE:
            self.ended(name, code=0)
        if phase is Phase.FATAL:
            self.ended(name, code=78)
        if phase is Phase.EXITED:
            self.load(
                replace(self.settings, programs=tuple(replace(each, restart="never") for each in self.settings.programs))
            )
            self.ended(name, code=7)
        assert self.phase(name) is phase
        return self


def of(decision, kind):
    """The facts or commands of a kind in one decision."""
    where = decision.commands if issubclass(kind, commands.Command) else decision.facts
    return [item for item in where if isinstance(item, kind)]


def reply(decision):
    """What the only answer of one decision says of the only program that it is about."""
    ((result,),) = [each.results for each in of(decision, commands.Reply)]
    return result


def kinds(decision):
    return [type(fact).__name__ for fact in decision.facts]


def signals(decision):
    return [command.signal for command in of(decision, commands.SendSignal)]


__all__ = ["Core", "check_program", "commands", "facts", "gpu", "gpus", "kinds", "of", "settings", "signals", "spec"]
