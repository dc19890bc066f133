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
    exec /home/me/extralife/.venv/bin/python -S -E .../node.py .../order.json

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
    module load conda
    conda activate rl
    exec /home/me/extralife/.venv/bin/python -S -E .../node.py "$extralife_order"

An array has no singleton: a later array of the group would wait for the last task of the earlier one. As everywhere, the
attempt's claim and its fence (`node.py`) keep a task that runs twice from training (docs/adr/0091-seeds-as-arrays.md).
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
        start=f"exec {shlex.join(command)}",
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
        terms.settings.setup, table=table, start=f'exec {shlex.join(command)} "$extralife_order"',
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


def _script(what: str, options: Sequence[str], setup: str, *, table: Sequence[str] = (), start: str) -> str:
    lines = [
        "#!/bin/bash",
        f"# extralife: {what}. The daemon wrote this file; a change of it has no effect.",
        *(f"#SBATCH {option}" for option in options),
        "trap '' USR1  # until the program runs, a signal must not end the script",
        *table,
        *setup.splitlines(),
        start,
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
