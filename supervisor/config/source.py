"""Reads a configuration file: TOML with the line of each key, or one sentence that says why it cannot be read.

tomllib reports no positions, and any library that does would be one more dependency of the daemon. So the text of a file
that tomllib has accepted is searched for the lines of its keys. Only strings, comments and brackets can mislead that search.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from supervisor import files, lack
from supervisor.config.validation import ConfigError, Source

DEFAULT_NAME: Final = "the embedded default"
# For a first try: two real games, at a load that fits two cores and 4 GiB of memory.
DEFAULT_TOML: Final = """\
[level]
name = "light"
slots = 2
num_envs = 8
batch_size = 64

[training]
replay_ratio = 1.0
replay_size = 50_000
learning_starts = 2_000

[program.Pong]

[program.Breakout]
"""
_LARGEST_BYTES: Final = 1 << 20
_PIECE: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}"  # multi-line strings; up to two quotes may precede the closing ones
    r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'"  # strings
    r"|#[^\n]*|\n|[\[\]{}=]|[^\"'#\n\[\]{}=]+",
    re.DOTALL,
)  # fmt: skip
_SUPERVISORS: Final = re.compile(r"^\[(?:supervisord\]|program:)", re.MULTILINE)
_POSITION: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def read(path: str | None) -> Source:
    """The parsed file, or the embedded default for None. Raises ConfigError with one sentence."""
    return parsed(DEFAULT_NAME if path is None else path, path, DEFAULT_TOML if path is None else _text(path))


def parsed(where: str, path: str | None, text: str, *, is_kept: bool = False) -> Source:
    """A configuration's parsed text. Messages call it `where`. Raises ConfigError."""
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if _SUPERVISORS.search(text):
            how = f"`extralifectl import {where} --out extralife.toml` makes one of extralife's of it"
            raise ConfigError([f"{where}: is a configuration of Supervisor's; {how}"]) from None
        raise ConfigError([_sentence(where, text, str(error))]) from None
    except RecursionError:
        raise ConfigError([f"{where}: not valid TOML: it is nested too deeply; remove the extra brackets"]) from None
    except ValueError as error:  # a number with more digits than Python parses
        raise ConfigError([f"{where}: not valid TOML: {error}; write a smaller number"]) from None
    absolute = None if path is None else str(Path(path).absolute())
    return Source(where, absolute, body, lines(text), text, is_kept)


def _text(path: str) -> str:
    try:
        data = files.read(path, _LARGEST_BYTES + 1)
    except OSError as error:
        lack.check(error)
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; name another file with -c"]) from None
    except ValueError as error:  # a NUL in the name
        raise ConfigError([f"{path!r}: cannot be read: {error}; name another file with -c"]) from None
    if len(data) > _LARGEST_BYTES:
        raise ConfigError([f"{path}: is larger than 1 MiB and no configuration; name another file with -c"])
    try:
        return data.decode("utf-8-sig")  # editors on Windows write a byte order mark, which TOML does not allow
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError([f"{path}, line {line}: is not UTF-8 text; save the file as UTF-8"]) from None


def _sentence(where: str, text: str, error: str) -> str:
    found = _POSITION.fullmatch(error)
    if found is None:
        return f"{where}: not valid TOML: {error}"
    if found[2] is None:
        last = text.count("\n") + 1
        return f"{where}, line {last}: not valid TOML: {found[1]} at the end of the file; it seems to be cut off"
    return f"{where}, line {found[2]}, column {found[3]}: not valid TOML: {found[1]}; correct this line"


def toml(value: str) -> str:
    """A TOML string: JSON's escapes are valid TOML, but JSON does not escape DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key and table of a valid TOML text, by its path, such as ("program", "Pong", "lr")."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    number, depth, statement, began, in_value = 1, 0, "", 1, False
    for piece in _PIECE.findall(text.replace("\r\n", "\n")):
        if piece == "\n" and not depth:
            if not in_value and statement.strip():  # the header of a table; keys are noted at their "="
                table = _note(found, (), statement.strip().strip("[]"), began)
            statement, in_value = "", False
        elif in_value:
            depth += (piece in "[{") - (piece in "]}")
        elif piece == "=":
            _note(found, table, statement, began)
            in_value = True
        elif not piece.startswith("#"):
            began = began if statement.strip() else number
            statement += piece
        number += piece.count("\n")
    if not in_value and statement.strip():
        _note(found, (), statement.strip().strip("[]"), began)
    return found


def _note(found: dict[tuple[str, ...], int], table: tuple[str, ...], key: str, line: int) -> tuple[str, ...]:
    """The whole path of `key` inside `table`. It is noted together with all tables that it opens."""
    path = table + _path(key)
    for end in range(len(table) + 1, len(path) + 1):
        found.setdefault(path[:end], line)
    return path


def _path(key: str) -> tuple[str, ...]:
    """The parts of a key such as `program."my run".lr`, by TOML's own rules."""
    try:
        value: Any = tomllib.loads(f"{key.strip()} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    parts: list[str] = []
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)
