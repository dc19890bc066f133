"""Gives each attempt its own cgroup, if the daemon may use a part of cgroup v2's tree (systemd: Delegate=yes).

    extralife.service/            our part of the tree; no process may be here while controllers are on below it
        daemon/                   the daemon itself, which moves there when it starts
        earlier/                  processes found here at the daemon's start: workers that an older version started
        worker-Pong-TOKEN/        one attempt, with its limits (`policy/worker/confinement.py`)
            shim/                 its shim, outside of `tree`, so that it survives and records how the tree ended
            tree/                 the worker and all its descendants; ended together (cgroup.kill, memory.oom.group)

The daemon creates and removes directories and writes limits. A shim enters its cgroup itself, and its worker enters `tree`
before the worker's first instruction: no process ever has to be moved in from outside. If cgroups cannot be used (no version
2, nothing delegated, a tree that cannot be written, a missing controller), `view` says why in one sentence. The daemon then
works as without cgroups: it ends trees through shim, session and mark, and memory has no limit of its own.

A cgroup and its processes outlive the daemon; the next daemon finds it by its token. Its limits may get lost: the service
manager may have to turn the controllers off to start another daemon (deploy/end-leftovers says why). So the limits are also
in the attempt's directory, and are written again when the attempt is adopted.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import structlog

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.host.host import pressure
from supervisor.policy.worker.confinement import Limits
from supervisor.records import Record

log = structlog.get_logger()

DAEMON: Final = "daemon"
EARLIER: Final = "earlier"
SHIM: Final = "shim"
TREE: Final = "tree"
NOTE: Final = "cgroup.json"  # in the attempt's directory
WANTED: Final = ("cpu", "memory", "pids")
_READ_BYTES: Final = 64 * 1024
_REMOVE_S: Final = 2.0  # a cgroup whose processes have just ended is busy until they are reaped
_STUBBORN: Final = 50  # how often processes in our part are moved aside while they start new ones
_PRESSURES: Final = ("cpu", "memory", "io")


class OwnCgroup(Record):
    """Our part of the cgroup tree. `path` None: there is none, and `why` is the reason."""

    path: str | None
    why: str = ""


class Confined(Record):
    """The record of one attempt's cgroup: its path, its limits, and whether it counts its own OOM kills."""

    path: str
    limits: Limits
    counts_oom: bool


class Load(Record):
    """One reading of an attempt's cgroup. Pressure is in per cent of the last minute, as (`cpu some`, 12.5)."""

    pressure: tuple[tuple[str, float], ...] = ()
    memory_bytes: int | None = None


def find(parent: str = "", root: str = "") -> OwnCgroup:
    """Find the part of the tree that this process may use. `parent`: the part that the operator set; `root`: for tests."""
    if parent:
        return _checked(Path(parent))
    try:
        mounts = Path(f"{root}/proc/self/mountinfo").read_text(errors="replace", encoding="utf-8")
        lines = Path(f"{root}/proc/self/cgroup").read_text(errors="replace", encoding="utf-8").splitlines()
    except OSError:
        return OwnCgroup(None, "/proc does not show this process's cgroup")
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    there = mounted(mounts)
    if own is None or there is None:
        return OwnCgroup(None, "there is no cgroup v2 here")
    base, at = there
    if "/.." in own or not (own + "/").startswith(base.rstrip("/") + "/"):
        return OwnCgroup(None, "its cgroup lies outside of what is mounted here")
    path = Path(root + at + own[len(base.rstrip("/")) :])
    if path.name == DAEMON and _is_delegated(path.parent):  # the previous image moved there
        path = path.parent
    if not _is_delegated(path):
        return OwnCgroup(None, f"{own} was not given to it (Delegate=yes in the unit)")
    return _checked(path)


def mounted(mountinfo: str) -> tuple[str, str] | None:
    """(root, mount point) of the first mount of cgroup v2."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if after.startswith("cgroup2 ") and len(words) > 4:
            return words[3], words[4].replace("\\040", " ")
    return None


def _is_delegated(path: Path) -> bool:
    """True if systemd marked it as delegated, or if it belongs to this user, who is not root."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    try:
        return path.stat().st_uid == os.getuid() != 0
    except OSError:
        return False


