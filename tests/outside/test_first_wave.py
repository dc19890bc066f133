"""Journal, configuration, backup and checkpoints that a real daemon of the first wave wrote are read by this version.

At the boundary: by the commands that people run. The start of a daemon on them is tests/e2e/test_first_wave_start.py.
"""

import json
import os
import shutil
import subprocess
import sys

import forked
import pytest
from first_release import unpacked
from inside import open_journal
from tools import ROOT

FACTS = 83


@pytest.fixture
def wave(tmp_path):
    return unpacked(tmp_path, tmp_path / "run")


def environment(wave):
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("EXTRALIFE_", "XDG_"))}
    return {**keep, "PYTHONPATH": str(ROOT), "TZ": "UTC", "HOME": str(wave.state.parent), "OMP_NUM_THREADS": "1"}


def run(wave, *command, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, env=environment(wave), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def client(wave, *words):
    return forked.ctl(["-c", str(wave.config_file), *words], env=environment(wave), cwd=ROOT, timeout_s=120)


def test_the_configuration_with_every_section_is_accepted(wave):
    done = run(wave, "supervisor", "--check", "-c", str(wave.config_file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_journal_is_read_without_a_daemon(wave):
    done = client(wave, "status", "--json")
    assert done.returncode == 4, done.stderr
    status = json.loads(done.stdout)
    assert status["daemon"]["state"] == "dead"
    assert status["daemon"]["journal"]["damage"] is None
    assert status["daemon"]["level"]["name"] == "medium"
    programs = {each["name"]: each for each in status["programs"]}
    known = {name: (each["wanted"], each["attempt"], each["restarts"]) for name, each in programs.items()}
    assert known == {"Catch": ("run", 3, 1), "Paddle": ("stop", 1, 0), "script": ("run", 1, 0)}
    assert programs["Paddle"]["phase"] == "STOPPED"
    assert programs["Paddle"]["steps"] == 8192
    lines = [json.loads(line) for line in client(wave, "journal").stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, FACTS + 1))
    kinds = {line["kind"] for line in lines}
    assert {"LadderLaid", "Reviewed", "Resumed", "Exited", "BackedUp", "AlertRaised", "DaemonStarted", "Tallied"} <= kinds
    history = client(wave, "history", "-n", "100")
    assert history.returncode == 0
    assert "resumed at step 2,568 after killed, 28 steps lost" in history.stdout
    for words in (("accounts",), ("cost",), ("level",), ("alerts",), ("explain", "Catch"), ("reboots",), ("results",)):
        done = client(wave, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_the_backup_is_whole(wave):
    done = client(wave, "backups", "--check")
    assert done.returncode == 0, done.stdout
    assert "yes, now" in done.stdout
    assert "Catch 2.57k, Paddle 7.17k" in done.stdout


def test_a_daemon_opens_the_journal_and_nothing_has_to_be_salvaged(wave):
    count, lost, state = open_journal(wave.state / "journal.sqlite")
    assert (count, lost) == (FACTS, "")
    assert sorted(state.programs) == ["Catch", "Paddle", "script"]
    assert not list(wave.state.glob("journal.sqlite.*damaged*"))


@pytest.mark.parametrize(("program", "algorithm"), [("Catch", "dqn"), ("Paddle", "ppo")])
def test_a_worker_resumes_from_its_checkpoint(wave, tmp_path, program, algorithm):
    """With a target that it has reached: the checkpoint is verified and loaded, and nothing has to be trained."""
    checkpoint, step = wave.checkpoint(program)
    runs = tmp_path / "runs" / program / "checkpoints"
    runs.mkdir(parents=True)
    shutil.copytree(checkpoint, runs / checkpoint.name)
    settings = (
        f"--program {program} --game Catch --algo {algorithm} --resolution 42 --network small --num-envs 4 --steps 1000"
    )
    done = run(wave, "workers", *settings.split(), "--device", "cpu", "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"resumed at step {step:,} from {checkpoint.name}" in done.stdout
    assert not list(runs.glob("*.bad"))
