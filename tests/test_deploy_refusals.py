"""deploy/ on a machine that it is not made for: one sentence each, and nothing changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str, *args: str, path: str = "") -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, PATH=path + os.environ["PATH"])
    return subprocess.run([f"{ROOT}/deploy/{name}", *args], capture_output=True, text=True, timeout=60, check=False, env=env)


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for root first")
@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="this machine was booted with systemd")
def test_without_systemd_it_says_how_to_run_without() -> None:
    done = script("install.sh", "--prefix", "/nowhere/extralife")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("install: this machine was not booted with systemd. Without it: deploy/bootstrap, then ")
    assert "(docs/box.md)" in done.stderr
    assert not Path("/nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_root_it_says_so() -> None:
    done = script("install.sh")
    assert (done.returncode, "needs root" in done.stderr) == (1, True)


def test_an_upgrade_of_nothing_says_so(tmp_path: Path) -> None:
    done = script("upgrade.sh", "--dry-run", "--prefix", f"{tmp_path}/none")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
