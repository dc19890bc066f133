"""A box is lost and regained from a real repository of restic; the first one comes back and stays down."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import Box, until
from cheap_restic import make_cheap, section

pytestmark = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


@pytest.fixture
def boxes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Box]]:
    """Neither's directory lies in the other's: processes are known by it."""
    made = []
    try:
        for number in range(getattr(request, "param", 2)):
            directory = tmp_path / f"box{number}"
            directory.mkdir()
            made.append(Box(directory))
        yield made
    finally:
        for each in made:
            each.close()


def named(box: Box, name: str, uuid: str) -> None:
    (box.boot_files / "hostname").write_text(name)
    (box.boot_files / "product_uuid").write_text(uuid)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_vanished_box_is_regained_and_comes_back_fenced(boxes: list[Box], tmp_path: Path) -> None:
    box, other = boxes
    off = tmp_path / "off"
    off.mkdir()
    named(box, "alpha", "4c4c4544-0042-3510-8051-b4c04f595931")
    programs = box.trainer("a") + box.trainer("b")
    box.config(programs, extra=section(off))
    made = box.ctl("offsite", "init", timeout_s=60)
    assert made.returncode == 0, made.stdout
    make_cheap(off / "repo", "correct horse")
    box.start()
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    copied = box.wait_fact("OffsiteCopied", count=2, timeout_s=60)
    assert copied["cause"] == "period"
    assert "copied off the box" in box.ctl("status").stdout
    asked = box.ctl("offsite", "now", timeout_s=60)
    assert (asked.returncode, "copied off the box as" in asked.stdout) == (0, True), asked.stdout
    page = json.loads(box.ctl("offsite", "--json").stdout)
    assert page["generation"] == 1
    assert page["age_s"] < 120
    mine = box.state / "programs" / "a" / "counter.json"
    named_step = json.loads(mine.read_text())["step"]
    before = len(box.facts("OffsiteCopied"))
    box.wait_fact("OffsiteCopied", count=before + 2, timeout_s=60)  # the first may have been begun before
    box.power_cut()

    named(other, "beta", "4c4c4544-0042-3510-8051-b4c04f595932")
    restored = other.ctl(
        "offsite", "restore", "--to", str(other.state), "--take-over", "--repository", f"{off}/repo", "--password-file",
        f"{off}/password", "--config-to", str(other.config_file), "--runtime-dir", str(other.runtime), timeout_s=60,
    )  # fmt: skip
    assert restored.returncode == 0, restored.stdout
    assert "this box goes on with these trainings" in restored.stdout
    other.start()
    for name in "ab":
        other.wait_phase(name, "RUNNING")
    resumed = other.wait_fact("Resumed", "a", count=2)
    assert resumed["step"] >= named_step
    assert other.wait_fact("HostRebooted")["cause"] == "moved"
    other.wait_fact("OffsiteCopied", count=len(other.facts("OffsiteCopied")) + 1, timeout_s=60)

    box.start()
    fenced = box.wait_fact("OffsiteFenced", timeout_s=60)
    assert "has taken over these trainings" in fenced["why"]
    until(lambda: not box.pids(), 30, "every program of the first box to be down")
    assert "HAS TAKEN OVER" in box.ctl("status").stdout
    other.wait_phase("a", "RUNNING")
    box.kill_daemon()
    assert box.ctl("offsite", "list").returncode == 0, "also with a dead daemon"
    (off / "repo").rename(off / "gone")
    box.start()
    time.sleep(1.0)
    assert not box.pids(), "it stays down over restarts, also without the repository"
    until(lambda: put_back(off), 30, "the repository to be back")
    assert box.ctl("offsite", "take-over", timeout_s=60).returncode == 0
    box.wait_phase("a", "RUNNING")
    other.wait_fact("OffsiteFenced", timeout_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("boxes", [2], indirect=True)
def test_a_stop_within_ten_seconds_still_makes_a_copy_of_two_games(boxes: list[Box], tmp_path: Path) -> None:
    """`docker stop` at a moment at which no copy was due for an hour: nothing stored is lost, the copy is of that stop."""
    box, other = boxes
    off = tmp_path / "off"
    off.mkdir()
    box.env["EXTRALIFE_STOP_WITHIN_S"] = "10"
    box.config('[training]\nalgo = "ppo"\n[program.Pong]\n[program.Breakout]\n', extra=section(off, every_s=3600.0))
    assert box.ctl("offsite", "init", timeout_s=60).returncode == 0
    box.start()
    for name in ("Pong", "Breakout"):
        box.wait_phase(name, "RUNNING", 90)
        until(lambda name=name: (box.program(name).get("steps") or 0) > 2000, 120, f"{name} to get on")
    assert box.daemon is not None
    asked_s = time.time()
    box.daemon.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        box.daemon.wait(10)
    box.power_cut()
    left = {name: box.facts("Exited", name)[-1]["checkpoint_step"] for name in ("Pong", "Breakout")}
    copies = json.loads(box.ctl("offsite", "list", "--json", timeout_s=60).stdout)["copies"]
    newest = max((each for each in copies if each["cause"] is not None), key=lambda each: each["wall_s"])
    print(
        f"the copy is {time.time() - newest['wall_s']:.1f} s old, {newest['wall_s'] - asked_s:.1f} s after SIGTERM; steps {left}"
    )
    assert newest["wall_s"] >= asked_s
    restored = other.ctl(
        "offsite", "restore", "--to", str(other.state), "--take-over", "--repository", f"{off}/repo", "--password-file",
        f"{off}/password", "--config-to", str(other.config_file), "--runtime-dir", str(other.runtime), timeout_s=60,
    )  # fmt: skip
    assert restored.returncode == 0, restored.stdout
    other.start()
    for name, step in left.items():
        assert other.wait_fact("Resumed", name, count=2, timeout_s=90)["step"] == step


ROUNDS = int(os.environ.get("EXTRALIFE_TEST_LOST_BOXES", "1"))

# It saves by itself in a directory of its own, takes its newest file without a look, and says where it begins.
SCRIPT = """
import os, time
from pathlib import Path
Path("out").mkdir(exist_ok=True)
step = max((int(path.stem) for path in Path("out").glob("*.json")), default=0)
print("begins at", step, flush=True)
while True:
    step += 1
    print("step", step, flush=True)
    if step % 20 == 0:
        Path("aside").write_text(str(step))
        os.rename("aside", f"out/{step}.json")
    time.sleep(0.01)
