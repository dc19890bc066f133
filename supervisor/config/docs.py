"""Makes docs/config.md from the tables: `python -m supervisor.config.docs > docs/config.md`. A test compares the two."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from typing import Final

from supervisor.config.default import DEFAULT_TOML
from supervisor.config.ladder import DEFAULT_LADDER
from supervisor.config.scripts import OWN_KEYS
from supervisor.config.tables import OF_LEVEL, RESOURCES, Setting, program_settings, settings_of
from supervisor.model.settings import SECTIONS, Paths
from workers.options import EXTRA_GAMES, GAMES, OPTIONS

_TYPES: Final = {int: "integer", float: "number", bool: "true/false", str: "string"}
_SECTION_INTRO: Final = {
    "daemon": "Settings of the daemon. Each key is also an environment variable, `EXTRALIFE_` and its name in capitals.",
    "load": "Who chooses the level: you, or the rule that climbs the ladder. See [levels](levels.md).",
    "level": "The load: one fixed level. `num_envs`, `batch_size` and `threads` may be overridden for one program.",
    "restart": "When a program that died is started again: [the rule](../supervisor/policy/worker/restart.py).",
    "stall": "When a worker counts as stalled: [the rule](../supervisor/policy/worker/stall.py).",
    "checkpoint": "How often a program saves: [the rule](../supervisor/policy/worker/checkpointing.py).",
    "divergence": "When losses are no longer finite: [the rule](../supervisor/policy/worker/divergence.py).",
    "health": "When a training makes progress but learns badly: [the rule](../supervisor/policy/worker/health.py).",
    "backup": "Copies of all games: [the rule](../supervisor/policy/upkeep/backups.py), [their content](backups.md).",
    "offsite": "Copies on another machine: [the rule](../supervisor/policy/upkeep/offsite.py), [how](offsite.md).",
    "notice": "Who says that this box ends: [the rule](../supervisor/policy/upkeep/notices.py), [how](offsite.md#notices).",
    "cost": "What the box costs: [the rule](../supervisor/policy/upkeep/cost.py). `EXTRALIFE_USD_PER_HOUR` overrides it.",
    "when_done": "When this box is stopped: [rule](../supervisor/policy/upkeep/when_done.py), [how](accounts.md#when-done).",
    "alerts": "Alerts and their targets: [the rule](../supervisor/policy/upkeep/alerting.py), [what is sent](alerts.md).",
    "gate": "A program starts once its GPU has the memory that it needs: [the rule](../supervisor/policy/box/gate.py).",
    "cgroups": "What one worker may take of the box: [the rule](../supervisor/policy/worker/confinement.py).",
    "prechecks": "What vetoes a higher level before it causes a reboot: [the rule](../supervisor/policy/box/prechecks.py).",
    "recorder": "What is kept for [curves](dashboard.md#curves): [the rule](../supervisor/policy/upkeep/resolution.py).",
    "http": "A TCP port with a password, for [browsers, Supervisor's clients and Prometheus](security.md#tcp).",
    "launcher": "Where programs run: here, or as jobs of Slurm: [the rule](../supervisor/policy/cluster/launcher.py).",
    "journal": "How much of the past stays in the journal: [the rule](../supervisor/adapters/journal/archive.py).",
}

_INTRO: Final = """\
# Configuration

Read this when you want to know what a setting means, or to write a configuration of your own.

One TOML file. Without `-c FILE` it is the first of `$EXTRALIFE_CONFIG`, `./extralife.toml`,
`~/.config/extralife/extralife.toml` and `/etc/extralife/extralife.toml`, else the embedded default at the end of this page.
[laptop.toml](../deploy/examples/laptop.toml), [box.toml](../deploy/examples/box.toml) (what `deploy/install.sh` writes) and
[a100.toml](../deploy/examples/a100.toml) are examples to begin with.

