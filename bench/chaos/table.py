"""The table of faults: for each its target, the expected report, and the time limit of the report in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import faults
from chaos.faults import Scene
from chaos.reports import View
from supervisor.policy.worker.absence import TOLD_AGAIN_S
from workers import daemon_side

Expected = Callable[[View], "str | None"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. `subject`: program (a game), script, daemon or box.

    `reported` finds the expected report among all reports since the injection.

    None: no report is due. `smoke`: quick and stable enough for the ordinary tests. `ends_daemon`: it may end the daemon.
    """

    name: str
    run: Callable[[Scene], None]
    subject: str
    report: str
    reported: Expected | None
    within_s: float = 30.0
    smoke: bool = False
    weight: int = 2
    ends_daemon: bool = False

    @property
    def does(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0] if self.run.__doc__ else ""


def _of_program(kind: str, **fields: Any) -> Expected:
    return lambda view: view.fact(kind, **fields)


def _of_box(kind: str, **fields: Any) -> Expected:
    return lambda view: view.fact(kind, of_program=False, **fields)


def _answer(pattern: str) -> Expected:
    return lambda view: view.answered(pattern)


def _in_status(pattern: str) -> Expected:
    """History records the same problem once in ten minutes; `status` shows it every time."""
    return lambda view: view.shown(pattern)


def _anywhere(pattern: str) -> Expected:
    return lambda view: view.anywhere(pattern)


def _first(*expected: Expected) -> Expected:
    return lambda view: next((found for each in expected if (found := each(view)) is not None), None)


def _taken_away(where: Callable[[View], Path]) -> Expected:
    """Reported as lost, or restored."""

    def reported(view: View) -> str | None:
        path = where(view)
        found = view.fact("FoundationLost", of_program=False, path=str(path))
        return f"restored: {path.name}" if found is None and path.exists() else found

    return reported


def _is_a_file_again(view: View) -> str | None:
    """The daemon's own file is a file again, or what stands in its place was reported."""
    path = view.world.state / view.answers[0]
    found = view.fact("FoundationLost", of_program=False, path=str(path))
    return f"restored: {path.name}" if found is None and path.is_file() and not path.is_symlink() else found


def _beats_again(view: View) -> str | None:
    """A worker's beat record is readable again, or its loss was reported."""
    paths = (view.world.runtime / "beats").glob(f"{view.program}.*.beat")
    if any(daemon_side.read_beat(path) for path in paths):
        return "restored: its beat"
    return view.fact("FoundationLost", of_program=False, why="beat")


def _suspended_before(view: View) -> str | None:
    """After an absence, the next one is recorded only after a quiet minute."""
    since_s = time.monotonic() - TOLD_AGAIN_S - 20.0
    recent = [row for row in view.reports.rows if row["kind"] == "DaemonSuspended" and row["received_s"] > since_s]
    return f"less than a minute after {recent[-1]['why']}" if recent else None


_JOURNAL = _of_box("JournalSalvaged")
_RESTORED = "FoundationLost, or restored"
_SOON_S = 10.0  # a removed file must be restored or reported within this time

