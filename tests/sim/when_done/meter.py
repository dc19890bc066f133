"""Nights of the meter: trainings that reach their targets, can never work, die for good or lose their GPU; copies that fail; a
person who is logged in, cancels, delays or hurries; daemons killed at every step; and a command that fails, or takes long.

The oracle (`Meter.judge`) knows the truth of the world, not the daemon's reasons: the command never runs before all is saved
and copied, without a cause, before the rule's time, or twice at once; and once all is calm it does run, a minute after that
time at the latest. Of each end at most three alerts `done` are sent.
"""

from dataclasses import replace

from boxes import HOUR_S
from core_kit import commands, facts, gpu, gpus
from invariants import hold
from misfortunes import CALM, Chance, Odds
from world import World

from supervisor.features.alerts.settings import AlertSettings
from supervisor.features.backups.settings import BackupSettings
from supervisor.features.offsite.messages import Claim, Lease, LeaseFound, OffsiteCopy, OffsiteDone
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.features.when_done.messages import StopBox, WhenDoneEnded
from supervisor.features.when_done.record import CANCEL, DELAY, NOW, Step
from supervisor.features.when_done.rules import retry_s
from supervisor.features.when_done.settings import BUDGET, CAUSES, DONE, STUCK, WhenDoneSettings
from supervisor.model.inputs import Asked, Ending, Verb
from supervisor.model.lifecycle import Phase
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.upkeep.cost import CostSettings

LENGTH_S, CALM_S = 6 * HOUR_S, 10 * HOUR_S
PRICE = 1.2
LEASE = Lease("a", 1, "ada")
COPY_S = 6.0
LATE_S = 60.0 + COPY_S  # from the end of the wait to the command: 5 s for saves, a copy, and at most 30 s for the report
OVERLOOKED_S = 60.0
FINISHES, GIVEN_UP, DEAD_END, NO_GPU, FINDS_NO_GPU, GOES_ON = (
    "finishes given-up dead-end no-gpu finds-no-gpu goes-on".split()
)
FATES = (FINISHES, FINISHES, FINISHES, GIVEN_UP, DEAD_END, NO_GPU, FINDS_NO_GPU, GOES_ON)
STRUCK = {FINISHES: 0, GIVEN_UP: 78, DEAD_END: 1, NO_GPU: 1, FINDS_NO_GPU: 69}  # the exit code from then on
ODDS = Odds(
    crash_s=2 * HOUR_S, stall_s=4 * HOUR_S, finish_s=None, operator_s=3 * HOUR_S, daemon_kill_s=HOUR_S, daemon_pause_s=3 * HOUR_S,
    reboot_s=5 * HOUR_S, journal_s=3 * HOUR_S, clock_s=2 * HOUR_S, suspend_s=6 * HOUR_S, network_s=5 * HOUR_S, bad_start=0.01,
)  # fmt: skip


