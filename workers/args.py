"""The worker's command line: flags over `RL_*` environment over defaults, all from the table in `options.py`.

`python -m workers --program Pong --num-envs 32` and `RL_NUM_ENVS=32 python -m workers --program Pong` mean the same.
Every mistake is found before any slow import, and all mistakes are reported at once, one sentence each. Otherwise each
typo would cost another start with seconds of imports, in hours that are paid for.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from workers.contract import ENV_BATCH_SIZE, ENV_PROGRAM, ENV_ROLLBACKS, seed_after
from workers.options import (
    AUTO,
    EXTRA_GAMES,
    GAMES,
    MOST_LR,
    OPTIONS,
    Option,
    Settings,
    Value,
    batch_limit,
    check_together,
    defaults_of,
    from_environment,
    nearest,
    preset_values,
    valid_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_ENVS: Final = 32  # the light level
DEFAULT_BATCH: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # as in the daemon's config
_DEVICE: Final = re.compile(r"auto|cpu|cuda(:[0-9]{1,2})?")


class BadArguments(Exception):
    """The settings can't be used; `errors` holds every reason, a sentence each."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """The settings that were given explicitly, before defaults fill in the others.

    `most_batch` is the supervisor's limit for this attempt: an earlier one ran out of memory with more.
    """

    program: str
    values: Mapping[str, Value]
    most_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(Settings):
    """Every setting of one training, resolved.

    `algo` may still be `auto`: the box's disk and memory are known only at the start (`auto.py`). Then `with_algorithm`
    resolves `given` again.
    """

    program: str
    given: GivenSettings = field(repr=False, compare=False)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Args:
    """The settings of this start. Raises BadArguments with every mistake; `--help` prints and exits."""
    flags, errors = _read_flags(argv)
    values, more = from_environment(environ)
    errors += more
    for name, text in flags.items():
        if name in OPTIONS:
            try:
                values[name] = OPTIONS[name].parse(text)
            except ValueError as error:
                errors.append(f"{OPTIONS[name].flag}: {error}")
    program = flags.get("program") or environ.get(ENV_PROGRAM, "")
    most = environ.get(ENV_BATCH_SIZE, "")
    given = GivenSettings(program, _with_rollback_seed(values, environ), int(most) if most.isdecimal() else None)
    return _resolve(given, errors)


def _with_rollback_seed(values: dict[str, Value], environ: Mapping[str, str]) -> dict[str, Value]:
    """The values, with another random seed after each rollback."""
    rollbacks = environ.get(ENV_ROLLBACKS, "0")
    if not rollbacks.isdecimal() or not int(rollbacks):
        return values
    seed = values.get("seed", OPTIONS["seed"].default)
    return {**values, "seed": seed_after(int(seed or 0), int(rollbacks))}


def make(program: str, **values: Value | None) -> Args:
    """Settings without a command line, checked in the same way: `make("Catch", num_envs=8)`."""
    return _resolve(GivenSettings(program, {name: value for name, value in values.items() if value is not None}), [])


def with_algorithm(args: Args, algo: str) -> Args:
    """The same given settings with this algorithm in place of `auto`; the batch is the largest valid one up to the old one.

    Raises BadArguments with the settings that do not fit the algorithm.
    """
    given = args.given
    values = {**given.values, "algo": algo}
    rows = _loaded(GivenSettings(given.program, values))
    return _resolve(
        GivenSettings(given.program, {**values, "batch_size": valid_batch(rows, args.batch_size)}, given.most_batch), []
    )


def default_lr(algo: str, batch_size: int) -> float:
    """The algorithm's learning rate; if it was tuned for a batch, it grows with the square root of the batch."""
    row = defaults_of(algo)
    return row.lr if row.lr_batch is None else min(MOST_LR, row.lr * math.sqrt(batch_size / row.lr_batch))


