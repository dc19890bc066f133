"""The replay memory: a memory-mapped ring of single frames on disk, which survives a kill and a power cut.

**Cells.** One step of one environment is one cell,

    frame of o_t, the observation that was acted on | action a_t | reward r_t and done_t, which a_t brought | start_t | N

and one vector step of N environments is a *row*: N adjacent cells. Cells are numbered in the order in which they were
appended, and the numbers never restart; cell c lies at index c modulo the ring's size. The same environment's next step
is cell c + N, so the next observation is the frame of cell c + N, and a frame is stored once (7 kB at 84x84) instead of
eight times. Observations are rebuilt on sampling: frame c - min(k, age_c) N for k = stack - 1 ... 0, where `age` is the
number of frames since the game began. envpool does the same: after a reset all frames of its stack are the first one.

**Another number of environments.** Each cell stores N. So a run that resumes with more or fewer environments continues in
the same ring, and rows of another width are sampled like any others. The first row of a process begins a game in each
environment. If it is narrower than the rows before it, the step after one of their last cells would lie beyond that first
row. That cell stores another N, and the transition is cut there. Why not rows as wide as the widest level: a light level
would leave seven eighths of the memory empty. Why not rewrite the files: it takes gigabytes just when the box may fail.

**envpool resets on the next call.** With done at row t, the next `recv` still shows the last frame of the game that
ended; the action sent then is ignored and brings reward 0; only the call after that shows the new game. So step t + 1
is a *fake step*: it is stored (its frame is the final observation, needed after a truncation), but no transition
starts there or includes its reward. `append` detects fake steps by itself: the row after a done that is not a start.
A life lost under `episodic_life` is a done with a fake step but without a start: the stack goes on, as in envpool.

**Transitions** (from step t, n steps): the sum runs over r_t ... r_{t+n-1} and stops at the first done step j.
Terminated: no bootstrap (discount 0). Truncated: the game was cut, not lost, so the value of the final observation
counts: next_obs is the fake step j + 1, discount gamma^(j - t + 1). Otherwise next_obs is step t + n, discount gamma^n.
A transition is never drawn if it needs a missing frame or reward: newer than the newest cell, older than the oldest
complete one, or across the boundary where one process ended and the next one began with new environments.

**Durability.** `append` writes to the page cache, so a killed process loses only the row that it is writing. A power cut
loses all data that was not synced. `commit` (in its own thread) computes a CRC for each new row, stored at the index of
its first cell, syncs rows and sums, and only then writes one of two alternating header slots. On opening in the same boot
all appended rows are trusted. After a reboot only the rows that the newest valid slot covers are trusted, and each row is
checked against its CRC. This also detects a row that was overwritten after the commit. Rows are written by `pwrite`, not
by stores into the mapping: a store stalls for 20-40 ms while the file system commits (measured on ext4), and on a full
disk it raises SIGBUS instead of OSError.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from workers.background import run_in_thread
from workers.contract import read_boot_id
from workers.memory_limits import memory_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

TERMINATED: Final = 1
TRUNCATED: Final = 2
START: Final = 4
FAKE: Final = 8

STEP: Final = np.dtype({
    "names": ["action", "reward", "flags", "age", "width"], "formats": ["<i4", "<f4", "u1", "u1", "<u2"],
    "offsets": [0, 4, 8, 9, 10], "itemsize": 12,
})  # fmt: skip
# At the index of a row's first cell: that cell's number + 1, and the CRC of `cells` cells from it on.
SUM: Final = np.dtype([("serial", "<u8"), ("crc", "<u4"), ("cells", "<u4")])

HEADER_FILE: Final = "header.bin"
FRAMES_FILE: Final = "frames.bin"
STEPS_FILE: Final = "steps.bin"
SUMS_FILE: Final = "sums.bin"
_FILES: Final = (HEADER_FILE, FRAMES_FILE, STEPS_FILE, SUMS_FILE)

_PAGE: Final = 4096  # each header record has its own page: a torn page damages only one record
_SLOTS_AT: Final = (_PAGE, 2 * _PAGE)
_LIVE_AT: Final = 3 * _PAGE
_HEADER_BYTES: Final = 4 * _PAGE
_MAGIC: Final = b"XLREPL02"
_LENGTH: Final = struct.Struct("<8sII")  # magic, length of the JSON text, its crc32
_SLOT: Final = struct.Struct("<QQQ")  # epoch (0: never written), total, low
_LIVE: Final = struct.Struct("<16sQQ")  # boot id, total, low
_CRC: Final = struct.Struct("<I")
_ROUNDS: Final = 16  # draws of a batch before the valid transitions are listed one by one
_KEEP_FREE: Final = 0.95  # largest share of the free disk or memory that a replay may use
_MOST_ENVS: Final = 65535  # the largest value of `width`
_PIECE: Final = 4096  # cells whose CRCs a commit computes before it writes them


class ReplayError(Exception):
    """The replay can't be created with these settings; the message is one sentence for the user."""


