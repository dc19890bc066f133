"""Two real games on a box that is destroyed at any moment; another box goes on from the repository; the first one stays down."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import CONFIG, GAMES, Installed
from labbox import until

ROUNDS = int(os.environ.get("EXTRALIFE_LAB_LOST_BOXES", "2"))
REPO, PASSWORD = "/srv/copies", "/etc/extralife/restic.password"
EVERY_S = 10.0
FIRST_LOOK_S = 10.0  # features/offsite/rules.py
OFFSITE = f"""
[offsite]
repository = "{REPO}"
password_file = "{PASSWORD}"
every_s = {EVERY_S:g}
forget = "off"
check = "off"
[when_done]
command = ["/opt/extralife/deploy/when_done/poweroff"]
"""
DROP_IN = f"[Service]\nReadWritePaths=-{REPO}\n"

pytestmark = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[list[Installed]]:
    made: list[Installed] = []
    try:
        yield made
    finally:
        for each in made:
            each.close()


def new_box(boxes: list[Installed], tmp_path: Path, number: int) -> Installed:
    directory = tmp_path / f"box{number}"
    directory.mkdir()
    boxes.append(Installed(directory))
    box = boxes[-1]
    box.write("/etc/systemd/system/extralife.service.d/copies.conf", DROP_IN)
    box.write("/srv/password", "correct horse\n")
    return box


def forgotten(boxes: list[Installed], lost: Installed, repository: Path) -> None:
    """Remove a lost box and its repository from the disk: twenty rounds would need 90 GB."""
    lost.close()
    boxes.remove(lost)
    shutil.rmtree(repository)
    shutil.rmtree(lost.directory)


def carried(source: Path, target: Path) -> None:
    """What lies in a repository, added to another directory: a box has a disk of its own.

    Snapshots first, data last: what a snapshot needs was there before it.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config", "keys", "snapshots", "index", "data"):
        subprocess.run(["cp", "-a", "--no-clobber", source / name, target], check=False, capture_output=True)


@pytest.mark.timeout(900 + 300 * ROUNDS)
def test_a_lost_box_is_regained_by_one_command(boxes: list[Installed], tmp_path: Path) -> None:
    box = new_box(boxes, tmp_path, 0)
    box.write("/srv/mine.toml", CONFIG + OFFSITE)
    box.run("install", "-d", "-m", "777", REPO)
    box.install("--no-start")
    box.run("install", "-o", "extralife", "-m", "600", "/srv/password", PASSWORD)
    box.run("cp", "/srv/mine.toml", "/etc/extralife/extralife.toml")
    said = box.ctl("offsite", "init", check=True)
    assert "made the repository" in said
    box.run("systemctl", "enable", "--now", "extralife")
    for number in range(ROUNDS):
        trained = box.wait_until_trains(240)
        before = len(box.facts("OffsiteCopied"))
        until(
            lambda box=box, before=before: len(box.facts("OffsiteCopied")) >= before + 2, 180, "two copies of that training"
        )
        time.sleep(random.Random(number).uniform(0.0, EVERY_S))
        copied = box.facts("OffsiteCopied")[-1]["steps"]
        lost, there = box, tmp_path / f"repository{number}"
        carried(lost.from_outside(REPO), there)
        lost.cut_power()
        box = new_box(boxes, tmp_path, number + 1)
        box.run("install", "-d", "-m", "777", REPO)
        carried(there, box.from_outside(REPO))
        box.run("chmod", "-R", "a+rwX", REPO)
        began_s = time.monotonic()
        said = box.install("--from-offsite", REPO, "--password-file", "/srv/password")
        assert "this box goes on with these trainings" in said, said
        assert set(copied) == set(GAMES)
        box.wait_until_trains(240, least_steps=copied)
        print(f"round {number}: training again {time.monotonic() - began_s:.0f} s after install.sh began")
        resumed = {fact["program"]: fact["step"] for fact in box.facts("Resumed")}
        for name in GAMES:
            assert resumed[name] >= copied[name], "a checkpoint that a copy had named"
        assert trained.keys() >= set(GAMES)
        until(lambda box=box, n=number: box.facts("OffsiteHeld")[-1]["generation"] == n + 2, 60, "the lease")
        comes_back(lost, box, late=number % 2 == 1)
        forgotten(boxes, lost, there)


def comes_back(lost: Installed, other: Installed, *, late: bool) -> None:
    """The lost box starts again and stays down. `late`: it trains before its network shows it the other box's lease."""
    lost.boot()
    if late:
        lost.wait_until_trains(240)
    else:
        lost.run("systemctl", "stop", "extralife")
    carried(other.from_outside(REPO), lost.from_outside(REPO))
    lost.run("chmod", "-R", "a+rwX", REPO)
    seen_s = time.monotonic()
    if not late:
        lost.run("sync")
        lost.cut_power()
        lost.boot()
    until(lambda: lost.facts("OffsiteFenced"), 120, "the fence")
    until(lambda: not any(lost.workers().values()), 120, "no program of the lost box")
    took_s = time.monotonic() - seen_s
    fence = lost.facts("OffsiteFenced")[-1]
    began = [fact for fact in lost.facts("DaemonStarted") if fact["seq"] < fence["seq"]][-1]
    starts = started_since(lost, began)
    looked_s = fence["at_s"] - began["at_s"]
    trained_s = took_s if late else looked_s if starts else 0.0
    how = "trained on" if late else "was back and trained"
    print(
        f"the lost box {how} for {trained_s:.1f} s; its look took {looked_s:.1f} s; {began['why']}; boot {began['boot_id']}"
    )
    if not late and looked_s < FIRST_LOOK_S:
        assert not starts, "it started a program before it had read whose the trainings are"
    assert trained_s <= EVERY_S + 60.0
    time.sleep(EVERY_S)
    assert not any(lost.workers().values())
    assert started_since(lost, began) == starts, "nothing is started after the fence"


def started_since(box: Installed, began: dict[str, Any]) -> list[str]:
    return [fact["program"] for fact in box.facts("SpawnIntended") if fact["seq"] > began["seq"]]
