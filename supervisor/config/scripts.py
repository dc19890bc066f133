"""The command of a user's own script: its words, its placeholders, and the values of the placeholders at one level.

This module knows which values a command takes from a level, so a mistake at the highest level is found when the file is
read. Each start fills in the command itself (`policy/worker/placeholders.py`).
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.config import shell_syntax
from supervisor.config.tables import Key
from supervisor.config.validation import Origin, Validation, label, shown
from supervisor.model.settings import Progress
from supervisor.policy.worker import placeholders
from supervisor.policy.worker.figures import SEED
from supervisor.policy.worker.placeholders import OF_LEVEL, RESUME, Template
from supervisor.records import dataclass
from workers.options import AUTO, EXTRA_GAMES, GAMES, OPTIONS, Value, nearest

# Options of a built-in game that a script may have too.
OWN_KEYS: Final = ("game", "seed", "num_envs", "batch_size", "fallback_batch", "threads")
_FIGURE_FILES: Final = ("json_lines", "csv_glob", "events_glob")
PATTERN_KEYS: Final = ("progress_glob", "checkpoint_glob", *_FIGURE_FILES)
_BASH: Final = "/bin/bash"
_GAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+-]{0,99}")
_EXAMPLE: Final = '["python", "train.py"]'

Options = dict[str, tuple[Value, Origin]]


@dataclass(frozen=True, slots=True)
class Command:
    """The words of a command, with its placeholders."""

    words: tuple[str, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    shell: bool = False


# --- the command ---------------------------------------------------------------------------------------------------------


def command(validation: Validation, name: str, table: Mapping[str, Any]) -> Command:
    """The command of a section. A command without words is wrong, and the validation has the error."""
    value, shell = table["command"], _flag(validation, name, "shell", table)
    if shell and not isinstance(value, str):
        message = f'must be one string where shell = true, such as "python train.py | tee log", not {shown(value)}'
        validation.refuse(name, "command", message)
        return Command()
    if shell:
        found = Command((*_shell_words(), value), (), True) if str(value).strip() else Command()
    elif isinstance(value, str):
        found = Command(_split(validation, name, value))
        if not found.words and value.strip():
            return found  # refused already
    else:
        found = _listed(validation, name, value)
        if not found.words and value != []:
            return found
    if not found.words or not found.words[0] or any("\0" in word for word in found.words):
        validation.refuse(name, "command", f"names no program; write it such as {_EXAMPLE}, without NUL characters")
        return Command()
    return found if _fits(validation, name, found) else Command()


def _flag(validation: Validation, name: str, key: str, table: Mapping[str, Any], *, default: bool = False) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        path = ("program", name, key)
        validation.error(validation.at(*path), f"{label(*path)} must be true or false, not {shown(value)}")
        return default
    return value


def _shell_words() -> tuple[str, ...]:
    """Bash if it exists: with its pipefail, `python train.py | tee log` fails when train.py fails."""
    return (_BASH, "-o", "pipefail", "-c") if Path(_BASH).exists() else ("/bin/sh", "-c")


def _split(validation: Validation, name: str, value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        validation.refuse(
            name, "command", f"cannot be split into words: {error}; close the quotation or give a list of strings"
        )
        return ()
    if shell_syntax.runs_shell(words):
        return words
    operators, replaced = shell_syntax.in_text(value)
    if operators:
        message = "no shell reads it: set shell = true, or quote what is meant as an argument"
        validation.refuse(name, "command", f"holds {' '.join(operators[:5])}, which is for a shell, and {message}")
        return ()
    if replaced:
        _warn(validation, name, replaced, "set shell = true, or quote literal text")
    return words


def _listed(validation: Validation, name: str, value: object) -> Command:
    """A list of words; a list within it is a group."""
    words: list[str] = []
    groups: list[tuple[int, int]] = []
    for item in value if isinstance(value, list) else [None]:
        if isinstance(item, str):
            words.append(item)
        elif isinstance(item, list) and item and words and all(isinstance(word, str) for word in item):
            groups.append((len(words), len(words) + len(item)))
            words += item
        else:
            validation.refuse(
                name, "command", f"must be a string or a list of strings, such as {_EXAMPLE}, not {shown(value)}"
            )
            return Command()
    odd = [] if shell_syntax.runs_shell(words) else shell_syntax.in_words(words[1:])
    if odd:
        _warn(validation, name, odd, "set shell = true and write one string, if a shell is to read it")
    return Command(tuple(words), tuple(groups))


def _fits(validation: Validation, name: str, found: Command) -> bool:
    """Whether all placeholders of the command exist, and none leaves half an option behind when it is empty."""
    wrong = [message for at in range(len(found.words)) if (message := _wrong_word(found, at))]
    if not wrong:
        empty = [found.words[first:end] for first, end in found.groups if not placeholders.uses(found.words[first:end])]
        message = "a list in it is removed when its placeholder is empty, and this one has none; write its words without it"
        wrong = [f"{message}: {shown(list(words))}" for words in empty]
    for message in wrong:
        validation.refuse(name, "command", message)
    return not wrong


def _wrong_word(found: Command, at: int) -> str:
    """The mistake in one word of a command; empty if there is none."""
    word = found.words[at]
    try:
        used = placeholders.uses([word])
    except ValueError as error:
        return f"cannot be filled in: {error}"
    if found.shell or RESUME not in used or any(first <= at < end for first, end in found.groups):
        return ""
    if at == 0:
        return "begins with {resume}, which is empty at a first start; name the program there"
    flag = found.words[at - 1]
    if word != "{resume}" or not flag.startswith("-"):
        return ""
    why = f"leaves {flag} alone at a first start, when {{resume}} is empty"
    return (
        f'{why}; write "{flag}={{resume}}", which is removed completely, or ["{flag}", "{{resume}}"] as a list in the list'
    )


def _warn(validation: Validation, name: str, words: list[str], do: str) -> None:
    message = f"{label('program', name, 'command')}: no shell reads it, so {' '.join(words[:5])} stays as it is; {do}"
    validation.warn(validation.at("program", name, "command"), message)


def used_in(validation: Validation, path: tuple[str, ...], text: str, *, secret: bool = False) -> frozenset[str] | None:
    """The placeholders of another text of a program; None if one is unknown. A secret never appears in a message."""
    try:
        return placeholders.uses([text])
    except ValueError as error:
        problem = "has braces that are no placeholder; write {{ and }} for braces" if secret else str(error)
        validation.error(validation.at(*path), f"{label(*path)}: {problem}")
        return None


def filled_patterns(validation: Validation, name: str, table: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """The section with the placeholders of its patterns filled in. `known`: those with the same value at each start.

    A rollback changes {seed}, so it stays in the patterns of files with figures until the start.
    """
    filled: dict[str, Any] = {}
    for key in PATTERN_KEYS:
        text = table.get(key)
        used = used_in(validation, ("program", name, key), text) if isinstance(text, str) else None
        if not isinstance(text, str) or used is None:
            continue
        values = {**known, "seed": SEED} if key in _FIGURE_FILES and "seed" in table else known
        if unknown := sorted(used - values.keys()):
            may = ", ".join(f"{{{each}}}" for each in sorted(values))
            message = f"{{{unknown[0]}}} is not known here, or not the same at each start; a pattern may hold {may}"
            validation.refuse(name, key, message, ":")
        else:
            filled[key] = placeholders.fill(text, {each: glob.escape(value) for each, value in values.items()})
    return {**table, **filled}


# --- the values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a program's placeholders at one level."""

    known: dict[str, str]
    of_level: frozenset[str]  # placeholders whose values come from the level
    num_envs: int | None = None
    batch_size: int | None = None
    fallback_batch: int | None = None
    game: str = ""