class ReplayTooLarge(ReplayError):
    """The replay does not fit on the disk or into memory."""


class ReplayInUse(ReplayError):
    """Another process is using these files."""


class NothingToSample(ReplayError):
    """No complete transition is stored yet."""


class Batch(NamedTuple):
    """Transitions. y = returns + discounts * value(next_obs).

    The tensors are buffers that the second-next `sample` reuses: copy data that must live longer. New memory for every
    batch costs more time than gathering the batch (29 MB of page faults at batch 512).
    """

    obs: torch.Tensor  # uint8 [B, stack, H, W]
    actions: torch.Tensor  # int64 [B]
    returns: torch.Tensor  # float32 [B]
    next_obs: torch.Tensor  # uint8 [B, stack, H, W]
    discounts: torch.Tensor  # float32 [B]; 0 after a terminal step


@dataclass(frozen=True, slots=True)
class Geometry:
    """The layout and the identity of the files. Files with another geometry are never read."""

    cells: int
    frame_shape: tuple[int, int]
    identity: dict[str, Any]

    @property
    def frame_bytes(self) -> int:
        return self.frame_shape[0] * self.frame_shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        return {
            FRAMES_FILE: self.cells * self.frame_bytes,
            STEPS_FILE: self.cells * STEP.itemsize,
            SUMS_FILE: self.cells * SUM.itemsize,
            HEADER_FILE: _HEADER_BYTES,
        }

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    def to_json(self) -> dict[str, Any]:
        body = {"cells": self.cells, "frame_shape": self.frame_shape, "identity": self.identity}
        return dict(json.loads(json.dumps(body)))  # tuples become lists, as in JSON that is read back


def _print_note(note: str) -> None:
    print(f"replay: {note}", file=sys.stderr, flush=True)


