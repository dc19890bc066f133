"""Runs restic as a child process: low priority, a time limit, a one-sentence error, and no secret that others can read.

The repository, the path of the password file and the backend's credentials go into the child's environment, so `ps` shows
none of them. The child has its own process group and is ended together with that group. When this process dies, the kernel
sends the child SIGINT (setpriv's --pdeathsig). restic then removes its lock and ends. If that takes a while or fails, the
next daemon ends it (`adapters/leftovers.py`).

Locks that a killed restic or a lost box has left are removed by a rule (`rules.py`); others are waited for.
Plain `restic unlock` sends SIGHUP to the process that a lock of this host names, to learn whether it is alive. By
now another process may have that process id, and a training would die of the signal. So this module judges the locks
itself, and then runs `unlock --remove-all`, which sends no signal.

Written for restic 0.14 (Debian 12). Later versions give the same answers, and errors also as JSON.

Why restic: an archive of our own would need encryption, deduplication and retention. rclone keeps one version and does not
encrypt by default. borg must be installed at the destination too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import leftovers, procfs
from supervisor.adapters.copies.thread import Interrupted
from supervisor.config.secrets import lines_in
from supervisor.features.offsite.adapters import hardware
from supervisor.features.offsite.config import masked, unfit
from supervisor.features.offsite.messages import Lease
from supervisor.features.offsite.rules import Kept, Lock, indispensable, is_abandoned
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.formats import span
from supervisor.printable import printable
from supervisor.records import Record
from workers import contract

COPY_TAG: Final = "extralife"
LEASE_TAG: Final = "extralife-lease"
MARK_TAG: Final = "extralife-mark"  # a word on the next box (`features/next_box`)
_LEASES_KEPT: Final = 5
_MARKS_KEPT: Final = 5
_LEAVE_S: Final = 3.0
_LOOK_S: Final = 0.1
_MOST_SAID: Final = 600
_MOST_BYTES: Final = 64 << 20
_LOCKED: Final = re.compile(r"already locked|unable to create lock")
_SECRETS_BYTES: Final = 1 << 16
_NO_REPOSITORY: Final = re.compile(r"unable to open config file|Is there a repository at")
_OF_RESTIC_ALONE: Final = re.compile(r"the `unlock` command")  # advice that names a command of restic, not one of ours
_PARTLY: Final = 3  # restic's exit code of a backup without some files
_LOCK_WAIT_S: Final = 60.0  # another box's prune of an ordinary repository takes less
_LOCK_LOOK_S: Final = 5.0  # each attempt derives restic's key again, which takes at least a second of CPU
_NOISE: Final = re.compile(r"^(Fatal: |Warning: |error: )+", re.IGNORECASE)
# Its nice value is the thread's. The lowest one starves on full cores: a copy took minutes.
_LOW: Final = (("setpriv", "--pdeathsig", "INT"), ("ionice", "-c", "2", "-n", "7"))


class ResticError(Exception):
    """A call of restic failed. The message quotes restic's reason, on one line."""


class ResticSnapshot(Record):
    """One snapshot of a repository. `wall_s` comes from the clock of the box that made it."""

    id: str
    wall_s: float
    host: str
    tags: tuple[str, ...]

    @property
    def generation(self) -> int:
        return self._number_in("generation=")

    @property
    def number(self) -> int:
        return self._number_in("number=")

    @property
    def age_order(self) -> tuple[int, int, float, str]:
        """The sort key; the newest has the largest. Each copy counts on from the newest one in the repository.

        So a box whose clock was ahead makes no copy that stays the newest. Copies of earlier versions have no number.
        """
        return self.generation, self.number, self.wall_s, self.id

    @property
    def steps(self) -> dict[str, int | None]:
        """The step of each program's checkpoint in this copy; None: not known."""
        pairs = (tag.removeprefix("step=").rpartition(":") for tag in self.tags if tag.startswith("step="))
        return {name: int(step) if step.isdecimal() else None for name, _, step in pairs}

    def word(self, name: str) -> str:
        """The value of a tag `NAME=VALUE`; empty: it has none."""
        return next((tag.partition("=")[2] for tag in self.tags if tag.startswith(f"{name}=")), "")

    def _number_in(self, prefix: str) -> int:
        found = self.word(prefix.removesuffix("="))
        return int(found) if found.isdecimal() else 0

    @property
    def lease(self) -> Lease | None:
        """The lease that this snapshot represents; None if it is a copy, or if its tags cannot be parsed."""
        if LEASE_TAG not in self.tags:
            return None
        values = dict(tag.split("=", 1) for tag in self.tags if "=" in tag)
        try:
            return Lease(values["token"], int(values["generation"]), self.host, self.wall_s, self.id)
        except (KeyError, ValueError):
            return None


