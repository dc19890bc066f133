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

from supervisor.config.validation import Origin, Validation, label, shown
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
        seeds = _seeds(validation, name, table, overrides)
        rest = {key: value for key, value in table.items() if key != "seeds"}
        for seed in seeds:
            one = f"{name}-s{seed}"
            if one in tables:
                message = f"makes a program {one}, and there is a section of that name; rename one of the two"
                validation.refuse(name, "seeds", message)
                continue
            found[one] = {"game": name} if _is_game(name) else {}
            found[one] |= {"group": name, **rest, "seed": seed}
            _place(validation, name, one)
        if seeds:
            validation.note(label("program", name, "seeds"), list(seeds), validation.at("program", name, "seeds"))
    return found


def _seeds(
    validation: Validation, name: str, table: Mapping[str, Any], overrides: Mapping[str, tuple[Value, Origin]]
) -> tuple[int, ...]:  # fmt: skip
    """The seeds; empty after an error that gives the reason."""
    value, limit = table["seeds"], OPTIONS["seed"].high or 0
    if "seed" in table:
        validation.refuse(name, "seeds", "and seed cannot both be given; put that seed into the list")
    elif "seed" in overrides and "command" not in table:
        validation.refuse(name, "seeds", f"would all be overridden by {overrides['seed'][1]}; unset it")
    elif not isinstance(value, list) or not value:
        validation.refuse(name, "seeds", f"must be a list of seeds, {_EXAMPLE}, not {shown(value)}")
    elif bad := [seed for seed in value if type(seed) is not int or not 0 <= seed <= limit]:
        validation.refuse(name, "seeds", f"must hold whole numbers from 0 to {limit:.0f}, {_EXAMPLE}, not {shown(bad[0])}")
    elif len(set(value)) < len(value):
        twice = next(seed for at, seed in enumerate(value) if seed in value[:at])
        validation.refuse(name, "seeds", f"holds {twice} twice: two equal trainings give the same result; remove one")
    elif len(value) > _MOST:
        validation.refuse(
            name, "seeds", f"holds {len(value)} seeds, but one game may have at most {_MOST} programs; remove some"
        )
    else:
        return tuple(value)
    return ()


def _is_game(name: str) -> bool:
    return name in OPTIONS["game"].choices


def _place(validation: Validation, name: str, one: str) -> None:
    """Give the keys of the expanded program the line numbers of the section that it comes from."""
    validation.made_of[label("program", one)] = label("program", name)
    lines = dict(validation.source.lines)
    path = ("program", name)
    lines |= {("program", one, *key[2:]): line for key, line in validation.source.lines.items() if key[:2] == path}
    if (*path, "seeds") in lines:
        lines["program", one, "seed"] = lines[*path, "seeds"]
    validation.source = replace(validation.source, lines=lines)
