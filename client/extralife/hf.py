"""Hugging Face: `Trainer(callbacks=[hf.saver(run)])` and `train(resume_from_checkpoint=hf.resume(run))`.

Steps are optimizer steps (`global_step`). The trainer writes its own `checkpoint-N`; the checkpoints are
copies of those files, which outlive `save_total_limit`. (Not hard links: the trainer writes a step's files again in place.)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import Run

MODEL_DIR = "trainer"


def resume(run: Run) -> str | None:
    """The path for `train(resume_from_checkpoint=...)`: the newest whole checkpoint, or None."""
    found = run.restore()
    return None if found is None else str(found.path / MODEL_DIR)


def saver(run: Run) -> Any:
    """A callback that reports each step, makes the trainer save when it is due and stop when asked to leave."""
    from transformers import TrainerCallback

    class Saver(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """The trainer obeys `should_save` of its control right after each step. All ranks save and stop together."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            run.step(state.global_step)
            save, stop = _decided(args, run.should_save(), run.should_stop())
            if save or stop:
                control.should_save = True
            if stop:
                run.stop()
                control.should_training_stop = True
            return control

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            logs = logs or {}
            figures = {"grad_norm": float(logs["grad_norm"])} if "grad_norm" in logs else {}
            if "loss" in logs:
                run.step(state.global_step, loss=float(logs["loss"]), **figures)

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            run.step(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            _decided(args)  # each rank writes a file of its own: wait for the last one
            written = Path(args.output_dir, f"checkpoint-{state.global_step}")
            if run.is_reporter and written.is_dir():
                with run.checkpoint(state.global_step) as directory:
                    shutil.copytree(written, directory / MODEL_DIR)

    return Saver()


def _decided(args: Any, *wanted: bool) -> tuple[bool, ...]:
    """What any rank wants: a rank that saves or stops alone would wait for the others for ever. It waits for all ranks."""
    if args.world_size == 1:
        return wanted
    import torch
    from torch import distributed

    votes = torch.tensor([False, *wanted], dtype=torch.int32, device=args.device)
    distributed.all_reduce(votes, distributed.ReduceOp.MAX)
    return tuple(bool(vote) for vote in votes.tolist()[1:])
