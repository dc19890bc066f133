"""The contract of a worker and its supervisor: environment names, beats, controls, edges, exit codes, manifests.

Both sides import this file; pyproject.toml lists the daemon's other imports. It is standard library only, so that a
foreign script can copy it, and so that the daemon stays free of torch. The distribution `extralife-client` ships it as
`extralife.contract`, for Python from 3.8 on: hence no `slots=True`, no `zip(strict=)` and no `|` of dicts in here.
`docs/contract.md` is the same contract for people.

Three channels, each with one direction and no locks:

* **beat** (worker -> daemon): one fixed record in a memory-mapped file on tmpfs. It outlives the daemon and the
  worker, and disappears on a reboot. A sequence number and a CRC guard the body.
* **control** (daemon -> worker): the same kind of record the other way: checkpoint interval, save-now, leave-by.
* **edge** (worker -> daemon): one non-blocking datagram in sd_notify(3)'s format. It only wakes the daemon early.
  It may be lost; the record is the truth. It must never block: a datagram queue holds about ten.

Every clock here is CLOCK_BOOTTIME in nanoseconds: it counts suspend, never steps, and means nothing across a boot.
Unknown is never zero: unknown counters are `UNKNOWN` (2**64 - 1), unknown measurements are NaN.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hashlib
import json
import math
import mmap
import os
import re
import socket
import stat
import struct
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Location = tuple[Any, Any]  # where the client stores a figure: a view or a dict, and the index in it

# --- environment of a worker -----------------------------------------------------------------------------------------

ENV_PROGRAM: Final = "EXTRALIFE_PROGRAM"  # the program's name
ENV_TOKEN: Final = "EXTRALIFE_TOKEN"  # noqa: S105  32 hex digits, one per attempt: the fence and the marker of the tree
ENV_ATTEMPT: Final = "EXTRALIFE_ATTEMPT"  # 1, 2, 3 ...
ENV_RUN_DIR: Final = "EXTRALIFE_RUN_DIR"  # the program's own directory, kept over attempts and boots
ENV_BEAT: Final = "EXTRALIFE_BEAT"  # path of this attempt's beat record (tmpfs)
ENV_CONTROL: Final = "EXTRALIFE_CONTROL"  # path of this attempt's control record (tmpfs)
ENV_LEAVE_BY: Final = "EXTRALIFE_LEAVE_BY"  # file that exists once the end of the box is announced (`read_leave_by`)
ENV_BOOT_ID: Final = "EXTRALIFE_BOOT_ID"  # 32 hex digits: the boot as the daemon sees it
ENV_STACKS: Final = "EXTRALIFE_STACKS"  # file that faulthandler dumps to when the daemon sends STACKS_SIGNAL
ENV_BATCH_SIZE: Final = "EXTRALIFE_BATCH_SIZE"  # largest batch: an earlier attempt ran out of memory with more
ENV_WHEN_NO_GPU: Final = "EXTRALIFE_WHEN_NO_GPU"  # without a GPU: `wait` (exit with EXIT_NO_GPU), `cpu` (use the CPU)
ENV_ROLLBACKS: Final = "EXTRALIFE_ROLLBACKS"  # rollbacks of the program: a new number asks for another seed
# Values of the placeholders in a script's command; each is set only if it has a value.
ENV_NUM_ENVS: Final = "EXTRALIFE_NUM_ENVS"  # environments
ENV_THREADS: Final = "EXTRALIFE_THREADS"
ENV_LEVEL: Final = "EXTRALIFE_LEVEL"  # the level's name
ENV_SEED: Final = "EXTRALIFE_SEED"
ENV_GAME: Final = "EXTRALIFE_GAME"
ENV_NAME: Final = "EXTRALIFE_NAME"
ENV_GPU: Final = "EXTRALIFE_GPU"
ENV_RESUME: Final = "EXTRALIFE_RESUME"  # the newest whole checkpoint; empty: there is none
# Set by the client for its children, which stay silent: the process that reports. No ENV_, as it is not for other scripts.
SPEAKER_ENV: Final = "EXTRALIFE_SPEAKER"
ENV_NOTIFY: Final = "NOTIFY_SOCKET"  # the daemon's edge socket for this program, in sd_notify(3)'s format

PLACEHOLDER_ENV: Final = (
    ENV_NUM_ENVS, ENV_BATCH_SIZE, ENV_THREADS, ENV_LEVEL, ENV_SEED, ENV_GAME, ENV_NAME, ENV_RUN_DIR, ENV_GPU, ENV_RESUME,
)  # fmt: skip

# Variables of one attempt that not every attempt sets: none may reach another program.
ATTEMPT_ENV: Final = (*PLACEHOLDER_ENV, ENV_ROLLBACKS, ENV_WHEN_NO_GPU, SPEAKER_ENV)

# systemd's own variables: a child that inherits them can confuse or stop the service itself, so the daemon strips them.
STRIPPED_ENV: Final = (
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
    "INVOCATION_ID", "JOURNAL_STREAM", "MAINPID",
)  # fmt: skip

# --- exit codes (sysexits.h where one fits) ----------------------------------------------------------------------------

EXIT_DONE: Final = 0  # the target is reached; do not start again
EXIT_FAILED: Final = 1  # any other failure, printed as one sentence or a traceback; start again
EXIT_DIVERGED: Final = 65  # EX_DATAERR: losses are not finite any more; an older checkpoint and another seed may help
EXIT_NO_GPU: Final = 69  # EX_UNAVAILABLE: found no GPU where it needs one; starts again when the GPU is back
EXIT_NO_MEMORY: Final = 71  # EX_OSERR: out of memory, of the host or of the GPU; a smaller batch may fit
EXIT_LEFT: Final = 75  # EX_TEMPFAIL: left on request, with a checkpoint; may be started again
EXIT_FENCED: Final = 77  # EX_NOPERM: another attempt owns the run directory; this one wrote nothing
EXIT_CONFIG: Final = 78  # EX_CONFIG: can never work as configured; do not start again before the config changes

STACKS_SIGNAL: Final = "SIGUSR1"  # asks for all-thread Python stacks in the file named by ENV_STACKS
SAVE_SIGNAL: Final = "SIGUSR2"  # asks for a checkpoint at the next step boundary (same as control.save_now)

# --- run directory ------------------------------------------------------------------------------------------------------

FENCE_FILE: Final = "fence"  # holds the token of the attempt that may commit
LOCK_FILE: Final = "lock"  # flock held by the shim for as long as its attempt's tree may live
CHECKPOINTS_DIR: Final = "checkpoints"
REPLAY_DIR: Final = "replay"
ATTEMPTS_DIR: Final = "attempts"  # attempts/<number>-<token>/ with exit.json, reports.jsonl and stacks.txt
EXIT_FILE: Final = "exit.json"
BACKUPS_DIR: Final = "backups"  # an entry that is named like a checkpoint pins it: it is never pruned
REPORTS_FILE: Final = "reports.jsonl"  # one-time reports that the daemon must not miss

UNKNOWN: Final = 2**64 - 1
NO_DEADLINE: Final = 0


class WorkerPhase(enum.IntEnum):
    """A worker's current activity; each phase has its own deadline (`policy/worker/stall.py`)."""

    IMPORTING = 1
    BUILDING = 2  # environments: 75-80 ms of CPU each with envpool Atari
    RESTORING = 3
    COMPILING = 4
    TRAINING = 5
    EVALUATING = 6
    SAVING = 7
    LEAVING = 8


