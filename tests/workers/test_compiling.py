"""Compiled networks compute what the others do, keep their names, and are compiled before anything is learned."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from learners import games, learner, settings
from tools import needs

from workers import compiling
from workers.contract import EXIT_CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def trained(algo, **changes):
    made = learner(settings(algo=algo, num_envs=8, batch_size=32, n_steps=8, learning_starts=64, **changes))
    if made.args.compile:
        before = {name: tensor.clone() for name, tensor in made.snapshot()[0].items()}
        compiling.warm_up(made)
        after, state = made.snapshot()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert state["updates"] == 0
    made.train(games(made), lambda: made.env_steps < 512, lambda: None)
    return made


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo"])
def test_compiled_it_learns_the_same(algo):
    needs("g++")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("Python's headers are not installed (apt-get install python3-dev)")
    torch.compiler.reset()
    plain, fast = trained(algo), trained(algo, compile=True)
    assert fast.updates == plain.updates > 0
    ours, theirs = fast.networks()[0][1].state_dict(), plain.networks()[0][1].state_dict()
    assert ours.keys() == theirs.keys()
    x = torch.randint(0, 256, (32, 1, 10, 5), dtype=torch.uint8)
    plain.networks()[0][1].load_state_dict(ours)
    with torch.no_grad():
        torch.testing.assert_close(fast.networks()[0][1](x), plain.networks()[0][1](x), rtol=1e-3, atol=1e-4)


def test_without_a_compiler_it_says_so_in_a_sentence(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "workers", "--program=Catch", "--compile=true", "--device=cpu", "--num-envs=2",
         "--batch-size=8"],
        env={**os.environ, "CXX": "/bin/false", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == EXIT_CONFIG, ended.stderr
    assert ended.stderr.strip().splitlines()[-1].startswith("workers: the networks can't be compiled here (")
    assert ended.stderr.strip().endswith("set compile to false")
