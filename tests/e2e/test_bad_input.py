"""Bad input: one clear sentence each, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from box import ROOT, Box


def supervisord(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "supervisor", *args], cwd=ROOT, env={**os.environ, **(env or {})},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_second_daemon_is_refused_and_names_the_first(box: Box) -> None:
    box.config(box.trainer("a"))
    first = box.start()
    second = supervisord("-c", str(box.config_file))
    assert second.returncode != 0
    assert str(first.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert box.wait_phase("a", "RUNNING")["pid"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[program.Pong]\nbatch_siz = 32\n", "did you mean batch_size"), ("[program.Pong\n", "line 1")],
    ids=["key", "toml"],
)
def test_check_says_what_is_wrong_and_where(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "bad.toml"
    config.write_text(text)
    done = supervisord("-c", str(config), "--state-dir", str(tmp_path / "state"), "--check")
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert says in said
    assert "bad.toml" in said
    assert "Traceback" not in said


def test_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    done = supervisord("--state-dir", str(tmp_path / "state"))
    assert done.returncode == 2
    assert "state" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_that_is_missing(tmp_path: Path) -> None:
    done = supervisord("-c", str(tmp_path / "nothing.toml"))
    assert done.returncode == 2
    assert "nothing.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_errors_at_once(tmp_path: Path) -> None:
    config = tmp_path / "bad.toml"
    config.write_text("[program.Pongg]\n[program.Breakout]\nlearning_rate = 1\n[level]\nslots = 0\n")
    said = supervisord("-c", str(config), "--state-dir", str(tmp_path / "s"), "--check")
    text = said.stdout + said.stderr
    assert all(word in text for word in ("Pongg", "learning_rate", "slots"))