class TargetKind(enum.IntEnum):
    """The unit of `Beat.target`."""

    NONE = 0
    ENV_STEPS = 1
    EPISODES = 2
    SECONDS_LEFT = 3  # of training: it alone counts down


# --- clocks and identity -------------------------------------------------------------------------------------------------


def now_ns() -> int:
    """CLOCK_BOOTTIME in ns: unlike CLOCK_MONOTONIC it counts suspend, so ages are correct."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_boot_id() -> str:
    """This boot's id as 32 hex digits (`/proc/sys/kernel/random/boot_id`, random(4)), or the daemon's if it set one."""
    given = os.environ.get(ENV_BOOT_ID)
    if given:
        return given
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip().replace("-", "")


def start_ticks(pid: int | str = "self") -> int:
    """Field 22 of /proc/PID/stat: clock ticks from boot to the process's start (proc(5)).

    With the boot id it identifies a process uniquely. psutil's create_time() does not: it moves with the wall clock.
    Raises FileNotFoundError or ProcessLookupError when there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    # The command name may hold spaces and parentheses: count fields from the last closing one.
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def seed_after(seed: int, rollbacks: int) -> int:
    """Another seed after each rollback. Example: 1 stays 1 until the first, then 4,634,302."""
    if not rollbacks:
        return seed
    drawn = hashlib.blake2b(f"{seed}/{rollbacks}".encode(), digest_size=4)
    return int.from_bytes(drawn.digest(), "big") >> 1


def next_token(token: str) -> str:
    """The token of the next attempt, which a cluster starts by itself when it requeues a job.

    The node must compute it without the daemon, which may be down then.
    """
    return hashlib.blake2b(f"{token}/next".encode(), digest_size=16).hexdigest()


# --- records ---------------------------------------------------------------------------------------------------------------

RECORD_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<8sQQII")  # magic, sequence, live_ns, crc32 of the body, body length
_SEQ: Final = struct.Struct("<Q")
_SEQ_AT: Final = 8
_SEQ_WORD: Final = 1  # the header as 8-byte words ...
_LIVE_WORD: Final = 2
_CRC_HALF: Final = 6  # ... and as 4-byte halves
_BODY_AT: Final = _HEADER.size
_READ_TRIES: Final = 64  # a writer holds the record for under 2 us: more torn reads than this mean a dead writer

_BEAT_MAGIC: Final = b"XLBEAT01"
_FIXED: Final = struct.Struct("<HHII16s16sQ")  # version, padding, attempt, pid, boot id, token, start ticks
_EXTRA_HEADER: Final = struct.Struct("<II")  # crc32 and length of the data behind it
_TOKEN_AT: Final = 28  # in `_FIXED`
_EXTRA_AT: Final = 256  # beyond the body, where older readers do not look
_EXTRA_BODY_AT: Final = _EXTRA_AT + _EXTRA_HEADER.size
_OWN_AT: Final = 1024  # figures with the script's own names: a JSON object, with the same header
_OWN_BYTES: Final = RECORD_BYTES - _OWN_AT - _EXTRA_HEADER.size
MOST_OWN: Final = 32  # of them
_LONGEST_OWN_NAME: Final = 64
_CONTROL_MAGIC: Final = b"XLCTRL01"
_CONTROL: Final = struct.Struct("<HHI16s QQ Q")
_VERSION: Final = 1


@dataclass(frozen=True)
class Figure:
    """A number that a worker reports: a row of `FIGURES`."""

    code: str  # its format in the record, one of struct's: I, Q or d
    unknown: float | None  # the value that says "not known"; None: it is always known
    unit: str
    title: str  # its label on a page; empty: each page has its own
    help: str


def _count(meaning: str, unit: str = "", *, code: str = "Q", unknown: int | None = UNKNOWN) -> Any:
    """A field of `Beat`: a whole number."""
    return field(default=unknown or 0, metadata={"figure": Figure(code, unknown, unit, "", meaning)})


def _measured(meaning: str, unit: str = "", *, title: str = "") -> Any:
    """A field of `Beat`: a measurement."""
    return field(default=math.nan, metadata={"figure": Figure("d", math.nan, unit, title, meaning)})


