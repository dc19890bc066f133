"""What the daemon of the simulated world sees: its looks, and the sign of life that it leaves.

A calm stretch is jumped over (`skip_looks`): while every worker trains and nothing is owed, a look finds nothing but more
steps and another checkpoint. Looks stay on their grid, and the last one before whatever comes next (an event of the world,
a deadline of the loop) is always taken; so each event meets the same daemon as in the story in which none is left out.
`test_jumps.py` compares both.
"""

import math
from dataclasses import replace

from invariants import check_with_each_look

from supervisor.adapters.host import boot
from supervisor.model.inputs import ClockMoved, Sampled
from supervisor.model.lifecycle import Phase

LIVELY_FOR_S = 90.0  # after something happened, when looks are taken as they are needed
CLOCK_STEP_S = 2.0  # what shell/sampler.py calls a step
QUIET_LOOKS = 1  # without news, before any is left out
FIRST_MOVES = 6  # `_EXEMPT_MOVES` in deciding/healing.py: the first looks with progress are judged in another way
LONGEST_JUMP_S = 86400.0
LONGEST_WAIT_S = 2.0  # of the real loop
CALM_WAIT_S = 7 * 86400.0  # of the loop in a world that jumps: the turns in between would find nothing to do
AT_REST = {
    Phase.DONE,
    Phase.STOPPED,
    Phase.FATAL,
    Phase.EXITED,
    Phase.QUEUED,
    Phase.BACKOFF,
}  # only an event or a deadline moves them


class Looks:
    """The part of the world that is read; `world.py` has the rest."""

    def look_at(self, at_s):
        if self.look_due_s is None or at_s < self.look_due_s:
            self.look_due_s = at_s
            self.after(at_s - self.now_s, self.look, self.daemon, at_s)

    def look_soon(self):
        """Something happened: with `lively_s` the next looks come as they are needed to see what becomes of it."""
        self.quiet_looks = 0
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
        self.quiet_looks += 1
        lively = self.lively_s is not None and self.now_s < self.lively_until_s
        lively = lively and (self.jumps is None or not self.is_steady())
        self.look_at(self.now_s + (self.lively_s if lively else self.look_s))
        offset_s = self.wall_s - self.core.now_s
        if self.seen_offset_s is not None and abs(offset_s - self.seen_offset_s) > CLOCK_STEP_S:
            self.post(ClockMoved(0.0, offset_s - self.seen_offset_s))
        self.seen_offset_s = offset_s
        found = [(name, self.workers.get(token)) for name, token in self.watched.items()]
        seen = {name: worker.sample(self.now_s, self.shift_s) for name, worker in found if worker is not None}
        reports = tuple((name, worker.token, report) for name, worker in found if worker for report in worker.reports())
        gpus = None if self.gpus is None else replace(self.gpus)  # read anew, whatever it says
        self.post(Sampled(0.0, seen, reports, self.core.now_s, gpus, self.host))
        self.leave_mark()
        check_with_each_look(self)

    def longest_wait_s(self):
        """How long the loop may wait for its next turn."""
        if self.jumps is None:
            return self.look_s
        woken, self.woken = self.woken, False
        return LONGEST_WAIT_S if woken else CALM_WAIT_S

    def skip_looks(self, timeout_s):
        """Leave out the looks that can tell nothing new before the next event, or before the loop's own deadline."""
        if not self.jumps or self.look_due_s is None or self.quiet_looks < QUIET_LOOKS or not self.is_steady():
            return
        coming = (at_s for at_s, _, do, _ in self.events if do != self.look)
        next_s = min(coming, default=math.inf)
        over_s = min(next_s, self.until_s, self.now_s + min(timeout_s, LONGEST_JUMP_S))
        periods = math.ceil((over_s - self.look_due_s) / self.look_s) - 1
        if periods > 0:
            self.jumped += periods
            due_s, self.look_due_s = self.look_due_s + periods * self.look_s, None
            self.look_at(due_s)

    def is_steady(self):
        """Whether everybody trains or rests, and the daemon knows it."""
        core = self.core
        state, memory = core.state, core.memory
        blind_s = memory.blind_until_s
        if core.failing is not None or memory.trouble or memory.ended or state.stopping or self._climbs():
            return False
        if self.cut is not None or core.loop.inbox.depth() or self.busy_until_s > self.now_s:
            return False
        if blind_s is not None and core.now_s < blind_s:
            return False
        if self.seen_offset_s is None or abs(self.wall_s - core.now_s - self.seen_offset_s) > CLOCK_STEP_S:
            return False
        return all(program.phase in AT_REST or self._trains(program) for program in state.programs.values())

    def _trains(self, program):
        attempt = program.attempt
        if program.phase is not Phase.RUNNING or program.deaths.streak or attempt.stop or attempt.stall:
            return False
        worker, watch = self.living.get(attempt.token), self.core.memory.watches.get(program.name)
        if watch is None:
            return False
        is_known = attempt.quiet_at_s is not None if program.name in self.scripts else watch.moves >= FIRST_MOVES
        if not is_known:  # the limit of its silence is still to come, or it is judged as a beginner
            return False
        return worker is not None and worker.state == "S" and worker.stuck_at_s is None and worker.resumed is not None

    def _climbs(self):
        """A climbing box measures each level by its looks, and counts no time without them."""
        return self.core.settings.climbs

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
