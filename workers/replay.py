"""The replay memory: a ring of single frames, on disk by mapping, that comes back after a kill and after a power cut.

**What a row is.** One vector step is one row, and row t of one environment is

    frame of o_t, the observation that was acted on | action a_t | reward r_t and done_t, which a_t brought | start_t

so the next observation is the frame of row t + 1, and a frame is stored once (7 kB at 84x84) instead of eight times.
Observations are rebuilt on sampling: frame t - min(k, age_t) for k = stack - 1 ... 0, `age` being the frames since the
game began. That is what envpool does: after a reset all frames of its stack are the first one.

**envpool resets on the next call.** With done at row t, the next `recv` still shows the last frame of the game that
ended; the action sent then is ignored and brings reward 0; only the call after that shows the new game. So row t + 1
is a *fake step*: it is stored (its frame is the final observation, needed after a truncation), but no transition
starts there and none sums its reward. `append` finds fake steps by itself: the row after a done that is not a start.
A life lost under `episodic_life` is a done with a fake step but without a start: the stack goes on, as in envpool.

**What a transition is** (from row t, n steps): the sum runs over r_t ... r_{t+n-1} and stops at the first done row j.
Terminated: no bootstrap (discount 0). Truncated: the game was cut, not lost, so the value of the final observation
counts: next_obs is the fake row j + 1, discount gamma^(j - t + 1). Otherwise next_obs is row t + n, discount gamma^n.
A transition is never drawn when it would need a frame or a reward that is not there: past the newest row, older than
the oldest whole row, or across the seam where one process ended and the next one began with fresh environments.

**What survives.** `append` writes to the page cache, so a killed process loses nothing but the row in hand. A power
cut loses what was not synced: `commit` (its own thread) computes a CRC for each new row, syncs rows and sums, and only
then writes one of two alternating header slots. On opening in the same boot everything appended is trusted; after a
reboot only what the newest whole slot covers, row by row against its CRC, so a row that was overwritten after the
commit is found out as well. Rows are written by `pwrite`, not by stores into the mapping: a store stalls for 20-40 ms
while the file system commits (measured on ext4), and a full disk would be a SIGBUS instead of an OSError.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import struct
import sys
import threading
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from workers.contract import read_boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

TERMINATED: Final = 1
TRUNCATED: Final = 2
START: Final = 4
FAKE: Final = 8

STEP: Final = np.dtype({
    "names": ["action", "reward", "flags", "age"], "formats": ["<i4", "<f4", "u1", "u1"],
    "offsets": [0, 4, 8, 9], "itemsize": 12,
})  # fmt: skip
SUM: Final = np.dtype({"names": ["serial", "crc"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16})

HEADER_FILE: Final = "header.bin"
FRAMES_FILE: Final = "frames.bin"
STEPS_FILE: Final = "steps.bin"
SUMS_FILE: Final = "sums.bin"
_FILES: Final = (HEADER_FILE, FRAMES_FILE, STEPS_FILE, SUMS_FILE)

_PAGE: Final = 4096  # each header record has a page of its own: a torn page spoils one record only
_SLOTS_AT: Final = (_PAGE, 2 * _PAGE)
_LIVE_AT: Final = 3 * _PAGE
_HEADER_BYTES: Final = 4 * _PAGE
_MAGIC: Final = b"XLREPL01"
_LENGTH: Final = struct.Struct("<8sII")  # magic, length of the JSON text, its crc32
_SLOT: Final = struct.Struct("<QQQ")  # epoch (0: never written), rows, low
_LIVE: Final = struct.Struct("<16sQQ")  # boot id, rows, low
_CRC: Final = struct.Struct("<I")
_ROUNDS: Final = 16  # draws of a batch before the valid transitions are listed one by one
_KEEP_FREE: Final = 0.95  # of the free disk or memory, at most


class ReplayError(Exception):
    """The replay can't be had as asked; the message is one sentence for the user."""


class ReplayTooLarge(ReplayError):
    """More than the disk or the memory holds."""