class Restic:
    """One repository. Each call blocks until restic has ended, at most until `deadline_s` (monotonic)."""

    def __init__(
        self, rules: OffsiteSettings, cache: Path, *, over: threading.Event | None = None,
        user: pwd.struct_passwd | None = None, limit_s: float | None = None, at_terminal: bool = True,
    ) -> None:  # fmt: skip
        """`over`: when it is set, a running restic is ended (`Interrupted`).

        `user`: run restic as this user, if we are root.
        `at_terminal`: restic stays in the caller's session, so that an SFTP client can prompt there.
        """
        self._rules, self._cache, self._over = rules, cache, over or threading.Event()
        self._user, self._at_terminal = user, at_terminal
        self.gone: frozenset[str] | None = frozenset()  # hosts whose locks are abandoned; None: those of every other host
        self.deadline_s = time.monotonic() + (rules.timeout_s if limit_s is None else limit_s)

    @property
    def place(self) -> str:
        """The repository's name without its secrets. The same repository under another spelling has another name."""
        return self._rules.place

    def init(self) -> None:
        self._run("init")

    def snapshots(self, *more: str) -> list[ResticSnapshot]:
        """Copies and leases, the oldest first; `more`: other tags. Needs no lock, so it works while another box prunes."""
        tags = [word for tag in (COPY_TAG, LEASE_TAG, *more) for word in ("--tag", tag)]
        output = self._run("snapshots", "--json", "--no-lock", *tags)
        with _parsing("snapshots"):
            found = [
                ResticSnapshot(
                    str(each["short_id"]), _wall_s(str(each["time"])), str(each.get("hostname") or ""),
                    tuple(map(str, each.get("tags") or ())),
                )
                for each in json.loads(output) or ()
            ]  # fmt: skip
        return sorted(found, key=lambda each: each.age_order)

    def others(self) -> int:
        """The number of snapshots that are not extralife's."""
        with _parsing("snapshots"):
            found = json.loads(self._run("snapshots", "--json", "--no-lock")) or ()
            return sum(1 for each in found if not any(tag.startswith(COPY_TAG) for tag in each.get("tags") or ()))

    def copy(self, directory: Path, *, host: str, tags: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Back up a directory as one snapshot. Returns restic's summary, and the reason for each path that it cannot read.

        Unchanged files are not read. A hard link changes a file's ctime, so a new ctime does not count as a change:
        checkpoints are never changed in place.
        """
        limit = ["--limit-upload", str(self._rules.upload_kib_s)] if self._rules.upload_kib_s else []
        marks = [word for tag in tags for word in ("--tag", tag)]
        output = self._run("backup", "--json", "--host", host, "--ignore-ctime", *limit, *marks, ".", cwd=directory)
        return _summary(output), _unread(output, directory)

    def write_lease(self, lease: Lease) -> None:
        """Write a lease. It promises a copy, as a copy does."""
        then = f"then={math.ceil(self._rules.every_s)}"
        values = (f"token={lease.token}", f"generation={lease.generation}", then, *hardware.instance_tags())
        text = json.dumps({"token": lease.token, "generation": lease.generation, "box": lease.box})
        self.note("lease.json", text, host=lease.box, tags=(LEASE_TAG, *values))

    def note(self, name: str, text: str, *, host: str, tags: Iterable[str]) -> None:
        """Write a snapshot of one small file, whose tags hold all values."""
        marks = [word for tag in tags for word in ("--tag", tag)]
        self._run("backup", "--json", "--stdin", "--stdin-filename", name, "--host", host, *marks, given=text)

    def restore(self, snapshot: str, target: Path, include: str = "") -> None:
        """Needs no lock: a box that died with one must not keep its successor waiting."""
        only = ["--include", include] if include else []
        self._run("restore", "--no-lock", snapshot, "--target", str(target), *only)

    def remove(self, snapshot: str) -> None:
        self._run("forget", snapshot)

    def forget(self, programs: Iterable[str]) -> None:
        """Remove the old copies, except those that the programs need, and the old leases; then remove unused data."""
        rules, snapshots = self._rules, self.snapshots(MARK_TAG)
        keep = [
            word
            for name in ("last", "hourly", "daily", "weekly", "monthly")
            if (count := getattr(rules, f"keep_{name}"))
            for word in (f"--keep-{name}", str(count))
        ]
        answer = self._run("forget", "--dry-run", "--no-lock", "--json", "--tag", COPY_TAG, "--group-by", "", *keep)
        copies = [Kept(each.id, each.generation, each.steps) for each in snapshots if COPY_TAG in each.tags]
        with _parsing("forget"):
            surplus = {str(each["short_id"]) for group in json.loads(answer) or () for each in group["remove"] or ()}
        surplus -= indispensable(copies, programs)
        surplus |= {each.id for each in [each for each in snapshots if each.lease is not None][:-_LEASES_KEPT]}
        surplus |= {each.id for each in [each for each in snapshots if MARK_TAG in each.tags][:-_MARKS_KEPT]}
        if surplus:
            self._run("forget", *sorted(surplus), "--prune")

    def check(self, percent: int | None = None) -> int:
        """Verify the repository. Returns the percentage of its data that was read back. None: as configured."""
        share = self._rules.check_percent if percent is None else percent
        self._run("check", *([f"--read-data-subset={share}%"] if share else []))
        return share

    def _run(self, *args: str, cwd: Path | None = None, given: str = "") -> str:
        """Run restic and return its output. Abandoned locks are removed; for any other lock this waits up to a minute."""
        began_s, unlocked = time.monotonic(), False
        until_s = min(began_s + _LOCK_WAIT_S, self.deadline_s - _LOCK_LOOK_S)
        while True:
            try:
                return self._once(args, cwd, given)
            except ResticError as error:
                if not _LOCKED.search(str(error)):
                    raise
                message = str(error)
            locks = self.locks()
            kept = [each for each in locks if not self._is_abandoned(each)]
            waited_s = time.monotonic() - began_s
            if locks and not kept and not unlocked:
                self._once(("unlock", "--remove-all"), None, "")
                unlocked = True
            elif began_s + waited_s < until_s:
                if self._over.wait(_LOCK_LOOK_S):
                    raise Interrupted from None
            else:
                if kept:
                    message = f"restic {args[0]}: the repository is locked by process {kept[0].pid} of box {kept[0].host}"
                    if kept[0].host != socket.gethostname():
                        message += "; if nothing runs there any more, `extralifectl offsite take-over` removes the lock"
                raise ResticError(f"{message}; waited {span(waited_s)} for it")

    def locks(self) -> list[Lock]:
        found = []
        for id_ in self._once(("list", "locks", "--no-lock"), None, "").split():
            with contextlib.suppress(
                ResticError, ValueError, KeyError, TypeError, RecursionError
            ):  # it was removed meanwhile
                body = json.loads(self._once(("cat", "lock", id_, "--no-lock"), None, ""))
                found.append(Lock(str(body["hostname"]), int(body["pid"]), _wall_s(str(body["time"]))))
        return found

    def _is_abandoned(self, lock: Lock) -> bool:
        stat = procfs.read_stat(lock.pid)
        runs = stat is not None and stat.alive and stat.name.startswith("restic")
        return is_abandoned(lock, here=socket.gethostname(), runs=runs, gone=self.gone, wall_s=time.time())

    def _once(self, args: Sequence[str], cwd: Path | None, given: str) -> str:
        options = ["-o", f"sftp.command={self._rules.sftp_command}"] if self._rules.sftp_command else []
        argv = [*low_priority_prefix(), "restic", *options, *args]
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            stdin.write(given.encode())
            stdin.seek(0)
            try:
                self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self._user is not None:
                    os.chown(self._cache, self._user.pw_uid, self._user.pw_gid)
                process = subprocess.Popen(
                    argv, stdin=stdin, stdout=out, stderr=err, env=self._environ(), cwd=cwd or "/",
                    start_new_session=not self._at_terminal, process_group=0 if self._at_terminal else None,
                    **self._as_user(),
                )  # fmt: skip
            except FileNotFoundError:
                raise ResticError("restic is not installed: apt-get install restic") from None
            except OSError as error:
                raise ResticError(f"restic cannot be started: {error.strerror or error}") from error
            why = self._await_end(process)
            code = process.wait()
            if why and self._over.is_set():
                raise Interrupted
            if why:  # newer versions try for minutes to reach a server, and say so
                said = _text(err).partition("\n")[0].strip()
                raise ResticError(f"{why}; {self._error_message(args[0], code, said, '')}" if said else why)
            output = _text(out)
            if code == _PARTLY and args[0] == "backup":
                return f"{_text(err)}\n{output}"
            if code:
                raise ResticError(unfit() or self._error_message(args[0], code, _text(err), output))
            return output

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        groups = os.getgrouplist(self._user.pw_name, self._user.pw_gid)
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": groups}

    def _environ(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if key not in contract.STRIPPED_ENV}
        env |= credentials(self._rules.env_file) | leftovers.mark()
        return env | {
            "RESTIC_REPOSITORY": self._rules.repository, "RESTIC_PASSWORD_FILE": self._rules.password_file,
            "RESTIC_CACHE_DIR": str(self._cache), "RESTIC_PROGRESS_FPS": "0.1", "LC_ALL": "C",
        }  # fmt: skip

    def _await_end(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the child. Returns an empty string if it ended by itself, else why it was ended.

        It gets SIGINT first, so that it leaves no lock.
        """
        pidfd = procfs.pidfd(process.pid)
        try:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            while not poller.poll(_LOOK_S * 1000.0):
                if self._over.is_set() or time.monotonic() > self.deadline_s:
                    break
            else:
                return ""
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGINT)
            poller.poll(_LEAVE_S * 1000.0)
            return "restic did not end within its time limit"
        finally:
            os.close(pidfd)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def _error_message(self, operation: str, code: int, err: str, out: str) -> str:
        """Restic's own message, without secrets and without its progress reports."""
        lines = [line for said in (err.splitlines() or out.splitlines()) for line in _plain(said).splitlines()]
        message = "; ".join(dict.fromkeys(_NOISE.sub("", one) for one in lines if one and not _OF_RESTIC_ALONE.search(one)))
        hint = "; if it was never made, `extralifectl offsite init` makes it" if _NO_REPOSITORY.search(message) else ""
        for secret in sorted(_secrets(self._rules), key=len, reverse=True):
            message = message.replace(secret, "***")
        shown = printable(masked(message))[-_MOST_SAID:]
        return f"restic {operation}: {shown or f'ended with status {code} and printed nothing'}{hint}"


