"""Collects what is known about an ended attempt: exit record, last log lines, last beat and reports, as one `Ending`.

The files were written by a process that may have died while writing, or by a script that nobody has checked. So sizes are
bounded, torn and foreign content is skipped, and nothing raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from supervisor import as_user
from supervisor.adapters import procfs
from supervisor.adapters.durable import json_of
from supervisor.adapters.host.kernel_log import KernelLog
from supervisor.adapters.process import cgroups
from supervisor.files import read_bounded
from supervisor.model.inputs import Ending, Report
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.worker import no_room, reason_line
from supervisor.policy.worker.no_room import Disk
from supervisor.policy.worker.reason_line import plain_text
from workers import contract, daemon_side
from workers.exit_record import ExitRecord

LEFT_FILE: Final = "left.json"
_LOGS_FILE: Final = "logs.json"
_CHANNELS: Final = ("stdout", "stderr")
MAX_LINES: Final = 20
_TAIL_BYTES: Final = 32 * 1024
_WARNING_BYTES: Final = 1024 * 1024  # it may stand at the beginning of the output
_LINE_CHARS: Final = 400
_JSON_BYTES: Final = 64 * 1024
_REPORTS_BYTES: Final = 512 * 1024
_MAX_REPORTS: Final = 1000
_MAX_LEFTOVERS: Final = 200
_NAME_CHARS: Final = 60
_KERNEL_LOG: Final = KernelLog()


def note_logs(paths: Paths, spec: ProgramSpec, attempt: int, token: str) -> None:
    """Record the log paths, if they are not the usual ones: the configuration may name others at the end. Raises OSError."""
    places = [paths.log_of(spec, channel) for channel in _CHANNELS]
    if places != [paths.log(spec.name, channel) for channel in _CHANNELS]:
        noted = json.dumps([*places, spec.user])
        Path(paths.attempt_dir(spec.name, attempt, token), _LOGS_FILE).write_text(noted, encoding="utf-8")


def logs_of(paths: Paths, program: str, attempt: int, token: str) -> tuple[str, str]:
    """The log paths of standard output and standard error; empty: there is no log."""
    usual = paths.log(program, "stdout"), paths.log(program, "stderr")
    try:
        places = json_of(read_bounded(f"{paths.attempt_dir(program, attempt, token)}/{_LOGS_FILE}", _JSON_BYTES))
    except ValueError:
        return usual
    if not isinstance(places, list) or len(places) not in (len(_CHANNELS), len(_CHANNELS) + 1):
        return usual
    if places[2:]:  # an earlier release noted no user
        as_user.note_logs({str(place): str(places[2]) for place in places[:2] if place}, former=True)
    return str(places[0] or ""), str(places[1] or "")


def last_lines(path: str, from_byte: int = 0) -> tuple[str, ...]:
    """The last lines of a log, unchanged. A line redrawn with carriage returns (a progress bar) has its final form."""
    return _tail(path, from_byte)[-MAX_LINES:]


def last_log_lines(logs: tuple[str, str], from_bytes: tuple[int, int]) -> tuple[str, ...]:
    """The end of both logs, at most `MAX_LINES` lines. The lines of stderr come last and are cut last.

    The line with the reason of the end comes first if it is further up: torchrun writes 40 lines behind it.
    """
    lines = _tail(logs[0], from_bytes[0]) + _tail(logs[1], from_bytes[1])
    reason = reason_line.find(lines)
    at = next(
        (at for at in range(len(lines) - 1, -1, -1) if plain_text(lines[at]).strip().endswith(reason)),
        len(lines),
    )
    end = lines[-MAX_LINES:]
    return end if at >= len(lines) - MAX_LINES else (lines[at], *end[1:])


def last_warning(logs: tuple[str, str], from_bytes: tuple[int, int]) -> str:
    """The last warning in the newest MiB of both logs, without earlier attempts; empty: there is none."""
    lines = [line for path, begin in zip(logs, from_bytes, strict=True) for line in _tail(path, begin, _WARNING_BYTES)]
    return reason_line.warning(lines)


def _tail(path: str, from_byte: int, most_bytes: int = _TAIL_BYTES) -> tuple[str, ...]:
    try:
        with as_user.log_at(path):
            text = read_bounded(path, most_bytes, from_byte, log=True).decode("utf-8", "replace")
    except PermissionError:  # no work can be done as that user
        return ()
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return tuple(line[:_LINE_CHARS] for line in lines if line.strip())


def read_exit(paths: Paths, program: str, attempt: int, token: str, name: str = contract.EXIT_FILE) -> ExitRecord | None:
    """The exit record that this attempt's shim left: in the attempt's directory or, if the disk was full, on tmpfs.

    With the name `LEFT_FILE`: how its command ended, while processes of its tree run on.
    """
    beside = [f"{paths.shim_record(program)}.exit"] if name == contract.EXIT_FILE else []
    for path in (f"{paths.attempt_dir(program, attempt, token)}/{name}", *beside):
        try:
            record = ExitRecord.from_json(read_bounded(path, _JSON_BYTES))
        except ValueError:
            continue
        if record.token == token:
            return record
    return None


def read_reports(path: str) -> tuple[Report, ...]:
    """The worker's reports, oldest first. Lines that are torn or are not reports are skipped; the newest are kept."""
    reports = map(parse_report, read_bounded(path, _REPORTS_BYTES).splitlines())
    return tuple(report for report in reports if report is not None)[-_MAX_REPORTS:]


