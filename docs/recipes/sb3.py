"""Stable-Baselines3 with a built-in environment."""

import extralife.sb3
from stable_baselines3 import DQN

model, run = extralife.sb3.load(DQN, lambda: DQN("MlpPolicy", "CartPole-v1", buffer_size=20_000), total=1_000_000)
extralife.sb3.learn(model, run)