The later wins: default, file, environment (`EXTRALIFE_*` for the daemon, `RL_*` for every built-in program), flag
(`--state-dir`, `--runtime-dir`, `--log-level`, `--slots`). `supervisord --check` names every mistake at once and ends with
status 2; `supervisorctl config` shows each value with its origin. A file with a mistake is never applied in part:
running programs continue unchanged, and a boot that finds one starts with the
[last good](box.md#a-bad-configuration) configuration.

`supervisorctl reread` shows the effect of a changed file, and `update` applies it. A program restarts only when its own
settings have changed; limits, priority and levels change live, and so does a thread count that follows from the number of
slots (a program takes it at its next start). Of `[daemon]`, only `log_max_bytes` and `log_backups` change live; the rest
waits for the daemon's next start. So does `[launcher]` if its `kind` changes.

Times are in seconds. This page is generated from the tables that check a configuration
(`python -m supervisor.config.docs > docs/config.md`).
"""

_LEVELS: Final = """\
## [levels.NAME]

The ladder, lowest first, in place of [level]; [the rule](../supervisor/config/ladder.py). A name is one word of up to 32
letters, digits, `_`, `.` or `-`. A key that a level leaves out has the value of the level before it; the defaults are
those of the lowest. Each level is at least as heavy as the one before it in slots, environments and batch, and heavier in
one of them. Without any, `mode = "climb"` takes these levels, less those that are no heavier for the programs of the file:

| level | slots | environments | batch |
|---|---|---|---|
""" + "".join(
    f"| {level.name} | {level.slots} | {level.num_envs} | {level.batch_size} |\n" for level in DEFAULT_LADDER
)  # fmt: skip

_RESOURCES: Final = f"""\
### [levels.NAME.launcher]

What the jobs of a level ask for in place of [launcher], with `kind = "slurm"`:
{", ".join(f"`{key}`" for key in RESOURCES)}. A key that a level leaves out is as in the level before it, and in the
lowest as in [launcher]. A change of level that changes one of them lets each training save and exit, and submits it again.

```toml
[levels.heavy]
slots = 8
num_envs = 256

[levels.heavy.launcher]
partition = "h100"
gpus = 2
cpus = 32
```
"""

_PROGRAM: Final = """\
## [program.NAME]

A name is 1 to 64 letters, digits, `_`, `.` or `-`, not beginning with `.` or `-`, and not `all`. Any program may have:
"""

_BUILTIN: Final = f"""\
### A built-in game

Without `command`. The game is the program's name, or `game`; a name that is not a game takes that of [training]. It may have
every key of [training] below, which it overrides. The {len(GAMES)} Atari games have envpool's names:

{textwrap.fill(", ".join(GAMES), 120, break_long_words=False)}.

{", ".join(EXTRA_GAMES)} is a toy for checks: a learner solves it in seconds.

Every `RL_*` variable of the daemon's environment overrides its option in all built-in programs (an unknown one is refused).
They become flags of the worker's command line, and are taken out of its environment.

`seeds = [4, 6, 8]` makes a program for each seed, such as Pong-s4, Pong-s6 and Pong-s8 of [program.Pong]; those are the
names that `supervisorctl` knows. A `preset` overrides [level]; values given here, in [training] or by `RL_*`
override the preset. [Trainers](trainers.md) explains algorithms, presets and options.
"""

_FOREIGN: Final = """\
### Any command

With `command`. It keeps the daemon's environment (its `RL_*` variables too), less systemd's own variables; thread caps
such as `OMP_NUM_THREADS` are added where the environment has none.

It may also have `seeds`, and these keys of [training] as values of its placeholders: SCRIPT_KEYS.
`game` is any word then.
"""

_TRAINING: Final = """\
## [training]

Defaults of every built-in program; they override [level]. Each option is also a variable `RL_...`.
"""


def page() -> str:
    """The whole of docs/config.md."""
    parts = [_INTRO]
    for section in SECTIONS:
        settings = (settings_of(Paths) if section == "daemon" else {}) | settings_of(SECTIONS[section])
        parts.append(f"## [{section}]\n\n{_SECTION_INTRO[section]}\n\n{_table(settings)}")
    own_keys = ", ".join(f"`{key}`" for key in OWN_KEYS)
    parts += [
        f"{_LEVELS}\n{_table(OF_LEVEL)}\n{_RESOURCES}",
        f"{_PROGRAM}\n{_table(program_settings(command=False))}",
        _BUILTIN,
        f"{_FOREIGN.replace('SCRIPT_KEYS', own_keys)}\n{_table(program_settings(command=True))}",
        f"{_TRAINING}\n{_table({name: Setting.plain(option) for name, option in OPTIONS.items()})}",
        f"## The embedded default\n\n```toml\n{DEFAULT_TOML}```\n",
    ]
    return "\n".join(parts)


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
    sys.stdout.write(page())
