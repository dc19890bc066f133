"""The rule of the end of the work, and 1,000 random ends against the whole deciding code."""

import random
from dataclasses import dataclass, field, replace

import pytest
from core_kit import Core, commands, facts, settings, spec

from supervisor.model.inputs import AlertTried, Asked, LeaseFound, OffsiteDone, Sampled, Verb, WhenDoneEnded
from supervisor.model.lifecycle import HAS_PROCESS
from supervisor.model.settings import Progress
from supervisor.policy.box.readings import Host
from supervisor.policy.upkeep.alerting import AlertSettings
from supervisor.policy.upkeep.cost import CostSettings, limit_reached
from supervisor.policy.upkeep.offsite import Claim, Lease, OffsiteSettings
from supervisor.policy.upkeep.when_done import (
    BUDGET,
    CAUSES,
    DONE,
    STUCK,
    EndRecord,
    Outlook,
    Seen,
    Step,
    WhenDoneSettings,
    causes_of,
    holds_on,
    next_step,
    retry_s,
)

RULES = WhenDoneSettings(("stop-me",), CAUSES)


@pytest.mark.parametrize(
    ("when", "work", "over_budget", "causes"),
    [
        (CAUSES, [], False, ()),
        (CAUSES, [], True, (BUDGET,)),
        (CAUSES, [Outlook.DONE], True, (DONE, BUDGET)),
        (CAUSES, [Outlook.DONE, Outlook.OPEN], False, ()),
        (CAUSES, [Outlook.DONE, Outlook.OPEN], True, (BUDGET,)),
        (CAUSES, [Outlook.DONE, Outlook.OVER], False, (STUCK,)),
        (CAUSES, [Outlook.DONE, Outlook.GIVEN_UP], False, (DONE, STUCK)),
        (CAUSES, [Outlook.GIVEN_UP], False, (STUCK,)),
        (CAUSES, [Outlook.OVER, Outlook.OPEN], False, ()),
        ((DONE,), [Outlook.DONE, Outlook.OVER], True, ()),
        ((DONE,), [Outlook.DONE, Outlook.GIVEN_UP], True, (DONE,)),
        ((STUCK,), [Outlook.DONE], False, ()),
        ((BUDGET,), [Outlook.DONE], True, (BUDGET,)),
    ],
)
def test_the_causes(when, work, over_budget, causes):
    assert causes_of(replace(RULES, when=when), work, over_budget=over_budget) == causes


@pytest.mark.parametrize(
    ("cause", "now", "holds"),
    [
        (DONE, (DONE,), True), (STUCK, (DONE,), True), (DONE, (STUCK, BUDGET), True), (DONE, (BUDGET,), False),
        (BUDGET, (DONE, BUDGET), True), (BUDGET, (DONE,), False), (STUCK, (), False),
    ],
)  # fmt: skip
def test_an_end_keeps_its_cause(cause, now, holds):
    assert holds_on(EndRecord(cause), now) is holds


def test_the_wait_between_two_tries():
    assert [retry_s(count) for count in (1, 2, 3, 6, 7, 8, 2000)] == [60.0, 120.0, 240.0, 1920.0, 3600.0, 3600.0, 3600.0]


def test_a_limit_needs_a_price_and_a_clock():
    rules = CostSettings(1.2, 10.0, "2027-01-15T08:00:00Z")
    assert limit_reached(rules, paid_s=30_000.0, wall_s=None) == "$10.00 of the budget of $10.00 are spent"
    assert limit_reached(rules, paid_s=29_999.0, wall_s=None) == ""
    assert limit_reached(rules, paid_s=0.0, wall_s=1_799_999_999.0) == ""
    assert limit_reached(rules, paid_s=0.0, wall_s=1_800_000_000.0).startswith("the time of [cost] until, 2027")
    assert limit_reached(CostSettings(None, 10.0), paid_s=1e9, wall_s=None) == ""


def test_without_a_command_there_is_no_end():
    assert next_step(WhenDoneSettings(), EndRecord(), Seen((DONE,)), 9.0) == (Step.WAIT, None)


# --- random ends ---------------------------------------------------------------------------------------------------------

LEASE = Lease("a", 1, "ada")
PATIENCE_S = 4 * 3600.0


