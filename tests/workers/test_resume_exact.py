"""A resumed learner is the uninterrupted one, bit for bit, from a moment at which both begin with new environments.

test_resume_processes.py does it with killed processes and a real game; here are the formats in which a gradient is scaled.
"""

import shutil

import numpy as np
import pytest
import torch
from learners import games, learner, settings

from workers.checkpoint import Checkpointer
from workers.contract import Client
from workers.replay import FRAMES_FILE, STEPS_FILE

BEFORE, AFTER = 60, 40  # vector steps
SETTINGS = {
    "dqn": {"num_envs": 8, "batch_size": 24, "learning_starts": 200, "target_period": 300, "epsilon_steps": 1_500,
            "lr_scheduler": "cosine", "scheduler_tmax": 2_000, "replay_size": 2_000},
    "pqn": {"num_envs": 8, "batch_size": 32, "n_steps": 8, "epsilon_steps": 1_500, "lr_scheduler": "cosine",
            "scheduler_tmax": 2_000},
    "ppo": {"num_envs": 8, "batch_size": 32, "n_steps": 8, "lr_scheduler": "linear", "scheduler_tmax": 2_000},
}  # fmt: skip


def run(made, attempt, vector_steps):
    until = made.env_steps + vector_steps * made.args.num_envs
    made.train(games(made, attempt), lambda: made.env_steps < until, lambda: None)


def checkpoint(made, directory):
    saver = Checkpointer(directory, Client({}), {"game": made.args.game})
    tensors, state = made.snapshot()
    assert saver.save(made.env_steps, tensors, state, mean_return=made.mean_return, stall_s=0.0)
    assert saver.wait(60)
    assert saver.failure is None


def resume(made, directory):
    loaded = Checkpointer(directory, Client({}), {"game": made.args.game}).load_newest()
    made.restore(loaded.tensors, loaded.state)
    return loaded


def differences(one, other):
    """Names of everything in which two learners differ; tensors are compared by their bits."""
    (tensors_a, state_a), (tensors_b, state_b) = one.snapshot(), other.snapshot()
    found = {name for name in {*tensors_a, *tensors_b} if not same_bits(tensors_a.get(name), tensors_b.get(name))}
    return found | {name for name in {*state_a, *state_b} if state_a.get(name) != state_b.get(name)}


def same_bits(a, b):
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_resumed_equals_uninterrupted(dtype, tmp_path):
    """The killed process had gone on for a while after its checkpoint: its newest experience is dropped."""
    args = settings(**SETTINGS["dqn"])
    whole = learner(args, tmp_path / "whole", dtype)
    run(whole, 1, BEFORE)
    checkpoint(whole, tmp_path)
    at_checkpoint = whole.updates
    whole_stores = tmp_path / "killed"
    shutil.copytree(tmp_path / "whole", whole_stores)

    killed = learner(args, whole_stores, dtype)
    resume(killed, tmp_path)
    run(killed, 7, 15)  # what nobody will remember
    assert killed.env_steps > whole.env_steps
    killed.replay.close()
    del killed

    run(whole, 2, AFTER)
    resumed = learner(args, whole_stores, dtype)
    torch.manual_seed(99)
    loaded = resume(resumed, tmp_path)
    assert loaded.env_steps == BEFORE * args.num_envs
    assert resumed.updates == at_checkpoint > 0
    run(resumed, 2, AFTER)

    assert resumed.updates > at_checkpoint
    assert differences(whole, resumed) == set()
    whole.replay.close()
    resumed.replay.close()
    for name in (FRAMES_FILE, STEPS_FILE):
        rows = (BEFORE + AFTER) * args.num_envs
        ours, theirs = (np.fromfile(where / name, np.uint8) for where in (tmp_path / "whole", whole_stores))
        size = len(ours) * rows // (args.replay_size // args.num_envs * args.num_envs)
        assert np.array_equal(ours[:size], theirs[:size])


@pytest.mark.parametrize("algo", ["pqn", "ppo"])
def test_resumed_equals_uninterrupted_without_a_replay(algo, tmp_path):
    """Both stand in the middle of a rollout at the checkpoint: what is in it is forgotten by the one and the other."""
    args = settings("Catch", algo=algo, **SETTINGS[algo])
    whole = learner(args, dtype="fp16")
    run(whole, 1, BEFORE)
    assert not whole.can_save_all()
    checkpoint(whole, tmp_path)
    at_checkpoint = whole.updates
    run(whole, 2, AFTER)

    resumed = learner(args, dtype="fp16")
    torch.manual_seed(99)
    resume(resumed, tmp_path)
    assert resumed.updates == at_checkpoint > 0
    run(resumed, 2, AFTER)
    assert resumed.updates > at_checkpoint
    assert differences(whole, resumed) == set()
