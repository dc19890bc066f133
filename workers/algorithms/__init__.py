"""The algorithms: each module has a `Learner` (`learner.py` defines its interface). `options.ALGORITHMS` lists them.

To add an algorithm, add a module here and a row there.
"""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING

import torch

from workers import auto
from workers.contract import REPLAY_DIR
from workers.on_policy import rollout_bytes
from workers.replay import STEP, available_memory_bytes
from workers.store import newest_identity

if TYPE_CHECKING:
    from pathlib import Path

    from workers.args import Args
    from workers.envs import Spec
    from workers.learner import Learner
    from workers.precision import Precision


def kind(algo: str) -> type[Learner]:
    """The learner of an algorithm, from the module of its name."""
    learner: type[Learner] = importlib.import_module(f"{__name__}.{algo}").Learner
    return learner


def measure_constraints(args: Args, spec: Spec, precision: Precision, run_dir: Path) -> auto.Constraints:
    """The input of `auto.choose`: each algorithm's needs, the free resources, and the newest checkpoint's algorithm."""
    replay_dir, frame_bytes = run_dir / REPLAY_DIR, spec.frame_shape[0] * spec.frame_shape[1]
    held = sum(path.stat().st_size for path in replay_dir.iterdir()) if replay_dir.is_dir() else 0
    directory = next(path for path in (run_dir, *run_dir.parents) if path.is_dir())
    cuda = precision.device.type == "cuda"
    return auto.Constraints(
        checkpoint_algo=newest_identity(run_dir).get("algo"), num_envs=args.num_envs,
        replay_bytes=args.replay_size * (frame_bytes + STEP.itemsize),
        rollout_bytes=rollout_bytes(args.n_steps, args.num_envs, spec),
        disk_bytes=shutil.disk_usage(directory).free + held, memory_bytes=available_memory_bytes(),
        gpu_bytes=torch.cuda.mem_get_info(precision.device)[0] if cuda else None,
    )  # fmt: skip
