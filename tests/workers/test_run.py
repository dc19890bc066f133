"""The worker as a process, under a supervisor's environment: what it answers, what it leaves behind, how it exits."""

import csv
import dataclasses
import fcntl
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from supervised import environment_of
from tools import ROOT

from workers import contract, envs, replay, run
from workers.algorithms.dqn import Learner
from workers.args import make
from workers.contract import Client, Control, WorkerPhase
from workers.daemon_side import ControlWriter, read_beat
from workers.listen import PendingRequests

PATIENCE_S = 240.0
FLAGS = ["--num-envs=8", "--batch-size=8", "--replay-size=4000", "--learning-starts=100", "--threads=1", "--replay-ratio=1"]


def until(look, what):
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return answer


class Attempt:
    """One worker with the environment that a supervisor would give it."""

    def __init__(self, run_dir, number, *flags, game="Catch", boot_id=None):
        self.run_dir, self.token = run_dir, f"{number:032x}"
        env = {**os.environ, **environment_of(run_dir, number, game)}
        self.beat_file, self.stacks = run_dir / f"{number}.beat", run_dir / f"{number}.stacks"
        self.control = ControlWriter(run_dir / f"{number}.control")
        self.reports_file = run_dir / contract.ATTEMPTS_DIR / f"{number}-{self.token}" / contract.REPORTS_FILE
        env |= {
            contract.ENV_BEAT: str(self.beat_file), contract.ENV_CONTROL: str(run_dir / f"{number}.control"),
            contract.ENV_STACKS: str(self.stacks), **({} if boot_id is None else {contract.ENV_BOOT_ID: boot_id}),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers", "--program", game, *FLAGS, *flags],
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def beat(self):
        """A whole one: None only says that the writer was interrupted in the middle of a record, or has none yet."""
        return until(lambda: read_beat(self.beat_file), f"a beat; exit code {self.process.poll()}")

    def wait_training(self, more=400):
        beat = until(lambda: (b := self.beat()).phase is WorkerPhase.TRAINING and b, f"training; {self.process.poll()}")
        return until(lambda: (b := self.beat()).env_steps >= beat.env_steps + more and b, "steps")

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.control.close()
        return self.process.returncode, out, err

    def reports(self):
        return [json.loads(line) for line in self.reports_file.read_text().splitlines()]

    def checkpoints(self):
        names = [path.name for path in (self.run_dir / contract.CHECKPOINTS_DIR).iterdir()]
        return sorted(parsed[0] for name in names if (parsed := contract.parse_checkpoint_name(name)))


@pytest.fixture
def attempt(tmp_path):
    made = []

    def start(number, *flags, **options):
        made.append(Attempt(tmp_path / "run", number, *flags, **options))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_a_life_with_every_wish_then_resumed_to_its_target(attempt):
    first = attempt(1, "--episodes=100000000")
    beat = first.wait_training()
    assert (beat.pid, beat.attempt, beat.num_envs, beat.batch_size) == (first.process.pid, 1, 8, 8)
    assert (beat.target, beat.target_kind) == (100_000_000, contract.TargetKind.EPISODES)
    assert first.reports()[0]["kind"] == "resumed"
    assert first.reports()[0]["step"] == 0
    assert beat.resumed_step == 0

    first.process.send_signal(signal.SIGUSR1)
    until(
        lambda: first.stacks.exists() and "workers/algorithms/dqn.py" in first.stacks.read_text(),
        "stacks of the training loop",
    )
    first.process.send_signal(signal.SIGUSR2)
    saved = until(lambda: (b := first.beat()).ckpt_count == 1 and b, "the save asked for by signal")
    assert saved.ckpt_step in first.checkpoints()
    first.control.write(Control(first.token, save_now=1))
    until(lambda: first.beat().ckpt_count == 2, "the save asked for by the control record")
    # The first look may have come before the first game was over: then there is a rate and no mean yet.
    beat = until(
        lambda: (
            (b := first.beat()).rss_bytes != contract.UNKNOWN and b.steps_per_s > 0 and not math.isnan(b.mean_return) and b
        ),
        "slow counters",
    )
    assert beat.updates > 0
    assert beat.episodes > 0
    assert abs(beat.mean_return) <= 1

    first.process.send_signal(signal.SIGTERM)
    code, out, err = first.end()
    assert (code, err) == (contract.EXIT_LEFT, "")
    assert "no checkpoint: training begins at step 0" in out.splitlines()
    assert "left on request; everything is saved" in out
    left_at = first.beat().env_steps
    assert first.beat().phase is WorkerPhase.LEAVING
    assert first.checkpoints()[-1] == left_at

    second = attempt(2, f"--steps={left_at + 800}", "--num-test-episodes=9")
    code, out, err = second.end()
    assert (code, err) == (contract.EXIT_DONE, "")
    assert f"resumed at step {left_at:,} from ckpt-{left_at}." in out
    assert f"replay: {min(left_at, 3992)} environment steps of this boot" in out
    assert "mean return of 9 test games" in out
    assert second.reports()[0]["step"] == second.beat().resumed_step == left_at
    assert second.beat().phase is WorkerPhase.EVALUATING
    rows = list(csv.DictReader((second.run_dir / "results.csv").read_text().splitlines()))
    assert [row["episode"] for row in rows] == [str(n) for n in range(1, 10)]
    assert {row["length"] for row in rows} == {"9"}, "a game of Catch is nine steps, the resetting one not counted"
    assert {row["env_steps"] for row in rows} == {str(second.checkpoints()[-1])}


def committed(run_dir):
    """Environment steps that the replay's header promises to have after a power cut."""
    data = (run_dir / contract.REPLAY_DIR / replay.HEADER_FILE).read_bytes()
    slots = [data[at : at + replay._SLOT.size] for at in replay._SLOTS_AT]
    return max((replay._SLOT.unpack(slot) for slot in slots if len(slot) == replay._SLOT.size), default=(0, 0, 0))[1]


def test_the_experience_of_each_checkpoint_outlives_a_power_cut(attempt):
    """A checkpoint without its experience resumes, and then fills the replay anew: hours, at full size."""
    roomy = "--replay-size=200000"  # the worker trains on until it is killed, and must not come round to what it has saved
    first = attempt(1, "--steps=100000000", roomy, boot_id="aa" * 16)
    first.wait_training()
    assert committed(first.run_dir) == 0, "what was appended alone is not trusted"
    for wanted in (1, 2):
        first.control.write(Control(first.token, save_now=wanted))
        saved = until(lambda wanted=wanted: (b := first.beat()).ckpt_count >= wanted and b, "the save that was asked for")
        until(lambda saved=saved: committed(first.run_dir) >= saved.ckpt_step, "its experience on the disk")
        first.wait_training()
    first.process.kill()
    first.end()
    known = committed(first.run_dir)
    second = attempt(2, f"--steps={saved.ckpt_step + 80}", roomy, boot_id="bb" * 16)
    code, out, _ = second.end()
    assert code == contract.EXIT_DONE
    assert f"resumed at step {saved.ckpt_step:,} " in out
    found = re.search(r"replay: (\d+) environment steps committed before the reboot", out)
    assert found, out
    assert int(found[1]) <= known
    assert int(found[1]) >= saved.ckpt_step, "nothing of it is lost"


def test_a_fence_that_is_lost_right_after_the_last_checkpoint_ends_it(monkeypatch, tmp_path, capfd):
    class Overtaken(Client):
        def fence_holds(self):
            return not list(Path("runs/Catch").glob("checkpoints/ckpt-*[0-9a-f]"))

    assert alone(monkeypatch, tmp_path, client=Overtaken({}), steps=400) == contract.EXIT_FENCED
    assert "the replay was not committed" in capfd.readouterr().err


# --- without a process of its own ------------------------------------------------------------------------------------------


def alone(monkeypatch, tmp_path, program="Catch", client=None, **values):
    """The exit code of a run without a supervisor, in this process."""
    monkeypatch.chdir(tmp_path)
    base = {"num_envs": 8, "batch_size": 8, "replay_size": 2_000, "learning_starts": 100, "threads": 1}
    return run.run(make(program, **{**base, **values}), client or Client({}), PendingRequests())


def test_alone_it_works_in_a_directory_of_its_own_and_resumes(monkeypatch, tmp_path, capfd):
    assert alone(monkeypatch, tmp_path, steps=400) == contract.EXIT_DONE
    assert (tmp_path / "runs" / "Catch" / contract.CHECKPOINTS_DIR).is_dir()
    assert alone(monkeypatch, tmp_path, steps=800) == contract.EXIT_DONE
    out = capfd.readouterr().out
    assert out.splitlines()[2:4] == ["no checkpoint: training begins at step 0", "building 8 environments"]
    assert "resumed at step 400" in out
    # A run that is done builds nothing, and touches no file whatever the settings are now.
    replay = (tmp_path / "runs" / "Catch" / contract.REPLAY_DIR / "frames.bin").read_bytes()
    assert alone(monkeypatch, tmp_path, steps=800, replay_size=9_000) == contract.EXIT_DONE
    out = capfd.readouterr().out
    assert "the target is already reached" in out.splitlines()
    assert "building" not in out
    assert (tmp_path / "runs" / "Catch" / contract.REPLAY_DIR / "frames.bin").read_bytes() == replay


def test_when_every_checkpoint_is_damaged_it_begins_anew_and_loudly(monkeypatch, tmp_path, capfd):
    assert alone(monkeypatch, tmp_path, steps=200) == contract.EXIT_DONE
    for file in (tmp_path / "runs" / "Catch" / contract.CHECKPOINTS_DIR).glob("ckpt-*/tensors.safetensors"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert alone(monkeypatch, tmp_path, steps=200) == contract.EXIT_DONE
    out, err = capfd.readouterr()
    assert "does not match its digest" in err
    assert "training begins from scratch" in err
    assert "building" in out.rpartition("threads, in")[2], "it really trained again"


def test_directories_that_cannot_be_written(monkeypatch, tmp_path, capfd):
    (tmp_path / "runs").write_text("a file")
    assert alone(monkeypatch, tmp_path, steps=200) == contract.EXIT_CONFIG
    assert "runs/Catch can't be written: Not a directory" in capfd.readouterr().err


def test_test_games_are_played_once(monkeypatch, tmp_path, capfd):
    results = tmp_path / "runs" / "Catch" / "results.csv"
    assert alone(monkeypatch, tmp_path, steps=200, num_test_episodes=5) == contract.EXIT_DONE
    assert len(results.read_text().splitlines()) == 6
    assert alone(monkeypatch, tmp_path, steps=200, num_test_episodes=5) == contract.EXIT_DONE
    assert capfd.readouterr().out.count("playing 5 test games") == 1
    results.unlink()  # as after a kill during the test games
    assert alone(monkeypatch, tmp_path, steps=200, num_test_episodes=5) == contract.EXIT_DONE
    assert len(results.read_text().splitlines()) == 6


@pytest.mark.parametrize("algo", ["dqn", "pqn"])
def test_a_second_run_in_the_same_directory_is_refused(monkeypatch, tmp_path, capfd, algo):
    directory = tmp_path / "runs" / "Catch"
    directory.mkdir(parents=True)
    with (directory / contract.LOCK_FILE).open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        assert alone(monkeypatch, tmp_path, steps=200, algo=algo, batch_size=32) == run.EXIT_FAILED
    assert "is in use by another process" in capfd.readouterr().err.splitlines()[-1]
    assert [path.name for path in directory.iterdir()] == [contract.LOCK_FILE]


def test_weights_gone_bad_end_the_attempt_before_they_are_saved(monkeypatch, tmp_path, capfd):
    def poison(learner, **_batch):
        learner.updates += 1
        learner._loss.fill_(float("nan"))
        learner._in_a_row += 1
        learner.online.out.bias.data.fill_(float("nan"))

    monkeypatch.setattr(Learner, "update", poison)
    monkeypatch.setattr(run, "LOOK_S", 0.0)
    assert alone(monkeypatch, tmp_path, steps=10_000) == contract.EXIT_DIVERGED
    assert "weights are not finite" in capfd.readouterr().err
    assert not list((tmp_path / "runs" / "Catch" / contract.CHECKPOINTS_DIR).iterdir())


@pytest.mark.fault("nan")
def test_nothing_is_saved_while_updates_are_not_finite_not_even_at_the_end(monkeypatch, tmp_path, capfd):
    """Real NaN in the stored rewards; its patience is endless here, and a checkpoint is wanted at every step."""
    recv = envs.Envs.recv

    def poisoned(pool):
        step = recv(pool)
        return dataclasses.replace(step, rewards=np.full_like(step.rewards, np.nan))

    monkeypatch.setattr(envs.Envs, "recv", poisoned)
    monkeypatch.setattr("workers.learner.LOST_UPDATES", 10**9)
    monkeypatch.setattr(run, "ALONE_SAVE_S", 0.0)
    assert alone(monkeypatch, tmp_path, steps=1000) == contract.EXIT_DIVERGED
    assert "diverged at step 1000: the newest updates were not finite" in capfd.readouterr().err
    saved = [path.name.split(".")[0] for path in (tmp_path / "runs" / "Catch" / contract.CHECKPOINTS_DIR).iterdir()]
    assert saved
    assert all(int(name.removeprefix("ckpt-")) <= 200 for name in saved), "from before the first update"


def test_a_last_save_that_fails_is_no_success(monkeypatch, tmp_path, capfd):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.checkpoint.write_file", full)
    assert alone(monkeypatch, tmp_path, steps=200) == run.EXIT_FAILED
    assert "No space left on device" in capfd.readouterr().err.splitlines()[-1]
