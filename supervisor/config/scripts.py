"""The command of a user's own script: its words, its placeholders, and the values of the placeholders at one level.

This module knows which values a command takes from a level, so a mistake at the highest level is found when the file is
read. Each start fills in the command itself (`policy/script/placeholders.py`).
"""

from __future__ import annotations

import contextlib
import glob
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.as_user import acting_as
from supervisor.config import background, elsewhere, shell_syntax
from supervisor.config.tables import Setting, given
from supervisor.config.validation import Origin, Section, shown
from supervisor.keys import Declaration
from supervisor.model.settings import Progress
from supervisor.policy.script import placeholders
from supervisor.policy.script.figures import SEED
from supervisor.policy.script.placeholders import OF_LEVEL, RESUME, Template
from supervisor.records import Record, replace
from workers.options import AUTO, EXTRA_GAMES, GAMES, OPTIONS, Option, Value

# Options of a built-in game that a script may have too.
OWN_KEYS: Final = ("game", "seed", "num_envs", "batch_size", "fallback_batch", "threads")
_FIGURE_FILES: Final = ("json_lines", "csv_glob", "events_glob")
PATTERN_KEYS: Final = ("progress_glob", "checkpoint_glob", *_FIGURE_FILES)
_BASH: Final = "/bin/bash"
_WORD: Final = Declaration(
    "", form='a word for {game}, such as "Pong" or "ALE/Pong-v5"', pattern="[A-Za-z0-9_][A-Za-z0-9_./:@+-]{0,99}"
)
_OWN: Final = {key: Setting.plain(OPTIONS[key]) for key in OWN_KEYS} | {
    "game": Setting(Option("game", str, None, ""), _WORD, None)
}
_EXAMPLE: Final = '["python", "train.py"]'

Options = dict[str, tuple[Value, Origin]]  # option -> value and where it came from


class Command(Record):
    """The words of a command, with its placeholders."""

    words: tuple[str, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    shell: bool = False


# --- the command ---------------------------------------------------------------------------------------------------------


def words(value: object, example: str = _EXAMPLE) -> tuple[str, ...]:
    """The words of a command in one string or in a list. Raises ValueError with a sentence that lacks the key before it."""
    try:
        found = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}; close the quotation or give a list of strings") from None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(f"must be a string or a list of strings, such as {example}, not {shown(value)}")
    if not found or not found[0] or any("\0" in word for word in found):
        raise ValueError(f"names no program; write it such as {example}, without NUL characters")
    return tuple(found)


def command(section: Section, *, shell: bool, service: bool) -> Command:
    """The command of a section. A command without words is wrong, and the validation has the error."""
    value = section.body["command"]
    leaves = background.mistake(value)
    try:
        if shell and not isinstance(value, str):
            example = '"python train.py | tee log"'
            raise ValueError(f"must be one string where shell = true, such as {example}, not {shown(value)}")
        if shell:
            words([value.strip()])
            # With bash's pipefail, `python train.py | tee log` fails when train.py fails.
            runs = (_BASH, "-o", "pipefail", "-c") if Path(_BASH).exists() else ("/bin/sh", "-c")
        found = Command((*runs, value), (), True) if shell else _command(section, value)
    except ValueError as error:
        section.refuse("command", "; ".join(filter(None, (str(error), leaves))))
        return Command()
    directory = section.body.get("directory")
    pattern = section.body.get("checkpoint_glob")
    saves = isinstance(pattern, str) and not elsewhere.is_store(pattern)

    def away(text: object) -> str:
        return "" if service else elsewhere.warning(text, saves=saves, remote=section.validation.remote)

    leaves = leaves or away(value)
    if not leaves and section.validation.look:
        user = section.body.get("user")
        with contextlib.suppress(PermissionError), acting_as(user if isinstance(user, str) else ""):
            leaves = background.in_shell(found.words, directory if isinstance(directory, str) else "", away)
    if leaves:
        section.warn("command", leaves)
    return found if _fits(section, found) else Command()


def _command(section: Section, value: object) -> Command:
    """A command that no shell reads. In a list of words, a list within it is a group."""
    flat: list[object] = []
    groups: list[tuple[int, int]] = []
    for item in value if isinstance(value, list) else ():
        is_group = isinstance(item, list) and item and flat and all(isinstance(word, str) for word in item)
        if is_group:
            groups.append((len(flat), len(flat) + len(item)))
        flat += item if is_group else [item]
    found = words(flat if isinstance(value, list) else value)
    if shell_syntax.runs_shell(found):
        return Command(found, tuple(groups))
    if isinstance(value, str):
        operators, literal = shell_syntax.in_text(value)
        if operators:
            message = "no shell reads it: set shell = true, or quote what is meant as an argument"
            raise ValueError(f"holds {' '.join(operators[:5])}, which is for a shell, and {message}")
        do = "set shell = true, or quote literal text"
    else:
        literal, do = shell_syntax.in_words(found[1:]), "set shell = true and write one string, if a shell is to read it"
    literal = [word for word in literal if word != "&" or not background.mistake(value)]
    if literal:
        section.warn("command", f"no shell reads it, so {' '.join(literal[:5])} stays as it is; {do}")
    return Command(found, tuple(groups))


def _fits(section: Section, found: Command) -> bool:
    """Whether all placeholders of the command exist, and none leaves half an option behind when it is empty."""
    wrong = [message for at in range(len(found.words)) if (message := _wrong_word(found, at))]
    if not wrong:
        empty = [found.words[first:end] for first, end in found.groups if not placeholders.uses(found.words[first:end])]
        message = "a list in it is removed when its placeholder is empty, and this one has none; write its words without it"
        wrong = [f"{message}: {shown(list(words))}" for words in empty]
    for message in wrong:
        section.refuse("command", message)
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


