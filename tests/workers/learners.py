"""Learners for the tests: Catch with settings that solve it in seconds, on one thread."""

import torch
from supervised import environment_of

from workers import algorithms, envs, precision, run
from workers import args as args_module
from workers.contract import Client
from workers.listen import PendingRequests

CATCH = {
    "num_envs": 32, "batch_size": 64, "threads": 1, "replay_size": 20_000, "learning_starts": 1_000, "lr": 1e-3,
    "target_period": 500, "epsilon_steps": 10_000,
}  # fmt: skip
ROLLOUTS = {"n_steps": 32, "batch_size": 256}  # what pqn and ppo have in place of a replay


def settings(game="Catch", **changes):
    ours = CATCH if changes.get("algo", "dqn") == "dqn" else {**CATCH, **ROLLOUTS}
    return args_module.make(game, **{**ours, **changes})


def learner(args, directory=None, dtype="fp32"):
    torch.set_num_threads(1)
    spec = envs.spec_of(args.game, args.resolution)
    return algorithms.kind(args.algo).make(args, spec, precision.choose("cpu", dtype), directory)


def attempt(run_dir, args, number=1):
    """The exit code of a supervised run in this process."""
    client = Client(environment_of(run_dir, number))
    try:
        return run.run(args, client, PendingRequests())
    finally:
        client.close()


def games(made, attempt=1):
    args = made.args
    return envs.make(made.spec, envs.env_seeds(args.seed, attempt, made.env_steps, args.num_envs), threads=1)
