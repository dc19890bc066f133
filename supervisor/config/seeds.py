"""`seeds = [4, 6, 8]`: a separate program for each seed, with its own log, checkpoints and restarts.

[program.Pong] with those seeds is read as [program.Pong-s4], [program.Pong-s6] and [program.Pong-s8], each with all other
keys of [program.Pong]; there is no program Pong. An update that drops 6 removes Pong-s6 and does not touch the others.
`seeds = [4]` is one program, Pong-s4. A script takes its seed as `{seed}`.

Why not one program that trains all seeds in turn: a seed that diverges would hold up the rest, and two could not run at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from supervisor.config.validation import Origin, Section, Validation, label, shown
from workers.options import OPTIONS, Value

_MOST: Final = 1000
_EXAMPLE: Final = "such as seeds = [4, 6, 8]"


def expanded(
    validation: Validation, tables: Mapping[str, Any], overrides: Mapping[str, tuple[Value, Origin]]
) -> dict[str, Any]:  # fmt: skip
    """The program tables with every `seeds` expanded. A wrong `seeds` is an error, and its programs are left out."""
    found: dict[str, Any] = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or "seeds" not in table:
            found[name] = table
            continue
        section = Section(validation, ("program", name), table)
        if wrong := _wrong(section, overrides):
            section.refuse("seeds", wrong)
            continue
        rest = {key: value for key, value in table.items() if key != "seeds"}
        for seed in table["seeds"]:
            one = f"{name}-s{seed}"
            if one in tables:
                message = f"makes a program {one}, and there is a section of that name; rename one of the two"
                section.refuse("seeds", message)
                continue
            found[one] = {"game": name} if name in OPTIONS["game"].choices else {}
            found[one] |= {"group": name, **rest, "seed": seed}
            # The keys of the expanded program have the line numbers of the section that it comes from.
            validation.made_of[label("program", one)] = label("program", name)
            lines = dict(validation.source.lines)
            path = ("program", name)
            lines |= {("program", one, *key[2:]): line for key, line in validation.source.lines.items() if key[:2] == path}
            if (*path, "seeds") in lines:
                lines["program", one, "seed"] = lines[*path, "seeds"]
            validation.source = replace(validation.source, lines=lines)
        section.note("seeds", table["seeds"])
    return found


def _wrong(section: Section, overrides: Mapping[str, tuple[Value, Origin]]) -> str:
    """The mistake in `seeds`; empty if there is none."""
    value, limit = section.body["seeds"], OPTIONS["seed"].high or 0
    if "seed" in section:
        return "and seed cannot both be given; put that seed into the list"
    if "seed" in overrides and "command" not in section:
        return f"would all be overridden by {overrides['seed'][1]}; unset it"
    if not isinstance(value, list) or not value:
        return f"must be a list of seeds, {_EXAMPLE}, not {shown(value)}"
    if bad := [seed for seed in value if type(seed) is not int or not 0 <= seed <= limit]:
        return f"must hold whole numbers from 0 to {limit:.0f}, {_EXAMPLE}, not {shown(bad[0])}"
    if twice := [seed for at, seed in enumerate(value) if seed in value[:at]]:
        return f"holds {twice[0]} twice: two equal trainings give the same result; remove one"
    if len(value) > _MOST:
        return f"holds {len(value)} seeds, but one game may have at most {_MOST} programs; remove some"
    return ""
