"""A box that doctor looks at: two games, and a host that is made of files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from supervisor import config
from supervisor.ctl.checks import Finding, Installation


def make(directory: Path, more: str = "") -> Installation:
    """State and runtime directory below it, and what stands for the host's root."""
    for name in ("state", "run", "root/proc/sys/kernel", "root/proc/self", "root/dev"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "root/proc/self/mounts").write_text("/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n")
    (directory / "config.toml").write_text(
        f'[daemon]\nstate_dir = "{directory}/state"\nruntime_dir = "{directory}/run"\n'
        f'[training]\nreplay_size = 50_000\n[program.Pong]\n[program.Breakout]\nalgo = "ppo"\n{more}'
    )
    loaded = config.load(str(directory / "config.toml"), {}, look=False)
    return Installation(loaded.settings, root=str(directory / "root"))


def with_settings(installation: Installation, **changed: object) -> Installation:
    assert installation.settings is not None
    return replace(installation, loaded=replace(installation.settings, **changed))


def levels(found: object) -> list[str]:
    return [each.level for each in found]


def told(found: object) -> str:
    """All of them, as a page would have it: to look for words in."""
    listed: list[Finding] = list(found)
    return json.dumps([each.as_json() for each in listed])


def write(installation: Installation, name: str, text: str = "") -> None:
    path = Path(f"{installation.root}/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
