"""Delays the start of a daemon that keeps ending, under a service manager that starts it again at once, for ever.

The unit says Restart=always without a limit: giving up would leave the trainings alone until somebody looks. A start that
fails every time (a broken configuration, a disk that is not mounted, a bug) is repeated after 1, 2, 4 ... 60 s. The
unit itself cannot say that before systemd 254, and during systemd's own delay a stop finds no process to stop. So the wait
is part of the start here, with a STATUS that says so. Stopping or restarting the service ends the wait, and the next start
is at once.

Example: with starts 100, 90 and 80 s ago, this one is the fourth within ten minutes: it waits for 2 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from supervisor import discovery
from supervisor.adapters import durable
from supervisor.adapters.host import known_mount
from supervisor.adapters.host import reboot_log as alerts
from supervisor.adapters.host.systemd import Notifier
from supervisor.adapters.threads import Thread
from supervisor.formats import span

WINDOW_S: Final = 600.0
_FREE: Final = 2  # the first starts in the window do not wait
_MOST_S: Final = 60.0
_BEGIN_S: Final = 60.0  # time limit of the start itself after the wait
_ALERT_AT: Final = 4
_TELL_S: Final = 20.0


def delay_s(earlier: int) -> float:
    """Seconds that a start waits after `earlier` others within the window."""
    return 0.0 if earlier < _FREE else float(min(_MOST_S, 2 ** (min(earlier, 10) - _FREE)))


def wait_for_turn(environ: Mapping[str, str], config: str | None = None) -> bool:
    """Record this start and wait for its turn; False when the service is to be stopped meanwhile.

    Without a service manager and its runtime directory: True at once. `config` names the targets of the alert at the fourth
    start.
    """
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if not environ.get("NOTIFY_SOCKET") or not runtime:
        return True
    path, now_s = Path(runtime) / "starts", time.clock_gettime(time.CLOCK_BOOTTIME)
    starts = [at_s for at_s in _read(path) if 0.0 <= now_s - at_s < WINDOW_S]
    wait_s = delay_s(len(starts))
    _write(path, [*starts, now_s + wait_s])
    alert_threads = [_alert(environ, config, len(starts) + 1, now_s - starts[0])] if len(starts) + 1 == _ALERT_AT else []
    if not wait_s:
        return True
    status = f"start {len(starts) + 1} within {span(WINDOW_S)}: waits {span(wait_s)}; journalctl says why the others ended"
    ends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends | {signal.SIGALRM})
    Notifier(environ).busy(status, wait_s + _BEGIN_S)
    with contextlib.suppress(RuntimeError):  # without a thread there is no alert; the daemon starts all the same
        for thread in alert_threads:  # signals are blocked: one that is awaited below must not reach its thread
            thread.start()
    received = _await(ends, wait_s)
    for thread in filter(Thread.is_alive, alert_threads):  # if this start fails too, its end would interrupt the alert
        thread.join(_TELL_S)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if received is None:
        return True
    forget(environ)
    return received == signal.SIGHUP


def _await(ends: set[signal.Signals], wait_s: float) -> int | None:
    """The first of these blocked signals, and of SIGALRM, within `wait_s`; None: none came.

    Not by `sigtimedwait`: after a SIGSTOP or a suspension of the box that outlasts its timeout, CPython returns a signal of
    random memory instead of None.
    """
    signal.setitimer(signal.ITIMER_REAL, wait_s)
    received = signal.sigwait(ends | {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    if received != signal.SIGALRM and signal.SIGALRM in signal.sigpending():
        signal.sigwait({signal.SIGALRM})  # unblocked, it would end the process
    return None if received == signal.SIGALRM else received


def forget(environ: Mapping[str, str]) -> None:
    """Forget the starts after an orderly end: the next start does not wait."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if runtime:
        (Path(runtime) / "starts").unlink(missing_ok=True)


def _read(path: Path) -> list[float]:
    try:
        found = durable.read_json(path)
    except (OSError, ValueError):
        return []
    return [at_s for at_s in found if isinstance(at_s, float)] if isinstance(found, list) else []


def _write(path: Path, starts: list[float]) -> None:
    with contextlib.suppress(OSError):  # the directory is missing or full: then no start waits
        durable.replace(path, json.dumps(starts).encode(), aside=path.with_suffix(f".{os.getpid()}"))


def _alert(environ: Mapping[str, str], config: str | None, starts: int, within_s: float) -> Thread:
    """Log a line at once; return a thread, not started yet, that sends it to the targets of [alerts]."""
    state = environ.get("STATE_DIRECTORY", "").split(":")[0]
    line = alerts.service_line(starts, within_s, time.time())
    if state:
        with contextlib.suppress(OSError):  # a directory below a missing mount is not the one that the last daemon used
            known_mount.refuse_if_missing(state, known_mount.cache_dir(environ))
            alerts.append(Path(state) / "reboot_alerts.log", line)
    return Thread("alert", _tell, line.partition(" ")[2], config, dict(environ))


def _tell(text: str, config: str | None, environ: Mapping[str, str]) -> None:
    for feature in discovery.modules("failure"):
        feature.tell(text, config, environ, pauses_s=(0.0, 1.0))
