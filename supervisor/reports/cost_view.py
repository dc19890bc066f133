"""The page `cost`: the bill of a window as plain JSON values, from the timelines of `reports/ledger.py`.

This module books nothing: seconds come from `accounts`, steps from the ledger's marks, and `policy/upkeep/cost.py` computes
the bill. Used by the daemon's API and by `extralifectl cost` on the journal of a dead daemon. Without a daemon, a game's
target is known only from its command line. None is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from math import fsum

from supervisor.formats import span
from supervisor.model.inputs import Sample
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec, Settings
from supervisor.model.state import Program, State
from supervisor.policy.upkeep import cost as rule
from supervisor.policy.upkeep.accounting import Account
from supervisor.records import Record
from supervisor.reports.accounts import Summary, level_stretches
from supervisor.reports.accounts_view import not_counted, summary_of, take_overs
from supervisor.reports.ledger import JobTime, Ledger, ProgramTimeline, step_at
from supervisor.reports.pages import Since
from supervisor.reports.sources import Json, Sources
from supervisor.reports.view import steps_left
from workers.options import EXTRA_GAMES, FRAMES_PER_STEP, OPTIONS

NO_PRICE = (
    "no price is configured: set usd_per_hour in [cost], or EXTRALIFE_USD_PER_HOUR, "
    "to the price of an hour of this box to see dollars"
)

_WAITS = (Account.WAITING, Account.IDLE)
_Stretch = tuple[float, float]  # from, until


class Games(Record):
    """Data about the programs that is not in the ledger. `samples` are the newest readings of live workers."""

    settings: Settings | None
    state: State
    samples: Mapping[str, Sample] = field(default_factory=dict)


class RemainingWork(Record):
    """The remaining work of one game, in steps or in seconds of training. If both are None, `why` says why it is unknown."""

    name: str
    steps: float | None = None
    seconds: float | None = None
    why: str = ""

    def length_s(self, rate: float | None) -> float | None:
        """Remaining seconds in a slot that makes `rate` kept steps per second; None: unknown."""
        if self.seconds is not None:
            return self.seconds
        return None if self.steps is None or rate is None else self.steps / rate


def games_of(sources: Sources) -> tuple[Games, float | None]:
    """The `Games` of these sources, and the price of an hour in US dollars."""
    settings = sources.settings
    samples = {name: watch.sample for name, watch in sources.memory.watches.items()}
    return Games(settings, sources.state, samples), None if settings is None else settings.cost.usd_per_hour


def cost(sources: Sources, since: Since, until: Since) -> Json:
    closed, found, wall_s = summary_of(sources, since, until)
    games, price = games_of(sources)
    return cost_view(closed, games, found, wall_s=wall_s, usd_per_hour=price)


def cost_view(closed: Ledger, games: Games, found: Summary, *, wall_s: float, usd_per_hour: float | None) -> Json:
    """The bill of a window, the price of a million useful frames, and the time and cost to finish from now on."""
    until_wall_s = wall_s - (closed.at_s - found.until_s)
    begin_s, end_s = found.since_s, found.until_s
    bill = rule.bill(end_s - begin_s, found.slots.seconds, usd_per_hour)
    frames, blind = frames_in(closed, games, begin_s, end_s)
    left, left_out = games_left(games)
    jobs = (games.settings is not None and games.settings.remote) or bool(closed.all_jobs())
    return {
        "since_s": begin_s,
        "until_s": end_s,
        "since_wall_s": until_wall_s - (end_s - begin_s),
        "until_wall_s": until_wall_s,
        "usd_per_hour": usd_per_hour,
        "says": NO_PRICE if usd_per_hour is None else "",
        "wall_hours": bill.wall_hours,
        "slot_hours": bill.slot_hours,
        "usd": bill.usd,
        "useful_share": found.slots.ettr,
        "goodput": found.slots.goodput,
        "take_overs": take_overs(closed, begin_s, end_s, usd_per_hour),
        "causes": [asdict(each) for each in bill.causes],
        "lost_s_unknown": found.slots.lost_s_unknown,
        "useful_frames": frames,
        "frames_unknown": blind,
        "usd_per_million_frames": rule.usd_per_million(bill.usd, frames),
        "left": [asdict(each) for each in left],
        "left_out": left_out,
        "levels": _levels(closed, games, left, found, usd_per_hour),
        **({"jobs": jobs_by_account(closed, begin_s, end_s)} if jobs else {}),
        **not_counted(closed, begin_s),
    }


def jobs_by_account(ledger: Ledger, from_s: float, to_s: float) -> list[Json]:
    """Hours of jobs of a cluster in the window, by account and partition.

    `gpu_hours` covers the jobs whose GPUs are known; None: no such job. `hours_unknown` are the hours of the other jobs.
    """
    sums: dict[tuple[str, str], list[JobTime]] = {}
    for job in ledger.all_jobs():
        cut = job._replace(begin_s=max(job.begin_s, from_s), end_s=min(job.end_s, to_s))
        if cut.begin_s < cut.end_s:
            sums.setdefault((job.account or "default", job.partition), []).append(cut)
    out = []
    for (account, partition), jobs in sorted(sums.items()):
        known = [(job.end_s - job.begin_s) * job.gpus for job in jobs if job.gpus is not None]
        unknown_s = fsum(job.end_s - job.begin_s for job in jobs if job.gpus is None)
        out.append({
            "account": account, "partition": partition, "jobs": len(jobs),
            "hours": fsum(job.end_s - job.begin_s for job in jobs) / 3600.0,
            "gpu_hours": fsum(known) / 3600.0 if known else None, "hours_unknown": unknown_s / 3600.0,
        })  # fmt: skip
    return out


# --- kept steps ----------------------------------------------------------------------------------------------------------


def kept_steps(timeline: ProgramTimeline, from_s: float, to_s: float, now: tuple[float, int] | None = None) -> float:
    """Steps that a program has made in a stretch, without steps that were rolled back; 0 if none is known.

    `now` is the program's present (time, step), if known: its newest mark may be ten minutes old.
    """
    marks = timeline.marks
    if now is not None and (not marks or now[1] >= marks[-1][1]):
        marks = [*marks, now]
    if not marks:
        return 0.0
    return max(0.0, step_at(marks, to_s) - step_at(marks, from_s))


def kept_in(ledger: Ledger, games: Games, *stretches: _Stretch) -> dict[str, float]:
    """The kept steps of every training in these stretches, by name."""
    found: dict[str, float] = {}
    for timeline in ledger.trainings():
        now = _now(ledger, games, timeline)
        kept = fsum(kept_steps(timeline, *stretch, now) for stretch in stretches)
        found[timeline.name] = found.get(timeline.name, 0.0) + kept
    return found


def _now(ledger: Ledger, games: Games, timeline: ProgramTimeline) -> tuple[float, int] | None:
    """The present (time, step) of a program that is still in the config; None: unknown."""
    sample = games.samples.get(timeline.name)
    if sample is None or sample.token != timeline.token or sample.steps is None:
        return None
    return (ledger.at_s, sample.steps) if ledger.timelines.get(timeline.name) is timeline else None


def frames_in(ledger: Ledger, games: Games, from_s: float, to_s: float) -> tuple[float | None, list[str]]:
    """(useful frames of the window, names of programs whose frames are unknown). None: those of all programs are unknown."""
    total, known, blind = 0.0, False, set()
    for timeline in ledger.trainings():
        each = frames_per_step(timeline.name, games)
        if each is None:
            blind.add(timeline.name)
        else:
            known = True
            total += each * kept_steps(timeline, from_s, to_s, _now(ledger, games, timeline))
    return (total if known else None), sorted(blind)


def frames_per_step(name: str, games: Games) -> float | None:
    """Frames per step, by the newest reading, else by the game of a built-in program; None: unknown."""
    sample = games.samples.get(name)
    if sample is not None and sample.frames is not None and sample.steps:
        return sample.frames / sample.steps
    spec = games.settings.program(name) if games.settings is not None else None
    return FRAMES_PER_STEP if spec is not None and spec.builtin and spec.game not in EXTRA_GAMES else None


# --- levels --------------------------------------------------------------------------------------------------------------


def _levels(
    ledger: Ledger, games: Games, left: list[RemainingWork], found: Summary, usd_per_hour: float | None
) -> list[Json]:  # fmt: skip
    """Every level that was in force or is configured, in that order, with its kept steps and the time to finish there."""
    slots = {name: count for _, name, count in ledger.levels}
    slots |= {rung.level.name: rung.level.slots for rung in (() if games.settings is None else games.settings.rungs)}
    specs = () if games.settings is None else games.settings.programs
    kinds = {spec.name: "" if spec.builtin else spec.group or spec.name for spec in specs}
    out = []
    for name, count in slots.items():
        stretches = _stretches(ledger, name, found.since_s, found.until_s)
        paid_s, kept_by = _length_s(stretches), kept_in(ledger, games, *stretches)
        kept = fsum(kept_by.values())
        spent = {program: levels.get(name, {}) for program, levels in found.at_level.items()}
        held_s = {each: fsum(by[account] for account in by if account not in _WAITS) for each, by in spent.items()}
        rates = rule.rates(kept_by, held_s, kinds)
        lengths = {each.name: each.length_s(rates.get(each.name)) for each in left}
        known = [length for length in lengths.values() if length is not None]
        hours = rule.hours_to_finish(known, count) if known or not left else None
        blocks = _cut(stretches, rule.blocks(paid_s))
        spread = rule.spread_of([fsum(kept_in(ledger, games, *block).values()) / _length_s(block) for block in blocks])
        out.append({
            "name": name, "slots": count, "in_force": name == games.state.level, "paid_hours": paid_s / 3600.0,
            "kept_steps": kept, "steps_per_s": rule.rate(kept, paid_s),
            "days": None if hours is None else hours / 24.0,
            "days_more": None if hours is None or spread is None else hours / 24.0 * spread,
            "usd": rule.usd_of(hours, usd_per_hour),
            "why": _why_unknown(rates, kept, paid_s, left) if hours is None else "",
            "without": {each.name: each.why or "it was not measured at this level"
                        for each in left if hours is not None and lengths[each.name] is None},
        })  # fmt: skip
    return out


def _why_unknown(rates: Mapping[str, float], kept: float, paid_s: float, left: list[RemainingWork]) -> str:
    """Why the time until all games are done at a level is unknown."""
    if unknown := [each for each in left if each.steps is None and each.seconds is None]:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return f"{unknown[0].name}{more}: {unknown[0].why}"
    if paid_s < rule.LEAST_S:
        return f"only {span(paid_s)} measured" if paid_s > 0 else "never measured"
    if kept <= 0:
        return "no step was kept there"
    unmeasured = next(each.name for each in left if each.length_s(rates.get(each.name)) is None)
    return f"{unmeasured} was not measured at this level"


def at_level(ledger: Ledger, games: Games, name: str, from_s: float, to_s: float) -> tuple[float, float]:
    """(seconds paid, steps kept) while that level was in force in the window."""
    stretches = _stretches(ledger, name, from_s, to_s)
    return _length_s(stretches), fsum(kept_in(ledger, games, *stretches).values())


def _stretches(ledger: Ledger, name: str, from_s: float, to_s: float) -> list[_Stretch]:
    """The stretches of the window in which a level was in force."""
    cut = ((max(at_s, from_s), min(end_s, to_s)) for at_s, end_s, level, _ in level_stretches(ledger) if level == name)
    return [(begin_s, stop_s) for begin_s, stop_s in cut if begin_s < stop_s]


def _length_s(stretches: list[_Stretch]) -> float:
    return fsum(stop_s - begin_s for begin_s, stop_s in stretches)


def _cut(stretches: list[_Stretch], count: int) -> list[list[_Stretch]]:
    """The same time in `count` blocks of the same length, one after the other."""
    length_s = _length_s(stretches) / (count or 1)
    out: list[list[_Stretch]] = [[] for _ in range(count)]
    passed_s = 0.0
    for begin_s, stop_s in stretches:
        for number, block in enumerate(out):
            from_s = max(begin_s, begin_s + number * length_s - passed_s)
            to_s = min(stop_s, begin_s + (number + 1) * length_s - passed_s)
            if from_s < to_s:
                block.append((from_s, to_s))
        passed_s += stop_s - begin_s
    return out


# --- remaining work --------------------------------------------------------------------------------------------------------


def games_left(games: Games) -> tuple[list[RemainingWork], Json]:
    """(Remaining work of each training, most important first; by name, why the others are left out of the sum)."""
    if games.settings is None:
        return [RemainingWork("all programs", why="the configuration cannot be read")], {}
    trainings = [spec for spec in games.settings.programs if not spec.service]
    if not trainings and games.settings.programs:
        return [RemainingWork("all programs", why="they are services, and none is a training")], {}
    left, left_out = [], {}
    for spec in trainings:
        program = games.state.programs.get(spec.name)
        if program is None:
            left_out[spec.name] = "not in use yet"
        elif program.phase is Phase.DONE:
            left_out[spec.name] = "done"
        elif program.phase in {Phase.STOPPED, Phase.FATAL, Phase.EXITED}:
            left_out[spec.name] = f"{program.phase.value}: {program.why}"
        else:
            left.append(_left(spec, program, games.samples.get(spec.name)))
    if not left and set(left_out.values()) - {"done", "not in use yet"}:
        left.append(RemainingWork("all programs", why="none runs until somebody starts it"))
    return left, left_out


def _left(spec: ProgramSpec, program: Program, sample: Sample | None) -> RemainingWork:
    slow = program.attempt.slow if program.attempt is not None else None
    if slow is not None and slow.step is not None:
        return RemainingWork(spec.name, why=f"it makes no step beyond {slow.step:,}")
    if sample is not None and sample.target is not None:
        if sample.target_kind == "seconds_left":
            return RemainingWork(spec.name, seconds=float(sample.target))
        steps = steps_left(sample)
        return RemainingWork(
            spec.name, steps=steps, why="" if steps is not None else "it has not run long enough to measure"
        )
    flags = {OPTIONS[name].flag: name for name in ("steps", "episodes", "hours")} if spec.builtin else {}
    given = {flags[word]: float(value) for word, value in zip(spec.argv, spec.argv[1:], strict=False) if word in flags}
    if not given:
        return RemainingWork(spec.name, why="it has no target" if spec.builtin else "its target is unknown")
    if set(given) == {"steps"} and (program.steps is not None or program.attempts == 0):
        return RemainingWork(spec.name, steps=max(0.0, given["steps"] - (program.steps or 0)))
    if set(given) == {"steps"}:
        return RemainingWork(spec.name, why="its progress is unknown")
    if set(given) == {"hours"} and program.attempts == 0:
        return RemainingWork(spec.name, seconds=given["hours"] * 3600.0)
    return RemainingWork(spec.name, why=f"its target ({' or '.join(sorted(given))}) is known only once it runs")