def _resolve(given: GivenSettings, errors: list[str]) -> Args:
    values = _loaded(given)
    program, game = given.program, values["game"] or given.program
    if not game:
        errors.append("no game: name it with --program Pong, or --program NAME --game Pong")
    elif game not in (*GAMES, *EXTRA_GAMES):
        known = (*GAMES, *EXTRA_GAMES)
        errors.append(f"{game!r} is not one of the {len(GAMES)} Atari games{nearest(str(game), known)}")
    program = program or str(game or "")
    if program and not _NAME.fullmatch(program):
        errors.append(
            f"program {program!r} is not a valid name: use at most 64 letters, digits, '_', '.' and '-', and begin with a "
            "letter, a digit or '_'"
        )
    if not _DEVICE.fullmatch(str(values["device"])):
        errors.append(f"device must be auto, cpu, cuda or cuda:N, not {values['device']!r}")
    values["game"] = game
    errors += check_together(values)
    if errors:
        raise BadArguments(errors)
    algo, batch = str(values["algo"]), int(values["batch_size"] or 0)
    if given.most_batch is not None and given.most_batch < batch:
        batch = values["batch_size"] = valid_batch(values, given.most_batch)
    if values["lr"] is None:  # depends on the final batch
        values["lr"] = default_lr(algo, batch)
    if values["max_grad_norm"] is None:
        values["max_grad_norm"] = defaults_of(algo).max_grad_norm
    return Args(program=program, given=given, **{name: values[name] for name in OPTIONS})  # type: ignore[arg-type]


def _loaded(given: GivenSettings) -> dict[str, Value | None]:
    """Every option: default < preset < given, including environments, batch and threads; nothing is checked yet."""
    values: dict[str, Value | None] = {name: option.default for name, option in OPTIONS.items()}
    values |= given.values
    values |= preset_values(given.values)
    defaults = {"num_envs": DEFAULT_ENVS, "batch_size": DEFAULT_BATCH, "threads": _cores()}
    values |= {name: value for name, value in defaults.items() if values[name] is None}
    if values["batch_size"] == AUTO:
        values["batch_size"] = valid_batch(values, batch_limit(given.values, DEFAULT_BATCH))
    return values


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _read_flags(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(text by option, errors) of the command line."""
    parser = _parser()
    found, rest = parser.parse_known_args(list(argv))
    known = [action.option_strings[-1] for action in parser._actions]
    errors = [f"--{name.replace('_', '-')} needs a value" for name, text in vars(found).items() if text == ""]
    for word in rest:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            errors.append(f"{flag} is not a flag{nearest(flag, known)}")
        else:
            errors.append(f"{word!r} is not expected here: every setting is a flag, such as --num-envs 32")
    return {name: text for name, text in vars(found).items() if text}, errors


def _parser() -> argparse.ArgumentParser:
    # For argparse every value is optional: otherwise it would exit at the first missing one and hide the other mistakes.
    parser = argparse.ArgumentParser(
        prog="python -m workers",
        usage="python -m workers --program NAME [--setting VALUE ...]",
        description="Train one Atari game, with checkpoints, resuming from the newest one. Alone it works in "
        "./runs/PROGRAM; under extralife's supervisor in the directory it is given.",
        epilog="Each setting is also an environment variable, RL_ and its name: RL_BATCH_SIZE=512. Flags win.",
        allow_abbrev=False,
    )
    parser.add_argument("--program", metavar="NAME", nargs="?", const="", help="name of the run (default: the game)")
    for option in OPTIONS.values():
        kind = {int: "N", float: "X", bool: "true|false", str: "NAME"}[option.kind]
        choices = ",".join(option.choices) if len(option.choices) in range(1, 9) else ""
        parser.add_argument(
            option.flag, dest=option.name, metavar=f"{{{choices}}}" if choices else kind,
            help=f"{option.help} (default: {_default(option)})".replace("%", "%%"), nargs="?",
            const="true" if option.kind is bool else "",
        )  # fmt: skip
    return parser


def _default(option: Option) -> str:
    if option.default is not None:
        return str(option.default).lower() if option.kind is bool else str(option.default)
    return {
        "game": "the program's name", "preset": "none", "episodes": "no limit", "steps": "no limit", "hours": "no limit",
        "num_envs": str(DEFAULT_ENVS), "batch_size": str(DEFAULT_BATCH), "fallback_batch": "the next that divides",
        "threads": "every core", "lr": "by the batch",
        "max_grad_norm": "by the algorithm",
    }[option.name]  # fmt: skip
