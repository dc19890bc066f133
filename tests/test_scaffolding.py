"""The lock fits the project, and the first command says what is missing before it does anything."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(name):
    lines = [line.split("#")[0].strip() for line in (ROOT / "tests" / name).read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {canonicalize_name(each.name): each.specifier for each in found}


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        (
            "requirements.lock",
            [
                *PROJECT["dependencies"],
                *PROJECT["optional-dependencies"]["test"],
                *PROJECT["optional-dependencies"]["alerts"],
                "setuptools>=77",
            ],
        ),
        ("requirements-systemd.lock", PROJECT["optional-dependencies"]["systemd"]),
    ],
)
def test_what_the_project_asks_for_is_locked_within_its_range(lock, requirements):
    locked = pins(lock)
    for each in map(Requirement, requirements):
        (pin,) = locked[canonicalize_name(each.name)]
        assert pin.operator == "=="
        assert each.specifier.contains(pin.version), f"{each} does not allow {pin.version}"


def test_the_lock_is_exact_and_names_no_build_of_torch():
    for name, specifier in pins("requirements.lock").items():
        (pin,) = specifier
        assert pin.operator == "==", name
        assert "+" not in pin.version, f"{name}: a local label fits one kind of machine only"


@pytest.fixture
def clone(tmp_path):
    """As much of a fresh clone as deploy/bootstrap looks at before it installs anything."""
    for file in ("deploy/bootstrap", "tests/requirements.lock", "tests/requirements-systemd.lock", "pyproject.toml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def bootstrap(clone, python):
    env = {**os.environ, "PYTHON": str(python)}
    return subprocess.run([clone / "deploy/bootstrap"], env=env, capture_output=True, text=True, check=False, timeout=60)


def fake_python(clone, script):
    fake = clone / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    return fake


def test_an_old_python_is_refused_with_what_to_install(clone):
    done = bootstrap(clone, fake_python(clone, '[ "$1" = -V ] && echo Python 3.9.2; [ "$1" = -V ]'))
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert "apt-get install" in done.stderr
    assert not (clone / ".venv").exists()


def test_a_python_without_venv_is_refused_with_what_to_install(clone):
    script = 'case "$2" in *ensurepip*) exit 1;; esac; [ "$1" = -V ] && echo Python 3.12.1; exit 0'
    done = bootstrap(clone, fake_python(clone, script))
    assert done.returncode == 1
    assert done.stderr == (
        "bootstrap: Python 3.12.1 lacks its venv module. Install it (apt-get install python3-venv) and run this again.\n"
    )
    assert not (clone / ".venv").exists()


def test_tests_run_refuses_what_it_does_not_know():
    done = subprocess.run([ROOT / "tests" / "run", "fast"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "tests/run: fast is not one of lint, unit, e2e, all, slow, faults, lab\n"
