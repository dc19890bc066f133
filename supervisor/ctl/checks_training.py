"""Checks of `doctor` on what trains: the packages, the GPU and its driver, the games, and room for what is kept.

Packages are tried in a process of their own: they take seconds and hundreds of megabytes, and may crash or hang on a
driver that does not fit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from supervisor.core.settings import ProgramSpec
from supervisor.ctl.checks import Finding, Patient

_PROBE_S: Final = 120.0
_LEAST_FREE: Final = 0.1  # of the disk: below that file systems slow down and other things on the box fail
_CHECKPOINTS_BYTES: Final = 40 * 30 * 2**20  # the last three, one an hour for a day, the best: of some 30 MB each
_PROBE: Final = """
import json, sys
found = {}
def note(name, look):
    try:
        found[name] = look()
    except BaseException as error:
        found[name + "_error"] = f"{type(error).__name__}: {error}"
def torch_is():
    import torch
    return {"version": torch.__version__, "cuda": torch.version.cuda, "available": torch.cuda.is_available()}
def game(name):
    import envpool
    return envpool.make_gymnasium(name + ("-v0" if name == "Catch" else "-v5"), num_envs=1).reset()[0].shape[0]
note("torch", torch_is)
for name in sys.argv[1:]:
    note("game " + name, lambda: game(name))
print(json.dumps(found))
"""


def packages_and_games(who: Patient) -> Iterator[Finding]:
    """The packages can be loaded, torch fits the driver, and envpool makes each game that is configured."""
    if who.settings is None:
        return
    games = sorted({spec.game for spec in who.settings.programs if spec.builtin})
    if not games:
        return
    found = probe(games)
    if found is None:
        do = f"{sys.executable} -c 'import torch, envpool' says why; deploy/bootstrap or deploy/install.sh mends it"
        yield Finding("packages", "bad", "torch and envpool cannot be loaded: the process died or did not answer", do)
        return
    gpus, error = nvidia(who)
    yield from _torch(found, gpus, error)
    for game in games:
        wrong = found.get(f"game {game}_error")
        if wrong:
            do = "check the name; deploy/bootstrap mends a broken envpool (its package has the ROMs)"
            yield Finding("games", "bad", f"{game} cannot be played: {wrong}", do)
    played = [game for game in games if f"game {game}" in found]
    if played:
        yield Finding("games", "ok", f"{', '.join(played)} can be played")


def probe(games: list[str], timeout_s: float = _PROBE_S) -> dict[str, Any] | None:
    """What the packages say of themselves; None when they crash or hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, *games], capture_output=True, text=True, timeout=timeout_s, check=False, cwd="/"
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return found if isinstance(found, dict) else None


def _torch(found: dict[str, Any], gpus: list[str], gpu_error: str) -> Iterator[Finding]:
    torch = found.get("torch")
    if torch is None:
        wrong = found.get("torch_error", "it says nothing")
        yield Finding("torch", "bad", f"cannot be loaded: {wrong}", "deploy/bootstrap or deploy/install.sh mends it")
        return
    if gpu_error:
        do = "after a kernel update: reboot, or rebuild its module (dkms autoinstall); dmesg | grep NVRM says more"
        yield Finding("gpu", "bad", f"there are NVIDIA devices, and the driver does not answer: {gpu_error}", do)
    elif not gpus:
        yield Finding("gpu", "ok", f"none; torch {torch['version']} trains on the CPU")
    elif torch["cuda"] is None:
        do = "deploy/bootstrap brings the CUDA build where there is a GPU"
        yield Finding("gpu", "bad", f"{gpus[0]} is not used: torch {torch['version']} is a build for CPU", do)
    elif not torch["available"]:
        do = "a newer driver, or a torch for an older CUDA"
        what = f"{gpus[0]} is not used: torch {torch['version']} (CUDA {torch['cuda']}) does not get on with the driver"
        yield Finding("gpu", "bad", what, do)
    else:
        yield Finding("gpu", "ok", f"{', '.join(gpus)}; torch {torch['version']}, CUDA {torch['cuda']}")


def nvidia(who: Patient) -> tuple[list[str], str]:
    """(what GPUs there are, with their driver; what is wrong with it)."""
    there = bool(list(Path(f"{who.root}/dev").glob("nvidia[0-9]*")))
    try:
        import pynvml

        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
        count = pynvml.nvmlDeviceGetCount()
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number)) for number in range(count)]
    except ImportError:
        return [], "nvidia-ml-py is not installed" if there else ""
    except pynvml.NVMLError as error:
        return [], str(error) if there else ""
    return [f"{name} (driver {driver})" for name in names], ""


def room(who: Patient) -> Iterator[Finding]:
    """The disk has room for every program's replay and checkpoints, as far as they are not there yet."""
    if who.settings is None:
        return
    state = Path(who.settings.paths.state_dir)
    place = next((each for each in (state, *state.parents) if each.is_dir()), Path("/"))
    disk = shutil.disk_usage(place)
    there = sum(_used(Path(who.settings.paths.run_dir(spec.name))) for spec in who.settings.programs)
    needed = sum(needs_bytes(spec) for spec in who.settings.programs)
    told = f"{_gib(disk.free)} free of {_gib(disk.total)}; all that is kept comes to {_gib(needed)}, {_gib(there)} are there"
    if disk.free < needed - there:
        yield Finding("room", "bad", told, "a bigger disk, a smaller replay_size, or fewer programs")
    elif disk.free - (needed - there) < _LEAST_FREE * disk.total:
        yield Finding("room", "warn", f"{told}: less than a tenth will be free", "make room before it is full")
    else:
        yield Finding("room", "ok", told)


def needs_bytes(spec: ProgramSpec) -> int:
    """What a built-in program keeps at most, by its flags; for others it is not known and counted as nothing."""
    if not spec.builtin:
        return 0
    flags = dict(zip(spec.argv, spec.argv[1:], strict=False))
    replay = 0
    if flags.get("--algo", "dqn") in {"dqn", "auto"}:
        side = int(flags.get("--resolution", "84"))
        replay = int(flags.get("--replay-size", "1000000")) * side * side  # a byte a pixel
    return replay + _CHECKPOINTS_BYTES


def _used(directory: Path) -> int:
    used = 0
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                used += os.lstat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH118  many files
            except OSError:
                continue  # pruned meanwhile
    return used


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


ALL: Final = (packages_and_games, room)
