"""A worker is called running only if its process bears it out: real processes, real boot files, no daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from leaks import open_files

from supervisor.adapters import presence, procfs
from supervisor.adapters.host import boot
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory, Trouble
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.model.state import Attempt, Program, State
from supervisor.reports.pages import pages
from supervisor.shell.backend import DaemonBackend, Published, Running

VIEW = {"name": "a", "phase": "RUNNING", "pid": 7, "uptime_s": 5.0, "steps": 9, "steps_per_s": 3.0, "why": "trains"}
OF_A_PROCESS = ("worker_phase", "eta_s", "proc_state", "rss_bytes", "memory_bytes", "pressure")


@pytest.fixture
def attempt() -> Iterator[Attempt]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            stat = procfs.read_stat(process.pid)
            assert stat is not None
            yield Attempt(1, "t", 0.0, "d", pid=process.pid, start_ticks=stat.start_ticks)
        finally:
            process.kill()


def test_a_worker_that_runs_is_said_to_run(attempt: Attempt) -> None:
    assert presence.corrected(VIEW, attempt, rebooted=False) == VIEW
    assert presence.corrected(VIEW, attempt, rebooted=None) == VIEW, "its pid and start time are its own"
    stopped = {**VIEW, "phase": "STOPPED"}
    assert presence.corrected(stopped, None, rebooted=True) == stopped
    assert presence.corrected(stopped, attempt, rebooted=True) == stopped
    assert presence.corrected(VIEW, None, rebooted=True) == VIEW


def test_a_killed_worker_is_not(attempt: Attempt) -> None:
    pid = attempt.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now: not alive either
    told = presence.corrected(VIEW, attempt, rebooted=False)
    why = f"its process {pid} is gone; its end is not recorded yet"
    gone = {**VIEW, "phase": "GONE", "pid": None, "uptime_s": None, "steps_per_s": None, "why": why}
    assert told == gone
    whole = {**VIEW, **dict.fromkeys(OF_A_PROCESS, "known")}
    assert presence.corrected(whole, attempt, rebooted=False) == {**gone, **dict.fromkeys(OF_A_PROCESS)}
    for phase in ("STARTING", "STOPPING"):
        assert presence.corrected({**VIEW, "phase": phase}, attempt, rebooted=None) == gone


def test_a_process_that_may_not_be_looked_at_is_unknown(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a box whose /proc is mounted with hidepid: the number is taken, and its owner is not shown."""
    monkeypatch.setattr(procfs, "read_stat", lambda _pid: None)
    open_before = open_files()
    told = presence.corrected(VIEW, attempt, rebooted=False)
    assert told == {
        **VIEW, "phase": "UNKNOWN", "pid": None, "uptime_s": None, "steps_per_s": None,
        "why": f"pid {attempt.pid} belongs to another user and cannot be checked; ask as root",
    }  # fmt: skip
    assert open_files() <= open_before


def test_another_process_of_the_same_number_is_not_the_worker(attempt: Attempt) -> None:
    assert attempt.start_ticks is not None
    earlier = replace(attempt, start_ticks=attempt.start_ticks - 1)
    assert presence.corrected(VIEW, earlier, rebooted=False)["phase"] == "GONE"


def test_what_is_not_known_is_not_said(attempt: Attempt) -> None:
    unknown = {
        **VIEW, "phase": "UNKNOWN", "pid": None, "uptime_s": None, "steps_per_s": None,
        "why": "it was starting; whether it runs is unknown",
    }  # fmt: skip
    assert presence.corrected(VIEW, replace(attempt, pid=None, start_ticks=None), rebooted=False) == unknown
    assert presence.corrected(VIEW, replace(attempt, start_ticks=None), rebooted=None) == unknown


@pytest.mark.parametrize("phase", ["QUEUED", "BACKOFF", "GATED", "RUNNING", "STOPPED"])
def test_without_a_daemon_nothing_waits_for_anything_else(phase: str) -> None:
    view = {**VIEW, "phase": phase, "retry_in_s": 5.0}
    waits = {**view, "phase": "QUEUED", "retry_in_s": None, "why": "waits for a daemon to start it"}
    assert presence.without_daemon(view) == (view if phase in {"RUNNING", "STOPPED"} else waits)


def test_of_the_boot_before_nothing_runs(attempt: Attempt) -> None:
    told = presence.corrected(VIEW, attempt, rebooted=True)
    assert told == {
        **VIEW, "phase": "GONE", "pid": None, "uptime_s": None, "steps_per_s": None,
        "why": "the box was started again; the next start resumes it",
    }  # fmt: skip


def test_a_reboot_is_known_by_the_boot_files(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("11111111-1111-1111-1111-111111111111\n")
    (tmp_path / "pid1_stat").write_text(f"1 (init) S {'0 ' * 18}500 0\n")
    environ = {"EXTRALIFE_BOOT_FILES": str(tmp_path)}
    here = boot.read_boot(boot.BootFiles.of(environ)).boot_id
    assert presence.has_rebooted(State(at_s=5.0, boot_id=here), str(tmp_path), environ) is False
    assert presence.has_rebooted(State(at_s=5.0, boot_id="2" * 32), str(tmp_path), environ) is True
    assert presence.has_rebooted(State(), str(tmp_path), environ) is False, "there is no earlier life"
    mark = boot.AliveMark(here, 500, 5.0, 1_700_000_000.0, boot_s=1e12)
    Path(Paths(str(tmp_path), "").alive).write_bytes(boot.pack_mark(mark, 1))
    assert presence.has_rebooted(State(), str(tmp_path), environ) is True, "this boot has lasted for less than at that mark"
    (tmp_path / "boot_id").unlink()
    assert presence.has_rebooted(State(boot_id=here), str(tmp_path), environ) is None


@pytest.mark.parametrize("troubled", [True, False])
def test_a_live_daemon_looks_itself_while_it_cannot_record_an_end(attempt: Attempt, troubled: bool) -> None:
    """The journal cannot be written, a worker is killed, and no fact can say so: the page must not say RUNNING."""
    program = Program("a", Phase.RUNNING, 0.0, 0.0, "d", attempt=attempt)
    trouble = Trouble(1.0, 1.0, "the disk is full") if troubled else None
    state = State(at_s=1.0, level="light", programs={"a": program})
    settings = Settings(Paths("/state", "/run"), programs=(ProgramSpec("a", ("sleep",), "d"),))
    published = Published(settings, state, Memory(trouble=trouble), 2.0, 2.0)
    daemon = cast("DaemonBackend", SimpleNamespace(version="1", cgroups=dict, http=lambda: None, summaries=None))

    def phase() -> str:
        (view,) = pages()["status"].of(Running(published, daemon), {})["programs"]
        return str(view["phase"])

    assert phase() == "RUNNING"
    assert attempt.pid is not None
    os.kill(attempt.pid, signal.SIGKILL)
    assert attempt.start_ticks is not None
    while procfs.is_alive(attempt.pid, attempt.start_ticks):
        pass
    assert phase() == ("GONE" if troubled else "RUNNING"), "in order, its end is an input of the next moment"
