"""A real daemon at the end of its work: everything is saved, copied, verified and told, then the command runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from box import PATIENCE, Box, until
from cheap_restic import make_cheap, section

# It saves by itself, the last time when it is asked to end, and reaches its target once the file `enough` is there.
SCRIPT = """
import os, sys, time
from pathlib import Path
step = 0
Path("out").mkdir(exist_ok=True)
while not Path("enough").exists():
    step += 1
    time.sleep(0.02)
Path("aside").write_text(str(step))
os.rename("aside", f"out/{step}.json")
"""


def programs(work: Path) -> str:
    (work / "train.py").write_text(SCRIPT)
    return (
        f'[program.it]\ncommand = {json.dumps([sys.executable, "train.py"])}\ndirectory = "{work}"\nprogress = "none"\n'
        "checkpoint_glob = 'out/*.json'\ncheckpoint_step = '(\\d+)[.]json'\n"
        '[program.board]\ncommand = ["sleep", "1000"]\nkind = "service"\n'
    )


def when_done(script: str, **more: Any) -> str:
    keys = {"after_s": 0.0, "timeout_s": 60.0, **more}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    return f"[cost]\nusd_per_hour = 1.2\n[when_done]\ncommand = {json.dumps(['sh', '-c', script])}\n{lines}\n"


def step(box: Box, name: str, count: int = 1, timeout_s: float = 60.0) -> dict[str, Any]:
    """The count-th step of this name, once it is on record."""

    def look() -> dict[str, Any] | None:
        found = [each for each in box.facts("WhenDoneStep") if each["step"] == name]
        return found[count - 1] if len(found) >= count else None

    fact: dict[str, Any] = until(look, timeout_s, f"step {name} (x{count})", box.tail)
    return fact


@pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")
@pytest.mark.timeout(240)
def test_the_last_end_is_saved_copied_verified_told_and_then_the_command_runs_once(box: Box, tmp_path: Path) -> None:
    off, work = tmp_path / "off", tmp_path / "work"
    off.mkdir()
    work.mkdir()
    alert = f'[alerts]\ncommand = ["sh", "-c", "cat >> {tmp_path}/alerts; echo >> {tmp_path}/alerts"]\nkinds = ["reboot"]'
    stop = when_done(f"echo told >> {tmp_path}/told; echo bye", timeout_s=2.0)
    box.config(programs(work), extra=f"{section(off, 600.0)}\n{alert}\n{stop}")
    assert box.ctl("offsite", "init", timeout_s=60).returncode == 0
    make_cheap(off / "repo", "correct horse")
    box.start()
    box.wait_phase("board", "RUNNING")
    box.wait_phase("it", "RUNNING", timeout_s=60)
    assert box.ctl("when-done").stdout == "no end is near (sh waits for: done)\n"
    (work / "enough").touch()
    ended = step(box, "ended")
    assert ended["why"] == "sh has succeeded: this box should end now; it printed: bye"
    order = [
        each["kind"] if each["kind"] != "WhenDoneStep" else each["step"] for each in box.facts()
        if each["kind"] in {"Finished", "OffsiteCopied", "AlertDelivered", "WhenDoneStep"} or each.get("program") == "board"
    ]  # fmt: skip
    last = order[order.index("Finished") :]
    assert last == [
        "Finished", "begin", "leave", "StopIntended", "Exited", "Requeued", "OffsiteCopied", "report", "AlertDelivered", "run",
        "ended",
    ]  # fmt: skip
    copy, finished = box.facts("OffsiteCopied")[-1], box.facts("Finished")[-1]
    assert (copy["cause"], copy["verified"], list(copy["steps"])) == ("done", True, ["it"])
    saved = int(next((work / "out").iterdir()).stem)
    assert copy["steps"]["it"] == saved
    assert step(box, "run")["at_s"] - finished["at_s"] <= (60.0 + copy["took_s"]) * PATIENCE
    told = [json.loads(line) for line in (tmp_path / "alerts").read_text().splitlines() if line]
    assert [each["kind"] for each in told] == ["done"]
    assert re.search(r"all is done \(it\); <?\$0\.\d+ so far", told[0]["text"])
    assert told[0]["text"].endswith("; this box is now told to stop")
    assert "sh has succeeded, and this box should end now" in box.ctl("status").stdout
    lived = step(box, "ended", 2)
    assert lived["error"] == "this box is still there 2s after its success"
    assert "the box costs $1.20 an hour" in box.ctl("report").stdout
    box.kill_daemon()
    box.start()
    again = step(box, "begin", 2)
    assert "sh has run, and this box is still there 2s after its success" in again["why"]
    assert (tmp_path / "told").read_text() == "told\n", "it is not repeated blindly"


@pytest.mark.timeout(120)
def test_a_command_that_hangs_and_what_the_operator_does_about_it(box: Box, tmp_path: Path) -> None:
    box.config(
        '[program.it]\ncommand = ["sh", "-c", "exit 0"]\n',
        extra=when_done(f"echo $$ >> {tmp_path}/told; sleep 1000", timeout_s=1.0),
    )
    box.start()
    assert step(box, "ended")["error"] == "it did not end within 1s and was killed"
    pid = (tmp_path / "told").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    assert "sh failed (it did not end within 1s and was killed); this box is stopped in" in box.ctl("when-done").stdout
    assert box.ctl("when-done", "cancel").returncode == 0
    assert box.ctl("when-done").stdout.endswith("cancelled, so this box is not stopped\n")
    assert box.ctl("when-done", "now").returncode == 0
    step(box, "ended", 2)
    assert box.ctl("when-done", "delay", "2h").stdout == "when-done delay: this box is not stopped for 2h\n"
    box.ctl("start", "it")
    step(box, "call off")


def test_a_command_that_is_gone_is_named_while_the_box_trains(box: Box, tmp_path: Path) -> None:
    program = '[program.it]\ncommand = ["sleep", "1000"]\n'
    box.config(program, extra=f'[when_done]\ncommand = ["{tmp_path}/vastai"]')
    box.start()
    said = f"[when_done] CANNOT STOP THIS BOX: {tmp_path}/vastai is not found, or not executable"
    for page in ("status", "when-done"):
        until(lambda page=page: said in box.ctl(page).stdout, 30, f"{page} to name it", box.tail)
    (tmp_path / "vastai").touch(mode=0o755)
    until(lambda: "no end is near" in box.ctl("when-done").stdout.splitlines()[0][:20], 30, "it to be found", box.tail)


@pytest.mark.timeout(120)
def test_an_open_session_holds_it_and_the_end_of_the_daemon_does_not_end_the_command(box: Box, tmp_path: Path) -> None:
    script = f"trap '' TERM; echo begun > {tmp_path}/told; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo over >> {tmp_path}/told"
    box.config(
        '[program.it]\ncommand = ["sh", "-c", "exit 0"]\n', extra=when_done(script, hold_while_logged_in=True, after_s=1.0)
    )
    with subprocess.Popen(["sshd: ada@pts/77", "1000"], executable=shutil.which("sleep")) as session:
        try:
            box.start()
            step(box, "begin")
            held = "this box is stopped once nobody is logged in (ada on pts/77"
            until(lambda: held in box.ctl("when-done").stdout, 60, "the session to be seen", box.tail)
            assert not (tmp_path / "told").exists()
        finally:
            session.kill()
    told = tmp_path / "told"
    until(lambda: told.exists() and told.read_text() == "begun\n", 60, "the command to begin", box.tail)
    box.stop_daemon()
    (tmp_path / "go").touch()
    until(lambda: told.read_text() == "begun\nover\n", 30, "the command to go on without the daemon")
