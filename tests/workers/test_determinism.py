"""`deterministic = true`: two real runs of the same seed and threads have the same bits, whatever their attempt's number."""

import hashlib

import pytest
import safetensors.numpy
import torch
from learners import attempt

from workers import contract
from workers.args import make

SETTINGS = {
    "dqn": {"batch_size": 32, "learning_starts": 200, "replay_size": 4_000, "replay_ratio": 2.0, "target_period": 400},
    "pqn": {"batch_size": 64, "n_steps": 16},
    "ppo": {"batch_size": 64, "n_steps": 16},
}


def digest(run_dir):
    """Of every tensor in the newest checkpoint: weights, Adam's moments, the state of torch's generator."""
    newest = max(
        (run_dir / contract.CHECKPOINTS_DIR).iterdir(), key=lambda path: contract.parse_checkpoint_name(path.name) or (-1,)
    )
    tensors = safetensors.numpy.load((newest / "tensors.safetensors").read_bytes())
    assert len(tensors) > 10
    parts = [name.encode() + tensor.tobytes() for name, tensor in sorted(tensors.items())]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


@pytest.fixture
def train(tmp_path):
    """A whole run in this process; the digest of what it has learned."""

    def one(name, algo, number, **more):
        settings = {"num_envs": 16, "steps": 800, "threads": 1, "device": "cpu", **SETTINGS[algo], **more}
        assert attempt(tmp_path / name, make("Catch", algo=algo, **settings), number) == contract.EXIT_DONE
        return digest(tmp_path / name)

    threads = torch.get_num_threads()
    yield one
    torch.use_deterministic_algorithms(mode=False)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("algo", SETTINGS)
def test_the_same_seed_gives_the_same_bits(train, algo):
    first = train("first", algo, 1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert train("third", algo, 3, deterministic=True) == first, "another attempt plays the same games"


def test_otherwise_each_attempt_plays_games_of_its_own(train):
    first = train("first", "ppo", 1)
    assert train("again", "ppo", 1) == first, "on a CPU nothing else differs"
    assert train("third", "ppo", 3) != first
