"""The run directory, or all checkpoints, are removed under a real worker: it saves again within seconds, or it is an alert."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from box import Box, remove, until

CATCH = Box.catch(0.5, 1.0, '[alerts]\ncommand = ["true"]')


def alerts(box: Box, kind: str) -> list[dict[str, Any]]:
    return [fact for fact in box.facts("AlertRaised") if fact["alert"] == kind]


def saved(box: Box) -> list[int]:
    places = (box.state / "programs" / "Catch" / "checkpoints").glob("ckpt-*")
    return sorted(int(path.name.split("-")[1].split(".")[0]) for path in places if path.suffix not in {".bad", ".tmp"})


def is_watched(box: Box, directory: Path) -> bool:
    """Whether the daemon holds it open: from its first look on, another directory in its place is noticed."""
    assert box.daemon is not None
    for descriptor in Path(f"/proc/{box.daemon.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            if descriptor.readlink() == directory:
                return True
    return False


@pytest.mark.parametrize("what", ["Catch", "Catch/checkpoints"])
def test_what_was_removed_is_made_again_and_saved_into_at_once(box: Box, what: str) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    before = box.wait_phase("Catch", "RUNNING", 90)
    until(lambda: saved(box), 60, "a checkpoint")
    until(lambda: is_watched(box, box.state / "programs" / what), 20, "the daemon's first look at it")
    steps = box.program("Catch")["steps"]
    remove(box.state / "programs" / what)
    until(lambda: saved(box) and saved(box)[-1] >= steps, 30, "a checkpoint of what was computed since")
    assert box.program("Catch")["pid"] == before["pid"], "no step is lost: the worker was not ended"
    fence = Path(box.state, "programs", "Catch", "fence").read_text().strip()
    assert fence == box.facts("Spawned", "Catch")[-1]["token"]
    until(lambda: alerts(box, "foundation"), 20, "the alert")
    newest = saved(box)[-1]
    assert box.stop_daemon() == 0
    box.start()
    resumed = box.wait_fact("Resumed", "Catch", count=2, timeout_s=90)
    assert resumed["step"] >= newest


def test_a_resume_that_finds_nothing_where_there_was_a_checkpoint_is_an_alert(box: Box) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    box.wait_fact("Checkpointed", "Catch", timeout_s=90)
    assert box.stop_daemon() == 0
    remove(box.state / "programs" / "Catch")
    box.start()
    resumed = box.wait_fact("Resumed", "Catch", count=2, timeout_s=90)
    assert resumed["step"] == 0
    assert "no checkpoint was found, although there was one at step" in resumed["why"]
    alert = until(lambda: alerts(box, "checkpoint"), 20, "the alert")[0]
    assert alert["severity"] == "critical"


@pytest.mark.parametrize("spoil", [Path.unlink, lambda fence: (fence.unlink(), fence.mkdir())], ids=["removed", "directory"])
def test_a_fence_that_is_gone_ends_no_training_and_is_written_again(box: Box, spoil: Callable[[Path], object]) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    before = box.wait_phase("Catch", "RUNNING", 90)
    until(lambda: saved(box), 60, "a checkpoint")
    fence = box.state / "programs" / "Catch" / "fence"
    token = fence.read_text()
    spoil(fence)
    steps = box.program("Catch")["steps"]
    until(lambda: saved(box)[-1] > steps, 30, "a checkpoint without it")
    until(lambda: fence.is_file() and fence.read_text() == token, 20, "the fence")
    assert box.program("Catch")["pid"] == before["pid"]
    assert not box.facts("Exited")
