"""The picture in README: `status` and `history` of a real daemon with two real games, after four faults.

    python bench/picture.py            # records (about three minutes) and draws
    python bench/picture.py --draw     # draws docs/pictures/night.svg from the recording docs/pictures/night.txt

The faults: a worker killed, a worker suspended, the daemon killed, and a power cut (everything killed at once, then another
boot id). The recording is the output of the two commands. From `history` it keeps only the lines about the faults, without
dates; longer lines are wrapped.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
KINDS = ("exited", "stalled", "revived", "daemon started", "host rebooted", "resumed")
COLUMNS = 160
NO_BREAK = "\u00a0"  # browsers collapse ordinary spaces
SAVES_S = 25.0  # enough for several checkpoints, which are at most 10 s apart
PATIENCE_S = 240.0
CONFIG = """\
[daemon]
state_dir = "{state}"
runtime_dir = "{runtime}"
[levels.light]
slots = 2
num_envs = 8
batch_size = 64
[levels.medium]
num_envs = 16
[stall]
floor_s = 5
[checkpoint]
max_s = 10
[training]
steps = 10_000_000
replay_ratio = 1.0
replay_size = 50_000
learning_starts = 2_000
[program.Pong]
[program.Breakout]
[program.Qbert]
"""


class Box:
    """A daemon with its own directory and its own boot id."""

    def __init__(self, directory: Path, config: str = CONFIG) -> None:
        self.directory, self.config, self.boot = directory, directory / "extralife.toml", directory / "boot"
        self.boot.mkdir()
        state, runtime = directory / "state", directory / "run"
        runtime.mkdir(mode=0o700)
        self.config.write_text(config.format(state=state, runtime=runtime))
        self.env = os.environ | {"EXTRALIFE_BOOT_FILES": str(self.boot), "COLUMNS": "200"}

    def power_on(self) -> None:
        ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        (self.boot / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.boot / "pid1_stat").write_text(f"1 (init) S {'0 ' * 18}{ticks} 0\n")
        self.start()

    def start(self) -> None:
        self._run("supervisor", "--detach")

    def ctl(self, *words: str) -> str:
        return self._run("supervisor.ctl", *words)

    def _run(self, module: str, *words: str) -> str:
        argv = [sys.executable, "-P", "-m", module, "-c", str(self.config), *words]
        done = subprocess.run(argv, capture_output=True, text=True, env=self.env, cwd=ROOT, timeout=PATIENCE_S, check=False)
        return done.stdout

    def pid(self, name: str = "") -> int:
        return int(self.ctl("pid", *([name] if name else [])))

    def processes(self) -> Iterator[int]:
        """Daemon, shims and workers: all processes with the directory in their command line or environment."""
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
                if str(self.directory).encode() in text and int(each.name) != os.getpid():
                    yield int(each.name)

    def cut_power(self) -> None:
        for _ in range(3):
            for pid in list(self.processes()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end_s:
            raise SystemExit(f"picture: waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(0.5)


def record() -> str:
    """The output of the two commands after the four faults."""
    with tempfile.TemporaryDirectory(prefix="extralife-picture-") as name:
        box = Box(Path(name))
        try:
            box.power_on()
            until(lambda: trains(box), "two games that train")
            time.sleep(SAVES_S)
            os.kill(box.pid("Pong"), signal.SIGKILL)
            until(lambda: "  exited " in box.ctl("history", "--all") and trains(box), "Pong's replacement")
            os.kill(box.pid("Breakout"), signal.SIGSTOP)
            until(lambda: "revived" in box.ctl("history", "--all"), "SIGCONT")
            os.kill(box.pid(), signal.SIGKILL)
            time.sleep(2)
            box.start()
            until(lambda: trains(box), "both to be adopted")
            time.sleep(SAVES_S)
            box.cut_power()
            time.sleep(20)
            box.power_on()
            until(lambda: trains(box), "both to resume")
            time.sleep(SAVES_S)
            status, history = box.ctl("status"), box.ctl("history", "--all", "-n", "10000")
            return f"$ extralifectl status\n{status}\n$ extralifectl history\n{chosen(history)}"
        finally:
            box.ctl("shutdown")
            box.cut_power()


def trains(box: Box) -> bool:
    return sum(line.split()[1:2] == ["RUNNING"] for line in box.ctl("status").splitlines()) == 2


def chosen(history: str) -> str:
    """The lines about the faults, without the date; lines about the first start are left out."""
    lines = [line[11:] for line in history.splitlines() if any(f"  {kind} " in line for kind in KINDS)]
    first = next(number for number, line in enumerate(lines) if "  exited " in line)
    lines = [line for line in lines[first:] if not line.endswith("ended by the host's reboot")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def draw(text: str) -> str:
    """A terminal with this text, as SVG."""
    wrapped = (textwrap.wrap(line, COLUMNS, subsequent_indent="  ", drop_whitespace=False) for line in text.splitlines())
    lines = [line for each in wrapped for line in each or [""]]
    width, height = 16 + COLUMNS * 7.25, 24 + 17 * len(lines)
    rows = []
    for number, line in enumerate(lines):
        shade = "#7ee787" if line.startswith("$") else "#8b949e" if line.startswith("NAME ") else "#e6edf3"
        rows.append(f'<text x="12" y="{24 + 17 * number}" fill="{shade}">{html.escape(line).replace(" ", NO_BREAK)}</text>')
    style = 'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" {style}>\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw from the recording; start nothing")
    recording = PICTURES / "night.txt"
    PICTURES.mkdir(exist_ok=True)
    if not parser.parse_args().draw:
        recording.write_text(record())
    recording.with_suffix(".svg").write_text(draw(recording.read_text()))
    print(recording.with_suffix(".svg"))


if __name__ == "__main__":
    main()
