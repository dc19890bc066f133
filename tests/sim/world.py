"""A small fake world around the real core and the real loop: a clock, workers that train and go wrong, a daemon that can be
killed, a host.

A seed is a story (`misfortunes.py`). The world answers the core's commands with inputs after a while, as the adapters do;
what it may not do is help: no command is repaired, no input invented. After every step `invariants.py` looks at it.

For a story of its own: `World(seed, odds=CALM, look_s=1.0).begin()`, `run(seconds)`, do harm by hand (`end`, `reboot`,
`kill_daemon`, `pause_daemon`, `suspend_host`, `break_journal`, `cut`, `ask`, `post`), `run` on, and compare `tale()`.
"""

import heapq
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

from core_kit import commands, facts, spec
from daemon import BUG, DISK_ERRORS, Box, Elapsed, Killed, WorldClock, quiet_loop
from deeds import DOWN_S, Deeds
from invariants import Broken, Step, check, check_at_length, hold
from looks import Looks
from misfortunes import CALM, Chance, Misfortunes, Odds
from training import START_S, STEPS_PER_S, Disk
from upkeep import Upkeep

from supervisor.adapters.host import boot
from supervisor.adapters.host.clock import journal_offset
from supervisor.model.inputs import Asked, Began, Ending, Sampled, Survival, Survivor, Verb, Woke
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import DaemonSettings, Level, Paths, Progress, Settings
from supervisor.policy.script.figures import Sources
from supervisor.ports import ahead_s

STORY_KEPT = 60  # lines
TURNS_AT_ONCE = 500  # in one moment: beyond it the loop spins
# Facts that go on and on.
QUIET = facts.Checkpointed | facts.CheckpointSeen | facts.Tallied | facts.IntervalChosen | facts.PaceLearned
ROUTINE = facts.Reviewed | facts.Snapshot  # facts after which nothing is to be seen
RARE = commands.QuarantineCheckpoint | commands.RollBack  # no daemon killed by chance would meet just these
GRADUAL = commands.SetControl  # the interval of checkpoints follows the uptime, look by look
LEAST_WAIT_S = 1e-6  # time passes, however short a wait is
RESTART_S = 5.0  # the service manager, after a daemon that could not start


