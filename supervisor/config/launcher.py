"""[launcher]: the settings of batch scripts. Every mistake that can be found without the cluster is found here.

Only the cluster knows whether the partition, the account and the quality of service exist. `supervisorctl doctor` asks it.
If the cluster refuses a submission, its own message is reported.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from supervisor.config.sheet import DERIVED, Origin, Sheet, label, shown
from supervisor.config.tables import resource_keys, section_keys
from supervisor.model.settings import ProgramSpec, Progress
from supervisor.policy.cluster.launcher import LEAST_PATIENCE_S, SLURM, JobResources, LauncherSettings
from supervisor.policy.worker.stall import StallSettings
from workers.options import nearest

_WORD: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,64}", re.ASCII)
_LIST: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,64}(,[A-Za-z0-9_.@+-]{1,64})*", re.ASCII)
_GRES: Final = re.compile(r"[A-Za-z0-9_.:,/=()-]{1,200}", re.ASCII)
_CONSTRAINT: Final = re.compile(r"[A-Za-z0-9_.&|*!\[\](),:-]{1,200}", re.ASCII)
_OPTION: Final = re.compile(r"--[a-z][a-z-]*(=[^\s'\"\\`$;|&<>]*)?", re.ASCII)
_WORDS: Final = {
    "partition": (_LIST, "the name of a partition, or several with commas between them"),
    "account": (_WORD, "the name of an account"),
    "qos": (_WORD, "the name of a quality of service"),
    "gres": (_GRES, "generic resources such as gpu:a100:1"),
    "constraint": (_CONSTRAINT, "features such as a100&nvlink"),
}
# The batch script sets these itself: another value would break what extralife relies on.
_OURS: Final = (
    "array", "begin", "chdir", "comment", "constraint", "cpus-per-task", "dependency", "error", "exclude", "export",
    "gres", "gpus", "input", "job-name", "mem", "no-requeue", "nodes", "ntasks", "open-mode", "output", "parsable",
    "partition", "account", "qos", "requeue", "signal", "time", "wait", "wrap", "test-only",
)  # fmt: skip
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


def complete(sheet: Sheet, made: LauncherSettings) -> LauncherSettings:
    """`made` (the plain keys), checked as a whole. Without [launcher], no page lists its keys."""
    if "launcher" not in sheet.source.body:
        sheet.forget("launcher.")
        return made
    _check_words(sheet, ("launcher",), {key: getattr(made, key) for key in _SECTION})
    _check_gpus(sheet, ("launcher",), made.gres, made.gpus)
    if made.signal_lead_s > made.time_limit_s / 2:
        _short(sheet, sheet.at("launcher", "signal_lead_s"), made.signal_lead_s, "launcher", made.time_limit_s)
    for line in made.options.splitlines():
        _check_option(sheet, line.strip())
    if "\0" in made.setup or "\r" in made.setup:
        sheet.error(sheet.at("launcher", "setup"), "launcher.setup has a carriage return; write plain lines of shell")
    if made.remote and "notice" in sheet.source.body:
        sheet.error(sheet.at("notice"), "[notice] is about the end of this host, which ends no job; remove it")
    if not made.remote and len(sheet.table("launcher")) > (1 if "kind" in sheet.table("launcher") else 0):
        sheet.error(sheet.at("launcher"), '[launcher] has settings of a cluster; add kind = "slurm", or remove them')
    return made


def check_patience(sheet: Sheet, made: LauncherSettings, stall: StallSettings) -> None:
    """Refuse limits on progress that are too short for a job's beats, which arrive late through the shared file system."""
    limits: list[tuple[tuple[str, ...], float]] = [(("stall", "floor_s"), stall.floor_s)]
    for name, table in sheet.table("program").items():
        given = table.get("stall_timeout_s") if isinstance(table, dict) else None
        if isinstance(given, int | float) and given > 0:
            limits.append((("program", name, "stall_timeout_s"), given))
    for path, given_s in limits:
        if made.remote and given_s < LEAST_PATIENCE_S:
            message = f"{label(*path)} must be at least {LEAST_PATIENCE_S:g} for jobs of a cluster, not {given_s:g}"
            why = "their beats come through the shared file system, some seconds late"
            sheet.error(sheet.at(*path), f"{message}: {why}, and training jobs would be called stalled")


