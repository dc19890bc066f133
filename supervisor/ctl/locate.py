"""Where the daemon's socket and state directory are: by flag, environment or the daemon's configuration.

This needs only two keys of the configuration, and ignores all mistakes in the rest. After a bad edit, a user must still be
able to query the running daemon, above all about that edit. A few actions need all settings, which takes longer than most
actions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from supervisor import places
from supervisor.ctl.outcome import Failed, Options

if TYPE_CHECKING:
    from supervisor.config import Loaded
    from supervisor.model.settings import Settings


def socket_path(options: Options) -> str:
    """The control socket of the daemon that the options and the environment name. Raises Failed."""
    state_dir, runtime_dir = _directories(options)
    return f"{runtime_dir or places.runtime_dir_for(state_dir, os.environ)}/supervisor.sock"


def state_dir(options: Options) -> str | None:
    """The state directory; None if only a socket was given, because a socket does not identify it."""
    if options.socket is not None and options.config_file is None and options.state_dir is None:
        return None
    return _directories(options)[0]


def load(options: Options, *, secrets: bool = False) -> Loaded:
    """The whole configuration, as by a client; `secrets`: with the files of secrets that it names. Raises ConfigError."""
    from supervisor import config

    flags = {"state_dir": options.state_dir} if options.state_dir is not None else {}
    return config.load(options.config_file, os.environ, flags, look=secrets)


def settings(options: Options, *, secrets: bool = False) -> Settings | None:
    """All settings; None if they cannot be read, and then there is less to show."""
    from supervisor.config import ConfigError

    try:
        return load(options, secrets=secrets).settings
    except ConfigError:
        return None


def _directories(options: Options) -> tuple[str, str | None]:
    table = _daemon_table(options.config_file or places.find_config(os.environ), named=options.config_file is not None)
    state = options.state_dir or os.environ.get("EXTRALIFE_STATE_DIR") or table.get("state_dir")
    runtime = os.environ.get("EXTRALIFE_RUNTIME_DIR") or table.get("runtime_dir")
    return _absolute(state or places.state_dir_for(os.environ)), _absolute(runtime) if runtime else None


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111  pathlib takes 10 ms to import


def _daemon_table(path: str | None, *, named: bool) -> dict[str, str]:
    """state_dir and runtime_dir of a configuration; if it cannot be read, those that its newest daemon used."""
    error: OSError | None = None
    if path is not None:
        try:
            return places.daemon_table(path)
        except OSError as unreadable:
            error = unreadable
    table = places.pointed(path, os.environ)
    if error is not None and named and not table:
        raise Failed(f"{path}: cannot be read: {error.strerror}; name another file with -c") from None
    return table
