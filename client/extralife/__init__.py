"""The client of extralife for any script: report progress, save when it is due, leave when asked.

    import extralife

    run = extralife.init(total=1_000_000, identity={"env": "Walker", "net": [64, 64]})
    found = run.restore()
    step = 0
    if found:
        step = found.step
        model.load_state_dict(torch.load(found.path / "model.pt"))
    while step < run.total and not run.should_stop():
        loss = train_one_step()
        step += 1
        run.step(step, loss=loss)
        if run.should_save():
            with run.checkpoint(step) as directory:
                torch.save(model.state_dict(), directory / "model.pt")
    run.leave()

Without a daemon of extralife the script runs, saves and resumes by itself. Standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from extralife.run import Restored, Run, init

__version__ = "0.1.0"
__all__ = ["Restored", "Run", "init"]


def __getattr__(name: str) -> Any:
    """Import at first use: a script that never calls `init` pays a millisecond."""
    if name in __all__:
        from extralife import run

        return getattr(run, name)
    raise AttributeError(f"module 'extralife' has no attribute {name!r}")