def own(validation: Validation, name: str, table: Mapping[str, Any]) -> Options | None:
    """The options of a built-in game that a script may have too; None: one is wrong."""
    found: Options = {}
    for key in OWN_KEYS:
        if key not in table:
            continue
        path = ("program", name, key)
        try:
            found[key] = _checked(key, table[key], label(*path)), validation.at(*path)
        except ValueError as error:
            validation.error(validation.at(*path), str(error))
        else:
            validation.note(label(*path), *found[key])
    return found if found.keys() == table.keys() & set(OWN_KEYS) else None


def _checked(key: str, value: object, name: str) -> Value:
    if key == "game":
        if isinstance(value, str) and _GAME.fullmatch(value):
            return value
        raise ValueError(f'{name} must be a word for {{game}}, such as "Pong" or "ALE/Pong-v5", not {shown(value)}')
    if value == AUTO:
        raise ValueError(f'{name} = "auto" is for built-in games; write a number, or leave it to the level')
    return Key(OPTIONS[key]).check(value, name)


def read_by_script(validation: Validation, name: str, table: Mapping[str, Any]) -> frozenset[str]:
    """`level_values`: the values of the level that the script itself reads from its environment."""
    value, path = table.get("level_values", []), ("program", name, "level_values")
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        validation.error(
            validation.at(*path), f'{label(*path)} must be a list such as ["num_envs", "batch_size"], not {shown(value)}'
        )
        return frozenset()
    for word in value:
        if word not in OF_LEVEL:
            hint = nearest(word, OF_LEVEL) or f"; there are {', '.join(OF_LEVEL)}"
            validation.error(validation.at(*path), f"{label(*path)}: {shown(word)} is no value of a level{hint}")
    return frozenset(value) & frozenset(OF_LEVEL)


