"""Checks the sources of a foreign program's figures. `policy/script/figures.py` defines their meaning."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.config.tables import FIGURE_KEYS, Parsers
from supervisor.config.validation import Section, Validation, shown
from supervisor.model.settings import ProgramSpec
from supervisor.policy.script.figures import LONGEST_NAME, OTHER_NAMES, OWN, RESUMED, STEP, Sources
from workers.options import nearest

_MOST_PATTERNS: Final = 16
_LONGEST_PATTERN: Final = 1000
_MOST_NAMES: Final = 64
_FILES: Final = ("json_lines", "csv_glob", "events_glob")


def sources(section: Section, values: Mapping[str, Any], *, service: bool) -> Sources:
    """The checked sources. Mistakes go into the validation's errors, and then the result is not used."""
    if service:
        for key in FIGURE_KEYS:
            if key in section:
                section.refuse(key, ": a service is not judged by its figures; remove it, or the kind")
        return Sources()
    for text in values["log_regex"]:
        _check_pattern(section, text)
    made = Sources(
        tuple(values["log_regex"]), values["json_lines"], values["csv_glob"], values["events_glob"],
        _names(section, dict(values["figures"])), values["target_steps"], values["steps_begin_anew"],
    )  # fmt: skip
    if made.names and not made.globs:
        why = "groups of log_regex are figures by name"
        section.refuse("figures", f": has no effect without json_lines, csv_glob or events_glob; {why}")
    return made


def _patterns(value: Any) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise ValueError
    if len(given) > _MOST_PATTERNS:
        raise ValueError(f": has {len(given)} regular expressions; at most {_MOST_PATTERNS} are tried on each line")
    return given


def _check_pattern(section: Section, text: str) -> None:
    if len(text) > _LONGEST_PATTERN:
        section.refuse("log_regex", f": a regular expression of {len(text)} characters; write at most {_LONGEST_PATTERN}")
        return
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        section.refuse("log_regex", f": {shown(text)} is no regular expression: {error}")
        return
    if not pattern.groupindex:
        message = "has no named group: write the numbers that it finds as (?P<step>...), (?P<return>...), (?P<loss>...)"
        section.refuse("log_regex", f": {shown(text)} {message}")
    for group in pattern.groupindex:
        if group in OWN:
            section.refuse("log_regex", f": {group} is measured by extralife itself; give the group another name")
        elif len(group) > LONGEST_NAME:
            section.refuse("log_regex", f": the name of a group has at most {LONGEST_NAME} letters, not {len(group)}")


def _glob(value: str) -> str:
    try:
        next(Path("/proc/self/fdinfo").glob(value), None)  # pathlib refuses a wrong pattern at the first match
    except (ValueError, NotImplementedError, IndexError):
        raise ValueError from None
    if not value or ".." in Path(value).parts:
        raise ValueError
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    if len(value) > _MOST_NAMES:
        raise ValueError(f": has {len(value)} names; at most {_MOST_NAMES} are read")
    return value


PARSERS: Final[Parsers] = {"log_regex": _patterns, "figures": _table} | dict.fromkeys((*_FILES, "progress_glob"), _glob)


def _names(section: Section, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for given, key in table.items():
        figure = OTHER_NAMES.get(given, given)
        if figure in OWN:
            section.refuse("figures", f": {given} is measured by extralife itself; remove it")
        elif not figure or len(figure) > LONGEST_NAME or not figure.isprintable() or figure.startswith("share_"):
            section.refuse("figures", f": {shown(given)} is no name of a figure")
        elif not isinstance(key, str) or not key:
            section.refuse("figures", f": {given} must be the name of a key or a tag, a string, not {shown(key)}")
        elif figure in found:
            section.refuse("figures", f": {given} says the same as another key of it; remove one of the two")
        else:
            found[figure] = key
    others = [key for figure, key in found.items() if figure != STEP]  # `step` may share a curve with another figure
    if len(set(others)) < len(others):
        section.refuse("figures", ": two figures have the same key or tag; remove one of them")
    return tuple(sorted(found.items()))


def check_shared(validation: Validation, specs: Iterable[ProgramSpec]) -> None:
    """Refuse programs that write the same file or log of figures: nobody could tell whose each row is.

    Files that match the same pattern are divided while the programs run (`policy/script/file_owner.py`).
    """
    files: dict[str, str] = {}  # the first program of each file
    logs: dict[str, ProgramSpec] = {}
    for spec in specs:
        patterns = spec.sources_at(0)
        for key in _FILES:
            place = os.path.normpath(f"{spec.directory}/{getattr(patterns, key)}")
            if getattr(patterns, key) and spec.directory and not glob.has_magic(place):
                other = files.setdefault(place, spec.name)
                if other != spec.name:
                    message = f": {place} is the file of {other}, too, and their rows cannot be told apart"
                    do = "put {name} into it, or give each a directory"
                    validation.refuse(("program", spec.name, key), f"{message}; {do}")
        for channel in ("stdout", "stderr"):
            first = logs.setdefault(spec.log_place(channel), spec)
            if (
                first.name != spec.name
                and spec.log_place(channel).startswith("/")
                and (spec.figures.log_regex or first.figures.log_regex)
            ):
                message = f": {spec.log_place(channel)} is the log of {first.name}, too, and its lines cannot be told apart"
                path = ("program", spec.name, f"{channel}_log")
                validation.refuse(path, f"{message}; give each a log, or remove log_regex")


def progress_error(made: Sources) -> str:
    """Why these sources cannot be the source of progress; empty if they can."""
    if not made.read:
        return 'progress = "figures" needs log_regex, json_lines, csv_glob or events_glob'
    groups = set[str]()
    for text in made.log_regex:
        with contextlib.suppress(re.error, RecursionError, OverflowError):  # refused already
            groups |= {OTHER_NAMES.get(group, group) for group in re.compile(text).groupindex}
    if made.globs or groups & {STEP, RESUMED}:
        return ""
    near = next((group for group in sorted(groups) if nearest(group, [STEP])), "")
    hint = f"; did you mean {STEP} where it says {near}?" if near else ""
    return f'progress = "figures" needs the steps: no log_regex has a group (?P<step>...){hint}'
