"""A small fake world around the real core: a clock, workers that train and go wrong, a daemon that can be killed, a host.

Everything random is drawn from one seeded generator, so a seed is a story. The world answers the core's commands with
inputs after a while, as the adapters do; what it may not do is help: no command is repaired, no input invented.
"""

import heapq
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

from core_kit import Core, commands, facts, spec

from supervisor.core.inputs import (
    Asked,
    Began,
    BootEvidence,
    ConfigLoaded,
    Ended,
    Ending,
    EvidenceTaken,
    Report,
    Sample,
    Sampled,
    SpawnBroke,
    SpawnSucceeded,
    Survival,
    Survivor,
    Terminated,
    Verb,
    Woke,
)
from supervisor.core.lifecycle import Phase
from supervisor.core.memory import Memory
from supervisor.core.settings import DaemonSettings, Level, Paths, Settings
from supervisor.core.state import fold_all

STEPS_PER_S = 100.0
START_S = 5.0  # import, environments, restore
STORY_KEPT = 25


@dataclass
class Disk:
    """What outlives every process of a program: its whole checkpoints, and those that kill whoever loads them."""

    checkpoints: list = field(default_factory=list)
    poison: set = field(default_factory=set)

    def newest(self):
        return self.checkpoints[-1] if self.checkpoints else 0


@dataclass
class Worker:
    """One process of a program, from exec to its last breath."""

    name: str
    token: str
    number: int
    began_s: float
    disk: Disk
    interval_s: float = 60.0
    state: str = "S"
    alive: bool = True
    stuck_at_s: float | None = None  # no progress since
    live_at_s: float | None = None  # its side thread ran last; None: it still does
    ignores_term: bool = False
    doomed: bool = False  # SIGKILL is pending while it sits in state D
    resumed: int | None = None
    steps: float = 0.0
    at_s: float = 0.0
    saved_at_s: float = 0.0
    saves: int = 0
    ending: Ending | None = None

    def advance(self, now_s):
        """Train until `now_s`, or until it got stuck; save on the way."""
        until_s = now_s if self.stuck_at_s is None else min(now_s, self.stuck_at_s)
        ready_s = self.began_s + START_S
        if self.resumed is None and until_s >= ready_s:
            self.resumed = self.disk.newest()
            self.steps, self.at_s, self.saved_at_s = float(self.resumed), ready_s, ready_s
        if self.resumed is None or until_s <= self.at_s:
            return
        due = int((until_s - self.saved_at_s) / self.interval_s)
        if due > 0:
            self.saved_at_s += due * self.interval_s
            self.save(self.steps + STEPS_PER_S * (self.saved_at_s - self.at_s))
        self.steps += STEPS_PER_S * (until_s - self.at_s)
        self.at_s = until_s

    def save(self, steps):
        if int(steps) > self.disk.newest():
            self.disk.checkpoints.append(int(steps))
            self.saves += 1

    def sample(self, now_s):
        self.advance(now_s)
        trains = self.resumed is not None
        stopped = self.state == "T"
        moved_at_s = self.at_s if trains else min(now_s, self.began_s + START_S, self.stuck_at_s or now_s)
        return Sample(
            self.token, self.state, live_at_s=self.stuck_at_s if stopped else (self.live_at_s or now_s),
            progress_at_s=moved_at_s, phase="training" if trains else "restoring", phase_since_s=self.began_s,
            ready=trains, steps=int(self.steps) if trains else None, steps_per_s=STEPS_PER_S if trains else None,
            ckpt_step=self.disk.newest() if self.saves else None, ckpt_at_s=self.saved_at_s if self.saves else None,
            ckpt_count=self.saves, ckpt_stall_s=0.004 if self.saves else None, target=10**9, target_kind="env_steps",
        )  # fmt: skip

    def reports(self):
        return () if self.resumed is None else (Report("resumed", {"at_ns": self.number, "step": self.resumed}),)


@dataclass
class Odds:
    """Mean seconds between faults (None: never), and the chances of the rest."""

    crash_s: float | None = 2 * 3600.0
    stall_s: float | None = 3 * 3600.0
    finish_s: float | None = 40 * 3600.0
    operator_s: float | None = 3600.0
    daemon_kill_s: float | None = 2 * 3600.0
    daemon_pause_s: float | None = 6 * 3600.0
    reboot_s: float | None = 4 * 3600.0
    spawn_breaks: float = 0.03
    evidence_lost: float = 0.1
    bad_start: float = 0.02  # an attempt that dies at once, code 1 or 78
    poison: float = 0.001
    ignores_term: float = 0.1
    commands_lost: float = 0.5  # of the kills that come between commit and commands

    def calm(self):
        return Odds(*[None] * 7, *[0.0] * 6)


