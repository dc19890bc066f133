"""What supervisorctl can say while the daemon is dead: the journal, read-only, folded as the daemon folds it."""

from __future__ import annotations

import os

from supervisor.ctl import text
from supervisor.ctl.client import Unreachable
from supervisor.ctl.locate import settings as find_settings
from supervisor.ctl.locate import state_dir as find_state_dir
from supervisor.ctl.outcome import NOT_RUNNING, Failed, Options
from supervisor.policy.box.wall_clock import is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from supervisor.model.facts import Stamped
    from supervisor.reports.accounts_view import Since
    from supervisor.reports.ledger import Ledger


def sentence(options: Options, gone: Unreachable) -> str:
    """That the daemon is dead, and since when."""
    newest = facts(options, gone, 0, None, 1, "")
    return _sentence(_last_sign(_state_dir(options, gone), newest[-1]["wall_s"] if newest else None))


def _sentence(last_sign_wall_s: float | None) -> str:
    if last_sign_wall_s is None:
        return "daemon is not running; this is what the journal says"
    now_s = text.wall_s()
    ago = text.duration(now_s - last_sign_wall_s)
    return (
        f"daemon is not running (last sign of life {text.when(last_sign_wall_s, now_s)}, {ago} ago); "
        "this is what the journal says"
    )


def status(options: Options, gone: Unreachable) -> dict[str, Any]:
    """The shape of /api/v1/status. What only a live daemon knows is unknown; ages go on from the last fact."""
    from supervisor.adapters.journal.sqlite import JournalReader
    from supervisor.adapters.process.presence import corrected, has_rebooted
    from supervisor.model.state import replay
    from supervisor.reports.climb_view import climb_view, in_force
    from supervisor.reports.view import box_view, program_views

    state_dir = _state_dir(options, gone)
    with _readable(gone), JournalReader(f"{state_dir}/journal.sqlite") as journal:
        state, _ = replay(journal.read())
    settings = find_settings(options)
    if settings is not None:
        settings = settings.at(state.level)
    wall_s = text.wall_s()
    now_s = _moved_on(state.at_s, state.wall_s, wall_s)
    level = settings.level if settings is not None else None
    box = box_view(state, level, now_s=now_s, boot_at_s=None)
    box["level"] |= in_force(climb_view(state, settings, now_s=now_s))
    last_sign_wall_s = _last_sign(state_dir, state.wall_s)
    daemon = {**box, "state": "dead", "pid": None, "version": None, "state_dir": state_dir, "uptime_s": None}
    daemon |= {"last_sign_wall_s": last_sign_wall_s, "says": _sentence(last_sign_wall_s)}
    daemon["usd_per_hour"] = settings.cost.usd_per_hour if settings is not None else None
    rebooted = has_rebooted(state, state_dir, os.environ)
    views = [
        corrected({**view, "uptime_s": None}, state.programs[view["name"]].attempt, rebooted=rebooted)
        for view in program_views(state, {}, settings, now_s=now_s)
    ]
    return {"daemon": daemon, "programs": views, "now_s": now_s, "wall_s": wall_s, "worst_gap_s": None}


def _moved_on(at_s: float, then_wall_s: float, now_wall_s: float) -> float:
    """Journal time by the wall clock alone. Between a clock that was not set and one that is lie decades: no time passes."""
    if not (is_set(then_wall_s) and is_set(now_wall_s)):
        return at_s
    return at_s + max(0.0, now_wall_s - then_wall_s)


def level(options: Options, gone: Unreachable) -> dict[str, Any]:
    """The shape of /api/v1/level."""
    from supervisor.adapters.journal.sqlite import JournalReader
    from supervisor.model.state import replay
    from supervisor.reports.climb_view import climb_view

    with _readable(gone), JournalReader(f"{_state_dir(options, gone)}/journal.sqlite") as journal:
        state, _ = replay(journal.read())
    now_s = _moved_on(state.at_s, state.wall_s, text.wall_s())
    return climb_view(state, find_settings(options), now_s=now_s)


def alerts(options: Options, gone: Unreachable) -> dict[str, Any]:
    """The shape of /api/v1/alerts."""
    from dataclasses import replace

    from supervisor import config
    from supervisor.adapters.journal.sqlite import JournalReader
    from supervisor.model.state import replay
    from supervisor.reports.alerts_view import alerts_view

    with _readable(gone), JournalReader(f"{_state_dir(options, gone)}/journal.sqlite") as journal:
        state, _ = replay(journal.read())
    now_s = _moved_on(state.at_s, state.wall_s, text.wall_s())
    settings = find_settings(options)
    if settings is not None:  # with the file of secrets, where we may read it: else its targets would look removed
        settings = replace(settings, alerts=config.alerts_alone(options.config_file, os.environ))
    return alerts_view(state, settings, None, now_s=now_s)


def test_alerts(options: Options, gone: Unreachable) -> list[dict[str, Any]]:
    """The outcome of /api/v1/alerts/test, from this process and by the configuration as it is now."""
    from supervisor import config
    from supervisor.adapters.alerts.delivery import as_json, deliver_to_all, test_notice

    _state_dir(options, gone)
    try:
        rules = config.alerts_alone(options.config_file, os.environ)
    except config.ConfigError as error:
        raise Failed(str(error)) from error
    return [as_json(tried) for tried in deliver_to_all(rules, test_notice(text.wall_s()))]


