"""The share of kept work of a script that does not know its supervisor, in two hours of faults.

    sudo python bench/any_script.py                # eight minutes; installs the others into bench/.envs the first time
    python bench/any_script.py --minutes 2 --sides extralife "supervisor 4.3.0"

Two hours are scaled to six minutes: the script saves every 3 s instead of every minute, and extralife's limit for silence is
30 s instead of ten minutes. All sides run at once with the same seeded list of faults, four programs each, with their own
default policies. If the machine's own init is not systemd, the side "systemd" runs in a box of tests/lab (a container with
its own systemd, over this machine's files; it prints what it needs). pm2 needs npm. The faults:

    kill       SIGKILL of the trainer
    exit       it exits with 1
    suspend    SIGSTOP
    hang       it waits forever and uses no CPU time
    torn       its newest checkpoint is truncated, and it is killed: the effect of a power cut on a file without fsync
    outage     it is killed, and each start fails at once for the next 3 s: like a mount that is missing for a minute

*Kept* is each program's step at the end, divided by the steps of an undisturbed program. The script resumes from the newest
checkpoint, or from the one on its command line: extralife's `{resume}` names the newest whole one. Prints a table and
writes bench/results/any_script.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "lab"))

from environments import ENVS
from labbox import Box as LabBox
from labbox import box_python, unfit
from sides import Box, Ours, Programs, Supervisor, end, pids_of, script, table, wait_for, write_json

KINDS = ("kill", "exit", "suspend", "hang", "torn", "outage")
PROGRAMS = 4
FAULTS_EACH = 6
PYTHON = box_python() or sys.executable  # one that also exists in a box
STEPS_PER_S, SAVES_S, OUTAGE_S, SILENCE_S = 20.0, 3.0, 3.0, 30.0
TRAINER = """
import json, os, signal, sys, time
from pathlib import Path
here, steps_per_s, saves_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
resume = sys.argv[4] if len(sys.argv) > 4 else ""
if time.time() < float((here / "away").read_text() or 0):
    sys.exit("the data is not there")
def hang(*_):
    while True:
        signal.pause()
signal.signal(signal.SIGUSR1, hang)
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(1))
saved = sorted(here.glob("step-*.json"))
newest = Path(resume) if resume else saved[-1] if saved else None
step = json.loads(newest.read_text())["step"] if newest else 0
(here / "pid").write_text(str(os.getpid()))
record, saved_s = os.open(here / "step", os.O_RDWR | os.O_CREAT), time.monotonic()
while True:
    time.sleep(1 / steps_per_s)  # stands for the work of a step
    step += 1
    os.pwrite(record, b"%12d" % step, 0)
    if time.monotonic() - saved_s >= saves_s:
        (here / f"step-{step:09}.json").write_text(json.dumps({"step": step, "weights": "x" * 4096}))
        for old in sorted(here.glob("step-*.json"))[:-3]:
            old.unlink()
        print("step", step, flush=True)
        saved_s = time.monotonic()
"""


class Extralife(Ours):
    def __init__(self, programs: Programs, directory: Path) -> None:
        super().__init__({name: [*command, "{resume}"] for name, command in programs.items()}, directory)

    def options(self, name: str) -> str:
        return "\n".join([
            f'checkpoint_glob = "{self.directory}/{name}/step-*.json"',
            r"checkpoint_step = 'step-(\d+)'",
            f'checkpoint_check = ["{sys.executable}", "-m", "json.tool"]',
            f"stall_timeout_s = {SILENCE_S:g}",
        ])  # fmt: skip


def own_init() -> bool:
    return Path("/run/systemd/system").exists()


class Systemd(Box):
    """Services with `Restart=always` and no limit of starts, under the machine's own systemd or under one in a box."""

    name = "systemd"
    box: LabBox | None = None

    def prepare(self) -> Path:
        if not own_init():
            self.box = LabBox(Path(tempfile.mkdtemp(prefix="xlb-systemd-")), self.directory)
            self.box.boot()
        return Path("/usr/bin")

    def command(self) -> list[str]:
        return ["sleep", "infinity"]

    def client(self, *args: str) -> list[str]:
        return ["systemctl", *args]

    def units(self) -> list[str]:
        return [f"xlb-{os.getpid()}-{name}.service" for name in self.programs]

    def run(self, *command: str) -> None:
        if self.box is not None:
            self.box.run(*command)
        else:
            subprocess.run(command, check=True)

    def start(self) -> None:
        super().start()
        for unit, (_, command) in zip(self.units(), self.programs.items(), strict=True):
            rules = ("Restart=always", "StartLimitIntervalSec=0")
            self.run("systemd-run", "--quiet", f"--unit={unit}", *(f"--property={rule}" for rule in rules), *command)

    def close(self) -> None:
        if self.box is not None:
            self.box.close()
            shutil.rmtree(self.box.directory, ignore_errors=True)
        else:
            self.ctl("stop", *self.units())
        super().close()


class Pm2(Box):
    name = "pm2"

    def prepare(self) -> Path:
        where = ENVS / "pm2"
        if not (where / "node_modules" / ".bin" / "pm2").exists():
            where.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", str(where), "pm2@6.0.13"], check=True)
        return where / "node_modules" / ".bin"

    def command(self) -> list[str]:
        apps = [
            {"name": name, "script": str(script(self.directory, name, command)), "interpreter": "none"}
            for name, command in self.programs.items()
        ]
        (self.directory / "pm2.json").write_text(json.dumps({"apps": apps}))
        return [str(self.bin / "pm2"), "start", "--no-daemon", str(self.directory / "pm2.json")]

    def client(self, *args: str) -> list[str]:
        return [str(self.bin / "pm2"), *args]

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.directory,
            env={**os.environ, "PM2_HOME": str(self.runtime)},
        )  # fmt: skip


