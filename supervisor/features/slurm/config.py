"""[launcher]: the settings of batch scripts. Every mistake that can be found without the cluster is found here.

Only the cluster knows whether the partition, the account and the quality of service exist. `extralifectl doctor` asks it.
If the cluster refuses a submission, its own message is reported.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from supervisor.config.tables import given, refuse_unknown, settings_of
from supervisor.config.validation import DERIVED, Origin, Section, Validation, label, shown
from supervisor.features.slurm.settings import LEAST_PATIENCE_S, SLURM, JobResources, LauncherSettings, NextJob
from supervisor.model.settings import Level, ProgramSpec, Progress
from supervisor.policy.worker.stall import StallSettings

RESOURCES: Final = {each.name: settings_of(LauncherSettings)[each.name] for each in fields(JobResources)}
_OPTION: Final = re.compile(r"--[a-z][a-z-]*(=[^\s'\"\\`$;|&<>]*)?", re.ASCII)
# The batch script sets these itself: another value would break what extralife relies on.
_OURS: Final = (
    "array", "begin", "chdir", "comment", "constraint", "cpus-per-task", "dependency", "error", "exclude", "export",
    "gres", "gpus", "input", "job-name", "mem", "no-requeue", "nodes", "ntasks", "open-mode", "output", "parsable",
    "partition", "account", "qos", "requeue", "signal", "time", "wait", "wrap", "test-only",
)  # fmt: skip
# Options that the script does not set, and why a job must not have them.
_HARMFUL: Final = {
    "clusters": "the daemon does not find jobs of another cluster",
    "time-min": "a job that Slurm makes shorter does not know when its time is over",
}
_SECTION: Final = ("partition", "account", "qos", "constraint", "gres")
# Keys of a program that a job cannot have, and what to do about each.
_OF_ONE_MACHINE: Final = {
    "user": "a job runs as the user who submits it; remove it",
    "stdin": "a job has no standard input that the daemon could write to; remove it",
    "health": "a service runs on the node of its job, where the daemon cannot ask it; remove it",
    "gpu": "Slurm chooses the GPUs of a job; set launcher.gpus or launcher.gres, and remove it",
    "min_free_mb": "no job waits for the memory of this host's GPUs; remove it",
    "gate_poll_s": "no job waits for the memory of this host's GPUs; remove it",
    "gate_timeout_s": "no job waits for the memory of this host's GPUs; remove it",
    "cpu_weight": "Slurm gives each job its processors; set launcher.cpus, and remove it",
}
_NO_NOTIFICATIONS: Final = (
    'notifications do not leave the node of a job; remove it, or set progress to "beat", "figures", "log" or "files"'
)


SECTION: Final = "launcher"


def complete(validation: Validation, made: LauncherSettings, sections: Mapping[str, Any]) -> LauncherSettings:
    """[launcher], checked, and what jobs need of other sections. Without [launcher], no page lists its keys."""
    if "launcher" not in validation.source.body:
        validation.forget("launcher.")
        return made
    section = validation.section("launcher")
    _check_gpus(section, made.gres, made.gpus)
    if made.signal_lead_s > made.time_limit_s / 2:
        _short(validation, section.at("signal_lead_s"), made.signal_lead_s, "launcher", made.time_limit_s)
    for line in made.options.splitlines():
        _check_option(section, line.strip())
    if "\r" in made.setup:
        section.refuse("setup", "has a carriage return; write plain lines of shell")
    if made.remote and "notice" in validation.source.body:
        validation.error(validation.at("notice"), "[notice] is about the end of this host, which ends no job; remove it")
    if not made.remote and section.body.keys() - {"kind"}:
        validation.error(section.at(), '[launcher] has settings of a cluster; add kind = "slurm", or remove them')
    if made.remote:
        _check_patience(validation, sections["stall"])
        _check_programs(validation)
    return made


def _check_patience(validation: Validation, stall: StallSettings) -> None:
    """Refuse limits on progress that are too short for a job's beats, which arrive late through the shared file system."""
    limits: list[tuple[tuple[str, ...], float]] = [(("stall", "floor_s"), stall.floor_s)]
    for name, table in validation.section("program").body.items():
        given = table.get("stall_timeout_s") if isinstance(table, dict) else None
        if isinstance(given, int | float) and given > 0:
            limits.append((("program", name, "stall_timeout_s"), given))
    for path, given_s in limits:
        if given_s < LEAST_PATIENCE_S:
            message = f"must be at least {LEAST_PATIENCE_S:g} for jobs of a cluster, not {given_s:g}"
            why = "their beats come through the shared file system, some seconds late"
            validation.refuse(path, f"{message}: {why}, and training jobs would be called stalled")


