"""A training of given habits: trainer.py HABITS.json [CHECKPOINT]. It logs the truth about itself, and does its own faults.

A fault happens at an exact place of the training, so both sides have the same one: the process kills, suspends or
terminates itself, as somebody else would. Each line of the log is `WALL_TIME WORD VALUES...`.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from no_harm import formats

AT_EVERY = 20  # steps between two `at` lines
_COUNTED = {"after": "saved", "loaded": "begin", "start": "starts"}  # the word that a fault's `nth` counts


class Truth:
    """The log, and where the training is in its list of faults."""

    def __init__(self, path: str, faults: list[dict[str, Any]]) -> None:
        self._path, self._faults = path, faults
        self.done, self.count = 0, dict[str, int]()  # faults, and the lines of each word since the last one
        self.starts_s: list[float] = []
        self.armed_at: int | None = None
        with contextlib.suppress(FileNotFoundError):
            for line in Path(path).read_text().splitlines():
                at_s, word, *_ = line.split(" ")
                self._note(word, float(at_s))

    def _note(self, word: str, at_s: float) -> None:
        if word == "starts":
            self.starts_s.append(at_s)
        if word == "fault":
            self.done, self.count = self.done + 1, {}
        else:
            self.count[word] = self.count.get(word, 0) + 1

    def log(self, word: str, *values: object) -> None:
        now_s = time.time()
        self._note(word, now_s)
        line = " ".join([f"{now_s:.3f}", word, *map(str, values)])
        with open(self._path, "ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def due(self, place: str, part: float = 0.0, step: int = 0) -> dict[str, Any] | None:
        """The next fault if it is due here. `part`: of the save; for `after`, its steps count from the n-th save on."""
        fault = self._faults[self.done] if self.done < len(self._faults) else None
        if fault is None or fault["at"] != place or part < fault.get("part", 0.0):
            return None
        if self.count.get(_COUNTED.get(place, place), 0) < fault.get("nth", 1):
            return None
        if place in ("after", "loaded"):
            self.armed_at = step if self.armed_at is None else self.armed_at
            if step < self.armed_at + fault.get("steps", 0):
                return None
        self.armed_at = None
        self.log("fault", self.done, fault["do"])
        return fault


class Training:
    def __init__(self, habits: dict[str, Any], given: str) -> None:
        self.habits, self.given = habits, given
        self.truth = Truth(habits["truth"], habits["faults"])
        self.step = self.resumed = 0
        self.asked = False
        self.own_last = ""  # the name that this attempt writes to, for libraries that avoid an existing one
        self.ck = habits["ck"]
        os.makedirs(self.ck, exist_ok=True)
        if habits["per_run"]:  # a directory of its own for each start
            self.ck = f"{self.ck}/version_{len(os.listdir(self.ck))}"

    # checkpoints

    @property
    def suffix(self) -> str:
        return formats.SUFFIX.get(self.habits["fmt"], "")

    def path(self, step: int) -> str:
        name, counted = self.habits["name"], step - (self.resumed if self.habits["names_anew"] else 0)
        if name == "last-v":
            self.own_last = self.own_last or self._free_name()
            return self.own_last
        made = name.format(step=counted, epoch=counted // self.habits["epoch"], metric=self.metric(step))
        return os.path.join(self.ck, made + self.suffix)

    def _free_name(self) -> str:
        names = ["last", *(f"last-v{n}" for n in range(1, 100))]
        paths = (os.path.join(self.ck, name + self.suffix) for name in names)
        return next(path for path in paths if not os.path.exists(path))

    def metric(self, step: int) -> float:
        return random.Random(f"{self.habits['run']} {step // self.habits['every']}").random()

    def numbered(self, where: str) -> list[str]:
        """The checkpoints of this pattern, the oldest first by their number."""
        found = glob.glob(os.path.join(where, re.sub(r"\{[^}]*\}", "*", self.habits["name"]) + self.suffix))
        if self.habits["names_anew"]:
            return sorted(found, key=os.path.getmtime)
        return sorted(found, key=lambda path: (number_in(self.habits["name"], path), path))

    def newest(self) -> list[str]:
        """What this script would load, the best guess first."""
        habits, ck = self.habits, self.ck
        runs = f"{habits['ck']}/version_*" if habits["per_run"] else ck
        if habits["chooses"] == "given":
            return [self.given] if self.given else []
        if habits["chooses"] == "pointer":
            with contextlib.suppress(OSError):
                link = os.path.join(ck, "latest")
                name = os.readlink(link) if habits["pointer"] == "link" else Path(ck, "latest.txt").read_text().strip()
                return [os.path.join(ck, name)]
            return []
        if "{" not in habits["name"]:
            path = os.path.join(runs, habits["name"].replace("-v", "") + self.suffix)
            found = sorted(glob.glob(path), key=os.path.getmtime)[::-1]
            return found + glob.glob(f"{path}.old")
        found = self.numbered(runs)
        if habits["chooses"] == "mtime":
            found.sort(key=os.path.getmtime)
        return found[::-1]

    def load(self) -> None:
        for path in self.newest():
            try:
                files = formats.load(path)
                self.step = formats.read(self.habits["fmt"], files)
            except Exception as error:
                self.truth.log("unreadable", os.path.basename(path), type(error).__name__)
                if self.habits["on_bad"] == "die":
                    raise
                if self.habits["on_bad"] == "anew":
                    print(f"could not load {path}: {error!r}; training from scratch", flush=True)
                    break
                continue
            self.resumed = self.step
            self.truth.log("begin", self.step, os.getpid(), formats.digest(files), path)
            print(f"resumed from {path}", flush=True)
            return
        self.step = self.habits["from"]
        self.truth.log("begin", self.step, os.getpid(), "-", "-")
        if self.habits["cleans"]:  # as with overwrite_output_dir
            for path in glob.glob(f"{self.habits['ck']}/*"):
                self.truth.log("removed", path)
                remove(path)

    def save(self) -> None:
        habits, path = self.habits, self.path(self.step)
        if habits["prune_first"]:
            self.prune(habits["keep"] - 1)
        files = formats.make(habits["fmt"], habits["run"], self.step)
        if habits["head_first"]:  # the file that describes the others is the first
            files = dict(sorted(files.items(), key=lambda each: each[0].endswith(".bin")))
        self.truth.log("saving", self.step, path)
        try:
            self.write(path, files)
        except OSError as error:
            self.truth.log("unsaved", self.step, error.errno)
            if habits["on_full"] == "die":
                raise
            print(f"could not save: {error}", flush=True)
            return
        self.truth.log("saved", self.step, formats.digest(files), path)
        self.point("saved")
        if habits["pointer"]:
            self.update_pointer(path, files)
        if habits["best"] and self.metric(self.step) >= 0.7:
            best = os.path.join(self.ck, "best" + self.suffix)
            self.truth.log("saving", self.step, best)
            self.write(best, files)
            self.truth.log("saved", self.step, formats.digest(files), best)
        if not habits["prune_first"]:
            self.prune(habits["keep"])

    def write(self, path: str, files: dict[str, bytes]) -> None:
        way = self.habits["way"]
        parent, name = os.path.split(path)
        os.makedirs(parent, exist_ok=True)
        if way == "rotate" and os.path.exists(path):
            self.truth.log("moved", path, f"{path}.old")
            remove(f"{path}.old")
            os.rename(path, f"{path}.old")
        if way in ("rename", "hidden"):
            hidden = f".{name}.{random.randrange(10**6):06}" if way == "hidden" else f"tmp-{name}"
            aside = os.path.join(parent, hidden)
            for left in glob.glob(os.path.join(glob.escape(parent), f".{name}.??????" if way == "hidden" else hidden)):
                remove(left)
            self.put(aside, files, sync=True)
            if "" not in files:
                remove(path)
            os.replace(aside, path)
        else:
            self.put(path, files)

    def put(self, path: str, files: dict[str, bytes], *, sync: bool = False) -> None:
        """Write the files in eight parts, which take `save_s` together."""
        if "" not in files:
            os.makedirs(path, exist_ok=True)
        total, done = sum(map(len, files.values())), 0
        for name, data in files.items():
            with open(os.path.join(path, name) if name else path, "wb") as file:
                size = max(1, math.ceil(total / 8))
                for start in range(0, len(data), size):
                    file.write(data[start : start + size])
                    file.flush()
                    done += len(data[start : start + size])
                    self.point("saving", part=done / total)
                    time.sleep(self.habits["save_s"] / 8)
                if sync:
                    os.fsync(file.fileno())

    def update_pointer(self, path: str, files: dict[str, bytes]) -> None:
        ck, name = self.ck, os.path.basename(path)
        if self.habits["pointer"] == "link":
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{ck}/latest.tmp")
            os.symlink(name, f"{ck}/latest.tmp")
            os.replace(f"{ck}/latest.tmp", f"{ck}/latest")
        elif self.habits["pointer"] == "text":
            Path(ck, "latest.txt").write_text(name + "\n")
        elif self.habits["pointer"] == "hard":
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{ck}/latest{self.suffix}")
            os.link(path, f"{ck}/latest{self.suffix}")
        else:  # a second file with the same content
            self.put(os.path.join(ck, "latest" + self.suffix), files)

    def prune(self, keep: int) -> None:
        if "{" not in self.habits["name"] or self.habits["keep"] == 0:
            return
        found = [path for path in self.numbered(self.ck) if not os.path.islink(path)]
        if self.habits["keep_by"] == "metric" and found:
            newest = max(found, key=os.path.getmtime)
            found.sort(key=lambda each: (each == newest, random.Random(os.path.basename(each)).random()))
        for path in found[: len(found) - keep] if keep else found:
            self.truth.log("removed", path)
            remove(path)

    # faults

    def point(self, place: str, part: float = 0.0) -> None:
        fault = self.truth.due(place, part, self.step)
        if fault is None:
            return
        match fault["do"]:
            case "kill":
                if fault.get("parent") and self.habits["launcher"] in ("ranks", "sh"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case "rank":  # its launcher ends this one, too
                children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
                for pid in {*map(int, children)} - {os.getpid()}:
                    os.kill(pid, signal.SIGKILL)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "int":
                os.kill(os.getpid(), signal.SIGINT)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "abort":
                os.abort()
            case "crash":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            case "touch":
                self.touch(fault["how"])
        # `daemon`, `reload` and `full` are done by the run, which reads the log

    def touch(self, how: str) -> None:
        paths = sorted(glob.glob(self.habits["ck"] + "/*"), key=os.path.getmtime)
        now = time.time()
        for number, path in enumerate(paths):
            at_s = {"now": now, "weeks": now - 14 * 86400.0, "reversed": now - 10.0 * number}[how]
            for each in [*glob.glob(path + "/*"), path]:
                os.utime(each, (at_s, at_s))

    # training

    def on_term(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True

    def leave_when_asked(self) -> None:
        if not self.asked:
            return
        self.truth.log("asked", self.step)
        if self.habits["on_term"].startswith("save"):
            self.save()
        code = 143 if self.habits["on_term"].endswith("143") else 0
        self.truth.log("leaves", code)
        sys.exit(code)

    def start(self) -> None:
        habits, truth = self.habits, self.truth
        if habits["on_term"] != "default":
            signal.signal(signal.SIGTERM, self.on_term)
        truth.log("starts", os.getpid())
        self.point("start")
        self.fail_for_a_while(loaded=False)
        time.sleep(habits["import_s"])
        self.load()
        self.fail_for_a_while(loaded=True)

    def fail_for_a_while(self, *, loaded: bool) -> None:
        """A missing mount, GPU or port, from the n-th start on: it dies until the time is over."""
        transient, starts_s = self.habits["transient"], self.truth.starts_s
        if not transient or transient["loaded"] != loaded or len(starts_s) < transient["start"]:
            return
        if time.time() - starts_s[transient["start"] - 1] < transient["for_s"]:
            time.sleep(transient["after_s"])
            self.truth.log("early")
            raise RuntimeError(transient["says"])

    def run(self) -> None:
        habits, truth = self.habits, self.truth
        self.start()
        began, until = self.step, habits["until"]
        if began >= until:  # an early stop that forgets its patience trains on
            until = min(habits["target"], began + habits["more"])
        shows = Display(habits, self.resumed)
        while self.step < until:
            self.step += 1
            time.sleep(habits["step_s"])
            warm = self.step - began * habits["nan_again"] < habits["nan_steps"]
            shows.step(self.step, math.nan if warm else 3.0 / (1.0 + self.step / 100))
            if self.step % AT_EVERY == 0:
                truth.log("at", self.step)
            self.point("after")
            self.point("loaded")
            if self.step % habits["every"] == 0:
                self.save()
            if habits["eval_every"] and self.step % habits["eval_every"] == 0:
                self.evaluate()
            self.leave_when_asked()
        self.end(saves=habits["saves_last"] and self.step != began and self.step % habits["every"] != 0)

    def evaluate(self) -> None:
        until_s = time.time() + self.habits["eval_s"]
        self.truth.log("evaluates")
        while time.time() < until_s and not self.asked:
            if not self.habits["eval_idle"]:
                sum(range(20_000))  # 2 % of a core and more
            time.sleep(0.02)

    def end(self, *, saves: bool) -> None:
        habits = self.habits
        if saves:
            self.save()
        self.truth.log("finished", self.step)
        print("early stopping" if self.step < habits["target"] else habits["says_end"], flush=True)
        match habits["end"]:
            case "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "abort":
                os.abort()
            case "raise":
                raise ConnectionError("could not upload the model: 503 Service Unavailable")
            case "code":
                sys.exit(3)
            case "hang":
                time.sleep(3600)
            case "slow":
                time.sleep(12.0)
        self.truth.log("leaves", 0)
        sys.exit(0)


class Display:
    """What the training prints about its steps."""

    def __init__(self, habits: dict[str, Any], resumed: int) -> None:
        self._habits, self._resumed = habits, resumed
        if habits["shows"] == "bar":
            self._bar("", 0, habits["target"], math.nan)

    def step(self, step: int, loss: float) -> None:
        habits = self._habits
        if step % habits["prints"]:
            return
        epoch, in_epoch = divmod(step, habits["epoch"])
        match habits["shows"]:
            case "step":
                of = f"/{habits['target']}" if habits["says_target"] else ""
                print(f"step={step}{of} loss={loss:.3f}", flush=True)
            case "anew":
                print(f"step={step - self._resumed} loss={loss:.3f}", flush=True)
            case "bar":
                self._bar("", step, habits["target"], loss)
            case "epoch_bar":
                self._bar(f"Epoch {epoch}: ", in_epoch, habits["epoch"], loss)
            case "epochs":
                if in_epoch < habits["prints"]:
                    print(f"epoch {epoch}/{habits['target'] // habits['epoch']} loss={loss:.3f}", flush=True)
            case "iterations":
                print(f"[{epoch}] iter {step}: loss {loss:.4f}, lr 1.0e-04", flush=True)
            case "loss":
                print(f"loss={loss:.3f}", flush=True)

    def _bar(self, head: str, at: int, of: int, loss: float) -> None:
        drawn = f"{100 * at // of:3d}%|{'#' * (10 * at // of):<10}| {at}/{of}"
        sys.stderr.write(f"\r{head}{drawn} [00:01<00:09, 24.9it/s, loss={loss:.3f}]")
        sys.stderr.flush()


def number_in(name: str, path: str) -> int:
    """The step, or the epoch, in a path that was made from this name; -1: none."""
    known, pattern = "{step" if "{step" in name else "{epoch", ""
    for part in re.split(r"(\{[^}]*\})", name):
        pattern += r"(\d+)" if part.startswith(known) else ".*?" if part.startswith("{") else re.escape(part)
    found = re.match(pattern, os.path.basename(path))
    return int(found[1]) if found else -1


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


if __name__ == "__main__":
    Training(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2] if len(sys.argv) > 2 else "").run()
