"""Checks whether the state directory and the runtime directory can be used, before anything is written to them.

A configured state directory whose parent is missing is refused. The usual reason is a disk that is not mounted, and to
start every training from scratch below an empty mount point would be the worst reaction. The default state directory is
created with its parents. A full disk is refused for a new state directory only. If the directory has a journal, there are
trainings to supervise, and the journal itself reports what it could not write.

A runtime directory that another user could change is refused, because the daemon trusts its files. For a state directory
this is only a warning: rented boxes mount their volumes with mode 0777, often on file systems without modes, and have no
second user.

With jobs of a cluster the state directory must be shared with the nodes; on one machine it must not be. Both are warnings,
because the name of a file system does not show how a site has configured it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from supervisor import lack, trust
from supervisor.config.validation import DEFAULT, Origin, Validation
from supervisor.filesystems import MEMORY, kind_of, shared, unsafe
from supervisor.model.settings import Paths
from supervisor.users import name_of

LEAST_FREE_BYTES: Final = 64 * 2**20
MOST_SOCKET_BYTES: Final = 107  # sun_path less its closing NUL, unix(7)


def user_of(paths: Paths) -> int:
    """The user that the daemon of this state directory runs as: the directory's owner if root calls, else the current user.

    Root checks the file of a service that has its own user. The obvious alternative, a check with root's own identity,
    would refuse each directory of that user.
    """
    uid = os.geteuid()
    try:
        return uid or Path(paths.state_dir).stat().st_uid
    except OSError:
        return uid


def check(
    validation: Validation, paths: Paths, state: Origin, runtime: Origin, programs: Iterable[str], uid: int | None = None,
    *, cluster: bool = False, others: str = "",
) -> None:  # fmt: skip
    """Add errors and warnings about both directories, and about the length of the sockets' paths in the second.

    `uid` is the user that the daemon will run as; without it, the current user. `cluster`: programs run on other hosts.
    `others`: a program that root starts as another user.
    """
    uid = os.geteuid() if uid is None else uid
    existing = _writable(validation, "state_dir", Path(paths.state_dir), state, uid)
    if existing is not None:
        _check_free_space(validation, paths, existing, state)
        if why := _place(kind_of(existing), cluster=cluster):
            validation.warn(state, f"daemon.state_dir: {existing} {why} with --state-dir")
        if others and (why := trust.why_movable(paths.state_dir, uid)):
            validation.error(state, f"daemon.state_dir: {why}, and {others} has another user, who must not; chmod go-w")
        elif why := _unsafe_permissions(Path(paths.state_dir), uid):
            validation.warn(state, f"daemon.state_dir: {why}; another user could replace checkpoints; chmod go-w")
    if _writable(validation, "runtime_dir", Path(paths.runtime_dir), runtime, uid) is not None:
        runtime_dir = Path(paths.runtime_dir)
        if why := _unsafe_permissions(runtime_dir, uid):
            validation.error(runtime, f"daemon.runtime_dir: {refusal(runtime_dir, why)}")
    sockets = [paths.socket, *map(paths.notify_socket, programs)]
    longest = max(sockets, key=lambda path: len(os.fsencode(path)))
    if (length := len(os.fsencode(longest))) > MOST_SOCKET_BYTES:
        validation.error(
            runtime,
            f"daemon.runtime_dir makes the path of a socket {length} bytes long, {longest}, "
            f"and the kernel allows {MOST_SOCKET_BYTES}; choose a shorter one with --runtime-dir",
        )


def check_file(validation: Validation, uid: int | None = None) -> None:
    """Warn if another user than `uid` could change the configuration: it names the commands that run as `uid`."""
    path = validation.source.path
    if path is not None and (why := unsafe_file(path, os.geteuid() if uid is None else uid)):
        validation.warn(validation.at(), f"{why}; chmod go-w")


def unsafe_file(path: str, uid: int) -> str:
    """Why another user decides what a daemon of `uid` with this configuration runs; empty: nobody else does."""
    why = _unsafe_permissions(Path(path), uid)
    return f"{why}, and so decides which commands run as {name_of(uid)}" if why else ""


def _place(kind: str, *, cluster: bool) -> str:
    """Why a file system of this kind is unsuitable, and what to choose; empty if it is suitable or unknown."""
    if cluster and kind and not shared(kind):
        return f"lies on {kind}, which nodes of the cluster do not see; choose a directory that they share"
    why = unsafe(kind, cluster=cluster)
    if not why or kind in MEMORY:  # a state in memory is for experiments, and `doctor` reports it
        return ""
    return f"{why}; choose a disk of this machine"


def _writable(validation: Validation, key: str, path: Path, origin: Origin, uid: int) -> Path | None:
    """The directory, or its nearest existing parent, if the user can write there; otherwise None and an error."""
    name, flag = f"daemon.{key}", f"--{key.replace('_', '-')}"
    try:
        existing = next(each for each in (path, *path.parents) if os.path.lexists(each))
        if not existing.is_dir():
            validation.error(origin, f"{name}: {existing} is not a directory; choose another place with {flag}")
        elif existing not in {path, path.parent} and origin.kind != DEFAULT:
            validation.error(
                origin, f"{name}: {path.parent} does not exist; create it, mount its disk, or choose with {flag}"
            )
        elif os.statvfs(existing).f_flag & os.ST_RDONLY:
            validation.error(origin, f"{name}: {existing} lies on a read-only file system; choose another place with {flag}")
        elif existing == path and existing.stat().st_uid != uid:
            owner, us = name_of(existing.stat().st_uid), name_of(uid)
            validation.error(origin, f"{name}: {path} belongs to {owner}, not to {us}; run as {owner} or choose with {flag}")
        elif not _may_use(existing, uid, exists=existing == path):
            who = name_of(uid)
            validation.error(
                origin, f"{name}: {existing} is read-only for {who}; change its mode or choose another with {flag}"
            )
        else:
            return existing
    except OSError as error:
        lack.check(error)
        validation.error(origin, f"{name}: {path} cannot be used: {error.strerror}; choose another place with {flag}")
    return None


def _may_use(directory: Path, uid: int, *, exists: bool) -> bool:
    """Whether the user may read and write there. Root creates a missing directory and gives it to the user."""
    if uid == os.geteuid() or not exists:
        return os.access(directory, os.R_OK | os.W_OK | os.X_OK)
    return directory.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU


def _unsafe_permissions(path: Path, uid: int) -> str:
    try:
        return trust.why_untrusted(path, uid)
    except OSError as error:
        lack.check(error)
        return f"{error.filename} cannot be read: {error.strerror}"
    except ValueError as error:  # a name that no file can have
        return f"{path!r} cannot be a path: {error}"


def refusal(path: str | Path, why: str) -> str:
    """The message about a runtime directory that `trust.why_untrusted` objects to."""
    return (
        f"{path} is not safe: {why}, and the daemon trusts the files in it; "
        f"remove that permission (chmod go-w), or choose another place with --runtime-dir"
    )


def _check_free_space(validation: Validation, paths: Paths, existing: Path, origin: Origin) -> None:
    free = os.statvfs(existing)
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes >= LEAST_FREE_BYTES and (free.f_favail or not free.f_files):
        return
    shortage = f"only {free_bytes >> 20} MiB are free" if free_bytes < LEAST_FREE_BYTES else "no inode is free"
    sentence = (
        f"daemon.state_dir: {shortage} for {paths.state_dir}, at least {LEAST_FREE_BYTES >> 20} MiB are needed; "
        f"make room or choose another place with --state-dir"
    )
    if Path(paths.journal).exists():
        validation.warn(origin, sentence)
    else:
        validation.error(origin, sentence)
