"""What runs in the simulated world: a program's disk, and one process of it that trains, saves, goes wrong and ends."""

from dataclasses import dataclass, field, replace

from fakes import sample

from supervisor.model.inputs import Ending, Halted, OwnCheckpoint, Report, Sample
from supervisor.policy.script.figures import LOG, FigureRow, Figures, after

STEPS_PER_S = 100.0
START_S = 5.0  # import, environments, restore
SAVE_COST_S = 0.004  # training is blocked for so long by each checkpoint
KEPT = 12  # checkpoints on a disk


@dataclass
class Disk:
    """What outlives every process of a program: its whole checkpoints, and those that kill whoever loads them."""

    checkpoints: list = field(default_factory=list)
    poison: set = field(default_factory=set)
    damage: dict = field(default_factory=dict)  # step -> what is wrong with that one
    full: bool = False

    def newest(self):
        return self.checkpoints[-1] if self.checkpoints else 0

    def own(self, aside=(), saved_at_s=None):
        """As a look at a script's own checkpoints finds them, once these were set aside."""
        self.checkpoints = [step for step in self.checkpoints if f"/w/{step}.pt" not in aside]
        whole = [step for step in self.checkpoints if step not in self.damage]
        torn = f"/w/{self.newest()}.pt" if self.newest() in self.damage else ""
        note = f"{self.newest()}.pt is torn: {self.damage[self.newest()]}" if torn else ""
        if not whole:
            return OwnCheckpoint(torn=torn, note=note)
        return OwnCheckpoint(f"/w/{whole[-1]}.pt", whole[-1], saved_at_s, 1_000_000, torn, note=note)

    def roll_back(self, step):
        """What is there from this step on is set aside, but never the last."""
        older = [found for found in self.checkpoints if found < step]
        self.checkpoints = older or self.checkpoints[:1]