@dataclass(frozen=True)
class Beat:
    """One progress report of a worker. Counters are totals over all attempts; times are CLOCK_BOOTTIME ns.

    A side thread stamps `live_ns`, only the training loop stamps `progress_ns`. The side thread alone proves nothing:
    a blocked envpool `recv` releases the GIL, so the thread goes on while the job hangs.

    The fields from `env_steps` on are the table of figures. It defines the record, the daemon's samples, the JSON of
    `status`, the page of `explain` and the table in `docs/contract.md`. A new figure is a row at its end, and a writer.
    """

    phase: WorkerPhase
    attempt: int
    pid: int
    boot_id: str
    token: str
    start_ticks: int
    live_ns: int
    progress_ns: int
    phase_since_ns: int
    phase_deadline_ns: int = NO_DEADLINE
    target_kind: TargetKind = TargetKind.NONE
    env_steps: int = _count("environment steps, over all attempts, as all totals here", "steps", unknown=None)
    frames: int = _count("frames of the game: 4 a step with Atari", "frames", unknown=None)
    updates: int = _count("updates of the network", "updates", unknown=None)
    episodes: int = _count("finished episodes", "episodes", unknown=None)
    nan_count: int = _count("losses that were not finite", "updates", unknown=None)
    target: int = _count("the program is done at this count")
    mean_return: float = _measured("mean return of the last episodes")
    loss: float = _measured("loss of the newest update", title="loss")
    steps_per_s: float = _measured("environment steps a second, measured by the worker", "steps/s")
    ckpt_step: int = _count("step of the newest durable checkpoint", "steps")
    ckpt_ns: int = _count("when the newest checkpoint became durable", "ns")
    ckpt_stall_us: int = _count("how long the newest checkpoint held up the training", "us", code="I", unknown=None)
    ckpt_write_ms: int = _count("how long the newest checkpoint took to write", "ms", code="I", unknown=None)
    ckpt_count: int = _count("checkpoints that this attempt has committed", "checkpoints", code="I", unknown=None)
    ckpt_bad_count: int = _count("checkpoints that this attempt has set aside", "checkpoints", code="I", unknown=None)
    resumed_step: int = _count("step of the checkpoint that this attempt resumed from", "steps")
    batch_size: int = _count("batch in force; 0: not known", "transitions", code="I", unknown=0)
    num_envs: int = _count("environments in force; 0: not known", "environments", code="I", unknown=0)
    rss_bytes: int = _count("resident memory", "bytes")
    cuda_bytes: int = _count("reserved GPU memory", "bytes")
    # The fields below lie beyond the body (`_EXTRA_FROM`): only measurements.
    q_mean: float = _measured("mean Q of the newest batch (V, for what learns that)", title="mean Q")
    q_max_abs: float = _measured("largest absolute Q of the newest batch", title="largest |Q|")
    q_bound: float = _measured("largest absolute Q that is possible: 1 / (1 - gamma), with rewards clipped to [-1, 1]")
    entropy: float = _measured("entropy of the policy", "nats", title="entropy")
    entropy_share: float = _measured("entropy as a share of ln(number of actions)")
    grad_norm: float = _measured("gradient norm of the newest update, before clipping", title="gradient norm")
    best_return: float = _measured("best mean return of 100 games in a row so far", title="best mean return")
    first_return: float = _measured("mean return of the first 100 games")
    share_act: float = _measured("share of the last half minute of training in which actions were chosen")
    share_env: float = _measured("share in which it waited for environments")
    share_learn: float = _measured("share in which it learned")
    share_copy: float = _measured("share in which experience was stored or drawn")
    share_save: float = _measured("share in which a checkpoint stopped it")
    share_test: float = _measured("share in which test games were played; what is missing to 1 is the rest")
    test_return: float = _measured("mean return of the newest test")
    best_spread: float = _measured("standard deviation of the scores of the best 100 games in a row")
    own: dict[str, float] = field(default_factory=dict)  # figures with the script's own names; not in `FIGURES`


FIGURES: Final[dict[str, Figure]] = {each.name: each.metadata["figure"] for each in fields(Beat) if each.metadata}
_TOTALS: Final = ("env_steps", "frames", "updates", "episodes")  # of the training: before it begins, 0 means nothing


def known_figures(beat: Beat) -> dict[str, Any]:
    """The known figures of one beat, by name."""
    begun = beat.phase >= WorkerPhase.TRAINING or beat.env_steps > 0
    found = ((name, getattr(beat, name)) for name in FIGURES if begun or name not in _TOTALS)
    return {name: value for name, value in found if value != FIGURES[name].unknown and math.isfinite(value)}


@dataclass(frozen=True)
class Control:
    """The daemon's requests to a worker, read at step boundaries.

    The worker saves whenever CLOCK_BOOTTIME passes `offset_ms + k * interval_ms`: the offsets of the programs differ,
    so that they do not save at once on one disk.
    """

    token: str
    interval_ms: int = UNKNOWN
    offset_ms: int = 0
    save_now: int = 0  # a counter: each increase asks for one checkpoint
    leave_by_ns: int = UNKNOWN  # checkpoint and leave before this moment


# Newer fields lie beyond the body, with their own length and CRC, so that an older daemon reads a newer worker and the
# other way round: a field that one side does not write is unknown to the other.
_EXTRA_FROM: Final = "q_mean"
_NAMES: Final = tuple(FIGURES)
_BODY: Final = _NAMES[: _NAMES.index(_EXTRA_FROM)]
_MEASURED: Final = _NAMES[len(_BODY) :]
_EXTRA: Final = struct.Struct("<" + "".join(FIGURES[name].code for name in _MEASURED))
# The order of the moving fields in the record; "" is padding.
_MOVING_NAMES: Final = ("phase", "target_kind", "", "progress_ns", "phase_since_ns", "phase_deadline_ns", *_BODY)
_MOVING: Final = struct.Struct("<HHIQQQ" + "".join(FIGURES[name].code for name in _BODY))
assert set(_EXTRA.format[1:]) == {"d"}, "a figure beyond the body is a measurement"  # noqa: S101
assert _EXTRA_AT + _EXTRA_HEADER.size + _EXTRA.size <= _OWN_AT, "the table of figures is longer than its part"  # noqa: S101


