"""The ladder of levels, lowest first: the sections [levels.NAME] in the order of the file, or the built-in ladder.

A file has a ladder if it has [levels], or `mode = "climb"` in [load]; otherwise [level] is the only level. A missing key of
a level has the value of the level before it. Every level is at least as heavy as the one before in every respect, and
heavier in one. The climbing rule knows no other order, and after a reboot there must be a lower level to return to.
What features add to a level ([levels.NAME.launcher]) has no order.

Example: [levels.light] slots = 2, then [levels.wide] num_envs = 16 is refused: light has 32, so wide is not above it.

Why a ladder and not a grid of slots by environments: each pair would be one more level to try, and a try may cost a reboot.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from supervisor import discovery
from supervisor.config.cores import usable_cores, usable_memory_mb
from supervisor.config.tables import OF_LEVEL, given, refuse_unknown
from supervisor.config.validation import DEFAULT, DERIVED, FILE, Origin, Section, Validation, label, shown
from supervisor.model.settings import A_NAME_OF_LEVEL, NAME_OF_LEVEL, Level, Rung
from supervisor.policy.level.load import CLIMB, FIXED, LoadSettings
from workers.options import nearest

DEFAULT_LADDER: Final = (
    Level("light", 2, 32, 512), Level("3x32", 3, 32, 512), Level("medium", 4, 64, 1024), Level("5x64", 5, 64, 1024),
    Level("6x128", 6, 128, 1024), Level("heavy", 8, 256, 2048),
)  # fmt: skip
_MOST: Final = 64
_GROWS: Final = ("slots", "num_envs", "batch_size")

Overrides = Mapping[tuple[str, str], tuple[object, Origin]]


def levels(validation: Validation, load: LoadSettings, overrides: Overrides) -> tuple[tuple[Level, ...], LoadSettings]:
    """The ladder (empty: a fixed [level]) and [load] with its mode resolved. Mistakes go into the validation's errors."""
    body, mode = validation.source.body, load.mode
    mode = mode or (CLIMB if "levels" in body else FIXED)
    load = replace(load, mode=mode)
    if "load.mode" in validation.origins and validation.values["load.mode"] is None:
        validation.note("load.mode", mode, Origin(DERIVED, "with [levels]" if mode == CLIMB else "without [levels]"))
    if "levels" not in body and mode == FIXED:
        if load.start is not None:
            validation.refuse(("load", "start"), "names a level of [levels], and there is none; remove it")
        return (), load
    if "level" in body:
        conflict = "with [levels]" if "levels" in body else 'with mode = "climb" in [load]'
        validation.error(validation.at("level"), f"level: one fixed level makes no sense {conflict}; remove one of the two")
    made = _given(validation, overrides) if "levels" in body else _built_in(validation, overrides)
    if ("level", "slots") in overrides:
        message = "is for a fixed [level], and this file has a ladder; set it in [levels.NAME]"
        validation.error(overrides["level", "slots"][1], message)
    names = [level.name for level in made]
    if load.start is not None and load.start not in names:
        hint = nearest(load.start, names) or f"; there are {', '.join(names)}"
        origin = validation.origins.get("load.start", Origin(FILE, validation.source.where))
        validation.error(origin, f"load.start {shown(load.start)} is not a level{hint}")
    return made, load


def veto(level: Level, *, built_in: bool, remote: bool = False) -> str:
    """Why this box cannot run a level, as far as it is known before the first trial; empty if no reason is known.

    Cores and memory of the daemon's host do not limit programs that run elsewhere (`remote`).

    A level of the built-in ladder is vetoed if it has more programs than the box has cores. For a ladder in the file, this
    is the operator's decision.
    """
    if remote:
        return ""
    cores = usable_cores()
    if built_in and level.slots > max(cores, DEFAULT_LADDER[0].slots):
        return f"{level.slots} programs at once on {cores} core{'' if cores == 1 else 's'}"
    return memory_short(level)


def memory_short(level: Level) -> str:
    """A message if the box has less memory than the level needs; empty if it has enough, or if the need is unknown."""
    has_mb = usable_memory_mb()
    if level.memory_mb is None or has_mb is None or level.slots * level.memory_mb <= has_mb:
        return ""
    return f"{level.slots} x {level.memory_mb:,} MB of memory are more than the {has_mb:,} MB of this box"


