"""Apply the settings to the programs after a start, an update or a change of level."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Final

from supervisor.deciding.attempts import stop
from supervisor.deciding.context import DecisionContext
from supervisor.model import facts
from supervisor.model.facts import LevelChosen
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import ProgramSpec, Settings
from supervisor.model.state import Program
from supervisor.policy.worker import out_of_memory

# Settings that need a restart to change and are no words of the command. Values of `env` may be secrets.
_BESIDE_ARGV: Final = ("env", "directory", "progress", "progress_glob", "health", "user", "umask")


def reconcile(
    context: DecisionContext, why: str, *, chosen: LevelChosen | None = None, before: Settings | None = None
) -> None:
    """Add new programs, restart changed ones, stop removed ones; unchanged programs are left alone.

    `chosen` is the change of level that causes this, with its reason; None: the config's level is in force. `before` are
    the settings until now, also of the previous daemon; None: which settings of a program differ is not known.
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
    for spec in context.settings.programs:
        program = context.state.programs.get(spec.name)
        if program is None:
            context.record(_configured(spec, f"new in the config ({why})"))
        elif program.digest != spec.digest:
            level_only = other_level and spec.own_digest != "" and spec.own_digest == program.own_digest
            if chosen is not None and level_only:
                _move(context, program, spec, why)
            else:
                what = "settings of another level" if level_only else "changed in the config"
                if not level_only and before is not None and (old := before.program(spec.name)) is not None:
                    what += _differences(old, spec)
                _change(context, program, spec, f"{what} ({why})", level_only=level_only)
        elif program.own_digest != spec.own_digest:
            context.record(_configured(spec, f"{'follows' if spec.own_digest else 'does not follow'} the level ({why})"))
    _remove_others(context)


def _remove_others(context: DecisionContext) -> None:
    for name, program in sorted(context.state.programs.items()):
        if context.settings.program(name) is not None:
            continue
        if program.attempt is not None:
            stop(context, program, program.attempt, reason="config", by="config", why="it is no longer in the config")
        else:
            context.record(facts.ProgramRemoved("it is no longer in the config", name))


def _configured(spec: ProgramSpec, cause: str, *, level_only: bool = False, moved: bool = False) -> facts.ProgramConfigured:
    return facts.ProgramConfigured(
        cause, spec.name, spec.digest, spec.autostart, spec.own_digest, level_only, moved, service=spec.service
    )


def _differences(old: ProgramSpec, new: ProgramSpec) -> str:
    """Such as `: --lr 0.0003 -> 0.001, env`: changed words of the command, and names of settings beside it."""
    found = []
    for kind, begin, end, first, last in SequenceMatcher(None, old.argv, new.argv, autojunk=False).get_opcodes():
        words = " ".join(new.argv[first:last])
        if kind == "replace":
            found.append(f"{' '.join(old.argv[max(0, begin - 1) : end])} -> {words}")
        elif kind != "equal":
            found.append(f"with {words}" if words else f"without {' '.join(old.argv[begin:end])}")
    found += [name for name in _BESIDE_ARGV if getattr(old, name) != getattr(new, name)]
    return f": {', '.join(found)}" if found else ""


def _change(context: DecisionContext, program: Program, spec: ProgramSpec, cause: str, *, level_only: bool) -> None:
    context.record(_configured(spec, cause, level_only=level_only))
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