def _locations() -> dict[str, tuple[str, int]]:
    """Field name -> (format, index): its position in `_MOVING`, seen as an array of that format."""
    formats = _MOVING.format.lstrip("<")
    packed = struct.Struct("<" + formats)
    locations, at = {}, 0
    for name, code in zip(_MOVING_NAMES, formats):
        if name:
            locations[name] = (code, at // struct.calcsize("<" + code))
        at += struct.calcsize("<" + code)
    assert at == packed.size  # noqa: S101  the order of the fields above leaves no gap
    return locations


_LOCATIONS: Final = _locations()


def pack_measured(beat: Beat) -> bytes:
    """The part beyond the body of a beat record."""
    return _EXTRA.pack(*(getattr(beat, name) for name in _MEASURED))


def pack_beat(beat: Beat) -> bytes:
    """The body of a beat record (little endian; `docs/contract.md` has the offsets)."""
    return _pack_fixed(beat.attempt, beat.pid, beat.boot_id, beat.token, beat.start_ticks) + _MOVING.pack(
        *(getattr(beat, name) if name else 0 for name in _MOVING_NAMES)
    )


def _pack_fixed(attempt: int, pid: int, boot_id: str, token: str, ticks: int) -> bytes:
    return _FIXED.pack(_VERSION, 0, attempt, pid, bytes.fromhex(boot_id), bytes.fromhex(token), ticks)


class _Record:
    """One mapped record: the writer's side of the seqlock. One thread at a time may call `write`.

    `head` is the part of the body that never changes: a beat neither copies it nor checksums it again.
    """

    def __init__(self, path: str | os.PathLike[str], magic: bytes, head: bytes, rest_bytes: int) -> None:
        if sys.byteorder != "little":
            raise OSError("the contract's records are little-endian, and this machine is not")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        self._path, self._magic, self._head = Path(path), magic, head
        try:
            os.ftruncate(fd, RECORD_BYTES)
            _reserve(fd)
            self._map = mmap.mmap(fd, RECORD_BYTES)
            self._file = _file_id(os.fstat(fd))
        finally:
            os.close(fd)
        self._rest_at, self._end = _BODY_AT + len(head), _BODY_AT + len(head) + rest_bytes
        self._all_end = _EXTRA_BODY_AT + _EXTRA.size
        self._head_crc = zlib.crc32(head)
        # Odd: nothing to read before the first write. The shift prevents an overflow, whatever the file held.
        self._seq = _SEQ.unpack_from(self._map, _SEQ_AT)[0] >> 1 | 1
        _HEADER.pack_into(self._map, 0, magic, self._seq, 0, 0, len(head) + rest_bytes)
        self._map[_BODY_AT : self._rest_at] = head
        header = memoryview(self._map)[:_BODY_AT]
        self._words, self._halves = header.cast("Q"), header.cast("I")  # storing an item costs half of a pack_into
        header.release()
        self._extra_head = memoryview(self._map)[_EXTRA_AT:_EXTRA_BODY_AT].cast("I")

    def write(self, rest: bytes | memoryview) -> None:
        # Odd while the body is being written: a reader that sees an odd or a moved number reads again.
        words = self._words
        while True:
            before = self._seq
            words[_SEQ_WORD] = odd = before | 1
            self._map[self._rest_at : self._end] = rest
            crc = zlib.crc32(rest, self._head_crc)
            if self._seq == before:  # else a signal handler of this thread wrote in between: write again
                self._halves[_CRC_HALF] = crc
                self._seq = words[_SEQ_WORD] = odd + 1
                return

    def write_all(self, image: bytearray, rest: memoryview, extra: memoryview) -> None:
        """Write also the part beyond the body. `image` holds `rest` and `extra`: one copy is faster than two."""
        words = self._words
        while True:
            before = self._seq
            words[_SEQ_WORD] = odd = before | 1
            self._map[self._rest_at : self._all_end] = image
            crc = zlib.crc32(rest, self._head_crc)
            self._extra_head[0] = zlib.crc32(extra)
            if self._seq == before:  # as in `write`
                self._halves[_CRC_HALF] = crc
                self._seq = words[_SEQ_WORD] = odd + 1
                return

    def write_own(self, text: bytes) -> None:
        """Write the figures with the script's own names. Only their own CRC guards them."""
        data = _EXTRA_HEADER.pack(zlib.crc32(text), len(text)) + text
        self._map[_OWN_AT : _OWN_AT + len(data)] = data

    def in_place(self) -> bool:
        """Whether the path still holds this record, undamaged. Costs one stat(2)."""
        try:
            if _file_id(self._path.lstat()) != self._file:
                return False
        except OSError:
            return False
        size = self._end - _BODY_AT
        magic, _, _, _, length = _HEADER.unpack_from(self._map, 0)
        return (magic, length) == (self._magic, size) and self._map[_BODY_AT : self._rest_at] == self._head

    def stamp_live(self, at_ns: int) -> None:
        """Eight aligned bytes outside of sequence and CRC: a thread other than `write`'s may call this."""
        self._words[_LIVE_WORD] = at_ns

    def close(self) -> None:
        for view in (self._words, self._halves, self._extra_head):
            view.release()
        self._map.close()


def _reserve(fd: int) -> None:
    """Reserve the record's page: storing into a mapping that a full tmpfs cannot provide is SIGBUS. Raises OSError."""
    try:
        os.posix_fallocate(fd, 0, RECORD_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # any other: this file system cannot reserve
            raise


def _file_id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _make_private(directory: Path) -> None:
    """Make a private directory, with its parents; refuse one of another user. Raises OSError."""
    if not directory.is_dir():
        _make_private(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if directory.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(directory))


def read_record(data: bytes, magic: bytes) -> tuple[int, int, bytes] | None:
    """(sequence, live_ns, body) of one mapped record, or None when it is torn, empty or damaged."""
    if len(data) < _BODY_AT:
        return None
    found, seq, live_ns, crc, length = _HEADER.unpack_from(data)
    body = data[_BODY_AT : _BODY_AT + length]
    if found != magic or seq & 1 or len(body) != length or zlib.crc32(body) != crc:
        return None
    return seq, live_ns, body


class ControlReader:
    """The worker's side: `read` reads only 8 bytes unless the daemon wrote a new record."""

    def __init__(self, path: str | os.PathLike[str], token: str) -> None:
        self._path, self._token, self._seq = Path(path), token, -1
        self._map: mmap.mmap | None = None
        self._file: tuple[int, int] | None = None
        self._last = Control(token)

    def read(self) -> Control:
        """The newest whole control record that carries our token; otherwise the last one."""
        if self._map is None and not self._open():
            return self._last
        assert self._map is not None  # noqa: S101  for the type checker
        if _SEQ.unpack_from(self._map, _SEQ_AT)[0] != self._seq:
            record = read_record(self._map[:], _CONTROL_MAGIC)
            if record is not None and len(record[2]) == _CONTROL.size:
                version, _, save_now, token, interval_ms, offset_ms, leave_by_ns = _CONTROL.unpack(record[2])
                if version == _VERSION and token.hex() == self._token:
                    self._seq = record[0]
                    self._last = Control(self._token, interval_ms, offset_ms, save_now, leave_by_ns)
        return self._last

    def look_again(self) -> None:
        """Open the path again if its file is another: the daemon replaces a lost record. Another thread may call this."""
        with contextlib.suppress(OSError):
            if self._file not in {None, _file_id(self._path.lstat())} and self._open():
                self._seq = -1

    def _open(self) -> bool:
        found = None
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                found = mmap.mmap(fd, RECORD_BYTES, prot=mmap.PROT_READ)
                self._map, self._file = found, _file_id(os.fstat(fd))
            finally:
                os.close(fd)
        return found is not None


# --- the small client ----------------------------------------------------------------------------------------------------


# Where `progress` stores the fields that change at each step.
_PROGRESS_NS: Final = _LOCATIONS["progress_ns"][1]
_ENV_STEPS: Final = _LOCATIONS["env_steps"][1]
_FRAMES: Final = _LOCATIONS["frames"][1]
_UPDATES: Final = _LOCATIONS["updates"][1]
_EPISODES: Final = _LOCATIONS["episodes"][1]
_LOSS: Final = _LOCATIONS["loss"][1]


class _OwnFigures(dict):  # type: ignore[type-arg]  # Python 3.8 has no dict[str, float] here
    """Figures with the script's own names. Raises TypeError and ValueError for what is no number."""

    def __setitem__(self, name: str, value: float) -> None:
        super().__setitem__(name, float(value))

    def as_json(self) -> bytes:
        """The finite ones, as far as there is room. A copy is encoded, because the training's thread adds figures."""
        known = {name: value for name, value in self.copy().items() if math.isfinite(value)}
        text = json.dumps(known).encode()
        while len(text) > _OWN_BYTES:
            known.popitem()
            text = json.dumps(known).encode()
        return text


class Client:
    """A worker's side of the contract. Without a supervisor's environment every call is a harmless no-op.

    Worked example, a script of the user's own::

        from workers.contract import Client, WorkerPhase

        me = Client()
        me.phase(WorkerPhase.TRAINING)
        for step in range(10_000):
            loss = train_one_step()
            me.progress(env_steps=step, loss=loss)      # under 2 us
            if me.save_wanted():
                save(...); me.committed(step, stall_s=0.01, write_s=0.2)
            if me.leave_wanted:                          # after SIGTERM, once you installed the handler
                break
    """

    def __init__(self, environ: dict[str, str] | None = None, live_period_s: float = 0.5) -> None:
        env = dict(os.environ) if environ is None else environ
        self.supervised = all(env.get(name) for name in (ENV_BEAT, ENV_TOKEN))
        self.token = env.get(ENV_TOKEN, "0" * 32)
        self.program = env.get(ENV_PROGRAM, "")
        self.attempt = int(env.get(ENV_ATTEMPT, "0"))
        self.run_dir = Path(env[ENV_RUN_DIR]) if env.get(ENV_RUN_DIR) else None
        self.leave_wanted = False
        self.is_fenced = self.supervised and self.run_dir is not None
        self._notify = env.get(ENV_NOTIFY)
        self._socket: socket.socket | None = None
        self._saves_seen = 0
        self._next_save_ns = UNKNOWN
        self._interval: tuple[int, int] = (UNKNOWN, 0)
        self._closing = threading.Event()
        at_ns = now_ns()
        blank = Beat(WorkerPhase.IMPORTING, self.attempt, os.getpid(), read_boot_id(), self.token, start_ticks(),
                     at_ns, at_ns, at_ns)  # fmt: skip
        # The next beat is assembled here, field by field, and copied into the record as a whole.
        fixed, moving, extra = pack_beat(blank)[: _FIXED.size], pack_beat(blank)[_FIXED.size :], pack_measured(blank)
        gap = bytes(_EXTRA_AT - _BODY_AT - len(fixed) - len(moving))
        self._image = bytearray(moving + gap + _EXTRA_HEADER.pack(0, len(extra)) + extra)
        self._next, self._extra = memoryview(self._image)[: len(moving)], memoryview(self._image)[-len(extra) :]
        views = {code: self._next.cast(code) for code in "HIQd"}  # type: ignore[call-overload]
        self._fields = {name: (views[code], index) for name, (code, index) in _LOCATIONS.items()}
        self._words, self._doubles = views["Q"], views["d"]
        doubles = self._extra.cast("d")
        self._fields.update({name: (doubles, index) for index, name in enumerate(_MEASURED)})
        self._own, self._own_text = _OwnFigures(), b""
        # Other threads report phases and commits too; reentrant, because signal handlers may do so as well.
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._record = _Record(env[ENV_BEAT], _BEAT_MAGIC, fixed, _MOVING.size) if self.supervised else None
        self._beat_path, self._fixed = env.get(ENV_BEAT, ""), fixed
        self._control = ControlReader(env.get(ENV_CONTROL, ""), self.token) if self.supervised else None
        if self._record is not None:
            self._record.stamp_live(at_ns)
            self._publish({})
            threading.Thread(target=self._live, args=(live_period_s,), name="extralife-live", daemon=True).start()

    # reporting

    def progress(
        self, *, env_steps: int | None = None, frames: int | None = None, updates: int | None = None,
        episodes: int | None = None, loss: float | None = None, **counters: float | None,
    ) -> None:  # fmt: skip
        """Report progress of the training loop; `counters` are fields of `Beat` (totals, not differences).

        None leaves a field as it was. The five fields that change at each step are named parameters because that is
        faster: 1.4 us a beat instead of 2.0.
        """
        words = self._words
        with self._lock:
            try:
                if env_steps is not None:
                    words[_ENV_STEPS] = env_steps
                if frames is not None:
                    words[_FRAMES] = frames
                if updates is not None:
                    words[_UPDATES] = updates
                if episodes is not None:
                    words[_EPISODES] = episodes
                if loss is not None:
                    self._doubles[_LOSS] = loss
            except (TypeError, ValueError):  # `_set` says which one
                self._set({"env_steps": env_steps, "frames": frames, "updates": updates, "episodes": episodes, "loss": loss})
            if counters:
                self._set(counters)
            words[_PROGRESS_NS] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # now_ns(), without the call
            if self._record is None:
                pass
            elif counters:
                self._record.write_all(self._image, self._next, self._extra)
            else:
                self._record.write(self._next)

    def field_location(self, name: str) -> Location:
        """Where a figure of the beat is stored, for `progress_at`. Raises KeyError."""
        return self._fields[name]

    def own_location(self, name: str) -> Location:
        """Where a figure with the script's own name is stored, for `progress_at`. Raises ValueError.

        Such figures reach the record with the next phase, and within half a second (`live_period_s`).
        """
        if not name or len(name) > _LONGEST_OWN_NAME or not name.isprintable():
            raise ValueError(
                f"the name {name!r:.80} of a figure must be printable, with at most {_LONGEST_OWN_NAME} characters"
            )
        if name not in self._own and len(self._own) >= MOST_OWN:
            raise ValueError(f"at most {MOST_OWN} figures with own names can be shown; {name!r} is one more")
        return self._own, name

    def progress_at(
        self, env_steps: int, loss: float | None, locations: Mapping[str, Location], figures: Mapping[str, float]
    ) -> int:
        """Like `progress`, for figures whose locations the caller keeps: twice as fast, for a report at each step.

        Returns the time (`now_ns`). Raises KeyError, TypeError, ValueError.
        """
        words = self._words
        self._acquire()  # like `with self._lock`, in half the time
        try:
            words[_ENV_STEPS] = env_steps
            if loss is not None:
                self._doubles[_LOSS] = loss
            for name in figures:
                view, index = locations[name]
                view[index] = figures[name]
            words[_PROGRESS_NS] = at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            if self._record is None:
                pass
            elif figures:
                self._record.write_all(self._image, self._next, self._extra)
            else:
                self._record.write(self._next)
        finally:
            self._release()
        return at_ns

    def phase(self, phase: WorkerPhase, *, deadline_s: float | None = None, **counters: float | None) -> None:
        """Enter a phase that may take `deadline_s` from now (the daemon caps it)."""
        at_ns = now_ns()
        until_ns = NO_DEADLINE if deadline_s is None else at_ns + int(deadline_s * 1e9)
        moved = {"phase": phase, "phase_since_ns": at_ns, "progress_ns": at_ns, "phase_deadline_ns": until_ns}
        self._publish({**counters, **moved})
        ready = "READY=1\n" if phase is WorkerPhase.TRAINING else ""
        stopping = "STOPPING=1\n" if phase is WorkerPhase.LEAVING else ""
        self.edge(f"{ready}{stopping}STATUS={phase.name.lower()}\n")

    def committed(self, step: int, *, stall_s: float, write_s: float) -> None:
        """Report that a checkpoint at `step` is durable. The thread that wrote it may call this."""
        view, index = self._fields["ckpt_count"]
        with self._lock:
            self._publish({"ckpt_step": step, "ckpt_ns": now_ns(), "ckpt_stall_us": int(stall_s * 1e6),
                           "ckpt_write_ms": int(write_s * 1e3), "ckpt_count": view[index] + 1})  # fmt: skip
        self.edge(f"X_EXTRALIFE_CHECKPOINT={step}\n")

    def report(self, kind: str, **fields: Any) -> None:
        """Append a durable report for the daemon: `resumed`, `checkpoint_bad`, `config` ... one JSON line.

        For events that the daemon must not miss even if it is down: it reads the file again when the attempt ends.
        A disk error costs the report, not the training.
        """
        if not self.supervised or self.run_dir is None:
            return
        path = self.run_dir / ATTEMPTS_DIR / f"{self.attempt}-{self.token}" / REPORTS_FILE
        line = json.dumps({"kind": kind, "at_ns": now_ns(), **fields}, allow_nan=False) + "\n"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
        self.edge(f"X_EXTRALIFE_REPORT={kind}\n")

    def edge(self, text: str) -> None:
        """Send one sd_notify(3) datagram without blocking; it may be lost."""
        if not self.supervised or not self._notify:
            return
        address = "\0" + self._notify[1:] if self._notify.startswith("@") else self._notify
        with contextlib.suppress(OSError):
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.sendto(text.encode(), address)

    # requests

    def control(self) -> Control:
        """The daemon's newest requests."""
        return self._control.read() if self._control is not None else Control(self.token)

    def save_wanted(self) -> bool:
        """True once for each checkpoint that is due: the interval has passed, or the daemon asked for one."""
        control = self.control()
        at_ns = now_ns()
        if control.save_now != self._saves_seen:
            self._saves_seen = control.save_now
            return True
        if (control.interval_ms, control.offset_ms) != self._interval:
            self._interval = (control.interval_ms, control.offset_ms)
            due_ns = _next_save_ns(control, at_ns)  # never later than before: changes must not postpone a save for ever
            self._next_save_ns = due_ns if due_ns == UNKNOWN else min(self._next_save_ns, due_ns)
        if at_ns < self._next_save_ns:
            return False
        self._next_save_ns = _next_save_ns(control, at_ns)
        return True

    def fence_holds(self) -> bool:
        """True while this attempt may commit: the run directory's fence still carries our token."""
        if not self.is_fenced or self.run_dir is None:
            return True
        try:
            return (self.run_dir / FENCE_FILE).read_bytes().strip() == self.token.encode()
        except OSError:
            return False

    def close(self) -> None:
        """Stop the live thread and close the socket. The record stays for the daemon to read."""
        self._closing.set()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _publish(self, counters: Mapping[str, float | None]) -> None:
        with self._lock:
            self._set(counters)
            if self._record is not None and not self._is_replaced():
                self._record.write_all(self._image, self._next, self._extra)
                self._write_own()

    def _write_own(self) -> None:
        with self._lock:
            text = self._own.as_json() if self._own else b""
            if self._record is not None and text != self._own_text:
                self._record.write_own(text)
                self._own_text = text

    def _set(self, counters: Mapping[str, float | None]) -> None:
        fields, name = self._fields, ""
        try:
            for name, value in counters.items():
                view, index = fields[name]
                if value is not None:
                    view[index] = value
        except KeyError:
            raise TypeError(f"unknown beat field {name!r}; known: {', '.join(sorted(fields))}") from None
        except (TypeError, ValueError):
            raise ValueError(f"beat field {name} cannot hold {counters[name]!r}; leave out what is not known") from None

    def _live(self, period_s: float) -> None:
        while not self._closing.wait(period_s):
            record = self._record
            if record is None:  # replaced
                return
            record.stamp_live(now_ns())
            if not record.in_place() and not self._is_replaced():
                with contextlib.suppress(OSError):  # the directory cannot be made now: the next turn tries again
                    self._beat_anew()
            self._write_own()
            if self._control is not None:
                self._control.look_again()

    def _is_replaced(self) -> bool:
        """Whether another process of this attempt writes the record now, as a spawned rank 0 does. Then this one stops.

        Of what never changes in a record, only its process id and `start_ticks` differ.
        """
        if self._record is not None and not self._record.in_place():
            with contextlib.suppress(OSError, struct.error), open(self._beat_path, "rb") as file:  # noqa: PTH123
                found, own = (_FIXED.unpack_from(data) for data in (file.read(_EXTRA_AT)[_BODY_AT:], self._fixed))
                if found != own and found[:3] + found[4:6] == own[:3] + own[4:6]:
                    self._record = None
        return self._record is None

    def take_back(self) -> int:
        """Continue the record of a process that has replaced this one; returns its step. 0: none has, or it is damaged."""
        if not self.supervised or not self._is_replaced():
            return 0
        with contextlib.suppress(OSError), open(self._beat_path, "rb") as file, self._lock:  # noqa: PTH123
            data = file.read(RECORD_BYTES)
            found = read_record(data, _BEAT_MAGIC)
            if found is not None and len(found[2]) == _FIXED.size + _MOVING.size:
                self._next[:] = found[2][_FIXED.size :]
                self._extra[:] = data[_EXTRA_BODY_AT : _EXTRA_BODY_AT + _EXTRA.size]
                self._beat_anew()
                return int(self._words[_ENV_STEPS])
        return 0

    def _beat_anew(self) -> None:
        """Write all of the beat record again: it was removed, replaced or overwritten.

        The supervisor cannot do that: only this process can write to the memory that it maps. Raises OSError.
        """
        _make_private(Path(self._beat_path).parent)
        fresh = _Record(self._beat_path, _BEAT_MAGIC, self._fixed, _MOVING.size)
        fresh.stamp_live(now_ns())
        with self._lock:
            self._record, self._own_text = fresh, b""  # the old mapping is freed when its last user has returned
            self._record.write_all(self._image, self._next, self._extra)


def _next_save_ns(control: Control, at_ns: int) -> int:
    if control.interval_ms == UNKNOWN:
        return UNKNOWN
    interval_ns, offset_ns = max(1, control.interval_ms) * 1_000_000, control.offset_ms * 1_000_000
    return at_ns + interval_ns - (at_ns - offset_ns) % interval_ns


@dataclass(frozen=True)
class LeaveBy:
    """The announced end of the box. `wall_s` is seconds since the epoch, None: unknown; `why` is a short reason."""

    wall_s: float | None
    why: str


def leave_by_text(wall_s: float | None, why: str) -> str:
    """The file's content: the time in whole seconds since the epoch, or `unknown`, then `why`."""
    return f"{'unknown' if wall_s is None else int(wall_s)}\n{why}\n"


def read_leave_by(path: str | os.PathLike[str]) -> LeaveBy | None:
    """The content of the file that ENV_LEAVE_BY names. None: no end is announced, or it is malformed."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  a plain read
            when, _, why = file.read(4096).partition("\n")
        return LeaveBy(None if when == "unknown" else float(int(when)), why.strip())
    except (OSError, ValueError):
        return None


# --- names that come from files -----------------------------------------------------------------------------------------

_MOST_NAME_BYTES: Final = 255
_MOST_DEPTH: Final = 16


def checked_name(name: object) -> str:
    """The name, if it is one safe component of a path. Raises ValueError for any other.

    Every name that was read from a file passes this function, or `checked_path`, before it becomes part of a path: the
    program that wrote a manifest or a list is not trusted, and `directory / "../../x"` is a valid path.

    Example: "model.pt" and "..." are names. "", "..", "a/b", 256 letters and any text with a NUL are not.
    """
    if not isinstance(name, str) or name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(_no_name(name))
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        size = _MOST_NAME_BYTES + 1
    if size > _MOST_NAME_BYTES:
        raise ValueError(_no_name(name))
    return name


def checked_path(path: object) -> str:
    """A relative path of such names, for example `shards/rank-0.pt`: it stays below its directory."""
    names = path.split("/") if isinstance(path, str) else []
    if not 0 < len(names) <= _MOST_DEPTH:
        raise ValueError(_no_name(path))
    return "/".join(checked_name(name) for name in names)


def _no_name(name: object) -> str:
    return f"{name!r:.200} is not a valid name of a file below its directory"


def open_below(directory: str | os.PathLike[str], path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file `path` below `directory`. Follows no link in `path`, waits for no FIFO.

    Raises ValueError for a wrong path, and OSError: also for a link (ELOOP) and a file that is not regular (EINVAL).
    """
    *parents, name = checked_path(path).split("/")
    below = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=below)
            os.close(below)
            below = inner
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=below)
    finally:
        os.close(below)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


