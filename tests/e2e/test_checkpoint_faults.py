"""The real worker and its checkpoints: a disk that fills up, every kind of damage, and nothing whole left at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from box import Box, until

CATCH = Box.catch(0.3, 0.5)
DISK_BYTES = 32 << 20


def step_of(path: Path) -> int:
    return int(path.name.split("-")[1].split(".")[0])


@dataclass
class Story:
    """What happened to one training, told once and looked at by every test."""

    box: Box
    where: Path
    whole: list[Path] = field(default_factory=list)
    damaged: dict[str, Path] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)

    def checkpoints(self) -> list[Path]:
        """The committed ones; each is pinned as soon as it is seen, so that there are enough of them to damage."""
        found = [path for path in self.where.glob("ckpt-*") if path.suffix not in {".bad", ".tmp"}]
        for path in found:
            (self.where.parent / "backups" / path.name).touch()
        return sorted((path for path in found if path.is_dir()), key=step_of)  # one may have been pruned before its pin

    def fill_disk(self) -> None:
        """Full to the last byte, until there is room again."""
        box, filler = self.box, self.where / "filler"

        def failed() -> bool:
            """Filled again each time: a save that was under way may have pruned, which makes room for the next one."""
            with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            return bool(box.facts("CheckpointFailed", "Catch"))

        before = {path.name: sorted((f.name, f.stat().st_mtime_ns) for f in path.iterdir()) for path in self.checkpoints()}
        until(failed, 30, "a save to fail")
        self.full["fact"] = box.wait_fact("CheckpointFailed", "Catch")
        self.full["why"] = until(lambda: "save" in (why := box.program("Catch")["why"]) and why, 10, "status to say so")
        steps = box.program("Catch")["steps"]
        until(lambda: box.program("Catch")["steps"] > steps + 1000, 60, "it to train on")
        self.full["told"] = len(box.facts("CheckpointFailed", "Catch"))
        self.full["explained"] = box.ctl("explain", "Catch", check=True).stdout
        # A save under way has a .tmp until it fails; what a failed save left would stay.
        until(lambda: not any(self.where.glob("*.tmp")), 10, "what failed saves wrote to be removed")
        after = {path.name: sorted((f.name, f.stat().st_mtime_ns) for f in path.iterdir()) for path in self.checkpoints()}
        self.full["untouched"] = all(after.get(name) == files for name, files in before.items())
        filler.unlink()
        newest = max(map(step_of, self.checkpoints()))
        self.full["again"] = until(lambda: max(map(step_of, self.checkpoints())) > newest, 30, "a save")
        self.full["why after"] = until(
            lambda: "cannot save" not in (why := box.program("Catch")["why"]) and why, 30, "it to be over"
        )  # fmt: skip

    def damage(self, *kinds: str) -> None:
        assert self.box.ctl("stop", "Catch").returncode == 0
        self.whole = self.checkpoints()
        for kind in kinds:
            path = self.whole.pop()
            self.damaged[kind] = path
            DAMAGE[kind](path / "tensors.safetensors")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped": flip,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "missing": Path.unlink,
}
DEFECTS = {
    "flipped": "tensors.safetensors does not match its digest",
    "truncated": "tensors.safetensors has ",
    "empty": "tensors.safetensors has 0 bytes, expected ",
    "missing": "tensors.safetensors is missing",
}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    box = Box(tmp_path_factory.mktemp("disk"))
    where = box.state / "programs" / "Catch" / "checkpoints"
    for directory in (where, where.parent / "backups"):
        directory.mkdir(parents=True)
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(where)], capture_output=True, check=False
        ).returncode
    )
    try:
        box.config(CATCH)
        box.calm()
        box.start()
        box.wait_phase("Catch", "RUNNING", 90)
        made = Story(box, where)
        until(lambda: len(made.checkpoints()) >= 6, 60, "six checkpoints")
        if mounted:
            made.fill_disk()
        made.damage(*DAMAGE)
        box.ctl("start", "Catch", check=True)
        box.wait_fact("Resumed", "Catch", count=2, timeout_s=60)
        yield made
    finally:
        box.close()
        if mounted:
            subprocess.run(["umount", str(where)], check=True)


@pytest.mark.fault("disk-full-checkpoint")
def test_while_the_disk_is_full_training_goes_on_and_what_is_saved_stays(story: Story) -> None:
    if not story.full:
        pytest.skip("a small disk of its own cannot be mounted here: that needs root")
    fact = story.full["fact"]
    assert os.strerror(errno.ENOSPC) in fact["error"]
    assert fact["free_bytes"] < 1 << 20
    assert story.full["told"] == 1, "once, not at every interval"
    assert "training, but cannot save: checkpoint at step" in story.full["why"]
    assert "MB free); it trains on" in story.full["explained"]
    assert story.full["untouched"]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("flipped", marks=pytest.mark.fault("checkpoint-flipped")),
        pytest.param("truncated", marks=pytest.mark.fault("checkpoint-truncated")),
        pytest.param("empty", marks=pytest.mark.fault("checkpoint-empty")),
        pytest.param("missing", marks=pytest.mark.fault("checkpoint-missing")),
    ],
)
def test_a_damaged_newest_checkpoint_is_set_aside_with_its_defect_and_the_one_before_taken(story: Story, kind: str) -> None:
    name = story.damaged[kind].name
    bad = next(fact for fact in story.box.facts("CheckpointBad", "Catch") if name in fact["path"])
    assert bad["error"].startswith(DEFECTS[kind])
    assert Path(bad["path"]).name == f"{name}.bad"
    assert Path(bad["path"]).is_dir(), "kept"
    assert story.box.facts("Resumed", "Catch")[1]["step"] == step_of(story.whole[-1])
    told = story.box.ctl("explain", "Catch", "-n", "20", check=True).stdout
    assert f"was set aside: {bad['error']}" in told


def test_when_nothing_whole_is_left_it_begins_anew_and_says_so_aloud(story: Story) -> None:
    """The last of the story: what is left is damaged too."""
    box = story.box
    assert box.ctl("stop", "Catch").returncode == 0
    for path in story.checkpoints():
        flip(path / "tensors.safetensors")
    box.ctl("start", "Catch", check=True)
    resumed = box.wait_fact("Resumed", "Catch", count=3, timeout_s=60)
    assert resumed["step"] == 0
    assert resumed["lost_steps"] > 0
    said = next(fact["why"] for fact in box.facts() if fact["kind"] == "from_scratch")
    assert "no checkpoint in" in said
    assert "is whole" in said
    told = box.ctl("explain", "Catch", "-n", "20", check=True).stdout
    assert "no checkpoint in" in told
    assert list(story.where.glob("*.bad"))