@dataclass
class End:
    """One box: what its programs, its copies, its command and its people do is random until it is `calm`."""

    seed: int
    calm: bool = False
    logged_in: bool = False
    stopped: bool = False  # the command has stopped the box
    running: float | None = None  # the command runs since then
    copying: bool = False
    as_of_s: float = 0.0
    refused: bool = False
    now: bool = False
    ran: list = field(default_factory=list)
    changed_s: float = 0.0  # the newest change of the work
    alive_s: float = 0.0  # when a process was last there
    copied_s: float | None = None

    def __post_init__(self):
        self.dice = random.Random(self.seed)
        pick = self.dice.choice
        self.rules = WhenDoneSettings(
            ("stop-me",), tuple(self.dice.sample(CAUSES, pick([1, 2, 3]))), pick([0.0, 60.0, 600.0]), 300.0,
            pick([True, False]),
        )  # fmt: skip
        self.offsite = pick([True, False])
        cost = CostSettings(1.2, pick([None, 0.5, 1.0]))
        programs = [spec("board", progress=Progress.NONE, service=True), *(["Pong", "Qbert"][: pick([1, 2])])]
        more = {"offsite": OffsiteSettings(repository="/r", forget="off", check="off")} if self.offsite else {}
        more |= {"alerts": AlertSettings(command=("page-me",))} if pick([True, False]) else {}
        self.core = Core(settings(*programs, when_done=self.rules, cost=cost, **more), checks=1_000_000)
        self.obey(self.core.begin())

    def luck(self, odds):
        return not self.calm and self.dice.random() < odds

    def obey(self, decision):
        """Check what must hold of every command, and let the world obey."""
        for fact in decision.facts:
            if isinstance(fact, facts.WhenDoneStep):
                if fact.step == Step.RUN.value:
                    self.check()
                self.ran = [] if fact.step == Step.CALL_OFF.value else self.ran
                self.refused = fact.step == Step.REFUSE.value or (self.refused and fact.step != Step.CALL_OFF.value)
                self.now = fact.step == "now" or (self.now and fact.step not in {Step.RUN.value, Step.CALL_OFF.value})
                self.waived = fact.step == "now" and self.refused
            if isinstance(fact, facts.Requeued | facts.Finished | facts.GaveUp | facts.Wanted):
                self.changed_s = self.core.now_s
        if any(program.phase in HAS_PROCESS for program in self.core.state.programs.values()):
            self.alive_s = self.core.now_s
        for command in decision.commands:
            if isinstance(command, commands.StopBox):
                self.running = self.core.now_s
            if isinstance(command, commands.OffsiteCopy):
                self.copying, self.as_of_s = True, self.core.now_s

    def check(self):
        core, now_s = self.core, self.core.now_s
        assert not core.state.live, "a process runs when the command begins"
        assert self.running is None, "the command runs twice at once"
        assert not self.stopped
        assert self.now or not self.ran or now_s - self.ran[-1] >= 60.0, "tried again too early"
        if self.offsite:
            copied = self.copied_s is not None and self.copied_s >= self.alive_s
            assert copied or core.state.when_done.waived, "nothing newer than the last process is off the box"
        if not self.now:
            known = core.memory.host is not None and core.memory.host.logged_in
            assert not (self.rules.hold_while_logged_in and known), "somebody is logged in"
            assert now_s >= core.state.when_done.since_s + self.rules.after_s, "the wait is not over"
        assert not core.state.when_done.cancelled

    def turn(self):
        core = self.core.later(self.dice.choice([0.5, 1.0, 20.0, 200.0]))
        for name, program in sorted(core.state.programs.items()):
            if program.attempt is None:
                continue
            if program.attempt.pid is None:
                self.obey(core.spawned(name))
            elif program.attempt.stop is not None:
                self.obey(core.ended(name, code=75))
            elif not program.service and (self.luck(0.1) or self.calm):
                self.obey(core.ended(name, code=self.dice.choice([0, 0, 0, 78])))
        if self.copying and self.dice.random() < 0.5:
            self.copying, bad = False, self.luck(0.4)
            missed = {"Pong": "it vanished"} if self.luck(0.2) else {}
            found = {} if bad else {"snapshot": "abc", "as_of_s": self.as_of_s, "missed": missed}
            self.obey(core.give(LeaseFound(core.now_s, Claim.HELD, LEASE)))
            what = core.memory.offsite or "copy"
            cause = core.memory.offsite_cause if what == "copy" else ""
            if what == "copy" and cause == DONE and not bad and not missed:
                self.copied_s = self.as_of_s
            self.obey(
                core.give(
                    OffsiteDone(core.now_s, what, cause, "no route" if bad else "", **(found if what == "copy" else {}))
                )
            )
        sending = core.memory.reaching.get("command")
        if sending is not None and sending.sending and self.dice.random() < 0.5:
            self.obey(core.give(AlertTried(core.now_s, "command", sending.sending, "no route" if self.luck(0.4) else "")))
        self.command()
        self.people()
        if not self.stopped:
            self.obey(core.give(Sampled(core.now_s, host=Host(logged_in=("ada",) if self.logged_in else ()))))

    def command(self):
        if self.running is None or self.dice.random() < 0.5:
            return
        self.ran.append(self.core.now_s)
        self.running, self.stopped = None, not self.luck(0.7)
        if not self.stopped:
            self.obey(self.core.give(WhenDoneEnded(self.core.now_s, self.dice.choice(["", "it ended with status 1"]))))

    def people(self):
        core = self.core
        self.logged_in = self.luck(0.2)
        if self.luck(0.05):
            core.request += 1
            do = self.dice.choice(["cancel", "delay", "now"])
            for_s = 900.0 if do == "delay" else None
            self.obey(core.give(Asked(core.now_s, Verb.WHEN_DONE, core.request, (), "", "ada", 0, do, for_s)))
        if self.luck(0.03):
            self.obey(core.ask(self.dice.choice(["start", "stop"]), "Pong"))
        if self.luck(0.02):
            self.obey(core.load(core.settings))
        if self.luck(0.02):
            self.ran, self.running, self.copying = [], None, False
            self.obey(core.begin() if core.state.live else core.reboot(f"boot-{core.turns}"))

    def is_over(self):
        """Whether the end that the command waits for is there."""
        return self.core.state.when_done.cause != "" and not self.core.state.when_done.cancelled


ENDS = [range(start, start + 100) for start in range(0, 1000, 100)]


@pytest.mark.parametrize("seeds", [ENDS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in ENDS[1:])], ids=str)
def test_the_command_never_runs_too_early_never_twice_and_always_in_the_end(seeds):
    ended = 0
    for seed in seeds:
        end = End(seed)
        for _ in range(25):
            if not end.stopped:
                end.turn()
        end.calm = True
        until_s = end.core.now_s + PATIENCE_S
        while not end.stopped and end.core.now_s < until_s:
            end.turn()
        assert end.stopped or not end.is_over(), f"seed {seed}: the box is never stopped"
        ended += end.stopped
    assert ended > 50, "most ends are ends"
