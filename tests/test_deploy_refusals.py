"""deploy/ on a machine that it is not made for: one sentence each, and nothing changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT

from supervisor.adapters.journal.sqlite import Journal


def script(name, *args, path=""):
    env = dict(os.environ, PATH=path + os.environ["PATH"])
    return subprocess.run([f"{ROOT}/deploy/{name}", *args], capture_output=True, text=True, timeout=60, check=False, env=env)


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for root first")
@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="this machine was booted with systemd")
def test_without_systemd_it_says_how_to_run_without():
    done = script("install.sh", "--prefix", "/nowhere/extralife")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("install: this machine was not booted with systemd. Without it: deploy/bootstrap, then ")
    assert "(docs/box.md)" in done.stderr
    assert not Path("/nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_root_it_says_so():
    done = script("install.sh")
    assert (done.returncode, "needs root" in done.stderr) == (1, True)


def test_an_upgrade_of_nothing_says_so(tmp_path):
    done = script("upgrade.sh", "--dry-run", "--prefix", f"{tmp_path}/none")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_the_trainings_of_another_box_are_not_silently_left_out(tmp_path):
    """`deploy/try --from-offsite` where ./run has a journal: of its own, or of an earlier restore."""
    clone, where = tmp_path / "a clone", tmp_path / "elsewhere"
    (clone / "deploy/container").mkdir(parents=True)
    (clone / ".venv/bin").mkdir(parents=True)
    where.mkdir()
    for each in ("try", "container/first-process.sh"):
        shutil.copy(ROOT / "deploy" / each, clone / "deploy" / each)
    for name, lines in (
        ("deploy/bootstrap", ""),
        (".venv/bin/supervisord", ""),
        (".venv/bin/extralifectl", 'echo "ctl $*"'),
    ):
        (clone / name).write_text(f"#!/bin/sh\n{lines}\n")
        (clone / name).chmod(0o755)
    (where / "password").write_text("x\n")

    def tried():
        argv = [str(clone / "deploy/try"), "--from-offsite", "copies", "--password-file", "password"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=where)

    said = tried().stdout
    assert f"--repository {where}/copies --password-file {where}/password" in said, "paths count from the caller's directory"
    (clone / "run").mkdir()
    (clone / "run/journal.sqlite").touch()
    done = tried()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("try: ./run has trainings of its own, so nothing is restored")
    (clone / "run/restored-here.toml").touch()
    done = tried()
    assert (done.returncode, done.stderr) == (0, "")
    assert "A copy was restored to ./run before: the repository is not read again." in done.stdout


@pytest.mark.parametrize(
    ("repository", "files", "said"),
    [
        ("copies", (), "--from-offsite: a directory needs an absolute path, not copies"),
        ("/copies", ("state/journal.sqlite",), "state has trainings of its own, so nothing is restored"),
        ("/copies", ("extralife.toml",), "this box has an installation of its own"),
    ],
)
def test_an_installation_from_copies_refuses_a_box_with_trainings(tmp_path, repository, files, said):
    deploy = tmp_path / "deploy"
    deploy.mkdir()
    shutil.copy(ROOT / "deploy/install.sh", deploy)
    places = {"/etc/extralife/extralife.toml": f"{tmp_path}/extralife.toml", "/var/lib/extralife ": f"{tmp_path}/state "}
    text = (ROOT / "deploy/release.sh").read_text()
    for place, here in places.items():
        assert place in text
        text = text.replace(place, here)
    (deploy / "release.sh").write_text(text)
    (tmp_path / "password").write_text("x\n")
    (tmp_path / "state").mkdir()
    for each in files:
        (tmp_path / each).touch()
    argv = [deploy / "install.sh", "--dry-run", "--from-offsite", repository, "--password-file", tmp_path / "password"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


@pytest.mark.parametrize("readable", [True, False])
def test_an_upgrade_switches_only_after_the_journal_is_copied(tmp_path, readable):
    """Without the copy, no earlier release could be gone back to. Only what needs a system is replaced here."""
    deploy, state, new = tmp_path / "deploy", tmp_path / "state", tmp_path / "releases" / "new"
    shutil.copytree(ROOT / "deploy", deploy)
    new.mkdir(parents=True)
    state.mkdir()
    journal = state / "journal.sqlite"
    Journal(journal).close()
    if not readable:
        journal.write_bytes(b"damaged" * 1000)
    for name, old, changed in (
        ("release.sh", "STATE=/var/lib/extralife", f"STATE={state}"),
        ("upgrade.sh", 'main "$@"', ""),
    ):
        text = (deploy / name).read_text()
        assert text.count(old) == 1
        (deploy / name).write_text(text.replace(old, changed))
    code = f"""
source {deploy}/upgrade.sh
as_account() {{ "$@"; }}
find_python() {{ echo {sys.executable}; }}
health() {{ :; }}
is_active() {{ :; }}
check_release() {{ :; }}; check_config() {{ :; }}; change_image() {{ :; }}; judge() {{ :; }}; finish() {{ :; }}
replace_by_force() {{ :; }}; begin() {{ :; }}
use() {{ echo "uses $1 beside $(cd {state} && echo journal.sqlite.of-*)"; }}
change_over {new.with_name("old")} {new}
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    switched = f"uses {new} beside journal.sqlite.of-old" in done.stdout
    assert (done.returncode, switched, "could not be copied" in done.stderr) == (
        0 if readable else 1,
        readable,
        not readable,
    )
