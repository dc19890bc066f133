"""Stable-Baselines3 as its users write it: what `verbose=1` prints, its table, JSON and CSV files, and TensorBoard."""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, device="cpu", verbose=1, tensorboard_log="runs")
if sys.argv[1:]:
    model.set_logger(configure("logs", sys.argv[1:]))
model.learn(10_000_000)
