"""Builds the batch script of one attempt.

It is readable and complete without extralife. Pure: settings in, text out.

Example, of Pong on an A100 partition::

    #!/bin/bash
    # extralife: attempt 3 of Pong. The daemon wrote this file; a change of it has no effect.
    #SBATCH --job-name=extralife-1a2b3c4d-Pong
    #SBATCH --comment=extralife:1a2b3c4d:Pong:3:0123...cdef
    #SBATCH --dependency=singleton
    #SBATCH --time=240
    #SBATCH --signal=B:USR1@120
    ...
    module load conda
    conda activate rl
    ...
    exec /home/me/extralife/.venv/bin/python -S -E .../node.py .../order.json

A line of `setup` that fails, or ends the script, ends the job: a program that goes on without its environment would run
under another Python. Then `node.py` records that line instead of starting the program.

`--dependency=singleton` is Slurm's own guard: of the jobs with the same name and user, only one runs at a time. So if a job
is submitted twice by accident, the second one waits for the first, and ends at once when it starts (`node.py`).
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Final

from supervisor.features.slurm.settings import LauncherSettings
from supervisor.records import Record

OUTPUT_FILE: Final = "job-{}.out"  # filled with sbatch's pattern for the job id, or with the id itself
_COMMENT: Final = re.compile(r"extralife:([0-9a-f]{8}):(.{1,200}):([0-9]{1,9}):([0-9a-f]{32})", re.ASCII)
_PART: Final = r"[^#`(){}<\\]*"
_LIST: Final = re.compile(
    r"(?!\s*(?:\[|(?:test|command|which|type|hash)\b))(?!.*\b(?:if|then|else|elif|for|while|until|do|case)\b)"
    rf"{_PART}&&{_PART}[^#`(){{}}<\\&|;\s]\s*"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]+", re.ASCII)


class Tag(Record):
    """The content of a job's comment.

    `mark` identifies the state directory, `token` the attempt for which the job was submitted.
    """

    mark: str
    program: str
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"extralife:{self.mark}:{self.program}:{self.attempt}:{self.token}"

    @property
    def name(self) -> str:
        return f"extralife-{self.mark}-{self.program}"


def tag_of(comment: str) -> Tag | None:
    """The tag in a comment; None for a job that is not ours. A cluster's plugin may have added text to the comment."""
    found = _COMMENT.search(comment)
    return None if found is None else Tag(found[1], found[2], int(found[3]), found[4])


class Terms(Record):
    """The request to Slurm.

    `requeue`: Slurm may start this same script again. False for a command that names a checkpoint: it would begin at an old
    one.
    """

    settings: LauncherSettings
    avoid: tuple[str, ...] = ()
    requeue: bool = True


def batch_script(terms: Terms, tag: Tag, *, command: tuple[str, ...], output: str) -> str:
    """`command` starts `node.py`; `output` is the path of the script's own output, as a file name pattern for sbatch."""
    run, setup = shlex.join(command), terms.settings.setup
    script = [
        "#!/bin/bash",
        f"# extralife: attempt {tag.attempt} of {tag.program}. The daemon wrote this file; a change of it has no effect.",
        *(f"#SBATCH {option}" for option in _options(terms, tag, output)),
        "trap '' USR1  # until the program runs, a signal must not end the script",
    ]
    if setup:
        # Not `set -e`: it would also count a command that fails inside a sourced file, such as one of conda's own scripts.
        script += [
            "extralife_failed() {  # its arguments: status, depth of sourced files, line (1: not known)",
            "    [ $2 -eq 1 ] || return 0  # the status of the sourced file itself counts",
            "    trap - ERR EXIT TERM",
            "    [ $1 -lt 128 ] || exit $1  # a signal, such as Slurm's own, is no fault of a line",
            f'    exec {run} $1 $(($3 - {len(script) + 9})) "$(sed -n $3p "$0")"',
            "}",
            "trap 'exit 143' TERM",
            "trap 'extralife_failed $? 1 1' EXIT",
            "trap 'extralife_failed $? ${#BASH_SOURCE[@]} $LINENO' ERR",
        ]
        script += [*map(_whole, setup.splitlines()), "trap - ERR EXIT TERM"]
    return "\n".join([*script, f"exec {run}"]) + "\n"


def _options(terms: Terms, tag: Tag, output: str) -> list[str]:
    settings = terms.settings
    minutes = max(1, math.ceil(settings.time_limit_s / 60.0))
    rows = {
        "job-name": tag.name, "comment": str(tag), "dependency": "singleton",
        "partition": settings.partition, "account": settings.account, "qos": settings.qos, "constraint": settings.constraint,
        "gres": settings.gres or (f"gpu:{settings.gpus}" if settings.gpus else ""),
        "nodes": "1", "ntasks": "1", "cpus-per-task": str(settings.cpus),
        "mem": "" if settings.memory_mb is None else f"{settings.memory_mb}M",
        "time": str(minutes), "signal": f"B:USR1@{math.ceil(settings.signal_lead_s)}", "open-mode": "append",
        "output": output, "exclude": ",".join(terms.avoid),
    }  # fmt: skip
    options = [f"--{name}={_quoted(value)}" for name, value in rows.items() if value]
    options.append("--requeue" if terms.requeue else "--no-requeue")
    return options + [line.strip() for line in settings.options.splitlines() if line.strip()]


def _whole(line: str) -> str:
    """The line, so that it fails as a whole: of `source conda.sh && conda activate rl`, bash reports only the last command.

    Not of a question, such as `[ -e FILE ] && source FILE`: its "no" is no fault.
    """
    return f"{line} || false" if _LIST.fullmatch(line) else line


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