def level(level: Section, before: Level | None) -> JobResources:
    """[levels.NAME.launcher]. A missing key has the value of the level before it."""
    below = JobResources() if before is None else before.of(JobResources)
    if SECTION not in level and not below.given():
        return below
    validation, table = level.validation, level.body.get("launcher", {})
    section = Section(validation, (*level.path, "launcher"), table)
    if not isinstance(table, dict):
        section.refuse(None, f"must be a section, [{section.label()}], not {shown(table)}")
        return below
    if validation.values.get("launcher.kind") != SLURM:
        section.refuse(None, 'is for jobs of a cluster; add [launcher] kind = "slurm", or remove it')
    for key in table.keys() & settings_of(LauncherSettings).keys() - RESOURCES.keys():
        section.refuse(key, "is not a setting; it is the same at all levels: set it in [launcher]")
    known = (*RESOURCES, *settings_of(LauncherSettings))
    refuse_unknown(section, known, f"a level may have its own {', '.join(RESOURCES)}")
    values = given(section, RESOURCES)
    _check_gpus(section, values.get("gres"), values.get("gpus"))
    lead_s, limit_s = validation.values.get("launcher.signal_lead_s"), values.get("time_limit_s")
    if isinstance(lead_s, float) and isinstance(limit_s, float) and lead_s > limit_s / 2:
        _short(validation, section.at("time_limit_s"), lead_s, section.label(), limit_s)
    made = below.then(values)
    for key, each in made.given().items():
        section.note(key, each, section.at(key) if key in values else Origin(DERIVED, "as in the level before"))
    return made


def at_levels(levels: tuple[Level, ...], made: dict[str, tuple[ProgramSpec, ...]]) -> None:
    """Give each training the resources of its level. Its digests cover them: a level that changes them restarts it.

    If no level has resources of its own, the digests do not change.
    """
    resources = {each.name: each.of(JobResources) for each in levels}
    if not any(each.given() for each in resources.values()):
        return
    for name, specs in made.items():
        made[name] = tuple(spec if spec.service else _given(spec, resources[name]) for spec in specs)


def _given(spec: ProgramSpec, job: JobResources) -> ProgramSpec:
    body = json.dumps([spec.digest, job.given()], sort_keys=True)
    digest = hashlib.blake2b(body.encode(), digest_size=8).hexdigest()
    # A script that takes no other value of the level still needs another job there.
    return replace(spec.having(NextJob(job)), digest=digest, own_digest=spec.own_digest or spec.digest)


def _check_programs(validation: Validation) -> None:
    """Refuse each key that works for a program on this machine, but not for a job of a cluster."""
    for name, table in validation.section("program").body.items():
        if not isinstance(table, dict):
            continue
        for key, why in _OF_ONE_MACHINE.items():
            if table.get(key, "") not in ("", None) and table[key] is not False:
                validation.refuse(("program", name, key), f": {why}")
        if table.get("progress") == Progress.NOTIFY:
            validation.refuse(("program", name, "progress"), f": {_NO_NOTIFICATIONS}")


def threads(validation: Validation, level: Level) -> tuple[int, str] | None:
    """The processors of a program on its node, and the key that says so; None: programs run on this machine."""
    own = level.of(JobResources).cpus
    cpus = validation.values.get("launcher.cpus") if own is None else own
    if validation.values.get("launcher.kind") != SLURM or not isinstance(cpus, int):
        return None
    return cpus, "launcher.cpus" if own is None else f"{label('levels', level.name)}.launcher.cpus"


def _check_gpus(section: Section, gres: object, gpus: object) -> None:
    if gres and gpus:
        section.refuse("gres", f"and {section.label('gpus')} both ask for GPUs; leave one of them out")


def _short(validation: Validation, origin: Origin, lead_s: float, section: str, limit_s: float) -> None:
    validation.error(
        origin,
        f"launcher.signal_lead_s, {lead_s:g}, leaves less than half of {section}.time_limit_s, "
        f"{limit_s:g}, for training; lower the first or raise the second",
    )


def _check_option(section: Section, line: str) -> None:
    name = line[2:].partition("=")[0]
    if line and not _OPTION.fullmatch(line):
        section.refuse("options", f"must have one option of sbatch a line, as --NAME=VALUE, not {line!r:.80}")
    elif name in _OURS:
        instead = f"set launcher.{name.replace('-', '_')}" if name in _SECTION or name == "gpus" else "leave it out"
        instead = "give a program seeds = [1, 2, 3]" if name == "array" else instead
        section.refuse("options", f": --{name} is set by extralife itself; {instead}")
    elif name in _HARMFUL:
        section.refuse("options", f": --{name} is refused, because {_HARMFUL[name]}; leave it out")
