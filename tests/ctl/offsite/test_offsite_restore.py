"""`offsite restore`: what this box lacks is said, and asked, before the other one's trainings are taken over."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forked
import pytest
from tools import ROOT

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "adapters/offsite"))
from offsite_kit import Box, needs_restic, new_repository

from supervisor.features.offsite.adapters import hardware
from supervisor.features.offsite.adapters import lease as leases

pytestmark = needs_restic


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A box with more of everything than this one."""
    (tmp_path / "off").mkdir()
    new_repository(tmp_path / "off")
    monkeypatch.setattr(hardware, "here", lambda: {"cores": 5000, "memory_gib": 9e6, "gpus": ["A100"]})
    made = Box(tmp_path / "ada", tmp_path / "off")
    made.copies()
    monkeypatch.undo()
    yield made
    made.close()


def restored(box, tmp_path, *words, answer=None, cwd=ROOT):
    """Its exit code and what it printed; at a terminal where there is an `answer`."""
    args = [
        "offsite", "restore", "--to", str(tmp_path / "new"), "--take-over", "--repository", box.rules.repository,
        "--password-file", box.rules.password_file, *words,
    ]  # fmt: skip
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TERM": "dumb", "PYTHONPATH": str(ROOT)}
    if answer is None:
        done = forked.ctl(args, env=env, cwd=cwd, timeout_s=120)
        return done.returncode, done.stdout + done.stderr
    argv = [sys.executable, "-m", "supervisor.ctl", *args]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())  # it waits in the terminal until it is asked for
    said = b""
    while piece := _read(ours):
        said += piece
    os.close(ours)
    return process.wait(60), said.decode()


def _read(fd):
    try:
        return os.read(fd, 4096)
    except OSError:  # EIO: the other side is closed
        return b""


def test_a_person_at_a_terminal_is_asked_before_anything_is_taken_over(box, tmp_path):
    code, said = restored(box, tmp_path, answer="n")
    assert (code, "this box has no GPU instead of A100" in said, "nothing was taken over" in said) == (1, True, True), said
    assert not (tmp_path / "new" / "journal.sqlite").exists(), "nothing starts on it"
    assert leases.in_repository(box.restic()).box == "ada"
    code, said = restored(box, tmp_path, answer="y")
    assert (code, (tmp_path / "new" / "journal.sqlite").exists()) == (0, True), said
    assert leases.in_repository(box.restic()).generation == 2


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_unattended_it_goes_on_and_says_so_first(box, tmp_path, words):
    code, said = restored(box, tmp_path, *words)
    assert code == 0, said
    lacks, goes_on = said.index("cores instead of 5000"), said.index("this box goes on with these trainings")
    assert lacks < goes_on
    assert ("no terminal to ask" in said) is (not words)


def test_a_repository_on_this_box_may_be_named_from_here(box, tmp_path):
    """restic runs in another directory, so a relative path would name another place."""
    relative = Path(box.rules.repository).relative_to(tmp_path)
    box.rules = replace(box.rules, repository=str(relative))
    code, said = restored(box, tmp_path, cwd=tmp_path)
    assert (code, (tmp_path / "new" / "journal.sqlite").exists()) == (0, True), said
