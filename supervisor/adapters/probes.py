"""Readings of live attempts: the beat record, sd_notify edges, growing logs and files, the process state.

Each program names its source of progress (`core.settings.Progress`); the process state is read for all. A reading that
fails leaves its field None: not known, which is not zero and not "stalled".
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor.adapters import proc
from supervisor.adapters.edges import Edges, Heard
from supervisor.adapters.processes import read_record
from supervisor.core.inputs import Report, Sample
from supervisor.core.settings import Paths, ProgramSpec, Progress
from supervisor.ports import Clock
from workers import contract

_MOST_FILES: Final = 10_000  # of a glob: a directory that holds more is not looked through further
_MOST_REPORT_BYTES: Final = 64 * 1024  # per look

Reports = tuple[tuple[str, str, Report], ...]


@dataclass(slots=True)
class _Watched:
    """One attempt under watch, and what was last seen of it."""

    spec: ProgramSpec
    attempt: int
    token: str
    pid: int
    start_ticks: int | None
    since_s: float
    grown_at_s: float | None = None
    seen: object = None
    reports_at: int = 0
    begun: bool = field(default=False)


class LocalProbes:
    """`ports.Probes` for this machine's workers."""

    def __init__(self, paths: Paths, clock: Clock, edges: Edges) -> None:
        self._paths, self._clock, self._edges = paths, clock, edges
        self._guard = threading.Lock()
        self._watched: dict[str, _Watched] = {}

    def watch(self, spec: ProgramSpec, attempt: int, token: str, pid: int) -> None:
        """Begin to read an attempt; `expect` its edges first (they may come before its pid is known)."""
        stat = proc.read_stat(pid)
        watched = _Watched(spec, attempt, token, pid, stat.start_ticks if stat else None, self._clock.now_s())
        self._edges.expect(spec.name, token)
        with self._guard:
            self._watched[spec.name] = watched

    def forget(self, program: str, token: str) -> None:
        with self._guard:
            watched = self._watched.get(program)
            if watched is not None and watched.token == token:
                del self._watched[program]

    def sample(self) -> dict[str, Sample]:
        """One reading of every watched attempt, by program."""
        with self._guard:
            watched = list(self._watched.values())
        return {item.spec.name: self._read(item) for item in watched}

    def reports(self) -> Reports:
        """What workers have left in their `reports.jsonl` since the last call."""
        with self._guard:
            watched = list(self._watched.values())
        return tuple((item.spec.name, item.token, report) for item in watched for report in self._new_reports(item))

    # one attempt

    def _read(self, item: _Watched) -> Sample:
        stat = proc.read_stat(item.pid)
        if stat is not None and item.start_ticks is not None and stat.start_ticks != item.start_ticks:
            stat = None  # the pid is somebody else's by now
        state = stat.state if stat is not None else None
        heard = self._edges.heard(item.spec.name, item.token)
        match item.spec.progress:
            case Progress.BEAT:
                return self._from_beat(item, state, heard)
            case Progress.NOTIFY:
                return self._from_edges(item, state, heard)
            case Progress.LOG:
                return self._from_growth(item, state, heard, self._logs(item))
            case Progress.FILES:
                return self._from_growth(item, state, heard, self._files(item))
            case Progress.NONE:
                return Sample(item.token, state, ready=True, status=heard.status if heard else "")

    def _from_beat(self, item: _Watched, state: str | None, heard: Heard | None) -> Sample:
        beat = contract.read_beat(self._paths.beat(item.spec.name, item.attempt))
        if beat is None or beat.token != item.token:
            return Sample(item.token, state, status=heard.status if heard else "")
        at = self._clock.from_boot_ns
        known = beat.phase >= contract.Phase.TRAINING or beat.env_steps > 0
        deadline = None if beat.phase_deadline_ns == contract.NO_DEADLINE else at(beat.phase_deadline_ns)
        return Sample(
            token=item.token,
            proc_state=state,
            live_at_s=at(beat.live_ns),
            progress_at_s=at(beat.progress_ns),
            phase=beat.phase.name.lower(),
            phase_since_s=at(beat.phase_since_ns),
            phase_deadline_s=deadline,
            ready=beat.phase >= contract.Phase.TRAINING,
            steps=beat.env_steps if known else None,
            frames=beat.frames if known else None,
            updates=beat.updates if known else None,
            episodes=beat.episodes if known else None,
            nan_count=beat.nan_count,
            target=_whole(beat.target),
            target_kind=_TARGETS[beat.target_kind],
            mean_return=_number(beat.mean_return),
            loss=_number(beat.loss),
            steps_per_s=_number(beat.steps_per_s),
            ckpt_step=_whole(beat.ckpt_step),
            ckpt_at_s=None if beat.ckpt_ns == contract.UNKNOWN else at(beat.ckpt_ns),
            ckpt_stall_s=beat.ckpt_stall_us / 1e6 if beat.ckpt_count else None,
            ckpt_write_s=beat.ckpt_write_ms / 1e3 if beat.ckpt_count else None,
            ckpt_count=beat.ckpt_count,
            num_envs=beat.num_envs or None,
            batch_size=beat.batch_size or None,
            rss_bytes=_whole(beat.rss_bytes),
            cuda_bytes=_whole(beat.cuda_bytes),
            status=heard.status if heard else "",
        )

    def _from_edges(self, item: _Watched, state: str | None, heard: Heard | None) -> Sample:
        if heard is None:
            return Sample(item.token, state)
        at = self._clock.from_boot_ns
        return Sample(
            token=item.token,
            proc_state=state,
            progress_at_s=None if heard.progress_ns is None else at(heard.progress_ns),
            phase="training" if heard.ready else None,
            phase_since_s=item.since_s,
            phase_deadline_s=None if heard.deadline_ns is None else at(heard.deadline_ns),
            ready=heard.ready,
            steps=heard.steps,
            ckpt_step=heard.ckpt_step,
            ckpt_at_s=None if heard.ckpt_ns is None else at(heard.ckpt_ns),
            ckpt_count=heard.ckpt_count,
            status=heard.status,
        )

    def _from_growth(self, item: _Watched, state: str | None, heard: Heard | None, seen: object) -> Sample:
        """Progress is that what is seen changes. The first look only tells what was there before."""
        now_s = self._clock.now_s()
        if not item.begun:
            item.begun, item.seen = True, seen
        elif seen is not None and seen != item.seen:
            item.seen, item.grown_at_s = seen, now_s
        return Sample(
            token=item.token,
            proc_state=state,
            progress_at_s=item.grown_at_s,
            phase="training" if item.grown_at_s is not None else None,
            ready=item.grown_at_s is not None,
            steps=heard.steps if heard else None,
            status=heard.status if heard else "",
        )

    def _logs(self, item: _Watched) -> object:
        name = item.spec.name
        sizes = [_size_and_time(Path(self._paths.log(name, channel))) for channel in ("stdout", "stderr")]
        if not item.begun:
            # What the shim found when it opened the logs: a line printed before our first look is progress too.
            record = read_record(self._paths.shim_record(name))
            if record is not None and record.token == item.token:
                item.begun, item.seen = True, record.logs_from
        return tuple(size[0] if size is not None else 0 for size in sizes)

    def _files(self, item: _Watched) -> object:
        directory = Path(item.spec.directory or self._paths.run_dir(item.spec.name))
        seen = []
        with contextlib.suppress(OSError, ValueError):
            for number, path in enumerate(directory.glob(item.spec.progress_glob or "*")):
                if number >= _MOST_FILES:
                    break
                seen.append((str(path), _size_and_time(path)))
        return tuple(sorted(seen, key=lambda entry: entry[0]))

    def _new_reports(self, item: _Watched) -> list[Report]:
        path = Path(self._paths.attempt_dir(item.spec.name, item.attempt, item.token)) / contract.REPORTS_FILE
        try:
            with path.open("rb") as file:
                file.seek(item.reports_at)
                data = file.read(_MOST_REPORT_BYTES)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        if whole == 0 and len(data) == _MOST_REPORT_BYTES:
            whole = len(data)  # a line without end: passed over piece by piece
        item.reports_at += whole
        return [report for line in data[:whole].splitlines() if (report := _report(line)) is not None]


_TARGETS: Final = {
    contract.TargetKind.NONE: None,
    contract.TargetKind.ENV_STEPS: "env_steps",
    contract.TargetKind.EPISODES: "episodes",
}


def _report(line: bytes) -> Report | None:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
        return None
    return Report(body.pop("kind"), body)


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _whole(value: int) -> int | None:
    return None if value == contract.UNKNOWN else value


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
