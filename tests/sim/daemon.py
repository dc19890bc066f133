"""The real `shell/loop.py` in a world without threads: its clock, journal and inbox are the world's, its performer too.

`Loop.run` itself runs here, with its retry after a failed write, its refusals and its waiting: `Inbox.take` lets the world
go on until there is something to take. So what the simulator shows of the loop is the loop, not a copy of it.
"""

import contextlib
import errno
import sqlite3
from dataclasses import replace

from core_kit import Core

from supervisor.model.codec import decode, encode
from supervisor.model.facts import Snapshot, Stamped
from supervisor.model.fold import fold
from supervisor.model.state import State
from supervisor.policy.worker import absence
from supervisor.ports import Salvage
from supervisor.shell import loop as loop_module
from supervisor.shell.inbox import Inbox
from supervisor.shell.loop import Loop

BUG = loop_module._FAILED  # what the loop answers when it has stumbled
WALL_S = 1_800_000_000.0
REFOLD_GROWTH = 2.0  # the whole journal is folded again when it has grown by so much: a few times, not daily


class Elapsed(BaseException):
    """The story has gone on for as long as it was asked to."""


class Killed(BaseException):
    """The daemon is gone, in the middle of whatever it did."""


class WorldClock:
    """`ports.Clock` of one daemon: the world's time, as journal time and as what the wall shows."""

    def __init__(self, world, offset_s):
        self.world, self.offset_s = world, offset_s

    def now_s(self):
        return self.world.now_s + self.offset_s

    def wall_s(self):
        return self.world.wall_s


class WorldInbox(Inbox):
    """The real inbox; whoever waits at it lets the world go on."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def take(self, timeout_s):
        loop = self.world.core.loop
        before_s = loop.taken_at_s
        self.world.skip_looks(timeout_s)
        self.world.go_on(timeout_s)
        loop.longest_wait_s = self.world.longest_wait_s()
        gap_s = 0.0 if before_s is None else loop.clock.now_s() - before_s
        away = absence.was_away(asked_s=timeout_s, gap_s=gap_s)
        item = super().take(0.0) if self._items or self._sampled is not None else None
        self.world.taken(item, replace(loop.memory, overslept_s=gap_s) if away else loop.memory)
        return item

    def depth(self):
        return len(self._items) + (self._sampled is not None)

    def waiting(self):
        """What nobody has taken yet."""
        return list(self._items)


class Box:
    """One state directory, its journal, and the loop of the daemon that decides on it now (or did so last)."""

    told, told_at = Core.told, Core.told_at

    def __init__(self, world, settings):
        self.world, self.first = world, settings
        self.journal = []
        self.boot_id = "boot-1"
        self.wall_offset_s = WALL_S
        self.loop = None
        self.folded = State()  # of the whole journal
        self.whole_at = 0
        self.archived = 0  # facts that have left the journal
        self.snapshots = []  # of those in it: (seq, wall_s)
        self.failing = None  # why no write succeeds just now
        self.fails_once = False

    def __getattr__(self, name):
        """state, memory, settings, wake_at_s: the loop's."""
        if name in {"state", "memory", "settings", "wake_at_s"}:
            return getattr(self.loop, name) if self.loop is not None else {"state": State(), "settings": self.first}[name]
        raise AttributeError(name)

    @property
    def now_s(self):
        """Journal time."""
        return self.loop.clock.now_s()

    @property
    def last_seq(self):
        """`ports.Journal.last_seq`."""
        return self.archived + len(self.journal)

    def append(self, facts, *, at_s, wall_s, boot_id):
        """`ports.Journal.append`: all of them durably, or an error and none of them."""
        if self.failing is not None:
            self.world.writes_failed += 1
            error = self.failing
            if self.fails_once:
                self.failing = None
            raise type(error)(*error.args)  # one that is raised again and again keeps every frame that it went through
        rows = []
        for fact in facts:
            assert decode(*encode(fact)) == fact, f"{fact} would not be read back as it was written"
            row = Stamped(self.last_seq + 1, at_s, wall_s, boot_id, fact)
            self.folded = fold(self.folded, row)
            self.journal.append(row)
            if isinstance(fact, Snapshot):
                self.snapshots.append((row.seq, wall_s))
            rows.append(row)
        return rows

    def moved(self):
        """`ports.Journal.moved`."""
        return ""

    def restore(self, **stamp):
        """`ports.Journal.restore`: all of it is still in the open file."""
        found = Salvage("", "journal.sqlite was removed", len(self.journal), 0)
        return self.append([found.fact()], **stamp)[0], found

    def has_doubled(self):
        """Since the whole of it was last folded anew."""
        if len(self.journal) < REFOLD_GROWTH * self.whole_at:
            return False
        self.whole_at = len(self.journal)
        return True

    def begin(self, settings, state, clock, performer):
        """Another daemon, with everything volatile as new."""
        self.loop = Loop(
            settings=settings, state=state, clock=clock, boot_id=self.boot_id, journal=self, inbox=WorldInbox(self.world),
            performer=performer, publish=lambda _: None, watchdog=lambda: None, pause=self.world.pause,
            longest_wait_s=self.world.longest_wait_s(),
        )  # fmt: skip
        return self.loop


DISK_ERRORS = (
    OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error"),
    sqlite3.OperationalError("database or disk is full"), sqlite3.OperationalError("database is locked"),
)  # fmt: skip


class _Silence:
    def info(self, *_, **__):
        pass

    def exception(self, event, **_):
        """An error of a turn is logged by the loop, which goes on. Here it is a finding, as is each broken rule."""
        if event in {"turn_failed", "turn_not_published"}:
            raise  # noqa: PLE0704  the error that the loop is handling

    critical = info


@contextlib.contextmanager
def quiet_loop():
    """The loop logs every fact; here the journal is what is read."""
    kept, loop_module.log = loop_module.log, _Silence()
    try:
        yield
    finally:
        loop_module.log = kept
