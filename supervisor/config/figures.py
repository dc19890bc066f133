"""Checks the sources of a foreign program's figures. `policy/worker/figures.py` defines their meaning."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from supervisor.config.tables import FIGURE_KEYS
from supervisor.config.validation import Validation, shown
from supervisor.model.settings import ProgramSpec
from supervisor.policy.worker.figures import LONGEST_NAME, OTHER_NAMES, OWN, RESUMED, STEP, Sources
from workers.options import nearest

_MOST_PATTERNS: Final = 16
_LONGEST_PATTERN: Final = 1000
_MOST_NAMES: Final = 64
_MOST_STEPS: Final = 2**63 - 1


def sources(
    validation: Validation, name: str, table: Mapping[str, Any], *, service: bool, is_glob: Callable[[str], bool]
) -> Sources:
    """The checked sources. Mistakes go into the validation's errors, and then the result is not used."""
    if service:
        for key in FIGURE_KEYS:
            if key in table:
                validation.refuse(name, key, "a service is not judged by its figures; remove it, or the kind", ":")
        return Sources()
    made = Sources(
        log_regex=_patterns(validation, name, table.get("log_regex", [])),
        json_lines=_glob(validation, name, "json_lines", table, is_glob),
        csv_glob=_glob(validation, name, "csv_glob", table, is_glob),
        events_glob=_glob(validation, name, "events_glob", table, is_glob),
        names=_names(validation, name, table.get("figures", {})),
        target_steps=_target(validation, name, table.get("target_steps")),
        begin_anew=_flag(validation, name, table.get("steps_begin_anew")),
    )
    if made.names and not made.globs:
        validation.refuse(
            name,
            "figures",
            "has no effect without json_lines, csv_glob or events_glob; groups of log_regex are figures by name",
            ":",
        )
    return made


