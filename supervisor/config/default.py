"""The configuration for a first try: two real games, at a load that fits two cores and 4 GiB of memory."""

from typing import Final

DEFAULT_TOML: Final = """\
[level]
name = "light"
slots = 2
num_envs = 8
batch_size = 64

[training]
replay_ratio = 1.0
replay_size = 50_000
learning_starts = 2_000

[program.Pong]

[program.Breakout]
"""
