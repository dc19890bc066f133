"""[launcher]: what a batch script is made of. Every mistake that can be seen without the cluster is found here.

Whether the partition, the account and the quality of service exist only the cluster knows: `supervisorctl doctor` asks it,
and a submission that it refuses is reported in its own words.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.config.sheet import Sheet
from supervisor.policy.cluster.launcher import SLURM, LauncherSettings

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


def complete(sheet: Sheet, made: LauncherSettings) -> LauncherSettings:
    """`made` of the plain keys, checked as a whole. Without [launcher] no page names its keys."""
    if "launcher" not in sheet.source.body:
        sheet.forget("launcher.")
        return made
    for key in _SECTION:
        text, (form, what) = getattr(made, key), _WORDS[key]
        if text and not form.fullmatch(text):
            sheet.error(sheet.at("launcher", key), f"launcher.{key} must be {what}, not {text!r:.80}")
    if made.gres and made.gpus:
        sheet.error(sheet.at("launcher", "gres"), "launcher.gres and launcher.gpus both ask for GPUs; leave one of them out")
    if made.signal_lead_s > made.time_limit_s / 2:
        sheet.error(
            sheet.at("launcher", "signal_lead_s"),
            f"launcher.signal_lead_s, {made.signal_lead_s:g}, leaves less than half of launcher.time_limit_s, "
            f"{made.time_limit_s:g}, for training; lower the first or raise the second",
        )
    for line in made.options.splitlines():
        _check_option(sheet, line.strip())
    if "\0" in made.setup or "\r" in made.setup:
        sheet.error(sheet.at("launcher", "setup"), "launcher.setup has a carriage return; write plain lines of shell")
    if not made.remote and len(sheet.table("launcher")) > (1 if "kind" in sheet.table("launcher") else 0):
        sheet.error(sheet.at("launcher"), '[launcher] has settings of a cluster; add kind = "slurm", or remove them')
    return made


def cpus_of_a_job(sheet: Sheet) -> int | None:
    """How many processors a program has on its node; None: programs run on this machine."""
    if sheet.values.get("launcher.kind") != SLURM:
        return None
    cpus = sheet.values["launcher.cpus"]
    return cpus if isinstance(cpus, int) else None


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
        sheet.error(origin, f"launcher.options: --{name} is set by extralife itself; {instead}")
