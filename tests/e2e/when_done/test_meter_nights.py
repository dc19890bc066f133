"""Fifteen short nights of the meter with real daemons, commands, copies and kills, by seed; the oracle reads files, not facts.

`METER_FIRST=16 METER_NIGHTS=15 tests/run slow tests/e2e/when_done/test_meter_nights.py` plays others.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from box import PATIENCE, Box, until
from cheap_restic import make_cheap, section

FIRST, NIGHTS = int(os.environ.get("METER_FIRST", "1")), int(os.environ.get("METER_NIGHTS", "15"))
# It needs four seconds for a save, which its `stop_grace_s` would not allow.
SAVER = """
import os, signal, time
from pathlib import Path
asked = False
def leave(*_):
    global asked
    asked = True
signal.signal(signal.SIGTERM, leave)
Path("out").mkdir(exist_ok=True)
step = 0
while not asked:
    step += 1
    time.sleep(0.02)
Path("last").write_text(str(step))
time.sleep(4)
Path("aside").write_text(str(step))
os.rename("aside", f"out/{step}.json")
"""
COMMAND = """
echo begin >> {here}/ran
grep -slza '^EXTRALIFE_RUN_DIR={box}' /proc/[0-9]*/environ >> {here}/alive
ls {here}/work/out > {here}/saved 2>/dev/null
mkdir {here}/lock || echo double >> {here}/ran
{work}
rmdir {here}/lock
echo end >> {here}/ran
{end}
"""
FATES = {
    "done": 'command = ["sh", "-c", "sleep 1"]', "exited": 'command = ["sh", "-c", "exit 3"]\nrestart = "never"',
    "gpu": 'command = ["sleep", "900"]\nmin_free_mb = 1', "dead": 'command = ["sh", "-c", "exit 1"]',
    "saver": "", "on": 'command = ["sleep", "900"]',
}  # fmt: skip
NIGHTS_OF = {
    "done": (["done"], ["done", "exited"]),
    "stuck": (["done", "gpu"], ["dead"], ["done", "dead", "gpu"]),
    "budget": (["saver"],),
}


def config(box: Box, here: Path, dice: random.Random) -> tuple[str, float, bool]:
    """(cause, after_s, whether copies are made) of this night, whose configuration is written."""
    cause, after_s = dice.choice(list(NIGHTS_OF)), dice.choice([0.0, 1.0, 4.0])
    fates, copies = dice.choice(NIGHTS_OF[cause]), dice.random() < 0.5 and shutil.which("restic") is not None
    (here / "work").mkdir()
    (here / "work" / "saver.py").write_text(SAVER)
    FATES["saver"] = (
        f'command = {json.dumps([sys.executable, "saver.py"])}\ndirectory = "{here}/work"\nstop_grace_s = 1.0\n'
        "checkpoint_glob = 'out/*.json'\ncheckpoint_step = '(\\d+)[.]json'"
    )
    programs = "".join(f'[program.{fate}]\n{FATES[fate]}\nprogress = "none"\n' for fate in fates)
    if dice.random() < 0.5:
        programs += '[program.board]\ncommand = ["sleep", "900"]\nkind = "service"\n'
    end = dice.choice(["exit 0", "exit 3", f"(sleep 1; echo later >> {here}/ran) &"])
    script = COMMAND.format(here=here, box=box.directory, work=dice.choice([":", "sleep 2"]), end=end)
    keys = {"command": ["sh", "-c", script], "when": [cause], "after_s": after_s, "timeout_s": 5.0}
    cost = {"usd_per_hour": 3600.0} | ({"budget_usd": 6.0} if cause == "budget" else {})
    refuses = f"[ -e {here}/first ] || {{ touch {here}/first; exit 1; }}; " if dice.random() < 0.3 else ""
    alerts = {"command": ["sh", "-c", f"{refuses}cat >> {here}/alerts; echo >> {here}/alerts"], "kinds": ["reboot", "done"]}
    retry = {"window_deaths": 2, "first_delay_s": 0.1, "base_delay_s": 0.1, "slow_retry_s": 1.0, "slow_retry_max_s": 1.0}
    tables = {"when_done": keys, "cost": cost, "alerts": alerts, "restart": retry}
    extra = "\n".join(
        f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
        for name, table in tables.items()
    )
    box.config(programs, extra=f"{section(here / 'off', 600.0) if copies else ''}\n{extra}")
    if copies:
        box.ctl("offsite", "init", timeout_s=60, check=True)
        make_cheap(here / "off" / "repo", "correct horse")
    return cause, after_s, copies


def steps(box: Box, name: str) -> list[dict[str, Any]]:
    return [each for each in box.facts("WhenDoneStep") if each["step"] == name]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + NIGHTS))
def test_a_real_night_ends_once_in_time_and_with_all_saved(box: Box, tmp_path: Path, seed: int) -> None:
    dice, here = random.Random(seed), tmp_path / "here"
    (here / "off").mkdir(parents=True)
    cause, after_s, copies = config(box, here, dice)
    box.start()
    killed_at, word = dice.choice(["", "", "begin", "leave", "run"]), dice.choice(["", "", "delay", "cancel", "now"])
    again = False
    until(lambda: steps(box, "begin"), 90, "the end", box.tail)
    if word == "delay":
        box.ctl("when-done", "delay", "6s")
    elif word:
        box.ctl("when-done", word)
    if word == "cancel" and steps(box, "cancel"):
        box.ctl("when-done", "now")
    if killed_at:
        until(lambda: steps(box, killed_at), 120, killed_at, box.tail)
        box.kill_daemon()
        again = bool(steps(box, "run"))  # it cannot know how the command ended
        box.start()
    until(lambda: (here / "ran").exists() and "end" in (here / "ran").read_text(), 150, "the command", box.tail)
    until(lambda: steps(box, "ended") or again, 60, "its result", box.tail)
    ran = (here / "ran").read_text().split()
    assert ran.count("begin") == 1 or again, "once"
    assert "double" not in ran
    assert (here / "alive").read_text() == "", "no program runs any more"
    if cause == "budget":
        assert f"{(here / 'work' / 'last').read_text()}.json" in (here / "saved").read_text().split()
    begun, run = steps(box, "begin")[-1], steps(box, "run")[-1]
    waits_s = 0.0 if steps(box, "now") else max(after_s, 6.0 if steps(box, "delay") else 0.0)
    assert killed_at or word == "now" or run["at_s"] - steps(box, "begin")[0]["at_s"] >= after_s
    took_s = sum(each["took_s"] for each in box.facts("OffsiteCopied"))
    assert again or run["at_s"] - (begun["at_s"] + waits_s) <= (60.0 + took_s) * PATIENCE
    if copies:
        copy = next(each for each in reversed(box.facts("OffsiteCopied")) if each["at_s"] <= run["at_s"])
        assert copy["verified"]
        assert copy["as_of_s"] >= max(each["at_s"] for each in box.facts("Exited") if each["at_s"] < run["at_s"]) - 0.01
    sent = [json.loads(line)["kind"] for line in (here / "alerts").read_text().splitlines() if line]
    assert 1 <= sent.count("done") <= 3 * len(steps(box, "begin"))
    if ran[-1] == "later" or "later >>" in box.config_file.read_text():
        until(lambda: "later" in (here / "ran").read_text(), 30, "what the command left in the background")