def without_duplicates(validation: Validation, rungs: tuple[Rung, ...], start: Level) -> tuple[Rung, ...]:
    """The built-in ladder without levels that are the same load as the one below for the programs of this file.

    Example: with two games, 3x32 is the same load as 2x32. Its trial would find it no faster, and the levels above it would
    never be tried. A ladder in the file keeps all levels, because the operator may pin each of them.
    """
    kept: list[Rung] = []
    below: object = None
    for rung in rungs:
        load = min(rung.level.slots, len(rung.programs)), tuple(spec.digest for spec in rung.programs)
        if "levels" in validation.source.body or rung.level is start or load != below:
            kept.append(rung)
            below = load
        else:
            validation.forget(label("levels", rung.level.name) + ".")
    return tuple(kept)


def _built_in(validation: Validation, overrides: Overrides) -> tuple[Level, ...]:
    return tuple(_noted(validation, level, {}, overrides) for level in DEFAULT_LADDER)


def _given(validation: Validation, overrides: Overrides) -> tuple[Level, ...]:
    levels = validation.section("levels")
    found: list[Level] = []
    if not levels.body and validation.source.body["levels"] == {}:
        levels.refuse(None, "holds no level; add sections such as [levels.light], or remove it")
    if len(levels.body) > _MOST:
        levels.refuse(None, f"holds {len(levels.body)} levels, but at most {_MOST} are allowed; remove some")
        return _built_in(validation, overrides)
    for name, table in levels.body.items():
        if not re.fullmatch(NAME_OF_LEVEL, name):
            levels.refuse(name, f": a level's name is {A_NAME_OF_LEVEL}")
        elif not isinstance(table, dict):
            levels.refuse(name, f"must be a section, [levels.{name}], not {shown(table)}")
        else:
            found.append(_level(levels.inner(name), found[-1] if found else None, overrides))
    for below, above in itertools.pairwise(found):
        for key in _GROWS:
            less, more = getattr(above, key), getattr(below, key)
            if less < more:
                why = f"{key} {less} is less than the {more} of {below.name} before it, and a level is at least as heavy as"
                message = (
                    f"{label('levels', above.name)}: {why} the one before in every respect; raise it, or move the section"
                )
                validation.error(validation.at("levels", above.name, key), message)
        if below.shape == above.shape:
            why = f"is the same load as {below.name} before it ({below.shape}); remove one of the two"
            validation.refuse(("levels", above.name), why)
    return tuple(found) or _built_in(validation, overrides)


def _level(section: Section, below: Level | None, overrides: Overrides) -> Level:
    """One section. A missing key has the value of the level before; so has a wrong key, which is also an error."""
    parts = [each.level(section, below) for each in discovery.modules("config") if hasattr(each, "level")]
    refuse_unknown(section, (*OF_LEVEL, *Level.FIELDS.values()), f"a level has {', '.join(OF_LEVEL)}")
    values = given(section, OF_LEVEL)
    base = Level(section.name) if below is None else replace(below, name=section.name)
    left_out = {key: below for key in OF_LEVEL if key not in values}
    return _noted(section.validation, replace(base, **values).having(*parts), left_out, overrides)


def _noted(validation: Validation, level: Level, left_out: Mapping[str, Level | None], overrides: Overrides) -> Level:
    """Note each value with its origin. `RL_*` overrides the load of every level, so that `status` shows the real load."""
    for key in OF_LEVEL:
        origin = validation.at("levels", level.name, key) if "levels" in validation.source.body else Origin(DEFAULT)
        if key in left_out:
            below = left_out[key]
            origin = Origin(DEFAULT) if below is None else Origin(DERIVED, f"as in {below.name}")
        if ("level", key) in overrides and key != "slots":
            value, origin = _overridden(validation, key, overrides["level", key])
            level = replace(level, **{key: value}) if value is not None else level
        validation.note(label("levels", level.name, key), getattr(level, key), origin)
    return level


def _overridden(validation: Validation, key: str, override: tuple[object, Origin]) -> tuple[Any, Origin]:
    value, origin = override
    validation.warn(origin, f"overrides {key} of every level, so its values in [levels] have no effect")
    try:
        return OF_LEVEL[key].check(value, text=True), origin
    except ValueError as error:
        validation.error(origin, f"{key} {str(error) or OF_LEVEL[key].refusal(value)}")
        return None, origin
