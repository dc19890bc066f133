"""Curves: TensorBoard event files in the run directory's `tensorboard/`, one file per start.

A separate thread writes them through tensorboardX's records: a disk that is slow, full or missing costs points of a curve
and one sentence in the log, never a step of the training. A point is about 20 numbers, twice a minute.

**Resuming.** A file begins with the step at which the run resumed. TensorBoard then discards the points of older files
beyond this step, so that steps which a crash has rolled back do not show twice. Tests beyond this step remain valid and
are not repeated (`evaluate.py`), so their points are written again.

**Settings.** Each file begins with the settings of the training, for the table HPARAMS of TensorBoard: an older file with
them may be deleted.

**Order and size.** TensorBoard reads the files of a directory by name: they are numbered, not named after a clock that may
be wrong after a reboot. Beyond `MOST_BYTES` or `MOST_FILES` the oldest files are deleted. 64 MB are about a month of
points; 4,096 files are about a month of one start every ten minutes.

**Why tensorboardX's lowest layer.** `SummaryWriter`'s thread dies at the first full disk, and its queue then blocks the
training. torch's own writer needs all of TensorBoard, with a dozen dependencies.
"""

from __future__ import annotations

import contextlib
import queue
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS_DIR: Final = "tensorboard"
MOST_BYTES: Final = 64 * 2**20
MOST_FILES: Final = 4096
FILE_BYTES: Final = 4 * 2**20  # then the next file begins, so that deleting the oldest one loses little
_WAITING: Final = 64  # points that may wait for a slow disk; further ones are dropped
_CLOSE_S: Final = 2.0
_RESULTS: Final = ("play/mean_return", "test/return")  # curves whose newest values stand beside the settings
_NAME: Final = re.compile(r"events\.out\.tfevents\.(\d{10})\.extralife")


class Metrics:
    """`offer` adds a point at any time, without waiting; `close` gives the thread a moment to write the rest."""

    def __init__(
        self, run_dir: Path, resumed_step: int, settings: Mapping[str, object] | None = None, *, file_bytes: int = FILE_BYTES
    ) -> None:
        self._directory, self._step, self._file_bytes = run_dir / METRICS_DIR, resumed_step, file_bytes
        self._settings = {
            name: value for name, value in (settings or {}).items() if isinstance(value, (bool, int, float, str))
        }
        self._points: queue.Queue[tuple[int, float, dict[str, float]] | None] = queue.Queue(_WAITING)
        self._file: _File | None = None
        self._error_printed = False
        self._thread = threading.Thread(target=self._write_all, name="metrics", daemon=True)
        self._thread.start()

    def offer(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add a point. Numbers that are unknown or not finite are left out."""
        known = {name: float(value) for name, value in values.items() if value is not None and abs(value) < float("inf")}
        with contextlib.suppress(queue.Full):
            self._points.put_nowait((step, time.time(), known))

    def close(self) -> None:
        """Write the remaining points; wait a few seconds at most."""
        with contextlib.suppress(queue.Full):
            self._points.put(None, timeout=_CLOSE_S)
        self._thread.join(_CLOSE_S)

    # on the thread

    def _write_all(self) -> None:
        try:
            while True:
                point = self._points.get()
                if point is None:
                    break
                try:
                    self._write(*point)
                except OSError as error:
                    outcome = "training continues, and curves are written again once the error is gone"
                    self._lost(f"{error.strerror or error}; {outcome}")
            self._let_go()
        except (ImportError, MemoryError) as error:
            self._lost(f"{error}; training continues without curves")
            while self._points.get() is not None:  # else they would fill the queue, and `close` would wait for room
                pass

    def _write(self, step: int, wall_s: float, values: dict[str, float]) -> None:
        if self._file is None or self._file.size_bytes > self._file_bytes:
            self._let_go()
            self._directory.mkdir(exist_ok=True)
            number = _make_room(self._directory)
            # `_step` is the newest step, so a later file of the same start hides no points of the earlier ones.
            self._file = _File(self._directory / f"events.out.tfevents.{number:010d}.extralife", self._step, self._settings)
        self._step = max(self._step, step)
        self._file.add(step, wall_s, values)
        self._error_printed = False

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _lost(self, why: str) -> None:
        self._let_go()  # the last record may be torn: no other may follow it in that file
        if not self._error_printed:
            self._error_printed = True
            print(f"workers: the curves under {self._directory} were not written: {why}", file=sys.stderr, flush=True)


class _File:
    """One event file. TensorBoard ignores a torn end, so a killed writer leaves nothing to repair."""

    def __init__(self, path: Path, resumed_step: int, settings: Mapping[str, object]) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import RecordWriter
        from tensorboardX.summary import hparams

        self._event: Any = Event
        self._summary: Any = Summary
        self._path = path
        path.touch(exist_ok=False)  # an existing file is an error: RecordWriter would truncate it
        self._writer: Any = RecordWriter(str(path))
        now_s = time.time()
        # TensorBoard discards the points of older files from this step on. The resumed step itself is valid: hence + 1.
        begins = Event(wall_time=now_s, step=resumed_step + 1, session_log=SessionLog(status=SessionLog.START))
        try:
            self._put(Event(wall_time=now_s, file_version="brain.Event:2"))
            self._put(begins)
            for summary in hparams(settings, dict.fromkeys(_RESULTS))[:2]:  # the third says that the training has ended
                self._put(Event(wall_time=now_s, summary=summary))
            self._writer.flush()
        except BaseException:
            with contextlib.suppress(OSError):
                self.close()
            raise

    @property
    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def add(self, step: int, wall_s: float, values: Mapping[str, float]) -> None:
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._put(self._event(wall_time=wall_s, step=step, summary=self._summary(value=points)))
        self._writer.flush()  # it also syncs

    def close(self) -> None:
        self._writer.close()

    def _put(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())


def _make_room(directory: Path) -> int:
    """Delete the oldest files beyond the limits; returns the number of the next file."""
    found = sorted((int(name[1]), path) for path in directory.iterdir() if (name := _NAME.fullmatch(path.name)))
    sizes = {path: path.stat().st_size for _, path in found}
    size_bytes, count = sum(sizes.values()), len(found)
    for _, path in found:
        if size_bytes <= MOST_BYTES and count < MOST_FILES:
            break
        size_bytes, count = size_bytes - sizes[path], count - 1
        path.unlink(missing_ok=True)
    return found[-1][0] + 1 if found else 1
