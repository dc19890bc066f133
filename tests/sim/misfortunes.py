"""What goes wrong in the simulated world, by itself: each misfortune has a name, a time of its own, and can be left out.

Nothing is drawn from one stream of chance. Every draw is a function of the seed and of what it is for ("the third crash of
P0"), so leaving one misfortune out moves none of the others: that is what lets `shrinking.py` take a bad night apart.
"""

import hashlib
import math
from dataclasses import dataclass, fields, replace

from daemon import DISK_ERRORS

from supervisor.model.inputs import ConfigLoaded, Ending, SpawnBroke, Terminated, Verb
from supervisor.model.settings import Level


@dataclass
class Odds:
    """Mean seconds between misfortunes (None: never), of each program or of the box, and the chances of the rest."""

    crash_s: float | None = 2 * 3600.0
    stall_s: float | None = 3 * 3600.0
    finish_s: float | None = 40 * 3600.0
    operator_s: float | None = 3600.0
    daemon_kill_s: float | None = 2 * 3600.0
    daemon_pause_s: float | None = 6 * 3600.0
    reboot_s: float | None = 4 * 3600.0
    journal_s: float | None = 5 * 3600.0  # the journal cannot be written, for a second or for minutes
    clock_s: float | None = 8 * 3600.0  # somebody sets the wall clock, an hour ahead or back
    suspend_s: float | None = 12 * 3600.0  # the host sleeps: CLOCK_BOOTTIME runs on, nothing else does
    backup_s: float | None = None  # somebody asks for a backup, or for a rollback to one
    network_s: float | None = None  # no alert gets through, for hours
    spawn_breaks: float = 0.03
    evidence_lost: float = 0.1
    bad_start: float = 0.02  # an attempt that dies at once, code 1 or 78
    poison: float = 0.001
    ignores_term: float = 0.1
    commands_lost: float = 0.5  # of the kills that come between commit and commands
    late: float = 0.03  # news that takes minutes
    twice: float = 0.02  # news that comes again
    orderly: float = 0.2  # of the reboots that somebody asked for
    dies_young: float = 0.1  # of the daemons that are killed in their first turn
    dies_rarely: float = 0.1  # of the checkpoints that are to be set aside: the daemon is killed before it does so

    def calm(self):
        """No misfortune at all."""
        return Odds(**{each.name: None if each.name.endswith("_s") else 0.0 for each in fields(self)})


CALM = Odds().calm()


ENDINGS = (
    Ending(code=1, last_lines=("E",)),
    Ending(signal=9),
    Ending(signal=11),
    Ending(code=65),  # diverged
    Ending(code=1, last_lines=("MemoryError",), batch_size=512),
    Ending(signal=9, oom_kills=(0, 1), batch_size=256),
)


class Chance:
    """Draws that depend on nothing but the seed and what they are for."""

    def __init__(self, seed):
        self.seed = str(seed).encode()

    def share(self, *what):
        """In [0, 1)."""
        digest = hashlib.blake2b(repr(what).encode(), digest_size=7, key=self.seed).digest()
        return int.from_bytes(digest, "big") / 2**56

    def between(self, least, most, *what):
        return least + (most - least) * self.share(*what)

    def wait_s(self, mean_s, *what):
        """Exponential: what comes is no likelier for not having come."""
        return -mean_s * math.log1p(-self.share(*what))

    def one_of(self, options, *what):
        return options[int(self.share(*what) * len(options))]