# --- checkpoints --------------------------------------------------------------------------------------------------------

MANIFEST_FILE: Final = "manifest.json"
MANIFEST_VERSION: Final = 1
CHECKPOINT_PREFIX: Final = "ckpt-"
BAD_SUFFIX: Final = ".bad"
TMP_SUFFIX: Final = ".tmp"
_YEAR_10000_S: Final = 253_402_300_800  # `datetime` cannot show later times
DIGEST: Final = "blake2b-256"  # hashlib.blake2b(digest_size=32): standard library, about 1 GB/s, releases the GIL
_CHECKPOINT_NAME: Final = re.compile(re.escape(CHECKPOINT_PREFIX) + r"(0|[1-9][0-9]{0,18})\.([0-9a-f]{1,64})", re.ASCII)


def checkpoint_name(env_steps: int, token: str) -> str:
    """The directory of a committed checkpoint: `ckpt-<env steps>.<token>`."""
    return f"{CHECKPOINT_PREFIX}{env_steps}.{token}"


def parse_checkpoint_name(name: str) -> tuple[int, str] | None:
    """(environment steps, token), or None for anything else: temporary, set aside as `.bad`, not ours."""
    found = _CHECKPOINT_NAME.fullmatch(name)
    return None if found is None else (int(found[1]), found[2])


