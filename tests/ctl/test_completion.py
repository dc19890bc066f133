"""What shells offer, and the man pages: from the same texts as the help."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fake_backend import FakeBackend, program
from running import CTL, ctl, environment

from supervisor.ctl import actions
from supervisor.ctl.completion import read_usage


def offered(api: Path, *words: str) -> list[str]:
    done = ctl("__complete", "-s", f"unix://{api}", *words)
    assert done.returncode == 0
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_actions_options_programs_and_words(api: Path, backend: FakeBackend) -> None:
    backend.add(program("Pong-s4", "FATAL"))
    assert offered(api, "sta") == ["start", "status"]
    assert offered(api, "stop", "Po") == ["Pong", "Pong-s4"]
    assert offered(api, "stop", "a") == ["all"]
    assert "--json" in offered(api, "status", "Pong", "--")
    assert offered(api, "accounts", "--since", "") == ["1h", "2d", "boot"]
    assert offered(api, "alerts", "") == ["test"]
    assert offered(api, "tail", "Pong", "std") == ["stdout", "stderr"]
    assert offered(api, "signal", "US") == ["USR1", "USR2"]
    assert offered(api, "help", "hist") == ["history"]
    assert "--state-dir" in offered(api, "--")
    assert offered(api, "wait-gpu", "--", "") == [], "a command of its own: the shell's files"
    assert offered(api, "nothing", "") == []


def test_a_dead_daemon_offers_no_programs(tmp_path: Path) -> None:
    assert offered(tmp_path / "supervisor.sock", "tail", "s") == ["stdout", "stderr"]


@pytest.mark.parametrize("name", actions.names())
def test_every_line_of_use_can_be_read(name: str) -> None:
    """A value that two options share, or an option without dashes, would be offered in the wrong place."""
    options, words = read_usage((actions.usage(name) or "").partition(" ")[2])
    assert not [option for option in options if not option.startswith("-")]
    assert not [word for word in words if word.startswith("-")]


def test_bash_completes(api: Path, backend: FakeBackend, tmp_path: Path) -> None:
    """A real bash with the script that is installed, and a client in its path."""
    (tmp_path / "supervisorctl").write_text(f'#!/bin/sh\nexec {" ".join(CTL)} "$@"\n')
    (tmp_path / "supervisorctl").chmod(0o755)
    (tmp_path / "script").write_text(ctl("completion", "bash").stdout)
    asked = (
        f"source {tmp_path}/script; COMP_WORDS=(supervisorctl -s unix://{api} stop Po); COMP_CWORD=4; _supervisorctl; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=60,
        env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("Pong\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_accept_their_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = ctl("completion", shell).stdout
    subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize("name", ["supervisorctl", "supervisord"])
def test_the_man_pages_are_whole(name: str) -> None:
    page = ctl("manual", name).stdout
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "FILES", "SEE ALSO"):
        assert f".SH {heading}" in page
    if name == "supervisorctl":
        assert all(f".B {action}" in page.replace("\\-", "-") for action in set(actions.names()) - {"help"})
    if shutil.which("groff") is not None:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tascii"], input=page, text=True, capture_output=True, check=True, timeout=60
        )
        assert done.stderr == ""
