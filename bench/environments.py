"""Separate Python environments for the packages that extralife is compared with, under bench/.envs (ignored by git).

`supervisor` is both a distribution on PyPI and our own package, so the two never share an environment.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

ENVS = Path(__file__).resolve().parent / ".envs"
STOCK = ("supervisor==4.3.0", "setuptools<81")  # it imports pkg_resources, which later setuptools do not have


class NotInstallable(Exception):
    """An environment could not be made; the message is one sentence with the reason."""


def stock_supervisor() -> Path:
    """The directory with `supervisord` and `supervisorctl` of PyPI's supervisor 4.3.0; made on first use."""
    return environment("supervisor", *STOCK)


def environment(name: str, *requirements: str, own: bool = False) -> Path:
    """The bin directory of an environment with these requirements. Raises NotInstallable.

    The environment is made once, by one process at a time. `own`: it also contains this interpreter's packages, so that no
    second torch is installed.
    """
    place, done = ENVS / name, ENVS / name / "complete"
    wanted = "\n".join(requirements)
    ENVS.mkdir(exist_ok=True)
    with (ENVS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text() == wanted:
            return place / "bin"
        _run([sys.executable, "-m", "venv", "--clear", str(place)])
        if own:
            (site,) = place.glob("lib/python3*/site-packages")
            (site / "own.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        # Frameworks have far more files than a test imports, and Python compiles those that it imports.
        _run([*pip, *(["--no-compile"] if own else []), *requirements])
        done.write_text(wanted)
    return place / "bin"


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip() or "no message").splitlines()[-1]
        raise NotInstallable(f"{' '.join(command[-3:])}: {last}")
