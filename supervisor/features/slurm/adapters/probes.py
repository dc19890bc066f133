"""Readings of jobs, from the files that their nodes write to the shared file system.

A node's clock is not this host's clock. A node's report holds the node's own clock at the moment of writing, so the age of
each stamp is known exactly. The age is counted from the moment at which this host first saw the report. While reports
arrive, a worker is judged as on one machine. When none has arrived for `FRESH_S`, it is unknown whether the worker, its node
or the file system is slow. The worker's beats then count as lost, and it gets the time limit of a program without beats
(`stall.coarse_floor_s`, ten minutes). Unknown is not stalled.

Time in which this host itself could not read the file system does not count: after a stall of minutes every node has
`FRESH_S` again to write.

A job that waits in the queue has no reading at all: nothing is judged before it begins. While Slurm suspends a job, its
phase is `suspended`. That time counts for none of its time stamps, because its processes and its reports stood still.

The files that a script writes (logs, event files, its own checkpoints) lie on the shared file system. The same readers as on
one machine read them here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from supervisor.adapters.figures.thread import FigureReader, FigureReading
from supervisor.adapters.process import endings, growth
from supervisor.adapters.process.probes import beat_sample, completed
from supervisor.adapters.threads import Thread
from supervisor.features.slurm.adapters import report as reports
from supervisor.features.slurm.adapters.report import NodeReport
from supervisor.formats import span
from supervisor.model.inputs import EvidenceTaken, Report, Sample
from supervisor.model.settings import SILENT, Paths, ProgramSpec, Progress
from supervisor.policy.worker import absence, witness
from supervisor.policy.worker.stall import SUSPENDED
from supervisor.ports import Clock, Inbox, NewestOwn, Probes
from workers import contract, daemon_side

FRESH_S: Final = 15.0
_BLIND_S: Final = 10.0  # of one look, or beyond the pause before it; after a longer time this host itself was delayed
_PERIOD_S: Final = 1.0
_SHARE: Final = 10.0  # looks take at most 1 / _SHARE of the time: a thousand jobs are read less often ...
_MOST_PAUSE_S: Final = 5.0  # ... but often enough for the shortest stall limit, also after one look that hung for minutes
_LITTLE_S: Final = 0.1  # the sampler's period is not exact
_MOST_REPORTS_EVER: Final = 1000

Reports = tuple[tuple[str, str, Report], ...]


@dataclass(slots=True)
class _Watched:
    spec: ProgramSpec
    attempt: int
    token: str
    seen: NodeReport | None = None
    seen_at_s: float = 0.0  # by this host's clock
    beat: contract.Beat | None = None
    grown: growth.Growth = field(default_factory=growth.Growth)
    used: witness.TreeUsage | None = None
    worked_at_s: float | None = None
    works_by: str = ""
    reports: int = 0
    suspended_at_s: float | None = None  # None: it may run
    pauses: tuple[absence.Absence, ...] = ()  # stretches in which it was suspended


class SlurmProbes(Probes):
    def __init__(
        self, paths: Paths, clock: Clock, begun: Callable[[str], bool],
        own: NewestOwn = lambda *_: None, figures: FigureReader | None = None,
        suspended: Callable[[str], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        """`begun`: whether the job of a token has a node. `suspended`: whether the cluster lets none of its processes run.

        `own` and `figures` are the same as for the processes of one machine.
        """
        self._paths, self._clock, self._own, self._figures = paths, clock, own, figures
        self._begun, self._suspended = begun, suspended
        self._guard = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._looked_at_s: float | None = None
        self._due_s = 0.0
        self._looked: frozenset[str] = frozenset()  # tokens of the last look
        self._last: dict[str, Sample] = {}

    def watch(self, spec: ProgramSpec, attempt: int, token: str, pid: int, *, adopted: bool = False) -> None:  # noqa: ARG002
        with self._guard:
            self._watched[spec.name] = _Watched(spec, attempt, token, seen_at_s=self._clock.now_s())

    def forget(self, program: str, token: str) -> None:
        with self._guard:
            found = self._watched.get(program)
            if found is not None and found.token == token:
                del self._watched[program]
        if self._figures is not None:
            self._figures.forget(program, token)

    def doing(self) -> dict[int, tuple[str, int]]:
        """Always empty: no process of a job is on this host."""
        return {}

    def sample(self) -> dict[str, Sample]:
        """One reading of each job that has begun. Reads the shared file system at most once per `_PERIOD_S`."""
        with self._guard:
            watched = list(self._watched.values())
        now_s = self._clock.now_s()
        if now_s < self._due_s and all(each.token in self._looked for each in watched):
            return {each.spec.name: self._last[each.spec.name] for each in watched if each.spec.name in self._last}
        # The pause until `_due_s` is our own choice and hides no report.
        self._excuse(watched, 0.0 if self._looked_at_s is None else now_s - max(self._looked_at_s, self._due_s))
        for each in watched:
            self._look(each)
        self._looked_at_s = self._clock.now_s()
        took_s = self._looked_at_s - now_s
        self._excuse(watched, took_s)
        self._due_s = self._looked_at_s + min(max(_PERIOD_S, _SHARE * took_s), _MOST_PAUSE_S) - _LITTLE_S
        self._looked = frozenset(each.token for each in watched)
        self._last = {each.spec.name: made for each in watched if (made := self._sample(each)) is not None}
        return dict(self._last)

    def _excuse(self, watched: list[_Watched], blind_s: float) -> None:
        """Do not count time in which this host could not read: each node has `FRESH_S` again to write."""
        if blind_s > _BLIND_S:
            now_s = self._clock.now_s()
            for each in watched:
                each.seen_at_s = min(now_s, each.seen_at_s + blind_s)

    def reports(self) -> Reports:
        with self._guard:
            watched = [
                each for each in self._watched.values() if each.reports < _MOST_REPORTS_EVER and each.seen is not None
            ]
        found = []
        for each in watched:
            directory = self._paths.attempt_dir(each.spec.name, each.attempt, each.token)
            all_reports = endings.read_reports(f"{directory}/{contract.REPORTS_FILE}")
            found += [(each.spec.name, each.token, report) for report in all_reports[each.reports :]]
            each.reports = len(all_reports)
        return tuple(found)

    def _look(self, item: _Watched) -> None:
        spec, now_s = item.spec, self._clock.now_s()
        self._note_suspension(item, now_s)
        found = reports.read(self._paths, spec.name, item.attempt, item.token)
        if found is not None and (item.seen is None or found.at_ns != item.seen.at_ns):
            if item.seen is None:
                if spec.progress is not Progress.FILES:
                    item.grown.began(found.logs_from)
                if self._figures is not None and not spec.builtin:
                    self._figures.watch(spec, item.token, found.since_wall_s, found.logs_from)
            item.seen, item.seen_at_s = found, now_s
            beat = daemon_side.read_beat(self._paths.beat(spec.name, item.attempt))
            if beat is not None and beat.token == item.token:
                item.beat = beat
            used = witness.TreeUsage(found.at_ns / 1e9, found.cpu_s, found.io_bytes)
            by = "" if item.used is None else witness.works(item.used, used)
            if by:
                item.worked_at_s, item.works_by = now_s, by
            item.used = used
        if item.seen is not None and spec.progress in (Progress.AUTO, Progress.LOG, Progress.FILES):
            seen = {} if spec.progress is Progress.FILES else growth.logs(self._paths, spec)
            item.grown.note(seen | (growth.files(self._paths, spec) if spec.progress_glob else {}), now_s)

    def _note_suspension(self, item: _Watched, now_s: float) -> None:
        """A suspension counts from the last report on: the queue shows it later. After it, the node may write again."""
        if self._suspended(item.token):
            if item.suspended_at_s is None:
                item.suspended_at_s = item.seen_at_s
        elif item.suspended_at_s is not None:
            item.pauses = absence.remember(item.pauses, (item.suspended_at_s, now_s))
            item.suspended_at_s, item.seen_at_s = None, now_s

    def _sample(self, item: _Watched) -> Sample | None:
        if item.seen is None:
            if not self._begun(item.token):
                return None
            return Sample(item.token, phase=None if item.suspended_at_s is None else SUSPENDED)
        stale = self._clock.now_s() - item.seen_at_s > FRESH_S
        figures = None if self._figures is None else self._figures.newest(item.spec.name, item.token)
        made = completed(self._made(item, item.seen, figures, stale=stale), item.spec, figures)
        if item.suspended_at_s is not None:
            made = replace(made, proc_state=None, phase=SUSPENDED, phase_since_s=item.suspended_at_s, phase_deadline_s=None)
        own = self._own(item.spec.name, (), made.witness_at_s if made.progress_at_s is None else made.progress_at_s)
        return made if own is None else replace(made, own=own)

    def _made(self, item: _Watched, seen: NodeReport, reading: FigureReading | None, *, stale: bool) -> Sample:
        spec, state = item.spec, None if stale else seen.state
        source, left_open = spec.progress, spec.progress is Progress.AUTO
        if item.beat is not None and (left_open or source is Progress.BEAT):
            return self._from_beat(item, seen, item.beat, state, stale=stale)
        if left_open:
            has_figures = reading is not None and reading.shows_progress(self._clock.now_s())
            source = Progress.FIGURES if has_figures else Progress.LOG
        if source is Progress.NONE:
            return Sample(item.token, state, ready=state is not None)
        if source not in SILENT:
            return Sample(item.token, state)
        at_s = item.grown.at_s if source is not Progress.FIGURES else None if reading is None else reading.figures.moved_at_s
        at_s = absence.moved_on_if_known(at_s, item.pauses)
        worked_at_s = absence.moved_on_if_known(item.worked_at_s, item.pauses)
        return Sample(
            token=item.token, proc_state=state, progress_at_s=at_s, phase=None if at_s is None else "training",
            ready=at_s is not None, source=source.value if left_open else "", witness_at_s=worked_at_s,
            witness=item.works_by,
        )  # fmt: skip

    def _from_beat(self, item: _Watched, seen: NodeReport, beat: contract.Beat, state: str | None, *, stale: bool) -> Sample:
        def at(stamp_ns: int) -> float | None:
            """Convert a stamp of the node's clock to journal time."""
            if stamp_ns in {0, contract.UNKNOWN}:
                return None
            return absence.moved_on(item.seen_at_s - max(0.0, (seen.at_ns - stamp_ns) / 1e9), item.pauses)

        deadline_s = None
        if beat.phase_deadline_ns != contract.NO_DEADLINE:
            deadline_s = item.seen_at_s + (beat.phase_deadline_ns - seen.at_ns) / 1e9
        source = Progress.BEAT.value if item.spec.progress is Progress.AUTO else ""
        return replace(beat_sample(beat, state, at, deadline_s), beat_lost=stale, source=source)


