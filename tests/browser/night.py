"""A night on one box as the dashboard shows it: the real API over a simulated box, with curves that grow.

Twelve hours pass in a few seconds: three games, two of them with seeds, climb the ladder; a trial of the heaviest level
ends with a reboot; a worker stalls, a training diverges, one program is given up. The recorder's file is written as the
daemon writes it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "outside"))

from inside import Host

from supervisor.features.recorder.adapters.store import Recording
from supervisor.features.recorder.rules.readings import readings
from supervisor.features.recorder.rules.resolution import TIERS

HOUR_S = 3600.0
# What a log, an evidence or a reason may hold: markup, colours and cursor of a terminal, an override of the direction.
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \x1b[31mred\x1b[0m \u202egnp.exe \x07 {{7*7}} ${alert(3)}"

CONFIG = """\
[daemon]
state_dir = "DIRECTORY/state"
runtime_dir = "DIRECTORY/run"
sample_period_s = 10.0
[levels.light]
slots = 4
num_envs = 32
batch_size = 512
threads = 1
[levels.medium]
slots = 5
num_envs = 64
batch_size = 1024
[levels.heavy]
slots = 8
num_envs = 128
[load]
mode = "climb"
climb_s = 3600.0
trial_s = 3600.0
dwell_s = 7200.0
review_s = 600.0
[training]
steps = 12_000_000
replay_size = 100_000
[cost]
usd_per_hour = 1.29
[program.Pong]
seeds = [1, 2, 3]
lr = 3e-4
[program.Breakout]
seeds = [1, 2]
lr = 1e-4
[program.Qbert]
[program.Seaquest]
[program.script]
command = ["/bin/sh", "-c", "exec sleep 1000"]
progress = "log"
[program.tensorboard]
kind = "service"
command = ["tensorboard"]
"""
GOALS = {
    "Pong": (-20.5, 19.0),
    "Breakout": (1.5, 310.0),
    "Qbert": (180.0, 9800.0),
    "Seaquest": (70.0, 4100.0),
}  # game: first and last return


class Figures:
    """What a worker's beats tell, of its present steps: a return that rises, and some noise that is the same each time."""

    def __init__(self, worker: Any, game: str, seed: int) -> None:
        self._worker, self._game, self._seed = worker, game, seed

    def keys(self) -> Iterator[str]:
        return iter(("mean_return", "best_return", "loss", "rss_bytes", "num_envs", "batch_size", "success_rate"))

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: str) -> float:
        steps = self._worker.steps
        first, last = GOALS[self._game]
        way = 1.0 / (1.0 + math.exp(4.0 - steps / (550_000 + 120_000 * self._seed)))
        wobble = math.sin(steps / 23_000 + self._seed) * 0.03 + math.sin(steps / 3_100 + 2 * self._seed) * 0.02
        rising = first + (last - first) * max(0.0, way + wobble * (0.3 + way))
        return {
            "mean_return": rising, "best_return": first + (last - first) * way, "loss": 0.02 + 0.1 / (1.0 + steps / 2e5),
            "rss_bytes": 2.1e9, "num_envs": 64, "batch_size": 1024, "success_rate": way,  # a name of the script's own
        }[key]  # fmt: skip


class Night(Host):
    """The simulated box with a recorder. All of its time passes in `run`."""

    def __init__(self, where: Path, text: str = CONFIG, seed: int = 16) -> None:
        super().__init__(seed, where, text)
        self.recording = Recording(self.state_dir / "recording.sqlite", now_s=0.0)
        self.recorded_s = -math.inf
        self.pending: dict[str, list[Any]] = {}

    def spawn(self, name: str, number: int, token: str) -> None:
        super().spawn(name, number, token)
        game, _, seed = name.partition("-s")
        if token in self.living and game in GOALS:
            self.living[token].figures = Figures(self.living[token], game, int(seed or 0))

    def publish(self, loop: Any) -> None:
        super().publish(loop)
        now_s = loop.clock.now_s()
        if now_s < self.recorded_s + TIERS[0].period_s:
            return
        found = readings(loop.state, loop.memory, now_s=now_s, wall_s=loop.clock.wall_s())
        for sheet, rows in found.items():
            self.pending.setdefault(sheet, []).extend(rows)
        self.recorded_s = now_s

    def write_down(self) -> None:
        """What was recorded meanwhile: one commit for a night."""
        self.recording.add(self.pending)
        self.pending = {}
        self.recording.fold(self.recorded_s)


def night(where: Path) -> Night:
    """The box at eight in the morning. Looks are half a minute apart, and ten seconds in the last half hour."""
    host = Night(where)
    host.look_s = 30.0
    host.start()
    host.run(1.8 * HOUR_S)
    host.worker("Pong-s2").stick(host.now_s)
    host.run(0.9 * HOUR_S)
    host.reboot(190.0, "power", "journal ends in the middle")  # while the heaviest level is on trial
    host.run(2.3 * HOUR_S)
    host.ends("Breakout-s1", code=1, last_lines=(f"OSError: {HOSTILE}",), after_s=4.0 * HOUR_S)
    host.ends("Qbert", code=65, last_lines=("workers: diverged: loss is nan",), after_s=2.0 * HOUR_S)
    host.worker("Pong-s1").stick(host.now_s)
    host.run(0.5 * HOUR_S)
    host.configure(CONFIG.replace("[program.Pong]\n", "[program.Pong]\nstop_grace_s = 30\n"))
    host.update()
    host.look_s = 10.0
    host.run(0.5 * HOUR_S)
    host.ends("Seaquest", code=78, last_lines=("workers: error: argument --lr: not a number",), after_s=60.0)
    for name in host.names:
        directory = host.state_dir / "programs" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "stdout.log").write_text("".join(f"{name} line {number}\n" for number in range(1, 41)))
        (directory / "stderr.log").write_text(f"{name}: {HOSTILE}\n")
    host.write_down()
    return host
