"""Optimizers without torch.compile's provisions: the same steps as PyTorch's, to the bit, and no compiler is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from workers import optimizers

KINDS = {
    "Adam": (optimizers.Adam, torch.optim.Adam, {"eps": 1e-5, "fused": True}),
    "RAdam": (optimizers.RAdam, torch.optim.RAdam, {"foreach": True}),
}


def trained(kind, options):
    """Weights after ten steps at two rates, and how often a hook heard of one."""
    torch.manual_seed(1)
    net, heard = nn.Linear(8, 4), []
    optimizer = kind(net.parameters(), 1e-2, **options)
    optimizer.register_step_post_hook(lambda *_: heard.append(1))
    for number in range(10):
        optimizer.param_groups[0]["lr"] = 1e-2 / (1 + number // 5)
        optimizer.zero_grad(set_to_none=True)
        net(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    assert all(parameter.requires_grad and parameter.grad_fn is None for parameter in net.parameters())
    return [*net.state_dict().values(), *(value for state in optimizer.state.values() for value in state.values())], len(
        heard
    )


@pytest.mark.parametrize("name", KINDS)
def test_its_steps_are_pytorchs_to_the_bit(name):
    ours, theirs, options = KINDS[name]
    (found, heard), (expected, _) = trained(ours, options), trained(theirs, options)
    assert len(found) == len(expected) == 8
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert heard == 10


def test_a_training_imports_no_compiler(tmp_path):
    """All three algorithms, in one process: the first steps import what is imported late."""
    code = """
import sys
from workers.__main__ import main
for algo in ("dqn", "ppo", "pqn"):
    sys.argv[1:] = ["--program", algo, "--game", "Catch", "--algo", algo, "--steps", "400", "--num-envs", "8", "--batch-size", "32",
                    "--learning-starts", "100", "--replay-size", "2000", "--n-steps", "16", "--threads", "1"]
    main()
sys.exit("imported" if "torch._dynamo" in sys.modules else 0)
"""
    env = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PATH": "/usr/bin:/bin",
        "GLIBC_TUNABLES": "glibc.malloc.arena_max=2",
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the target is reached") == 3
