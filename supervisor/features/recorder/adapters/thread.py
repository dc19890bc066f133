"""The recording thread: writes the readings to the recorder's file every ten seconds, and folds and bounds it once a minute.

It reads the state that the loop has published, as any client does: never the inbox, never a fact. A disk that hangs blocks
only this thread. A failed write is logged once, and the next period tries again. On a full disk one commit in twenty still
finds room, so the failure counts as over only after ten minutes without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.foundations import Remembered, of_path
from supervisor.adapters.threads import Repeated
from supervisor.features.recorder.adapters.store import NotUsable, Recording, remove_leftovers, set_aside
from supervisor.features.recorder.rules.recording import Row
from supervisor.features.recorder.rules.resolution import TIERS, bucket_of
from supervisor.ports import Clock

log = structlog.get_logger()

_OVER_AFTER_S: Final = 600.0
_MIB: Final = 1 << 20


class Recorder(Repeated):
    def __init__(
        self, path: Path, take: Callable[[], Mapping[str, Sequence[Row]]], most_mb: Callable[[], int], clock: Clock
    ) -> None:
        """`take` returns the current readings, `most_mb` the allowed size. This thread calls both."""
        super().__init__("recorder")
        self._path, self._take, self._most_mb, self._clock = path, take, most_mb, clock
        self._directory = Remembered(path.parent)
        self._directory.renew()
        self._recording: Recording | None = None
        self._maintained_s = 0.0
        self._failed_s = -inf

    def stop(self) -> None:
        """Write the current readings and stop."""
        super().stop()
        if not self._thread.is_alive():  # it may hang at its disk
            self._close()
            self._directory.close()

    def record(self) -> None:
        """Write the current readings. Never raises."""
        try:
            # Nothing is created in a state directory that replaced that of the start.
            ours = self._directory()
            if self._most_mb() > 0 and ours is not None and of_path(self._path.parent) == ours:
                self._record(self._clock.now_s())
        except NotUsable as error:
            self._close()
            try:
                log.warning("recording_set_aside", why=str(error), kept_as=str(set_aside(self._path)))
            except OSError as lost:
                log.error("recording_not_set_aside", path=str(self._path), why=str(error), error=str(lost))  # noqa: TRY400
        except Exception as error:  # noqa: BLE001  the next period may succeed; a daemon without curves still trains
            self._close()
            now_s = self._clock.now_s()
            if now_s - self._failed_s > _OVER_AFTER_S:
                log.error("nothing_recorded", path=str(self._path), error=str(error))  # noqa: TRY400  no traceback for a disk
            self._failed_s = now_s

    def _record(self, now_s: float) -> None:
        if self._recording is not None and not self._recording.in_place():
            log.warning("recording_removed", path=str(self._path))
            self._close()
            remove_leftovers(self._path)
        if self._recording is None:
            self._recording = Recording(self._path, now_s=now_s)
        self._recording.add(self._take())
        if bucket_of(now_s, TIERS[1].period_s) != bucket_of(self._maintained_s, TIERS[1].period_s):
            self._recording.fold(now_s)
            self._recording.forget(now_s, self._most_mb() * _MIB)
            self._maintained_s = now_s

    def _close(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    def _turn(self) -> None:
        self._over.wait(TIERS[0].period_s)
        self.record()
