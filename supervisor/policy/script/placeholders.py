"""Placeholders in the command and the environment of a user's own script: which ones exist, and how they are filled in.

`{num_envs}` and the others in `NAMES` stand for a value of one start; `{{` and `}}` stand for a brace. `${HOME}` belongs
to the shell and stays. The configuration refuses any other text in braces when it is read, so a start never fails because
of one. The rules:

1. A word of the command that holds an empty placeholder is removed. If it is in a group of words (a list within the
   list), the whole group is removed. Only `{resume}` is ever empty: at a start from scratch.
2. A value is always one word of the command, even with spaces. In a shell's command a value of plain characters is
   inserted unchanged, and any other value becomes `${EXTRALIFE_NAME}`. So the shell never reads a file's name as syntax.
3. Each value is also in the script's environment, as the variable `EXTRALIFE_NAME`, such as EXTRALIFE_NUM_ENVS.

Worked example: `["train.py", "--num-envs", "{num_envs}", ["--resume", "{resume}"]]` at a level with 32 environments is
`train.py --num-envs 32` on the first start, and `train.py --num-envs 32 --resume /runs/ckpt-9` on the next.

Why at each start and not when the file is read: the batch gets smaller after running out of memory, the seed changes after
a rollback, and the newest checkpoint is another one each time.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from supervisor.records import Record
from workers.contract import seed_after

NAMES: Final = ("num_envs", "batch_size", "threads", "level", "seed", "game", "name", "run_dir", "gpu", "resume")
OF_LEVEL: Final = ("num_envs", "batch_size", "threads", "level")
RESUME: Final = "resume"
PREFIX: Final = "EXTRALIFE_"

_TOKEN: Final = re.compile(
    r"\$\{(?P<shell>[^{}]*)\}|(?P<double>\{\{|\}\})|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<alone>[{}])"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]*")
_BRACES: Final = "; {{ and }} are braces that stay"
_SHOWN: Final = 40

Piece = tuple[str, str]  # literal text, and the name of the placeholder after it; empty: there is none


class Template(Record):
    """The data that is needed to fill in the command and the environment of a program at a start.

    `values` are the values that the configuration knows at one level. `groups` are the groups of words in the command, as
    (first index, index after the last). `shell`: a shell reads the last word of the command.
    """

    values: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    shell: bool = False


def for_attempt(template: Template, *, batch_size: int | None, rollbacks: int, resume: str | None) -> Template:
    """The template with the values of one attempt: a smaller batch after out of memory, another seed after a rollback.

    `batch_size` is the largest batch allowed (None: as configured). `resume` is its checkpoint (empty: none; None: not
    known).
    """
    values = dict(template.values)
    if "batch_size" in values and batch_size is not None:
        values["batch_size"] = str(min(int(values["batch_size"]), batch_size))
    if "seed" in values:
        values["seed"] = str(seed_after(int(values["seed"]), rollbacks))
    if resume is not None:
        values[RESUME] = resume
    return Template(tuple(sorted(values.items())), template.groups, template.shell)


def variable(name: str) -> str:
    """The environment variable that holds the same value."""
    return PREFIX + name.upper()


def escaped(text: str) -> str:
    """The text with its braces doubled, so that filling it in gives the original text."""
    return text.replace("{", "{{").replace("}", "}}")


def pieces(text: str) -> tuple[Piece, ...]:
    """Split a text into pieces. Raises ValueError with one sentence for braces that are no valid placeholder."""
    found: list[Piece] = []
    literal, end = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[end : token.start()]
        end = token.end()
        if token["double"]:
            literal += token["double"][0]
        elif token["name"] in NAMES:
            found.append((literal, token["name"]))
            literal = ""
        elif token["shell"] is not None and token["shell"] not in NAMES:
            literal += token[0]
        else:
            raise ValueError(_wrong(token, text))
    return (*found, (literal + text[end:], ""))


def uses(texts: Iterable[str]) -> frozenset[str]:
    """The placeholders in these texts. Raises ValueError as `pieces` does."""
    return frozenset(name for text in texts for _, name in pieces(text) if name)


def fill(text: str, values: Mapping[str, str]) -> str:
    return "".join(literal + (values[name] if name else "") for literal, name in pieces(text))


def fill_words(words: Sequence[str], template: Template, values: Mapping[str, str]) -> tuple[str, ...]:
    if template.shell:
        of_shell = {name: value if _PLAIN.fullmatch(value) else f"${{{variable(name)}}}" for name, value in values.items()}
        return (*words[:-1], fill(words[-1], of_shell))
    gone = {at for at, word in enumerate(words) if any(not values[name] for name in uses([word]))}
    for first, end in template.groups:
        if gone.intersection(range(first, end)):
            gone.update(range(first, end))
    return tuple(fill(word, values) for at, word in enumerate(words) if at not in gone)


def fill_environment(environment: Iterable[tuple[str, str]], values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The environment of one start: the program's own variables, and one for each value."""
    own = tuple((name, fill(text, values)) for name, text in environment)
    return (*own, *((variable(name), value) for name, value in values.items()))


def _wrong(token: re.Match[str], text: str) -> str:
    """The message why this is no valid placeholder."""
    name, shown = token["name"], token[0]
    if token["shell"] is not None:
        return f"{shown} is the shell's, which has no such variable; write {{{token['shell']}}} without the $"
    if name is None:
        behind = text[token.start() : token.start() + _SHOWN].partition("}")[0]
        what = "placeholders cannot be nested" if "{" in behind[1:] else f"{shown} alone is no placeholder"
        return f"{what} in {text[max(0, token.start() - 8) : token.start() + _SHOWN]!r}{_BRACES}"
    near = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {{{near[0]}}}? " if near else f"there are {', '.join(NAMES)}; "
    return f"{shown} is no placeholder; {hint}{_BRACES[2:]}"
