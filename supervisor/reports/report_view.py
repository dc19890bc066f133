"""The page `report`: training, results, incidents and costs of a window, and the work that remains.

It combines figures of other pages: accounts and bill, programs of `status`, facts, and recorded returns. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, Final

from supervisor.formats import span
from supervisor.model.level_memory import costs
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Settings
from supervisor.model.state import Attempt, Program
from supervisor.policy.level.worth import would_keep
from supervisor.policy.script.finish import BACKGROUND
from supervisor.policy.upkeep.accounting import Account
from supervisor.policy.upkeep.cost import LEAST_S
from supervisor.policy.worker.health import NO_LOSS, OFF_GPU
from supervisor.policy.worker.intervention import SLOW, fruitless
from supervisor.policy.worker.restart import STARTS_BEFORE_ALERT, RestartSettings
from supervisor.policy.worker.stall import NOT_HEALED
from supervisor.reports import climb_view
from supervisor.reports.accounts import AccountSheet, Summary
from supervisor.reports.accounts_view import not_counted, summary_of
from supervisor.reports.added import added
from supervisor.reports.cost_view import Games, at_level, cost_view, games_of, kept_in
from supervisor.reports.incidents import Incident
from supervisor.reports.incidents_view import incidents_view
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import Since
from supervisor.reports.sources import Json, Sources
from supervisor.reports.status_view import status_view, troubles

_BROKEN: Final = {"FATAL": 0, "EXITED": 0, "BACKOFF": 1}  # shown first


def report(sources: Sources, since: Since, until: Since) -> Json:
    """Training, results, incidents and costs of a window, and the work that remains."""
    closed, found, wall_s = summary_of(sources, since, until)
    return report_view(sources, closed, found, wall_s=wall_s)


def report_view(sources: Sources, closed: Ledger, found: Summary, *, wall_s: float) -> Json:
    """The page for the window of `found`. States and remaining work are those of now. None is "not known"."""
    begun_s, end_s = found.since_s, found.until_s
    games, price = games_of(sources)
    bill = cost_view(closed, games, found, wall_s=wall_s, usd_per_hour=price)
    sheets = {sheet.name: sheet for sheet in found.programs}
    status = status_view(sources)
    returns = {name: ends for each in added() for name, ends in each.returns(sources, begun_s, end_s).items()}
    kept = kept_in(closed, games, (begun_s, end_s))
    rows = [_program(view, sheets.get(view["name"]), kept, returns) for view in status["programs"] if not view["service"]]
    if end_s >= closed.at_s:  # the newest return is the one of all pages: recorded ones are means of a stretch
        now = {view["name"]: view["mean_return"] for view in status["programs"]}
        rows = [row | {"last_return": last} if (last := now[row["name"]]) is not None else row for row in rows]
    rows.sort(key=lambda row: (_BROKEN.get(row["phase"], 2), row["name"]))

    def broke(found: Iterable[Incident]) -> list[Json]:
        return incidents_view((each for each in found if begun_s <= each.cause.at_s <= end_s), sources.state.clock_steps)

    return {
        "since_wall_s": bill["since_wall_s"],
        "until_wall_s": bill["until_wall_s"],
        "length_s": end_s - begun_s,
        "programs": rows,
        "broke": sources.incidents(begun_s, end_s, None, broke),
        "reboots": found.slots.reboots,
        "kept_steps": fsum(kept.values()),
        "useful_share": bill["useful_share"],
        "usd": bill["usd"],
        "usd_per_hour": bill["usd_per_hour"],
        "take_overs": bill["take_overs"],
        "levels": would_have(closed, games, climb_view.level(sources)["levels"], end_s - begun_s),
        "next": _next(bill, status),
        "needs": _needs(status, sources),
        **not_counted(closed, closed.counted_s),  # levels are measured over the whole record
    }


def _program(
    view: Json, sheet: AccountSheet | None, kept: Mapping[str, float], returns: Mapping[str, tuple[float, float]]
) -> Json:
    first, last = returns.get(view["name"], (None, None))
    return {
        "name": view["name"],
        "phase": view["phase"],
        "why": view["why"],
        "trained_s": None if sheet is None else sheet.seconds.get(Account.TRAINING, 0.0),
        "kept_steps": kept.get(view["name"], 0.0),
        "lost_steps": None if sheet is None else sheet.lost_steps,
        "lost_unknown": 0 if sheet is None else sheet.lost_unknown,
        "failures": 0 if sheet is None else sheet.failures,
        "first_return": first,
        "last_return": last,
        "best_return": view["best_return"],
        "eta_s": view["eta_s"],
    }


_NEVER: Final = {Phase.FATAL: "was given up", Phase.EXITED: "has ended", Phase.STOPPED: "is stopped"}


def _next(bill: Json, status: Json) -> Json:
    """The time and the cost from now until all programs are done, at the level in force. `but`: those that will not be."""
    line = status["daemon"]["level"]["line"]
    here = next((level for level in bill["levels"] if level["in_force"]), None)
    if here is None:
        here = {"name": None, "days": None, "days_more": None, "usd": None, "why": "no level is in force", "without": {}}
    down = {view["name"]: _NEVER[view["phase"]] for view in status["programs"] if view["phase"] in _NEVER}
    but = {name: why for name, why in down.items() if name in bill["left_out"]} | here["without"]
    found = {key: here[key] for key in ("days", "days_more", "usd", "why")}
    return {**found, "level": here["name"], "line": line, "but": but}


def _needs(status: Json, sources: Sources) -> list[str]:
    """The problems that need a person, one sentence each; usually none.

    They are all conditions that an alert of at least a warning reports, for as long as they last.
    """
    config, programs, deaths = status["daemon"]["config"], sources.state.programs, _window_deaths(sources.settings)
    refused = [] if config is None else [f"the configuration cannot be used: {config['errors'][0]}"]
    given_up = [f"{view['name']} was given up: {view['why']}" for view in status["programs"] if view["phase"] == "FATAL"]
    ended = [f"{view['name']} has ended: {view['why']}" for view in status["programs"] if view["phase"] == "EXITED"]
    slow = [
        f"{view['name']} fails again and again: {view['why']}"
        for view in status["programs"]
        if view["slow_retry"] or (view["phase"] == "BACKOFF" and _dies_on(programs[view["name"]], deaths))
    ]
    ailing = [
        f"{name}: {why}; extralifectl explain {name} shows more"
        for name, program in programs.items()
        if (why := _ailing(program))
    ]
    anew = [
        f"{name} began from nothing, because {why}: if you have a whole copy, stop {name}, put the copy there and start it"
        for name, program in programs.items()
        if (why := _lacks_checkpoint(program))
    ]
    lost = [program for program in programs.values() if program.waits_for_gpu]
    reasons = dict.fromkeys(program.why for program in lost)
    without = [f"{', '.join(each.name for each in lost if each.why == why)}: {why}" for why in reasons]
    stands = [f"{view['name']}: {view['why']}" for view in status["programs"] if _stands(programs[view["name"]].attempt)]
    features = [each for feature in added() for each in feature.needs_you(sources, status["daemon"])]
    box = _of_box(status["daemon"], sources, any(view["trouble"] == "unsaved" for view in status["programs"]))
    of_programs = [*without, *given_up, *ended, *slow, *ailing, *anew, *stands]
    return [*refused, *troubles(status["daemon"]), *box, *of_programs, *features]


def _window_deaths(settings: Settings | None) -> int:
    return (RestartSettings() if settings is None else settings.restart).window_deaths


def _dies_on(program: Program, window_deaths: int) -> bool:
    """Whether it has died, or could not be started, so often that an alert says so although it is tried again at once."""
    return program.deaths.streak >= window_deaths or program.starts.failures >= STARTS_BEFORE_ALERT


def _stands(attempt: Attempt | None) -> bool:
    """Whether a live attempt has a trouble that extralife does not heal."""
    if attempt is None:
        return False
    stands_still = attempt.slow is not None and attempt.slow.step is not None
    unended = attempt.stop is not None and attempt.stop.not_ended
    return bool(attempt.save_error or attempt.stall in NOT_HEALED or stands_still or attempt.rest == BACKGROUND or unended)


def _of_box(daemon: Json, sources: Sources, unsaved: bool) -> list[str]:
    """The problems of the box and of what is kept. `unsaved`: a program names the full disk already."""
    state = sources.state
    full = [veto["why"] for veto in daemon["vetoes"] if veto["rule"] == "disk" and not unsaved]
    waits = any(program.gpu_lost for program in state.programs.values())  # it names the error already
    error = daemon["gpu"]["error"] if state.gpus.most and not waits else None
    return [*full, *([f"the GPUs cannot be read: {error}"] if error else [])]


def _ailing(program: Program) -> str:
    """Why a live attempt needs a person although it trains, as a clause; empty: it does not, or extralife still acts."""
    attempt = program.attempt
    if attempt is None:
        return ""
    if NO_LOSS in attempt.illnesses:
        return "no loss was finite since its start"
    if OFF_GPU in attempt.illnesses:
        return "it uses no GPU, and earlier attempts did"
    slow = attempt.slow
    if slow is not None and slow.anew:
        return slow.words
    unhelped = slow is not None and slow.step is None and fruitless(program.interventions, SLOW)
    return "it is still slow after a restart for it" if unhelped else ""


def _lacks_checkpoint(program: Program) -> str:
    """Why a live attempt began from nothing although there is a checkpoint, as a clause; empty: it did not."""
    if program.attempt is None or program.attempt.from_path != "":
        return ""
    unread = "" if program.attempt.from_sure else "its checkpoints cannot be read"
    return f"{program.suspicion.path} is torn" if program.suspicion.torn else unread


def would_have(closed: Ledger, games: Games, levels: Sequence[Json], length_s: float) -> list[Json]:
    """The steps that each level of the page `level` would have kept in the time of a window. No kept steps: `why` says why.

    Values are measured, or "never measured"; none is scaled from another level. A level that the load rule has reviewed has
    a speed with an error, and reboots that give a lower bound (`policy/level/worth.py`). For a level without a review, such
    as a fixed one, the estimate is its kept steps in all its paid time, reboots included. It has no bound.
    """
    keys = ("name", "in_force", "up_s", "reboots", "mtbf_s", "mtbf_bound_s", "steps_per_min", "speed", "speed_error", "veto")
    return [{key: level[key] for key in keys} | _would_keep(closed, games, level, length_s) for level in levels]


def _would_keep(closed: Ledger, games: Games, level: Mapping[str, Any], length_s: float) -> Json:
    if level["steps_per_min"] is not None and level["up_s"]:
        steps_per_s, error = level["steps_per_min"] / 60.0, level["speed_error"]
        expected, least = would_keep(steps_per_s, error, level["reboots"], level["up_s"], costs(games.state), length_s)
        return {"kept_steps": expected, "kept_steps_least": least, "why": ""}
    paid_s, kept = at_level(closed, games, level["name"], closed.first_s or 0.0, closed.at_s)
    if kept <= 0 or paid_s < LEAST_S:
        short = f"only {span(paid_s)} measured" if 0.0 < paid_s < LEAST_S else "no step was kept there"
        return {"kept_steps": None, "kept_steps_least": None, "why": short if paid_s > 0.0 else "never measured"}
    return {"kept_steps": kept / paid_s * length_s, "kept_steps_least": None, "why": ""}
