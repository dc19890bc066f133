"""Records the log paths of one attempt in its directory: the configuration may name other paths when the attempt ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from supervisor.files import read_bounded

if TYPE_CHECKING:
    from supervisor.model.settings import Paths, ProgramSpec

CHANNELS: Final = ("stdout", "stderr")
_FILE: Final = "logs.json"
_MOST_BYTES: Final = 64 * 1024


def note(paths: Paths, spec: ProgramSpec, attempt: int, token: str) -> None:
    """Record the log paths, if they are not the usual ones. Raises OSError."""
    places = [paths.log_of(spec, channel) for channel in CHANNELS]
    if places != [paths.log(spec.name, channel) for channel in CHANNELS]:
        Path(paths.attempt_dir(spec.name, attempt, token), _FILE).write_text(json.dumps(places))


def read(paths: Paths, program: str, attempt: int, token: str) -> tuple[str, str]:
    """The log paths of standard output and standard error; empty: there is no log."""
    usual = paths.log(program, "stdout"), paths.log(program, "stderr")
    try:
        places = json.loads(read_bounded(f"{paths.attempt_dir(program, attempt, token)}/{_FILE}", _MOST_BYTES))
    except (ValueError, RecursionError):
        return usual
    if not isinstance(places, list) or len(places) != len(CHANNELS):
        return usual
    return str(places[0] or ""), str(places[1] or "")
