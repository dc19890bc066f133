"""deploy/install.sh as user data: boxes of one template begin the trainings, wait as the next one, and continue a lost box's."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cheap_restic import make_cheap
from installed import CONFIG, GAMES, Installed, installer
from labbox import SHARED, until

from supervisor.features.offsite.adapters.restic import Restic
from supervisor.features.offsite.settings import OffsiteSettings

PASSWORD = "correct horse"
OFFSITE = f"""
[offsite]
repository = "{SHARED}"
password_file = "/etc/extralife/restic.password"
every_s = 10
forget = "off"
check = "off"
"""
WAITS_S = 2 * 10 + 120  # from the last sign of life until a box is presumed dead

pytestmark = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


class Template:
    """Boxes with a disk each, and the repository that all of them reach."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.repository = directory, directory / "copies"
        self.boxes: list[Installed] = []
        password = directory / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)
        rules = OffsiteSettings(repository=str(self.repository), password_file=str(password))
        Restic(rules, directory / "cache").init()
        make_cheap(self.repository, PASSWORD)
        for each in (self.repository, *self.repository.rglob("*")):
            each.chmod(0o777 if each.is_dir() else 0o644)

    def box(self) -> Installed:
        """A new one, with an empty disk and the password."""
        directory = self.directory / f"box{len(self.boxes)}"
        directory.mkdir()
        box = Installed(directory, self.repository)
        self.boxes.append(box)
        box.write("/etc/systemd/system/extralife.service.d/copies.conf", f"[Service]\nReadWritePaths=-{SHARED}\n")
        box.write("/etc/hostname", f"{directory.name}\n")
        box.run("hostname", directory.name)
        box.write("/srv/password", f"{PASSWORD}\n")
        return box


@pytest.fixture
def template(tmp_path: Path) -> Iterator[Template]:
    made = Template(tmp_path)
    try:
        yield made
    finally:
        for each in made.boxes:
            each.close()


def begin(box: Installed, *options: str, **env: str) -> None:
    """Run install.sh with the template's variables as the box's first boot does: a service without a terminal or a home."""
    given = {"OFFSITE_REPOSITORY": SHARED, "OFFSITE_PASSWORD_FILE": "/srv/password", **env}
    variables = [f"--setenv=EXTRALIFE_{name}={value}" for name, value in given.items()]
    box.run(
        "systemd-run", "--quiet", "--unit=user-data", "--property=RemainAfterExit=yes", *variables, *installer(), *options
    )


def said(box: Installed) -> str:
    return box.run("journalctl", "-u", "user-data", "-o", "cat", "--no-pager").stdout


def ended(box: Installed, timeout_s: float) -> int:
    """Its exit status."""
    until(lambda: box.show("user-data", "SubState") in {"exited", "failed"}, timeout_s, "install.sh to end", pause_s=1)
    status = int(box.show("user-data", "ExecMainStatus"))
    if status:
        box.run("systemctl", "reset-failed", "user-data")
    return status


@pytest.mark.timeout(6000)
def test_boxes_of_one_template_begin_wait_and_continue_without_a_hand(template: Template) -> None:
    first = template.box()
    begin(first, "--no-start")
    assert ended(first, 300) == 0, said(first)
    assert "the trainings begin here, and the copies with them" in said(first)
    written = tomllib.loads(first.run("cat", "/etc/extralife/extralife.toml").stdout)
    assert written["offsite"]["repository"] == SHARED
    first.configure(CONFIG + OFFSITE)  # two small games, and copies more often
    first.run("systemctl", "enable", "--now", "extralife")
    first.wait_until_trains(240)
    until(lambda: first.facts("OffsiteCopied"), 180, "a copy")

    second = template.box()
    begin(second, NEXT_BOX="end")
    assert ended(second, 300) == 75, said(second)
    assert "box box0 gave its last sign of life" in said(second)
    begin(second)
    until(lambda: "This box waits as the next one" in said(second), 300, "the second box to wait", pause_s=1)
    assert not any(second.workers().values())
    before = len(first.facts("OffsiteCopied"))
    until(lambda: len(first.facts("OffsiteCopied")) > before, 120, "one more copy")
    copied = first.facts("OffsiteCopied")[-1]["steps"]
    assert set(copied) == set(GAMES)
    first.cut_power()

    assert ended(second, WAITS_S + 300) == 0, said(second)
    second.wait_until_trains(240, least_steps=copied)
    resumed = {fact["program"]: fact["step"] for fact in second.facts("Resumed")}
    assert all(resumed[name] >= copied[name] for name in GAMES), (resumed, copied)

    first.boot()
    until(lambda: first.facts("OffsiteFenced"), 120, "the fence of the box that comes back")
    until(lambda: not any(first.workers().values()), 120, "no program of it")
    assert any(second.workers().values())
