"""Unmodified scripts under a real daemon: their steps, returns and losses of steps are those of what they print and draw."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from box import PATIENCE, Box, until

PRINTS = Path(__file__).parent / "programs" / "prints.py"


def program(name: str, how: str, directory: Path, keys: str) -> str:
    (directory / name).mkdir()
    command = json.dumps([sys.executable, str(PRINTS), how, "saved"])
    return f'[program.{name}]\ncommand = {command}\ndirectory = "{directory / name}"\nstop_grace_s = 1.0\n{keys}\n'


@pytest.fixture
def box(box: Box) -> Box:
    cleanrl = r"log_regex = 'global_step=(?P<step>\d+), episodic_return=(?P<episode_return>\S+)'"
    box.config(
        program("prints", "log", box.directory, f"{cleanrl}\ntarget_steps = 1_000_000")
        + program("draws", "events", box.directory, 'events_glob = "runs/**/events.out.tfevents.*"'),
        slots=2,
    )
    box.start()
    return box


def test_a_script_that_prints_and_one_that_draws_have_steps_returns_and_lost_steps(box: Box) -> None:
    shown = until(
        lambda: 20 < ((p := box.program("prints"))["steps_per_s"] or 0) < 100 and p["steps"] > 108 and p, 60, "its pace"
    )
    assert (round(shown["mean_return"], 6), shown["target"], shown["target_kind"]) == (21.0, 1_000_000, "env_steps")
    assert shown["progress_source"] == "figures"
    assert shown["eta_s"] > 10_000
    assert shown["episodes"] == shown["steps"] // 4

    os.kill(shown["pid"], signal.SIGKILL)
    ended = box.wait_fact("Exited", "prints")
    again = box.wait_fact("FirstStepShown", "prints", count=2)
    assert ended["steps"] >= shown["steps"], "the last line before its death counts"
    assert again["step"] % 100 == 4, "it has resumed at its newest checkpoint"
    assert again["lost_steps"] == ended["steps"] - again["step"] >= 0 or again["lost_steps"] is None
    assert "shows step" in again["why"]
    assert not box.facts("ResumeUnknown", "prints")

    drawn = until(lambda: (p := box.program("draws"))["steps_per_s"] and p["mean_return"] and p, 60, "its curve")
    assert drawn["mean_return"] == pytest.approx(21.0)
    assert drawn["progress_source"] == "figures"
    assert drawn["figures"] == {"losses/value_loss": 0.5}
    assert not box.facts("FiguresUnread")


SPINS = """
import time
for step in range(1, 60):
    print("step=%d" % step, flush=True)
    time.sleep(0.1)
while True:  # works a fifth of the time: the cores are for other tests
    begun = time.process_time()
    while time.process_time() < begun + 0.02:
        pass
    time.sleep(0.1)
