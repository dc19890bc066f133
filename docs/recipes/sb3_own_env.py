"""Stable-Baselines3's PPO with an MLP on a Gymnasium environment of one's own, in processes of their own."""

import argparse

import extralife.sb3
import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize


class Walk(gymnasium.Env):
    """Reach +10 on a line in 50 steps; a step left or right."""

    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.taken = 0, 0
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at += 1 if action else -1
        self.taken += 1
        there = self.at >= 10
        return np.array([self.at], np.float32), 1.0 if there else -0.01, there, self.taken >= 50, {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n-envs", type=int, default=2)
    parser.add_argument("--n-steps", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--network-arch", type=int, nargs="+", default=[64, 64])
    args = parser.parse_args()

    def make() -> PPO:
        env = make_vec_env(Walk, n_envs=args.n_envs, vec_env_cls=SubprocVecEnv)
        return PPO(
            "MlpPolicy", VecNormalize(env), n_steps=args.n_steps, batch_size=args.batch_size, device="cpu",
            policy_kwargs={"net_arch": args.network_arch},
        )  # fmt: skip

    identity = {"env": "Walk", "net": args.network_arch}
    model, run = extralife.sb3.load(PPO, make, total=10_000_000, identity=identity)
    extralife.sb3.learn(model, run)


if __name__ == "__main__":  # the processes of SubprocVecEnv import this file
    main()