def _checked(path: Path) -> OwnCgroup:
    if not (path / "cgroup.procs").exists():
        return OwnCgroup(None, f"{path} is no cgroup of version 2")
    try:
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError as error:
        return OwnCgroup(None, f"{path}: {error.strerror}")
    if read_only or not os.access(path / "cgroup.procs", os.W_OK) or not os.access(path, os.W_OK):
        return OwnCgroup(None, f"{path} cannot be written")
    return OwnCgroup(str(path))


class Cgroups:
    """The cgroups of all attempts. No method raises; without a part of the tree they do nothing."""

    def __init__(
        self, part: OwnCgroup, limits: Callable[[str], Limits], *, wanted: tuple[str, ...] = WANTED,
        mkdir: Callable[[Path], None] = Path.mkdir, rmdir: Callable[[Path], None] = Path.rmdir,
    ) -> None:  # fmt: skip
        """`limits` returns those of a program that starts now. The last two are for tests: only a kernel adds the files."""
        self._base = None if part.path is None else Path(part.path)
        self._why, self._limits, self._wanted = part.why, limits, wanted
        self._mkdir, self._rmdir = mkdir, rmdir
        self._controllers: tuple[str, ...] = ()
        self._guard = threading.Lock()
        self._known: dict[str, Path] = {}  # by token

    # --- the part that is ours -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Move this process to `daemon` and others to `earlier`, turn controllers on, remove empty cgroups of attempts."""
        base = self._base
        if base is None:
            return
        try:
            self._make(base / DAEMON)
            _write(base / DAEMON / "cgroup.procs", str(os.getpid()))
            self._clear(base)
        except OSError as error:
            self._base, self._why = None, f"{base} cannot be used: {error.strerror}"
            log.warning("cgroups_not_used", why=self._why)
            return
        supported = _read(base / "cgroup.controllers").split()
        self._controllers = tuple(name for name in self._wanted if name in supported and _turn_on(base, name))
        for path in base.glob("worker-*"):
            if "populated 1" not in _read(path / "cgroup.events"):
                self._remove(path, patience_s=0.0)

    def _clear(self, base: Path) -> None:
        """Move other processes (of an earlier version) to `earlier`: none may be beside cgroups with controllers."""
        for _ in range(_STUBBORN):
            pids = [pid for pid in _pids(base) if pid != os.getpid()]
            if not pids:
                return
            self._make(base / EARLIER)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    _write(base / EARLIER / "cgroup.procs", str(pid))

    def _make(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            self._mkdir(path)

    def view(self) -> dict[str, object]:
        """The fields that `status` and `doctor` show."""
        lacking = [] if self._base is None else [name for name in self._wanted if name not in self._controllers]
        return {
            "on": self._base is not None, "why": self._why, "path": None if self._base is None else str(self._base),
            "controllers": list(self._controllers), "lacking": lacking,
        }  # fmt: skip

    # --- one attempt -----------------------------------------------------------------------------------------------------

    def begin(self, program: str, token: str, attempt_dir: str) -> str:
        """Create the cgroup of an attempt that is about to start; return the path for its shim to enter, empty for none."""
        base = self._base
        if base is None:
            return ""
        path = base / f"worker-{re.sub('[^A-Za-z0-9_]', '_', program)[:60]}-{token}"
        limits = self._limits(program)
        try:
            for each in (path, path / SHIM, path / TREE):
                self._make(each)
            self._confine(path, limits)
            counts = (path / TREE / "memory.events").exists()
            _note(attempt_dir, Confined(str(path), limits, counts))
        except OSError as error:
            log.warning("cgroup_not_made", program=program, path=str(path), error=error.strerror)
            self._remove(path, patience_s=0.0)
            return ""
        with self._guard:
            self._known[token] = path
        return str(path)

    def adopt(self, program: str, token: str, attempt_dir: str) -> None:
        """Find the cgroup of an attempt that an earlier daemon started, and write its limits again."""
        path, noted = self._path(token), read_note(attempt_dir)
        if path is None or noted is None:
            return
        try:
            self._confine(path, noted.limits)
            _note(attempt_dir, replace(noted, counts_oom=(path / TREE / "memory.events").exists()))
        except OSError as error:
            log.warning("cgroup_not_confined", program=program, path=str(path), error=error.strerror)

    def _confine(self, path: Path, limits: Limits) -> None:
        """Write all limits that the available controllers support; a limit whose controller is missing is no error."""
        if "memory" in self._controllers:
            _turn_on(path, "memory")
        high, most = limits.memory_high_bytes, limits.memory_max_bytes
        knobs = {
            "memory.high": "max" if high is None else str(high), "memory.max": "max" if most is None else str(most),
            "pids.max": str(limits.pids_max), "cpu.weight": str(limits.cpu_weight),
        }  # fmt: skip
        for name, value in knobs.items():
            _write(path / name, value, absent_ok=True)
        _write(path / TREE / "memory.oom.group", "1", absent_ok=True)

    def members(self, token: str) -> list[int]:
        """Every process of an attempt, including its shim and processes in cgroups that it created below its own."""
        path = self._path(token)
        return [] if path is None else [pid for each in _below(path) for pid in _pids(each)]

    def kill(self, token: str, *, shim: bool = False) -> bool:
        """End the tree at once, including forks in progress. False: not possible (no cgroup, Linux before 5.14)."""
        path = self._path(token)
        try:
            if path is not None:
                _write((path if shim else path / TREE) / "cgroup.kill", "1")
        except OSError:
            return False
        return path is not None

    def end(self, token: str) -> None:
        """The attempt is over: remove its cgroup. May take a moment."""
        path = self._path(token)
        with self._guard:
            self._known.pop(token, None)
        if path is not None and not self._remove(path, _REMOVE_S):
            log.warning("cgroup_not_removed", path=str(path))

    def read(self, token: str) -> Load | None:
        """Pressure and memory of an attempt; None where it has no cgroup."""
        path = self._path(token)
        if path is None or not path.is_dir():
            return None
        shares = [entry for name in _PRESSURES for entry in pressure(name, _read(path / f"{name}.pressure"))]
        used = _read(path / "memory.current").strip()
        return Load(tuple(shares), int(used) if used.isdigit() else None)

    def _remove(self, path: Path, patience_s: float) -> bool:
        """Remove a cgroup; True when it is gone. The kernel never removes one that contains processes."""
        until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + patience_s
        while True:
            for each in reversed(list(_below(path))):
                try:
                    self._rmdir(each)
                except OSError as error:
                    if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
                        return False
            if not path.is_dir():
                return True
            if time.clock_gettime(time.CLOCK_BOOTTIME) >= until_s:
                return False
            time.sleep(0.02)

    def _path(self, token: str) -> Path | None:
        with self._guard:
            found = self._known.get(token)
            if found is None and self._base is not None and token.isalnum():
                found = next(self._base.glob(f"worker-*-{token}"), None)
                if found is not None:
                    self._known[token] = found
            return found


NONE: Final = Cgroups(OwnCgroup(None, "not asked for"), lambda _program: Limits(None, None, 0, 0))


# --- the note ------------------------------------------------------------------------------------------------------------


def _note(attempt_dir: str, confined: Confined) -> None:
    path = Path(attempt_dir) / NOTE
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(asdict(confined)), encoding="ascii")
    aside.rename(path)