FAULTS: tuple[Fault, ...] = (
    Fault(
        "worker-killed",
        faults.worker_killed,
        "program",
        "Exited: killed",
        _of_program("Exited", cause="killed", signal=9),
        smoke=True,
        weight=4,
    ),
    Fault(
        "worker-terminated",
        faults.worker_terminated,
        "program",
        "Exited: left",
        _of_program("Exited", cause="left", code=75),
        smoke=True,
    ),
    Fault(
        "worker-stopped",
        faults.worker_stopped,
        "program",
        "Stalled: stopped",
        _of_program("Stalled", stall="stopped"),
        smoke=True,
    ),
    Fault(
        "worker-segfaults",
        faults.worker_segfaults,
        "program",
        "Exited: crash by SIGSEGV",
        _of_program("Exited", cause="crash", signal=11),
        smoke=True,
    ),
    Fault("worker-hangs", faults.worker_hangs, "program", "Stalled: hang", _of_program("Stalled", stall="hang")),
    Fault("worker-holds-gil", faults.worker_holds_gil, "program", "Stalled: gil", _of_program("Stalled", stall="gil")),
    Fault(
        "worker-exits",
        faults.worker_exits,
        "program",
        "Exited: crash with 3",
        _of_program("Exited", cause="crash", code=3),
        smoke=True,
    ),
    Fault(
        "worker-out-of-memory",
        faults.worker_out_of_memory,
        "program",
        "Exited: out_of_memory",
        _of_program("Exited", cause="out_of_memory"),
        weight=1,
    ),
    Fault(
        "worker-leaves-children",
        faults.worker_leaves_children,
        "program",
        "Exited: killed, 1 leftover process",
        _of_program("Exited", why="leftover"),
    ),
    Fault(
        "shim-killed",
        faults.shim_killed,
        "program",
        "Exited: its shim was killed",
        _of_program("Exited", why="shim"),
        smoke=True,
    ),
    Fault(
        "save-fails",
        faults.save_fails,
        "program",
        "CheckpointFailed, or Exited: File too large",
        _first(_of_program("CheckpointFailed"), _of_program("Exited", why="File too large")),
        within_s=15.0,
    ),
    Fault(
        "checkpoint-flipped",
        faults.checkpoint_flipped,
        "program",
        "CheckpointBad: digest",
        _of_program("CheckpointBad", why="digest"),
        smoke=True,
    ),
    Fault(
        "checkpoint-cut",
        faults.checkpoint_cut,
        "program",
        "CheckpointBad: size",
        _of_program("CheckpointBad", why="bytes, expected"),
    ),
    Fault(
        "checkpoint-emptied",
        faults.checkpoint_emptied,
        "program",
        "CheckpointBad: 0 bytes",
        _of_program("CheckpointBad", why="0 bytes"),
    ),
    Fault(
        "checkpoint-file-missing",
        faults.checkpoint_file_missing,
        "program",
        "CheckpointBad: missing",
        _of_program("CheckpointBad", why="missing"),
    ),
    Fault(
        "daemon-killed",
        faults.daemon_killed,
        "daemon",
        "DaemonStarted, not clean",
        _of_box("DaemonStarted", clean=False),
        smoke=True,
        weight=4,
        ends_daemon=True,
    ),
    Fault(
        "daemon-terminated",
        faults.daemon_terminated,
        "box",  # it ends every worker
        "DaemonStarted, clean",
        _of_box("DaemonStarted", clean=True),
        ends_daemon=True,
    ),
    Fault(
        "daemon-frozen",
        faults.daemon_frozen,
        "daemon",
        "DaemonSuspended",
        _first(_of_box("DaemonSuspended"), _suspended_before),
    ),
    Fault(
        "daemon-hangs",
        faults.daemon_hangs,
        "daemon",
        "DaemonStarted, not clean",
        _of_box("DaemonStarted", clean=False),
        weight=1,
        ends_daemon=True,
    ),
    Fault(
        "daemon-reloaded",
        faults.daemon_reloaded,
        "daemon",
        "DaemonStopping, keeping the workers",
        _of_box("DaemonStopping", keep_workers=True),
        smoke=True,
        weight=1,
    ),
    Fault(
        "second-daemon",
        faults.second_daemon,
        "daemon",
        "refused with the pid of the first",
        _answer("status 1: supervisord: another supervisord"),
        weight=1,
    ),
    Fault(
        "second-daemon-without-lock",
        faults.second_daemon_without_lock,
        "daemon",
        "refused with the pid of the first",
        _answer("status 1: supervisord: another supervisord"),
        weight=1,
    ),
    Fault(
        "journal-not-writable",
        faults.journal_not_writable,
        "daemon",
        "JournalStalled",
        _of_box("JournalStalled"),
    ),
    Fault(
        "journal-flipped",
        faults.journal_flipped,
        "daemon",
        "JournalSalvaged",
        _of_box("JournalSalvaged"),
        weight=1,
        ends_daemon=True,
    ),
    Fault(
        "clock-stepped",
        faults.clock_stepped,
        "daemon",
        "ClockStepped",
        _of_box("ClockStepped"),
        smoke=True,
    ),
    Fault("forks-refused", faults.forks_refused, "program", "SpawnFailed", _of_program("SpawnFailed")),
    Fault(
        "descriptors-refused",
        faults.descriptors_refused,
        "program",
        "Exited: killed, within 10 s of the fault's end",
        _of_program("Exited", cause="killed", signal=9),
        _SOON_S,
    ),
    Fault(
        "memory-refused",
        faults.memory_refused,
        "program",
        "Exited: killed, within 10 s of the fault's end",
        _of_program("Exited", cause="killed", signal=9),
        _SOON_S,
        ends_daemon=True,
    ),
    Fault(
        "script-terminated",
        faults.script_terminated,
        "script",
        "Exited with 0, asked from outside",
        _of_program("Exited", code=0, why="outside"),
    ),
    Fault(
        "script-cut-while-it-saves",
        faults.script_cut_while_it_saves,
        "script",
        "Exited: killed, and resumed from a whole copy",
        _of_program("Exited", cause="killed", signal=9),
    ),
    Fault("name-replaced", faults.name_replaced, "daemon", "a file again, or FoundationLost", _is_a_file_again, _SOON_S),
    Fault(
        "name-replaced-before-start",
        faults.name_replaced_before_start,
        "daemon",
        "DaemonStarted",
        _of_box("DaemonStarted"),
        ends_daemon=True,
    ),
    Fault(
        "worker-log-removed",
        faults.worker_log_removed,
        "program",
        "FoundationLost, shown in status, or restored",
        _first(_taken_away(lambda v: v.world.run_dir(v.program) / "stdout.log"), _anywhere("stdout.log")),
    ),
    Fault(
        "box-cut-off",
        faults.box_cut_off,
        "box",
        "HostRebooted",
        _of_box("HostRebooted"),
        smoke=True,
        ends_daemon=True,
    ),
    Fault("disk-full", faults.disk_full, "box", "JournalStalled", _of_box("JournalStalled")),
    Fault(
        "state-read-only",
        faults.state_read_only,
        "box",
        "FoundationLost, or shown in status: read-only",
        _first(_of_box("FoundationLost", why="read-only"), _in_status("read-only")),
        _SOON_S,
    ),
    Fault(
        "operator-stops",
        faults.stopped_by_operator,
        "program",
        "StopIntended: operator",
        _of_program("StopIntended", reason="operator"),
        smoke=True,
        ends_daemon=True,
    ),
    Fault(
        "operator-restarts",
        faults.restarted_by_operator,
        "program",
        "StopIntended: restarted by",
        _of_program("StopIntended", why="restarted by"),
        ends_daemon=True,
    ),
    Fault(
        "bad-update",
        faults.bad_update,
        "daemon",
        "refused with the mistake",
        _answer("slots"),
        smoke=True,
        weight=1,
    ),
    Fault("hostile-clients", faults.hostile_clients, "daemon", "", None, weight=1),
    Fault("journal-removed", faults.journal_removed, "daemon", "JournalSalvaged", _JOURNAL, _SOON_S),
    Fault("journal-replaced", faults.journal_replaced, "daemon", "JournalSalvaged", _JOURNAL, _SOON_S),
    Fault("lock-removed", faults.lock_removed, "daemon", _RESTORED, _taken_away(lambda v: v.world.state / "lock"), _SOON_S),
    Fault(
        "main-log-removed",
        faults.main_log_removed,
        "daemon",
        _RESTORED,
        _taken_away(lambda v: v.world.state / "extralife.log"),
        _SOON_S,
    ),
    Fault(
        "alert-log-removed",
        faults.alert_log_removed,
        "box",
        "written anew",
        _taken_away(lambda v: v.world.state / "reboot_alerts.log"),
        weight=1,
        ends_daemon=True,
    ),
    Fault(
        "alive-mark-removed",
        faults.alive_mark_removed,
        "daemon",
        _RESTORED,
        _taken_away(lambda v: v.world.state / "alive"),
        _SOON_S,
        smoke=True,
    ),
    Fault(
        "socket-removed",
        faults.socket_removed,
        "daemon",
        _RESTORED,
        _taken_away(lambda v: v.world.runtime / "supervisor.sock"),
        _SOON_S,
    ),
    Fault(
        "runtime-dir-removed",
        faults.runtime_dir_removed,
        "daemon",
        _RESTORED,
        _taken_away(lambda v: v.world.runtime / "supervisor.sock"),
        _SOON_S,
    ),
    Fault(
        "run-dir-removed",
        faults.run_dir_removed,
        "program",
        _RESTORED,
        _taken_away(lambda v: v.world.run_dir(v.program)),
        _SOON_S,
    ),
    Fault(
        "checkpoints-removed",
        faults.checkpoints_removed,
        "program",
        _RESTORED,
        _taken_away(lambda v: v.world.run_dir(v.program) / "checkpoints"),
        _SOON_S,
    ),
    Fault(
        "fence-removed",
        faults.fence_removed,
        "program",
        "FoundationLost, or restored, or Exited: fenced",
        _first(_taken_away(lambda v: v.world.run_dir(v.program) / "fence"), _of_program("Exited", cause="fenced")),
        _SOON_S,
    ),
    Fault("beat-removed", faults.beat_removed, "program", _RESTORED, _beats_again, _SOON_S),
    Fault("beat-overwritten", faults.beat_overwritten, "program", _RESTORED, _beats_again, _SOON_S),
    Fault(
        "state-dir-renamed",
        faults.state_dir_renamed,
        "box",
        "FoundationLost, shown in status, or JournalSalvaged",
        _first(_of_box("FoundationLost"), _in_status("the state directory /"), _JOURNAL),
        _SOON_S,
    ),
    Fault("bad-reload", faults.bad_reload, "daemon", "refused with the mistake", _answer("slots"), weight=1),
    Fault("bad-hangup", faults.bad_hangup, "daemon", "log names the mistake", _anywhere("slots"), weight=1),
    Fault(
        "bad-boot",
        faults.bad_boot,
        "box",
        "HostRebooted, and the mistake is named",
        _anywhere("slots"),
        weight=1,
        ends_daemon=True,
    ),
)

BY_NAME = {fault.name: fault for fault in FAULTS}


def chosen(kinds: Iterable[str]) -> list[Fault]:
    """The faults with these names; `smoke` and `all` stand for sets. Raises KeyError for an unknown name."""
    found: dict[str, Fault] = {}
    for kind in kinds or ("all",):
        sets = {"all": FAULTS, "smoke": [fault for fault in FAULTS if fault.smoke]}
        found |= {fault.name: fault for fault in sets.get(kind) or [BY_NAME[kind]]}
    return list(found.values())
