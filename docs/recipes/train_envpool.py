"""A2C with envpool, as somebody wrote it: flags, prints and checkpoints of its own. It knows nothing of extralife.

train_envpool.py --game Pong --num-envs 32 --batch-size 256
"""

import argparse
import os
import signal
import time
from collections import deque
from pathlib import Path

import envpool
import numpy as np
import torch
from torch import nn


def network(actions: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1296, 64), nn.ReLU(),
        nn.Linear(64, actions + 1),
    )  # fmt: skip


def train(game, out, *, num_envs, batch_size, seed=1, resume=None, total=10_000_000, save_every_s=5.0, leave=lambda: False):
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    envs = envpool.make(f"{game}-v5", env_type="gymnasium", num_envs=num_envs, num_threads=1, seed=seed, episodic_life=True)
    net = network(envs.action_space.n)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    step = 0
    if resume:
        saved = torch.load(resume)
        step = saved["step"]
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
    print(f"{game}: from step {step} with {num_envs} environments, batch {batch_size}, seed {seed}", flush=True)

    def save() -> None:
        aside = out / "aside"
        torch.save({"step": step, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, aside)
        os.replace(aside, out / f"step={step}.pt")
        for old in sorted(out.glob("step=*.pt"), key=os.path.getmtime)[:-3]:
            old.unlink()

    rollout = max(1, batch_size // num_envs)
    frames, _ = envs.reset()
    scores, returns, saved_at = np.zeros(num_envs), deque(maxlen=100), time.time()
    while step < total and not leave():
        logs, values, rewards, alive, entropy = [], [], [], [], 0.0
        for _ in range(rollout):
            policy = net(torch.as_tensor(frames, dtype=torch.float32) / 255)
            choice = torch.distributions.Categorical(logits=policy[:, :-1])
            action = choice.sample()
            frames, reward, terminated, truncated, _ = envs.step(action.numpy().astype(np.int32))
            ended = terminated | truncated
            scores += reward
            returns.extend(scores[ended])
            scores[ended] = 0.0
            logs.append(choice.log_prob(action))
            values.append(policy[:, -1])
            rewards.append(torch.as_tensor(np.sign(reward), dtype=torch.float32))
            alive.append(torch.as_tensor(~ended, dtype=torch.float32))
            entropy = entropy + choice.entropy().mean() / rollout
        with torch.no_grad():
            after = net(torch.as_tensor(frames, dtype=torch.float32) / 255)[:, -1]
        gains = []
        for reward, goes_on in zip(reversed(rewards), reversed(alive)):
            after = reward + 0.99 * goes_on * after
            gains.insert(0, after)
        advantage = torch.stack(gains) - torch.stack(values)
        loss = -(torch.stack(logs) * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += rollout * num_envs
        mean = f"return={np.mean(returns):.2f} " if returns else ""
        print(f"step={step} {mean}loss={loss.item():.4f}", flush=True)
        if time.time() - saved_at > save_every_s:
            save()
            saved_at = time.time()
    save()
    print(f"{game}: leaves at step {step}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", required=True)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    train(
        args.game, Path("runs", args.game), num_envs=args.num_envs, batch_size=args.batch_size, seed=args.seed,
        resume=args.resume, leave=lambda: bool(asked),
    )  # fmt: skip
