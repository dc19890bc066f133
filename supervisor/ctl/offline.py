"""Pages of extralifectl while the daemon is dead: the same pages, made from the files that the daemon left.

Values that only a running daemon knows are unknown. Ages continue from the newest fact. Journals are read, never written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn

from supervisor.adapters import singleton
from supervisor.adapters.host.boot import AliveMark, read_mark
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.adapters.presence import corrected, has_rebooted, without_daemon
from supervisor.adapters.state_files import StateFiles
from supervisor.adapters.summaries import Summaries
from supervisor.ctl import text
from supervisor.ctl.locate import settings as find_settings
from supervisor.ctl.outcome import NOT_RUNNING, DaemonRefused, Failed, Options, Unreachable
from supervisor.model.fold import replay
from supervisor.model.memory import Memory
from supervisor.model.settings import Paths, Settings
from supervisor.model.state import Attempt, State
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import BadQuery, pages
from supervisor.wall_clock import is_set


class DeadDaemon(StateFiles):
    """`reports.sources.Sources` of a daemon that does not run: its journal and other files, each read when needed."""

    alive = False
    worst_gap_s = version = release = None

    def __init__(self, options: Options, state_dir: str, gone: Unreachable) -> None:
        super().__init__(paths := Paths(state_dir, ""), Summaries(paths.journal, writes=False))
        self.state_dir, self.wall_s = state_dir, text.wall_s()
        self._options, self._gone = options, gone

    def page(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of `reports.pages`. Raises DaemonRefused as the daemon would, and Failed if the journal is unreadable."""
        try:
            return pages()[name].of(self, query)
        except BadQuery as bad:
            raise DaemonRefused(422, str(bad)) from bad
        except OSError as error:  # a damaged recording or disk, not a bug
            raise DaemonRefused(503, f"this cannot be read now: {error}") from error

    def log_path(self, name: str | None, channel: str) -> str:
        """Path of a log: the daemon's own if `name` is None. Raises FileNotFoundError if the name is a path."""
        if name is None:
            return self.paths.main_log
        if "/" in name or name.startswith("."):
            raise FileNotFoundError(name)
        return self.paths.log(name, channel)

    @cached_property
    def settings(self) -> Settings | None:
        """The settings, with those of the files of secrets if this user may read them: else targets would look removed."""
        found = find_settings(self._options, secrets=True) or find_settings(self._options)
        return None if found is None else found.at(self.state.level)

    @property
    def state(self) -> State:
        path = self.paths.journal
        with self.readable():
            return _folded(path, _version(path), _version(f"{path}-wal"))

    @cached_property
    def memory(self) -> Memory:
        return Memory()

    @property
    def now_s(self) -> float:
        return _moved_on(self.state.at_s, self.state.wall_s, self.wall_s)

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Raises Failed if the journal cannot be read."""
        try:
            yield
        except BadQuery:
            raise
        except (OSError, ValueError) as error:
            raise Failed(f"{self._gone}; and the journal cannot be read: {error}", NOT_RUNNING) from error

    def up_to_now(self, ledger: Ledger) -> tuple[Ledger, float]:
        """The time since the last sign of life is booked as time without a daemon."""
        last_s, last_wall_s, mark = ledger.at_s, ledger.wall_s, self._mark
        if mark is not None and mark.at_s >= last_s:
            last_s, last_wall_s = mark.at_s, mark.wall_s
        return ledger.closed(_moved_on(last_s, last_wall_s, self.wall_s), last_s), self.wall_s

    def backup_progress(self) -> None:
        return None

    def config(self) -> NoReturn:
        """Raises Failed: the settings that were in force are unknown."""
        raise Failed(str(self._gone), NOT_RUNNING) from self._gone

    @property
    def _mark(self) -> AliveMark | None:
        return read_mark(Path(self.paths.alive))

    def last_sign(self) -> dict[str, Any]:
        """The newer of the alive mark and the last fact. File times are no sign: readers of a journal change them too."""
        mark = self._mark
        known = [wall_s for wall_s in (self.state.wall_s, mark.wall_s if mark is not None else None) if wall_s]
        newest = max(known, default=None)
        last_sign = ""
        if newest is not None:
            ago = text.duration(self.wall_s - newest)
            last_sign = f" (last sign of life {text.when(newest, self.wall_s)}, {ago} ago)"
        state = f"is not running{last_sign}"
        if pid := singleton.owner(self.state_dir):
            state = f"runs as pid {pid} and cannot be reached ({self._gone}); kill -HUP {pid} makes its socket again"
        return {"last_sign_wall_s": newest, "says": f"daemon {state}; this is what the journal says"}

    def http(self) -> None:
        """The port of a dead daemon is closed."""

    def cgroups(self) -> None:
        return None

    def corrected(self, program: dict[str, Any], attempt: Attempt | None) -> dict[str, Any]:
        """The program's view, compared with its process: no daemon has checked the process since the daemon died."""
        return without_daemon(corrected({**program, "uptime_s": None}, attempt, rebooted=self._rebooted))

    @cached_property
    def _rebooted(self) -> bool | None:
        return has_rebooted(self.state, self.state_dir, os.environ)


def _moved_on(at_s: float, then_wall_s: float, now_wall_s: float) -> float:
    """Journal time, advanced by the wall clock, unless a reading came from an unset clock: that would add decades."""
    if not (is_set(then_wall_s) and is_set(now_wall_s)):
        return at_s
    return at_s + max(0.0, now_wall_s - then_wall_s)


def _version(path: str) -> tuple[int, int] | None:
    """A value that changes whenever the file changes; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116  pathlib takes 5 ms to import
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=1)
def _folded(journal: str, *_: object) -> State:
    """The state, cached until the files change: one command may need it several times."""
    with JournalReader(journal) as reader:
        return replay(reader.since_snapshot())[0]