class Replay:
    """The ring. One thread appends and samples; commits run in their own thread.

    `directory` None keeps it in memory. `identity` describes the experience (game ...): files with another identity or
    size are removed and `report` is called, because a replay can be refilled but wrong data would spoil the learner.
    A changed `num_envs` does not remove files: the ring consists of cells, and it continues.
    `recovered` describes the recovered data in one sentence, for the log.
    """

    def __init__(
        self, capacity: int, num_envs: int, frame_shape: tuple[int, int] = (84, 84), *, stack: int = 4, n_step: int = 3,
        gamma: float = 0.99, directory: Path | None = None, identity: Mapping[str, Any] | None = None,
        boot_id: str | None = None, report: Callable[[str], None] = _print_note, pin_memory: bool = False,
    ) -> None:  # fmt: skip
        least = (stack + n_step + 2) * num_envs
        if capacity < least:
            raise ReplayError(f"replay_size {capacity} is too small for {num_envs} environments: at least {least}")
        if num_envs > _MOST_ENVS:
            raise ReplayError(f"a replay can't keep {num_envs} environments: {_MOST_ENVS} at most")
        self.num_envs, self.stack, self.n_step, self.gamma = num_envs, stack, n_step, gamma
        self._geometry = Geometry(capacity, (int(frame_shape[0]), int(frame_shape[1])), dict(identity or {}))
        self._size, self._report, self._pin = capacity, report, pin_memory
        self._total = self._low = self._committed = self._epoch = 0
        self._files: _Files | None = None
        # A mapped ring that does not fit into memory would still work, but only at the speed of the disk.
        _refuse(self._geometry, available_memory_bytes(), "in memory")
        if directory is None:
            self._frames = np.zeros((capacity, self._geometry.frame_bytes), np.uint8)
            self._steps = np.zeros(capacity, STEP)
            self.recovered = "kept in memory only"
        else:
            self._files = _Files(Path(directory), self._geometry, report)
            self._frames, self._steps = self._files.frames, self._files.steps
            self._recover(self._files, boot_id or read_boot_id())
        self._newest: NDArray[Any] | None = None  # the previous row; None: the environments are new (they can't be saved)
        self._flat = torch.from_numpy(self._frames)
        self._powers = gamma ** np.arange(n_step + 1, dtype=np.float64)
        self._buffers: dict[int, list[torch.Tensor]] = {}
        self._commit_thread: threading.Thread | None = None
        self._failure: str | None = None

    # filling

    @property
    def total(self) -> int:
        """Environment steps ever appended, without rewound ones; checkpoints store this number for `rewind`."""
        return self._total

    def __len__(self) -> int:
        """Environment steps that are stored now, fake ones included."""
        return self._total - self._oldest()

    @property
    def capacity(self) -> int:
        """The largest possible `len`: one row less than the files hold, because the next append overwrites one."""
        return self._size - self.num_envs

    def append(
        self, frames: ArrayLike, actions: ArrayLike, rewards: ArrayLike, terminated: ArrayLike, truncated: ArrayLike,
        starts: ArrayLike,
    ) -> None:  # fmt: skip
        """Store one vector step; call it after `step`, with the frames that the policy acted on.

        frames [N, H, W] uint8: the newest frame of each observation given to the policy; the others: [N], the results
        of the step; starts [N]: whether that frame was the first of a game (with envpool: the previous call was done
        and info["elapsed_step"] is 0 now, or the environments are new). The first row after opening or `rewind` is
        always a start, whatever the caller passes, because its environments are new.
        """
        pixels = np.ascontiguousarray(frames)
        if pixels.dtype != np.uint8 or pixels.shape != (self.num_envs, *self._geometry.frame_shape):
            expected = f"uint8 {[self.num_envs, *self._geometry.frame_shape]}"
            raise ValueError(f"frames must be {expected}, not {pixels.dtype} {list(pixels.shape)}")
        before = self._newest
        begins = np.ones(self.num_envs, bool) if before is None else np.asarray(starts, bool)
        cells = np.zeros(self.num_envs, STEP)
        cells["action"], cells["reward"], cells["width"] = actions, rewards, self.num_envs
        fake = np.zeros(self.num_envs, bool)
        if before is not None:
            # After a done comes a fake step, unless that row begins a game. It does if the environment resets within the
            # call, or if a game was over within envpool's reset: the next row begins a game too and so cuts that one off.
            fake = (before["flags"] & (TERMINATED | TRUNCATED) != 0) & ~begins
            cells["age"] = np.where(begins, 0, np.minimum(before["age"].astype(np.int64) + 1, 255))
        bits = ((terminated, TERMINATED), (truncated, TRUNCATED), (begins, START), (fake, FAKE))
        cells["flags"] = sum(np.asarray(mask, bool).astype(np.uint8) * bit for mask, bit in bits)
        self._put(pixels.reshape(self.num_envs, -1), cells)
        self._total += self.num_envs
        self._newest = cells

    def _put(self, pixels: NDArray[np.uint8], cells: NDArray[Any]) -> None:
        at = self._total % self._size
        upto_end = min(self.num_envs, self._size - at)  # a row may wrap around to the beginning of the ring
        for first, last, place in ((0, upto_end, at), (upto_end, self.num_envs, 0)):
            if first == last:
                continue
            if self._files is None:
                self._frames[place : place + last - first] = pixels[first:last]
                self._steps[place : place + last - first] = cells[first:last]
            else:
                self._files.put(place, pixels[first:last], cells[first:last])
        if self._files is not None:
            # Store the oldest cell that stays complete while the next row is written: a kill meanwhile loses no other row.
            self._files.write_live(self._total + self.num_envs, self._oldest(self._total + self.num_envs))

    def rewind(self, total: int) -> int:
        """Drop the steps appended after `total`, an earlier value of `self.total`; returns the number of dropped steps.

        A resumed run must equal an uninterrupted one: the checkpoint does not know the rows that came after it.
        Rows that the dropped ones had overwritten stay lost. A replay that ends before `total` does not change.
        """
        dropped = max(0, self._total - total)
        if dropped:
            self.wait()
            self._low = min(self._oldest(), total)
            self._total, self._committed = total, min(self._committed, total)
            if self._files is not None:
                # Write the slots before the first new row: an older header would cover rows that do not exist any more.
                # Write both slots: the fallback slot must not cover them either.
                for _ in range(2):
                    self._epoch += 1
                    self._files.write_slot(self._epoch, self._committed, min(self._low, self._committed))
                self._files.write_live(self._total, self._low)
        self._newest = None
        return dropped

    # sampling

    def sample(self, batch_size: int, generator: np.random.Generator) -> Batch:
        """`batch_size` transitions, uniformly with replacement from all complete ones. Raises NothingToSample."""
        cells, boots, returns, discounts = self._draw(batch_size, generator)
        steps = self._steps[cells % self._size]
        index = np.empty((2, batch_size, self.stack), np.int64)
        self._stack_places(index[0], cells, steps)
        self._stack_places(index[1], boots, self._steps[boots % self._size])
        frames = self._buffer(batch_size)
        torch.index_select(self._flat, 0, torch.from_numpy(index.reshape(-1)), out=frames)
        both = frames.view(2, batch_size, self.stack, *self._geometry.frame_shape)
        return Batch(
            obs=both[0], actions=torch.from_numpy(steps["action"].astype(np.int64)),
            returns=torch.from_numpy(returns.astype(np.float32)), next_obs=both[1],
            discounts=torch.from_numpy(discounts.astype(np.float32)),
        )  # fmt: skip

    def _draw(self, count: int, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
        low, population = self._oldest(), len(self)
        parts: list[tuple[NDArray[Any], ...]] = []
        missing = count
        for _ in range(_ROUNDS if population else 0):
            picks = generator.integers(population, size=missing + missing // 8 + 4)
            valid, *columns = self._resolve(low + picks)
            part = tuple(column[valid][:missing] for column in columns)
            parts.append(part)
            missing -= len(part[0])
            if not missing:
                return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
        return self._draw_from_list(count, generator)

    def _draw_from_list(self, count: int, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Like `_draw`, for few or no complete transitions, as right after the start."""
        valid, *columns = self._resolve(np.arange(self._oldest(), self._total))
        found = np.flatnonzero(valid)
        if not len(found):
            raise NothingToSample(f"no whole transition of {self.n_step} steps among {len(self)} stored environment steps")
        chosen = found[generator.integers(len(found), size=count)]
        return tuple(column[chosen] for column in columns)

    def _resolve(self, cells: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """(valid, cells, cells to bootstrap from, returns, discounts) of the transitions that start at these cells."""
        now = self._steps[cells % self._size]
        width = now["width"].astype(np.int64)
        reach = np.minimum(now["age"], self.stack - 1) * width
        running = ((now["flags"] & FAKE) == 0) & (cells - reach >= self._oldest())
        valid, boots, returns, discounts = running.copy(), cells.copy(), np.zeros(len(cells)), np.zeros(len(cells))
        at = cells
        for step in range(self.n_step):
            flags = now["flags"]
            returns += np.where(running, self._powers[step] * now["reward"], 0.0)
            over = running & ((flags & TERMINATED) != 0)
            running &= ~over
            # Any complete observation may stand for the next one of a terminal step: its weight is 0.
            boots[over] = at[over]
            discounts[over] = 0.0
            # The next step: the state to continue from, or to bootstrap from.
            at = at + width
            now = self._steps[np.minimum(at, self._total - 1) % self._size]
            broken = running & ((at >= self._total) | ((now["flags"] & START) != 0) | (now["width"] != width))
            valid &= ~broken
            running &= ~broken
            boots[running] = at[running]
            discounts[running] = self._powers[step + 1]
            running &= (flags & TRUNCATED) == 0
        return valid, cells, boots, returns, discounts

    def _stack_places(self, out: NDArray[Any], cells: NDArray[np.int64], steps: NDArray[Any]) -> None:
        ages, width = steps["age"], steps["width"].astype(np.int64)
        for place in range(self.stack):
            out[:, place] = cells - np.minimum(self.stack - 1 - place, ages) * width
        out %= self._size

    def _buffer(self, batch_size: int) -> torch.Tensor:
        pair = self._buffers.get(batch_size)
        if pair is None:
            shape = (2 * batch_size * self.stack, self._geometry.frame_bytes)
            pair = [torch.empty(shape, dtype=torch.uint8, pin_memory=self._pin) for _ in range(2)]
            self._buffers = {batch_size: pair}  # only one size: a changed batch size frees the old buffers
        pair.reverse()
        return pair[0]

    def _oldest(self, total: int | None = None) -> int:
        """The oldest valid cell. Cells that the next append overwrites are not valid: a kill may tear them."""
        return max(self._low, (self._total if total is None else total) - (self._size - self.num_envs))

    # durability

    def commit(self) -> bool:
        """Make all appended rows survive a power cut, in the background. False: the previous commit is still running.

        Costs the caller about 0.1 ms; the work is proportional to the number of new rows. A failure (EIO, ENOSPC) is
        reported, and the next commit tries again: it never stops the training.
        """
        if self._files is None or self._total == self._committed:
            return True
        if self._commit_thread is not None and self._commit_thread.is_alive():
            return False
        low = self._oldest()
        # List the rows now, while they exist: the ring may wrap around before their CRCs are computed.
        args = (self._files, _rows(self._steps, max(self._committed, low), self._total), self._total, low)
        self._commit_thread = run_in_thread("replay-commit", self._commit, *args)
        return True

    @property
    def committed(self) -> int:
        """Environment steps, as `total` counts them, that are known to survive a power cut."""
        return self._committed

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a running commit; True once none is running."""
        if self._commit_thread is not None:
            self._commit_thread.join(timeout_s)
            return not self._commit_thread.is_alive()
        return True

    def close(self) -> None:
        """Commit the new rows, wait for the commit and close the files."""
        if self._files is not None:
            self.wait()
            self.commit()
            self.wait()
            self._files.close()

    def _commit(self, files: _Files, rows: list[tuple[int, int]], upto: int, low: int) -> None:
        try:
            for piece in _pieces(rows, self._size):
                begun, ended = piece[0][0], piece[-1][0] + piece[-1][1]
                sums = np.zeros(ended - begun, SUM)  # zeros within a row; they overwrite old sums
                for cell, count in piece:
                    crc = files.crc(cell % self._size, count)
                    # The ring may have wrapped around meanwhile: then a later, uncommitted row lies here.
                    whole = self._total + self.num_envs <= cell + self._size
                    sums[cell - begun] = (cell + 1 if whole else 0, crc, count)
                _write_at(files.sums_fd, sums.tobytes(), (begun % self._size) * SUM.itemsize)
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
        self._epoch, committed, committed_low = files.read_slot()
        live = files.read_live()
        if live is not None and live[0] == boot_id:
            self._total, self._low = live[1:]
            self._committed = min(committed, self._total)
            why = "of this boot"
        else:
            self._total = self._committed = committed
            self._low = files.first_trusted(max(committed_low, committed - self._size), committed)
            why = "committed before the reboot"
        self.recovered = f"{len(self)} environment steps {why}" if self._total else "new"
        files.boot_id = boot_id
        files.write_live(self._total, self._oldest())


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
        self._header, self._frames, self._steps, self.sums_fd = (fds[name] for name in _FILES)
        sizes = geometry.sizes
        maps = {name: mmap.mmap(fds[name], sizes[name], prot=mmap.PROT_READ | mmap.PROT_WRITE) for name in _FILES[1:]}
        self.frames = np.frombuffer(maps[FRAMES_FILE], np.uint8).reshape(geometry.cells, -1)
        self.steps = np.frombuffer(maps[STEPS_FILE], STEP)
        self.sums = np.frombuffer(maps[SUMS_FILE], SUM)

    def put(self, place: int, frames: NDArray[np.uint8], cells: NDArray[Any]) -> None:
        _write_at(self._frames, frames.data.cast("B"), place * self._geometry.frame_bytes)
        _write_at(self._steps, cells.tobytes(), place * STEP.itemsize)

    def crc(self, place: int, count: int) -> int:
        upto = place + count
        return zlib.crc32(self.steps[place:upto].tobytes(), zlib.crc32(self.frames[place:upto].reshape(-1).data))

    def sync(self) -> None:
        for fd in (self._frames, self._steps, self.sums_fd):
            os.fdatasync(fd)

    def first_trusted(self, low: int, total: int) -> int:
        """The oldest cell from which on all cells up to `total` match their committed CRCs."""
        trusted = cell = low
        while cell < total:
            place = cell % self._geometry.cells
            serial, crc, count = self.sums[place].item()
            if serial == cell + 1 and 0 < count <= total - cell and self.crc(place, count) == crc:
                cell += count
            else:
                trusted = cell = cell + 1
        return trusted

    def write_slot(self, epoch: int, total: int, low: int) -> None:
        body = _SLOT.pack(epoch, total, low)
        _write_at(self._header, body + _CRC.pack(zlib.crc32(body)), _SLOTS_AT[epoch % 2])
        os.fdatasync(self._header)

    def read_slot(self) -> tuple[int, int, int]:
        """(epoch, total, low) of the newest valid slot; zeros when there is none."""
        found = [(0, 0, 0)]
        for at in _SLOTS_AT:
            body = _checked(os.pread(self._header, _SLOT.size + _CRC.size, at), _SLOT.size)
            if body is not None:
                found.append(_SLOT.unpack(body))
        return max(found)

    def write_live(self, total: int, low: int) -> None:
        body = _LIVE.pack(bytes.fromhex(self.boot_id), total, low)
        _write_at(self._header, body + _CRC.pack(zlib.crc32(body)), _LIVE_AT)

    def read_live(self) -> tuple[str, int, int] | None:
        body = _checked(os.pread(self._header, _LIVE.size + _CRC.size, _LIVE_AT), _LIVE.size)
        if body is None:
            return None
        boot, total, low = _LIVE.unpack(body)
        return boot.hex(), total, low

    def close(self) -> None:
        self._release()


# --- files ---------------------------------------------------------------------------------------------------------------


def _open(stack: contextlib.ExitStack, path: Path, flags: int) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of `data`: pwrite may write only a part, at 2 GB or on a full disk."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], at + done)


def _checked(data: bytes, size: int) -> bytes | None:
    """The body in front of its CRC, or None when it is torn, short or was never written."""
    if len(data) != size + _CRC.size or _CRC.unpack_from(data, size)[0] != zlib.crc32(data[:size]):
        return None
    return data[:size] if any(data[:size]) else None


def _mismatch(directory: Path, geometry: Geometry) -> str | None:
    """None: the files fit. "": there are none. Else a clause that names the mismatch."""
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
    """Create new files, the header last. Their space is reserved, so a disk that fills up later does no harm."""
    for name in _FILES:
        (directory / name).unlink(missing_ok=True)
    _refuse(geometry, shutil.disk_usage(directory).free, f"on the disk of {directory}")
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


def _refuse(geometry: Geometry, free_bytes: int | None, where: str) -> None:
    """Raises ReplayTooLarge. `free_bytes` None: unknown."""
    if free_bytes is None or geometry.size_bytes <= free_bytes * _KEEP_FREE:
        return
    cells, cell_bytes = geometry.cells, (geometry.size_bytes - _HEADER_BYTES) // geometry.cells
    fits = max(0, int(free_bytes * _KEEP_FREE - _HEADER_BYTES) // cell_bytes)
    raise ReplayTooLarge(
        f"a replay of {cells:,} transitions of {geometry.frame_shape[0]}x{geometry.frame_shape[1]} needs "
        f"{geometry.size_bytes / 1e9:.2f} GB but {free_bytes / 1e9:.2f} GB are free {where}: "
        f"set replay_size to {fits:,} or less"
    )


def available_memory_bytes() -> int | None:
    """Memory that this process may still use: MemAvailable, or less if a cgroup limits it. None: unknown."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for limit in memory_limits(Path("/")):
        if limit.used_bytes is not None:
            found.append(limit.limit_bytes - limit.used_bytes + limit.inactive_bytes + limit.active_bytes)
    return min(found) if found else None


def _rows(steps: NDArray[Any], start: int, stop: int) -> list[tuple[int, int]]:
    """(first cell, cells) of each row in [start, stop), by the widths stored in the cells; a row that wraps counts as two.

    `start` may lie within a row whose beginning is overwritten. Then the first piece is the rest of that row: all others
    must be whole rows, because a rewind cuts between two rows.
    """
    size, found = len(steps), []
    if start >= stop:
        return []  # rewound to a moment that the ring does not hold any more: no CRCs to compute
    widths = steps["width"][np.arange(start, stop) % size]
    borders = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), stop - start]
    for begin, end in itertools.pairwise(borders):
        width = max(1, int(widths[begin]))
        cell, count = start + begin, (end - begin) % width or width
        while cell < start + end:
            before_end = min(count, size - cell % size)
            found.append((cell, before_end))
            if before_end < count:
                found.append((cell + before_end, count - before_end))
            cell, count = cell + count, width
    return found


def _pieces(rows: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    """The same rows in pieces that don't wrap and are small enough to let other threads run between them."""
    piece: list[tuple[int, int]] = []
    for cell, count in rows:
        if piece and (cell % size == 0 or cell - piece[0][0] >= _PIECE):
            yield piece
            piece = []
        piece.append((cell, count))
    if piece:
        yield piece
