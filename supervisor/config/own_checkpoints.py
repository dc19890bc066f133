"""The keys of [program.NAME] about checkpoints that a command writes by itself."""

from __future__ import annotations

from typing import Any, Final

from supervisor.config.scripts import words
from supervisor.config.tables import Parsers
from supervisor.config.validation import Section, shown
from supervisor.policy.worker.step_in_name import parsed

KEYS: Final = ("checkpoint_glob", "checkpoint_step", "checkpoint_check", "checkpoint_check_timeout_s")
_MOST_PARTS: Final = 16
_ALONE: Final = ': has no effect without checkpoint_glob; set it such as "checkpoints/*.pt", or remove this'


def check_together(section: Section, *, service: bool) -> None:
    """Refuse the keys that have no effect."""
    why = ": a service has no checkpoints; remove it, or the kind" if service else _ALONE
    alone = [key for key in KEYS if key in section and (service or KEYS[0] not in section)]
    for key in alone:
        section.refuse(key, why)
    if not alone and KEYS[3] in section and KEYS[2] not in section:
        section.refuse(KEYS[3], "has no effect without checkpoint_check; set that, or remove this")


def _glob(text: str) -> str:
    """A pattern below the program's directory, or one that begins with /."""
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


def _step(text: str) -> str:
    parsed(text)
    return text


def _check_words(value: Any) -> tuple[str, ...]:
    return words(value, '["python", "check.py"]')


PARSERS: Final[Parsers] = {KEYS[0]: _glob, KEYS[1]: _step, KEYS[2]: _check_words}
