"""Reads live attempts: the beat record, sd_notify messages, growing logs and files, the process state.

A program names its source of progress (`model.settings.Progress`), or leaves it open: then each reading uses the best
source that has data at that moment. Beats are better than notifications. Those are better than the steps in the program's
own output (`adapters/figures`), and those are better than the growth of its log or its files. That output also supplies the
values that a better source lacks. The process state and the process tree (`trees.py`) are read for all programs. If a
reading fails, its field is None: unknown, which is neither zero nor "stalled".

The last beat that could be read stays valid until there is another. If a beat file is removed, replaced or overwritten, its
worker, which still writes into the old one, creates it again within a second (`contract.Client`). Until then, or if it
cannot, the growth of its log and its CPU time replace its beats, with the time limits of programs without beats.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import structlog

from supervisor import lack
from supervisor.adapters import procfs
from supervisor.adapters.figures.thread import FigureReader, FigureReading, began_wall_s
from supervisor.adapters.process import cgroups, endings, growth
from supervisor.adapters.process.health_checks import HealthChecks
from supervisor.adapters.process.notify_sockets import NotifySockets, NotifyState
from supervisor.adapters.process.processes import read_record
from supervisor.adapters.process.trees import Scans, Tree, changed_roots, own_directory
from supervisor.adapters.threads import Rounds, Tasks, note
from supervisor.files import held, open_regular
from supervisor.formats import span
from supervisor.model.inputs import CommandLeft, Report, Sample
from supervisor.model.settings import SILENT, Paths, ProgramSpec, Progress
from supervisor.policy.script.figures import figure_of
from supervisor.ports import Clock, NewestOwn
from workers import contract, daemon_side

log = structlog.get_logger()

_MOST_REPORT_BYTES: Final = 64 * 1024  # per look ...
_MOST_REPORTS: Final = 256  # ... and lines
_MOST_REPORTS_EVER: Final = 1000  # of one attempt, while it runs
_REPORTS_S: Final = 5.0  # between two checks for the first report of a program that may never write one
_LOAD_S: Final = 10.0  # between two readings of a cgroup: the kernel's own averages change that slowly
_LOST_S: Final = 5.0  # a worker's time to create its beat file again
_FIRST_BEAT_S: Final = 10.0  # an adopted worker may have been started a moment ago
_HANG_S: Final = 5.0  # of one program's files
_MOST_NAMED: Final = 5
_FUTURE_S: Final = 1.0  # a time stamp that lies further ahead is from another clock

Reports = tuple[tuple[str, str, Report], ...]


@dataclass(slots=True)
class _Watched:
    spec: ProgramSpec
    attempt: int
    token: str
    pid: int
    start_ticks: int | None
    since_s: float
    reports_file: str
    stat: procfs.StateFile | None
    tree: Tree
    logs: growth.Logs
    adopted: bool = False
    lost_at_s: float | None = None  # since when its beats cannot be read in any way
    beat: contract.Beat | None = None
    grown: growth.Growth = field(default_factory=growth.Growth)
    known: tuple[object, ...] = ()
    sample: Sample | None = None  # computed from `known`
    failed: bool = False
    load: cgroups.Load | None = None
    load_due_s: float = 0.0
    shown: tuple[Sample, Sample] | None = None  # the sample without and with load, tree, health and own checkpoints
    seen: tuple[object, ...] = ()  # the readings in `shown`
    state: str | None = None  # of the process
    notified: NotifyState | None = None
    left: CommandLeft | None = None
    reports_at: int = 0
    reports: int = 0
    reports_due_s: float = 0.0

    @property
    def status(self) -> str:
        return self.notified.status if self.notified is not None else ""


class LocalProbes:
    def __init__(
        self, paths: Paths, clock: Clock, edges: NotifySockets, groups: cgroups.Cgroups = cgroups.NONE,
        own: NewestOwn = lambda *_: None, figures: FigureReader | None = None,
    ) -> None:  # fmt: skip
        """`own` returns the newest known checkpoint that a program has written itself; it never blocks.

        `figures` reads figures from the programs' own output; None: no figures.
        """
        self._groups, self._own, self._figures = groups, own, figures
        self._paths, self._clock, self._edges = paths, clock, edges
        self._guard = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._scans, self._tasks = Scans(), Tasks("files")
        self._rounds: Rounds[Sample] = Rounds("readings", _HANG_S)
        self._hung: frozenset[str] = frozenset()  # programs whose files did not answer the last look
        self._health = HealthChecks(clock)
        self._table: procfs.ProcessTable | None = None

    def watch(self, spec: ProgramSpec, attempt: int, token: str, pid: int, *, adopted: bool = False) -> None:
        """Begin to read an attempt. Call `NotifySockets.expect` before: notifications may arrive before the pid is known.

        `adopted`: an earlier daemon started it, so its beat file must already exist.
        """
        file = None
        with contextlib.suppress(OSError):
            file = procfs.StateFile(pid)
        stat = procfs.read_stat(pid)
        reports = f"{self._paths.attempt_dir(spec.name, attempt, token)}/{contract.REPORTS_FILE}"
        ticks = stat.start_ticks if stat else None
        tree = Tree(pid, ticks, spec.directory or self._paths.run_dir(spec.name), user=spec.user)
        watched = _Watched(
            spec, attempt, token, pid, ticks, self._clock.now_s(), reports, file, tree, growth.Logs(pid), adopted
        )
        self._edges.expect(spec.name, token)
        self._health.watch(spec, token)
        if self._figures is not None and not spec.builtin:
            record = read_record(self._paths.shim_record(spec.name))
            known = record if record and record.token == token else None
            roots = tuple(each for each in (pid, 0 if known is None else known.shim_pid) if each)
            self._figures.watch(spec, token, began_wall_s(ticks), None if known is None else known.logs_from, roots)
        with self._guard:
            self._watched[spec.name] = watched

    def _item(self, program: str, token: str) -> _Watched | None:
        watched = self._watched.get(program)
        return watched if watched is not None and watched.token == token else None

    def forget(self, program: str, token: str) -> None:
        with self._guard:
            if self._item(program, token) is not None:
                del self._watched[program]
        self._health.forget(token)
        if self._figures is not None:
            self._figures.forget(program, token)

    def sample(self) -> dict[str, Sample]:
        with self._guard:
            watched = list(self._watched.values())
        if not watched:
            return {}
        self._look_at_trees(watched)
        found, hung = self._rounds.of({item.spec.name: partial(self._read_safely, item) for item in watched})
        for name in hung | self._hung:
            note(f"readings-{name}", f"its files have not answered for {span(_HANG_S)}" if name in hung else "")
        self._hung = hung
        return {item.spec.name: found.get(item.spec.name, Sample(item.token)) for item in watched}

    def _look_at_trees(self, watched: list[_Watched]) -> None:
        now_s = self._clock.now_s()
        if not self._scans.is_due(now_s):
            if any(item.tree.table is None for item in watched):
                self._look_closely(watched, self._scans.newest(now_s), now_s, set())
            return
        again = {pid for item in watched for pid in item.tree.wants(now_s, item.sample.proc_state if item.sample else None)}
        before = self._table
        try:
            table = self._table = self._scans.newest(now_s, again)
        except OSError as error:
            lack.check(error)
            return  # no /proc: the last readings stay valid
        roots = {pid for item in watched for pid in (item.tree.root, item.tree.worker) if pid is not None}
        changed = set() if table is before else changed_roots(before, table, roots)
        self._look_closely(watched, table, now_s, changed)

    def _look_closely(
        self, watched: list[_Watched], table: procfs.ProcessTable, now_s: float, changed: set[int] | None
    ) -> None:
        """Examine the trees with these roots (None: all trees), and those that are due."""
        directories = Counter(item.spec.directory or self._paths.run_dir(item.spec.name) for item in watched)
        for item in watched:
            spec, tree = item.spec, item.tree
            if changed is not None and not changed & {tree.root, tree.worker} and not tree.is_due(now_s):
                continue
            if tree.table is None:
                record = read_record(self._paths.shim_record(spec.name))
                tree.root = record.shim_pid if record is not None and record.token == item.token else None
                tree.directory = own_directory(tree.directory, directories)
            source = "" if item.sample is None else item.sample.source
            quiet = spec.source(source) in SILENT
            tree.look(table, now_s, leader=spec.progress is Progress.NONE, witnesses=quiet, tasks=self._tasks)

    def doing(self) -> dict[int, tuple[str, int]]:
        with self._guard:
            watched = [item for item in self._watched.values() if item.spec.progress in (Progress.BEAT, Progress.AUTO)]
        found = {}
        for item in watched:
            beat = daemon_side.read_beat(self._paths.beat(item.spec.name, item.attempt))
            if beat is not None and beat.token == item.token:
                found[beat.pid] = (beat.phase.name.lower(), beat.env_steps)
        return found

    def reports(self) -> Reports:
        with self._guard:
            watched = list(self._watched.values())
        return tuple((item.spec.name, item.token, report) for item in watched for report in self._new_reports(item))

    # one attempt

    def _read_safely(self, item: _Watched) -> Sample:
        try:
            return self._with_load(item, self._read(item))
        except Exception as error:  # one program's odd directory must not stop the readings of the others
            if lack.is_lack(error):  # no reading at all: a worker that cannot be looked at is not in trouble
                raise
            if not item.failed:
                log.exception("reading_failed", program=item.spec.name)
            item.failed = True
            return Sample(item.token)

    def _with_load(self, item: _Watched, sample: Sample) -> Sample:
        """Add the readings of the worker's cgroup and tree. If nothing is new, this returns the same object again."""
        now_s, tree = self._clock.now_s(), item.tree
        if now_s >= item.load_due_s:
            item.load_due_s, item.load = now_s + _LOAD_S, self._groups.read(item.token)
        signs_s = tree.witness_at_s if sample.progress_at_s is None else sample.progress_at_s
        own = self._own(item.spec.name, (item.pid, *tree.pids), signs_s)
        health, left, load = self._health.newest(item.token), self._left(item), item.load
        seen = *tree.seen, health, own, left, load
        if not any(seen):
            return sample
        if item.shown is None or item.shown[0] is not sample or seen != item.seen:
            shown = replace(
                sample, pids=tree.pids, halted=tree.halted, untouchable=tree.untouchable, witness_at_s=tree.witness_at_s,
                witness=tree.witness, uses_cuda=tree.uses_cuda, health=health, own=own, left=left,
                pressure=() if load is None else load.pressure,
                memory_bytes=None if load is None else load.memory_bytes,
            )  # fmt: skip
            item.seen, item.shown = seen, (sample, shown)
        return item.shown[1]

    def _read(self, item: _Watched) -> Sample:
        item.state, item.notified = self._state(item), self._edges.state_of(item.spec.name, item.token)
        if item.spec.progress is Progress.BEAT:
            return self._from_beat(item)
        reading = None if self._figures is None else self._figures.newest(item.spec.name, item.token)
        source = self._source(item, reading)
        known = source, item.state, item.notified, item.grown.at_s, reading and (reading.figures, reading.fault)
        if source is not Progress.BEAT and item.sample is not None and known == item.known:
            return item.sample
        made = self._from_beat(item) if source is Progress.BEAT else self._without_beat(item, source, reading)
        if item.spec.progress is Progress.AUTO:
            made = replace(made, source=source.value)
        item.known, item.sample = known, completed(made, item.spec, reading)
        return item.sample

    def _source(self, item: _Watched, reading: FigureReading | None) -> Progress:
        """The best source that has data now. After the first beat, beats stay the source: a missing file is only lost.

        Notifications become the source with the second message that reports progress: many programs send only READY=1.
        Before that, the newest notification counts beside the growth of the log.
        """
        progress = item.spec.progress
        if progress is Progress.AUTO:
            if item.beat is None:
                beat = daemon_side.read_beat(self._paths.beat(item.spec.name, item.attempt))
                item.beat = beat if beat is not None and beat.token == item.token else None
            if item.beat is not None:
                return Progress.BEAT
            if item.notified is not None and item.notified.pings > 1:
                return Progress.NOTIFY
        seen: growth.Seen = {}
        if progress in (Progress.AUTO, Progress.LOG, Progress.FIGURES):
            seen |= self._logs(item)
        if progress is Progress.FILES or (progress is Progress.AUTO and item.spec.progress_glob):
            seen |= growth.files(self._paths, item.spec)
        if progress not in (Progress.NOTIFY, Progress.NONE):
            item.grown.note(seen, self._clock.now_s())
        if progress is not Progress.AUTO:
            return progress
        has_figures = reading is not None and reading.shows_progress(self._clock.now_s())
        return Progress.FIGURES if has_figures else Progress.LOG

    def _without_beat(self, item: _Watched, source: Progress, reading: FigureReading | None) -> Sample:
        """A reading that depends only on the arguments and the growth: equal inputs give an equal reading."""
        if source is Progress.NONE:
            return Sample(item.token, item.state, ready=item.state is not None, status=item.status)
        if source is Progress.NOTIFY:
            return self._from_notified(item)
        moved_at_s, notified = item.grown.at_s, item.notified
        if source is Progress.FIGURES:
            moved_at_s = None if reading is None else reading.figures.moved_at_s
        if item.spec.progress is Progress.AUTO and notified is not None and notified.progress_ns is not None:
            moved_at_s = max(self._clock.from_boot_ns(notified.progress_ns), moved_at_s or 0.0)
        return Sample(
            token=item.token, proc_state=item.state, progress_at_s=moved_at_s,
            phase="training" if moved_at_s is not None else None, ready=moved_at_s is not None,
            steps=notified.steps if notified else None, status=item.status,
        )  # fmt: skip

    def _left(self, item: _Watched) -> CommandLeft | None:
        """The end of the command, while processes that it left behind run on."""
        paths, name, root = self._paths, item.spec.name, item.tree.root
        if item.left is not None or root is None or not item.tree.leader_gone or item.tree.table is None:
            return item.left
        end = endings.read_exit(paths, name, item.attempt, item.token, endings.LEFT_FILE)
        record = read_record(paths.shim_record(name))
        if end is not None and record is not None and record.token == item.token:
            item.left = CommandLeft(
                self._clock.from_boot_ns(end.ended_ns),
                max(0.0, end.ended_ns / 1e9 - record.start_ticks / procfs.TICKS_PER_S),
                tuple(f"{item.tree.table.processes[pid].name}({pid})" for pid in item.tree.pids[:_MOST_NAMED]),
                any(procfs.is_detached(pid, root) for pid in item.tree.pids),
            )
        return item.left

    @staticmethod
    def _state(item: _Watched) -> str | None:
        if item.left is not None:
            return "S"  # its command has left, but its processes run
        if item.stat is not None:
            return item.stat.state()
        stat = procfs.read_stat(item.pid)  # no descriptor was left for it: open the file every time
        return stat.state if stat is not None and stat.start_ticks == item.start_ticks else None

    def beat_defect(self, program: str, token: str) -> str:
        """The defect of an attempt's beat file, as a clause; empty: the file is good, or does not exist yet."""
        item = self._item(program, token)
        if item is None:
            return ""
        late = item.adopted and item.spec.progress is Progress.BEAT and self._clock.now_s() - item.since_s > _FIRST_BEAT_S
        if item.beat is None and not late:
            return ""
        return daemon_side.beat_defect(self._paths.beat(program, item.attempt), token)

    def _newest_beat(self, item: _Watched) -> contract.Beat | None:
        """The newest beat of the attempt, or the one that was read last."""
        beat = daemon_side.read_beat(self._paths.beat(item.spec.name, item.attempt))
        is_its_own = beat is not None and beat.token == item.token
        if is_its_own or not self.beat_defect(item.spec.name, item.token):
            item.lost_at_s = None
        elif item.lost_at_s is None:
            item.lost_at_s = self._clock.now_s()
        return beat if is_its_own else item.beat

    def _from_beat(self, item: _Watched) -> Sample:
        beat = item.beat = self._newest_beat(item)
        if item.lost_at_s is not None and self._clock.now_s() - item.lost_at_s >= _LOST_S:
            # The growth of its log and its CPU time replace its beats.
            stat = procfs.read_stat(item.pid)
            item.grown.note(self._logs(item) | ({} if stat is None else {"cpu": (stat.ticks, 0)}), self._clock.now_s())
            return Sample(
                item.token, item.state, progress_at_s=item.grown.at_s, phase="training", beat_lost=True, status=item.status
            )  # fmt: skip
        if beat is None:
            return Sample(item.token, item.state, status=item.status)
        deadline_s = None
        if beat.phase_deadline_ns != contract.NO_DEADLINE:
            deadline_s = self._clock.from_boot_ns(beat.phase_deadline_ns)
        return beat_sample(beat, item.state, self._stamp, deadline_s, item.status)

    def _stamp(self, at_ns: int) -> float | None:
        """A worker's own time stamp as journal time; None when it never set it, or took it from another clock."""
        if at_ns in {0, contract.UNKNOWN}:
            return None
        at_s = self._clock.from_boot_ns(at_ns)
        return at_s if at_s <= self._clock.now_s() + _FUTURE_S else None

    def _from_notified(self, item: _Watched) -> Sample:
        notified = item.notified
        if notified is None:
            return Sample(item.token, item.state)
        at = self._clock.from_boot_ns
        phase = "leaving" if notified.stopping else "training" if notified.ready else None
        return Sample(
            token=item.token, proc_state=item.state,
            progress_at_s=None if notified.progress_ns is None else at(notified.progress_ns), phase=phase,
            phase_since_s=None if phase is None else item.since_s,
            phase_deadline_s=None if notified.deadline_ns is None else at(notified.deadline_ns), ready=notified.ready,
            steps=notified.steps, ckpt_step=notified.ckpt_step,
            ckpt_at_s=None if notified.ckpt_ns is None else at(notified.ckpt_ns), ckpt_count=notified.ckpt_count,
            status=notified.status,
        )  # fmt: skip

    def _logs(self, item: _Watched) -> growth.Seen:
        if item.grown.seen is None:
            record = read_record(self._paths.shim_record(item.spec.name))
            if record is not None and record.token == item.token:
                item.grown.began(record.logs_from)
        return item.logs.sizes(self._paths, item.spec)

    def log_taken(self, program: str, token: str, channel: str) -> tuple[int, int] | None:
        """Device and inode of an attempt's log that was taken away while its worker writes into it; None: it is in place."""
        item = self._item(program, token)
        return item.logs.own[channel] if item is not None and channel in item.logs.taken else None

    def _new_reports(self, item: _Watched) -> list[Report]:
        if item.reports > _MOST_REPORTS_EVER:  # it writes in a loop: the newest are read when it has ended
            return []
        if item.reports == 0 and item.beat is None and item.spec.progress is not Progress.BEAT:
            now_s = self._clock.now_s()
            if now_s < item.reports_due_s:
                return []
            item.reports_due_s = now_s + _REPORTS_S
        try:
            with held(open_regular(item.reports_file)) as fd:
                data = os.pread(fd, _MOST_REPORT_BYTES, item.reports_at)
        except OSError:
            return []
        if data.count(b"\n") > _MOST_REPORTS:
            data = b"".join(data.splitlines(keepends=True)[:_MOST_REPORTS])
        whole = data.rfind(b"\n") + 1
        if whole == 0 and len(data) == _MOST_REPORT_BYTES:
            whole = len(data)  # a line without end: skipped piece by piece
        item.reports_at += whole
        lines = data[:whole].splitlines()
        item.reports += len(lines)
        return [report for line in lines if (report := endings.parse_report(line)) is not None]