def low_priority_prefix() -> list[str]:
    """A command prefix that lowers the command's priority and ends it with this process.

    Tools that are not installed are left out.
    """
    return [word for words in _LOW if shutil.which(words[0]) for word in words]


def credentials(path: str) -> dict[str, str]:
    """The variables of `env_file`. Raises ResticError, which names the file, if it cannot be read."""
    if not path:
        return {}
    try:
        text = files.read(path, _SECRETS_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ResticError(f"{path} cannot be read: {error.strerror or error}") from error
    pairs = (line.partition("=") for _, line in lines_in(text))
    return {name: value for name, _, value in pairs if name.isidentifier()}


def _secrets(rules: OffsiteSettings) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(ResticError):
        found |= {value for value in credentials(rules.env_file).values() if len(value) >= 6}
    with contextlib.suppress(OSError):
        found |= {files.read(rules.password_file, _SECRETS_BYTES).decode("utf-8", "replace").strip()}
    return {each for each in found if len(each) >= 3}


def _plain(line: str) -> str:
    """The message in a line of output. Newer versions write an error as a JSON object."""
    line = line.strip()
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            body = json.loads(line)
            if not isinstance(body, dict) or body.get("message_type") in {"status", "summary", "verbose_status"}:
                return ""
            error = body.get("error")
            return str(body.get("message") or (error.get("message") if isinstance(error, dict) else error) or "")
    return line


def _text(file: Any) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
    data: bytes = file.read()
    return data.decode("utf-8", "replace")


@contextlib.contextmanager
def _parsing(operation: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResticError(f"restic {operation}: the answer cannot be parsed ({type(error).__name__})") from error


def _messages(output: str) -> Iterator[dict[str, Any]]:
    """The lines of JSON of a backup."""
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(body := json.loads(line), dict):
                yield body


def _summary(output: str) -> dict[str, Any]:
    for body in reversed([*_messages(output)]):
        if body.get("message_type") == "summary" and body.get("snapshot_id"):
            return dict(body)
    raise ResticError("restic backup: it ended without a summary, so nothing is known of the copy")


def _unread(output: str, directory: Path) -> dict[str, str]:
    """The files that restic could not read, below `directory`, each with its reason."""
    found: dict[str, str] = {}
    for body in _messages(output):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            if body["message_type"] == "error":
                path = os.path.relpath(os.path.join(directory, body["item"]), directory)  # noqa: PTH118
                error = body["error"]
                code = error.get("Err")  # only in older versions
                reason = os.strerror(code) if isinstance(code, int) else str(error.get("message") or "cannot be read")
                found.setdefault(path, reason)
    return found


def _wall_s(text: str) -> float:
    """Restic's time has up to nine digits after the second, and `Z` or an offset: `2026-11-23T05:27:56.428391114Z`."""
    text = re.sub(r"(\.\d{1,6})\d*", r"\1", text.replace("Z", "+00:00"))
    return datetime.fromisoformat(text).timestamp()