def parse_report(line: bytes) -> Report | None:
    """One line of the file of reports; None: it is none."""
    try:
        body = json.loads(line, parse_constant=lambda _name: None)  # NaN and Infinity are not known values
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
        return None
    return Report(body.pop("kind"), body)


def read_ending(
    paths: Paths, program: str, attempt: int, token: str, from_bytes: tuple[int, int] = (0, 0),
    journal_s: Callable[[int], float] | None = None,
) -> Ending | None:  # fmt: skip
    """How the attempt ended, or None when there is no exit record: then `without_record` collects the rest.

    `journal_s` converts this boot's CLOCK_BOOTTIME in ns to journal time.
    """
    record = read_exit(paths, program, attempt, token)
    if record is None:
        return None
    leftovers = tuple(name[:_NAME_CHARS] for name in record.leftovers[:_MAX_LEFTOVERS])
    rest = without_record(
        paths, program, attempt, token, from_bytes, journal_s, fate=record.spawn_error or "", leftovers=leftovers
    )
    lines = () if record.spawn_error else rest.last_lines
    confined = cgroups.read_note(paths.attempt_dir(program, attempt, token))
    return replace(
        rest, code=record.code, signal=record.signal, rest=record.rest, last_lines=lines,
        disks=_disks(paths) if no_room.suspected(record.signal, lines) else (),
        max_rss_bytes=record.max_rss_bytes or None, oom_kills=record.oom_kills,
        oom_own=confined is not None and confined.counts_oom,
        memory_max_bytes=None if confined is None else confined.limits.memory_max_bytes,
        oom_line=_KERNEL_LOG.oom_kill_of(record.pid) if record.signal == signal.SIGKILL and not procfs.contained() else "",
        ended_at_s=None if journal_s is None else journal_s(record.ended_ns),
    )  # fmt: skip


def _disks(paths: Paths) -> tuple[Disk, ...]:
    """The file systems that a worker usually writes to."""
    found: dict[int, Disk] = {}
    for place in (no_room.SHARED_MEMORY, paths.state_dir, paths.runtime_dir, tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            sizes = os.statvfs(place)
            has_inodes = bool(sizes.f_favail or not sizes.f_files)
            disk = Disk(place, sizes.f_blocks * sizes.f_frsize, sizes.f_bavail * sizes.f_frsize, has_inodes)
            found.setdefault(Path(place).stat().st_dev, disk)
    return tuple(found.values())


def without_record(
    paths: Paths, program: str, attempt: int, token: str, from_bytes: tuple[int, int] = (0, 0),
    journal_s: Callable[[int], float] | None = None, *, fate: str, leftovers: tuple[str, ...] = (),
) -> Ending:  # fmt: skip
    """The ending of an attempt whose shim could not write a record; `fate` says why."""
    beat, last = daemon_side.read_beat(paths.beat(program, attempt)), dict[str, Any]()
    if beat is not None and beat.token == token:
        last = contract.known_figures(beat)  # zero steps before training mean that the steps are unknown
        if beat.target_kind is not contract.TargetKind.ENV_STEPS:
            last.pop("target", None)
        early = "target" not in last or beat.env_steps < last["target"]
        last["decided"] = early and beat.phase is contract.WorkerPhase.LEAVING  # by itself, as an early stop does
    ckpt_ns = last.get("ckpt_ns")
    return Ending(
        leftovers=leftovers, last_lines=last_log_lines(logs_of(paths, program, attempt, token), from_bytes),
        steps=last.get("env_steps"), mean_return=last.get("mean_return"), ckpt_step=last.get("ckpt_step"),
        ckpt_at_s=None if ckpt_ns is None or journal_s is None else journal_s(ckpt_ns), target=last.get("target"),
        decided=last.get("decided", False),
        reports=read_reports(f"{paths.attempt_dir(program, attempt, token)}/{contract.REPORTS_FILE}"),
        batch_size=last.get("batch_size"), fate=fate,
    )  # fmt: skip