class Misfortunes:
    """The part of the world that does harm; `world.py` has the rest."""

    def strikes(self, *name):
        """Whether this misfortune happens: not when the story is told without it."""
        told = " ".join(str(part) for part in name)
        if self.only is not None and told not in self.only:
            return False
        self.struck.append((self.now_s, told))
        self.tell("!!", told)
        self.look_soon()
        return True

    def luck_fails(self, odds, *name):
        """A misfortune that has no time of its own: it happens or not when its occasion comes."""
        return odds > 0.0 and self.chance.share(*name) < odds and self.strikes(*name)

    def expect(self, kind, mean_s, do, *about, number=1):
        """The next misfortune of a kind, and after it the one after."""
        if mean_s is not None:
            self.after(
                self.chance.wait_s(mean_s, "wait", kind, *about, number), self._comes, kind, mean_s, do, about, number
            )

    def _comes(self, kind, mean_s, do, about, number):
        if self.calm:
            return
        self.expect(kind, mean_s, do, *about, number=number + 1)
        do(*about, kind, number)

    def begin_misfortunes(self):
        odds = self.odds
        for name in self.names:
            self.expect("crash", odds.crash_s, self._crash, name)
            self.expect("stall", odds.stall_s, self._stall, name)
            self.expect("finish", odds.finish_s, self._finish, name)
        self.expect("kill", odds.daemon_kill_s, self._kill)
        self.expect("pause", odds.daemon_pause_s, self._pause)
        self.expect("reboot", odds.reboot_s, self._reboot)
        self.expect("journal", odds.journal_s, self._journal)
        self.expect("clock", odds.clock_s, self._clock)
        self.expect("suspend", odds.suspend_s, self._suspend)
        self.expect("operator", odds.operator_s, self._operate)
        self.expect("backup", odds.backup_s, self._back_up)
        self.expect("network", odds.network_s, self._cut_network)

    # to one worker

    def _crash(self, name, kind, number):
        for worker in self.alive(name):
            if worker.state == "S" and self.strikes(kind, name, number):
                self.end(worker.token, self.chance.one_of(ENDINGS, "ending", kind, name, number))

    def _finish(self, name, kind, number):
        for worker in self.alive(name):
            if worker.state == "S" and self.strikes(kind, name, number):
                self.end(worker.token, Ending(code=0))

    def _stall(self, name, kind, number):
        for worker in self.alive(name):
            if worker.stuck_at_s is not None:
                continue
            kinds = ["hang", "gil", "stopped", "kernel", "short", *(["child"] if worker.is_script else [])]
            how = self.chance.one_of(kinds, "how", kind, name, number)
            if not self.strikes(kind, name, number, how):
                continue
            worker.stick(self.now_s)
            if how == "child":
                worker.stop_child(self.now_s)
            elif how == "gil":
                worker.live_at_s = self.now_s
            elif how == "stopped":
                worker.state = "T"
            elif how == "kernel":
                worker.state = "D"
                self.after(self.chance.between(60.0, 3600.0, "kernel", name, number), self._leave_kernel, worker.token)
            elif how == "short":
                self.after(self.chance.between(1.0, 60.0, "short", name, number), self._move_again, worker.token)

    def _move_again(self, token):
        worker = self.workers.get(token)
        if worker is not None and worker.alive and worker.state == "S":
            worker.move_again(self.now_s)

    def _leave_kernel(self, token):
        worker = self.workers.get(token)
        if worker is None or not worker.alive:
            return
        worker.state = "S"
        if worker.doomed:
            self.end(token, Ending(signal=9))

    def start_goes_wrong(self, name, number, token):
        """Whether no process comes of it."""
        if not self.luck_fails(self.odds.spawn_breaks, "no fork", name, number):
            return False
        permanent = self.chance.share("permanent", name, number) < 0.1
        self.send(0.0, 0.2, SpawnBroke(0.0, name, token, "fork: no memory", permanent), number)
        return True

    def worker_goes_wrong(self, worker):
        """What is wrong with this attempt from its beginning."""
        name, number, token = worker.name, worker.number, worker.token
        worker.ignores_term = self.luck_fails(self.odds.ignores_term, "deaf", name, number)
        if self.luck_fails(self.odds.bad_start, "bad start", name, number):
            code = self.bad_code or self.chance.one_of([1, 1, 1, 78], "code", name, number)
            ending = Ending(code=code, last_lines=("OSError: disk full",))
            self.after(self.chance.between(0.3, 4.0, "soon", name, number), self.end, token, ending)
        if worker.disk.newest() in worker.disk.poison:
            self.after(self.chance.between(5.0, 25.0, "poison", name, number), self.end, token, Ending(signal=11))

    # to the daemon

    def _kill(self, kind, number):
        if not self.daemon:
            return
        between = self.chance.share("between", number) < self.odds.commands_lost
        if not self.strikes(kind, number, "between" if between else "at once"):
            return
        if between:
            self.cut = self.chance.share("cut", number)
        else:
            self.kill_daemon()

    def _pause(self, kind, number):
        if self.daemon and self.strikes(kind, number):
            self.pause_daemon(self.chance.between(5.0, 900.0, "pause", number))

    def _journal(self, kind, number):
        how = self.chance.one_of(["one write", "seconds", "minutes"], "how", kind, number)
        if self.core.failing is None and self.strikes(kind, number, how):
            error = self.chance.one_of(DISK_ERRORS, "error", number)
            longest_s = {"one write": 0.0, "seconds": 10.0, "minutes": 900.0}[how]
            self.break_journal(error, self.chance.between(0.0, longest_s, "spell", number))

    # to the host

    def _reboot(self, kind, number):
        share = self.reboots_at.get(self.core.state.level)
        if share is not None and self.chance.share("load", number) >= share:
            return  # at this level it would not have come
        orderly = self.chance.share("orderly", number) < self.odds.orderly
        if not self.strikes(kind, number, "orderly" if orderly else "power cut"):
            return
        down_s = self.chance.between(20.0, 600.0, "down", number)
        if orderly and self.daemon:
            self.post(Terminated(0.0, "SIGTERM"))
            self.after(self.chance.between(2.0, 90.0, "shutdown", number), self.reboot, down_s)
        else:
            self.reboot(down_s)

    def _clock(self, kind, number):
        step_s = self.chance.one_of([3600.0, -3600.0, 90.0, -90.0], "step", number)
        if self.strikes(kind, number, f"{step_s:+.0f} s"):
            self.core.wall_offset_s += step_s

    def _suspend(self, kind, number):
        if self.strikes(kind, number):
            seconds = 10.0 * 720.0 ** self.chance.share("asleep", number)  # to two hours, mostly minutes
            self.wake_loop()
            if self.woken:
                self.after(0.0, self.suspend_host, seconds)  # after that turn
            else:
                self.suspend_host(seconds)

    def _cut_network(self, kind, number):
        hours = self.chance.between(0.1, 12.0, "network", number)
        if self.strikes(kind, number, f"{hours:.1f} h"):
            self.network_down_until_s = self.now_s + 3600.0 * hours

    # the operator

    def _operate(self, kind, number):
        if not self.daemon:
            return
        what = self.chance.share("what", number)
        if what < 0.75:
            verb = self.chance.one_of([Verb.START, Verb.START, Verb.STOP, Verb.RESTART, Verb.SIGNAL], "verb", number)
            name = self.chance.one_of([*self.all_names, "Nobody"], "name", number)
            if self.strikes(kind, number, f"{verb.value} {name}"):
                self.ask(verb, name)
        elif what < 0.95:
            self._reconfigure(kind, number)
        elif what < 0.98:
            if self.strikes(kind, number, "reload"):
                self.ask(Verb.RELOAD)
        elif self.strikes(kind, number, "stops the service"):
            self.post(Terminated(0.0, "SIGTERM"))

    def _back_up(self, kind, number):
        back = self.chance.share("back", number) < 0.4
        if not self.daemon or not self.strikes(kind, number, "rollback" if back else "made"):
            return
        if not back or not self.backups:
            self.ask(Verb.BACKUP)
            return
        names = () if self.chance.share("all", number) < 0.3 else (self.chance.one_of(self.names, "of", number),)
        self.ask(Verb.ROLLBACK, *names, text=self.chance.one_of(sorted(self.backups), "which", number))

    def _reconfigure(self, kind, number):
        name = self.chance.one_of(self.all_names, "program", number)
        how = self.chance.one_of(["change", "toggle", "slots"], "change", number)
        if name not in self.specs or not self.strikes(kind, number, f"{how} {name}" if how != "slots" else how):
            return
        programs = {found.name: found for found in self.configured.programs}
        if how == "slots":
            slots = 1 + int(self.chance.share("slots", number) * len(self.specs))
            self.configured = replace(self.configured, level=Level(slots=slots))
        elif how == "change" and name in programs:
            programs[name] = replace(programs[name], digest=f"{name} {number}")
        elif name in programs:
            del programs[name]
        else:
            programs[name] = self.specs[name]
        self.configured = replace(self.configured, programs=tuple(programs.values()))
        self.post(ConfigLoaded(0.0, self.configured))

    # to what is said

    def send(self, least_s, most_s, item, number):
        """News for the daemon of now; it may be late, and it may come twice. Nobody brings it to a later daemon."""
        kind, name = type(item).__name__, item.program
        delay_s = self.chance.between(least_s, most_s, "delay", kind, name, number)
        if self.luck_fails(self.odds.late, "late", kind, name, number):
            delay_s += self.chance.between(60.0, 900.0, "minutes", kind, name, number)
        self.after(delay_s, self.arrive, self.daemon, item)
        if self.luck_fails(self.odds.twice, "twice", kind, name, number):
            self.after(
                delay_s + self.chance.between(0.0, 600.0, "again", kind, name, number), self.arrive, self.daemon, item
            )


__all__ = ["CALM", "Chance", "Misfortunes", "Odds"]
