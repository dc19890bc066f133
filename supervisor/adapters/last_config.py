"""The last good configuration: kept in the state directory, for a start that finds a bad one.

A mistake in the file, or a file on a disk that is not mounted yet, must not end a night of training at the next reboot. So
the daemon keeps each configuration that it runs with: text, variables and flags. The text alone is not enough: a bad
`RL_LR` in the unit makes a start fail too. The file that `alerts.urls_file` names is not copied, because it holds secrets;
a start that cannot read it sends no alerts to its URLs.

The first line of the kept file is the digest of the JSON below it. Its mode is 0600, because it may hold secrets. It is
written under another name and then renamed. The previous one stays as `.before`, in case the disk damages the newest. A
copy that another user could have written is not used.

Example: somebody writes `slots = -7` into the file, then the box loses power. The daemon starts with the kept text. It
reports that in `status`, /healthz, its log and an alert, until the file is corrected and loaded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from supervisor import config, files, places
from supervisor.adapters import durable
from supervisor.adapters.host import boot
from supervisor.config.whole_input import ConfigInput
from supervisor.model.settings import Paths
from supervisor.records import Record

_VERSION: Final = 1
_LARGEST_BYTES: Final = 8 << 20


class Kept(Record):
    """A configuration that a daemon has run with, and when it was kept."""

    given: ConfigInput
    wall_s: float
    state_dir: str  # where it was found

    @property
    def where(self) -> str:
        """Its name in messages."""
        when = datetime.fromtimestamp(self.wall_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        return f"{self.given.path or 'the embedded default'} as of {when}"


class Instead(Record):
    """Why a start does not use its own configuration, and which one it uses instead."""

    errors: tuple[str, ...]
    where: str


def keep(paths: Paths, given: ConfigInput, environ: Mapping[str, str], wall_s: float) -> str | None:
    """Keep this configuration, unless it is kept already. Returns an error sentence instead of raising: training goes on."""
    path = Path(paths.last_config)
    try:
        with contextlib.suppress(OSError, ValueError):
            if read(path).given == given:
                _record_directories(paths, given, environ)
                return None
        body = json.dumps({"version": _VERSION, "wall_s": wall_s, "given": given.to_json()})
        _write(path, f"{_digest(body)}\n{body}\n", keep_before=True)
        _record_directories(paths, given, environ)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"the configuration in use could not be kept as {error.filename or path}: {reason}"
        return f"{message}; the next start would use an older one"
    return None


def read(path: Path) -> Kept:
    """Read a kept file. Raises OSError, or ValueError if it is damaged or another user could have written it."""
    with open(files.open_regular(path), "rb") as file:  # noqa: PTH123
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ValueError(f"{path} could have been written by another user")
        data = file.read(_LARGEST_BYTES)
    digest, _, body = data.partition(b"\n")
    text = body.decode("utf-8", "replace").rstrip("\n")
    if digest.decode("ascii", "replace") != _digest(text):
        raise ValueError(f"{path} is damaged")
    value = durable.json_of(text)
    if value["version"] != _VERSION:
        raise ValueError(f"{path} was written by another version of extralife")
    return Kept(ConfigInput.from_json(value["given"]), float(value["wall_s"]), str(path.parent))


def find(config_file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Kept | None:
    """Find what the newest daemon of this configuration has kept, wherever its state directory is; None: nothing."""
    for state_dir in dict.fromkeys(_state_dirs(config_file, environ, flags)):
        newest = Path(Paths(state_dir, "").last_config)
        for path in (newest, _before(newest)):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return read(path)
    return None


def load(kept: Kept, environ: Mapping[str, str]) -> config.Loaded:
    """Load the settings and check them again. Raises ConfigError: the box or the version of extralife may have changed."""
    loaded = config.load_input(kept.given, environ, kept.where)
    if loaded.settings.paths.state_dir != kept.state_dir:
        used = loaded.settings.paths.state_dir
        raise config.ConfigError([f"{kept.where}: was kept in {kept.state_dir} but names state directory {used}"])
    return loaded


def loaded_before(paths: Paths, given: ConfigInput, environ: Mapping[str, str]) -> config.Loaded | None:
    """The configuration of the previous daemon; None: it is not known, or that of `given`."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, config.ConfigError):
        kept = read(Path(paths.last_config))
        return None if kept.given == given else load(kept, environ)
    return None