def follows_level(validation: Validation, name: str, table: Mapping[str, Any], texts: Iterable[str]) -> bool:
    """Whether a climb restarts it with the settings of another level: by default if it names a way to resume.

    `texts`: its command and its environment. A list of `level_values` asks for other values, as the key itself does.
    """
    signs = ("{resume}", placeholders.variable(RESUME))
    named = {"checkpoint_glob", "level_values"} & table.keys() or any(sign in text for text in texts for sign in signs)
    return _flag(validation, name, "follows_level", table, default=bool(named) or table.get("progress") == Progress.BEAT)


def values(
    validation: Validation, name: str, given: Options, used: frozenset[str], *, load: Options, level: str,
    more: Mapping[str, str], service: bool,
) -> Values | None:  # fmt: skip
    """The values of a program at one level; None if a placeholder has none. `used`: its placeholders; `more`: no options."""
    own_game = given["game"][0] if "game" in given else name if name in (*GAMES, *EXTRA_GAMES) else ""
    at_level = {key: value for key, (value, _) in load.items()} | {"level": level}
    mine = {key: value for key, (value, _) in given.items() if key != "fallback_batch"}
    known: dict[str, Value] = {key: at_level[key] for key in OF_LEVEL if key in used}
    known |= {**({"game": own_game} if own_game else {}), **mine, **more}
    wrong = _missing(used, known, given, service=service)
    for message in wrong:
        validation.error(validation.at("program", name), f"{label('program', name)}: {message}")
    _warn_unused(validation, name, given, used)
    if wrong:
        return None
    for key in sorted(used & load.keys() - given.keys()):
        validation.note(label("program", name, key), *load[key])
    return Values(
        {key: str(value) for key, value in known.items()}, used & frozenset(OF_LEVEL) - given.keys(),
        _number(known, "num_envs"), _number(known, "batch_size"),
        int(given["fallback_batch"][0]) if "fallback_batch" in given else None, str(own_game),
    )  # fmt: skip


def _missing(used: frozenset[str], known: Mapping[str, Value], given: Options, *, service: bool) -> list[str]:
    """An error message for each placeholder without a value."""
    needs = (("seed", "seed = 1, or seeds = [1, 2, 3]"), ("game", 'game = "Pong"'), ("gpu", "gpu = 0"))
    found = [f"{{{key}}} has no value here; set {do}" for key, do in needs if key in used and key not in known]
    at_level = [key for key in OF_LEVEL if key in used and key not in given]
    if service and at_level:
        found.append(f"{{{at_level[0]}}} is a value of the level, and a service has none; write the value itself")
    return found


def _number(found: Mapping[str, Value], key: str) -> int | None:
    return int(found[key]) if key in found else None


def _warn_unused(validation: Validation, name: str, given: Options, used: frozenset[str]) -> None:
    key = label("program", name)
    for option in given:
        wanted = "batch_size" if option == "fallback_batch" else option
        if wanted not in used:
            why = f"only a script that reads {placeholders.variable(wanted)} takes it"
            why += f", because {{{wanted}}} is not used in command, env or directory"
            validation.warn(given[option][1], f"{key}.{option}: {why}")
    fallback, batch = given.get("fallback_batch"), given.get("batch_size")
    if fallback is not None and batch is not None and int(fallback[0]) >= int(batch[0]):
        validation.warn(
            fallback[1],
            f"{key}: fallback_batch {fallback[0]} is no smaller than batch_size {batch[0]} and has no effect",
        )


def template(found: Command, made: Values) -> Template:
    """The template from which each start fills in the command."""
    return Template(tuple(sorted(made.known.items())), found.groups, found.shell)
