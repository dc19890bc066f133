"""The lock fits the project, and the first command says what is missing before it does anything."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


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
                *PROJECT["optional-dependencies"]["logind"],
                "setuptools>=77",
            ],
        ),
        ("requirements-systemd.lock", PROJECT["optional-dependencies"]["systemd"]),
        ("requirements-browser.lock", PROJECT["optional-dependencies"]["browser"]),
    ],
)
def test_what_the_project_asks_for_is_locked_within_its_range(lock, requirements):
    locked = pins(lock)
    assert requirements
    for each in map(Requirement, requirements):
        (pin,) = locked[canonicalize_name(each.name)]
        assert pin.operator == "=="
        assert each.specifier.contains(pin.version), f"{each} does not allow {pin.version}"


def test_the_lock_is_exact_and_names_no_build_of_torch():
    locked = pins("requirements.lock")
    assert len(locked) > 20
    for name, specifier in locked.items():
        (pin,) = specifier
        assert pin.operator == "==", name
        assert "+" not in pin.version, f"{name}: a local label fits one kind of machine only"


def test_a_wheel_can_be_built_and_has_every_file_of_deploy_and_units():
    patterns = [pattern for each in PYPROJECT["tool"]["setuptools"]["data-files"].values() for pattern in each]
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    assert [path for path in found if not path.is_file()] == [], "setuptools refuses a directory"
    there = {path for folder in ("deploy", "units") for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert [path for path in there - found if path.suffix != ".pyc"] == []


@pytest.fixture
def clone(tmp_path):
    """As much of a fresh clone as deploy/bootstrap looks at before it installs anything."""
    for file in (
        "deploy/bootstrap",
        "deploy/system-packages",
        "tests/requirements.lock",
        "tests/requirements-systemd.lock",
        "pyproject.toml",
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


@pytest.fixture(scope="module")
def no_packages(tmp_path_factory):
    """A PATH with every command of this machine, except those that could install something."""
    where = tmp_path_factory.mktemp("bin")
    for directory in os.environ["PATH"].split(":"):
        for command in Path(directory).glob("*"):
            if command.name not in {"apt-get", "sudo"} and not (where / command.name).is_symlink():
                (where / command.name).symlink_to(command)
    return str(where)


def bootstrap(clone, python, path):
    env = {**os.environ, "PYTHON": str(python), "PATH": path}
    return subprocess.run([clone / "deploy/bootstrap"], env=env, capture_output=True, text=True, check=False, timeout=60)


def fake_python(clone, script):
    fake = clone / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    return fake


def test_an_old_python_is_refused_with_what_to_install(clone, no_packages):
    old = 'case "$2" in *version_info*) exit 1;; esac; [ "$1" = -V ] && echo Python 3.9.2; exit 0'
    done = bootstrap(clone, fake_python(clone, old), no_packages)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert "apt-get install" in done.stderr
    assert not (clone / ".venv").exists()


def test_a_python_without_venv_is_refused_with_what_to_install_where_nothing_can_be_installed(clone, no_packages):
    script = 'case "$2" in *ensurepip*) exit 1;; esac; [ "$1" = -V ] && echo Python 3.12.1; exit 0'
    done = bootstrap(clone, fake_python(clone, script), no_packages)
    assert done.returncode == 1
    assert done.stderr == (
        "system-packages: python3-venv is missing and could not be installed here. Install it as root "
        "(apt-get install python3-venv)\n"
        "bootstrap: nothing was installed; the lines above name the missing packages\n"
    )
    assert not (clone / ".venv").exists()


@pytest.fixture
def poor(tmp_path, no_packages):
    """A PATH of a machine that lacks a compiler and more, whose apt-get finds no package."""
    where = tmp_path / "bin"
    where.mkdir()
    for command in Path(no_packages).iterdir():
        if command.name not in {"gcc", "g++", "pkg-config", "shellcheck", "systemd-notify"}:
            (where / command.name).symlink_to(command)
    (where / "apt-get").write_text('#!/bin/sh\necho "$@" >>"$0.log"\necho "E: Unable to locate package" >&2\nexit 100\n')
    (where / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n')
    for name in ("apt-get", "sudo"):
        (where / name).chmod(0o755)
    return where


def system_packages(who, path, **more):
    env = {**os.environ, "PATH": str(path), "PYTHON": sys.executable, **more}
    command = [ROOT / "deploy/system-packages", who]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_packages_that_cannot_be_installed_are_a_line_each_and_stop_nothing(poor):
    done = system_packages("service", poor)
    assert done.returncode == 0, done.stderr
    left_out = [line for line in done.stderr.splitlines() if line.startswith("system-packages: left out: ")]
    assert [line for line in left_out if "apt-get install gcc libc6-dev)" in line], done.stderr
    assert [line for line in left_out if line.endswith("(to have it: apt-get install pkg-config)")]
    assert "update" in (poor / "apt-get.log").read_text(), "fresh package lists are tried before it gives up"
    assert system_packages("run", poor).stderr == "", "a compiler is not needed to train"


def test_without_a_right_to_install_nothing_is_tried(poor):
    (poor / "apt-get").unlink()
    done = system_packages("test", poor)
    assert done.returncode == 0
    assert "left out: the check of the shell scripts (to have it: apt-get install shellcheck)" in done.stderr
    assert done.stdout == ""


def test_no_two_files_of_tests_have_the_same_name():
    """pytest imports them by their bare names: of two, it refuses the second, and with it the whole run."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_tests_run_refuses_what_it_does_not_know():
    done = subprocess.run([ROOT / "tests" / "run", "fast"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "tests/run: fast is not one of lint, unit, e2e, all, slow, faults, slurm, containers, lab\n"


HANGING = """
import subprocess, time
from concurrent.futures import ThreadPoolExecutor
import pytest

@pytest.mark.timeout(2)
def test_child():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(subprocess.run, ["sleep", "1000"], check=False).result()

@pytest.mark.timeout(1)
def test_thread():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 1000).result()
"""


FORKING = """
import os, pytest, signal, sys
pytest.main(["--collect-only", *sys.argv[1:]])
if not os.fork():
    signal.alarm(20)
    os._exit(pytest.main(sys.argv[1:]))
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run_as_here(file, *command, **environment):
    return subprocess.run(
        [sys.executable, *command, "-p", "conftest", "-c", ROOT / "pyproject.toml", file], cwd=ROOT, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), **environment}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_child_or_a_thread_that_hangs_ends_with_its_test(tmp_path):
    """The exception of a limit waits for the threads of a pool: without a limit of its own each of these would wait for ever."""
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGING)
    ended = run_as_here(file, "-m", "pytest", EXTRALIFE_TEST_PATIENCE="0.02")
    assert ended.returncode == 1
    assert ended.stdout.endswith("F"), "the child is killed after half of the limit, and the test fails"
    assert "most recent call first" in ended.stderr, "the process ends with the stacks of all threads"


def test_mutmut_forks_a_process_that_has_collected_tests(tmp_path):
    file = tmp_path / "test_empty.py"
    file.write_text("def test(): pass")
    assert run_as_here(file, "-c", FORKING, MUTANT_UNDER_TEST="stats").returncode == 0
