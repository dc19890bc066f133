"""Random habits of trainings: what a seed draws, and the program's section for each."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

from no_harm import formats

HERE = Path(__file__).parent
STEP_S = 0.04
TRANSIENT = (
    "CUDA error: no CUDA-capable device is detected", "[Errno 2] No such file or directory: '/mnt/data/train.bin'",
    "The server socket has failed to listen on any local network address (EADDRINUSE)",
)  # fmt: skip
PLAIN: dict[str, Any] = {  # of a training that does nothing special
    "run": "plain", "fmt": "zip", "name": "last", "names_anew": False, "way": "rename", "every": 80, "epoch": 100, "keep": 3,
    "keep_by": "number", "prune_first": False, "pointer": "", "best": False, "chooses": "own", "on_bad": "die",
    "on_full": "die", "save_s": 0.0, "step_s": STEP_S, "import_s": 0.0, "from": 0, "target": 1500, "until": 1500, "more": 0,
    "saves_last": True, "shows": "step", "says_target": False, "prints": 5, "nan_steps": 0, "nan_again": False,
    "eval_every": 0, "eval_s": 0, "eval_idle": False, "end": "ok", "says_end": "", "on_term": "default",
    "launcher": "direct", "restarts": 0, "per_run": False, "cleans": False, "head_first": False, "linked": False,
    "transient": None, "older": None, "second": None, "small_disk": False, "faults": [],
    "config": {"stop_grace_s": 10},
}  # fmt: skip
SHOWN = ("shows", "fmt", "way", "name", "keep", "keep_by", "chooses", "on_bad", "launcher", "end", "on_term")  # in the table


def draw(seed: int, count: int, *, hasty: bool = False) -> list[dict[str, Any]]:
    """The habits of `count` trainings; each depends on the seed and its own number only. `hasty`: all evaluate for long."""
    drawn = [_one(random.Random(f"{seed} {number}"), f"s{seed}n{number}", number) for number in range(count)]
    return [each | {"eval_every": 500, "eval_s": 55} for each in drawn] if hasty else drawn


def _one(r: random.Random, run: str, number: int) -> dict[str, Any]:
    folder = r.random() < 0.25
    single = ["zip", "safetensors", "json", "text", "binary", "numpy", "pickle", "gzip"]
    fmt = r.choice(formats.FOLDERS) if folder else "torch" if number % 12 == 5 else r.choice(single)
    every = r.choice([10, 40, 80, 80, 150, 150, 300])
    numbered = folder or r.random() < 0.6
    if folder:
        name = r.choice(["checkpoint-{step}", "iter_{step:07d}", "ckpt/epoch_{epoch}", "last"])
    elif numbered:
        names = ["m_{step}", "step_{step:08d}", "epoch={epoch}-step={step}", "epoch_{epoch}", "rl_model_{step}_steps"]
        name = r.choice([*names, "m-{step}-loss{metric:.2f}"])
    else:
        name = r.choice(["last", "last", "model", "last-v"])
    name = name.removeprefix("ckpt/")
    numbered = "{" in name
    names_anew = name.startswith("rl_model") and r.random() < 0.5
    if folder:
        way = r.choice(["direct", "rename", "rename"])
    else:
        way = r.choice(["rename", "rename", "hidden", "direct", "direct"] + ["rotate"] * (not numbered))
    per_run = not names_anew and r.random() < 0.15
    pointer = r.choice(["", "", "link", "text", "copy", "hard"]) if numbered and not names_anew and not per_run else ""
    pointer = "text" if folder and pointer in ("copy", "hard") else pointer
    choosers = ["own", "own", "given", "given"] + ["mtime"] * (numbered or per_run)
    choosers += ["pointer"] * 2 * (pointer in ("link", "text"))
    chooses = "mtime" if names_anew or (per_run and numbered) else r.choice(choosers)
    chooses = "given" if per_run and r.random() < 0.5 else chooses
    target = r.choice([1500, 2000, 2500])
    stops = r.random() < 0.12
    until = target * r.choice([5, 7, 9]) // 10 if stops else target
    habits = PLAIN | {
        "run": run, "per_run": per_run, "cleans": r.random() < 0.08, "head_first": r.random() < 0.3,
        "linked": r.random() < 0.1,
        "fmt": fmt, "name": name, "names_anew": names_anew, "way": way, "every": every,
        "epoch": every if "{epoch}" in name else r.choice([50, 100, 250]), "keep": r.choice([1, 1, 3, 3, 10, 0]),
        "keep_by": r.choice(["number", "number", "number", "metric"]), "prune_first": r.random() < 0.1,
        "pointer": pointer, "best": not folder and r.random() < 0.25, "chooses": chooses,
        "on_bad": r.choice(["die", "die", "die", "anew", "older"]), "on_full": r.choice(["die", "die", "warn"]),
        "save_s": r.choice([0.0, 0.2, 0.6, 1.5]), "import_s": r.choice([0.0, 0.5, 2.0, 5.0]),
        "target": target, "until": until, "more": r.choice([0, 0, every]), "saves_last": r.random() < 0.85,
        "shows": r.choice(["step", "step", "anew", "bar", "epoch_bar", "epochs", "iterations", "loss", "none"]),
        "says_target": r.random() < 0.5, "prints": r.choice([1, 5, 5, 25, 50]),
        "nan_steps": r.choice([0, 0, 0, 0, 300, 600, 1400]), "nan_again": r.random() < 0.5,
        "eval_every": r.choice([0, 0, 500, 700]), "eval_s": r.choice([4, 9, 20]), "eval_idle": r.random() < 0.4,
        "end": r.choice(["ok"] * 8 + ["segv", "abort", "raise", "hang", "code", "slow"]),
        "says_end": r.choice(["training finished", "Done.", "Saved the model to out/final", ""]),
        "on_term": r.choice(["default", "default", "save", "save", "save143", "leave"]),
        "launcher": r.choice(["direct"] * 4 + ["sh", "shell", "tee", "ranks"]), "restarts": r.choice([0, 3, 10]),
    }  # fmt: skip
    if r.random() < 0.2:
        habits["transient"] = {
            "start": r.choice([1, 2, 3]), "for_s": r.choice([4, 8, 15, 30, 50]), "after_s": r.choice([0.1, 1.0]),
            "loaded": r.random() < 0.4, "says": r.choice(TRANSIENT),
        }  # fmt: skip
    if numbered and not names_anew and not folder and not per_run and r.random() < 0.12:
        habits["older"] = {"steps": r.choice([[5000, 5400], [320, 640], [40000]]), "weeks": 2}
    if numbered and not names_anew and not per_run and r.random() < 0.1:
        habits["second"] = {"from": r.choice([0, 10_000]), "for_steps": r.choice([300, 600]), "after": r.choice([1, 2])}
    habits["faults"] = _faults(r, habits)
    if r.random() < 0.95:  # with more deaths than that it is the breaker of the restarts that decides
        _spare(habits, (5 if not habits["transient"] or habits["transient"]["for_s"] <= 15 else 1))
    habits["small_disk"] = any(fault["do"] == "full" for fault in habits["faults"])
    habits["config"] = _config(r, habits)
    return habits


def _faults(r: random.Random, habits: dict[str, Any]) -> list[dict[str, Any]]:
    """One to five faults, each at the n-th save or start since the one before."""
    made: list[dict[str, Any]] = []
    for _ in range(r.choice([1, 2, 3, 3, 4])):
        place = r.choice(["after", "after", "after", "saving", "saved", "start", "loaded"])
        fault: dict[str, Any] = {"at": place, "nth": 1 if place in ("start", "loaded") else r.choice([1, 1, 2, 3])}
        fault["do"] = r.choice(["kill"] * 6 + ["term", "int", "stop", "abort", "crash", "crash"])
        if place in ("after", "loaded"):
            fault["steps"] = r.choice([1, 10, 40, 100, 200])
        if place == "saving":
            fault["part"] = r.choice([0.1, 0.5, 0.9, 1.0])
        if fault["do"] == "kill" and r.random() < 0.5:
            fault["parent"] = True
        if habits["launcher"] == "ranks" and r.random() < 0.4:
            fault["do"] = "rank"
        made.append(fault)
        if r.random() < 0.12:  # the same once more, at each of the next starts
            made += [{**fault, "at": "loaded", "nth": 1, "steps": r.choice([0, 5, 20])}] * r.choice([2, 3, 4])
    for do, likely in (("daemon", 0.25), ("reload", 0.15), ("touch", 0.12), ("full", 0.08)):
        if r.random() < likely:
            fault = {"at": "after", "nth": r.choice([1, 2]), "steps": r.choice([1, 20]), "do": do}
            fault |= {"how": r.choice(["now", "weeks", "reversed"])} if do == "touch" else {}
            made.insert(r.randrange(len(made)), fault | ({"for_s": 6} if do == "full" else {}))  # another one follows
    return made


def _spare(habits: dict[str, Any], most: int) -> None:
    """Leave out the faults beyond so many that end the training."""
    ends = [fault for fault in habits["faults"] if fault["do"] in ("kill", "term", "int", "abort", "crash", "rank")]
    for fault in ends[most:]:
        habits["faults"].remove(fault)


def _config(r: random.Random, habits: dict[str, Any]) -> dict[str, Any]:
    """The keys of the program's section. Most people name their checkpoints; some give extralife nothing but the command."""
    name, suffix = habits["name"], formats.SUFFIX.get(habits["fmt"], "")
    keys: dict[str, Any] = {"stop_grace_s": 10}
    expression = {
        "step": r"step=(?P<step>\d+)" + (r"/(?P<target>\d+)" if habits["says_target"] else "") + r" loss=(?P<loss>\S+)",
        "anew": r"step=(?P<step>\d+) loss=(?P<loss>\S+)", "loss": r"loss=(?P<loss>\S+)",
        "bar": r"\| (?P<step>\d+)/(?P<target>\d+) \[.*loss=(?P<loss>[^\]]+)",
        "epoch_bar": r"\| (?P<step>\d+)/(?P<target>\d+) \[.*loss=(?P<loss>[^\]]+)",
        "epochs": r"epoch (?P<step>\d+)/(?P<target>\d+) loss=(?P<loss>\S+)",
        "iterations": r"iter (?P<step>\d+): loss (?P<loss>[\d.naninf]+)",
    }.get(habits["shows"])  # fmt: skip
    if expression and r.random() < 0.8:
        keys["log_regex"] = expression
    if habits["shows"] in ("step", "iterations") and r.random() < 0.4:
        keys["target_steps"] = habits["target"]
    if habits["chooses"] == "given" or r.random() < 0.85:
        folder = habits["fmt"] in formats.FOLDERS
        wide = "" if r.random() < (0.9 if folder else 0.75) else "*"  # also `best` and the like
        pattern = wide or re.sub(r"\{[^}]*\}", "*", name.replace("last-v", "last*"))
        keys["checkpoint_glob"] = "ck/" + "version_*/" * habits["per_run"] + pattern + suffix
        before = re.split(r"\{(?:step|epoch)", name)[-2].split("}")[-1] if "{" in name else ""
        if "{" in name and r.random() < 0.7:
            keys["checkpoint_step"] = f"{before}(\\d+)"
        if habits["pointer"] == "link" and r.random() < 0.15:
            keys["checkpoint_glob"] = "ck/latest"
        elif r.random() < 0.08 and habits["fmt"] != "torch":
            keys["checkpoint_check"] = [sys.executable, str(HERE / "formats.py"), habits["fmt"]]
        if habits["fmt"] == "trainer" and r.random() < 0.7:
            keys["checkpoint_step"] = "trainer_state.json:global_step"
    return keys


def command(habits: dict[str, Any], file: Path) -> list[str] | str:
    """The command, with `{resume}` where it takes a checkpoint; a string is for a shell."""
    plain, given = [sys.executable, str(HERE / "trainer.py"), str(file)], habits["chooses"] == "given"
    match habits["launcher"]:
        case "sh":
            return ["sh", "-c", f'cd .; {" ".join(plain)} "$@"; exit $?', "sh", *(["{resume}"] if given else [])]
        case "shell" | "tee":
            text = " ".join(plain) + (" ${EXTRALIFE_RESUME}" if given else "")
            return text + (" 2>&1 | tee -a run.log" if habits["launcher"] == "tee" else "; exit $?")
        case "ranks":
            plain = [sys.executable, str(HERE / "launcher.py"), str(habits["restarts"]), *plain]
    return plain + (["{resume}"] if given else [])


def section(name: str, habits: dict[str, Any], file: Path, directory: Path) -> str:
    words = command(habits, file)
    lines = [f"[program.{name}]", f"command = {json.dumps(words)}", f"directory = {json.dumps(str(directory))}"]
    if isinstance(words, str):
        lines.append("shell = true")
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in habits["config"].items())]) + "\n"
