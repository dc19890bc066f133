"""What shells offer, and the man pages: from the same texts as the help."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from fake_backend import FakeBackend, program
from running import CTL, Terminal, ctl, environment


def offered(api: Path, *words: str) -> list[str]:
    while (done := ctl("__complete", "-s", f"unix://{api}", *words)).returncode == -signal.SIGALRM:
        pass  # after two seconds it ends without a word, on a busy machine too
    assert done.returncode == 0
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_actions_options_programs_and_words(api: Path, backend: FakeBackend) -> None:
    backend.add(program("Pong-s4", "FATAL"))
    assert offered(api, "sta") == ["start", "status"]
    assert offered(api, "stop", "Po") == ["Pong", "Pong-s4"]
    assert offered(api, "stop", "a") == ["all"]
    assert "--json" in offered(api, "status", "Pong", "--")
    assert offered(api, "accounts", "--since", "") == ["1h", "2d", "boot"]
    assert offered(api, "tail", "Pong", "std") == ["stdout", "stderr"]
    assert offered(api, "signal", "US") == ["USR1", "USR2"]
    assert offered(api, "help", "hist") == ["history"]
    assert "--state-dir" in offered(api, "--")
    assert offered(api, "wait-gpu", "--", "") == [], "a command of its own: the shell's files"
    assert offered(api, "nothing", "") == []


def test_a_dead_daemon_offers_no_programs(tmp_path: Path) -> None:
    assert offered(tmp_path / "supervisor.sock", "tail", "s") == ["stdout", "stderr"]


@pytest.fixture
def shells(tmp_path: Path) -> Path:
    """A directory with each shell's script, and a client that says what it was run with, unless it is asked to complete."""
    client = tmp_path / "supervisorctl"
    run = shlex.join(CTL)
    again = f'while found=$({run} "$@"); [ $? = 142 ]; do :; done; printf "%s\\n" "$found"; exit'  # 142: by SIGALRM
    client.write_text(f'#!/bin/sh\n[ "$1" = __complete ] && {{ {again}; }}\nprintf "ran:%s:\\n" "$*"\n')
    client.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / f"{shell}.script").write_text(ctl("completion", shell).stdout)
    return tmp_path


def start(shell: str) -> list[str]:
    """A shell without anybody's settings."""
    return {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]


SETUP = {
    "bash": "PS1='ready> '; bind 'set enable-bracketed-paste off'; source {}/bash.script",
    "zsh": "PS1='ready> '; unset zle_bracketed_paste; autoload -U compinit && compinit -u -D; source {}/zsh.script",
}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_completes_in_a_real_shell(api: Path, backend: FakeBackend, shells: Path, shell: str) -> None:
    """The script as installed, the key as people press it: the name of a program, of a group's seed, and an action."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    backend.add(program("Qbert:4", "FATAL"))
    with Terminal(socket=api, argv=start(shell), PATH=f"{shells}:/usr/bin:/bin", HOME=str(shells)) as terminal:
        terminal.type(SETUP[shell].format(shells) + "; echo setup-$((40 + 2))\n")
        terminal.until("setup-42")
        for typed, run in (
            ("stop Po", "stop Pong"),
            ("stop Qb", "stop Qbert:4"),
            ("stop Qbert:", "stop Qbert:4"),
            ("resta", "restart"),
            ("status --js", "status --json"),
            ("tail Pong stde", "tail Pong stderr"),
        ):
            terminal.until("ready> ")
            terminal.type(f"supervisorctl -s unix://{api} {typed}\t")
            terminal.until(run.rpartition(" ")[2])
            terminal.type("\n")
            assert terminal.until(":\r\n").endswith(f"ran:-s unix://{api} {run}:\r\n")


def test_fish_completes(api: Path, backend: FakeBackend, shells: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    backend.add(program("Pong-s4", "FATAL"))
    asked = "; ".join(
        [
            f"source {shells}/fish.script",
            *(
                f"complete -C 'supervisorctl -s unix://{api} {each}'"
                for each in ("stop Po", "status --js", "tail Pong stde")
            ),
        ]
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=True, timeout=60,
        env=environment(PATH=f"{shells}:/usr/bin:/bin", HOME=str(shells)),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("Pong\tRUNNING\nPong-s4\tFATAL\n--json\nstderr\n", "")
