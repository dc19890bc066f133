"""A worker that is killed on a real game and resumed in a new process learns what an uninterrupted one would, to the bit.

The killed one and the one that resumes are workers with `deterministic = true`: the first is asked for a checkpoint, has gone
on from there when SIGKILL ends it, and the second goes on from that checkpoint. Held against theirs is a learner of this
process that never saved, stopped or loaded anything. Games cannot be saved, so that one too begins new ones at the step of
each checkpoint; whatever else a restart could change would show: weights, Adam's moments, every generator, counters,
schedules, the replay.

At each change the workers are forked from a process that has imported torch and done nothing with it, which saves two imports
of four CPU seconds each; `tests/run slow` starts them as a supervisor does.
"""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch
from supervised import environment_of
from tools import ROOT

from workers import algorithms, contract, envs, precision
from workers.args import make
from workers.checkpoint import STATE_FILE, TENSORS_FILE
from workers.daemon_side import read_beat

PATIENCE_S = 300.0
FIRST = 192  # environment steps of an attempt before its checkpoint is asked for, at least
MORE = 192  # environment steps beyond the last checkpoint
COMMON = {
    "num_envs": 2, "threads": 1, "device": "cpu", "resolution": 44, "deterministic": True, "lr_scheduler": "cosine",
    "scheduler_tmax": 3_000, "gamma": 0.98,
}  # fmt: skip
SETTINGS = {
    "dqn": {"batch_size": 16, "learning_starts": 100, "replay_size": 2_000, "replay_ratio": 2.0, "target_period": 150,
            "epsilon_steps": 1_000},
    "pqn": {"batch_size": 32, "n_steps": 32, "epsilon_steps": 1_000},
    "ppo": {"batch_size": 32, "n_steps": 32},
}  # fmt: skip
OF_THE_CLOCK = {"trained_s"}  # all that a run and its repetition may differ in

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    precision.use_deterministic(torch.device("cpu"))
    yield
    torch.use_deterministic_algorithms(mode=False)
    torch.set_num_threads(threads)


def forked(words, env, log):
    """A worker as a child of a process that has imported all that it needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workers.run"])
    worker = context.Process(target=_as_a_worker, args=(words, env, str(log)), daemon=True)
    worker.start()
    return worker


def _as_a_worker(words, env, log):
    said = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(env, GLIBC_TUNABLES="")  # else it would start again with the allocator's settings
    os.chdir(ROOT)
    sys.argv = ["workers", *words]
    runpy.run_module("workers", run_name="__main__")


class Started:
    """`python -m workers`, with what is asked of a forked one."""

    def __init__(self, words, env, log):
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workers", *words], cwd=ROOT, env={**os.environ, **env}, stdout=said, stderr=said
            )
        self.pid, self.kill = self._process.pid, self._process.kill

    @property
    def exitcode(self):
        return self._process.poll()

    def join(self, timeout=None):
        self._process.wait(timeout)


class Attempt:
    """One worker with the environment that its supervisor would give it."""

    def __init__(self, start, run_dir, number, settings):
        env = environment_of(run_dir, number, settings["game"])
        self.log, self._beat = run_dir / f"{number}.log", run_dir / f"{number}.beat"
        env[contract.ENV_BEAT] = str(self._beat)
        words = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        self.worker = start(words, env, self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.kill()
        self.worker.join()

    def until(self, what, is_so):
        """The first beat of which `is_so` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while (beat := read_beat(self._beat)) is None or not is_so(beat):
            assert self.worker.exitcode is None, f"it ended before {what}: {self.log.read_text()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.01)
        return beat

    def end(self):
        """What it said, once it has come to its end."""
        self.worker.join(PATIENCE_S)
        said = self.log.read_text()
        assert self.worker.exitcode == contract.EXIT_DONE, said
        return said


def killed(start, run_dir, number, settings):
    """The step of the checkpoint that an attempt leaves behind: saved while it trained, and not its last step."""
    with Attempt(start, run_dir, number, {**settings, "steps": 10_000_000}) as attempt:
        began = attempt.until("training", lambda beat: beat.phase is contract.WorkerPhase.TRAINING).env_steps
        attempt.until("steps to be saved", lambda beat: beat.env_steps >= began + FIRST)
        os.kill(attempt.worker.pid, signal.SIGUSR2)
        saved = attempt.until("the checkpoint", lambda beat: beat.ckpt_count == 1).ckpt_step
        attempt.until("steps to be lost", lambda beat: beat.env_steps > saved + settings["num_envs"])
        assert saved >= began + FIRST
        return saved


def finished(start, run_dir, number, settings):
    """(tensors, state) with which an attempt ends that is left alone."""
    with Attempt(start, run_dir, number, settings) as attempt:
        assert "resumed at step" in attempt.end()
    (last,) = (run_dir / contract.CHECKPOINTS_DIR).glob(f"ckpt-*{settings['steps']}.{number:032x}")
    return safetensors.torch.load((last / TENSORS_FILE).read_bytes()), json.loads((last / STATE_FILE).read_text())


def uninterrupted(settings, seams):
    """(tensors, state) of a learner that is never saved or loaded; at each of `seams` its environments are new."""
    args = make(settings["game"], **{key: value for key, value in settings.items() if key != "game"})
    spec = envs.spec_of(args.game, args.resolution)
    made = algorithms.kind(args.algo).make(args, spec, precision.choose(args.device, args.dtype), None)
    for until_step in [*seams, settings["steps"]]:
        games = envs.make(spec, envs.env_seeds(args.seed, 1, made.env_steps, args.num_envs), args.threads)
        made.train(games, lambda: made.env_steps < until_step, lambda: None)  # noqa: B023  used up in this turn
        games.close()
    return made.snapshot()


def bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes()


def differences(one, other):
    """Names of every tensor and every entry of the state in which two learners differ."""
    (tensors_a, state_a), (tensors_b, state_b) = one, other
    assert tensors_a.keys() == tensors_b.keys()
    assert state_a.keys() == state_b.keys()
    found = {name for name in tensors_a if bits(tensors_a[name]) != bits(tensors_b[name])}
    return found | {name for name in state_a.keys() - OF_THE_CLOCK if state_a[name] != state_b[name]}


def resumed_and_not(start, run_dir, settings, kills):
    """What a worker has learned that was killed so many times, and what one has that never was."""
    seams = [killed(start, run_dir, number, settings) for number in range(1, kills + 1)]
    settings = {**settings, "steps": seams[-1] + MORE}
    interrupted = finished(start, run_dir, kills + 1, settings)
    assert interrupted[1]["updates"] > 20
    return interrupted, uninterrupted(settings, seams)


@pytest.mark.parametrize("algo", SETTINGS)
def test_a_killed_worker_goes_on_to_the_bit(algo, tmp_path):
    settings = {"game": "Breakout", "algo": algo, **COMMON, **SETTINGS[algo]}
    interrupted, whole = resumed_and_not(forked, tmp_path / "run", settings, kills=1)
    assert differences(interrupted, whole) == set()


@pytest.mark.slow
@pytest.mark.parametrize("algo", SETTINGS)
def test_so_it_does_after_three_deaths_at_full_size(algo, tmp_path):
    """84x84, Nature's network, two threads in torch and in the games."""
    torch.set_num_threads(2)
    settings = {"game": "CrazyClimber", "algo": algo, **COMMON, **SETTINGS[algo], "resolution": 84, "threads": 2}
    interrupted, whole = resumed_and_not(Started, tmp_path / "run", settings, kills=3)
    assert differences(interrupted, whole) == set()