def read_note(attempt_dir: str) -> Confined | None:
    """Read the note that `begin` wrote for an attempt; None: it had no cgroup."""
    try:
        body = durable.read_json(Path(attempt_dir) / NOTE)
        return Confined(str(body["path"]), Limits(**body["limits"]), bool(body["counts_oom"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


# --- the kernel's files --------------------------------------------------------------------------------------------------


def _turn_on(path: Path, controller: str) -> bool:
    try:
        _write(path / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        log.warning("controller_not_on", path=str(path), controller=controller, error=error.strerror)
        return False
    return True


def _write(path: Path, text: str, *, absent_ok: bool = False) -> None:
    """Do one write(2) to an existing file: the kernel accepts or refuses it as a whole."""
    try:
        with files.held(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as fd:
            os.write(fd, text.encode())
    except FileNotFoundError:
        if not absent_ok:
            raise


def _read(path: Path) -> str:
    """The file's text; empty if the file is missing or the kernel gives none (pressure is turned off)."""
    try:
        return path.read_bytes()[:_READ_BYTES].decode("ascii", "replace")
    except OSError:
        return ""


def _pids(path: Path) -> list[int]:
    return [int(word) for word in _read(path / "cgroup.procs").split() if word.isdigit()]


def _below(path: Path) -> Iterator[Path]:
    """The cgroup and every cgroup in it, the innermost last."""
    for directory, _, _ in os.walk(path):
        yield Path(directory)
