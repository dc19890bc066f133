"""Another script as it is: its settings are presets, its runs have names. It takes its own newest checkpoint, and dies of SIGTERM.

train_ppo.py --preset heavy --run-name boxing-1
"""

import argparse
from pathlib import Path

from train_envpool import train

PRESETS = {"light": (4, 64), "medium": (8, 128), "heavy": (16, 256)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=PRESETS, default="light")
    parser.add_argument("--run-name", required=True)
    parser.add_argument("--game", default="Breakout")
    args = parser.parse_args()
    out = Path("runs", args.run_name)
    newest = max(out.glob("step=*.pt"), key=lambda path: int(path.stem[5:]), default=None)
    num_envs, batch_size = PRESETS[args.preset]
    train(args.game, out, num_envs=num_envs, batch_size=batch_size, resume=newest)