class Meter(World):
    """One box, until its command has stopped it."""

    def __init__(self, seed):
        chance = self.fated = Chance(f"meter {seed}")

        def pick(what, *options):
            return chance.one_of(options, what)

        when = tuple(cause for cause in CAUSES if chance.share("when", cause) < 0.6) or (STUCK,)
        self.copies = pick("copies", True, False)
        super().__init__(
            seed, programs=pick("programs", 1, 2, 3), slots=pick("slots", 1, 3), odds=replace(pick("odds", ODDS, CALM)), look_s=20.0,
            upkeep=True, backup=BackupSettings("off"), cost=CostSettings(PRICE, pick("budget", None, None, 1.0, 4.0)),
            when_done=WhenDoneSettings(
                ("stop-me",), when, pick("after", 0.0, 60.0, 900.0), pick("timeout", 60.0, 300.0), pick("hold", True, False)
            ),
            alerts=AlertSettings(command=("page-me",)) if pick("alerts", True, False) else AlertSettings(),
            offsite=OffsiteSettings(repository="/r", forget="off", check="off") if self.copies else OffsiteSettings(),
        )  # fmt: skip
        self.rules = self.configured.when_done
        self.fates = {name: chance.one_of(FATES, "fate", name) for name in self.names}
        self.fated_s = {name: chance.between(600.0, LENGTH_S, "fated", name) for name in self.names}
        for name in (each for each, fate in self.fates.items() if fate == NO_GPU):
            self.specs[name] = replace(self.specs[name], min_free_mb=1)
        self.configured = replace(self.configured, programs=tuple(self.specs.values()))
        self.gpus = gpus(gpu(free_mb=70_000))
        self.lost_gpu_s = min((at_s for name, at_s in self.fated_s.items() if self.fates[name] == NO_GPU), default=None)
        self.host = Host()
        self.stopped_s = self.ran_for = None  # when the command had stopped the box; the daemon whose command runs
        self.waiting_for_it, self.runs, self.copied_s, self.copied = [], 0, None, 0
        self.on_s, self.up_s, self.alive_s, self.calm_s = 0.0, 0.0, 0.0, None
        self.asked = set()  # tokens that the end has asked to exit
        self.mended = False  # a reboot has brought the GPU back
        self.missing_s = None
        self.forget_end()

    def forget_end(self):
        self.begun_s = self.left_s = self.tried_s = self.delay_s = None
        self.failures = self.done_alerts = 0
        self.now = self.cancelled = self.refused = self.waived = False

    # --- what happens -----------------------------------------------------------------------------------------------------

    def begin_visits(self):
        """People, and what is to become of each program."""
        if self.lost_gpu_s is not None:
            self.after(self.lost_gpu_s, self.lose_gpu)
        for name, fate in self.fates.items():
            if fate != GOES_ON:
                self.after(self.lost_gpu_s if fate == NO_GPU else self.fated_s[name], self.strike, name)
        self.after(900.0, self.visit, 1)

    def visit(self, number):
        if self.calm:
            return
        self.after(self.fated.wait_s(1800.0, "visit", number), self.visit, number + 1)
        self.host = Host(logged_in=("ada",) if self.fated.share("logged in", number) < 0.3 else ())
        what = self.fated.share("word", number)
        if self.daemon and what < 0.25:
            do = self.fated.one_of((CANCEL, DELAY, DELAY, NOW), "do", number)
            self.requests += 1
            self.waiting[self.requests] = self.daemon
            self.tell("!!", f"when-done {do}")
            for_s = 1200.0 if do == DELAY else None
            self.post(Asked(0.0, Verb.WHEN_DONE, self.requests, text=do, for_s=for_s))

    def lose_gpu(self):
        if not self.mended:
            self.gpus = Gpus((), "this box has no NVIDIA driver", absent=True)

    def is_struck(self, name):
        fate = self.fates[name]
        at_s = self.lost_gpu_s if fate == NO_GPU else self.fated_s[name]
        return fate != GOES_ON and self.now_s >= at_s and not (self.mended and fate in {NO_GPU, FINDS_NO_GPU})

    def strike(self, name):
        if not self.is_struck(name):
            return
        for worker in self.alive(name):
            self.end(worker.token, Ending(code=STRUCK[self.fates[name]], last_lines=("ImportError: x",)))

    def worker_goes_wrong(self, worker):
        super().worker_goes_wrong(worker)
        if self.is_struck(worker.name):
            self.after(2.0, self.strike, worker.name)

    def do(self, command):
        match command:
            case StopBox():
                self.stop_box()
            case OffsiteCopy():
                self.copy(command)
            case commands.AskToLeave(token=token) if self.core.state.when_done.keeps_down:
                self.asked.add(token)
                super().do(command)
            case _:
                super().do(command)

    def copy(self, command):
        self.copied += 1
        self.after(1.0, self.arrive, self.daemon, LeaseFound(0.0, Claim.HELD, LEASE))
        if command.look_only:
            self.after(1.0, self.arrive, self.daemon, OffsiteDone(0.0, "look"))
            return
        fails = not self.calm and self.fated.share("copy", self.copied) < 0.4
        found = {} if fails else {"snapshot": f"c{self.copied}", "as_of_s": self.core.now_s}
        done = OffsiteDone(0.0, "copy", command.cause, "no route" if fails else "", **found)
        self.after(COPY_S, self.copy_ends, self.now_s, self.daemon, done)

    def copy_ends(self, began_s, daemon, done):
        self.copied_s = self.copied_s if done.error else began_s
        self.arrive(daemon, done)

    def stop_box(self):
        """As `features/when_done/adapters/stopping.py`: one that still runs, of an earlier daemon, is waited for."""
        if self.ran_for is not None:
            hold("the command runs once at a time", self.ran_for != self.daemon, "it was started while it ran")
            self.waiting_for_it.append(self.daemon)
            return
        self.runs, self.ran_for = self.runs + 1, self.daemon
        luck = 0.0 if self.calm else self.fated.share("outcome", self.runs)
        self.tell("--", "the command runs")
        self.after(self.fated.between(0.1, 50.0, "command", self.runs), self.command_ends, luck, self.runs)

    def command_ends(self, luck, run):
        if run != self.runs or self.ran_for is None:
            return  # a reboot has ended it
        daemons, self.waiting_for_it = [self.ran_for, *self.waiting_for_it], []
        self.ran_for = None
        if luck < 0.4:
            self.tell("--", "the command stops the box")
            self.stopped_s, self.daemon, self.events, self.living = self.now_s, 0, [], {}
            return
        self.arrive(daemons[0], WhenDoneEnded(0.0, "" if luck < 0.7 else "it ended with status 1"))
        for each in daemons[1:]:
            self.arrive(each, WhenDoneEnded(0.0))

    def reboot(self, down_s=60.0):
        lost = any(self.is_struck(name) and fate in {NO_GPU, FINDS_NO_GPU} for name, fate in self.fates.items())
        if lost and self.fated.share("mended", self.boot) < 0.3:
            self.mended, self.gpus = True, gpus(gpu(free_mb=70_000))
        self.on_s += self.now_s - self.up_s
        self.up_s = self.now_s + down_s
        self.ran_for, self.waiting_for_it = None, []
        kept = {self.visit, self.strike, self.lose_gpu}
        mine = [event for event in self.events if event[2] in kept and event[2] != self.visit]
        super().reboot(down_s)
        for at_s, _, do, args in mine:
            self.after(at_s - self.now_s, do, *args)

    # --- the oracle -----------------------------------------------------------------------------------------------------------

    def causes(self):
        """The causes that hold in truth. A program that is struck can never go on."""
        wanted = [program for program in self.core.state.programs.values() if program.wanted]
        over = {Phase.DONE, Phase.FATAL, Phase.EXITED}
        dollars = (self.on_s + max(0.0, self.now_s - self.up_s)) / 3600.0 * PRICE
        budget = self.configured.cost.budget_usd
        hold = {
            DONE: all(each.phase in over for each in wanted) and any(each.phase is Phase.DONE for each in wanted),
            STUCK: any(each.phase is not Phase.DONE for each in wanted)
            and all(each.phase in over or self.is_struck(each.name) for each in wanted),
            BUDGET: budget is not None and dollars >= budget * 0.98,
        }
        return {cause for cause in self.rules.when if hold[cause]}

    def perform(self, decision):
        if self.living:
            self.alive_s = self.now_s
        for fact in decision.facts:
            if isinstance(fact, facts.WhenDoneStep):
                self.follow(fact, decision.state)
            elif isinstance(fact, facts.AlertRaised) and fact.alert == "done":
                self.done_alerts += 1
                hold("at most three alerts an end", self.done_alerts <= 3, fact.why)
        super().perform(decision)
        self.look_for_an_overlooked_end(decision)

    def follow(self, fact, state):
        now_s = state.at_s
        match fact.step:
            case Step.BEGIN:
                self.begun_s, self.left_s, self.done_alerts = now_s, None, 0
                self.begun_calm = self.calm
            case Step.CALL_OFF:
                delay_s = self.delay_s
                self.forget_end()
                self.delay_s = delay_s
            case "cancel" | "delay":
                self.now = self.waived = self.refused = False
                self.cancelled, self.left_s, self.done_alerts = fact.step == CANCEL, None, 0
                self.delay_s = fact.until_s or self.delay_s
            case "now":
                self.cancelled, self.now, self.delay_s, self.waived = False, True, None, self.refused
            case Step.REFUSE:
                self.refused = True
            case Step.LEAVE:
                self.left_s, self.asked = now_s, set()
                self.due(now_s)
            case Step.RUN:
                self.judge(now_s)
                self.now = False
            case Step.ENDED if fact.error:
                self.failures, self.tried_s = self.failures + 1, now_s

    def due(self, now_s):
        """The wait of the rule is over."""
        if self.now:
            return
        waits = {"after_s": self.begun_s + self.rules.after_s, "the delay": self.delay_s or 0.0}
        for what, at_s in waits.items():
            hold("the rule's time has come", now_s >= at_s - 0.001, f"{what} is over at {at_s:.0f}, now is {now_s:.0f}")
        logged_in = self.core.memory.host is not None and self.core.memory.host.logged_in
        hold("nobody is logged in", not (logged_in and self.rules.hold_while_logged_in), "yet the end goes on")

    def judge(self, now_s):
        """The command is about to run."""
        hold("it has a cause", self.causes(), f"{self.rules.when}, and the programs are {self.fates}")
        hold("nobody has cancelled it", not self.cancelled, "yet it runs")
        hold("no process runs", not self.living or self.waived, f"{[each.name for each in self.alive()]} run")
        if self.tried_s is not None and not self.now:
            again_s = self.tried_s + retry_s(self.failures)
            hold("a failed command waits", now_s >= again_s - 0.001, f"until {again_s:.0f}, now is {now_s:.0f}")
        if self.copies and not self.waived:
            copied = self.copied_s is not None and self.copied_s >= self.alive_s
            hold("the newest state is copied", copied, f"copied at {self.copied_s}, a process ran at {self.alive_s:.0f}")
        asked = [self.workers[token] for token in self.asked if token in self.workers]
        for worker in (each for each in asked if each.name in self.core.state.programs):  # an update may have removed one
            killed = not worker.alive and worker.ending and worker.ending.signal == 9
            if killed and worker.resumed is not None and int(worker.steps) > worker.disk.newest():
                hold("all is saved", self.waived, f"{worker.name} was killed at step {int(worker.steps)} without a save")
        slow = any(each.ignores_term for each in asked)
        if self.begun_s is not None and self.calm and self.begun_calm and self.failures == 0 and not slow:
            late_s = now_s - max(self.begun_s + self.rules.after_s, self.delay_s or 0.0)
            hold("the command is not late", self.now or late_s <= LATE_S, f"{late_s:.0f} s after the rule's time")

    def look_for_an_overlooked_end(self, decision):
        """Whether a cause that needs no patience holds for long, and no end has begun."""
        state = decision.state
        idle = state.stopping or decision.memory.ended or state.when_done.cause or self.core.failing is not None
        known = self.causes() & {DONE}
        self.missing_s = None if idle or not known else (self.missing_s or self.now_s)
        waited_s = 0.0 if self.missing_s is None else self.now_s - self.missing_s
        hold("no end is overlooked", waited_s <= OVERLOOKED_S, f"{known} holds for {waited_s:.0f} s")


def night(seed):
    """Six rough hours, then ten calm ones, in which the box must be stopped if it can be. Returns the world."""
    world = Meter(seed).begin()
    world.run(LENGTH_S)
    if world.stopped_s is None:
        world.calm_down()
        world.host = Host()
        world.run(CALM_S)
    if world.stopped_s is None:
        record = world.core.state.when_done
        excused = record.cancelled or (record.refused and not world.copies)
        causes = world.causes() - ({BUDGET} if record.over_budget else set())
        hold("the box is stopped in the end", excused or not causes, f"{causes}, {record}")
    return world
