"""The context of one decision: the values that it reads, and the facts and commands that it collects into a `Decision`."""

from __future__ import annotations

import hashlib

from supervisor.model.codes import SUCCESS
from supervisor.model.commands import Command, Reply
from supervisor.model.facts import Fact, Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import Sample
from supervisor.model.memory import Memory, Observation, Pending
from supervisor.model.settings import SILENT, ProgramSpec, Settings
from supervisor.model.state import Attempt, Program, State, Stop
from supervisor.policy.cluster import shut_down
from supervisor.policy.worker import ending
from supervisor.printable import printable
from supervisor.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one input. The shell commits the facts before it performs the first command."""

    facts: tuple[Fact, ...]
    commands: tuple[Command, ...]
    state: State
    memory: Memory
    settings: Settings
    wake_at_s: float | None


class DecisionContext:
    """Collects the facts and commands. Each fact is folded at once, so a later rule sees the effect of an earlier one.

    The only mutable object of the deciding code; it lives for one turn, which is one call of `decide`.
    """

    def __init__(self, settings: Settings, state: State, memory: Memory, now_s: float, wall_s: float, boot_id: str) -> None:
        self.settings, self.state, self.memory = settings, state, memory
        self.now_s, self.wall_s, self.boot_id = now_s, wall_s, boot_id
        self.looked_s = now_s  # no sample of this turn is older
        self.facts: list[Fact] = []
        self.commands: list[Command] = []
        self.staggered_until_s: float | None = None  # when the next staggered start is due
        self.alert_due_s: float | None = None  # when an alert can be sent, or sent again
        self.upkeep_due_s: float | None = None  # when a copy off the box is due or late, or a notice's next step is due
        self._watches: dict[str, Observation] | None = None  # this turn's own copy of `memory.watches`

    def record(self, fact: Fact) -> None:
        if not fact.why.isprintable():  # it may quote a worker's output, which is printed on terminals
            fact = replace(fact, why=printable(fact.why))
        self.state = fold(self.state, Stamped(0, self.now_s, self.wall_s, self.boot_id, fact))
        self.facts.append(fact)

    def command(self, command: Command) -> None:
        self.commands.append(command)

    def keep_observation(self, name: str, watch: Observation) -> None:
        """Remember an observation. The dictionary is copied once a turn: one copy for each of 200 programs would be slow."""
        if self._watches is None or self.memory.watches is not self._watches:
            self._watches = dict(self.memory.watches)
            self.memory = replace(self.memory, watches=self._watches)
        self._watches[name] = watch

    def live(self, name: str, token: str) -> tuple[Program, Attempt] | None:
        """The program and its attempt, if the token is that of its present attempt."""
        program = self.state.programs.get(name)
        if program is None or program.attempt is None or program.attempt.token != token:
            return None
        return program, program.attempt

    def spec(self, name: str) -> ProgramSpec | None:
        return self.settings.program(name)

    def asks_witnesses(self, name: str, sample: Sample) -> bool:
        """Whether only its output or files show progress, so that silence proves nothing (`policy/worker/witness.py`)."""
        spec = self.spec(name)
        return spec is not None and spec.source(sample.source) in SILENT

    def token(self, name: str, number: int) -> str:
        """32 hex digits, unique on this host because every daemon has a new random salt."""
        text = f"{self.state.salt}/{name}/{number}/{self.boot_id}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def present(self, name: str) -> tuple[Program, Attempt]:
        """A program that must have an attempt, with the facts recorded so far applied."""
        program = self.state.programs[name]
        if program.attempt is None:
            raise AssertionError(f"{name} has no attempt")
        return program, program.attempt

    def answer_waiting(self, name: str, code: int = SUCCESS, text: str | None = None) -> None:
        """Answer requests that wait for this program to stop. Each is answered once it waits for no other program.

        With a `text` and one of Supervisor's fault codes, the answer says that the program did not stop, and why.
        """
        left: list[Pending] = []
        for pending in self.memory.pending:
            if name not in pending.waiting:
                left.append(pending)
                continue
            waiting = tuple(item for item in pending.waiting if item != name)
            results = (*pending.results, (name, code, text or pending.text))
            if waiting:
                left.append(replace(pending, waiting=waiting, results=results))
            else:
                self.command(Reply(pending.request_id, tuple(sorted(results))))
        self.memory = replace(self.memory, pending=tuple(left))

    def wake_for_upkeep(self, at_s: float) -> None:
        self.upkeep_due_s = at_s if self.upkeep_due_s is None else min(self.upkeep_due_s, at_s)

    def decision(self) -> Decision:
        return Decision(
            tuple(self.facts), tuple(self.commands), self.state, self.memory, self.settings, next_wake_s(self)
        )  # fmt: skip


def kill_due_s(stop: Stop) -> float:
    """When the next SIGKILL for a stopping attempt's tree is due (`policy/worker/ending.py`)."""
    return ending.kill_due_s(asked_at_s=stop.asked_at_s, grace_s=stop.grace_s, killed_at_s=stop.killed_at_s)


def leaves_jobs_at_s(context: DecisionContext) -> float | None:
    """When a daemon that is shutting down ends without its jobs (`policy/cluster/shut_down.py`); None: not yet known."""
    asked_s = [each.attempt.stop.asked_at_s for each in context.state.live.values() if each.attempt and each.attempt.stop]
    if not context.state.stopping or not asked_s:
        return None
    return shut_down.ends_at_s(asked_at_s=max(asked_s), unreachable_since_s=context.state.cluster.unreachable_since_s)


def next_wake_s(context: DecisionContext) -> float | None:
    """The earliest deadline without an input of its own: a restart, a kill, the end of a pin, an alert, a copy, a notice."""
    if context.memory.ended:
        return None
    due: list[float] = []
    lease_s = context.memory.lease_awaited_until_s(context.now_s)
    if lease_s is not None:
        due.append(lease_s)
    if (leaves_s := leaves_jobs_at_s(context)) is not None:
        due.append(leaves_s)
    waits = context.state.stopping or context.memory.holds_starts or lease_s is not None
    for program in context.state.programs.values():
        if program.retry_at_s is not None and not waits:
            due.append(program.retry_at_s)
        if program.attempt is not None and program.attempt.stop is not None:
            due.append(max(kill_due_s(program.attempt.stop), context.memory.blind_until_s or 0.0))
    pin = context.state.climb.pin
    if pin is not None and pin.until_s is not None and not context.state.stopping:
        due.append(pin.until_s)
    if context.alert_due_s is not None:
        due.append(context.alert_due_s)
    if context.upkeep_due_s is not None:
        due.append(context.upkeep_due_s)
    if context.staggered_until_s is not None:
        due.append(context.staggered_until_s)
    return min(due, default=None)
