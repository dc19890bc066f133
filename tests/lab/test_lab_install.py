"""Installing without a network, with a configuration that is refused first, over packages of an older extralife; and away."""

from __future__ import annotations

import tomllib

from installed import CHECKOUT, UNIT, Installed
from labbox import PACKAGES, ROOT, box_python, packages, until

CONFIG = """
[daemon]
state_dir = "/var/lib/extralife"
runtime_dir = "/run/extralife"
[program.sleeper]
command = ["sleep", "100000"]
progress = "none"
"""
FILE = "/etc/extralife/extralife.toml"
BIN = "/opt/extralife/current/.venv/bin"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# Everything of that name on the box's own disk and below /run. Logs stay: they are the system's.
FIND = (
    "find / -xdev -iname '*extralife*' -not -path '/proc/*' -not -path '/srv/*' -not -path '/var/log/*' 2>/dev/null; "
    "find /run -iname '*extralife*' -not -path '/run/systemd/*' -not -path '/run/log/*'"
)


def install(box: Installed, *options: str) -> tuple[int, str]:
    found = [option for n in range(len(packages())) for option in ("--packages", f"{PACKAGES}{n}")]
    command = ("env", f"PYTHON={box_python()}", f"{CHECKOUT}/deploy/install.sh", *options, *found)
    done = box.run(*command, check=False, timeout_s=300)
    return done.returncode, done.stdout + done.stderr


def test_from_a_refused_configuration_to_an_empty_machine(box: Installed) -> None:
    before = set(box.run("sh", "-c", FIND).stdout.splitlines())
    box.write("/srv/older/extralife-0.0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: extralife\nVersion: 0.0.1\n")
    older = ("--packages", "/srv/older")

    code, said = install(box, *older, "--no-start")
    assert code == 0, said
    assert box.run("cat", FILE).stdout.strip() == (ROOT / "deploy/examples/box.toml").read_text().strip()
    assert "climbs 6 levels up to heavy" in box.run(f"{BIN}/supervisord", "-c", FILE, "--check").stdout
    box.run("rm", FILE)

    box.write("/srv/mine.toml", CONFIG.replace('command = ["sleep", "100000"]', "comand = 1"))
    code, said = install(box, *older, "--config", "/srv/mine.toml")
    assert (code, "/srv/mine.toml cannot be used" in said, "comand" in said) == (1, True, True), said
    assert box.run("test", "-e", FILE, check=False).returncode == 1, "a refused file is not put in place"

    box.write("/srv/mine.toml", CONFIG)
    code, said = install(box, *older, "--config", "/srv/mine.toml")
    assert code == 0, said
    assert box.run("cat", FILE).stdout.strip() == CONFIG.strip(), "the corrected one counts"
    until(lambda: "1 of 1 programs run" in box.show(UNIT, "StatusText"), 60, "its program to run")
    assert box.ctl("version").strip() == VERSION, "and not that of the older metadata among the packages"
    assert box.run(f"{BIN}/supervisord", "--version").stdout.strip() == VERSION

    box.write("/srv/mine.toml", CONFIG + "# changed\n")
    code, said = install(box, *older, "--config", "/srv/mine.toml")
    assert (code, f"{FILE} exists and stays as it is" in said) == (0, True), said

    checked = box.run(f"{BIN}/supervisord", "-c", FILE, "--check", check=False)
    assert (checked.returncode, checked.stderr) == (0, ""), "root may check what belongs to the service's user"
    box.run("systemctl", "stop", UNIT)
    box.run("rm", "-rf", "/run/extralife")  # as after a reboot
    checked = box.run(f"{BIN}/supervisord", "-c", FILE, "--check", check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    box.run("systemctl", "start", UNIT)

    box.write(f"/etc/systemd/system/{UNIT}.d/mine.conf", "[Service]\nNice=5\n")
    planned = box.run(f"{CHECKOUT}/deploy/uninstall.sh", "--dry-run", "--delete-data").stdout
    assert "remove /var/cache/extralife" in planned
    assert box.show(UNIT, "ActiveState") == "active", "a dry run does nothing"
    box.run("/opt/extralife/current/deploy/uninstall.sh", "--delete-data")
    left = set(box.run("sh", "-c", FIND).stdout.splitlines()) - before
    assert left == set(), "nothing is left of it"
    assert box.run("id", "extralife", check=False).returncode == 1
