"""Real containers of podman, with `deploy/container/entrypoint` as their first process and a volume that outlives them.

Their image is this machine's own file system, below a layer of their own (`podman run --rootfs /:O`), so no image is downloaded
and no package is installed: the entrypoint takes those of this interpreter (EXTRALIFE_PACKAGES). Like Docker, podman gives them
a seccomp profile, 64 MB of /dev/shm, a few capabilities, and namespaces for processes, mounts, names and the network.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools import PATIENCE, ROOT

ENTRYPOINT = f"{ROOT}/deploy/container/entrypoint"
IMAGE = "localhost/extralife-tests"
VOLUME = "extralife-tests-volume"
PACKAGES = sysconfig.get_path("purelib")
COUNTER = f"""\
[daemon]
state_dir = "/workspace/extralife/state"
[load]
mode = "fixed"
[program.one]
command = ["{sys.executable}", "{ROOT}/tests/e2e/programs/trainer.py", "none"]
"""


def podman(*args: str, timeout_s: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Raises AssertionError with podman's own words."""
    done = subprocess.run(
        ["podman", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s * PATIENCE,
        cwd=tempfile.gettempdir(),  # an OOM kill leaves a file there
    )
    assert not check or done.returncode == 0, f"podman {' '.join(args)}: {done.stderr}"
    return done


def limits() -> list[str]:
    """podman's own limits may be higher than this process may set."""
    found = []
    for name, number, most in (("nofile", resource.RLIMIT_NOFILE, 4096), ("nproc", resource.RLIMIT_NPROC, 8192)):
        hard = resource.getrlimit(number)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        found += ["--ulimit", f"{name}={value}:{value}"]
    return found


def options(*more: str) -> list[str]:
    network = () if "--network" in more else ("--network", "none")
    return [*limits(), *network, "--volume", f"{ROOT}:{ROOT}:ro", *more]


def configuration_of_pip() -> list[str]:
    """podman's options that give a container this machine's pip configuration, with the files that it names."""
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT")) or "proxy" in name.lower()
    }
    files = [
        Path(each) for each in ("/etc/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")) if each and Path(each).is_file()
    ]
    words = " ".join([*variables.values(), *(each.read_text() for each in files)]).replace("=", " ").split()
    named = {
        Path(word.removeprefix("file://").removesuffix("/simple").removesuffix("/simple/")) for word in words if "/" in word
    }
    paths = {*files, *(path for path in named if path.is_absolute() and path.exists())}
    mounts = [f"--volume={path}:{path}:ro" for path in sorted(paths)]
    return [*mounts, *(f"--env={name}" for name in variables)]


@functools.cache
def unfit() -> str:
    """Why no container can run here; empty: one can."""
    if os.geteuid() != 0:
        return "only root makes these containers"
    if shutil.which("podman") is None or shutil.which("runc") is None:
        return "podman is not installed (apt-get install podman runc)"
    tried = podman("run", "--rm", *options(), "--rootfs", "/:O", "true", check=False)
    return "" if tried.returncode == 0 else f"podman runs no container here: {tried.stderr.strip().splitlines()[-1]}"


def until(look: Callable[[], Any], timeout_s: float, what: str, more: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + timeout_s * PATIENCE
    while not (answer := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what}\n{more()}"
        time.sleep(0.1)
    return answer


class Box:
    """One volume, and at most one container on it at a time."""

    def __init__(self, volume: Path, config: str = COUNTER) -> None:
        self.volume, self.home = volume, volume / "extralife"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "extralife.toml").write_text(config)
        self.names: list[str] = []

    @property
    def name(self) -> str:
        return self.names[-1]

    def run(
        self, *more: str, command: tuple[str, ...] = (ENTRYPOINT,), target: str = "/workspace", volume_mode: str = "rw"
    ) -> str:
        """Start a new container. Its name."""
        self.names.append(f"xl-{uuid.uuid4().hex[:12]}")
        podman(
            "run", "--detach", "--name", self.name, "--volume", f"{self.volume}:{target}:{volume_mode}",
            *options("--env", f"EXTRALIFE_PACKAGES={PACKAGES}", "--env", f"PYTHON={sys.executable}", *more), "--rootfs", "/:O", *command,
        )  # fmt: skip
        return self.name

    def start(self) -> None:
        """The same container again."""
        podman("start", self.name)

    def kill(self) -> None:
        """A SIGKILL of everything, as by a host that takes the box away."""
        podman("kill", "--signal", "KILL", self.name)
        self.ended()

    def stop(self, grace_s: int) -> float:
        """`podman stop`: SIGTERM, and SIGKILL after so many seconds. How long it took."""
        began = time.monotonic()
        podman("stop", "--time", str(grace_s), self.name)
        return time.monotonic() - began

    def ended(self) -> int:
        """Wait for the container's end; its exit status."""
        return int(podman("wait", self.name).stdout)

    def status_of_end(self) -> int:
        return int(podman("inspect", "--format", "{{.State.ExitCode}}", self.name).stdout)

    def exec(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return podman("exec", self.name, *command, check=check)

    def said(self) -> str:
        done = podman("logs", self.name, check=False)
        return done.stdout + done.stderr

    def ctl(self, *words: str, check: bool = True) -> str:
        return self.exec("/workspace/extralife/extralifectl", *words, check=check).stdout

    def program(self, name: str = "one") -> dict[str, Any]:
        """The program's entry in `status`; empty while no daemon answers."""
        done = self.exec("/workspace/extralife/extralifectl", "status", "--json", check=False)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return {}
        return next((each for each in found.get("programs", []) if each["name"] == name and found["daemon"]["pid"]), {})

    def trains(self, timeout_s: float = 60) -> dict[str, Any]:
        """Wait until the program makes progress under a live daemon."""
        return until(
            lambda: (found := self.program()).get("steps") and found["phase"] == "RUNNING" and found, timeout_s,
            "training", self.said,
        )  # fmt: skip

    def acknowledged(self) -> int:
        """The newest step that the program has stored and reported; 0: none."""
        counters = list(self.home.glob("state/programs/one/**/counter.json"))
        return max((json.loads(each.read_text())["step"] for each in counters), default=0)

    def close(self) -> None:
        for name in self.names:
            podman("rm", "--force", "--time", "0", name, check=False)
