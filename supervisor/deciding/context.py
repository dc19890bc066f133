"""The context of one decision: the values that it reads, and the facts and commands that it collects into a `Decision`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from supervisor.deciding.feature import SELDOM, AlertRow, Copies, Feature
from supervisor.model.codes import SUCCESS
from supervisor.model.commands import Command, Reply
from supervisor.model.facts import Fact, GaveUp, Stamped
from supervisor.model.fold import fold
from supervisor.model.inputs import Asked, Sample, Verb
from supervisor.model.memory import Memory, Observation, Pending
from supervisor.model.settings import SILENT, Progress, Settings
from supervisor.model.state import Attempt, Program, State, Stop
from supervisor.policy.worker import ending
from supervisor.printable import printable
from supervisor.records import Record, replace


class Decision(Record):
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

    def __init__(
        self, settings: Settings, state: State, memory: Memory, now_s: float, wall_s: float, boot_id: str,
        features: tuple[Feature, ...] = (),
    ) -> None:  # fmt: skip
        self.settings, self.state, self.memory, self.before = settings, state, memory, state
        self._features = features
        self.now_s, self.wall_s, self.boot_id = now_s, wall_s, boot_id
        self.looked_s = now_s  # no sample of this turn is older
        self.facts: list[Fact] = []
        self.commands: list[Command] = []
        self._wake_at_s: list[float] = []  # deadlines of staggered starts, alerts, copies, notices
        self._watches: dict[str, Observation] | None = None  # this turn's own copy of `memory.watches`

    @property
    def requests(self) -> dict[Verb, Callable[[DecisionContext, Asked], None]]:
        return {verb: answer for each in self._features for verb, answer in each.requests.items()}

    @property
    def alerts(self) -> tuple[AlertRow, ...]:
        """The facts of features that raise an alert."""
        return tuple(row for each in self._features for row in each.alerts)

    def hooks(self, name: str) -> list[Callable[..., Any]]:
        """What features do at this point (a field of `Feature`), in their order."""
        rows = [each for each in self._features if getattr(each, name) is not None]
        return [getattr(each, name) for each in rows if name in SELDOM or each.takes_part(self)]

    def first(self, name: str, *args: object) -> Any:
        """The first answer of a feature at this point that is not None; None: no feature has one."""
        return next((answer for ask in self.hooks(name) if (answer := ask(self, *args)) is not None), None)

    @property
    def copies(self) -> Copies | None:
        found: Copies | None = self.first("copies")
        return found

    def record(self, fact: Fact) -> None:
        if not fact.why.isprintable():  # it may quote a worker's output, which is printed on terminals
            fact = replace(fact, why=printable(fact.why))
        self.state = fold(self.state, Stamped(0, self.now_s, self.wall_s, self.boot_id, fact))
        self.facts.append(fact)

    def remember(self, *parts: object) -> None:
        """Keep these parts of the memory, each in place of the one of its class."""
        self.memory = self.memory.having(*parts)

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

    def asks_witnesses(self, name: str, sample: Sample) -> bool:
        """Whether only its output or files show progress, so that silence proves nothing (`policy/worker/witness.py`)."""
        spec = self.settings.program(name)
        return spec is not None and spec.source(sample.source) in SILENT

    def beats(self, name: str, sample: Sample) -> bool:
        """Whether it reports its progress in beats."""
        spec = self.settings.program(name)
        return spec is not None and spec.source(sample.source) is Progress.BEAT

    @property
    def blind(self) -> bool:
        """Whether no worker is judged yet, because this daemon did not run for a while."""
        return self.memory.blind_until_s is not None and self.now_s < self.memory.blind_until_s

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

    def is_held(self, name: str) -> bool:
        return any(held.programs is None or name in held.programs for held in self.memory.held)

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

    def wake(self, at_s: float | None) -> None:
        """Decide again at this time, although no input comes."""
        if at_s is not None:
            self._wake_at_s.append(at_s)

    def give_up(self, name: str, why: str) -> None:
        self.record(GaveUp(f"{why}; it starts again after a change of its config or `extralifectl start`", name))

    def decision(self) -> Decision:
        # The deadlines without an input of their own: a restart, a kill, the end of a pin, what `wake` asked for.
        due = [*self._wake_at_s, *(held.until_s for held in self.memory.held if held.until_s is not None)]
        for program in self.state.programs.values():
            if program.retry.at_s is not None and not self.state.stopping and not self.is_held(program.name):
                due.append(program.retry.at_s)
            if program.attempt is not None and program.attempt.stop is not None and not program.attempt.stop.not_ended:
                due.append(max(kill_due_s(program.attempt.stop), self.memory.blind_until_s or 0.0))
        pin = self.state.climb.pin
        if pin is not None and pin.until_s is not None and not self.state.stopping:
            due.append(pin.until_s)
        wake_at_s = None if self.memory.ended else min(due, default=None)
        return Decision(tuple(self.facts), tuple(self.commands), self.state, self.memory, self.settings, wake_at_s)


def kill_due_s(stop: Stop) -> float:
    """When the next SIGKILL for a stopping attempt's tree is due (`policy/worker/ending.py`)."""
    return ending.kill_due_s(asked_at_s=stop.asked_at_s, grace_s=stop.grace_s, killed_at_s=stop.killed_at_s)
