"""doctor on [alerts]: whether one could arrive; nothing is sent."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from patients import levels, make, told

from supervisor.features.alerts import checks as checks_alerts

SECRET = "hunter2-and-more"


@pytest.fixture
def listener():
    """Who would hear it if something were sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def hook(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\ntouch /nowhere\n")
    path.chmod(mode)
    return path


def test_without_a_target_nobody_gets_an_alert(tmp_path: Path) -> None:
    (found,) = checks_alerts.alerts(make(tmp_path))
    assert (found.level, found.do.startswith("set [alerts]")) == ("warn", True)


def test_urls_and_a_command_that_can_be_used_are_well_and_nothing_is_sent(tmp_path: Path, listener) -> None:
    pytest.importorskip("apprise")
    port = listener.getsockname()[1]
    urls = tmp_path / "urls"
    urls.write_text(f"# mine\njson://me:{SECRET}@127.0.0.1:{port}/x\n")
    urls.chmod(0o600)
    installation = make(tmp_path, f'[alerts]\nurls_file = "{urls}"\ncommand = ["{hook(tmp_path / "hook")}"]\n')
    found = list(checks_alerts.alerts(installation))
    assert levels(found) == ["ok"], found
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_url_that_apprise_does_not_understand_is_reported_and_not_shown(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    installation = make(tmp_path, f'[alerts]\nurls = ["json://127.0.0.1/x", "nosuchservice://{SECRET}"]\n')
    found = list(checks_alerts.alerts(installation))
    assert levels(found) == ["bad"]
    assert "URL 2 (nosuchservice-" in found[0].what
    assert SECRET not in told(found)


def test_the_file_of_urls_is_there_and_shut(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    urls = tmp_path / "urls"
    installation = make(tmp_path, f'[alerts]\nurls_file = "{urls}"\n')
    assert "No such file" in told(checks_alerts.alerts(installation))
    urls.write_text(f"json://me:{SECRET}@127.0.0.1/x\n")
    urls.chmod(0o644)
    (found,) = checks_alerts.alerts(installation)
    assert (found.level, found.do) == ("bad", f"chmod 600 {urls}")
    urls.chmod(0o600)
    assert levels(checks_alerts.alerts(installation)) == ["ok"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_the_file_of_urls_has_to_be_the_daemons(tmp_path: Path) -> None:
    urls = tmp_path / "urls"
    urls.write_text("# none yet\n")
    urls.chmod(0o600)
    installation = make(tmp_path, f'[alerts]\nurls_file = "{urls}"\n')
    os.chown(installation.settings.paths.state_dir, 12345, 12345)
    (found,) = checks_alerts.alerts(installation)
    assert (found.level, found.do) == ("bad", f"chown 12345 {urls}")


def test_the_command_is_there_and_may_be_executed(tmp_path: Path) -> None:
    path = tmp_path / "hook"
    installation = make(tmp_path, f'[alerts]\ncommand = ["{path}", "--now"]\n')
    (found,) = checks_alerts.alerts(installation)
    assert (found.level, "does not exist" in found.what) == ("bad", True)
    hook(path, 0o644)
    (found,) = checks_alerts.alerts(installation)
    assert (found.level, found.do) == ("bad", f"chmod 755 {path}")
    path.chmod(0o755)
    assert levels(checks_alerts.alerts(installation)) == ["ok"]
    path.unlink()
    path.mkdir()
    assert levels(checks_alerts.alerts(installation)) == ["bad"], "a directory is no program"


@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon of this test is another user")
def test_a_command_that_only_root_may_execute_is_none_for_the_daemon(tmp_path: Path) -> None:
    installation = make(tmp_path, f'[alerts]\ncommand = ["{hook(tmp_path / "hook", 0o700)}"]\n')
    os.chown(installation.settings.paths.state_dir, 12345, 12345)
    (found,) = checks_alerts.alerts(installation)
    assert (found.level, "may not be executed by the daemon, user 12345" in found.what) == ("bad", True)
