"""A supervisord.conf, read as supervisord 4.3 reads it: includes, inline comments, `%(...)s`, numprocs.

Every error is one sentence with file and section. Sizes and numbers are bounded. Like Supervisor, `read` ignores an include
inside an included file.
"""

from __future__ import annotations

import configparser
import glob
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor.ctl.outcome import GENERIC, Failed

_MOST_BYTES: Final = 4 << 20
_MOST_FILES: Final = 1000
_MOST_PROCESSES: Final = 1000
_PLACE: Final = re.compile(r"%(?:%|\((\w+)\)(0?\d*)([sdx]))")
_TRUE: Final = {"yes", "true", "on", "1"}
_FALSE: Final = {"no", "false", "off", "0"}
_UNITS: Final = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


@dataclass(slots=True)
class Section:
    """One section: its keys as written in the file, and the file. `used` collects the keys that callers have read."""

    name: str
    keys: dict[str, str]
    file: Path
    expansions: dict[str, str | int]
    used: set[str] = field(default_factory=set)
    from_environment: dict[str, set[str]] = field(default_factory=dict)  # by key: variables whose present value it got

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def title(self) -> str:
        return self.name.partition(":")[2].strip()

    def text(self, key: str, default: str = "", more: Mapping[str, str | int] | None = None) -> str:
        """The value with its `%(...)s` expanded. Raises Failed."""
        self.used.add(key)
        return self.expanded(key, self.keys[key], more) if key in self.keys else default

    def expanded(self, key: str, value: str, more: Mapping[str, str | int] | None = None) -> str:
        known = {**self.expansions, **(more or {})}

        def one(match: re.Match[str]) -> str:
            if match[1] is None:
                return "%"
            if match[1] not in known:
                raise self.wrong(key, f"%({match[1]}) is nothing that Supervisor expands here")
            if match[1].startswith("ENV_"):
                self.from_environment.setdefault(key, set()).add(match[1].removeprefix("ENV_"))
            try:
                return f"%{match[2]}{match[3]}" % known[match[1]]
            except (TypeError, ValueError) as error:
                raise self.wrong(key, str(error)) from None

        return _PLACE.sub(one, value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.text(key, "true" if default else "false").lower()
        if value not in _TRUE | _FALSE:
            raise self.wrong(key, f"{value!r} is neither true nor false")
        return value in _TRUE

    def whole(self, key: str, default: int) -> int:
        value = self.text(key, str(default))
        try:
            return int(value)
        except ValueError:
            raise self.wrong(key, f"{value!r} is no whole number") from None

    def size_bytes(self, key: str, default: int) -> int:
        value = self.text(key, str(default)).lower()
        try:
            return int(value[:-2]) * _UNITS[value[-2:]] if value[-2:] in _UNITS else int(value)
        except ValueError:
            raise self.wrong(key, f"{value!r} is no size such as 50MB") from None

    def pairs(self, key: str, more: Mapping[str, str | int] | None = None) -> dict[str, str]:
        """`A="1",B=2` as Supervisor reads it."""
        lexer = shlex.shlex(self.text(key, more=more))
        lexer.wordchars += "/.+-():"
        try:
            tokens = list(lexer)
        except ValueError as error:
            raise self.wrong(key, str(error)) from None
        found = {}
        while tokens:
            name, equals, value, *rest = [*tokens, "", "", ""]
            if equals != "=" or not value:
                raise self.wrong(key, f"no NAME=VALUE at {name!r}")
            found[name] = value.strip("'\"")
            left = [token for token in rest if token]
            tokens = left[1:] if left[:1] == [","] else left
        return found

    def wrong(self, key: str, what: str) -> Failed:
        return Failed(f"{self.file}: [{self.name}] {key}: {what}", GENERIC)


def read(path: Path) -> list[Section]:
    """Every section, in the order of the files. Raises Failed."""
    here = path.resolve().parent
    sections = _one_file(path, here)
    included = [path.resolve()]
    for each in [section for section in sections if section.kind == "include"]:
        for pattern in each.text("files").split():
            for found in sorted(map(Path, glob.glob(str(here / pattern)))):  # noqa: PTH207  the pattern may be absolute
                if found.resolve() in included:
                    continue
                included.append(found.resolve())
                if len(included) > _MOST_FILES:
                    raise Failed(f"{path}: [include] names more than {_MOST_FILES} files", GENERIC)
                sections += [s for s in _one_file(found, found.resolve().parent) if s.kind != "include"]
    return sections


def _one_file(path: Path, here: Path) -> list[Section]:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}", GENERIC) from None
    if len(data) > _MOST_BYTES:
        raise Failed(f"{path}: has more than {_MOST_BYTES >> 20} MiB: this is no supervisord.conf", GENERIC)
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False, default_section="\0")
    try:
        parser.read_string(data.decode(), source=str(path))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise Failed(f"{path}: is no supervisord.conf: {' '.join(str(error).split())}", GENERIC) from None
    expansions: dict[str, str | int] = {f"ENV_{key}": value for key, value in os.environ.items()}
    expansions |= {"here": str(here), "host_node_name": socket.gethostname()}
    return [Section(name, dict(parser.items(name)), path, expansions) for name in parser.sections()]


def processes(section: Section, group: str) -> Iterator[tuple[str, dict[str, str | int]]]:
    """(name, its expansions) of each process of a [program:x]. Raises Failed."""
    number, first = section.whole("numprocs", 1), section.whole("numprocs_start", 0)
    if not 1 <= number <= _MOST_PROCESSES:
        raise section.wrong("numprocs", f"is {number}, and 1 to {_MOST_PROCESSES} can be taken over")
    seen: set[str] = set()
    for at in range(first, first + number):
        more: dict[str, str | int] = {
            "program_name": section.title, "group_name": group, "process_num": at, "numprocs": number,
        }  # fmt: skip
        name = section.text("process_name", section.title, more)
        if name in seen:
            raise section.wrong("process_name", f"gives two processes the name {name}; it needs %(process_num)s")
        seen.add(name)
        yield name, more
