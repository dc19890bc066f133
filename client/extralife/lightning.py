"""Lightning: `Trainer(callbacks=[lightning.saver(run)])` and `fit(..., ckpt_path=lightning.resume(run))`.

Steps are optimizer steps (`global_step`).
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

from .contract import EXIT_LEFT

if TYPE_CHECKING:
    from .run import Run

MODEL_FILE = "lightning.ckpt"


def resume(run: Run) -> str | None:
    """The path for `fit(ckpt_path=...)`: the newest whole checkpoint, or None."""
    found = run.restore()
    return None if found is None else str(found.path / MODEL_FILE)


def saver(run: Run) -> Any:
    """A callback that reports each batch, saves when it is due and stops the trainer when asked to leave."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class Saver(Callback):  # type: ignore[misc, unused-ignore]
        """In Lightning all ranks save together, so rank 0 decides for all."""

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
            loss = trainer.callback_metrics.get("loss", _loss(outputs))
            run.step(trainer.global_step, loss=None if loss is None else float(loss))
            if _decided(trainer, run.should_save()):
                self._save(trainer)
            if _decided(trainer, run.should_stop()):
                run.stop()
                trainer.should_stop = True

        def on_train_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            run.step(trainer.global_step)
            early = run.is_reporter and not run.is_saved()  # the callback of an early stop has ended it
            if _decided(trainer, run.should_save() or early):
                self._save(trainer)

        def _save(self, trainer: Any) -> None:
            with run.checkpoint(trainer.global_step) as directory:
                trainer.save_checkpoint(str(directory / MODEL_FILE))

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:  # noqa: ARG002
            # On SIGTERM, Lightning raises SystemExit without a code between two batches, on all ranks: that would be "done".
            if isinstance(exception, SystemExit) and trainer.received_sigterm:
                if _decided(trainer, run.is_reporter and not run.is_saved()):
                    self._save(trainer)
                exception.code = EXIT_LEFT

        def on_validation_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            run.phase("evaluating")

    copyreg.pickle(Saver, lambda _: (saver, (run,)))  # for `ddp_spawn`
    return Saver()


def _loss(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, dict) else outputs


def _decided(trainer: Any, wanted: bool) -> bool:
    """Whether any rank wants it: a collective step that one rank takes alone would hang all."""
    if trainer.world_size == 1:
        return wanted
    return bool(trainer.strategy.reduce_boolean_decision(wanted, all=False))
