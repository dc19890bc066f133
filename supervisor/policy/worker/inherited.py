"""Which of the daemon's environment variables a program inherits: all but the daemon's own and the keys that only it uses.

The rule. A program does not inherit

* `EXTRALIFE_*` and `RESTIC_*`, except the three that locate the daemon (`EXTRALIFE_CONFIG`, `_STATE_DIR`, `_RUNTIME_DIR`);
* the keys with which a provider lets a box end itself, such as RUNPOD_API_KEY ([when_done]);
* the keys of the copies' backend, where [offsite] has no `env_file`: restic then takes them from the daemon's environment.

A program's own `env` counts more. With an `env_file`, the environment's keys are for the programs.

Worked example, `repository = "s3:..."` without `env_file`: AWS_SECRET_ACCESS_KEY, RUNPOD_API_KEY and EXTRALIFE_USD_PER_HOUR
are left out; WANDB_API_KEY and AWS_DEFAULT_REGION are inherited.

Why not leave out all that looks secret: WANDB_API_KEY and HF_TOKEN are for the training.
"""

from __future__ import annotations

from typing import Final

_LOCATE: Final = frozenset({"EXTRALIFE_CONFIG", "EXTRALIFE_STATE_DIR", "EXTRALIFE_RUNTIME_DIR"})
_METER: Final = frozenset({"CONTAINER_API_KEY", "VAST_API_KEY", "RUNPOD_API_KEY", "LAMBDA_API_KEY", "TNR_API_TOKEN"})


def is_inherited(variable: str, keys: frozenset[str] = frozenset()) -> bool:
    """Whether a program gets this variable of the daemon. `keys`: those that features keep for themselves."""
    if variable.startswith(("EXTRALIFE_", "RESTIC_")):
        return variable in _LOCATE
    return variable not in _METER | keys
