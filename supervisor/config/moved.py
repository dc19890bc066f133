"""Adapts a configuration from another box: sets the few settings that name paths on this box.

Only the lines of these settings change, so comments and everything else stay as their author wrote them. The result is
parsed again. A file in an unusual form (an inline table, a value over several lines) is refused rather than guessed at.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from supervisor.config.source import lines, toml
from supervisor.config.tables import DIRECTORIES

_VALUE = re.compile(r"=.*$", re.DOTALL)


class NotMoved(ValueError):
    """The text has a form in which these settings cannot be replaced. The message is one sentence."""


def moved(text: str, wanted: Mapping[tuple[str, str], str | None]) -> str:
    """`text` with these values, by (section, key); None comments a key out. Raises NotMoved.

    Example: `state_dir = "/a"  # mine` below `[daemon]`, with {("daemon", "state_dir"): "/b"}: `state_dir = "/b"`.
    """
    rows = text.split("\n")
    try:
        places = lines(text) if tomllib.loads(text) is not None else {}
    except tomllib.TOMLDecodeError as error:
        raise NotMoved(f"it is not valid TOML: {error}") from error
    added: dict[str, list[str]] = {}
    for (section, key), value in wanted.items():
        at = places.get((section, key))
        if at is not None:
            rows[at - 1] = f"# {rows[at - 1]}" if value is None else _VALUE.sub(f"= {toml(value)}", rows[at - 1], count=1)
        elif value is not None:
            added.setdefault(section, []).append(f"{key} = {toml(value)}")
    for section, more in added.items():
        header = next((n for n, row in enumerate(rows) if row.split("#")[0].strip() == f"[{section}]"), None)
        if header is None:
            rows = [*rows, f"[{section}]", *more, ""]
        else:
            rows[header] = "\n".join([rows[header], *more])
    made = "\n".join(rows)
    try:
        body = tomllib.loads(made)
        wrong = [f"{section}.{key}" for (section, key), value in wanted.items() if body.get(section, {}).get(key) != value]
    except (tomllib.TOMLDecodeError, AttributeError):
        wrong = [f"{section}.{key}" for section, key in wanted]
    if wrong:
        raise NotMoved(f"set {', '.join(wrong)} by hand: it is written in a form that cannot be edited automatically")
    return made


def here(
    state_dir: str, runtime_dir: str | None, repository: str, files: Mapping[str, str], sftp_command: str | None = None
) -> dict[tuple[str, str], str | None]:
    """The settings of a restored configuration that name paths. `files` are those of [offsite], by key.

    `sftp_command` is this box's. None: the one in the text names a key of the other box, so it is removed.
    """
    directories = dict(zip(DIRECTORIES, (state_dir, runtime_dir), strict=True))
    found: dict[tuple[str, str], str | None] = {("daemon", key): value for key, value in directories.items()}
    found |= {("offsite", "repository"): repository, ("offsite", "sftp_command"): sftp_command}
    return found | {("offsite", key): value for key, value in files.items()}
