"""extralife on a box: installed, asked, and looked at."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from labbox import CHECKOUT, PACKAGES, PATIENCE, Box, box_python, packages, until

from workers.contract import TMP_SUFFIX, parse_checkpoint_name

GAMES = ("Breakout", "Pong")
CTL = ("/opt/extralife/current/.venv/bin/supervisorctl", "-c", "/etc/extralife/extralife.toml")
STATE = "/var/lib/extralife"
UNIT = "extralife.service"
CONFIG = """
[daemon]
state_dir = "/var/lib/extralife"
runtime_dir = "/run/extralife"
sample_period_s = 0.5
alive_period_s = 1.0
[level]
slots = 2
num_envs = 4
batch_size = 32
threads = 1
[training]
learning_starts = 500
replay_size = 20_000
replay_ratio = 0.5
[checkpoint]
min_s = 2.0
first_s = 2.0
max_s = 4.0
[program.Pong]
[program.Breakout]
"""
INTERVAL_S = 4.0
FACTS = """
import json, sqlite3, sys
db = sqlite3.connect("file:/var/lib/extralife/journal.sqlite?mode=ro", uri=True)
columns = ("seq", "kind", "at_s", "boot_id")
rows = db.execute("SELECT seq, kind, at_s, boot_id, body FROM fact WHERE kind = ? ORDER BY seq", (sys.argv[1],)).fetchall()
print(json.dumps([{**dict(zip(columns, row)), **json.loads(row[-1])} for row in rows]))
"""
_INTEGRITY = """
import sqlite3
db = sqlite3.connect("file:/var/lib/extralife/journal.sqlite?mode=ro", uri=True)
print(db.execute("PRAGMA integrity_check").fetchone()[0])
"""
_WHOLE = """
import json, sys
from pathlib import Path
from supervisor.adapters.process.checkpoints import survey, verify
looked = {name: [verify(c) for c in survey(Path("/var/lib/extralife/programs") / name)] for name in sys.argv[1:]}
# One that its worker has pruned in the meantime is neither whole nor damaged.
found = {name: [(c.env_steps, c.verified) for c in cs if c.path.exists()] for name, cs in looked.items()}
print(json.dumps(found))
"""


def installer(checkout: str = CHECKOUT) -> list[str]:
    """The command that installs from a checkout in the box, with the packages of this Python."""
    found = [option for n in range(len(packages())) for option in ("--packages", f"{PACKAGES}{n}")]
    return ["env", f"PYTHON={box_python()}", f"{checkout}/deploy/install.sh", *found]


class Installed(Box):
    """A booted box; `install` puts extralife on it."""

    def __init__(self, directory: Path, shared: Path | None = None) -> None:
        super().__init__(directory, shared)
        self.booted_in_s = self.boot()

    def install(self, *options: str, checkout: str = CHECKOUT) -> str:
        """What deploy/install.sh says."""
        done = self.run(*installer(checkout), *options, timeout_s=300)
        return done.stdout + done.stderr

    def show_own_boot_id(self) -> None:
        """Let the service see the boot id of its box, so that it does not take each boot for a restart of a container.

        The box has it by a bind mount over the kernel's file. Either of these settings would remove that mount.
        """
        self.write(
            f"/etc/systemd/system/{UNIT}.d/boot-id.conf", "[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\n"
        )

    def configure(self, text: str) -> None:
        """The configuration that the service reads, durably."""
        self.write("/etc/extralife/extralife.toml", text)

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && printf %s "$1" >"$0" && sync "$0" "$(dirname "$0")"', path, text)

    def ctl(self, *args: str, check: bool = False, timeout_s: float = 60) -> str:
        return self.run(*CTL, *args, check=check, timeout_s=timeout_s).stdout

    def status(self) -> dict[str, Any]:
        """As the daemon itself says it; without one nothing, not what its journal remembers."""
        try:
            found: dict[str, Any] = json.loads(self.ctl("status", "--json"))
        except json.JSONDecodeError:
            found = {}
        return found if found.get("daemon", {}).get("pid") else {"programs": []}

    def programs(self) -> dict[str, dict[str, Any]]:
        return {program["name"]: program for program in self.status()["programs"]}

    def wait_until_trains(
        self, timeout_s: float = 120, least_steps: dict[str, int] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Every game is RUNNING and has got beyond `least_steps`, with a checkpoint of this life."""

        def look() -> dict[str, dict[str, Any]] | None:
            programs = self.programs()
            good = [
                name
                for name in GAMES
                if (program := programs.get(name))
                and program["phase"] == "RUNNING"
                and program["worker_phase"] == "training"
                and (program["steps"] or 0) > (least_steps or {}).get(name, 0)
            ]
            return programs if len(good) == len(GAMES) else None

        found: dict[str, dict[str, Any]] = until(look, timeout_s, f"both games to train: {self.tail()}")
        return found

    def facts(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.python(FACTS, kind))
        return found

    def checkpoints(self) -> dict[str, list[tuple[int, bool]]]:
        """(steps, whole to the last bit) of every committed checkpoint, newest first."""
        python = "/opt/extralife/current/.venv/bin/python"
        found: dict[str, list[tuple[int, bool]]] = json.loads(self.run(python, "-P", "-c", _WHOLE, *GAMES).stdout)
        return found

    def wait_for_a_commit(self, timeout_s: float = 60) -> tuple[str, str]:
        """(program, checkpoint) at the moment at which it is being written: the time to cut the power at."""
        places = {name: self.from_outside(f"{STATE}/programs/{name}/checkpoints") for name in GAMES}
        deadline = time.monotonic() + timeout_s * PATIENCE
        while time.monotonic() < deadline:
            for program, place in places.items():
                found = {n: parse_checkpoint_name(n.removesuffix(TMP_SUFFIX)) for n in os.listdir(place)}
                newest = max(found, key=lambda name: found[name] or (0, ""), default="")
                # What is being pruned has that suffix too, but is older than what is kept.
                if newest.endswith(TMP_SUFFIX):
                    return program, newest.removesuffix(TMP_SUFFIX)
            time.sleep(0.001)  # it takes some milliseconds, and tells nobody
        raise AssertionError(f"no checkpoint was written in {timeout_s:g} s")

    def workers(self) -> dict[str, list[int]]:
        """The processes that train, by program."""
        found: dict[str, list[int]] = {name: [] for name in GAMES}
        for line in self.run("ps", "-eo", "pid=,stat=,args=").stdout.splitlines():
            pid, state, args = line.split(None, 2)
            for name in GAMES:
                if "-m workers" in args and name in args.split() and not state.startswith("Z"):
                    found[name].append(int(pid))
        return found

    def daemon(self) -> int:
        return int(self.show(UNIT, "MainPID"))

    def alerts(self) -> list[str]:
        return self.run("cat", f"{STATE}/reboot_alerts.log", check=False).stdout.splitlines()

    def integrity(self) -> str:
        return self.python(_INTEGRITY).strip()

    def tail(self) -> str:
        return self.run("journalctl", "-u", UNIT, "-n", "30", "--no-pager", "-o", "cat", check=False).stdout[-3000:]