class Torchrun(Box):
    """An agent for each program, as in its manual, with a practically unlimited number of restarts."""

    name = "torchrun"

    def prepare(self) -> Path:
        return Path(sys.executable).parent

    def command(self) -> list[str]:
        agent = (
            f"{self.bin}/python -m torch.distributed.run --standalone --max-restarts=1000 --monitor-interval=1 --no-python"
        )
        lines = [f"{agent} {script(self.directory, name, command)} &" for name, command in self.programs.items()]
        return [str(script_of(self.directory / "agents.sh", [*lines, "wait"]))]

    def client(self, *args: str) -> list[str]:
        return ["true", *args]


def script_of(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    path.chmod(0o755)
    return path


SIDES: dict[str, type[Box]] = {each.name: each for each in (Extralife, Supervisor, Systemd, Pm2, Torchrun)}


class Run:
    """One side, with a separate directory for each program."""

    def __init__(self, side: type[Box], directory: Path, tag: str) -> None:
        self.directory = directory
        trainer = directory / "trainer.py"
        trainer.write_text(TRAINER)
        programs: Programs = {}
        for number in range(PROGRAMS):
            (directory / f"p{number}").mkdir()
            (directory / f"p{number}" / "away").write_text("0")
            programs[f"p{number}"] = [
                PYTHON, "-S", str(trainer), str(directory / f"p{number}"), str(STEPS_PER_S), str(SAVES_S),
            ]  # fmt: skip
        self.tag = tag
        self.box = side(programs, directory)

    def step(self, program: str) -> int:
        try:
            return int((self.directory / program / "step").read_bytes() or b"0")
        except FileNotFoundError:
            return 0

    def inject_fault(self, program: str, kind: str) -> bool:
        """Inject a fault; False: no trainer was running."""
        where = self.directory / program
        if kind == "outage":
            (where / "away").write_text(str(time.time() + OUTAGE_S))
        if kind == "torn":
            for newest in sorted(where.glob("step-*.json"))[-1:]:
                os.truncate(newest, newest.stat().st_size // 2)
        number = {"exit": signal.SIGUSR2, "suspend": signal.SIGSTOP, "hang": signal.SIGUSR1}.get(kind, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            own_pid = (where / "pid").read_text()
            for pid in pids_of(str(where)):
                if own_pid == _number_inside(pid):
                    os.kill(pid, number)
                    return True
        return False

    def close(self) -> None:
        self.box.close()
        end(str(self.directory))


def _number_inside(pid: int) -> str:
    """The pid of a process in its own namespace: it differs for a process in a box."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[-1] for line in lines if line.startswith("NSpid:"))


def faults(seed: int, length_s: float) -> list[tuple[float, str, str]]:
    """(seconds, program, kind) for all sides: each kind once per program, at random times in the middle nine tenths."""
    generator = random.Random(seed)
    found = [
        (generator.uniform(0.05, 0.95) * length_s, f"p{number}", kind)
        for number in range(PROGRAMS) for kind in generator.sample(KINDS, FAULTS_EACH)
    ]  # fmt: skip
    return sorted(found)


def present() -> list[str]:
    missing = {
        "systemd": ("only root can run it" if os.geteuid() else "") if own_init() else unfit(),
        "pm2": "" if shutil.which("npm") else "npm not found",
    }
    for name, why in missing.items():
        if why:
            print(f"{name} is left out: {why}", flush=True)
    return [name for name in SIDES if not missing.get(name)]


def measure(names: list[str], seed: int, length_s: float) -> dict[str, dict[str, Any]]:
    with contextlib.ExitStack() as kept:
        runs: dict[str, Run] = {}
        for name in names:
            directory = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="xlb-any-")))
            runs[name] = Run(SIDES[name], directory, f"any{os.getpid()}")
            kept.callback(runs[name].close)
        for name, run in runs.items():
            with contextlib.suppress(TimeoutError):
                wait_for(lambda run=run: all(run.step(f"p{number}") > 0 for number in range(PROGRAMS)), 90, 0.2)
            print(f"{name}: {sum(run.step(f'p{number}') > 0 for number in range(PROGRAMS))} programs train", flush=True)
        before = {name: [run.step(f"p{number}") for number in range(PROGRAMS)] for name, run in runs.items()}
        began_s = time.monotonic()
        struck = dict.fromkeys(runs, 0)
        for at_s, program, kind in faults(seed, length_s):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))  # until the next fault
            for name, run in runs.items():
                struck[name] += run.inject_fault(program, kind)
        time.sleep(max(0.0, began_s + length_s - time.monotonic()))  # the rest of the time, the same for all sides
        passed_s = time.monotonic() - began_s
        return {
            name: shares([run.step(f"p{number}") - before[name][number] for number in range(PROGRAMS)], passed_s)
            | {"faults that found a trainer": struck[name]}
            for name, run in runs.items()
        }


def shares(steps: list[int], passed_s: float) -> dict[str, Any]:
    """The kept share of the steps of an undisturbed program: the mean over the programs, and the worst."""
    kept = [each / (passed_s * STEPS_PER_S) for each in steps]
    return {"kept": statistics.mean(kept), "kept by the worst program": min(kept)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", nargs="+", choices=SIDES)
    given = parser.parse_args()
    found = measure(given.sides or present(), given.seed, 60.0 * given.minutes)
    print(f"{PROGRAMS} programs, {PROGRAMS * FAULTS_EACH} faults, seed {given.seed}\n{table(found)}")
    write_json("any_script", {"seed": given.seed, "minutes": given.minutes, "sides": found})


if __name__ == "__main__":
    main()
