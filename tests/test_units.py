"""The systemd units hold what they promise: systemd itself finds nothing wrong, and little is open to the daemon."""

import re
import subprocess

import pytest
from tools import ROOT, needs

from supervisor.shell import exit_codes

UNITS = sorted(path for path in (ROOT / "units").iterdir() if path.suffix in {".service", ".slice", ".socket"})
MOST_EXPOSED = 2.5


@pytest.fixture
def units(tmp_path):
    """The units as installed, with a prefix where every program that they name exists."""
    current = tmp_path / "current"  # a path without a space, wherever the checkout lies
    current.symlink_to(ROOT)
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/extralife/current", str(current)))
    return tmp_path


def analyze(*args):
    return subprocess.run([needs("systemd-analyze"), *args], capture_output=True, text=True, check=False, timeout=60)


def test_systemd_finds_nothing_wrong(units):
    named = [str(units / unit.name.replace("@.", "@some.service.")) for unit in UNITS]
    done = analyze("verify", "--man=no", *named)
    ours = [
        line for line in done.stderr.splitlines() if "extralife" in line and not line.endswith("Operation not permitted")
    ]
    assert ours == []


def test_it_finds_a_mistake(units):
    unit = units / "extralife.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=30", "WatchdogSeconds=30"))
    assert "WatchdogSeconds" in analyze("verify", "--man=no", str(unit)).stderr


def test_little_is_open_to_the_daemon():
    done = analyze("security", "--offline=yes", "--no-pager", str(ROOT / "units" / "extralife.service"))
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"exposure level for extralife.service: ([0-9.]+)", done.stdout)[1]) <= MOST_EXPOSED, done.stdout


def test_the_service_is_not_started_again_after_a_shutdown():
    unit = (ROOT / "units" / "extralife.service").read_text()
    for setting in ("RestartPreventExitStatus", "SuccessExitStatus"):
        assert re.search(rf"^{setting}=(\d+)$", unit, re.MULTILINE)[1] == str(exit_codes.SHUT_DOWN)


def test_what_the_units_run_is_there():
    named = [(unit.name, path) for unit in UNITS for path in re.findall(r"/opt/extralife/current/(\S+)", unit.read_text())]
    assert {name for name, _ in named} >= {"extralife.service"}
    assert [each for each in named if not each[1].startswith(".venv/") and not (ROOT / each[1]).exists()] == []
