"""Both sides of a run: the daemon with all trainings, and a restart loop for each, with the same habits and faults."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from no_harm import formats, habits, judge

ROOT = Path(__file__).resolve().parents[2]
MARK = "NO_HARM_RUN"
DISK_KIB = 4096
HASTY = "[stall]\nslow_for_s = 2.0\nslow_restart_s = 8.0\nslow_restart_every_s = 5.0"  # shorter than an evaluation
_POLL_S = 0.2
_STATUS_S = 4.0


class Side:
    """The directories of one training on one side."""

    def __init__(self, root: Path, name: str, number: int, drawn: dict[str, Any], *, mounts: bool) -> None:
        self.name, self.number = name, number
        self.home = root / name / f"p{number}"
        self.truth = root / "truth" / f"{name}{number}"
        self.second_truth = root / "truth" / f"{name}{number}.second"
        self.file = root / "truth" / f"{name}{number}.json"
        self.home.mkdir(parents=True)
        self.truth.parent.mkdir(exist_ok=True)
        self.habits = {**drawn, "ck": str(self.home / "ck"), "truth": str(self.truth)}
        self.file.write_text(json.dumps(self.habits))
        self.foreign: dict[str, str] = {}
        self.mounted = drawn["small_disk"] and mounts and self._mount()
        self._read = self.saves = 0
        self.finished = False
        self.second: subprocess.Popen[bytes] | None = None
        self.ended = threading.Event()
        if drawn["linked"] and not self.mounted:
            (self.home / "disk").mkdir()
            (self.home / "ck").symlink_to("disk")
        (self.home / "ck").mkdir(exist_ok=True)
        if drawn["older"]:
            self._write_older(drawn)

    def _mount(self) -> bool:
        (self.home / "ck").mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(self.home / "ck")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _write_older(self, drawn: dict[str, Any]) -> None:
        """Checkpoints of an earlier experiment, with times of that."""
        for number, step in enumerate(drawn["older"]["steps"]):
            name = drawn["name"].format(step=step, epoch=step // drawn["epoch"], metric=0.5)
            path = self.home / "ck" / (name + formats.SUFFIX.get(drawn["fmt"], ""))
            files = formats.make(drawn["fmt"], "older", step)
            path.write_bytes(files[""])
            at_s = time.time() - drawn["older"]["weeks"] * 7 * 86400.0 + 600.0 * number
            os.utime(path, (at_s, at_s))
            self.foreign[formats.digest(files)] = "older"

    def pattern(self) -> str:
        return str(self.home / self.habits["config"].get("checkpoint_glob", "ck/*"))

    def new_faults(self) -> list[dict[str, Any]]:
        """The faults in the log since the last call. Notes the saves and a finish, too."""
        with contextlib.suppress(FileNotFoundError), self.truth.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + bool(whole)
            rows = [line.split() for line in whole.decode().splitlines()]
            self.saves += sum(row[1] == "saved" for row in rows)
            self.finished |= any(row[1] == "finished" for row in rows)
            return [self.habits["faults"][int(row[2])] for row in rows if row[1] == "fault"]
        return []

    def fill(self, for_s: float) -> None:
        """Fill the small disk for some seconds."""
        if self.mounted:
            filler = self.home / "ck" / ".filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)
            threading.Timer(for_s, lambda: filler.unlink(missing_ok=True)).start()

    def start_second(self, env: dict[str, str]) -> None:
        """A second run by hand in the same directory, with numbers of its own."""
        second = self.habits["second"]
        own = self.habits | {
            "run": "second", "truth": str(self.second_truth), "from": second["from"], "chooses": "given", "keep": 0,
            "until": second["from"] + second["for_steps"], "faults": [], "transient": None, "end": "ok", "best": False,
            "pointer": "", "prune_first": False, "on_full": "warn",
        }  # fmt: skip
        file = self.file.with_suffix(".second.json")
        file.write_text(json.dumps(own))
        with (self.home / "second.log").open("ab") as log:
            command = [sys.executable, str(habits.HERE / "trainer.py"), str(file)]
            self.second = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.home, env=env, start_new_session=True)

    def verdict(self, until_s: float, other: Side | None = None) -> judge.Verdict:
        """`other`: only while both had the same faults."""
        second = {line.rest[1]: "second" for line in judge.lines(self.second_truth) if line.word == "saved"}
        truth = judge.lines(self.truth, until_s)
        truth = truth if other is None else judge.shared(truth, judge.lines(other.truth, until_s))
        found = judge.judge(self.habits, truth, self.foreign | second, None if other else self.truth)
        found.ended = self.ended.is_set()
        return found


class Loop(threading.Thread):
    """`while true; do COMMAND; sleep 1; done`, until exit code 0."""

    def __init__(self, side: Side, env: dict[str, str], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._side, self._env, self._over = side, env, over

    def run(self) -> None:
        side = self._side
        words = habits.command(side.habits, side.file)
        with (side.home / "out.log").open("ab") as out:
            while not self._over.is_set():
                newest = self._newest()
                env = self._env | {"EXTRALIFE_RESUME": newest}
                if isinstance(words, str):
                    command = ["bash", "-o", "pipefail", "-c", words]
                else:
                    command = [newest if word == "{resume}" else word for word in words if newest or word != "{resume}"]
                process = subprocess.Popen(command, stdout=out, stderr=out, cwd=side.home, env=env, start_new_session=True)
                while process.poll() is None and not self._over.wait(_POLL_S):
                    pass
                if process.poll() is None:
                    process.kill()
                if process.wait() == 0:
                    side.ended.set()
                    return
                self._over.wait(1.0)

    def _newest(self) -> str:
        """What `ls -t` shows first; but a user who sees files beyond the target begins without a checkpoint."""
        side, older = self._side, self._side.habits["older"]
        beyond = older and max(older["steps"]) > side.habits["target"] and side.habits["config"].get("target_steps")
        if beyond and not any(line.word == "saved" for line in judge.lines(side.truth)):
            return ""
        found = [path for path in glob.glob(side.pattern()) if not os.path.islink(path) or side.pattern() == path]
        times = []
        for path in found:
            with contextlib.suppress(OSError):
                times.append((os.path.getmtime(path), path))
        return max(times)[1] if times else ""


class Run:
    """One seed: all trainings on both sides. `picked`: numbers of the only ones that take part."""

    def __init__(self, drawn: list[dict[str, Any]], picked: list[int], *, mounts: bool, hasty: bool = False) -> None:
        self._hasty = hasty
        self.directory = Path(tempfile.mkdtemp(prefix="xl-noharm-"))
        self.short = Path(tempfile.mkdtemp(prefix="xl-", dir="/dev/shm"))
        numbers = picked or list(range(len(drawn)))
        self.ours = [Side(self.directory, "ours", number, drawn[number], mounts=mounts) for number in numbers]
        self.loops = [Side(self.directory, "loop", number, drawn[number], mounts=mounts) for number in numbers]
        self.env = {**os.environ, MARK: str(self.directory), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.over = threading.Event()
        self.until_s = float("inf")
        self.daemon: subprocess.Popen[bytes] | None = None
        self.threads: list[Loop] = []
        self.ends: list[str] = []  # of the daemon, without a fault
        self.config = self.directory / "extralife.toml"
        text = f'[daemon]\nstate_dir = "{self.directory}/state"\nruntime_dir = "{self.short}"\n'
        text += f"[level]\nslots = {len(numbers)}\n{HASTY if hasty else ''}\n"
        text += "\n".join(habits.section(f"p{each.number}", each.habits, each.file, each.home) for each in self.ours)
        self.config.write_text(text)

    def ctl(self, *args: str, timeout_s: float = 60.0) -> str:
        command = [sys.executable, "-m", "supervisor.ctl", "-c", str(self.config), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout_s, check=False)
        return done.stdout

    def start_daemon(self) -> None:
        env = {key: value for key, value in self.env.items() if not key.startswith("EXTRALIFE_")}
        with (self.directory / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "supervisor", "-c", str(self.config)], stdout=log, stderr=log, cwd=ROOT, env=env,
                start_new_session=True,
            )  # fmt: skip

    def play(self, minutes: float) -> None:
        """Until all have ended, or for these minutes and one more in which those end whose loop has ended.

        A loop that has finished and begins again shows nothing new.
        """
        command = [sys.executable, "-m", "supervisor", "--check", "-c", str(self.config)]
        check = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if check.returncode:
            raise SystemExit(f"the configuration is refused: {check.stdout}{check.stderr}")
        self.start_daemon()
        for side in self.loops:
            self.threads.append(Loop(side, self.env, self.over))
            self.threads[-1].start()
        began_s, seconds, away_until_s, asks_s = time.monotonic(), set[Path](), 0.0, 0.0
        while True:
            time.sleep(_POLL_S)
            now_s = time.monotonic()
            for side in (*self.ours, *self.loops):
                for fault in side.new_faults():
                    if fault["do"] == "full":
                        side.fill(fault["for_s"])
                    if fault["do"] == "reload" and side.name == "ours" and self.daemon is not None:
                        self.daemon.send_signal(signal.SIGHUP)
                    if fault["do"] == "daemon" and side.name == "ours" and self.daemon is not None:
                        self.daemon.kill()
                        self.daemon.wait()
                        self.daemon, away_until_s = None, now_s + 0.5 + (side.number % 4)
                second = side.habits["second"]
                if second and side.home not in seconds and side.saves >= second["after"]:
                    seconds.add(side.home)
                    side.start_second(self.env)
            if self.daemon is not None and self.daemon.poll() is not None:
                self.ends.append(f"the daemon ended by itself with {self.daemon.returncode} at {time.strftime('%T')}")
                self.daemon = None
            if self.daemon is None and now_s >= away_until_s:
                self.start_daemon()
            if now_s >= asks_s:
                self._note_ended()
                asks_s = now_s + _STATUS_S
            pairs = list(zip(self.ours, self.loops, strict=True))
            over = all(ours.ended.is_set() and (loop.ended.is_set() or loop.finished) for ours, loop in pairs)
            behind = any(loop.ended.is_set() and not ours.ended.is_set() for ours, loop in pairs)
            if over or now_s - began_s > 60.0 * (minutes + behind):
                return

    def _note_ended(self) -> None:
        """A program that is DONE has ended for extralife; this alone is asked of it."""
        self.phases = {}
        with contextlib.suppress(ValueError, subprocess.TimeoutExpired, KeyError):
            rows = json.loads(self.ctl("status", "--json"))["programs"]
            self.phases = {row["name"]: row for row in rows}
            for side in self.ours:
                if self.phases[f"p{side.number}"]["phase"] == "DONE":
                    side.ended.set()
                else:
                    side.ended.clear()

    def results(self) -> list[dict[str, Any]]:
        """Judge before anything is ended: what comes later is not the trainings' own."""
        if self.daemon is None:
            self.start_daemon()
        self.until_s = time.time()
        facts: list[dict[str, Any]] = []
        for _ in range(20):
            with contextlib.suppress(ValueError, KeyError):
                facts = json.loads(self.ctl("history", "--json", "--all", "-n", "1000000"))["facts"]
                break
            time.sleep(1.0)
        (self.directory / "history.json").write_text(json.dumps(facts, indent=0))
        self._note_ended()
        rows = []
        for ours, loop in zip(self.ours, self.loops, strict=True):
            name, plain = f"p{ours.number}", loop.verdict(self.until_s)
            ext, common = (ours.verdict(self.until_s, loop if both else None) for both in (False, True))
            mine = [fact for fact in facts if fact["program"] == name]
            ext.fruitless = judge.fruitless(mine, judge.lines(ours.truth, self.until_s))
            rows.append({
                "program": name, "phase": self.phases.get(name, {}).get("phase", "?"), "better": judge.is_better(ext, plain),
                "harms": judge.harms(ext, plain, common, spared=2 * self._hasty),
                "ours": vars(ext), "loop": vars(plain), "says": [ext.text(), plain.text()],
                "habits": {key: value for key, value in ours.habits.items() if key not in ("ck", "truth")},
            })  # fmt: skip
        return rows

    def close(self, *, keep: bool) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.ctl("shutdown", timeout_s=90.0)
        if self.daemon is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(60)
        for _ in range(3):
            for pid in _marked(f"{MARK}={self.directory}"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        for side in (*self.ours, *self.loops):
            if side.second is not None:
                side.second.wait()
            if side.mounted:
                subprocess.run(["umount", "-l", str(side.home / "ck")], check=False)
        shutil.rmtree(self.short, ignore_errors=True)
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def _marked(mark: str) -> list[int]:
    """The live processes of this run: each has its mark in the environment."""
    found = []
    for name in os.listdir("/proc"):
        if re.fullmatch(r"\d+", name):
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found