@dataclass
class Worker:
    """One process of a program, from exec to its last breath. Its times are the world's."""

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
    save_cost_s: float = SAVE_COST_S
    died_at_s: float | None = None
    saving_s: float = 0.0  # blocked by checkpoints so far
    pace: float = 1.0
    beat_lost: bool = False  # its beats cannot be read
    bad_since_s: float | None = None  # its losses are not finite since then
    figures: dict = field(default_factory=dict)  # what else its beats tell
    saves_itself: bool = False  # where the daemon looks
    is_script: bool = False  # it knows nothing of extralife, and prints nothing
    prints_every: int = 0  # steps, of a script whose log is read; 0: it prints nothing
    printed: Figures = field(default_factory=Figures)  # what its log has said
    loss: float = 0.5
    child_stopped_at_s: float | None = None  # its only child, which does all the work
    said: list = field(default_factory=list)  # reports beside that it resumed

    def advance(self, now_s):
        """Train until `now_s`, or until it got stuck; save on the way."""
        until_s = now_s if self.stuck_at_s is None else min(now_s, self.stuck_at_s)
        ready_s = self.began_s + START_S
        if self.resumed is None and until_s >= ready_s:
            self.resumed = self.restore()
            self.steps, self.at_s, self.saved_at_s = float(self.resumed), ready_s, ready_s
        if self.resumed is None or until_s <= self.at_s:
            return
        due = int((until_s - self.saved_at_s) / self.interval_s)
        if due > 0:
            gone = max(0, due - KEPT)  # the disk keeps only the newest
            self.saves += 0 if self.disk.full else gone
            self._train_and_save(gone + 1)
            for _ in range(due - gone - 1):
                self._train_and_save(1)
        self.steps += self.pace * STEPS_PER_S * max(0.0, until_s - self.at_s)
        self.at_s = max(self.at_s, until_s)

    def _train_and_save(self, periods):
        """To the end of so many intervals, each with a save; the last one is kept."""
        self.saved_at_s += periods * self.interval_s
        trained_s = max(0.0, self.saved_at_s - self.at_s - (periods - 1) * self.save_cost_s)
        self.steps += self.pace * STEPS_PER_S * trained_s
        self.save(self.steps)
        self.at_s = self.saved_at_s + self.save_cost_s
        self.saving_s += periods * self.save_cost_s

    def save_every(self, interval_s, now_s):
        """What its control record says from now on: overdue by it, it saves now, not in the past."""
        self.advance(now_s)
        self.interval_s = interval_s
        self.saved_at_s = max(self.saved_at_s, now_s - interval_s)

    def restore(self):
        """The newest whole checkpoint; what is damaged is set aside and reported."""
        found = len(self.disk.checkpoints)
        while self.disk.newest() in self.disk.damage:
            step = self.disk.checkpoints.pop()
            self.say("checkpoint_bad", path=f"ckpt-{step}.bad", error=self.disk.damage.pop(step))
        if found and not self.disk.checkpoints:
            self.say("from_scratch", step=0, error="no checkpoint is whole")
        return self.disk.newest()

    def say(self, kind, **fields):
        self.said.append(Report(kind, {"at_ns": 1000 * self.number + len(self.said), **fields}))

    def save(self, steps):
        if self.disk.full:
            if not any(report.kind == "checkpoint_failed" for report in self.said):
                why = f"checkpoint at step {int(steps)} was not written: No space left on device"
                self.say("checkpoint_failed", error=why, step=int(steps), free_bytes=0)
            return
        if int(steps) > self.disk.newest():
            self.disk.checkpoints.append(int(steps))
            del self.disk.checkpoints[:-KEPT]
            self.saves += 1

    def stick(self, now_s):
        """From here on there is no progress."""
        self.advance(now_s)
        if self.stuck_at_s is None:
            self.stuck_at_s = now_s

    def move_again(self, now_s):
        """As if the time in between had not been: nothing was trained, nothing saved."""
        self.stuck_at_s, self.live_at_s, self.at_s = None, None, max(self.at_s, now_s)
        if self.resumed is None:
            self.began_s = now_s
        else:
            self.saved_at_s = max(self.saved_at_s, now_s)

    def stop_child(self, now_s):
        self.stick(now_s)
        self.child_stopped_at_s = now_s

    def continue_child(self, now_s):
        if self.child_stopped_at_s is not None:
            self.child_stopped_at_s = None
            self.move_again(now_s)

    def die(self, now_s):
        self.advance(now_s)
        self.alive, self.died_at_s = False, now_s

    def sample(self, now_s, offset_s=0.0):
        """What a look finds: its beat record, which stays readable after its death, and its line in /proc.

        `offset_s` makes journal time of the world's.
        """
        if self.died_at_s is not None:
            now_s = min(now_s, self.died_at_s)
        self.advance(now_s)
        if self.is_script:
            worked_s = now_s if self.stuck_at_s is None else self.stuck_at_s
            child = self.child_stopped_at_s
            self.look_at_log(now_s, offset_s)
            return self.as_printed(Sample(
                self.token, self.state if self.alive else None, pids=(self.number + 5000,),
                witness_at_s=worked_s - worked_s % 5.0 + offset_s if worked_s - self.began_s > 5.0 else None, witness="cpu",
                halted=() if child is None else (Halted(self.number + 5000, 5, "python", "T", child + offset_s),),
                own=self.disk.own(saved_at_s=self.saved_at_s + offset_s) if self.saves_itself and self.saves else None,
            ))  # fmt: skip
        if self.beat_lost and self.alive:
            moved_s = now_s if self.stuck_at_s is None else self.stuck_at_s
            return Sample(self.token, self.state, progress_at_s=moved_s + offset_s, phase="training", beat_lost=True)
        trains = self.resumed is not None
        live_at_s = self.stuck_at_s if self.state == "T" and self.stuck_at_s is not None else (self.live_at_s or now_s)
        moved_at_s = min(now_s, self.at_s) if trains else min(now_s, self.began_s + START_S, self.stuck_at_s or now_s)
        bad = 0 if self.bad_since_s is None else int(10 * (now_s - self.bad_since_s))
        updates = bad + int(10 * (min(now_s, self.bad_since_s or now_s) - self.began_s))
        return sample(
            self.token, proc_state=self.state if self.alive else None, live_at_s=live_at_s + offset_s,
            progress_at_s=moved_at_s + offset_s, phase="training" if trains else "restoring",
            phase_since_s=self.began_s + (START_S if trains else 0.0) + offset_s, ready=trains, steps=int(self.steps) if trains else None,
            steps_per_s=self.pace * STEPS_PER_S if trains else None,
            nan_count=bad, ckpt_step=self.disk.newest() if self.saves else None,
            ckpt_at_s=self.saved_at_s + offset_s if self.saves else None, ckpt_count=self.saves,
            ckpt_stall_s=self.save_cost_s if self.saves else None, target=10**9, target_kind="env_steps",
            episodes=int(self.steps) // 10 if trains and self.figures else None,
            **({"updates": updates, **self.figures} if trains else {}),
        )  # fmt: skip

    def look_at_log(self, now_s, offset_s):
        """The lines of its log since the look before: one every so many steps, at the time at which it was printed."""
        if self.resumed is None or not self.prints_every:
            return
        known = self.printed.steps
        step = self.prints_every * (1 + (self.resumed if known is None else known) // self.prints_every)
        rows = []
        while step <= self.steps:
            at_s = self.at_s - (self.steps - step) / (self.pace * STEPS_PER_S)
            rows.append(
                FigureRow(LOG, min(now_s, at_s) + offset_s, {"step": float(step), "loss": self.loss, "return": 21.0})
            )
            step += self.prints_every
        self.printed = after(self.printed, rows)

    def as_printed(self, found):
        """A sample with what the log has said, as `adapters/process/probes.py` makes it."""
        said = self.printed
        if said.moves < 2:
            return found
        return replace(
            found, source="figures", progress_at_s=said.moved_at_s, phase="training", ready=True, steps=said.steps,
            first_steps=said.first_steps, steps_per_s=said.rate, nan_count=said.nan_count, losses=said.losses, figures=dict(said.values),
        )  # fmt: skip

    def reports(self):
        if self.resumed is None or self.is_script:
            return ()
        if any(report.kind == "from_scratch" for report in self.said):  # a worker reports one of both
            return tuple(self.said)
        return (*self.said, Report("resumed", {"at_ns": self.number, "step": self.resumed}))