def facts(
    options: Options, gone: Unreachable, after: int, program: str | None, last: int | None, kinds: str
) -> list[dict[str, Any]]:
    """The rows of /api/v1/facts."""
    from pathlib import Path

    from supervisor.adapters.journal.archive import read_lasting
    from supervisor.adapters.journal.sqlite import JournalReader
    from supervisor.api.rows import select
    from supervisor.model.state import replay

    limit, wanted = 2**62 if last is None else -last, [kind for kind in kinds.split(",") if kind]
    path = Path(_state_dir(options, gone), "journal.sqlite")
    with _readable(gone), JournalReader(path) as journal:
        rows = list(journal.read())
        state, _ = replay(rows)
        newer = read_lasting(path, iter(rows), after, wanted)
        return select(newer, program, limit, wanted, state.clock_steps)


def accounts(options: Options, gone: Unreachable, since: str) -> dict[str, Any]:
    """The shape of /api/v1/accounts. Since the last sign of life nobody has looked: that time is the daemon's."""
    from supervisor.reports.accounts_view import accounts_view

    closed, asked, wall_s, _ = _books(options, gone, since)
    return accounts_view(closed, asked, wall_s=wall_s)


def cost(options: Options, gone: Unreachable, since: str) -> dict[str, Any]:
    """The shape of /api/v1/cost."""
    from supervisor.model.state import replay
    from supervisor.reports.cost_view import Games, cost_view

    closed, asked, wall_s, known = _books(options, gone, since)
    settings = find_settings(options)
    games = Games(settings, replay(known)[0])
    price = None if settings is None else settings.cost.usd_per_hour
    return cost_view(closed, games, asked, wall_s=wall_s, usd_per_hour=price)


def backups(options: Options, gone: Unreachable) -> dict[str, Any]:
    """The shape of /api/v1/backups: what lies on disk; a dead daemon makes none."""
    from supervisor.adapters.backups.shown import backups_view
    from supervisor.model.backup_record import BackupRecord

    return backups_view(_backups(options, gone), BackupRecord(), None)


def check_backup(options: Options, gone: Unreachable, name: str) -> dict[str, Any]:
    """The shape of /api/v1/backups?check=NAME."""
    from supervisor.adapters.backups.shown import check_view

    return check_view(_backups(options, gone), name)


def _backups(options: Options, gone: Unreachable) -> Path:
    from pathlib import Path

    from supervisor.model.settings import Paths

    return Path(Paths(_state_dir(options, gone), "").backups)


def _books(options: Options, gone: Unreachable, since: str) -> tuple[Ledger, Since, float, list[Stamped]]:
    """(the ledger up to now, from when on, the time of day, the facts that it was made of)."""
    from pathlib import Path

    from supervisor.adapters.host.boot import read_mark
    from supervisor.adapters.journal.sqlite import JournalReader
    from supervisor.model.settings import Paths
    from supervisor.reports.accounts_view import Since
    from supervisor.reports.ledger import fold_accounts

    state_dir = _state_dir(options, gone)
    with _readable(gone), JournalReader(f"{state_dir}/journal.sqlite") as journal:
        known = list(journal.read())
    ledger = fold_accounts(known)
    mark = read_mark(Path(Paths(state_dir, "").alive))
    wall_s = text.wall_s()
    last_s, last_wall_s = (ledger.at_s, ledger.wall_s) if mark is None else (mark.at_s, mark.wall_s)
    if last_s < ledger.at_s:
        last_s, last_wall_s = ledger.at_s, ledger.wall_s
    now_s = _moved_on(last_s, last_wall_s, wall_s)
    asked = Since(
        ago_s=float(since[:-1]) if since.endswith("s") else None,
        wall_s=float(since[1:]) if since.startswith("@") else None,
        boot=since == "boot",
    )
    return ledger.closed(now_s, last_s), asked, wall_s, known


def results(options: Options, gone: Unreachable) -> dict[str, Any]:
    """The shape of /api/v1/results: the files of the runs say it themselves."""
    from pathlib import Path

    from supervisor.adapters.process.tested import survey
    from supervisor.model.settings import Paths
    from supervisor.reports.results_view import results_view

    return results_view(survey(Path(Paths(_state_dir(options, gone), "").programs)))


def log_path(options: Options, gone: Unreachable, name: str | None, channel: str) -> str:
    """Where a log lies: the daemon's own when `name` is None. A name that is a path names nobody's log."""
    from supervisor.model.settings import Paths

    paths = Paths(_state_dir(options, gone), "")
    if name is None:
        return paths.main_log
    if "/" in name or name.startswith("."):
        raise FileNotFoundError(name)
    return paths.log(name, channel)


def _state_dir(options: Options, gone: Unreachable) -> str:
    found = find_state_dir(options)
    if found is None or not os.path.exists(f"{found}/journal.sqlite"):  # noqa: PTH110  pathlib takes 5 ms to import
        raise Failed(str(gone), NOT_RUNNING) from gone
    return found


def _last_sign(state_dir: str, journal_wall_s: float | None) -> float | None:
    """The newest of the alive mark and the last fact. File times will not do: readers of a journal touch files too."""
    from pathlib import Path

    from supervisor.adapters.host.boot import read_mark
    from supervisor.model.settings import Paths

    mark = read_mark(Path(Paths(state_dir, "").alive))
    found = [wall_s for wall_s in (journal_wall_s, mark.wall_s if mark is not None else None) if wall_s]
    return max(found, default=None)


class _readable:  # noqa: N801  reads as a statement: `with _readable(gone)`
    """A journal that cannot be read is one sentence, not a traceback."""

    def __init__(self, gone: Unreachable) -> None:
        self._gone = gone

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError | ValueError):
            raise Failed(f"{self._gone}; and the journal cannot be read: {error}", NOT_RUNNING) from error