def used_in(section: Section, key: str, text: str, *, secret: bool = False) -> frozenset[str] | None:
    """The placeholders of another text of a program; None if one is unknown. A secret never appears in a message."""
    try:
        return placeholders.uses([text])
    except ValueError as error:
        problem = "has braces that are no placeholder; write {{ and }} for braces" if secret else str(error)
        section.refuse(key, f": {problem}")
        return None


def filled_patterns(section: Section, known: Mapping[str, str]) -> Section:
    """The section with the placeholders of its patterns filled in. `known`: those with the same value at each start.

    A rollback changes {seed}, so it stays in the patterns of files with figures until the start.
    """
    filled: dict[str, Any] = {}
    for key in PATTERN_KEYS:
        text = section.body.get(key)
        used = used_in(section, key, text) if isinstance(text, str) else None
        if not isinstance(text, str) or used is None:
            continue
        values = {**known, "seed": SEED} if key in _FIGURE_FILES and "seed" in section else known
        if unknown := sorted(used - values.keys()):
            may = ", ".join(f"{{{each}}}" for each in sorted(values))
            message = f"{{{unknown[0]}}} is not known here, or not the same at each start; a pattern may hold {may}"
            section.refuse(key, f": {message}")
        else:
            filled[key] = placeholders.fill(text, {each: glob.escape(value) for each, value in values.items()})
    return replace(section, body={**section.body, **filled})


# --- the values ----------------------------------------------------------------------------------------------------------


class Values(Record):
    known: dict[str, str]
    of_level: frozenset[str]  # placeholders whose values come from the level
    num_envs: int | None = None
    batch_size: int | None = None
    fallback_batch: int | None = None
    game: str = ""


def own(section: Section) -> Options | None:
    """The options of a built-in game that a script may have too; None: one is wrong."""

    def not_auto(value: Value) -> Value:
        if value == AUTO:
            raise ValueError('= "auto" is for built-in games; write a number, or leave it to the level')
        return value

    values = given(section, _OWN, {"batch_size": not_auto})
    found: Options = {key: (values[key], section.at(key)) for key in OWN_KEYS if key in values}
    for key, (value, origin) in found.items():
        section.note(key, value, origin)
    return found if found.keys() == section.body.keys() & set(OWN_KEYS) else None


def follows_level(section: Section, values: Mapping[str, Any], texts: Iterable[str]) -> bool:
    """Whether a climb restarts it with the settings of another level: by default if it names a way to resume.

    `texts`: its command and its environment. A list of `level_values` asks for other values, as the key itself does.
    """
    if "follows_level" in section:
        return bool(values["follows_level"])
    signs = ("{resume}", placeholders.variable(RESUME))
    named = {"checkpoint_glob", "level_values"} & section.body.keys() or any(
        sign in text for text in texts for sign in signs
    )
    return bool(named) or section.body.get("progress") == Progress.BEAT


def values(
    section: Section, given: Options, used: frozenset[str], *, load: Options, level: str, more: Mapping[str, str],
    service: bool,
) -> Values | None:  # fmt: skip
    """The values of a program at one level; None if a placeholder has none. `used`: its placeholders; `more`: no options."""
    own_game = given["game"][0] if "game" in given else section.name if section.name in (*GAMES, *EXTRA_GAMES) else ""
    at_level = {key: value for key, (value, _) in load.items()} | {"level": level}
    mine = {key: value for key, (value, _) in given.items() if key != "fallback_batch"}
    known: dict[str, Value] = {key: at_level[key] for key in OF_LEVEL if key in used}
    known |= {**({"game": own_game} if own_game else {}), **mine, **more}
    needs = (("seed", "seed = 1, or seeds = [1, 2, 3]"), ("game", 'game = "Pong"'), ("gpu", "gpu = 0"))
    wrong = [f"{{{key}}} has no value here; set {do}" for key, do in needs if key in used and key not in known]
    lacking = [key for key in OF_LEVEL if key in used and key not in given]
    if service and lacking:
        wrong.append(f"{{{lacking[0]}}} is a value of the level, and a service has none; write the value itself")
    for message in wrong:
        section.refuse(None, f": {message}")
    for option in given:
        wanted = "batch_size" if option == "fallback_batch" else option
        if wanted not in used:
            why = f"only a script that reads {placeholders.variable(wanted)} takes it"
            section.warn(option, f"{why}, because {{{wanted}}} is not used in command, env or directory")
    if "fallback_batch" in given and "batch_size" in given:
        check_fallback(section, given["fallback_batch"], given["batch_size"][0])
    if wrong:
        return None
    for key in sorted(used & load.keys() - given.keys()):
        section.note(key, *load[key])
    return Values(
        {key: str(value) for key, value in known.items()}, used & frozenset(OF_LEVEL) - given.keys(),
        int(known["num_envs"]) if "num_envs" in known else None, int(known["batch_size"]) if "batch_size" in known else None,
        int(given["fallback_batch"][0]) if "fallback_batch" in given else None, str(own_game),
    )  # fmt: skip


def check_fallback(section: Section, fallback: tuple[Value, Origin], batch: object) -> None:
    """Warn of a smaller batch for a lack of memory that is no smaller."""
    if isinstance(batch, int) and int(fallback[0]) >= batch:
        message = f"fallback_batch {fallback[0]} is no smaller than batch_size {batch} and has no effect"
        section.validation.warn(fallback[1], f"{section.label()}: {message}")


def template(found: Command, made: Values) -> Template:
    """The template from which each start fills in the command."""
    return Template(tuple(sorted(made.known.items())), found.groups, found.shell)