class World(Misfortunes, Looks, Upkeep, Deeds):
    """One host, for as long as the story goes."""

    def __init__(
        self, seed, *, programs=4, slots=2, odds=None, look_s=10.0, lively_s=None, only=None, without=(), save_cost_s=None, scripts=0,
        own=False, prints_every=0, jumps=None, upkeep=False, reboots_at=None, **rules,
    ):  # fmt: skip
        """`look_s` is the period of looks; with `lively_s` they come that often after an event, and at `look_s` else.

        `jumps`: looks at which nothing can be news are left out (True), or are not (False: the same story, for comparison).
        None: an older world, whose loop makes a turn every `look_s`. With `upkeep` the calendar, alerts and the journal's
        archive play along. `reboots_at` has the share of reboots that strike at each level of a ladder (else all).

        The last `scripts` programs know nothing of extralife: they use CPU time while they work, and print nothing, ever, or a
        line with step, loss and return every `prints_every` steps.

        `own`: they save by themselves, and die of a torn checkpoint if it is the newest.

        `only` names the misfortunes that may happen, `without` the programs that are left out: for shorter stories.
        """
        self.seed, self.chance, self.odds = seed, Chance(seed), odds or Odds()
        self.only, self.save_cost_s = only, save_cost_s
        self.all_names = [f"P{number}" for number in range(programs)]
        self.names = [name for name in self.all_names if name not in without]
        self.prints_every = prints_every
        self.scripts = set(self.all_names[len(self.all_names) - scripts :])
        self.specs = {
            name: spec(
                name, priority=100 + 10 * (int(name[1:]) % 2),
                progress=Progress.AUTO if name in self.scripts else Progress.BEAT,
                checkpoint_glob="*.pt" if own and name in self.scripts else "",
                figures=Sources(log_regex=("step=(?P<step>.*)",)) if name in self.scripts and prints_every else Sources(),
            )
            for name in self.names
        }  # fmt: skip
        daemon = DaemonSettings(sample_period_s=look_s)
        self.configured = Settings(
            Paths("/s", "/r"), level=Level(slots=slots), programs=tuple(self.specs.values()), daemon=daemon, **rules
        )
        self.core = Box(self, self.configured)
        self.look_s, self.lively_s, self.lively_until_s, self.look_due_s = look_s, lively_s, 0.0, None
        self.jumps, self.quiet_looks, self.woken, self.jumped = jumps, 0, False, 0
        self.upkeep, self.reboots_at = upkeep, reboots_at or {}
        self.kept_backups, self.calendar_told, self.network_down_until_s = {}, {}, 0.0
        self.deliveries = 0
        self.now_s, self.until_s, self.order, self.events = 0.0, 0.0, 0, []
        self.boot, self.boot_began_s, self.mark = 1, 0.0, None
        self.daemon, self.daemons, self.pid, self.running = 0, 0, 100, False  # `daemon`: the number of the present one
        self.disks = {name: Disk() for name in self.names}
        self.repository, self.lease, self.box = None, None, "a"  # of copies off the box (`copies.py`)
        self.backups = {}  # name -> {program: step}
        self.workers, self.living = {}, {}  # token -> Worker: all of this boot, those alive
        self.watched = {}  # program -> token: what the probes of the present daemon read
        self.waiting = {}  # request -> the daemon that was asked
        self.requests, self.reboots, self.writes_failed, self.turns = 0, 0, 0, 0
        self.busy_until_s = 0.0  # the daemon takes nothing before: it is stopped, or waits for the disk
        self.paused_until_s = 0.0
        self.undisturbed_since_s = 0.0  # since then a daemon was there, and ran
        self.cut = None  # the daemon dies in its next turn with commands, after this share of them
        self.seen_offset_s, self.spins, self.known = None, (0.0, 0), None
        self.calm, self.bad_code, self.rare = False, None, 0
        self.gpus = None  # `policy.readings.Gpus`, as every look finds them; None: nobody looks
        self.host = None  # `policy.readings.Host` likewise
        self.ended_with_host, self.lowered = set(), set()
        self.counts = {}  # of facts, by kind
        self.struck, self.lines = [], deque(maxlen=STORY_KEPT)

    # --- the clock ------------------------------------------------------------------------------------------------------

    @property
    def wall_s(self):
        return self.now_s + self.core.wall_offset_s

    @property
    def shift_s(self):
        """Journal time less the world's."""
        return self.core.loop.clock.offset_s if self.core.loop is not None else 0.0

    def after(self, seconds, do, *args):
        self.order += 1
        heapq.heappush(self.events, (self.now_s + max(0.0, seconds), self.order, do, args))

    def run(self, seconds):
        """Let the story go on for so long."""
        self.until_s, self.running = self.now_s + seconds, True
        try:
            with quiet_loop():
                while True:
                    try:
                        if self.daemon:
                            self.core.loop.run()
                            if self.daemon:  # without a record, because the disk stays full
                                self.tell("--", "the daemon leaves without a record")
                                self.leave(DOWN_S)
                        self.go_on(None)
                    except Killed:
                        continue
        except Elapsed:
            return
        finally:
            self.running = False

    def go_on(self, timeout_s):
        """Time passes until the daemon has something to take, `timeout_s` is over, or the story is."""
        daemon = self.daemon
        inbox = self.core.loop.inbox if daemon else None
        deadline_s = float("inf") if timeout_s is None else self.now_s + max(timeout_s, LEAST_WAIT_S)
        while True:
            if self.daemon != daemon:
                if daemon:
                    raise Killed
                return  # there is one again
            if self.woken:
                return
            busy = self.busy_until_s > self.now_s
            waiting = inbox is not None and inbox.depth() > 0
            ready_s = self.busy_until_s if busy else self.now_s
            limit_s = ready_s if waiting else max(deadline_s, self.busy_until_s)
            if self.events and self.events[0][0] <= min(limit_s, self.until_s):
                at_s, _, do, args = heapq.heappop(self.events)
                self.now_s = max(self.now_s, at_s)
                do(*args)
                continue
            if limit_s > self.until_s:
                self.now_s = max(self.now_s, self.until_s)
                raise Elapsed
            self.now_s = max(self.now_s, limit_s)
            if not (waiting and busy):
                return

    # --- the daemon -----------------------------------------------------------------------------------------------------

    def start(self):
        """The service manager starts a daemon; it looks at what there is and begins, as `shell/daemon.py` does."""
        if self.daemon:
            return
        core = self.core
        self.daemons += 1
        self.pid += 1
        self.daemon = self.daemons
        self.watched, self.waiting, self.cut, self.lively_until_s = {}, {}, None, 0.0
        self.busy_until_s = self.paused_until_s = self.undisturbed_since_s = self.now_s
        state = core.folded  # between two times that the whole journal is folded: commit by commit
        if core.has_doubled():
            check_at_length(self)
        this = boot.Boot(f"boot-{self.boot}", None)
        boot_now_s = self.now_s - self.boot_began_s
        evidence = boot.examine(
            this, self.mark, marker=Path("/"), clean=state.clean, wall_now_s=self.wall_s, boot_now_s=boot_now_s,
            journal_boot_id=state.boot_id,
            journal_at_s=state.at_s,
        )  # fmt: skip
        same_boot = self.mark is not None and self.mark.boot_id == this.boot_id
        offset_s = journal_offset(
            self.mark, same_boot=same_boot, journal_at_s=state.at_s, boot_now_s=boot_now_s, wall_now_s=self.wall_s
        )  # fmt: skip
        core.boot_id = this.boot_id
        loop = core.begin(self.configured, state, WorldClock(self, offset_s - self.boot_began_s), self)
        survivors = {} if evidence.rebooted else self.survey(state)
        at_s = max(loop.clock.now_s(), state.at_s)
        if self.luck_fails(self.odds.dies_young, "dies young", self.daemons):
            self.cut = self.chance.share("young", self.daemons)
        began = Began(at_s, self.configured, evidence, survivors, self.pid, "1", f"{self.daemons}")
        self.taken(began)
        try:
            with quiet_loop():
                loop.turn(began)
        except Killed:
            return
        if not loop.memory.ended and loop.state.daemon_pid != self.pid:
            self.tell("--", "the daemon could not write its first facts, and gives up")
            self.leave(RESTART_S)
            return
        self.leave_mark()
        self.seen_offset_s = None
        self.look_due_s, self.quiet_looks, self.woken = None, 0, False
        self.look_at(self.now_s + (self.lively_s or self.look_s))
        self.begin_calendar()

    def survey(self, state):
        """What the launcher finds of the attempts that the journal believes alive."""
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

    def arrive(self, daemon, item):
        if daemon == self.daemon and daemon:
            self.core.loop.inbox.post(item)

    def post(self, item):
        """An input for the daemon, now. From outside of a running story it is dealt with at once."""
        if not self.daemon:
            return
        self.core.loop.inbox.post(item)
        if not self.running:
            self.run(0.0)

    turn = post

    def has_news_of(self, token):
        """Whether something about this attempt is still on its way to the daemon of now."""
        arriving = [args[1] for _, _, do, args in self.events if do == self.arrive and args[0] == self.daemon]
        waiting = self.core.loop.inbox.waiting()
        return any(getattr(item, "token", None) == token for item in [*arriving, *waiting])

    def taken(self, item, memory=None):
        """The loop has taken an input (None: its deadline): what it knew then is kept, to judge the step by."""
        loop = self.core.loop
        self.known = (loop.settings, loop.state, memory or loop.memory, item)
        self.turns += 1
        at_s, count = self.spins
        self.spins = (self.now_s, count + 1 if at_s == self.now_s else 1)
        hold("the loop does not spin", self.spins[1] < TURNS_AT_ONCE, f"{TURNS_AT_ONCE} turns at {self.now_s:.3f} s")

    def pause(self, seconds):
        """The loop waits for the disk."""
        self.busy_until_s = max(self.busy_until_s, self.now_s + seconds)

    def refuse(self, item, text):
        """`Performer.refuse`: an input was dropped, because the journal cannot be written, or because of a bug."""
        if text == BUG:
            raise Broken("no input makes the core stumble", f"{item!r}: {text}") from sys.exception()
        if isinstance(item, Asked):
            self.answer(item.request_id)

    def alarm(self, notice, ago_s=None):
        """`Performer.alarm`: the journal cannot be written."""
        return True

    def perform(self, decision):
        """`Performer.perform`: the facts are committed, the commands are to be done."""
        settings, before, memory, item = self.known
        now_s = max(self.core.loop.clock.now_s(), before.at_s)
        item = Woke(now_s) if item is None else replace(item, now_s=now_s)
        for fact in decision.facts:
            self.counts[type(fact).__name__] = self.counts.get(type(fact).__name__, 0) + 1
        told = [fact for fact in decision.facts if not isinstance(fact, QUIET)]
        if told or not isinstance(item, Sampled | Woke):
            self.tell(type(item).__name__, item, told)
        wall_s = now_s + ahead_s(self.core.loop.clock)  # as the loop reckons it, to the last digit
        check(self, Step(settings, before, memory, item, decision, wall_s, self.turns))
        if any(not isinstance(fact, ROUTINE) for fact in told):
            self.look_soon()
        todo = decision.commands
        if any(isinstance(command, RARE) for command in todo):
            self.rare += 1
            if self.luck_fails(self.odds.dies_rarely, "dies before", self.rare):
                self.cut = 0.0
        dies = self.cut is not None and any(self.jumps is None or not isinstance(each, GRADUAL) for each in todo)
        if dies:
            todo = todo[: int(self.cut * len(todo))]
        for command in todo:
            self.do(command)
        if dies:
            self.kill_daemon()
            raise Killed

    def kill_daemon(self):
        if self.daemon:
            self.tell("--", "the daemon is killed")
            self.leave(self.chance.between(1.0, 20.0, "restart", self.daemons))

    def leave(self, back_in_s):
        """No daemon is there any more; what was on its way to it arrives nowhere."""
        self.daemon, self.cut, self.waiting, self.watched = 0, None, {}, {}
        self.after(back_in_s, self.start)

    def pause_daemon(self, seconds):
        """SIGSTOP, and SIGCONT after a while."""
        self.wake_loop()
        self.busy_until_s = max(self.busy_until_s, self.now_s + seconds)
        self.paused_until_s = self.undisturbed_since_s = self.busy_until_s

    def break_journal(self, error=DISK_ERRORS[0], seconds=60.0):
        """No write to the journal's disk succeeds for so long; 0: the next one does not, the one after does."""
        self.core.failing = error
        self.tell("--", f"the journal cannot be written: {error}")
        self.core.fails_once = seconds == 0.0
        if self.core.fails_once:
            return
        self.undisturbed_since_s = max(self.undisturbed_since_s, self.now_s + seconds)
        self.after(seconds, self.mend_journal)

    def mend_journal(self):
        self.core.failing, self.core.fails_once = None, False

    # --- the host and the operator ----------------------------------------------------------------------------------------

    def reboot(self, down_s=60.0):
        """Every process ends, nothing is said to anyone."""
        self.tell("--", "the host reboots")
        for worker in self.alive():
            worker.die(self.now_s)
            self.ended_with_host.add(worker.token)
        self.workers, self.living, self.waiting, self.watched = {}, {}, {}, {}
        self.daemon, self.cut = 0, None
        self.mend_journal()
        kept = {self._comes, self.visit}
        self.events = [event for event in self.events if event[2] in kept]
        heapq.heapify(self.events)
        self.boot += 1
        self.boot_began_s = self.now_s + down_s
        self.after(down_s + 1.0, self.start)

    def wake_loop(self):
        """The real loop makes a turn every two seconds: in a world that jumps, it makes the last one before it stands still."""
        self.woken = self.jumps is not None and self.daemon != 0 and self.busy_until_s <= self.now_s

    def suspend_host(self, seconds):
        """CLOCK_BOOTTIME runs on, and nothing else does; what was about to happen comes late."""
        for worker in self.alive():
            if worker.stuck_at_s is None:
                worker.stick(self.now_s)
                worker.live_at_s = self.now_s
                late_s = self.chance.between(0.01, 3.0, "wakes", worker.name, worker.number)
                self.after(seconds + late_s, self._move_again, worker.token)
        self.now_s += seconds
        self.undisturbed_since_s = max(self.undisturbed_since_s, self.now_s)

    def ask(self, verb, *names, text=""):
        if self.daemon:
            self.requests += 1
            self.waiting[self.requests] = self.daemon
            self.post(Asked(0.0, verb, self.requests, names, "SIGUSR2" if verb is Verb.SIGNAL else "", text=text))

    # --- whole stories ----------------------------------------------------------------------------------------------------

    def begin(self):
        self.start()
        self.begin_misfortunes()
        self.begin_visits()
        return self

    def calm_down(self):
        """No more misfortunes, and what is left must heal by itself."""
        self.odds, self.calm = self.odds.calm(), True
        self.mend_journal()
        self.cut = None
        self.busy_until_s = self.paused_until_s = min(self.busy_until_s, self.now_s)

    def tell(self, what, about, told=()):
        self.lines.append((self.now_s, what, about, told))

    @property
    def story(self):
        """The last of what happened, a line each: `!!` a misfortune, `--` what it did, else an input and its facts."""
        lines = []
        for at_s, what, about, told in self.lines:
            who = about if isinstance(about, str) else getattr(about, "program", "") or " ".join(getattr(about, "names", ()))
            lines.append(f"{_clock(at_s)}  {what} {who}".rstrip())
            lines += [f"{'':14}{getattr(fact, 'program', 'box'):5}{type(fact).__name__}: {fact.why}" for fact in told]
        return lines

    def tale(self, since_s=0.0):
        """What the journal says, as one line a fact: for a story that is compared with what it should be."""
        quiet = QUIET | facts.Spawned | facts.LevelChosen | facts.ProgramConfigured
        lines = [
            f"{_clock(item.at_s)}  {getattr(item.fact, 'program', 'box'):5}{item.fact.why}"
            for item in self.core.journal
            if item.at_s >= since_s and not isinstance(item.fact, quiet)
        ]
        for item in self.core.journal:  # the words of the restart rule are its own tests' matter
            if isinstance(item.fact, facts.BackedOff):
                verdict = f"; {item.fact.why.rpartition('; ')[2]}"
                lines = [line.replace(verdict, f"; +{item.fact.delay_s:g} s") for line in lines]
        return lines


def _clock(at_s):
    return f"{int(at_s) // 3600}:{int(at_s) // 60 % 60:02}:{int(at_s) % 60:02}"


__all__ = ["CALM", "START_S", "STEPS_PER_S", "Chance", "Ending", "Odds", "Phase", "Verb", "World", "check_at_length"]