def _patterns(validation: Validation, name: str, value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        message = f"must be a regular expression or a list of them, such as 'step=(?P<step>\\d+)', not {shown(value)}"
        validation.refuse(name, "log_regex", message, ":")
        return ()
    if len(given) > _MOST_PATTERNS:
        validation.refuse(
            name, "log_regex", f"has {len(given)} regular expressions; at most {_MOST_PATTERNS} are tried on each line", ":"
        )
        return ()
    for each in given:
        _check_pattern(validation, name, each)
    return tuple(given)


def _check_pattern(validation: Validation, name: str, text: str) -> None:
    if len(text) > _LONGEST_PATTERN:
        validation.refuse(
            name, "log_regex", f"a regular expression of {len(text)} characters; write at most {_LONGEST_PATTERN}", ":"
        )
        return
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        validation.refuse(name, "log_regex", f"{shown(text)} is no regular expression: {error}", ":")
        return
    if not pattern.groupindex:
        message = "has no named group: write the numbers that it finds as (?P<step>...), (?P<return>...), (?P<loss>...)"
        validation.refuse(name, "log_regex", f"{shown(text)} {message}", ":")
    for group in pattern.groupindex:
        if group in OWN:
            validation.refuse(
                name, "log_regex", f"{group} is measured by extralife itself; give the group another name", ":"
            )
        elif len(group) > LONGEST_NAME:
            validation.refuse(
                name, "log_regex", f"the name of a group has at most {LONGEST_NAME} letters, not {len(group)}", ":"
            )


def _glob(validation: Validation, name: str, key: str, table: Mapping[str, Any], is_glob: Callable[[str], bool]) -> str:
    value = table.get(key, "")
    if key not in table:
        return ""
    if not isinstance(value, str) or not value or "\0" in value or not is_glob(value):
        message = f'must be a pattern inside the directory, such as "runs/**/*.jsonl", not {shown(value)}'
        validation.refuse(name, key, message, ":")
        return ""
    return value


def _names(validation: Validation, name: str, value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        validation.refuse(name, "figures", f'must be a table, such as {{ return = "eval/score" }}, not {shown(value)}', ":")
        return ()
    if len(value) > _MOST_NAMES:
        validation.refuse(name, "figures", f"has {len(value)} names; at most {_MOST_NAMES} are read", ":")
        return ()
    found: dict[str, str] = {}
    for given, key in value.items():
        figure = OTHER_NAMES.get(given, given)
        if figure in OWN:
            validation.refuse(name, "figures", f"{given} is measured by extralife itself; remove it", ":")
        elif not figure or len(figure) > LONGEST_NAME or not figure.isprintable() or figure.startswith("share_"):
            validation.refuse(name, "figures", f"{shown(given)} is no name of a figure", ":")
        elif not isinstance(key, str) or not key:
            validation.refuse(
                name, "figures", f"{given} must be the name of a key or a tag, a string, not {shown(key)}", ":"
            )
        elif figure in found:
            validation.refuse(name, "figures", f"{given} says the same as another key of it; remove one of the two", ":")
        else:
            found[figure] = key
    others = [key for figure, key in found.items() if figure != STEP]  # `step` may share a curve with another figure
    if len(set(others)) < len(others):
        validation.refuse(name, "figures", "two figures have the same key or tag; remove one of them", ":")
    return tuple(sorted(found.items()))


def _target(validation: Validation, name: str, value: object) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= _MOST_STEPS):
        return value
    validation.refuse(name, "target_steps", f"must be a whole number of steps, at least 1, not {shown(value)}", ":")
    return None


def _flag(validation: Validation, name: str, value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    validation.refuse(name, "steps_begin_anew", f"must be true or false, not {shown(value)}", ":")
    return None


def check_shared(validation: Validation, specs: Iterable[ProgramSpec]) -> None:
    """Refuse programs that write the same file or log of figures: nobody could tell whose each row is.

    Files that match the same pattern are divided while the programs run (`policy/worker/file_owner.py`).
    """
    files: dict[str, str] = {}  # the first program of each file
    logs: dict[str, ProgramSpec] = {}
    for spec in specs:
        patterns = spec.sources_at(0)
        for key in ("json_lines", "csv_glob", "events_glob"):
            place = os.path.normpath(f"{spec.directory}/{getattr(patterns, key)}")
            if getattr(patterns, key) and spec.directory and not glob.has_magic(place):
                other = files.setdefault(place, spec.name)
                if other != spec.name:
                    message = f"{place} is the file of {other}, too, and their rows cannot be told apart"
                    validation.refuse(spec.name, key, f"{message}; put {{name}} into it, or give each a directory", ":")
        for channel in ("stdout", "stderr"):
            first = logs.setdefault(spec.log_place(channel), spec)
            if (
                first.name != spec.name
                and spec.log_place(channel).startswith("/")
                and (spec.figures.log_regex or first.figures.log_regex)
            ):
                message = f"{spec.log_place(channel)} is the log of {first.name}, too, and its lines cannot be told apart"
                validation.refuse(spec.name, f"{channel}_log", f"{message}; give each a log, or remove log_regex", ":")


def progress_error(made: Sources) -> str:
    """Why these sources cannot be the source of progress; empty if they can."""
    if not made.read:
        return 'progress = "figures" needs log_regex, json_lines, csv_glob or events_glob'
    groups = {OTHER_NAMES.get(group, group) for text in made.log_regex for group in _groups(text)}
    if made.globs or groups & {STEP, RESUMED}:
        return ""
    near = next((group for group in sorted(groups) if nearest(group, [STEP])), "")
    hint = f"; did you mean {STEP} where it says {near}?" if near else ""
    return f'progress = "figures" needs the steps: no log_regex has a group (?P<step>...){hint}'


def _groups(text: str) -> tuple[str, ...]:
    try:
        return tuple(re.compile(text).groupindex)
    except (re.error, RecursionError, OverflowError):
        return ()
