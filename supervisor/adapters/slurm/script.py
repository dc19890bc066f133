"""The batch script of one attempt: readable, and complete without extralife's help. Pure: settings in, text out.

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

`--dependency=singleton` is Slurm's own guard: of the jobs of one name and user only one runs at a time, so a job that was
submitted twice by an accident waits for the first one, and ends at once when it starts (`node.py`).

Seeds are jobs of their own and no array (docs/adr/0075-slurm-launcher.md).
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from typing import Final

from supervisor.policy.cluster.launcher import LauncherSettings
from supervisor.policy.cluster.node_names import compress

_COMMENT: Final = re.compile(r"extralife:([0-9a-f]{8}):(.{1,200}):([0-9]{1,9}):([0-9a-f]{32})", re.ASCII)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tag:
    """What a job's comment says: `mark` names the state directory, `token` the attempt that it was submitted for."""

    mark: str
    program: str
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"extralife:{self.mark}:{self.program}:{self.attempt}:{self.token}"


def tag_of(comment: str) -> Tag | None:
    """None for a job that is not ours. A cluster's plugin may have added words of its own."""
    found = _COMMENT.search(comment)
    return None if found is None else Tag(found[1], found[2], int(found[3]), found[4])


def job_name(tag: Tag) -> str:
    return f"extralife-{tag.mark}-{tag.program}"


def batch_script(
    settings: LauncherSettings, tag: Tag, *, command: tuple[str, ...], output: str, avoid: tuple[str, ...] = (),
    requeue: bool = True,
) -> str:  # fmt: skip
    """`command` runs the node's half; `output` is where the script's own output goes, in sbatch's words.

    `requeue`: Slurm may start this very script again. One whose command names a checkpoint would begin at an old one.
    """
    minutes = max(1, math.ceil(settings.time_limit_s / 60.0))
    rows = {
        "job-name": job_name(tag), "comment": str(tag), "dependency": "singleton",
        "partition": settings.partition, "account": settings.account, "qos": settings.qos, "constraint": settings.constraint,
        "gres": settings.gres or (f"gpu:{settings.gpus}" if settings.gpus else ""),
        "nodes": "1", "ntasks": "1", "cpus-per-task": str(settings.cpus),
        "mem": "" if settings.memory_mb is None else f"{settings.memory_mb}M",
        "time": str(minutes), "signal": f"B:USR1@{math.ceil(settings.signal_lead_s)}", "open-mode": "append",
        "output": output, "exclude": compress(avoid) if avoid else "",
    }  # fmt: skip
    options = [f"--{name}={_quoted(value)}" for name, value in rows.items() if value]
    options.append("--requeue" if requeue else "--no-requeue")
    options += [line.strip() for line in settings.options.splitlines() if line.strip()]
    lines = [
        "#!/bin/bash",
        f"# extralife: attempt {tag.attempt} of {tag.program}. The daemon wrote this file; a change of it has no effect.",
        *(f"#SBATCH {option}" for option in options),
        "trap '' USR1  # until the program runs, a signal must not end the script",
        *settings.setup.splitlines(),
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
