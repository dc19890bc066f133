"""Builds the batch script of one attempt or array.

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

Programs of one group that start together with the same terms, such as the seeds of a game, form one array. Its script finds
the program of its task in a table::

    #SBATCH --job-name=extralife-1a2b3c4d-Pong:all
    #SBATCH --comment=extralife:1a2b3c4d:Pong:array:89ab...4567
    #SBATCH --array=1-2
    ...
    case $SLURM_ARRAY_TASK_ID in
    1) cd /home/me/state/programs/Pong-s4 && extralife_order=$PWD/attempts/3-0123...cdef/order.json ;;
    2) cd /home/me/state/programs/Pong-s6 && extralife_order=$PWD/attempts/1-4567...89ab/order.json ;;
    esac
    exec /home/me/extralife/.venv/bin/python -S -E .../node.py "$extralife_order"

An array has no singleton: a later array of the group would wait for the last task of the earlier one. As everywhere, the
attempt's claim and its fence (`node.py`) keep a task that runs twice from training.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from supervisor.policy.cluster.launcher import LauncherSettings
from supervisor.policy.cluster.node_names import compress
from supervisor.records import dataclass

_COMMENT: Final = re.compile(r"extralife:([0-9a-f]{8}):(.{1,200}):([0-9]{1,9}):([0-9a-f]{32})", re.ASCII)
_ARRAY: Final = re.compile(r"extralife:([0-9a-f]{8}):([^:]{1,200}):array:([0-9a-f]{32})", re.ASCII)
_PART: Final = r"[^#`(){}<\\]*"
_LIST: Final = re.compile(
    r"(?!\s*(?:\[|(?:test|command|which|type|hash)\b))(?!.*\b(?:if|then|else|elif|for|while|until|do|case)\b)"
    rf"{_PART}&&{_PART}[^#`(){{}}<\\&|;\s]\s*"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tag:
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
        """The name of the job."""
        return f"extralife-{self.mark}-{self.program}"


@dataclass(frozen=True, slots=True)
class ArrayTag:
    """The content of an array's comment, the same for all its tasks. `token` names the table of its tasks (`arrays.py`)."""

    mark: str
    group: str
    token: str

    def __str__(self) -> str:
        return f"extralife:{self.mark}:{self.group}:array:{self.token}"

    @property
    def name(self) -> str:
        """The name of the array's job. No program's job has this name, because a program's name has no colon."""
        return f"extralife-{self.mark}-{self.group}:all"


def tag_of(comment: str) -> Tag | None:
    """The tag in a comment; None for an array, or a job that is not ours.

    A cluster's plugin may have added text to the comment.
    """
    found = _COMMENT.search(comment)
    return None if found is None else Tag(found[1], found[2], int(found[3]), found[4])


def array_of(comment: str) -> ArrayTag | None:
    """The array tag in a comment; None for a job that is not an array of ours."""
    found = _ARRAY.search(comment)
    return None if found is None else ArrayTag(found[1], found[2], found[3])


@dataclass(frozen=True, slots=True)
class Terms:
    """The request to Slurm, the same for all tasks of an array.

    `requeue`: Slurm may start this same script again. False for a command that names a checkpoint: it would begin at an old
    one.
    """

    settings: LauncherSettings
    avoid: tuple[str, ...] = ()
    requeue: bool = True


def batch_script(terms: Terms, tag: Tag, *, command: tuple[str, ...], output: str) -> str:
    """`command` starts `node.py`; `output` is the path of the script's own output, as a file name pattern for sbatch."""
    own = {"job-name": tag.name, "comment": str(tag), "dependency": "singleton"}
    return _script(
        f"attempt {tag.attempt} of {tag.program}", _options(terms, own, output), terms.settings.setup,
        command=shlex.join(command),
    )  # fmt: skip


def array_script(
    terms: Terms, tag: ArrayTag, places: Mapping[int, tuple[str, str]], *, command: tuple[str, ...], output: str
) -> str:  # fmt: skip
    """`places`: for each task its run directory, and the path of its order within it.

    That path becomes the last argument of `command`.
    """
    first, last = min(places), max(places)
    own = {"job-name": tag.name, "comment": str(tag), "array": f"{first}-{last}"}
    table = [
        "case $SLURM_ARRAY_TASK_ID in",
        *(
            f"{task}) cd {shlex.quote(run_dir)} && extralife_order=$PWD/{shlex.quote(order)} ;;"
            for task, (run_dir, order) in sorted(places.items())
        ),
        "esac",
    ]
    return _script(
        f"{len(places)} programs of {tag.group}, each a task of this array", _options(terms, own, output),
        terms.settings.setup, table=table, command=f'{shlex.join(command)} "$extralife_order"',
    )  # fmt: skip


def _options(terms: Terms, own: dict[str, str], output: str) -> list[str]:
    settings = terms.settings
    minutes = max(1, math.ceil(settings.time_limit_s / 60.0))
    rows = {
        **own,
        "partition": settings.partition, "account": settings.account, "qos": settings.qos, "constraint": settings.constraint,
        "gres": settings.gres or (f"gpu:{settings.gpus}" if settings.gpus else ""),
        "nodes": "1", "ntasks": "1", "cpus-per-task": str(settings.cpus),
        "mem": "" if settings.memory_mb is None else f"{settings.memory_mb}M",
        "time": str(minutes), "signal": f"B:USR1@{math.ceil(settings.signal_lead_s)}", "open-mode": "append",
        "output": output, "exclude": compress(terms.avoid) if terms.avoid else "",
    }  # fmt: skip
    options = [f"--{name}={_quoted(value)}" for name, value in rows.items() if value]
    options.append("--requeue" if terms.requeue else "--no-requeue")
    return options + [line.strip() for line in settings.options.splitlines() if line.strip()]


def _script(what: str, options: Sequence[str], setup: str, *, table: Sequence[str] = (), command: str) -> str:
    script = [
        "#!/bin/bash",
        f"# extralife: {what}. The daemon wrote this file; a change of it has no effect.",
        *(f"#SBATCH {option}" for option in options),
        "trap '' USR1  # until the program runs, a signal must not end the script",
        *table,
    ]
    if setup:
        # Not `set -e`: it would also count a command that fails inside a sourced file, such as one of conda's own scripts.
        script += [
            "extralife_failed() {  # its arguments: status, depth of sourced files, line (1: not known)",
            "    [ $2 -eq 1 ] || return 0  # the status of the sourced file itself counts",
            "    trap - ERR EXIT TERM",
            "    [ $1 -lt 128 ] || exit $1  # a signal, such as Slurm's own, is no fault of a line",
            f'    exec {command} $1 $(($3 - {len(script) + 9})) "$(sed -n $3p "$0")"',
            "}",
            "trap 'exit 143' TERM",
            "trap 'extralife_failed $? 1 1' EXIT",
            "trap 'extralife_failed $? ${#BASH_SOURCE[@]} $LINENO' ERR",
        ]
        script += [*map(_whole, setup.splitlines()), "trap - ERR EXIT TERM"]
    return "\n".join([*script, f"exec {command}"]) + "\n"


def _whole(line: str) -> str:
    """The line, so that it fails as a whole: of `source conda.sh && conda activate rl`, bash reports only the last command.

    Not of a question, such as `[ -e FILE ] && source FILE`: its "no" is no fault.
    """
    return f"{line} || false" if _LIST.fullmatch(line) else line


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
