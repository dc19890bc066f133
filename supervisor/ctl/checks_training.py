"""Checks of `doctor` on the training environment: the packages, whether torch works with the GPU's driver, and the games."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from supervisor.ctl.checks import Finding, Installation, probed
from supervisor.ctl.checks_gpu import Driver, driver

_PROBE_S: Final = 120.0
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
def version(name):
    return {"version": __import__(name).__version__}
note("torch", torch_is)
for name in ("envpool", "numpy"):
    note(name, lambda: version(name))
for name in sys.argv[1:]:
    note("game " + name, lambda: game(name))
print(json.dumps(found))
"""


def packages_and_games(installation: Installation) -> Iterator[Finding]:
    """The packages can be imported, torch works with the driver, and envpool creates each configured game."""
    games = sorted({spec.game for spec in installation.settings.programs if spec.builtin})
    if not games:
        return
    found = probe(games)
    if found is None:
        do = f"{sys.executable} -P -c 'import torch, envpool' says why; deploy/bootstrap or deploy/install.sh repairs it"
        yield Finding("packages", "bad", "torch and envpool cannot be loaded: the test process died or did not answer", do)
        return
    versions = "".join(f", {name} {found[name]['version']}" for name in ("torch", "envpool", "numpy") if found.get(name))
    yield Finding("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.prefix}{versions}")
    yield from _torch(found, driver(installation))
    for game in games:
        wrong = found.get(f"game {game}_error")
        if wrong:
            do = "check the name; deploy/bootstrap mends a broken envpool (its package has the ROMs)"
            yield Finding("games", "bad", f"{game} cannot be played: {wrong}", do)
    played = [game for game in games if f"game {game}" in found]
    if played:
        yield Finding("games", "ok", f"{', '.join(played)} can be played")


def probe(games: list[str], timeout_s: float = _PROBE_S) -> dict[str, Any] | None:
    """Versions and errors of the packages and games; None if the process crashes or hangs."""
    found: dict[str, Any] | None = probed(_PROBE, *games, timeout_s=timeout_s)
    return found


def _torch(found: dict[str, Any], gpus: Driver) -> Iterator[Finding]:
    torch = found.get("torch")
    if torch is None:
        wrong = found.get("torch_error", "no error message")
        yield Finding("torch", "bad", f"cannot be loaded: {wrong}", "deploy/bootstrap or deploy/install.sh repairs it")
    elif gpus.error:
        yield Finding("gpu", "bad", gpus.error, gpus.do)
    elif not gpus.names:
        yield Finding("gpu", "ok", f"none; torch {torch['version']} trains on the CPU")
    else:
        yield _fits(torch, gpus)


def _fits(torch: dict[str, Any], gpus: Driver) -> Finding:
    """Whether this torch can use these GPUs: it is a CUDA build, and the driver supports its CUDA version."""
    named, build = gpus.names[0], f"torch {torch['version']} (CUDA {torch['cuda']})"
    if torch["cuda"] is None:
        do = "deploy/bootstrap brings the CUDA build where there is a GPU"
        return Finding("gpu", "bad", f"{named} is not used: torch {torch['version']} is a build for CPU", do)
    if torch["available"]:
        return Finding("gpu", "ok", f"{', '.join(gpus.names)}; torch {torch['version']}, CUDA {torch['cuda']}")
    wants = tuple(int(word) for word in str(torch["cuda"]).split(".")[:2] if word.isdigit())
    if gpus.cuda is not None and wants and wants[0] > gpus.cuda[0]:
        served = ".".join(map(str, gpus.cuda))
        do = f"a newer driver (for CUDA {torch['cuda']}), or a torch that was built for CUDA {served} or older"
        return Finding(
            "gpu", "bad", f"{named} is not used: {build} is too new for its driver, which serves CUDA {served}", do
        )
    do = "is CUDA_VISIBLE_DEVICES empty, or /dev/nvidia-uvm missing (nvidia-modprobe -u -c=0)? else a newer driver"
    return Finding("gpu", "bad", f"{named} is not used: {build} does not work with the driver", do)
