"""Exit code 0 is evidence, not the verdict: somebody else's SIGTERM, work in the background, uploads, a job that repeats."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys

import pytest
from box import LONG_S, Box, until

# It reports a step every 50 ms, and answers SIGTERM by saving and exit code 0, as most trainers do.
TRAINER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved, bye", flush=True), sys.exit(0)))
open("up", "w").close()
for step in range(100_000):
    print("step=%d" % step, flush=True)
    time.sleep(0.05)
"""
QUIET = shlex.join([sys.executable, "-c", TRAINER])


def configure(box: Box, command: list[str], keys: str = "", name: str = "t") -> None:
    directory = box.directory / name
    directory.mkdir(exist_ok=True)
    box.config(f'[program.{name}]\ncommand = {json.dumps(command)}\ndirectory = "{directory}"\n{keys}\n')
    box.start()


def test_somebody_elses_sigterm_answered_with_0_starts_the_program_again(box: Box) -> None:
    configure(box, [sys.executable, "-c", TRAINER], "log_regex = 'step=(?P<step>\\d+)'\ntarget_steps = 100000")
    until(lambda: (box.program("t")["steps"] or 0) > 2, LONG_S, "steps", box.tail)
    os.kill(box.program("t")["pid"], signal.SIGTERM)
    box.wait_fact("Spawned", count=2)
    exited = box.wait_fact("Exited")
    assert (exited["cause"], exited["code"], exited["counted"]) == ("left", 0, True)
    assert not box.facts("Finished")


@pytest.mark.parametrize("target", ["", "target_steps = 1000"])
def test_a_crash_behind_a_pipe_is_no_finish_and_without_a_target_a_doubtful_one(box: Box, target: str) -> None:
    crash = shlex.join([sys.executable, "-c", "print('step=29', flush=True); raise RuntimeError('CUDA error: x')"])
    configure(box, ["sh", "-c", f"{crash} 2>&1 | tee -a log"], f"log_regex = 'step=(?P<step>\\d+)'\n{target}")
    if target:
        exited = box.wait_fact("Exited", count=4)
        assert (exited["cause"], exited["code"], exited["counted"], box.facts("Finished")) == ("crash", 0, True, [])
    else:
        assert box.wait_fact("Finished")["doubtful"]


@pytest.mark.parametrize(
    "launch",
    [
        f"nohup {QUIET} > log 2>&1 &",
        f"({QUIET} > log 2>&1 &)",
        f"setsid -f {QUIET} > log 2>&1",
        f"sleep 1.5; setsid {QUIET} > log 2>&1 &",
    ],
)
def test_a_trainer_in_the_background_runs_on_under_a_reported_remedy(box: Box, launch: str) -> None:
    configure(box, ["bash", "-c", launch], "stop_grace_s = 2")
    fact = box.wait_fact("CommandGone")
    assert fact["background"]
    assert not box.facts("Exited")
    view = box.program("t")
    assert view["trouble"] == "background"
    assert view["phase"] in {"STARTING", "RUNNING"}
    trainer = int(fact["processes"][-1].rpartition("(")[2][:-1])
    box.kill_daemon()
    box.start()
    os.kill(trainer, 0)  # the next daemon adopts it: no second trainer
    assert box.wait_phase("t", box.program("t")["phase"])["attempt"] == 1
    box.ctl("stop", "t", check=True)
    box.wait_phase("t", "STOPPED")
    with pytest.raises(ProcessLookupError):
        os.kill(trainer, 0)


def test_the_exit_code_of_a_trainer_in_the_background_is_the_programs(box: Box) -> None:
    configure(box, ["bash", "-c", "(sleep 4; exit 3) &"], "stop_grace_s = 1")
    exited = box.wait_fact("Exited")
    assert (exited["code"], exited["cause"]) == (3, "crash")


@pytest.mark.parametrize(("seconds", "grace_s"), [(2, 30), (600, 2)])
def test_an_upload_left_behind_has_the_grace_and_is_named_if_it_is_ended(box: Box, seconds: int, grace_s: int) -> None:
    configure(box, ["bash", "-c", f"sleep 1.5; (sleep {seconds}; touch uploaded) & exit 0"], f"stop_grace_s = {grace_s}")
    box.wait_phase("t", "DONE")
    exited = box.wait_fact("Exited")
    if grace_s > seconds:
        assert (box.directory / "t" / "uploaded").exists()
        assert exited["why"] == "finished, exit code 0"
    else:
        assert exited["why"].startswith("exit code 0; ended after 2s: ")
        assert f"sleep {seconds}(" in exited["why"]
        assert box.wait_fact("Finished")["doubtful"], "it showed no step, so that may have been the training"


def test_a_job_that_runs_again_and_again_never_waits_long_for_its_clean_ends(box: Box) -> None:
    configure(box, ["sleep", "0.5"], 'restart = "always"\nprogress = "none"')
    box.wait_fact("Spawned", count=3)
    assert not any(fact["slow"] or fact["delay_s"] > 5.0 for fact in box.facts("BackedOff"))
    assert box.program("t")["restarts"] == 0
