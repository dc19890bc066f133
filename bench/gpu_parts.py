"""One part of bench/gpu.py, in a separate process: gpu_parts.py DEVICE SIZE SECONDS SCRATCH PART [WORDS]; prints JSON.

figures: the measurements; absent: missing features of this machine, a sentence each; failed: an expectation that is not met.
With DEVICE `cpu` the same code runs at a small size. Only parts that need CUDA or NVML are absent there. The out-of-memory
error then concerns the host's memory, under a limit of address space.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20
NO_NVML = "NVML: there is no NVIDIA driver here"
NO_CUDA = "CUDA: there is no GPU here"
_RATIO, _EPOCHS, _ROLLOUT = 8, 4, 128
_HOG_LEAVES_MIB = 3_000  # of a GPU's memory: enough for a worker and a modest batch
_TINY_ADDRESS_SPACE = 5 * 2**30  # of a worker on the CPU: torch alone maps 2 to 3 GiB
_HOG = """
import sys, torch
leave = int(sys.argv[1]) * 2**20
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(free - leave, 0), dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0] >> 20, flush=True)
sys.stdin.read()
"""


class Absent(Exception):
    """This machine lacks a feature that the part needs; the message is one sentence that names it."""


class Wrong(Exception):
    """An expectation is not met; the message is one sentence that describes the actual result."""


class PartOptions:
    """The parsed command line, and the time that is left."""

    def __init__(self, words: list[str]) -> None:
        self.device, self.size, seconds, scratch, self.part, *self.words = words
        self.scratch = Path(scratch)
        self.until_s = time.monotonic() + float(seconds)

    @property
    def tiny(self) -> bool:
        return self.size == "tiny"

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"

    def left_s(self) -> float:
        return self.until_s - time.monotonic()

    def wait(self, look: Callable[[], Any], what: str, keep_s: float = 8.0) -> Any:
        """The first true result of `look`. Raises Wrong when only the time for an orderly end (`keep_s`) is left."""
        while not (found := look()):
            if self.left_s() < keep_s:
                raise Wrong(f"timed out waiting for {what}")
            time.sleep(0.1)  # the change is in another process, so it can only be polled
        return found


# --- speed -------------------------------------------------------------------------------------------------------------


def speed(options: PartOptions) -> dict[str, Any]:
    """Environment steps a second of a real worker: `speed ALGO ENVS DTYPE [FLAG ...]`."""
    import throughput

    algo, envs, dtype, *more = options.words
    count, block = int(envs), int(envs) * (1 if algo == "dqn" else _ROLLOUT)
    flags = {
        "dqn": [
            f"--batch-size={_batch(count)}",
            f"--replay-ratio={_RATIO}",
            "--replay-size=20000",
            "--learning-starts=2048",
        ],
        "ppo": [f"--n-steps={_ROLLOUT}", f"--batch-size={_batch(count)}", f"--epochs={_EPOCHS}"],
        "pqn": [f"--n-steps={_ROLLOUT}", f"--batch-size={_batch(count)}", f"--epochs={_EPOCHS}"],
    }[algo]
    game, threads = ("Catch", 1) if options.tiny else ("Pong", os.cpu_count() or 1)
    settle_s = 0.5 if options.tiny else 2.0
    # Most of the time is for the start: imports, environments, and the first updates, which choose their algorithms.
    seconds = 0.5 if options.tiny else max(3.0, min(options.left_s() / 4, 10.0))
    words = [f"--num-envs={count}", f"--dtype={dtype}", f"--device={options.device}", *flags, *more]
    found = throughput.ours(algo, words, seconds, threads, game=game, block=block, settle_s=settle_s)
    return {"steps/s": found["steps_per_s"], "steps/CPU s": found["steps_per_cpu_s"]}


def on_cuda(options: PartOptions) -> dict[str, Any]:
    """The same for what only CUDA has: fp16 with scaled losses, and launches one by one in place of CUDA graphs."""
    if not options.cuda:
        raise Absent(NO_CUDA)
    return speed(options)


def sb3(options: PartOptions) -> dict[str, Any]:
    """Stable-Baselines3 with the same load: `sb3 ALGO ENVS`. Its networks use fp32."""
    import throughput
    from environments import ENVS

    algo, envs = options.words
    if not (ENVS / "peers" / "complete").exists():
        raise Absent("Stable-Baselines3 is not installed: bench/throughput.py makes its environment at first use")
    settle_s, seconds = (0.5, 0.5) if options.tiny else (2.0, max(3.0, min(options.left_s() / 3, 10.0)))
    command = [ENVS / "peers" / "bin" / "python", "-W", "ignore", ROOT / "bench" / "peer_sb3.py", algo, envs]
    command += [_batch(int(envs)), _RATIO if algo == "dqn" else _EPOCHS, settle_s, seconds]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise (Absent if "not installed" in last else Wrong)(f"Stable-Baselines3: {last}")  # it needs OpenCV
    result: throughput.Measured = json.loads(done.stdout.strip().splitlines()[-1])
    return {"steps/s": result["steps_per_s"], "steps/CPU s": result["steps_per_cpu_s"]}


def _batch(envs: int) -> int:
    """The batch size. For SB3's dqn it must divide the transitions due per vector step, 8 per environment."""
    return min(_RATIO * envs, 2048)


