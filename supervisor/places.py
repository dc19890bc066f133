"""Where the config file, the state directory and the runtime directory are when nobody named them.

Apart from the configuration itself because `supervisorctl` needs only this to find the socket, and needs it fast: no
dataclasses, no pathlib, which together take longer to import than the daemon takes to answer.
"""

# pathlib takes 10 ms to import:
# ruff: noqa: PTH100, PTH113, PTH123

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_CONFIG = "EXTRALIFE_CONFIG"


def find_config(environ: Mapping[str, str]) -> str | None:
    """The config file when none was named: $EXTRALIFE_CONFIG, ./extralife.toml, the user's, the system's; else None."""
    if environ.get(ENV_CONFIG):
        return environ[ENV_CONFIG]
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    places = ("extralife.toml", f"{home}/extralife/extralife.toml", "/etc/extralife/extralife.toml")
    return next((os.path.abspath(place) for place in places if os.path.isfile(place)), None)


def state_dir_for(environ: Mapping[str, str]) -> str:
    """The state directory when none is configured."""
    if environ.get("STATE_DIRECTORY"):  # systemd's, systemd.exec(5)
        return environ["STATE_DIRECTORY"].split(":")[0]
    if environ.get("INVOCATION_ID") and os.geteuid() == 0:  # a system service whose unit names no StateDirectory=
        return "/var/lib/extralife"
    base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '/root')}/.local/state"
    return f"{base}/extralife"


def runtime_dir_for(state_dir: str, environ: Mapping[str, str]) -> str:
    """The runtime directory of a state directory: on tmpfs, and another one for each state directory on this host.

    systemd's $RUNTIME_DIRECTORY, else /run/extralife (root), $XDG_RUNTIME_DIR/extralife or /dev/shm/extralife-UID,
    with eight hex digits of the state directory's path behind.
    """
    if environ.get("RUNTIME_DIRECTORY"):
        return environ["RUNTIME_DIRECTORY"].split(":")[0]
    from hashlib import blake2b

    mark = blake2b(os.fsencode(os.path.abspath(state_dir)), digest_size=4).hexdigest()
    if os.geteuid() == 0 and os.access("/run", os.W_OK) and _on_tmpfs("/run"):
        return f"/run/extralife-{mark}"
    if environ.get("XDG_RUNTIME_DIR") and os.access(environ["XDG_RUNTIME_DIR"], os.W_OK):
        return f"{environ['XDG_RUNTIME_DIR']}/extralife-{mark}"
    return f"/dev/shm/extralife-{os.geteuid()}-{mark}"  # noqa: S108  0700, and its owner is checked before use


def _on_tmpfs(path: str) -> bool:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            kinds = [words[2] for words in map(str.split, mounts) if words[1:2] == [path]]
    except OSError:
        return False
    return bool(kinds) and kinds[-1] in {"tmpfs", "ramfs"}