@dataclass(frozen=True)
class Manifest:
    """`manifest.json` of one committed checkpoint directory `ckpt-<env steps>.<token>/`.

    `identity` describes the training (game, algorithm, network shape, resolution ...): a worker refuses a checkpoint
    whose identity differs from its own. `files` maps each file, by its path below the directory (`model.pt`,
    `shards/rank-0.pt`), to (size in bytes, hex digest). `self_digest` covers all other fields: a flipped bit in
    `identity` must read as damage, not as another game's checkpoint.
    """

    program: str
    token: str
    attempt: int
    boot_id: str
    env_steps: int
    created_wall_s: float
    identity: dict[str, Any]
    files: dict[str, tuple[int, str]]
    mean_return: float | None = None

    def to_json(self) -> str:
        files = {name: {"size_bytes": size, "digest": digest} for name, (size, digest) in sorted(self.files.items())}
        body = {
            "version": MANIFEST_VERSION, "digest": DIGEST, "program": self.program, "token": self.token,
            "attempt": self.attempt, "boot_id": self.boot_id, "env_steps": self.env_steps,
            "created_wall_s": self.created_wall_s, "identity": self.identity, "mean_return": self.mean_return,
            "files": files,
        }  # fmt: skip
        return json.dumps({**body, "self_digest": _digest_of(body)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Raises ValueError with one sentence for anything that is not a manifest of this version."""
        try:
            body = json.loads(text, parse_float=_finite, parse_constant=_finite)
            if body["version"] != MANIFEST_VERSION or body["digest"] != DIGEST:
                raise ValueError(f"manifest of version {body['version']!r} with digest {body['digest']!r}")
            if body.pop("self_digest") != _digest_of(body):
                raise ValueError("it does not match its own digest")
            files = {checked_path(k): (int(v["size_bytes"]), str(v["digest"])) for k, v in body["files"].items()}
            _check_apart(files)
            best, created_wall_s = body["mean_return"], float(body["created_wall_s"])
            if not 0 <= created_wall_s < _YEAR_10000_S:
                raise ValueError(f"it says that it was made at {created_wall_s:g} s")
            return cls(
                program=str(body["program"]), token=str(body["token"]), attempt=int(body["attempt"]),
                boot_id=str(body["boot_id"]), env_steps=int(body["env_steps"]),
                created_wall_s=created_wall_s, identity=dict(body["identity"]), files=files,
                mean_return=None if best is None else float(best),
            )  # fmt: skip
        except ValueError as error:  # json.JSONDecodeError and UnicodeDecodeError are ValueErrors too
            raise ValueError(f"not a checkpoint manifest: {error}") from error
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a checkpoint manifest: {type(error).__name__} {error}") from error


def _check_apart(paths: Iterable[str]) -> None:
    """Raises ValueError if a file is the manifest, or a parent of another."""
    known = {MANIFEST_FILE, *paths}
    for path in paths:
        parents = {path[:at] for at, letter in enumerate(path) if letter == "/"}
        if path == MANIFEST_FILE or parents & known:
            raise ValueError(f"{path!r:.200} conflicts with another file")


def _finite(text: str) -> float:
    """A JSON number; ValueError for `1e999` and the words NaN and Infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _digest_of(body: dict[str, Any]) -> str:
    """The digest of a JSON object, written with sorted keys, no spaces, ASCII."""
    return hashlib.blake2b(json.dumps(body, sort_keys=True, separators=(",", ":")).encode(), digest_size=32).hexdigest()