class SlurmEvidence:
    """Evidence about a job that makes no progress: its node's last report, and the last lines of its logs."""

    def __init__(self, paths: Paths, attempt_number: Callable[[str], int | None], inbox: Inbox, clock: Clock) -> None:
        self._paths, self._number, self._inbox, self._clock = paths, attempt_number, inbox, clock

    def take(self, program: str, token: str) -> None:
        """Returns at once. Outcome: EvidenceTaken."""
        Thread(f"evidence-{program}", self._take, program, token).start()

    def _take(self, program: str, token: str) -> None:
        number = self._number(token)
        evidence = {"process": f"{program} is gone"}
        if number is not None:
            found = reports.read(self._paths, program, number, token)
            where = "its node has not written anything yet"
            if found is not None:
                age_s = max(0.0, self._clock.wall_s() - found.wall_s)
                where = f"job {found.job} on {found.node}, pid {found.pid}, state {found.state}, reported {span(age_s)} ago"
            logs = endings.logs_of(self._paths, program, number, token)
            lines = endings.last_log_lines(logs, found.logs_from if found is not None else (0, 0))
            evidence = {"process": where, "stdout": "\n".join(lines)}
        self._inbox.post(
            EvidenceTaken(self._clock.now_s(), program, token, {name: text for name, text in evidence.items() if text})
        )
