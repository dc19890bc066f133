"""Apply the settings to the programs after a start, an update or a change of level."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from supervisor.deciding.attempts import stop
from supervisor.deciding.context import DecisionContext
from supervisor.model import facts
from supervisor.model.facts import LevelChosen
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec, Settings
from supervisor.model.state import Program
from supervisor.policy.worker import out_of_memory

_KEY: Final = re.compile(r'program\.("?)(.+?)\1\.(.+)')  # of a setting of a program; a name with dots is in quotes
_MOST_WORDS: Final = 8  # changed settings in one sentence


def reconcile(
    context: DecisionContext, why: str, *, chosen: LevelChosen | None = None, before: Settings | None = None,
    changed: Sequence[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """Add new programs, restart changed ones, stop removed ones; unchanged programs are left alone.

    `chosen` is the change of level that causes this, with its reason; None: the config's level is in force. `before` are
    the settings until now, also of the previous daemon; None: not known. `changed` are the keys with another value.
    """
    level, other_level = context.settings.level, context.state.level != context.settings.level.name
    if other_level and context.state.level and (chosen is None or chosen.trial):
        for hook in context.hooks("before_level"):
            hook(context, level.name, chosen is not None)
    if chosen is not None:
        context.record(chosen)
    elif (context.state.level, context.state.slots) != (level.name, level.slots):
        text = f"level {level.name} from the config: {level.slots} programs at once, {level.num_envs} environments each"
        context.record(facts.LevelChosen(text, level.name, level.slots, before=context.state.level))
    of_programs = _of_programs(changed, context.state.programs)
    for spec in context.settings.programs:
        program, words = context.state.programs.get(spec.name), of_programs.get(spec.name, ())
        if program is None:
            context.record(_configured(spec, f"new in the config ({why})"))
        elif program.digest != spec.digest:
            level_only = other_level and spec.own_digest != "" and spec.own_digest == program.own_digest
            if chosen is not None and level_only:
                _move(context, program, spec, why)
            else:
                what = "settings of another level" if level_only else "changed in the config"
                cause = f"{what}{_listed(words)} ({why})"
                _change(context, program, _configured(spec, cause, level_only=level_only, changed=words))
        elif program.own_digest != spec.own_digest:
            context.record(_configured(spec, f"{'follows' if spec.own_digest else 'does not follow'} the level ({why})"))
        elif words and before is not None and before.program(spec.name) != spec:
            context.record(_configured(spec, f"changed without a restart{_listed(words)} ({why})", live=True, changed=words))
    _remove_others(context)


def _of_programs(changed: Sequence[tuple[str, str]], names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The changes of each program, such as `lr 0.0003 -> 0.001`."""
    found: dict[str, tuple[str, ...]] = {}
    for key, change in changed:
        if (of := _KEY.fullmatch(key)) and of[2] in names:
            found[of[2]] = (*found.get(of[2], ()), f"{of[3]} {change}")
    return found


def beside_programs(changed: Sequence[tuple[str, str]]) -> str:
    """Settings of no single program that have another value: `: cost.usd_per_hour 1.29 -> 2.0`."""
    words = [f"{key} {change}" for key, change in changed if not key.startswith("program.")]
    return _listed([*words[:_MOST_WORDS], *([f"and {len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else [])])


def _remove_others(context: DecisionContext) -> None:
    for name, program in sorted(context.state.programs.items()):
        if context.settings.program(name) is not None:
            continue
        if program.attempt is not None:
            stop(context, program, program.attempt, reason="config", by="config", why="it is no longer in the config")
        else:
            context.record(facts.ProgramRemoved("it is no longer in the config", name))


def _listed(words: Sequence[str]) -> str:
    return f": {', '.join(words)}" if words else ""


def _configured(
    spec: ProgramSpec, cause: str, *, level_only: bool = False, moved: bool = False, live: bool = False,
    changed: tuple[str, ...] = (),
) -> facts.ProgramConfigured:  # fmt: skip
    return facts.ProgramConfigured(
        cause, spec.name, spec.digest, spec.autostart, spec.own_digest, level_only, moved, spec.service, live, changed
    )


def _change(context: DecisionContext, program: Program, fact: facts.ProgramConfigured) -> None:
    context.record(fact)
    if program.attempt is not None:
        stop(context, program, program.attempt, reason="config", by="config", why="its configuration changed")
    elif program.phase in {Phase.FATAL, Phase.EXITED, Phase.DONE, Phase.BACKOFF} and program.wanted:
        context.record(facts.Requeued("its configuration changed", program.name))


def _move(context: DecisionContext, program: Program, spec: ProgramSpec, why: str) -> None:
    """Move one program to another level by the load rule. Unlike a change of the config, this resets no deaths.

    A program that is DONE stays so. A program given up for lack of memory is queued again, as it may need less memory here.
    """
    context.record(_configured(spec, f"settings of {why}", level_only=True, moved=True))
    if program.attempt is not None:
        stop(
            context, program, program.attempt, reason="level", by="extralife",
            why=f"moves to level {context.settings.level.name}",
        )  # fmt: skip
    elif program.phase is Phase.FATAL and program.wanted and program.exit.cause in out_of_memory.CAUSES:
        context.record(facts.Requeued(f"level {context.settings.level.name} may need less memory", program.name))
