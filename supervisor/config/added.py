"""Programs that `extralifectl run` has added. Each has a file in the state directory, read together with the configuration.

So they survive a restart of the daemon and a reboot. `reread`, `update` and the kept last good configuration treat them
like all others. A section of the same name in the configuration wins. A file that cannot be read is a warning, and affects
only its own program.

Why not a request to the API: everybody who may stop a program could run any command as the daemon's user. Why not a fact:
the journal would keep the environment for ever.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Final

from supervisor import files, lack
from supervisor.config.validation import Source

DIRECTORY: Final = "added"
SUFFIX: Final = ".toml"
_LARGEST_BYTES: Final = 1 << 18


def path_of(state_dir: str, program: str) -> Path:
    """The path of the file for this added program. The file need not exist."""
    return Path(state_dir) / DIRECTORY / f"{program}{SUFFIX}"


def merged(source: Source, state_dir: str | None) -> tuple[Source, list[str]]:
    """The configuration with the added programs that it lacks, and one sentence for each program left out."""
    left_out: list[str] = []
    own = source.body.get("program")
    known = set(own) if isinstance(own, dict) else set()
    text, body, taken = source.text, source.body, dict[str, str]()
    for path in [] if state_dir is None else _files(state_dir):
        name = path.name.removesuffix(SUFFIX)
        if name in known:
            left_out.append(
                f"{path}: left out, because {source.where} has a program of that name; `extralifectl remove {name}`"
            )
            continue
        try:
            section = _read(path, name)
            body = tomllib.loads(f"{text.rstrip()}\n\n{section}")
        except (OSError, ValueError, RecursionError) as error:
            lack.check(error)
            left_out.append(f"{path}: left out: {error}; add the program again with `extralifectl run`")
            continue
        text, taken[name] = f"{text.rstrip()}\n\n{section}", str(path)
    return replace(source, text=text, body=body, added=taken), left_out


def _files(state_dir: str) -> list[Path]:
    try:
        return sorted(path for path in (Path(state_dir) / DIRECTORY).iterdir() if path.suffix == SUFFIX)
    except OSError as error:  # no program was added, or the caller may not read the directory
        lack.check(error)
        return []


def _read(path: Path, name: str) -> str:
    """The section's text. Raises ValueError for anything but one section of this name, and OSError."""
    data = files.read(path, _LARGEST_BYTES + 1, follow=False)
    if len(data) > _LARGEST_BYTES:
        raise ValueError("it is too large for a section")
    text = data.decode()
    found = tomllib.loads(text)
    if set(found) != {"program"} or not isinstance(found["program"], dict) or set(found["program"]) != {name}:
        raise ValueError(f"it is not the section [program.{name}]")
    return text
