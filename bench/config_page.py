"""Makes the tables of docs/config.md again, from the fields that declare the keys: `.venv/bin/python bench/config_page.py`.

The words around the tables are the page's own. A test compares the page with what this makes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from supervisor.config.ladder import DEFAULT_LADDER
from supervisor.config.source import DEFAULT_TOML
from supervisor.config.tables import OF_LEVEL, Setting, program_settings, settings_of
from supervisor.model.settings import SECTIONS, Paths
from workers.options import OPTIONS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "config.md"
_TYPES: Final = {int: "integer", float: "number", bool: "true/false", str: "string"}


def page(text: str) -> str:
    """`text`, the page, with its tables made again. KeyError: it lacks the heading of one; ValueError: the table itself."""
    parts = dict.fromkeys(["", *re.findall(r"^##.*\n", text, re.MULTILINE)], "")
    heading = ""
    for line in text.splitlines(keepends=True):
        heading = line if line in parts else heading
        parts[heading] += line
    for heading, block in _blocks():
        first = block.partition("\n")[0]
        end = "^```\n" if first.startswith("```") else r"^(?!\|)|\Z"
        before, after = parts[f"{heading}\n"].split(f"{first}\n", maxsplit=1)
        parts[f"{heading}\n"] = before + block + re.split(end, after, maxsplit=1, flags=re.MULTILINE)[1]
    return "".join(parts.values())


def _blocks() -> list[tuple[str, str]]:
    ladder = [f"| {level.name} | {level.slots} | {level.num_envs} | {level.batch_size} |\n" for level in DEFAULT_LADDER]
    found = [(f"## [{name}]", _table(settings_of(cls))) for name, cls in SECTIONS.items() if name != "daemon"]
    return [
        *found,
        ("## [daemon]", _table(settings_of(Paths) | settings_of(SECTIONS["daemon"]))),
        ("## [levels.NAME]", f"| level | slots | environments | batch |\n|---|---|---|---|\n{''.join(ladder)}"),
        ("## [levels.NAME]", _table(OF_LEVEL)),
        ("## [program.NAME]", _table(program_settings(command=False))),
        ("### Any command", _table(program_settings(command=True))),
        ("## [training]", _table({name: Setting.plain(option) for name, option in OPTIONS.items()})),
        ("## The embedded default", f"```toml\n{DEFAULT_TOML}```\n"),
    ]


def _table(settings: Mapping[str, Setting]) -> str:
    rows = [
        f"| `{name}` | {_type(each)} | {_default(each)} | {each.declared.meaning.replace('|', chr(92) + '|')} |"
        for name, each in settings.items()
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _type(setting: Setting) -> str:
    option = setting.option
    if option.name in ("game", "kinds"):
        return {"game": "a known game", "kinds": "list of [kinds](alerts.md#kinds)"}[option.name]
    if setting.complex:
        return setting.complex
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    words = "".join(f", or `{word}`" for word in option.words)
    return f"{_TYPES[option.kind]}{_bounds(setting)}{words}"


def _bounds(setting: Setting) -> str:
    low, high = setting.option.low, setting.option.high
    above = "" if low is None else f" {'>' if setting.positive else '>='}{_number(low)}"
    if high is None or setting.option.name.endswith("_s"):
        return above
    return f"{above} <={_number(high)}" if setting.positive or low is None else f" {_number(low)}..{_number(high)}"


def _default(setting: Setting) -> str:
    default = setting.default
    if setting.declared.unset or default is None:
        return setting.declared.unset or "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return json.dumps(default)
    return f'"{default}"' if isinstance(default, str) else _number(default)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
