"""deploy/slurm/extralife.service on a login node: an ordinary user with lingering, no root, and a (fake) Slurm.

sudo tests/run lab -k user_unit
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from installed import Installed
from labbox import CHECKOUT, PACKAGES, box_python, packages, until

HOME = "/home/alice"
BIN = f"{HOME}/bin"
UNIT = "extralife.service"
CONFIG = """
[launcher]
kind = "slurm"
poll_s = 1.0
settle_s = 5.0
[program.sleeper]
command = ["bash", "-c", "while sleep 1; do echo on; done"]
"""


class Login:
    """What alice does on the login node. She is logged in nowhere."""

    def __init__(self, box: Installed) -> None:
        self.box = box

    def run(self, *command: str, check: bool = True) -> str:
        uid = self.box.run("id", "-u", "alice").stdout.strip()
        env = (f"XDG_RUNTIME_DIR=/run/user/{uid}", f"HOME={HOME}", f"PATH={BIN}:/usr/bin:/bin")
        return self.box.run("runuser", "-u", "alice", "--", "env", *env, *command, check=check).stdout

    def show(self, name: str) -> str:
        return self.run("systemctl", "--user", "show", "--property", name, "--value", UNIT, check=False).strip()

    def ctl(self, *args: str, check: bool = True) -> str:
        return self.run(f"{HOME}/extralife/.venv/bin/python", "-P", "-m", "supervisor.ctl", *args, check=check)

    def program(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.ctl("status", "--json", check=False))["programs"][0])
        except (ValueError, LookupError):
            return {}

    def runs(self) -> dict[str, Any]:
        found: dict[str, Any] = until(
            lambda: (each := self.program()).get("phase") == "RUNNING" and each, 120,
            f"the program to run; {self.run('journalctl', '--user', '-n', '30', check=False)}",
        )  # fmt: skip
        return found

    def job(self) -> str:
        """The process of the job."""
        return self.run("pgrep", "-f", "^bash -c [w]hile sleep 1", check=False)


@pytest.fixture(scope="module")
def alice(box: Installed) -> Login:
    """Her clone, her Slurm, her configuration, her unit; then she is let linger."""
    box.run("useradd", "--create-home", "--shell", "/bin/bash", "alice")
    site = f"{HOME}/extralife/.venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    places = "\n".join([CHECKOUT, *(f"{PACKAGES}{n}" for n in range(len(packages())))])
    lines = f"""
set -e
{box_python()} -m venv --without-pip {HOME}/extralife/.venv
printf '%s\\n' '{places}' >{site}/clone.pth
{box_python()} -c 'import sys; sys.path.insert(0, "{CHECKOUT}/tests/slurm"); import fake_slurm, pathlib
fake_slurm.install(pathlib.Path("{BIN}"))'
mkdir -p {HOME}/.config/extralife {HOME}/.config/systemd/user/{UNIT}.d
cp {CHECKOUT}/deploy/slurm/extralife.service {HOME}/.config/systemd/user/
printf '[Service]\\nEnvironment=PATH={BIN}:/usr/bin:/bin\\n' >{HOME}/.config/systemd/user/{UNIT}.d/path.conf
"""
    box.run("runuser", "-u", "alice", "--", "env", f"HOME={HOME}", "bash", "-c", lines)
    box.write(f"{HOME}/.config/extralife/extralife.toml", CONFIG)
    box.run("loginctl", "enable-linger", "alice")
    made = Login(box)
    until(lambda: made.run("systemctl", "--user", "is-system-running", check=False).strip() == "running", 60, "her systemd")
    return made


def test_the_unit_starts_and_its_daemon_runs_a_job(alice: Login) -> None:
    alice.run("systemctl", "--user", "enable", "--now", UNIT)  # it is Type=notify: returns once the daemon serves
    assert (alice.show("ActiveState"), alice.show("SubState"), alice.show("NRestarts")) == ("active", "running", "0")
    alice.runs()
    assert alice.job()


def test_a_killed_daemon_is_started_again_and_adopts_the_job(alice: Login) -> None:
    alice.runs()
    job = alice.job()
    alice.run("systemctl", "--user", "kill", "--kill-who=main", "--signal=KILL", UNIT)
    until(lambda: alice.show("NRestarts") == "1" and alice.show("SubState") == "running", 60, "another daemon")
    alice.runs()
    assert alice.job() == job != ""


def test_a_stop_leaves_the_job_alone_and_a_reload_keeps_it(alice: Login) -> None:
    job = alice.job()
    alice.run("systemctl", "--user", "stop", UNIT)
    assert alice.show("ActiveState") == "inactive"
    assert alice.job() == job != ""
    alice.run("systemctl", "--user", "start", UNIT)
    alice.runs()
    alice.run("systemctl", "--user", "reload", UNIT)
    alice.runs()
    assert alice.job() == job


def test_a_shutdown_ends_the_job_and_is_not_undone(alice: Login) -> None:
    alice.ctl("shutdown")
    until(lambda: alice.show("ActiveState") == "inactive", 60, "the daemon to leave")
    assert (alice.show("Result"), alice.show("ExecMainStatus")) == ("success", "100")
    until(lambda: not alice.job(), 30, "the job to end")


def test_after_a_reboot_it_runs_again_though_nobody_has_logged_in(alice: Login) -> None:
    alice.box.reboot()
    until(lambda: alice.show("SubState") == "running", 120, "the unit at boot")
    sessions = alice.run("loginctl", "list-sessions", "--no-legend").splitlines()
    others = [session for session in sessions if "manager" not in session.split()]
    assert others == [], "systemd 256 and later list the user's manager, too"
