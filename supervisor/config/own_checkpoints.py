"""The keys of [program.NAME] about checkpoints that a command writes by itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from supervisor.config.validation import Validation, shown
from supervisor.keys import YEAR_S
from supervisor.model.settings import ProgramSpec
from supervisor.policy.worker.step_in_name import parsed

KEYS: Final = ("checkpoint_glob", "checkpoint_step", "checkpoint_check", "checkpoint_check_timeout_s")
_MOST_PARTS: Final = 16


def own_checkpoints(validation: Validation, name: str, table: Mapping[str, Any], *, service: bool) -> dict[str, Any]:
    """Fields of the program's spec. Mistakes go into the validation's errors."""
    given = [key for key in KEYS if key in table]
    if given and (service or KEYS[0] not in table):
        why = "a service has no checkpoints; remove it, or the kind" if service else _ALONE
        for key in given:
            validation.refuse(name, key, why, ":")
        return {}
    checks = {KEYS[0]: _glob, KEYS[1]: _step, KEYS[2]: _words, KEYS[3]: _timeout}
    values: dict[str, Any] = {}
    for key in given:
        try:
            values[key] = checks[key](table[key])
        except ValueError as error:
            validation.refuse(name, key, str(error))
    if "checkpoint_check_timeout_s" in values and "checkpoint_check" not in table:
        validation.refuse(name, KEYS[3], "has no effect without checkpoint_check; set that, or remove this")
    return values


_ALONE: Final = 'has no effect without checkpoint_glob; set it such as "checkpoints/*.pt", or remove this'


def notes(spec: ProgramSpec) -> dict[str, Any]:
    """The values of these keys that `supervisorctl config` shows."""
    if not spec.checkpoint_glob:
        return {}
    return {
        "checkpoint_glob": spec.checkpoint_glob, "checkpoint_step": spec.checkpoint_step,
        "checkpoint_check": list(spec.checkpoint_check), "checkpoint_check_timeout_s": spec.checkpoint_check_timeout_s,
    }  # fmt: skip


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a string without NUL, not {shown(value)}")
    return value


def _glob(value: object) -> str:
    """A pattern below the program's directory, or one that begins with /."""
    text = _text(value)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts:
        raise ValueError('needs a pattern such as "checkpoints/*.pt"')
    if ".." in parts:
        raise ValueError(f'must not hold "..", as {shown(text)} does; begin it with / to name another directory')
    if text.startswith("~"):
        raise ValueError(
            f"is relative to the directory, and ~ is an ordinary name there; write the path in {shown(text)} out"
        )
    if len(parts) > _MOST_PARTS:
        raise ValueError(f"has {len(parts)} directories, at most {_MOST_PARTS} are looked through")
    if parts[-1] == "**" or parts.count("**") > 1 or any("**" in part and part != "**" for part in parts):
        raise ValueError('may hold ** once, as a directory of its own and not at the end, such as "runs/**/*.ckpt"')
    return text


def _step(value: object) -> str:
    text = _text(value)
    parsed(text)
    return text


def _words(value: object) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}; close the quotation or give a list of strings") from None
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError(f'must be a string or a list of strings, such as ["python", "check.py"], not {shown(value)}')
    if not words or not words[0]:
        raise ValueError('names no program; write it such as ["python", "check.py"]: the path is added at its end')
    return tuple(words)


def _timeout(value: object) -> float:
    if type(value) not in (int, float) or not 0 < float(value) <= YEAR_S:  # type: ignore[arg-type]
        raise ValueError(f"must be a number of seconds, more than 0, not {shown(value)}")
    return float(value)  # type: ignore[arg-type]
