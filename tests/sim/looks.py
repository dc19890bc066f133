"""What the daemon of the simulated world sees: its looks, and the sign of life that it leaves."""

from dataclasses import replace

from invariants import check_with_each_look

from supervisor.adapters.host import boot
from supervisor.model.inputs import ClockMoved, Sampled

LIVELY_FOR_S = 90.0  # after something happened, when looks are taken as they are needed
CLOCK_STEP_S = 2.0  # what shell/sampler.py calls a step


class Looks:
    """The part of the world that is read; `world.py` has the rest."""

    def look_at(self, at_s):
        if self.look_due_s is None or at_s < self.look_due_s:
            self.look_due_s = at_s
            self.after(at_s - self.now_s, self.look, self.daemon, at_s)

    def look_soon(self):
        """Something happened: with `lively_s` the next looks come as they are needed to see what becomes of it."""
        if self.lively_s is not None and self.daemon:
            self.lively_until_s = self.now_s + LIVELY_FOR_S
            self.look_at(self.now_s + self.lively_s)

    def look(self, daemon, due_s):
        """`shell/sampler.py`, and the sign of life that another thread writes."""
        if daemon != self.daemon or due_s != self.look_due_s:
            return
        self.look_due_s = None
        if self.now_s < self.paused_until_s:  # stopped as a whole, this thread too
            self.look_at(self.paused_until_s)
            return
        lively = self.lively_s is not None and self.now_s < self.lively_until_s
        self.look_at(self.now_s + (self.lively_s if lively else self.look_s))
        offset_s = self.wall_s - self.core.now_s
        if self.seen_offset_s is not None and abs(offset_s - self.seen_offset_s) > CLOCK_STEP_S:
            self.post(ClockMoved(0.0, offset_s - self.seen_offset_s))
        self.seen_offset_s = offset_s
        found = [(name, self.workers.get(token)) for name, token in self.watched.items()]
        seen = {name: worker.sample(self.now_s, self.shift_s) for name, worker in found if worker is not None}
        reports = tuple((name, worker.token, report) for name, worker in found if worker for report in worker.reports())
        gpus = None if self.gpus is None else replace(self.gpus)  # read anew, whatever it says
        self.post(Sampled(0.0, seen, reports, self.core.now_s, gpus))
        self.leave_mark()
        check_with_each_look(self)

    def leave_mark(self):
        """The durable sign of life, as the daemon writes it."""
        if self.core.failing is not None:
            return
        state, memory = self.core.state, self.core.memory
        steps = {name: program.steps for name, program in state.live.items() if program.steps is not None}
        newest = {n: w.sample.steps for n, w in memory.watches.items() if n in state.live and w.sample.steps is not None}
        self.mark = boot.AliveMark(
            f"boot-{self.boot}", None, self.core.now_s, self.wall_s, self.now_s - self.boot_began_s, state.level,
            {**steps, **newest},
        )  # fmt: skip
