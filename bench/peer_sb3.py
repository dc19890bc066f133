"""Stable-Baselines3 as a peer of bench/throughput.py, run in the peers' environment: prints one JSON line.

    peer_sb3.py dqn|ppo NUM_ENVS BATCH RATIO_OR_EPOCHS SETTLE_S SECONDS

It uses SB3's own AtariWrapper and defaults (those of rl-zoo3 where they affect the speed); only the clock is ours. DQN is
timed between any two steps, PPO from the start of one rollout to the start of another.
"""

import json
import sys
import time

import ale_py
import gymnasium
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

STARTS = 2_000


class Clock(BaseCallback):
    def __init__(self, settle_s, seconds):
        super().__init__()
        self.settle_s, self.seconds = settle_s, seconds
        self.begun = self.first = self.last = None

    def look(self):
        now = (time.perf_counter(), time.process_time(), self.num_timesteps, self.model._n_updates)
        if self.model._n_updates == 0:
            return
        if self.begun is None:
            self.begun = now[0]
        if self.first is None:
            if now[0] - self.begun >= self.settle_s:
                self.first = now
        elif now[0] - self.first[0] >= self.seconds:
            self.last = now

    def _on_rollout_start(self):
        self.look()

    def _on_step(self):
        return self.last is None


def main():
    algo = sys.argv[1]
    num_envs, batch, learned = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=num_envs, seed=1), 4)
    if algo == "dqn":
        updates, left = divmod(learned * num_envs, batch)
        assert not left, "the batch must divide what a vector step owes"
        model = DQN(
            "CnnPolicy", env, learning_rate=1e-4, buffer_size=20_000, learning_starts=STARTS, batch_size=batch,
            train_freq=1, gradient_steps=updates, target_update_interval=8_000, seed=1,
        )  # fmt: skip
    else:
        model = PPO(
            "CnnPolicy", env, learning_rate=2.5e-4, n_steps=128, batch_size=batch, n_epochs=learned, clip_range=0.1,
            ent_coef=0.01, vf_coef=0.5, seed=1,
        )  # fmt: skip
    clock = Clock(float(sys.argv[5]), float(sys.argv[6]))
    model.learn(10**9, callback=clock)
    wall_s, cpu_s, steps, updates = (after - before for before, after in zip(clock.first, clock.last, strict=True))
    # PPO counts an epoch as one update.
    samples = updates * batch if algo == "dqn" else updates * 128 * num_envs
    figures = {"steps_per_s": steps / wall_s, "steps_per_cpu_s": steps / cpu_s, "samples_per_step": samples / steps}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
