"""Default paths of the config file, the state directory and the runtime directory.

This is separate from the configuration because `extralifectl` needs only these to find the socket, and needs them fast. So
it has no dataclasses and no pathlib: together they take longer to import than the daemon takes to answer.
"""

# pathlib takes 10 ms to import:
# ruff: noqa: PTH100, PTH110, PTH123

from __future__ import annotations

import os
from collections.abc import Mapping

from supervisor import files

ENV_CONFIG = "EXTRALIFE_CONFIG"
SYSTEM_CONFIG = "/etc/extralife/extralife.toml"
SYSTEM_STATE = "/var/lib/extralife"
_LARGEST_BYTES = 1 << 20
_ROOMY_BYTES = 256 << 20


def find_config(environ: Mapping[str, str]) -> str | None:
    """The config file if none was named: $EXTRALIFE_CONFIG, ./extralife.toml, the user's, the system's; else None."""
    if environ.get(ENV_CONFIG):
        return environ[ENV_CONFIG]
    return next((place for place in config_places(environ) if os.path.exists(place)), None)


def config_places(environ: Mapping[str, str]) -> list[str]:
    """The paths that are searched for a config file if none was named, in this order."""
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    places = ("extralife.toml", f"{home}/extralife/extralife.toml", SYSTEM_CONFIG)
    return [os.path.abspath(place) for place in places]


def daemon_table(path: str) -> dict[str, str]:
    """state_dir and runtime_dir of a config file, even if the rest of it is invalid. Raises OSError."""
    import tomllib

    text = files.read(path, _LARGEST_BYTES).decode("utf-8", "replace")
    try:
        table: object = tomllib.loads(text).get("daemon", {})
    except (ValueError, RecursionError):
        table = _scan(text)
    if not isinstance(table, dict):
        return {}
    return {key: table[key] for key in ("state_dir", "runtime_dir") if isinstance(table.get(key), str)}


def _scan(text: str) -> dict[str, str]:
    """The plain `key = "value"` lines of [daemon] in a text that is not valid TOML."""
    found, section = {}, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.partition("#")[0].strip(" []")
        elif section == "daemon":
            key, _, value = line.partition("=")
            value = value.strip()
            if value[:1] in {'"', "'"} and value.find(value[0], 1) > 0:
                found[key.strip()] = value[1 : value.find(value[0], 1)]
    return found


def pointer(default_dir: str, config: str) -> str:
    """The file that remembers the directories named by a config file, for times when that file cannot be read."""
    from hashlib import blake2b

    mark = blake2b(os.fsencode(os.path.abspath(config)), digest_size=4).hexdigest()
    return f"{default_dir}/directories-of-{mark}"


def pointed(config: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """state_dir and runtime_dir of the last daemon with this config file; empty if none is remembered.

    Without a config file, it tries all places of a config file: the file may be on a disk that is not mounted yet.
    """
    for default_dir in dict.fromkeys((state_dir_for(environ), SYSTEM_STATE)):
        for place in config_places(environ) if config is None else [config]:
            try:
                fd = files.open_regular(pointer(default_dir, place), follow=True)
                with open(fd, encoding="utf-8") as file:
                    lines = file.read(_LARGEST_BYTES).splitlines()
                    owner = os.fstat(file.fileno()).st_uid
            except (OSError, ValueError):
                continue
            trusted = owner in {0, os.geteuid()} or (os.geteuid() == 0 and default_dir == SYSTEM_STATE)
            if trusted and len(lines) == 3 and lines[0] == os.path.abspath(place):
                return {"state_dir": lines[1], "runtime_dir": lines[2]}
    return {}


def state_dir_for(environ: Mapping[str, str]) -> str:
    """The state directory if none is configured."""
    if environ.get("STATE_DIRECTORY"):  # systemd's, systemd.exec(5)
        return environ["STATE_DIRECTORY"].split(":")[0]
    if environ.get("INVOCATION_ID") and os.geteuid() == 0:  # a system service whose unit names no StateDirectory=
        return SYSTEM_STATE
    base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '/root')}/.local/state"
    return f"{base}/extralife"


def runtime_dir_for(state_dir: str, environ: Mapping[str, str]) -> str:
    """The runtime directory of a state directory: on tmpfs, and different for each state directory on this host.

    systemd's $RUNTIME_DIRECTORY; else /run/extralife (root), $XDG_RUNTIME_DIR/extralife or /dev/shm/extralife-UID,
    followed by eight hex digits from a hash of the state directory's path. A container's /dev/shm of 64 MiB belongs to its
    data loaders: while it is full, no worker could start. Then it is /run (root) or /tmp, which are on the container's disk.
    """
    if environ.get("RUNTIME_DIRECTORY"):
        return environ["RUNTIME_DIRECTORY"].split(":")[0]
    from hashlib import blake2b

    mark = blake2b(os.fsencode(os.path.abspath(state_dir)), digest_size=4).hexdigest()
    if os.geteuid() == 0 and os.access("/run", os.W_OK) and _on_tmpfs("/run"):
        return f"/run/extralife-{mark}"
    if environ.get("XDG_RUNTIME_DIR") and os.access(environ["XDG_RUNTIME_DIR"], os.W_OK):
        return f"{environ['XDG_RUNTIME_DIR']}/extralife-{mark}"
    shared = "/dev/shm"  # noqa: S108  0700, and its owner is checked before use
    sizes = os.statvfs(shared) if os.path.isdir(shared) else None  # noqa: PTH112
    others = ("/run", "/tmp") if sizes is None or sizes.f_blocks * sizes.f_frsize < _ROOMY_BYTES else ()  # noqa: S108
    place = next((each for each in others if os.access(each, os.W_OK)), shared)
    return f"{place}/extralife-{os.geteuid()}-{mark}"


def _on_tmpfs(path: str) -> bool:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            kinds = [words[2] for words in map(str.split, mounts) if words[1:2] == [path]]
    except OSError:
        return False
    return bool(kinds) and kinds[-1] in {"tmpfs", "ramfs"}