class ReplayInUse(ReplayError):
    """Another process writes these files."""


class NothingToSample(ReplayError):
    """No whole transition is stored yet."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Transitions. y = returns + discounts * value(next_obs).

    The tensors are buffers that the second-next `sample` uses again: copy what must live longer. Fresh memory for
    every batch costs more than gathering it (29 MB of page faults at batch 512).
    """

    obs: torch.Tensor  # uint8 [B, stack, H, W]
    actions: torch.Tensor  # int64 [B]
    returns: torch.Tensor  # float32 [B]
    next_obs: torch.Tensor  # uint8 [B, stack, H, W]
    discounts: torch.Tensor  # float32 [B]; 0 after a terminal step


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the files look like, and of what. Files of another geometry are never read."""

    rows: int
    num_envs: int
    frame_shape: tuple[int, int]
    identity: dict[str, Any]

    @property
    def frame_bytes(self) -> int:
        return self.frame_shape[0] * self.frame_shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        cells = self.rows * self.num_envs
        return {
            FRAMES_FILE: cells * self.frame_bytes,
            STEPS_FILE: cells * STEP.itemsize,
            SUMS_FILE: self.rows * SUM.itemsize,
            HEADER_FILE: _HEADER_BYTES,
        }

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    def to_json(self) -> dict[str, Any]:
        body = {"rows": self.rows, "num_envs": self.num_envs, "frame_shape": self.frame_shape, "identity": self.identity}
        return dict(json.loads(json.dumps(body)))  # tuples become lists, as they will read back


def _print_note(note: str) -> None:
    print(f"replay: {note}", file=sys.stderr, flush=True)


class Replay:
    """The ring. One thread appends and samples; commits run in a thread of their own.

    `directory` None keeps it in memory. `identity` says of what the experience is (game ...): files of another one are
    removed with a loud `report`, as are files of another shape; a replay refills, a misread one poisons the learner.
    `recovered` is one sentence on what came back, for the log.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        frame_shape: tuple[int, int] = (84, 84),
        *,
        stack: int = 4,
        n_step: int = 3,
        gamma: float = 0.99,
        directory: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        boot_id: str | None = None,
        report: Callable[[str], None] = _print_note,
        pin_memory: bool = False,
    ) -> None:
        rows = capacity // num_envs
        if rows < stack + n_step + 2:
            least = (stack + n_step + 2) * num_envs
            raise ReplayError(f"replay_size {capacity} is too small for {num_envs} environments: at least {least}")
        self.num_envs, self.stack, self.n_step, self.gamma = num_envs, stack, n_step, gamma
        self._geometry = Geometry(rows, num_envs, (int(frame_shape[0]), int(frame_shape[1])), dict(identity or {}))
        self._slots, self._report, self._pin = rows, report, pin_memory
        self._rows = self._low = self._committed = self._epoch = 0
        self._files: _Files | None = None
        _refuse_memory(self._geometry)
        if directory is None:
            self._frames = np.zeros((rows, num_envs * self._geometry.frame_bytes), np.uint8)
            self._steps = np.zeros((rows, num_envs), STEP)
            self.recovered = "kept in memory only"
        else:
            self._files = _Files(Path(directory), self._geometry, report)
            self._frames, self._steps = self._files.frames, self._files.steps
            self._recover(self._files, boot_id or read_boot_id())
        self._fresh = True  # environments can't be saved: whatever comes first begins a game
        self._flat = torch.from_numpy(self._frames.reshape(rows * num_envs, self._geometry.frame_bytes))
        self._cells = self._steps.reshape(-1)
        self._powers = gamma ** np.arange(n_step + 1, dtype=np.float64)
        self._buffers: dict[int, list[torch.Tensor]] = {}
        self._commit_thread: threading.Thread | None = None
        self._failure: str | None = None

    # filling

    @property
    def total(self) -> int:
        """Environment steps ever appended (rewound ones not counted); what a checkpoint notes for `rewind`."""
        return self._rows * self.num_envs

    def __len__(self) -> int:
        """Environment steps that are stored now, fake ones included."""
        return (self._rows - self._oldest()) * self.num_envs

    @property
    def capacity(self) -> int:
        """The most that `len` can be: one row less than the files hold, since the next append overwrites one."""
        return (self._slots - 1) * self.num_envs

    def append(
        self,
        frames: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        starts: ArrayLike,
    ) -> None:
        """Store one vector step; call it after `step`, with the frames that were acted on.

        frames [N, H, W] uint8: the newest frame of each observation given to the policy; the others: [N], what the
        environment answered; starts [N]: that frame was the first of a game (with envpool: the call before was done
        and info["elapsed_step"] is 0 now, or the environments are new). The first row after opening or `rewind` is
        a start whatever the caller says, because its environments are new.
        """
        pixels = np.ascontiguousarray(frames)
        if pixels.dtype != np.uint8 or pixels.shape != (self.num_envs, *self._geometry.frame_shape):
            expected = f"uint8 {[self.num_envs, *self._geometry.frame_shape]}"
            raise ValueError(f"frames must be {expected}, not {pixels.dtype} {list(pixels.shape)}")
        begins = np.ones(self.num_envs, bool) if self._fresh else np.asarray(starts, bool)
        before = self._steps[(self._rows - 1) % self._slots]
        cells = np.zeros(self.num_envs, STEP)
        cells["action"], cells["reward"] = actions, rewards
        # After a done comes a fake step, unless that row begins a game: an environment that resets within the call, or
        # a game that was over within envpool's reset, whose successor begins one too and so cuts it off by itself.
        fake = (before["flags"] & (TERMINATED | TRUNCATED) != 0) & ~begins
        bits = ((terminated, TERMINATED), (truncated, TRUNCATED), (begins, START), (fake, FAKE))
        cells["flags"] = sum(np.asarray(mask, bool).astype(np.uint8) * bit for mask, bit in bits)
        cells["age"] = np.where(begins, 0, np.minimum(before["age"].astype(np.int64) + 1, 255))
        slot = self._rows % self._slots
        if self._files is None:
            self._frames[slot], self._steps[slot] = pixels.reshape(-1), cells
        else:
            self._files.put(slot, pixels, cells)
            self._files.write_live(self._rows + 1, self._low)
        self._rows += 1
        self._fresh = False

    def rewind(self, total: int) -> int:
        """Drop what was appended after `total` (see there); returns how many environment steps that were.

        For a resume that shall equal the uninterrupted run: the rows after the checkpoint were never seen by it.
        Rows that the dropped ones had overwritten stay lost. A replay that ends before `total` stays as it is.
        """
        rows = total // self.num_envs
        dropped = max(0, self._rows - rows)
        if dropped:
            self.wait()
            self._low = min(self._oldest(), rows)
            if rows <= self._oldest():
                self._low = rows
            self._rows, self._committed = rows, min(self._committed, rows)
            if self._files is not None:
                # On disk before the first new row: else an older header would vouch for rows that are no more.
                # Both slots: the one to fall back to must not tell of them either.
                for _ in range(2):
                    self._epoch += 1
                    self._files.write_slot(self._epoch, self._committed, min(self._low, self._committed))
                self._files.write_live(self._rows, self._low)
        self._fresh = True
        return dropped * self.num_envs

    # sampling

    def sample(self, batch_size: int, generator: torch.Generator | np.random.Generator) -> Batch:
        """`batch_size` transitions, uniformly with replacement from all whole ones. Raises NothingToSample."""
        rows, envs, boots, returns, discounts = self._draw(batch_size, generator)
        cells = self._cells[self._cell(rows, envs)]
        index = np.empty((2, batch_size, self.stack), np.int64)
        self._stack_cells(index[0], rows, envs, cells["age"])
        self._stack_cells(index[1], boots, envs, self._cells["age"][self._cell(boots, envs)])
        frames = self._buffer(batch_size)
        torch.index_select(self._flat, 0, torch.from_numpy(index.reshape(-1)), out=frames)
        both = frames.view(2, batch_size, self.stack, *self._geometry.frame_shape)
        return Batch(
            obs=both[0],
            actions=torch.from_numpy(cells["action"].astype(np.int64)),
            returns=torch.from_numpy(returns.astype(np.float32)),
            next_obs=both[1],
            discounts=torch.from_numpy(discounts.astype(np.float32)),
        )

    def _draw(self, count: int, generator: torch.Generator | np.random.Generator) -> tuple[NDArray[Any], ...]:
        low, population = self._oldest(), (self._rows - self._oldest()) * self.num_envs
        parts: list[tuple[NDArray[Any], ...]] = []
        missing = count
        for _ in range(_ROUNDS if population else 0):
            picks = _integers(generator, population, missing + missing // 8 + 4)
            valid, *columns = self._resolve(low + picks // self.num_envs, picks % self.num_envs)
            part = tuple(column[valid][:missing] for column in columns)
            parts.append(part)
            missing -= len(part[0])
            if not missing:
                return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
        return self._draw_from_list(count, generator)

    def _draw_from_list(self, count: int, generator: torch.Generator | np.random.Generator) -> tuple[NDArray[Any], ...]:
        """The same when whole transitions are rare: right after the start, or none at all."""
        every = np.arange(self._oldest() * self.num_envs, self._rows * self.num_envs)
        valid, *columns = self._resolve(every // self.num_envs, every % self.num_envs)
        found = np.flatnonzero(valid)
        if not len(found):
            raise NothingToSample(f"no whole transition of {self.n_step} steps among {len(self)} stored environment steps")
        chosen = found[_integers(generator, len(found), count)]
        return tuple(column[chosen] for column in columns)

    def _resolve(self, rows: NDArray[Any], envs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """(valid, rows, envs, bootstrap rows, returns, discounts) of the transitions that start at these places."""
        flags_of, rewards_of, newest = self._cells["flags"], self._cells["reward"], self._rows - 1
        at = self._cell(rows, envs)
        flags = flags_of[at]
        reach = np.minimum(self._cells["age"][at].astype(np.int64), self.stack - 1)
        running = ((flags & FAKE) == 0) & (rows - reach >= self._oldest())
        valid, boots, returns, discounts = running.copy(), rows.copy(), np.zeros(len(rows)), np.zeros(len(rows))
        for step in range(self.n_step):
            returns += np.where(running, self._powers[step] * rewards_of[at].astype(np.float64), 0.0)
            over = running & ((flags & TERMINATED) != 0)
            running &= ~over
            # Any whole observation will do as the next one of a terminal step: it counts with weight 0.
            boots[over] = rows[over] + step
            discounts[over] = 0.0
            # The row after: the state to go on from, or to bootstrap from.
            after = np.minimum(rows + step + 1, newest)
            at = self._cell(after, envs)
            next_flags = flags_of[at]
            broken = running & ((rows + step + 1 > newest) | ((next_flags & START) != 0))
            valid &= ~broken
            running &= ~broken
            boots[running] = after[running]
            discounts[running] = self._powers[step + 1]
            running &= (flags & TRUNCATED) == 0
            flags = next_flags
        return valid, rows, envs, boots, returns, discounts

    def _cell(self, rows: NDArray[Any], envs: NDArray[Any]) -> NDArray[Any]:
        cells: NDArray[Any] = rows % self._slots * self.num_envs + envs
        return cells

    def _stack_cells(self, out: NDArray[Any], rows: NDArray[Any], envs: NDArray[Any], ages: NDArray[Any]) -> None:
        for place in range(self.stack):
            back = np.minimum(self.stack - 1 - place, ages.astype(np.int64))
            out[:, place] = self._cell(rows - back, envs)

    def _buffer(self, batch_size: int) -> torch.Tensor:
        pair = self._buffers.get(batch_size)
        if pair is None:
            shape = (2 * batch_size * self.stack, self._geometry.frame_bytes)
            pair = [torch.empty(shape, dtype=torch.uint8, pin_memory=self._pin) for _ in range(2)]
            self._buffers = {batch_size: pair}  # one size at a time: a batch that changed for good frees the old one
        pair.reverse()
        return pair[0]

    def _oldest(self) -> int:
        """The oldest row to trust: the slot that the next append overwrites is never one, it may be torn by a kill."""
        return max(self._low, self._rows - (self._slots - 1))

    # keeping

    def commit(self) -> bool:
        """Make everything appended so far survive a power cut, in the background. False: the last one still runs.

        Costs the caller about 0.1 ms; the work is proportional to what is new. A failure (EIO, ENOSPC) is reported
        and the next commit tries again: it never stops the training.
        """
        if self._files is None or self._rows == self._committed:
            return True
        if self._commit_thread is not None and self._commit_thread.is_alive():
            return False
        args = (self._files, self._rows, self._oldest())
        self._commit_thread = threading.Thread(target=self._commit, args=args, name="replay-commit", daemon=True)
        self._commit_thread.start()
        return True

    @property
    def committed(self) -> int:
        """Environment steps, as `total` counts them, that are known to survive a power cut."""
        return self._committed * self.num_envs

    def wait(self, timeout_s: float | None = None) -> bool:
        """True once no commit runs any more."""
        if self._commit_thread is not None:
            self._commit_thread.join(timeout_s)
            return not self._commit_thread.is_alive()
        return True

    def close(self) -> None:
        """Commit what is new, wait for it and let go of the files."""
        if self._files is not None:
            self.wait()
            self.commit()
            self.wait()
            self._files.close()

    def _commit(self, files: _Files, upto: int, low: int) -> None:
        try:
            for start, stop in _runs(max(self._committed, low), upto, self._slots):
                sums = np.zeros(stop - start, SUM)
                for place, row in enumerate(range(start, stop)):
                    sums["crc"][place] = files.crc(row % self._slots)
                    # The ring may have come round meanwhile: then this slot holds a later row, not yet committed.
                    sums["serial"][place] = row + 1 if self._rows < row + self._slots else 0
                files.put_sums(start % self._slots, sums)
            files.sync()
            self._epoch += 1
            files.write_slot(self._epoch, upto, low)
            self._committed = upto
            self._failure = None
        except OSError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self._report(f"could not be committed: {error}; the next commit tries again")

    def _recover(self, files: _Files, boot_id: str) -> None:
        self._epoch, slot_rows, slot_low = files.read_slot()
        live = files.read_live()
        self._committed = slot_rows
        if live is not None and live[0] == boot_id:
            self._rows, self._low = live[1:]
            self._committed = min(slot_rows, self._rows)
            why = "of this boot"
        else:
            self._rows = slot_rows
            self._low = files.first_trusted(max(slot_low, slot_rows - (self._slots - 1)), slot_rows)
            why = "committed before the reboot"
        self.recovered = f"{len(self)} environment steps {why}" if self._rows else "new"
        files.boot_id = boot_id
        files.write_live(self._rows, self._low)


class _Files:
    """The four files: header (geometry, two commit slots, live record), frames, steps, sums."""

    def __init__(self, directory: Path, geometry: Geometry, report: Callable[[str], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.boot_id = "0" * 32
        self._geometry = geometry
        with contextlib.ExitStack() as stack:
            self._open(stack, directory, report)
            self._release = weakref.finalize(self, stack.pop_all().close)

    def _open(self, stack: contextlib.ExitStack, directory: Path, report: Callable[[str], None]) -> None:
        geometry = self._geometry
        lock = _open(stack, directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReplayInUse(f"{directory} is in use by another process: two writers would spoil the replay") from None
        problem = _mismatch(directory, geometry)
        if problem is not None:
            if problem:
                report(f"{directory} can't be used and is begun anew: {problem}")
            _create(directory, geometry)
            os.fsync(lock)
        fds = {name: _open(stack, directory / name, os.O_RDWR) for name in _FILES}
        self._header, self._frames, self._steps, self._sums = (fds[name] for name in _FILES)
        sizes = geometry.sizes
        maps = {name: mmap.mmap(fds[name], sizes[name], prot=mmap.PROT_READ | mmap.PROT_WRITE) for name in _FILES[1:]}
        self.frames = np.frombuffer(maps[FRAMES_FILE], np.uint8).reshape(geometry.rows, -1)
        self.steps = np.frombuffer(maps[STEPS_FILE], STEP).reshape(geometry.rows, geometry.num_envs)
        self.sums = np.frombuffer(maps[SUMS_FILE], SUM)

    def put(self, slot: int, frames: NDArray[np.uint8], cells: NDArray[Any]) -> None:
        _write_at(self._frames, frames.data.cast("B"), slot * frames.nbytes)
        _write_at(self._steps, cells.tobytes(), slot * cells.nbytes)

    def put_sums(self, slot: int, sums: NDArray[Any]) -> None:
        _write_at(self._sums, sums.tobytes(), slot * SUM.itemsize)

    def crc(self, slot: int) -> int:
        return zlib.crc32(self.steps[slot].tobytes(), zlib.crc32(self.frames[slot].data))

    def sync(self) -> None:
        for fd in (self._frames, self._steps, self._sums):
            os.fdatasync(fd)

    def first_trusted(self, low: int, rows: int) -> int:
        """The oldest row from which on every row up to `rows` is the one that was committed."""
        trusted = low
        for row in range(low, rows):
            slot = row % self._geometry.rows
            if self.sums["serial"][slot] != row + 1 or self.sums["crc"][slot] != self.crc(slot):
                trusted = row + 1
        return trusted

    def write_slot(self, epoch: int, rows: int, low: int) -> None:
        body = _SLOT.pack(epoch, rows, low)
        _write_at(self._header, body + _CRC.pack(zlib.crc32(body)), _SLOTS_AT[epoch % 2])
        os.fdatasync(self._header)

    def read_slot(self) -> tuple[int, int, int]:
        """(epoch, rows, low) of the newest whole slot; zeros when there is none."""
        found = [(0, 0, 0)]
        for at in _SLOTS_AT:
            body = _checked(os.pread(self._header, _SLOT.size + _CRC.size, at), _SLOT.size)
            if body is not None:
                found.append(_SLOT.unpack(body))
        return max(found)

    def write_live(self, rows: int, low: int) -> None:
        body = _LIVE.pack(bytes.fromhex(self.boot_id), rows, low)
        _write_at(self._header, body + _CRC.pack(zlib.crc32(body)), _LIVE_AT)

    def read_live(self) -> tuple[str, int, int] | None:
        body = _checked(os.pread(self._header, _LIVE.size + _CRC.size, _LIVE_AT), _LIVE.size)
        if body is None:
            return None
        boot, rows, low = _LIVE.unpack(body)
        return boot.hex(), rows, low

    def close(self) -> None:
        self._release()


# --- files ---------------------------------------------------------------------------------------------------------------


def _open(stack: contextlib.ExitStack, path: Path, flags: int) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    """All of it: pwrite may stop short, at 2 GB or at a full disk."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], at + done)


def _checked(data: bytes, size: int) -> bytes | None:
    """The body in front of its CRC, or None when it is torn, short or was never written."""
    if len(data) != size + _CRC.size or _CRC.unpack_from(data, size)[0] != zlib.crc32(data[:size]):
        return None
    return data[:size] if any(data[:size]) else None


def _mismatch(directory: Path, geometry: Geometry) -> str | None:
    """None: the files fit. "": there are none. Else what is wrong with them."""
    present = [name for name in _FILES if (directory / name).exists()]
    if not present:
        return ""
    try:
        with (directory / HEADER_FILE).open("rb") as file:
            page = file.read(_PAGE)
        magic, length, crc = _LENGTH.unpack_from(page)
        text = page[_LENGTH.size : _LENGTH.size + length]
        if magic != _MAGIC or zlib.crc32(text) != crc:
            return "its header is damaged"
        found = json.loads(text)
        for key, wanted in geometry.to_json().items():
            if found.get(key) != wanted:
                return f"{key} was {found.get(key)} and is {wanted} now"
        for name, size in geometry.sizes.items():
            if (directory / name).stat().st_size != size:
                return f"{name} has {(directory / name).stat().st_size} bytes, expected {size}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (struct.error, ValueError):
        return "its header is damaged"
    return None


def _create(directory: Path, geometry: Geometry) -> None:
    """New files, with their space reserved so that a disk that fills up later can't strike; the header comes last."""
    for name in _FILES:
        (directory / name).unlink(missing_ok=True)
    _refuse_disk(directory, geometry)
    try:
        for name in (FRAMES_FILE, STEPS_FILE, SUMS_FILE):
            with contextlib.ExitStack() as stack:
                fd = _open(stack, directory / name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                os.posix_fallocate(fd, 0, geometry.sizes[name])
                os.fsync(fd)
        text = json.dumps(geometry.to_json()).encode()
        if _LENGTH.size + len(text) > _PAGE:
            raise ReplayError(f"the identity of a replay must fit into {_PAGE} bytes, this one has {len(text)}")
        page = _LENGTH.pack(_MAGIC, len(text), zlib.crc32(text)) + text
        with contextlib.ExitStack() as stack:
            fd = _open(stack, directory / HEADER_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            _write_at(fd, page.ljust(_HEADER_BYTES, b"\0"), 0)
            os.fsync(fd)
    except OSError:
        for name in _FILES:
            (directory / name).unlink(missing_ok=True)
        raise


def _refuse_disk(directory: Path, geometry: Geometry) -> None:
    _refuse(geometry, shutil.disk_usage(directory).free, f"on the disk of {directory}")


def _refuse_memory(geometry: Geometry) -> None:
    """Refuse a ring that can't stay in memory: a mapped one would still work, at the speed of the disk."""
    available_bytes = available_memory_bytes()
    if available_bytes is not None:
        _refuse(geometry, available_bytes, "in memory")


def _refuse(geometry: Geometry, free_bytes: int, where: str) -> None:
    if geometry.size_bytes <= free_bytes * _KEEP_FREE:
        return
    cells = geometry.rows * geometry.num_envs
    fits = int(free_bytes * _KEEP_FREE / geometry.size_bytes * cells)
    raise ReplayTooLarge(
        f"a replay of {cells:,} transitions of {geometry.frame_shape[0]}x{geometry.frame_shape[1]} needs "
        f"{geometry.size_bytes / 1e9:.2f} GB but {free_bytes / 1e9:.2f} GB are free {where}: "
        f"set replay_size to {fits:,} or less"
    )


def available_memory_bytes() -> int | None:
    """What this process may still use: MemAvailable, or less where a cgroup (v2) says so. None: unknown."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError, IndexError):
        groups = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
        group = Path("/sys/fs/cgroup") / groups[0].lstrip("/")
        for level in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = int((level / "memory.max").read_text())
                stat = dict(line.split() for line in (level / "memory.stat").read_text().splitlines())
                cache = int(stat["inactive_file"]) + int(stat["active_file"])
                found.append(limit - int((level / "memory.current").read_text()) + cache)
    return min(found) if found else None


def _runs(start: int, stop: int, slots: int) -> Iterator[tuple[int, int]]:
    """[start, stop) in pieces that don't wrap and are small enough to give others the interpreter."""
    while start < stop:
        end = min(stop, start - start % slots + slots, start + 1024)
        yield start, end
        start = end


def _integers(generator: torch.Generator | np.random.Generator, high: int, count: int) -> NDArray[np.int64]:
    if isinstance(generator, np.random.Generator):
        return generator.integers(high, size=count, dtype=np.int64)
    drawn: NDArray[np.int64] = torch.randint(high, (count,), generator=generator, device=generator.device).cpu().numpy()
    return drawn
