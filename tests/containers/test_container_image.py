"""The image of the Containerfile on a minimal Debian, with a real installation from pip's index, real games, and the torch of an image."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from containerbox import ROOT, configuration_of_pip, limits, podman, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@contextlib.contextmanager
def running(*args: str):
    name = podman("run", "--detach", "--network=host", *limits(), *configuration_of_pip(), *args).stdout.strip()
    try:
        yield name
    finally:
        podman("rm", "--force", "--time", "0", name, check=False)


def said(name: str) -> str:
    done = podman("logs", name)
    return done.stdout + done.stderr


def trains(name: str) -> bool:
    """Whether two games train."""
    done = podman("exec", name, "extralifectl", "status", "--json", check=False)
    try:
        programs = json.loads(done.stdout).get("programs", [])
    except ValueError:
        return False
    return sum(bool(each["steps"] and each["worker_phase"] == "training") for each in programs) >= 2


def test_from_nothing_to_training_and_again_and_what_a_stop_loses(image, tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    with running(f"--volume={volume}:/workspace", image) as name:
        until(lambda: trains(name), 900, "two games that train", lambda: said(name))
        time.sleep(20)  # the games get on
        podman("stop", "--time", "10", name)
        assert podman("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
        podman("start", name)
        until(lambda: trains(name), 900, "two games that train", lambda: said(name))
        resumed = [line for line in said(name).splitlines() if "resumed at step" in line]
        print(*resumed, sep="\n")
        assert len(resumed) >= 2
        assert all(" 0 steps lost" in line for line in resumed)


def bootstrap(clone: Path, python: str, wanted: str, path: str = "") -> str:
    """Run deploy/bootstrap until it says what is wanted, or ends. What it said."""
    environ = {**os.environ, "PYTHON": python, "REUSE_TORCH": "yes", "PATH": path + os.environ["PATH"]}
    lines = []
    with subprocess.Popen(
        [clone / "deploy/bootstrap"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if wanted in line:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return "".join(lines)


@pytest.fixture
def clone(tmp_path):
    made = tmp_path / "clone"
    for each in ("pyproject.toml", "README.md", "deploy", "tests/requirements.lock", "tests/requirements-systemd.lock"):
        (made / each).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / each).is_dir():
            shutil.copytree(ROOT / each, made / each)
        else:
            shutil.copy(ROOT / each, made / each)
    for package in ("supervisor", "workers"):
        shutil.copytree(ROOT / package, made / package, ignore=shutil.ignore_patterns("__pycache__"))
    return made


def test_the_torch_of_the_image_is_used_and_none_is_downloaded(clone):
    said = bootstrap(clone, sys.executable, "bootstrap: ready")
    assert f"bootstrap: uses the torch {torch_version()} of {sys.executable}\n" in said, said
    log = (clone / ".venv/bootstrap.log").read_text()
    assert "Collecting torch" not in log
    assert not list((clone / ".venv").glob("lib/python3*/site-packages/torch"))


def torch_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("torch")


@pytest.mark.parametrize(
    ("version", "gpu", "why"),
    [
        ("2.1.0", False, "its version is 2.1.0, and <3,>=2.4 is needed"),
        ("2.6.0", True, "torch 2.6.0 cannot use the GPU of this machine"),
    ],
)
def test_a_torch_that_does_not_fit_is_named_and_another_installed(clone, tmp_path, version, gpu, why):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "image"], check=True)
    [site] = (tmp_path / "image").glob("lib/python3*/site-packages")
    (site / f"torch-{version}.dist-info").mkdir()
    (site / f"torch-{version}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    if gpu:
        (tools / "nvidia-smi").write_text("#!/bin/sh\n")
        (tools / "nvidia-smi").chmod(0o755)
    wanted = "torch==2.13.0 with the CUDA of this driver" if gpu else "torch==2.13.0"
    said = bootstrap(clone, f"{tmp_path}/image/bin/python", wanted, f"{tools}:")
    assert f"{tmp_path}/image/bin/python, and installs another beside it: {why}\n" in said, said
    assert wanted in said
