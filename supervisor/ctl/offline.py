"""Pages of supervisorctl while the daemon is dead: the same pages, made from the files that the daemon left.

Values that only a running daemon knows are unknown. Ages continue from the newest fact. Journals are read, never written.
"""

from __future__ import annotations

import os
from functools import cached_property, lru_cache

from supervisor.ctl import text
from supervisor.ctl.client import DaemonRefused, Unreachable
from supervisor.ctl.locate import settings as find_settings
from supervisor.ctl.locate import state_dir as find_state_dir
from supervisor.ctl.outcome import NOT_RUNNING, Failed, Options
from supervisor.policy.box.wall_clock import is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, NoReturn

    from supervisor.adapters.host.boot import AliveMark
    from supervisor.model.facts import Stamped
    from supervisor.model.memory import Memory
    from supervisor.model.recording import Drawn, Row, Sheet, Track
    from supervisor.model.settings import Paths, Settings
    from supervisor.model.state import Attempt, State
    from supervisor.policy.upkeep.resolution import Held, Tier
    from supervisor.reports.ledger import Ledger
    from supervisor.reports.results_view import NewestResult


def page(options: Options, gone: Unreachable, name: str, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of `reports.pages.PAGES`. Raises DaemonRefused as the daemon would, and Failed if the journal is unreadable."""
    from supervisor.reports.pages import PAGES, BadQuery

    try:
        return PAGES[name].of(DeadDaemon(options, gone), query)
    except BadQuery as bad:
        raise DaemonRefused(422, str(bad)) from bad
    except OSError as error:  # a damaged recording or disk, not a bug
        raise DaemonRefused(503, f"this cannot be read now: {error}") from error


def metrics(options: Options, gone: Unreachable) -> str:
    """The metrics of a dead daemon, as text."""
    from supervisor.reports.exposition import TEXT, encoded
    from supervisor.reports.metrics_view import metrics_view

    return encoded(metrics_view(DeadDaemon(options, gone)), TEXT).decode()


class DeadDaemon:
    """`reports.sources.Sources` of a daemon that does not run: its journal and other files, each read when needed."""

    alive = False
    worst_gap_s = version = release = None

    def __init__(self, options: Options, gone: Unreachable) -> None:
        """Raises Failed if there is no journal, or if the state directory is unknown."""
        found = find_state_dir(options)
        if found is None or not os.path.exists(f"{found}/journal.sqlite"):  # noqa: PTH110  pathlib takes 5 ms to import
            raise Failed(str(gone), NOT_RUNNING) from gone
        self.state_dir, self.wall_s = found, text.wall_s()
        self._options, self._gone = options, gone

    @property
    def paths(self) -> Paths:
        from supervisor.model.settings import Paths

        return Paths(self.state_dir, "")

    @cached_property
    def settings(self) -> Settings | None:
        """The settings, with the file of secrets if this user may read it: else its alert targets would look removed."""
        from dataclasses import replace

        from supervisor import config

        found = find_settings(self._options)
        if found is None:
            return None
        alerts = config.alerts_alone(self._options.config_file, os.environ)
        return replace(found.at(self.state.level), alerts=alerts)

    @property
    def state(self) -> State:
        folded: State = self._of_journal(_folded)
        return folded

    @cached_property
    def memory(self) -> Memory:
        from supervisor.model.memory import Memory

        return Memory()

    @property
    def now_s(self) -> float:
        return _moved_on(self.state.at_s, self.state.wall_s, self.wall_s)

    @property
    def _journal(self) -> list[Stamped]:
        rows: list[Stamped] = self._of_journal(_read)
        return rows

    def _of_journal(self, made: Callable[..., Any]) -> Any:
        path = self.paths.journal
        try:
            return made(path, _version(path), _version(f"{path}-wal"))
        except (OSError, ValueError) as error:
            raise Failed(f"{self._gone}; and the journal cannot be read: {error}", NOT_RUNNING) from error

    def zone(self, wall_s: float) -> tuple[str, float]:
        from supervisor.adapters.host.clock import local_zone

        return local_zone(wall_s)

    def closed(self) -> tuple[Ledger, float]:
        """The ledger up to now. The time since the last sign of life is booked as time without a daemon."""
        from supervisor.reports.ledger import fold_accounts

        ledger, mark = fold_accounts(self._journal), self._mark
        last_s, last_wall_s = ledger.at_s, ledger.wall_s
        if mark is not None and mark.at_s >= last_s:
            last_s, last_wall_s = mark.at_s, mark.wall_s
        return ledger.closed(_moved_on(last_s, last_wall_s, self.wall_s), last_s), self.wall_s

    def facts(self, after_seq: int, kinds: Sequence[str]) -> Iterator[Stamped]:
        from pathlib import Path

        from supervisor.adapters.journal.archive import read_lasting

        return read_lasting(Path(self.paths.journal), iter(self._journal), after_seq, kinds)

    def recorded(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterator[Row]:
        from pathlib import Path

        from supervisor.adapters.recorder import store

        return store.read(Path(self.paths.recording), sheet, tier, since_s, until_s, subjects)

    def recorded_tracks(
        self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]
    ) -> dict[tuple[str, ...], Track]:  # fmt: skip
        from pathlib import Path

        from supervisor.adapters.recorder import store

        return store.tracks(Path(self.paths.recording), sheet, tier, since_s, until_s, subjects)

    def recorded_held(
        self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int
    ) -> list[Held]:  # fmt: skip
        from pathlib import Path

        from supervisor.adapters.recorder import store

        return store.held(Path(self.paths.recording), sheet, since_s, until_s, subjects, enough)

    def recorded_names(self) -> set[str]:
        from pathlib import Path

        from supervisor.adapters.recorder import store

        return store.names(Path(self.paths.recording))

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterator[Drawn]:
        from pathlib import Path

        from supervisor.adapters.recorder import events

        return events.read(Path(self.paths.run_dir(program)), names, since_wall_s, until_wall_s)

    def results(self) -> list[NewestResult]:
        from pathlib import Path

        from supervisor.adapters.process.results_reader import survey

        return survey(Path(self.paths.programs))

    def backups(self) -> list[dict[str, Any]]:
        from supervisor.adapters.backups import shown

        return shown.rows(self._backups)

    def backup_progress(self) -> None:
        return None

    def check_backup(self, name: str) -> str:
        from supervisor.adapters.backups import shown

        return shown.check(self._backups, name)

    @property
    def _backups(self) -> Path:
        from pathlib import Path

        return Path(self.paths.backups)

    def config(self) -> NoReturn:
        """Raises Failed: the settings that were in force are unknown."""
        raise Failed(str(self._gone), NOT_RUNNING) from self._gone

    @property
    def _mark(self) -> AliveMark | None:
        from pathlib import Path

        from supervisor.adapters.host.boot import read_mark

        return read_mark(Path(self.paths.alive))

    def last_sign(self) -> dict[str, Any]:
        """The newer of the alive mark and the last fact. File times are no sign: readers of a journal change them too."""
        mark = self._mark
        known = [wall_s for wall_s in (self.state.wall_s, mark.wall_s if mark is not None else None) if wall_s]
        newest = max(known, default=None)
        told = ""
        if newest is not None:
            ago = text.duration(self.wall_s - newest)
            told = f" (last sign of life {text.when(newest, self.wall_s)}, {ago} ago)"
        return {"last_sign_wall_s": newest, "says": f"daemon is not running{told}; this is what the journal says"}

    def http(self) -> None:
        """The port of a dead daemon is closed."""

    def cgroups(self) -> None:
        return None

    def corrected(self, program: dict[str, Any], attempt: Attempt | None) -> dict[str, Any]:
        """The program's view, compared with its process: no daemon has checked the process since the daemon died."""
        from supervisor.adapters.process.presence import corrected, without_daemon

        return without_daemon(corrected({**program, "uptime_s": None}, attempt, rebooted=self._rebooted))

    @cached_property
    def _rebooted(self) -> bool | None:
        from supervisor.adapters.process.presence import has_rebooted

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
def _read(journal: str, *_: object) -> list[Stamped]:
    """All facts, cached until the files change: one command may need them several times."""
    from supervisor.adapters.journal.sqlite import JournalReader

    with JournalReader(journal) as reader:
        return list(reader.read())


@lru_cache(maxsize=1)
def _folded(journal: str, *versions: object) -> State:
    from supervisor.model.fold import replay

    return replay(_read(journal, *versions))[0]


def sentence(options: Options, gone: Unreachable) -> str:
    """A sentence that the daemon is dead, and since when."""
    return str(DeadDaemon(options, gone).last_sign()["says"])


def test_alerts(options: Options, gone: Unreachable) -> list[dict[str, Any]]:
    """The result of /api/v1/alerts/test. This process sends the alerts, with the configuration as it is now."""
    from supervisor import config
    from supervisor.adapters.alerts.delivery import as_json, deliver_to_all, test_notice

    DeadDaemon(options, gone)
    try:
        rules = config.alerts_alone(options.config_file, os.environ)
    except config.ConfigError as error:
        raise Failed(str(error)) from error
    return [as_json(tried) for tried in deliver_to_all(rules, test_notice(text.wall_s()))]


def log_path(options: Options, gone: Unreachable, name: str | None, channel: str) -> str:
    """Path of a log: the daemon's own if `name` is None. Raises FileNotFoundError if the name is a path."""
    paths = DeadDaemon(options, gone).paths
    if name is None:
        return paths.main_log
    if "/" in name or name.startswith("."):
        raise FileNotFoundError(name)
    return paths.log(name, channel)