CALM = Odds().calm()


class World:
    """One host, for as long as the story goes."""

    def __init__(self, seed, *, programs=4, slots=2, odds=None, look_s=10.0, **rules):
        self.seed, self.dice, self.odds = seed, random.Random(seed), odds or Odds()
        names = [f"P{number}" for number in range(programs)]
        self.specs = {name: spec(name, priority=100 + 10 * (number % 2)) for number, name in enumerate(names)}
        daemon = DaemonSettings(sample_period_s=look_s)
        first = Settings(Paths("/s", "/r"), Level(slots=slots), tuple(self.specs.values()), daemon=daemon, **rules)
        self.core, self.configured = Core(first, checks=17), first
        self.look_s = look_s
        self.now_s, self.boot, self.boot_began_s, self.order = 0.0, 1, 0.0, 0
        self.events, self.daemon = [], 0  # `daemon`: the number of the present one, 0 while there is none
        self.daemons = 0
        self.disks = {name: Disk() for name in names}
        self.workers = {}  # token -> Worker
        self.waiting = {}  # request -> the daemon that was asked
        self.requests, self.alerts, self.reboots, self.story = 0, 0, 0, []
        self.paused_until_s = 0.0
        self.cut = None  # the daemon dies in its next turn with commands, after this share of them
        self.up_s, self.down_s, self.last_steps = 0.0, None, {}
        self.counts = {}  # of facts, by kind

    # the clock

    def after(self, seconds, do, *args):
        self.order += 1
        heapq.heappush(self.events, (self.now_s + max(0.0, seconds), self.order, do, args))

    def soon(self, least_s, most_s, do, *args):
        self.after(self.dice.uniform(least_s, most_s), do, *args)

    def often(self, mean_s, do, *args):
        if mean_s is not None:
            self.after(self.dice.expovariate(1.0 / mean_s), do, *args)

    def run(self, seconds):
        """Let the story go on for so long."""
        end_s = self.now_s + seconds
        while True:
            wake_s = self.core.wake_at_s if self.daemon and self.core.wake_at_s is not None else None
            wake_s = None if wake_s is None else max(wake_s, self.paused_until_s, self.now_s)
            next_s = self.events[0][0] if self.events else end_s
            if min(next_s, end_s if wake_s is None else wake_s) >= end_s:
                self.now_s = end_s
                return
            if wake_s is not None and wake_s < next_s:
                self.now_s = wake_s
                self.turn(Woke(self.now_s))
            else:
                at_s, _, do, args = heapq.heappop(self.events)
                self.now_s = max(self.now_s, at_s)
                do(*args)

    # the daemon

    def start(self):
        """The service manager starts a daemon; it looks at what there is and begins."""
        if self.daemon:
            return
        self.daemons += 1
        self.daemon = self.daemons
        self.core.memory, self.core.settings = Memory(), self.configured
        state = fold_all(self.core.journal)
        assert state == self.core.state, "replay gives another state than the one that was live"
        boot_id = f"boot-{self.boot}"
        rebooted = None if not self.core.journal else state.boot_id != boot_id
        before = {name: (p.streak, p.failures, p.restarts, p.openings) for name, p in state.programs.items()}
        boot = BootEvidence(
            boot_id, rebooted, "boot id changed" if rebooted else "same boot", down_s=self.down_s, up_s=self.up_s if rebooted else None,
            steps=dict(self.last_steps) if rebooted else {}, boot_wall_s=self.core.wall_offset_s + self.boot_began_s,
        )  # fmt: skip
        self.core.boot_id = boot_id
        self.reboots += bool(rebooted)
        self.turn(
            Began(self.now_s, self.configured, boot, {} if rebooted else self.survey(state), 1, "1", f"{self.daemons}")
        )
        if rebooted:
            for name, program in self.core.state.programs.items():
                if name in before:
                    found = (program.streak, program.failures, program.restarts, program.openings)
                    assert found == before[name] or found == (0, *before[name][1:3], 0), f"{name} pays for a reboot"
        self.after(self.look_s, self.look, self.daemon)

    def survey(self, state):
        found = {}
        for name, program in state.live.items():
            worker = self.workers.get(program.attempt.token)
            if worker is None:
                found[name] = Survivor(program.attempt.token, Survival.NEVER)
            elif worker.alive:
                pid = 1000 + worker.number
                found[name] = Survivor(worker.token, Survival.ALIVE, pid, 5, pid + 1, 5)
            else:
                found[name] = Survivor(worker.token, Survival.ENDED, ending=worker.ending)
        return found

    def turn(self, item):
        """One turn of the deciding thread; a daemon that is paused or dead takes nothing."""
        if not self.daemon:
            return
        if self.now_s < self.paused_until_s:
            self.after(self.paused_until_s - self.now_s, self.turn, item)
            return
        item = replace(item, now_s=self.now_s)
        ckpt = {name: program.ckpt_step for name, program in self.core.state.programs.items()}
        decision = self.core.give(item)
        quiet = facts.Checkpointed | facts.IntervalChosen
        told = [
            f"{type(f).__name__}({getattr(f, 'program', '')}: {f.why})" for f in decision.facts if not isinstance(f, quiet)
        ]
        if told or not isinstance(item, Sampled):
            self.story = [*self.story[-STORY_KEPT:], f"{self.now_s:12.2f}  {type(item).__name__:15}{'; '.join(told)}"]
        for fact in decision.facts:
            self.counts[type(fact).__name__] = self.counts.get(type(fact).__name__, 0) + 1
        self.check(decision, ckpt)
        if self.cut is not None and decision.commands:
            kept, self.cut = self.cut, None
            for command in decision.commands[: int(kept * len(decision.commands))]:
                self.perform(command)
            self.kill_daemon()
            return
        for command in decision.commands:
            self.perform(command)

    def check(self, decision, ckpt):
        """What must hold in the world after every step, beyond what `Core.give` has checked."""
        excused = {f.program for f in decision.facts if isinstance(f, facts.CheckpointQuarantined | facts.Resumed)}
        for name, program in decision.state.programs.items():
            old = ckpt.get(name)
            if old is not None and name not in excused:
                assert program.ckpt_step is not None, f"{name} forgot its checkpoint at {old}"
                assert program.ckpt_step >= old, f"{name}: a lower checkpoint, {program.ckpt_step}, over {old}"
        for name, program in decision.state.programs.items():
            alive = [worker for worker in self.workers.values() if worker.name == name and worker.alive]
            assert len(alive) <= 1, f"{len(alive)} processes of {name}"
            if alive and not program.wanted:
                assert program.phase is Phase.STOPPING, f"{name} was stopped by the operator, yet it is {program.phase}"

    # commands

    def perform(self, command):
        match command:
            case commands.Spawn(spec=found, attempt=number, token=token):
                live = [w.name for w in self.workers.values() if w.alive]
                assert found.name not in live, f"a second process of {found.name}"
                assert len(live) < self.core.settings.level.slots, f"{live} and {found.name}: more than the slots"
                assert self.core.state.programs[found.name].wanted
                self.spawn(found.name, number, token)
            case commands.SendSignal(token=token, signal=signal):
                self.signal(token, signal)
            case commands.KillTree(token=token):
                self.kill(token)
            case commands.TakeEvidence(program=name, token=token):
                if self.dice.random() >= self.odds.evidence_lost:
                    self.soon(0.1, 5.0, self.turn, EvidenceTaken(0.0, name, token, {"stacks": "File x"}))
            case commands.SetControl(token=token, interval_s=interval_s):
                if token in self.workers:
                    self.workers[token].advance(self.now_s)
                    self.workers[token].interval_s = interval_s
            case commands.QuarantineCheckpoint(program=name, step=step):
                disk = self.disks[name]
                disk.checkpoints = [found for found in disk.checkpoints if found != step]
                disk.poison.discard(step)
            case commands.Reply(request_id=request):
                assert request in self.waiting, f"request {request} is answered twice, or was never asked"
                del self.waiting[request]
            case commands.AlertReboot(number=number):
                self.alerts += 1
                assert number == self.reboots
            case commands.EndDaemon(reexec=reexec):
                self.daemon, self.waiting = 0, {}
                self.drop_inputs()
                self.after(0.5 if reexec else 300.0, self.start)

    def spawn(self, name, number, token):
        if self.dice.random() < self.odds.spawn_breaks:
            self.soon(0.0, 0.2, self.turn, SpawnBroke(0.0, name, token, "fork: no memory", self.dice.random() < 0.1))
            return
        worker = Worker(name, token, number, self.now_s, self.disks[name], at_s=self.now_s)
        worker.ignores_term = self.dice.random() < self.odds.ignores_term
        self.workers[token] = worker
        pid = 1000 + number
        self.soon(0.0, 0.2, self.turn, SpawnSucceeded(0.0, name, token, pid, 5, pid + 1, 5))
        if self.dice.random() < self.odds.bad_start:
            self.soon(
                0.3, 4.0, self.end, token, Ending(code=self.dice.choice([1, 1, 1, 78]), last_lines=("OSError: disk full",))
            )
        self.often(self.odds.crash_s, self.crash, token)
        self.often(self.odds.stall_s, self.stall, token)
        self.often(self.odds.finish_s, self.end, token, Ending(code=0))
        if worker.disk.newest() in worker.disk.poison:
            self.soon(START_S, START_S + 20.0, self.end, token, Ending(signal=11))

    def signal(self, token, signal):
        worker = self.workers.get(token)
        if worker is None or not worker.alive:
            return
        if signal == "SIGCONT" and worker.state == "T":
            worker.state, worker.stuck_at_s, worker.at_s = "S", None, max(worker.at_s, self.now_s)
            if worker.resumed is None:
                worker.began_s = self.now_s
        if signal == "SIGTERM" and not worker.ignores_term and worker.stuck_at_s is None:
            self.soon(0.1, 5.0, self.leave, token)

    def leave(self, token):
        worker = self.workers[token]
        if worker.alive and worker.stuck_at_s is None:
            worker.advance(self.now_s)
            if worker.resumed is not None:
                worker.save(worker.steps)
            self.end(token, Ending(code=75))

    def kill(self, token):
        worker = self.workers.get(token)
        if worker is not None and worker.alive:
            if worker.state == "D":
                worker.doomed = True
            else:
                self.end(token, Ending(signal=9))

    # what goes wrong

    def crash(self, token):
        if self.workers[token].state == "S":
            self.end(token, self.dice.choice([Ending(code=1, last_lines=("E",)), Ending(signal=9), Ending(signal=11)]))

    def stall(self, token):
        worker = self.workers[token]
        if not worker.alive or worker.stuck_at_s is not None:
            return
        worker.advance(self.now_s)
        worker.stuck_at_s = self.now_s
        match self.dice.choice(["hang", "gil", "stopped", "kernel", "short"]):
            case "gil":
                worker.live_at_s = self.now_s
            case "stopped":
                worker.state = "T"
            case "kernel":
                worker.state = "D"
                self.soon(60.0, 3600.0, self.leave_kernel, token)
            case "short":
                self.soon(1.0, 60.0, self.move_again, token)

    def move_again(self, token):
        worker = self.workers[token]
        if worker.alive and worker.state == "S":
            worker.stuck_at_s, worker.at_s, worker.saved_at_s = None, max(worker.at_s, self.now_s), self.now_s

    def leave_kernel(self, token):
        worker = self.workers[token]
        worker.state = "S"
        if worker.doomed:
            self.end(token, Ending(signal=9))

    def end(self, token, ending):
        """The process is gone, its tree too; the news takes a moment, and waits in the exit record if nobody listens."""
        worker = self.workers[token]
        if not worker.alive or (worker.state in {"D", "T"} and ending.signal != 9):
            return
        worker.advance(self.now_s)
        worker.alive = False
        steps = int(worker.steps) if worker.resumed is not None else None
        known = worker.disk.newest() if worker.saves else None
        if worker.saves and self.dice.random() < self.odds.poison * worker.saves:
            worker.disk.poison.add(worker.disk.newest())
        worker.ending = replace(ending, steps=steps, ckpt_step=known, reports=worker.reports())
        self.soon(0.01, 0.2, self.turn, Ended(0.0, worker.name, token, worker.ending))

    # what happens to the daemon and the host

    def look(self, daemon):
        if daemon != self.daemon:
            return
        live = {worker.name: worker for worker in self.workers.values() if worker.alive}
        seen = {name: worker.sample(self.now_s) for name, worker in live.items()}
        reports = tuple((name, worker.token, report) for name, worker in live.items() for report in worker.reports())
        if self.now_s >= self.paused_until_s:
            self.turn(Sampled(0.0, seen, reports))
        self.after(self.look_s, self.look, daemon)

    def kill_daemon(self):
        if not self.daemon:
            return
        self.daemon, self.cut, self.paused_until_s = 0, None, 0.0
        self.waiting = {}
        self.drop_inputs()
        self.story.append(f"{self.now_s:12.2f}  the daemon is killed")
        self.soon(1.0, 20.0, self.start)

    def drop_inputs(self):
        """What was on its way to a daemon that is dead never arrives; exit records and processes stay."""
        self.events = [event for event in self.events if event[2] != self.turn]
        heapq.heapify(self.events)

    def reboot(self, down_s=60.0):
        """Power cut: every process ends, nothing is said to anyone."""
        self.last_steps = {}
        for worker in self.workers.values():
            if worker.alive:
                worker.advance(self.now_s)
                worker.alive = False
                if worker.resumed is not None:
                    self.last_steps[worker.name] = int(worker.steps)
        self.workers = {}
        self.waiting = {}
        self.daemon, self.cut, self.paused_until_s = 0, None, 0.0
        self.events = [event for event in self.events if event[2] in {self.misfortune, self.operate}]
        heapq.heapify(self.events)
        self.up_s = self.now_s - self.boot_began_s
        self.boot += 1
        self.story.append(f"{self.now_s:12.2f}  the host reboots")
        self.boot_began_s, self.down_s = self.now_s + down_s, down_s
        self.after(down_s + 1.0, self.start)

    def misfortune(self, kind):
        odds, dice = self.odds, self.dice
        mean_s = {"kill": odds.daemon_kill_s, "pause": odds.daemon_pause_s, "reboot": odds.reboot_s}[kind]
        if mean_s is None:
            return
        self.after(dice.expovariate(1.0 / mean_s), self.misfortune, kind)
        if kind == "reboot":
            self.reboot(dice.uniform(20.0, 600.0))
        elif not self.daemon:
            return
        elif kind == "pause":
            self.paused_until_s = self.now_s + dice.uniform(5.0, 900.0)
        elif dice.random() < odds.commands_lost:
            self.cut = dice.random()
        else:
            self.kill_daemon()

    # the operator

    def operate(self):
        if self.odds.operator_s is None:
            return
        self.after(self.dice.expovariate(1.0 / self.odds.operator_s), self.operate)
        if not self.daemon:
            return
        what = self.dice.random()
        if what < 0.75:
            verb = self.dice.choice([Verb.START, Verb.START, Verb.STOP, Verb.RESTART, Verb.SIGNAL])
            self.ask(verb, self.dice.choice([*self.specs, "Nobody"]))
        elif what < 0.95:
            self.reconfigure()
        elif what < 0.98:
            self.ask(Verb.RELOAD)
        else:
            self.turn(Terminated(0.0, "SIGTERM"))

    def ask(self, verb, *names):
        self.requests += 1
        self.waiting[self.requests] = self.daemon
        self.turn(Asked(0.0, verb, self.requests, names, "SIGUSR2" if verb is Verb.SIGNAL else ""))

    def reconfigure(self):
        name = self.dice.choice([*self.specs])
        programs = {found.name: found for found in self.configured.programs}
        match self.dice.choice(["change", "toggle", "slots"]):
            case "change" if name in programs:
                programs[name] = replace(programs[name], digest=f"{name}-{self.requests}-{self.now_s:.0f}")
            case "toggle" if name in programs:
                del programs[name]
            case "toggle":
                programs[name] = self.specs[name]
            case _:
                self.configured = replace(self.configured, level=Level(slots=self.dice.randint(1, len(self.specs))))
        self.configured = replace(self.configured, programs=tuple(programs.values()))
        self.turn(ConfigLoaded(0.0, self.configured))

    # whole stories

    def begin(self):
        self.start()
        self.often(self.odds.daemon_kill_s, self.misfortune, "kill")
        self.often(self.odds.daemon_pause_s, self.misfortune, "pause")
        self.often(self.odds.reboot_s, self.misfortune, "reboot")
        self.often(self.odds.operator_s, self.operate)
        return self

    def tale(self, since_s=0.0):
        """What the journal says, as one line a fact: for a story that is compared with what it should be."""
        quiet = facts.Checkpointed | facts.IntervalChosen | facts.Spawned | facts.LevelChosen | facts.ProgramConfigured
        return [
            f"{int(item.at_s) // 3600}:{int(item.at_s) // 60 % 60:02}:{int(item.at_s) % 60:02}  "
            f"{getattr(item.fact, 'program', 'box'):5}{item.fact.why}"
            for item in self.core.journal
            if item.at_s >= since_s and not isinstance(item.fact, quiet)
        ]

    def calm_down(self):
        """No more faults, and the operator wants everything: what is left must heal by itself."""
        self.odds = self.odds.calm()
        for disk in self.disks.values():
            disk.poison.clear()
        faults = {self.misfortune, self.operate, self.crash, self.stall}
        self.events = [event for event in self.events if event[2] not in faults]
        heapq.heapify(self.events)
        self.cut, self.paused_until_s = None, min(self.paused_until_s, self.now_s)


__all__ = ["CALM", "Ending", "Odds", "Phase", "Verb", "World"]