def in_place(
    errors: list[str], config_file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[config.Loaded, Instead] | None:
    """The configuration to start with instead of the one with these errors; None: none is kept, or a person is watching.

    Raises ConfigError with the errors of both when the kept one cannot be used either.
    """
    kept = find(config_file, environ, flags)
    if kept is None or _is_interactive(kept, environ):
        return None
    try:
        return load(kept, environ), Instead(tuple(errors), kept.where)
    except config.ConfigError as error:
        head = "the last good configuration cannot be used either:"
        raise config.ConfigError([*errors, head, *error.errors]) from None


def lost_file(config_file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> str:
    """An error sentence if the config file of the newest daemon is gone; empty: there is a file, or there never was one."""
    if config_file is not None or places.find_config(environ) is not None:
        return ""
    kept = find(None, environ, flags)
    if kept is None or kept.given.path is None:
        return ""
    return f"{kept.given.path}: is gone, or its disk is not mounted, and no other configuration is found"


def _is_interactive(kept: Kept, environ: Mapping[str, str]) -> bool:
    """Whether a person has just typed the command and reads why it was refused.

    A terminal alone does not prove that: a box may start `tmux new -d supervisord` at boot, with nobody in front of it. So
    the newest daemon must also have run in this same boot.
    """
    if environ.get("NOTIFY_SOCKET") or environ.get("EXTRALIFE_LISTEN_FD"):
        return False
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    mark = boot.read_mark(Path(Paths(kept.state_dir, "").alive))
    try:
        return mark is None or mark.boot_id == boot.read_boot(boot.BootFiles.of(environ)).boot_id
    except OSError:
        return False


def _state_dirs(config_file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Iterator[str]:
    """The possible state directories of a configuration that cannot be used, the most certain one first.

    If a flag or a variable names one, it is the only one: the user did not ask for a daemon of another directory.
    """
    named: list[object] = [each for each in (flags.get("state_dir"), environ.get("EXTRALIFE_STATE_DIR")) if each][:1]
    if not named:
        with contextlib.suppress(OSError, ValueError):
            if config_file is not None:
                named.append(places.daemon_table(config_file).get("state_dir"))
        named += [places.pointed(config_file, environ).get("state_dir"), places.state_dir_for(environ)]
    for each in named:
        if isinstance(each, str) and each and "\0" not in each:
            yield os.path.abspath(os.path.expanduser(each))  # noqa: PTH100, PTH111  as the configuration does


def _record_directories(paths: Paths, given: ConfigInput, environ: Mapping[str, str]) -> None:
    """Record the directories that the config file names: without the file, nothing else says where they are."""
    if given.path is None or "state_dir" in given.flags or "EXTRALIFE_STATE_DIR" in given.environ:
        return
    path = Path(places.pointer(places.state_dir_for(environ), given.path))
    text = f"{given.path}\n{paths.state_dir}\n{paths.runtime_dir}\n"
    if text.count("\n") != 3:  # a path contains a line break: the record could not be read back
        return
    with contextlib.suppress(OSError, ValueError):
        if files.read(path, _LARGEST_BYTES) == text.encode():
            return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, text, keep_before=False)
    except OSError as error:  # a container's user may have no home, and its root may be read-only
        if error.errno not in {errno.EACCES, errno.EROFS}:
            raise


def _write(path: Path, text: str, *, keep_before: bool) -> None:
    """Write under another name, sync, rename. Between the two renames only `.before` exists, and `find` reads it."""

    def keep() -> None:
        if keep_before and path.exists():
            files.make_room(_before(path))
            path.rename(_before(path))

    durable.replace(path, text.encode(), aside=path.with_name(f"{path.name}.new"), before_rename=keep)


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
