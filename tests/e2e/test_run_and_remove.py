"""`extralifectl run` and `remove`: a command of a shell becomes a program of the running daemon, and goes again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from box import PATIENCE, ROOT, Box, until

SCRIPT = (
    "import os, time\nprint(os.getcwd(), os.environ.get('DATA'), os.environ.get('API_KEY'), flush=True)\ntime.sleep(1000)\n"
)


def shell(box: Box, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """extralifectl in a directory with a script, as somebody types it there."""
    place = box.directory / "my project"
    place.mkdir(exist_ok=True)
    (place / "train.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "supervisor.ctl", "-c", str(box.config_file), *args], cwd=place, capture_output=True, text=True,
        env={**os.environ, **box.home, "PYTHONPATH": str(ROOT), **env}, timeout=30 * PATIENCE, check=False,
    )  # fmt: skip


def test_a_command_is_added_saved_and_removed_and_outlives_the_daemon(box: Box) -> None:
    box.config(box.trainer("other"), extra="# a comment that stays")
    box.config_file.chmod(0o640)
    box.start()
    box.wait_phase("other", "RUNNING")

    done = shell(
        box, "run", "--set", "stop_grace_s=1", "--", "python3", "train.py", "--lr", "1e-3", DATA="/data", API_KEY="s3cret"
    )
    assert (done.returncode, done.stdout) == (0, "train: added process group\n"), done.stderr
    assert "API_KEY" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    box.wait_phase("train", "RUNNING")
    place = box.directory / "my project"
    until(lambda: f"{place} /data None" in box.ctl("tail", "train").stdout, 20, "its directory and environment")
    file = box.state / "added" / "train.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "SHLVL" not in file.read_text()
    assert re.search(r'command = \["/.*/python3", "train.py", "--lr", "1e-3"\]', file.read_text())
    assert b"/data" not in (box.state / "journal.sqlite").read_bytes()

    # Another of the same name gets one of its own; an explicit one is refused.
    again = shell(box, "run", "--env", "API_KEY", "--json", "--", sys.executable, "train.py", API_KEY="s3cret")
    assert json.loads(again.stdout)["name"] == "train-2"
    until(lambda: "s3cret" in box.ctl("tail", "train-2").stdout, 20, "the secret that was asked for")
    taken = shell(box, "run", "--name", "train", "--", "sleep", "1000")
    assert (taken.returncode, taken.stdout.partition(";")[0]) == (1, "ERROR: there is a program train")

    # What the daemon refuses leaves nothing behind.
    refused = shell(box, "run", "--name", "wrong", "--set", "stop_grace=1", "--", "sleep", "1000")
    assert refused.returncode == 1
    assert "added/wrong.toml: program.wrong.stop_grace is not a setting; did you mean stop_grace_s?" in refused.stdout
    assert not (box.state / "added" / "wrong.toml").exists()

    # It is there after a power cut, and an update of the file leaves it alone.
    box.power_cut()
    box.start()
    box.wait_phase("train", "RUNNING")
    assert box.ctl("update").stdout == ""

    # --save: behind all that is in the file.
    before = box.config_file.read_text()
    saved = shell(box, "run", "--save", "--name", "kept", "--", "python3", "train.py")
    assert saved.returncode == 0, saved.stderr
    box.wait_phase("kept", "RUNNING")
    assert box.config_file.read_text().startswith(before.rstrip())
    assert "# a comment that stays" in box.config_file.read_text()
    assert box.config_file.stat().st_mode & 0o777 == 0o640
    text = box.config_file.read_text()
    assert shell(box, "run", "--save", "--set", "nonsense=1", "--name", "bad", "--", "sleep", "9").returncode == 1
    assert box.config_file.read_text() == text

    # They go again: added ones for good, one of the file until the next update.
    removed = shell(box, "remove", "train", "train-2", "kept", "nobody")
    assert removed.stdout.splitlines() == [
        "train: removed process group", "train-2: removed process group", "kept: removed process group",
        "ERROR: no such process/group: nobody",
    ]  # fmt: skip
    assert removed.returncode == 1
    until(lambda: {view["name"] for view in box.status()["programs"]} == {"other"}, 20, "them to be gone")
    assert list((box.state / "added").iterdir()) == []
    assert (box.state / "programs" / "train").is_dir()
    assert "kept: added process group" in box.ctl("update").stdout


def test_only_who_may_write_the_state_directory_can_add_a_command(box: Box) -> None:
    box.config(box.trainer("other"))
    box.start()
    told = box.ctl("run", "sleep", "9")
    assert (told.returncode, told.stdout) == (2, "Error: run needs a command behind --, such as: run -- python train.py\n")
    socket = Path(box.runtime) / "supervisor.sock"
    alone = subprocess.run(
        [sys.executable, "-m", "supervisor.ctl", "-s", f"unix://{socket}", "run", "--", "sleep", "9"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert alone.returncode == 2
    assert "name it with -c FILE or --state-dir DIR" in alone.stdout
    assert box.ctl("run", "--", "no-such-program").stdout == "ERROR: no-such-program: no such program in this shell's PATH\n"

    # A damaged file costs its own program.
    (box.state / "added").mkdir()
    (box.state / "added" / "torn.toml").write_text("[program.to")
    (box.state / "added" / "other.toml").write_text('[program.other]\ncommand = ["sleep", "1"]\n')
    checked = subprocess.run(
        [sys.executable, "-m", "supervisor", "-c", str(box.config_file), "--check"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "torn.toml: left out: " in checked.stderr + checked.stdout
    assert "other.toml: left out, because" in checked.stderr + checked.stdout
