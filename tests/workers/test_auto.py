"""The rule of `algo = "auto"`, and that it stays with what a checkpoint is of."""

import dataclasses
import json

import pytest
from learners import attempt

from workers import auto, contract
from workers.args import make
from workers.store import newest_identity

GB = 10**9
ROOMY = auto.Constraints(
    checkpoint_algo=None, num_envs=32, replay_bytes=7 * GB, rollout_bytes=GB, disk_bytes=74 * GB, memory_bytes=20 * GB,
    gpu_bytes=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "wanted", "why"),
    [
        ({}, "dqn", "32 environments bring few steps, and the replay of 7.00 GB fits"),
        ({"num_envs": 63}, "dqn", "63 environments bring few steps, and the replay of 7.00 GB fits"),
        ({"num_envs": 64}, "pqn", "64 environments bring steps enough without a replay"),
        ({"disk_bytes": 5 * GB}, "pqn", "a replay of 7.00 GB does not fit into the 5.00 GB free on disk"),
        ({"memory_bytes": 7 * GB}, "pqn", "a replay of 7.00 GB does not fit into the 7.00 GB free in memory"),
        ({"disk_bytes": None, "memory_bytes": None}, "dqn", "32 environments bring few steps, and the replay of 7.00 GB fits"),
        ({"num_envs": 256, "gpu_bytes": GB // 2}, "dqn",
         "a rollout of 1.00 GB does not fit into the 0.50 GB free on the GPU"),
        ({"num_envs": 256, "gpu_bytes": 2 * GB}, "pqn", "256 environments bring steps enough without a replay"),
        ({"num_envs": 256, "checkpoint_algo": "dqn"}, "dqn", "that is its checkpoint's"),
        ({"checkpoint_algo": "ppo", "disk_bytes": 0}, "ppo", "that is its checkpoint's"),
    ],
)  # fmt: skip
def test_the_rule(found, wanted, why):
    assert auto.choose(dataclasses.replace(ROOMY, **found)) == (wanted, why)


def train(directory, steps, **more):
    args = make(
        "Catch", threads=1, replay_size=2_000, learning_starts=100, replay_ratio=1.0, steps=steps, batch_size=24, **more
    )
    return attempt(directory, args)


def test_it_is_said_and_it_survives_a_change_of_level(tmp_path, capsys):
    """Few environments: dqn; then the level brings 64, for which a new run would take pqn."""
    assert train(tmp_path / "run", 400, algo="auto", num_envs=8) == contract.EXIT_DONE
    assert "Catch: auto is dqn: 8 environments bring few steps, and the replay of 0.00 GB fits" in capsys.readouterr().out
    assert newest_identity(tmp_path / "run")["algo"] == "dqn"
    assert train(tmp_path / "run", 1_600, algo="auto", num_envs=64) == contract.EXIT_DONE
    said = capsys.readouterr().out
    assert "Catch: auto is dqn: that is its checkpoint's" in said
    assert "resumed at step 400" in said
    assert train(tmp_path / "new", 2_048, algo="auto", num_envs=64, n_steps=8) == contract.EXIT_DONE
    assert "Catch: auto is pqn: 64 environments bring steps enough without a replay" in capsys.readouterr().out
    reports = (tmp_path / "new" / "attempts" / f"1-{1:032x}" / contract.REPORTS_FILE).read_text().splitlines()
    told = [json.loads(line) for line in reports]
    assert [(each["algo"], each["because"]) for each in told if each["kind"] == "algorithm"] == [
        ("pqn", "64 environments bring steps enough without a replay")
    ]