def resources(sheet: Sheet, name: str, value: object, below: JobResources) -> JobResources:
    """[levels.NAME.launcher]. A missing key has the value of the level before it."""
    path = ("levels", name, "launcher")
    if not isinstance(value, dict):
        sheet.error(sheet.at(*path), f"{label(*path)} must be a section, [{label(*path)}], not {shown(value)}")
        return below
    if not _on_cluster(sheet):
        sheet.error(sheet.at(*path), f'{label(*path)} is for jobs of a cluster; add [launcher] kind = "slurm", or remove it')
    rules, given = resource_keys(), {}
    for key, each in value.items():
        if key not in rules:
            hint = nearest(key, rules) or f"; a level may have its own {', '.join(rules)}"
            hint = "; it is the same at all levels: set it in [launcher]" if key in section_keys("launcher") else hint
            sheet.error(sheet.at(*path, key), f"{label(*path, key)} is not a setting{hint}")
            continue
        try:
            given[key] = rules[key].check(each, label(*path, key))
        except ValueError as error:
            sheet.error(sheet.at(*path, key), str(error))
    _check_words(sheet, path, given)
    _check_gpus(sheet, path, given.get("gres"), given.get("gpus"))
    lead_s, limit_s = sheet.values.get("launcher.signal_lead_s"), given.get("time_limit_s")
    if isinstance(lead_s, float) and isinstance(limit_s, float) and lead_s > limit_s / 2:
        _short(sheet, sheet.at(*path, "time_limit_s"), lead_s, label(*path), limit_s)
    made = below.then(given)
    for key, each in made.given().items():
        origin = sheet.at(*path, key) if key in given else Origin(DERIVED, "as in the level before")
        sheet.note(label(*path, key), each, origin)
    return made


def with_resources(levels: Mapping[str, JobResources], made: dict[str, tuple[ProgramSpec, ...]]) -> None:
    """Give each training the resources of its level. Its digests cover them: a level that changes them restarts it.

    If no level has resources of its own, the digests do not change.
    """
    if not any(each.given() for each in levels.values()):
        return
    for name, specs in made.items():
        made[name] = tuple(spec if spec.service else _given(spec, levels[name]) for spec in specs)


def _given(spec: ProgramSpec, job: JobResources) -> ProgramSpec:
    body = json.dumps([spec.digest, job.given()], sort_keys=True)
    digest = hashlib.blake2b(body.encode(), digest_size=8).hexdigest()
    # A script that takes no other value of the level still needs another job there.
    return replace(spec, job=job, digest=digest, own_digest=spec.own_digest or spec.digest)


def check_programs(sheet: Sheet, made: LauncherSettings, tables: Mapping[str, Any]) -> None:
    """Refuse each key that works for a program on this machine, but not for a job of a cluster."""
    if not made.remote:
        return
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        for key, why in _OF_ONE_MACHINE.items():
            if table.get(key, "") not in ("", None) and table[key] is not False:
                sheet.error(sheet.at("program", name, key), f"{label('program', name, key)}: {why}")
        if table.get("progress") == Progress.NOTIFY:
            path = ("program", name, "progress")
            sheet.error(sheet.at(*path), f"{label(*path)}: {_NO_NOTIFICATIONS}")


def cpus_of_a_job(sheet: Sheet, level: JobResources) -> int | None:
    """How many processors a program has on its node; None: programs run on this machine."""
    if not _on_cluster(sheet):
        return None
    cpus = sheet.values["launcher.cpus"] if level.cpus is None else level.cpus
    return cpus if isinstance(cpus, int) else None


def _on_cluster(sheet: Sheet) -> bool:
    return sheet.values.get("launcher.kind") == SLURM


def _check_words(sheet: Sheet, path: tuple[str, ...], given: Mapping[str, object]) -> None:
    for key, (form, description) in _WORDS.items():
        text = given.get(key)
        if text and not form.fullmatch(str(text)):
            sheet.error(sheet.at(*path, key), f"{label(*path, key)} must be {description}, not {text!r:.80}")


def _check_gpus(sheet: Sheet, path: tuple[str, ...], gres: object, gpus: object) -> None:
    if gres and gpus:
        both = f"{label(*path, 'gres')} and {label(*path, 'gpus')}"
        sheet.error(sheet.at(*path, "gres"), f"{both} both ask for GPUs; leave one of them out")


def _short(sheet: Sheet, origin: Origin, lead_s: float, section: str, limit_s: float) -> None:
    sheet.error(
        origin,
        f"launcher.signal_lead_s, {lead_s:g}, leaves less than half of {section}.time_limit_s, "
        f"{limit_s:g}, for training; lower the first or raise the second",
    )


def _check_option(sheet: Sheet, line: str) -> None:
    origin = sheet.at("launcher", "options")
    if not line:
        return
    if not _OPTION.fullmatch(line):
        sheet.error(origin, f"launcher.options must have one option of sbatch a line, as --NAME=VALUE, not {line!r:.80}")
        return
    name = line[2:].partition("=")[0]
    if name in _OURS:
        instead = f"set launcher.{name.replace('-', '_')}" if name in _SECTION or name == "gpus" else "leave it out"
        instead = "give a program seeds = [1, 2, 3]" if name == "array" else instead
        sheet.error(origin, f"launcher.options: --{name} is set by extralife itself; {instead}")