"""


def test_steps_that_stand_still_are_unknown_everywhere_and_the_worker_is_restarted(box: Box) -> None:
    command = json.dumps([sys.executable, "-c", SPINS])
    keys = "log_regex = 'step=(?P<step>\\d+)'\ntarget_steps = 1_000_000"
    times = "slow_for_s = 3.0\nslow_restart_s = 3.0"
    box.config(f"[program.spins]\ncommand = {command}\nstop_grace_s = 1.0\n{keys}\n", floor_s=3.0, extra=times)
    box.ctl("update", check=True)
    until(lambda: (p := box.program("spins"))["steps_per_s"] and p["eta_s"], 60, "its pace")
    still = until(lambda: (p := box.program("spins"))["steps"] == 59 and p["steps_per_s"] is None and p, 60, "no pace")
    assert (still["eta_s"], still["target"], still["phase"]) == (None, 1_000_000, "RUNNING")
    metrics = box.ctl("metrics").stdout
    assert 'extralife_program_steps_per_second{program="spins"}' not in metrics
    assert 'extralife_program_remaining_seconds{program="spins"}' not in metrics
    assert box.wait_fact("Slowed", "spins")["why"].startswith("no step beyond 59 for ")
    assert box.wait_fact("StopIntended", "spins")["reason"] == "slow"
    box.wait_fact("Spawned", "spins", count=2)


EVALUATES = """
import os, signal, sys, time
step = int((sys.argv[1:] or ["0"])[0].rpartition("_")[2] or 0)
def leave(*_):
    open("m_%d" % step, "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, leave)
while True:
    step += 1
    print("step=%d" % step, flush=True)
    time.sleep(0.1)
    if step % 40 == 0:
        print("evaluating", flush=True)
        time.sleep(SECONDS)
        print("evaluated", flush=True)
"""


@pytest.mark.fault("long-evaluation")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_evaluation_that_comes_again_is_interrupted_twice_and_then_ends(box: Box) -> None:
    command = json.dumps([sys.executable, "-c", EVALUATES.replace("SECONDS", str(12 * PATIENCE)), "{resume}"])
    own = "checkpoint_glob = 'm_*'\ncheckpoint_step = 'm_(\\d+)'\nlog_regex = 'step=(?P<step>\\d+)'"
    directory = box.directory / "evaluates"
    directory.mkdir()
    box.config(
        f'[program.evaluates]\ncommand = {command}\ndirectory = "{directory}"\n{own}\n',
        floor_s=2.0 * PATIENCE, extra="slow_for_s = 1.0\nslow_restart_s = 2.0",
    )  # fmt: skip
    box.ctl("update", check=True)
    until(lambda: (box.program("evaluates")["steps"] or 0) > 165, 90, "it to pass its evaluations at 120 and 160")
    stopped = [fact["reason"] for fact in box.facts("StopIntended", "evaluates")]
    assert stopped == ["slow", "slow"]
    assert "two restarts did not help: set stall_timeout_s" in box.facts("Slowed", "evaluates")[2]["why"]
    box.wait_fact("GapLearned", "evaluates")


LAUNCHES = """
import time
for step in [*range(1, 58), 0, *range(41, 10**6)]:  # its ranks die at 57 and go on from the checkpoint at 40
    print("step=%d" % step, flush=True)
    if step == 40:
        open("m_40", "w").close()
    time.sleep(1.0 if step in (0, 57) else 0.1)
"""


def test_ranks_that_a_launcher_restarts_within_an_attempt_have_lost_steps(box: Box) -> None:
    directory = box.directory / "launches"
    directory.mkdir()
    own = "checkpoint_glob = 'm_*'\ncheckpoint_step = 'm_(\\d+)'\nlog_regex = 'step=(?P<step>\\d+)'"
    command = json.dumps([sys.executable, "-c", LAUNCHES])
    box.config(f'[program.launches]\ncommand = {command}\ndirectory = "{directory}"\n{own}\n')
    box.ctl("update", check=True)
    again = until(
        lambda: [fact for kind in ("Resumed", "FirstStepShown") for fact in box.facts(kind, "launches")][1:], 60, "a fall"
    )[0]
    assert (again["step"], again["lost_steps"]) in {(40, 17), (41, 16)}, "by its checkpoint, if that was seen by then"
    assert again["why"].startswith(f"restarted within the attempt: from step 57 to {again['step']}, ")
    shown = until(lambda: (p := box.program("launches"))["steps_per_s"] and p["steps"] > 44 and p, 30, "its pace")
    assert shown["steps_per_s"] < 15, "a counter that is set has no pace"


@pytest.mark.fault("nan-not-yet")
def test_seeds_in_one_directory_do_not_get_each_others_nan(tmp_path: Path) -> None:
    box = Box(tmp_path)
    command = json.dumps([sys.executable, str(PRINTS), "rows", "{seed}"])
    keys = f'command = {command}\ndirectory = "{box.directory}"\njson_lines = "runs/**/*.jsonl"\nseeds = [1, 2, 3]\n'
    box.config(f"[program.rows]\n{keys}[divergence]\nnan_for_s = 2.0\n", slots=3)
    try:
        box.start()
        for seed in (1, 3):
            until(lambda seed=seed: (box.program(f"rows-s{seed}")["steps"] or 0) > seed * 10**6 + 60, 60, "its steps")
        assert box.wait_fact("Diverged", "rows-s2")["fine_step"] == 2_000_019
        for seed in (1, 3):
            shown = box.program(f"rows-s{seed}")
            assert (shown["steps"] // 10**6, shown["loss"]) == (seed, 0.5)
            assert not box.facts("Diverged", f"rows-s{seed}")
    finally:
        box.close()