# --- a real daemon -----------------------------------------------------------------------------------------------------


class Daemon:
    """A real supervisord with one program, Pong, on this device. A later one in the same scratch directory goes on."""

    def __init__(
        self, options: PartOptions, tables: str, *, address_space: int = 0, slots: tuple[int, ...] = (1,),
        env: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`slots`: of each level. A higher level has twice the environments of the one below it."""
        self.state = options.scratch / "state"
        # Sockets need a short path. The daemon's processes are found by the scratch directory on their command lines.
        self.runtime = tempfile.TemporaryDirectory(prefix="xlb-", ignore_cleanup_errors=True)
        self.config = options.scratch / "x.toml"
        envs, more = (4, "batch_size = 64\nthreads = 1\n") if options.tiny else (64, "batch_size = 512\n")
        names = [f"levels.l{place}" for place in range(len(slots))] if len(slots) > 1 else ["level"]
        levels = "".join(
            f"[{name}]\nslots = {count}\nnum_envs = {envs << place}\n{more}"
            for place, (name, count) in enumerate(zip(names, slots, strict=True))
        )
        self.config.write_text(
            f'[daemon]\nstate_dir = "{self.state}"\nruntime_dir = "{self.runtime.name}"\nsample_period_s = 0.5\n'
            f"{levels}[training]\nlearning_starts = 1_000\nreplay_size = 140_000\n"
            f'device = "{options.device}"\n{tables}'
        )
        command = [sys.executable, "-m", "supervisor", "-c", str(self.config)]
        self.log = (options.scratch / "daemon.log").open("wb")
        limit = (address_space, address_space)
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, **(env or {})},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, limit)) if address_space else None,  # noqa: PLW1509
        )  # fmt: skip

    def ctl(self, *words: str) -> str:
        command = [sys.executable, "-m", "supervisor.ctl", "-c", str(self.config), *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.ctl("status", "--json"))
        except json.JSONDecodeError:  # the daemon does not serve yet
            found = {}
        return found if found.get("daemon", {}).get("pid") else {}

    def programs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status().get("programs", [])
        return found

    def program(self) -> dict[str, Any]:
        return next(iter(self.programs()), {})

    def trains(self) -> dict[str, Any] | None:
        """The first program's status, once all of them make updates; else None."""
        found = self.programs()
        ready = [each for each in found if each["phase"] == "RUNNING" and each["updates"]]
        return ready[0] if ready and len(ready) == len(found) else None

    def facts(self, kind: str) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/journal.sqlite?mode=ro", uri=True)) as journal:
            rows = journal.execute("SELECT body FROM fact WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
        return [json.loads(body) for (body,) in rows]

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.runtime.cleanup()


@contextlib.contextmanager
def daemon(options: PartOptions, tables: str, **more: Any) -> Iterator[Daemon]:
    made = Daemon(options, tables, **more)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def hog(leave_mib: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the GPU's memory, except `leave_mib`."""
    command = [sys.executable, "-c", _HOG, str(leave_mib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        if not held.stdout.readline():
            raise Wrong("another process could not take the GPU's memory")
        try:
            yield held
        finally:
            held.kill()


def oom(options: PartOptions) -> dict[str, Any]:
    """A batch that is too large: the worker dies of a real out-of-memory error, and gets smaller batches until one fits."""
    # The first update comes after batch / ratio environment steps: with a high ratio it comes soon.
    batch, ratio = (16_384, 256.0) if options.tiny else (65_536, 64.0)
    network = "small" if options.tiny else "auto"
    tables = f'replay_ratio = {ratio}\nnetwork = "{network}"\n[gate]\nmin_free_mb = 0\n'
    tables += f"[program.Pong]\nbatch_size = {batch}\n"
    scarce = hog(_HOG_LEAVES_MIB) if options.cuda else contextlib.nullcontext()
    began_s = time.monotonic()
    with scarce, daemon(options, tables, address_space=0 if options.cuda else _TINY_ADDRESS_SPACE) as box:
        found = options.wait(lambda: box.trains() if box.status() and box.facts("BatchLowered") else None, _story(box))
        causes = [fact["cause"] for fact in box.facts("Exited")]
        lowered = [fact["batch_size"] for fact in box.facts("BatchLowered")]
    if set(causes) != {"cuda_out_of_memory" if options.cuda else "out_of_memory"}:
        raise Wrong(f"the exits were recorded as {', '.join(causes)}, not as out of memory")
    return {"batch": batch, "lowered to": lowered[-1], "attempts": found["attempt"],
            "trains again after s": time.monotonic() - began_s}  # fmt: skip


def _story(box: Daemon) -> str:
    return f"an out-of-memory error that a smaller batch answers (its log is {box.state}/programs/Pong/stdout.log)"


def gate(options: PartOptions) -> dict[str, Any]:
    """Another process holds the memory: the program waits, and starts once it is free."""
    if not options.cuda:
        raise Absent(NO_NVML)
    tables = "[gate]\nmin_free_mb = 8000\npoll_s = 1.0\n[program.Pong]\n"
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(hog(1_000))
        box = stack.enter_context(daemon(options, tables))
        gated = options.wait(lambda: (p := box.program()).get("phase") == "GATED" and p, "the program to wait for memory")
        held.kill()
        freed_s = time.monotonic()
        options.wait(lambda: box.program().get("phase") in {"STARTING", "RUNNING"}, "it to start")
        started_s = time.monotonic() - freed_s
        options.wait(box.trains, "it to train")
    return {"it said": gated["why"], "started after s": started_s}


def hidden(options: PartOptions) -> dict[str, Any]:
    """A box that comes back without its GPU: the program that ran on it waits, and goes on when the GPU is there again."""
    if not options.cuda:
        raise Absent(NO_CUDA)
    tables = '[program.Pong]\ndevice = "auto"\n'
    with daemon(options, tables) as box:
        options.wait(box.trains, "it to train")
        options.wait(lambda: box.facts("GpuUsed"), "the daemon to see its GPU")
    began_s = time.monotonic()
    with daemon(options, tables, env={"CUDA_VISIBLE_DEVICES": ""}) as box:
        held = options.wait(lambda: (p := box.program()).get("phase") == "GATED" and p, "it to wait for its GPU")
        held_s = time.monotonic() - began_s
        time.sleep(3.0)  # nothing may start meanwhile
        if box.program()["phase"] != "GATED":
            raise Wrong("it did not go on waiting")
    with daemon(options, tables) as box:
        options.wait(box.trains, "it to train again")
    return {"it said": held["why"], "waits after s": held_s}


def jobs(options: PartOptions) -> dict[str, Any]:
    """`jobs N`: steps a second of all together, and how busy the GPU is."""
    count = int(options.words[0])
    tables = "".join(f'[program.job{number}]\ngame = "Pong"\nseed = {number}\n' for number in range(count))
    with daemon(options, tables, slots=(count,)) as box:
        options.wait(box.trains, "all of them to train")
        began_s, before = time.monotonic(), _steps(box)
        time.sleep(2.0 if options.tiny else max(3.0, min(15.0, options.left_s() - 15.0)))
        figures: dict[str, Any] = {"steps/s": (_steps(box) - before) / (time.monotonic() - began_s)}
        gpus = (box.status().get("daemon", {}).get("gpu") or {}).get("gpus") or []
    busy = [gpu["utilisation_minute"]["mean"] for gpu in gpus if gpu["utilisation_minute"]]
    return figures | ({"% busy": max(busy)} if busy else {})


def _steps(box: Daemon) -> int:
    return sum(each["steps"] or 0 for each in box.programs())


def levels(options: PartOptions) -> dict[str, Any]:
    """A change of level under load: one program saves and begins again with more environments, a second one joins it."""

    def training() -> list[dict[str, Any]]:
        return [each for each in box.programs() if each["phase"] == "RUNNING" and each["updates"]]

    with daemon(options, "[program.Pong]\n[program.Breakout]\n", slots=(1, 2)) as box:
        (before,) = options.wait(training, "one of them to train")
        began_s = time.monotonic()
        box.ctl("level", "pin", "l1")
        options.wait(lambda: len(training()) == 2, "both of them to train")
        changed_s, seen = time.monotonic() - began_s, {each["num_envs"] for each in training()}
        resumed = [fact["lost_steps"] for fact in box.facts("Resumed")]
    if seen != {2 * before["num_envs"]}:
        raise Wrong(f"they train with {seen} environments, not with twice {before['num_envs']}")
    return {"both train after s": changed_s, "lost steps": sum(steps or 0 for steps in resumed)}


def nvml(options: PartOptions) -> dict[str, Any]:
    """The driver's readings of the GPU, by the worker's activity (acting, updating and so on)."""
    if not options.cuda:
        raise Absent(NO_NVML)
    with daemon(options, "[program.Pong]\n") as box:
        options.wait(box.trains, "it to train")
        time.sleep(max(2.0, min(20.0, options.left_s() - 15.0)))  # collect readings, five a second
        gpus = (box.status().get("daemon", {}).get("gpu") or {}).get("gpus") or []
    if not gpus:
        raise Wrong("the daemon has no reading of the GPU")
    if phases := [phase for each in gpus for phase in each["by_phase"]]:
        return {each["phase"]: _reading(each) for each in phases}
    raise Absent("readings by phase: the driver does not show the ids of our processes, as in many containers")


def _reading(phase: dict[str, Any]) -> str:
    used, busy = phase["used"], phase["utilisation"]
    shown = [f"{phase['looks']} looks"]
    shown += [f"up to {used['most'] / MIB:,.0f} MiB"] if used else []
    shown += [f"{busy['mean']:.0f} % busy"] if busy else []
    return " ".join(shown)


# --- resume ------------------------------------------------------------------------------------------------------------

_TRAINER = {"dqn": {"learning_starts": 256, "replay_ratio": 2.0, "target_period": 512}, "ppo": {"n_steps": 16},
            "pqn": {"n_steps": 16}}  # fmt: skip


def resume(options: PartOptions) -> dict[str, Any]:
    """`resume ALGO`: a learner that never stopped, and one that loads its checkpoint from disk, must end bit-identical."""
    import torch

    from workers import args as args_module
    from workers import envs, precision
    from workers.algorithms import kind
    from workers.checkpoint import Checkpointer
    from workers.contract import Client

    (algo,) = options.words
    game, count, before, after = ("Catch", 8, 64, 32) if options.tiny else ("Pong", 32, 96, 64)
    made = args_module.make(
        game, algo=algo, num_envs=count, batch_size=64, threads=1, replay_size=20_000, deterministic=True,
        device=options.device, **_TRAINER[algo],
    )  # fmt: skip
    chosen = precision.choose(options.device, made.dtype)
    precision.use_deterministic(chosen.device)
    torch.set_num_threads(1)
    checkpoints, stores = options.scratch / "checkpoints", options.scratch / "stores"

    def learner(name: str) -> Any:
        return kind(algo).make(made, envs.spec_of(game, made.resolution), chosen, options.scratch / name)

    def run(one: Any, attempt: int, vector_steps: int) -> None:
        until = one.env_steps + vector_steps * count
        seeds = envs.env_seeds(made.seed, attempt, one.env_steps, count)
        one.train(envs.make(one.spec, seeds, threads=1), lambda: one.env_steps < until, lambda: None)

    whole = learner("whole")
    run(whole, 1, before)
    saver = Checkpointer(checkpoints, Client({}), {"game": game})
    saved = saver.save(whole.env_steps, *whole.snapshot(), mean_return=whole.mean_return, stall_s=0.0)
    if not (saved and saver.wait(60)) or saver.failure:
        raise Wrong(f"the checkpoint could not be saved: {saver.failure}")
    if (options.scratch / "whole").exists():  # copy its replay as of now
        shutil.copytree(options.scratch / "whole", stores)
    run(whole, 2, after)  # games cannot be saved: both learners begin new ones here

    resumed = learner("stores")
    torch.manual_seed(99)  # so that state which the checkpoint does not restore shows up
    loaded = Checkpointer(checkpoints, Client({}), {"game": game}).load_newest()
    if loaded is None:
        raise Wrong("the checkpoint could not be read back")
    resumed.restore(loaded.tensors, loaded.state)
    at_checkpoint = resumed.updates
    run(resumed, 2, after)
    if differing := _differing(whole, resumed):
        raise Wrong(f"the resumed learner has other bits than the one that went on: {', '.join(sorted(differing)[:5])}")
    return {"updates since": resumed.updates - at_checkpoint, "dtype": str(chosen.dtype).rpartition(".")[2]}


def _differing(one: Any, other: Any) -> set[str]:
    """Names of the values that differ between two learners; tensors are compared bit by bit."""
    import torch

    def bits(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
        return {
            name: t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            for name, t in tensors.items()
        }

    (ours, state), (theirs, other_state) = one.snapshot(), other.snapshot()
    mine, his = {**bits(ours), **state}, {**bits(theirs), **other_state}
    return {name for name in {*mine, *his} if mine.get(name) != his.get(name)}


# --- the process -------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[PartOptions], dict[str, Any]]] = {
    "speed": speed, "on_cuda": on_cuda, "sb3": sb3, "oom": oom, "gate": gate, "hidden": hidden, "jobs": jobs,
    "levels": levels, "nvml": nvml, "resume": resume,
}  # fmt: skip


def main() -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks end daemons and hogs
    options = PartOptions(sys.argv[1:])
    result: dict[str, Any] = {"figures": {}, "absent": [], "failed": ""}
    try:
        result["figures"] = PARTS[options.part](options)
    except Absent as error:
        result["absent"] = [str(error)]
    except Wrong as error:
        result["failed"] = str(error)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