_OWN: Final = tuple(each.name for each in fields(Sample) if each.name in contract.FIGURES)
_TARGETS: Final = {
    contract.TargetKind.NONE: None,
    contract.TargetKind.ENV_STEPS: "env_steps",
    contract.TargetKind.EPISODES: "episodes",
    contract.TargetKind.SECONDS_LEFT: "seconds_left",
}


def beat_sample(
    beat: contract.Beat, state: str | None, at: Callable[[int], float | None], deadline_s: float | None, status: str = ""
) -> Sample:
    """Convert a beat to a sample. `at` converts the worker's time stamps to journal time."""
    figures = contract.known_figures(beat)
    own = {name: figures.pop(name) for name in _OWN if name in figures}
    # Figures with the script's own names. None may stand for a figure of the contract that is not known.
    fit = (name for name in beat.own if figure_of(name) is not None and name not in contract.FIGURES)
    return Sample(
        token=beat.token, proc_state=state, live_at_s=at(beat.live_ns), progress_at_s=at(beat.progress_ns),
        phase=beat.phase.name.lower(), phase_since_s=at(beat.phase_since_ns), phase_deadline_s=deadline_s,
        ready=contract.WorkerPhase.TRAINING <= beat.phase < contract.WorkerPhase.LEAVING,
        steps=figures.pop("env_steps", None), target_kind=_TARGETS[beat.target_kind], ckpt_at_s=at(beat.ckpt_ns),
        ckpt_stall_s=beat.ckpt_stall_us / 1e6 if beat.ckpt_count else None,
        ckpt_write_s=beat.ckpt_write_ms / 1e3 if beat.ckpt_count else None, **own,
        figures={**{name: beat.own[name] for name in islice(fit, contract.MOST_OWN)}, **figures}, status=status,
    )  # fmt: skip


def completed(sample: Sample, spec: ProgramSpec, reading: FigureReading | None) -> Sample:
    """The sample, with figures from the program's own output where no better source has a value."""
    wanted = spec.figures.target_steps
    if wanted is not None and sample.target is None:
        sample = replace(sample, target=wanted, target_kind="env_steps")
    if reading is None:
        return sample
    found = reading.figures
    frames = found.values.get("frames")
    known = {  # by the names of a sample's fields
        "steps": found.steps, "steps_per_s": found.rate, "episodes": found.episodes, "nan_count": found.nan_count,
        "target": found.target, "frames": None if frames is None else int(frames),
    }  # fmt: skip
    gaps: dict[str, Any] = {
        name: value for name, value in known.items() if value is not None and getattr(sample, name) is None
    }
    if "target" in gaps:
        gaps["target_kind"] = "env_steps"
    if "nan_count" in gaps:
        gaps["losses"] = found.losses
    if sample.steps is None:
        gaps |= {"first_steps": found.first_steps, "fall": found.fall}
    own = {name: value for name, value in found.values.items() if name not in _OWN}
    return replace(sample, **gaps, figures={**own, **sample.figures}, unread=reading.fault)