"""


@pytest.mark.timeout(60 + 120 * ROUNDS)
@pytest.mark.parametrize("boxes", [ROUNDS + 1], indirect=True)
def test_a_script_goes_on_from_its_copied_checkpoint_on_another_box(boxes: list[Box], tmp_path: Path) -> None:
    off, work = tmp_path / "off", tmp_path / "work"
    off.mkdir()
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    program = (
        f'[program.it]\ncommand = {json.dumps([sys.executable, "train.py"])}\ndirectory = "{work}"\n'
        "log_regex = 'step (?P<step>\\d+)'\ncheckpoint_glob = 'out/*.json'\ncheckpoint_step = '(\\d+)[.]json'\n"
    )
    box = boxes[0]
    named(box, "box0", "4c4c4544-0042-3510-8051-b4c04f595930")
    box.config(program, extra=section(off))
    assert box.ctl("offsite", "init", timeout_s=60).returncode == 0
    make_cheap(off / "repo", "correct horse")
    box.start()
    for number, other in enumerate(boxes[1:], 1):
        until(lambda box=box: box.facts("OffsiteCopied") and box.facts("OffsiteCopied")[-1]["steps"].get("it"), 90, "a copy")
        box.power_cut()
        copied = box.facts("OffsiteCopied")[-1]["steps"]["it"]
        shutil.rmtree(work / "out")
        named(other, f"box{number}", f"4c4c4544-0042-3510-8051-b4c04f59593{number}")
        restored = other.ctl(
            "offsite", "restore", "--to", str(other.state), "--take-over", "--repository", f"{off}/repo", "--password-file",
            f"{off}/password", "--config-to", str(other.config_file), "--runtime-dir", str(other.runtime), timeout_s=60,
        )  # fmt: skip
        assert restored.returncode == 0, restored.stdout
        assert "put back before their first start" in restored.stdout
        other.start()
        began = other.wait_fact("StartsFrom", "it", count=number + 1)
        assert began["step"] >= copied
        told = until(
            lambda other=other: "begins at" in (said := other.ctl("tail", "it").stdout) and said, 60, "its first line"
        )
        assert f"begins at {began['step']}" in told
        box = other


def put_back(off: Path) -> bool:
    """The repository's directory, in place of what a copy of the other box has begun there meanwhile."""
    shutil.rmtree(off / "repo", ignore_errors=True)
    with contextlib.suppress(OSError):  # that copy still writes
        (off / "gone").rename(off / "repo")
    return not (off / "gone").exists()


@pytest.mark.timeout(120)
def test_a_repository_that_cannot_be_reached_stops_nobody_and_is_reported(box: Box, tmp_path: Path) -> None:
    box.config(box.trainer("a"), extra=section(tmp_path).replace("late_s = 600.0", "late_s = 5.0"))
    box.start()
    box.wait_phase("a", "RUNNING")
    failed = box.wait_fact("OffsiteFailed", timeout_s=30)
    assert "unable to open config file" in failed["error"]
    box.wait_fact("OffsiteLate", timeout_s=30)
    status = box.ctl("status")
    assert re.search(r"NOTHING IS COPIED off the box: restic snapshots: .*unable to open config file", status.stdout)
    assert box.program("a")["phase"] == "RUNNING"
    assert box.program("a")["restarts"] == 0
    asked = box.ctl("offsite", "now", timeout_s=30)
    assert (asked.returncode, "unable to open config file" in asked.stdout) == (1, True), asked.stdout
