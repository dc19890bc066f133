"""Cost and benefit of off-site copies, with two real games: time from a notice to a copy, slower training, a new box.

    python bench/offsite.py                          # 4 minutes; as root with systemd-nspawn 3 more: boxes are installed
    python bench/offsite.py --rounds 1 --no-install  # about one minute

* Time from a notice (a file that appears; it is polled every 2 s) to the resulting copy: all programs save first.
* Steps a second with continuous copies and without copies, in alternating turns of the same run. Other load affects both
  alike; the lowest and the highest turn show its variation. On a busy machine, look at the copies' share of the CPU time
  of games and copies.
* Time from `deploy/install.sh` until both games train, plain and `--from-offsite`, on boxes of tests/lab. The time for
  reading the data alone is that of `offsite restore` of the same copy.

restic writes into a directory of the same disk. Prints a table and writes bench/results/offsite.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from sides import ROOT, end, table, wait_for, write_json

GAMES = ("Breakout", "Pong")
NEEDED_S = 300.0
CONFIG = """
[daemon]
state_dir = "{here}/state"
runtime_dir = "{here}/run"
[level]
slots = 2
num_envs = 16
batch_size = 256
threads = 1
[notice]
file = "{here}/end"
{offsite}
[program.Pong]
[program.Breakout]
"""
OFFSITE = """
[offsite]
repository = "{repository}"
password_file = "{password}"
every_s = 86400.0
forget = "off"
check = "off"
"""


class Trained:
    """A daemon with two games, and a repository."""

    def __init__(self, here: Path) -> None:
        self.here = here
        (here / "password").write_text("correct horse\n")
        (here / "password").chmod(0o600)
        offsite = OFFSITE.format(repository=here / "repo", password=here / "password")
        (here / "x.toml").write_text(CONFIG.format(here=here, offsite=offsite))
        self.ctl("offsite", "init")
        started = [sys.executable, "-m", "supervisor", "-c", str(here / "x.toml"), "--detach"]
        subprocess.run(started, cwd=ROOT, check=True, capture_output=True)

    def ctl(self, *words: str) -> str:
        command = [sys.executable, "-m", "supervisor.ctl", "-c", str(self.here / "x.toml"), *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=NEEDED_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ctl("status", "--json"))
        return found

    def steps(self) -> tuple[float, int]:
        """(time, steps of both games together)."""
        found = self.status()
        return time.monotonic(), sum(each["steps"] or 0 for each in found["programs"])

    def processor_s(self) -> tuple[float, float]:
        """(CPU seconds of both games, CPU seconds of the daemon and its ended children)."""
        found = self.status()
        return sum(_processor_s(each["pid"]) for each in found["programs"]), _processor_s(
            found["daemon"]["pid"], children=True
        )

    def facts(self, kind: str) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.here}/state/journal.sqlite?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT wall_s, body FROM fact WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
        return [{"wall_s": wall_s, **json.loads(body)} for wall_s, body in rows]

    def wait_until_trains(self) -> None:
        def look() -> bool:
            programs = self.status()["programs"]
            return len([p for p in programs if p["worker_phase"] == "training" and (p["steps"] or 0) > 2000]) == len(GAMES)

        wait_for(look, NEEDED_S, 0.5)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.ctl("shutdown")
        end(str(self.here))


def _processor_s(pid: int, *, children: bool = False) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def from_notice_to_copy(box: Trained) -> dict[str, float]:
    """Seconds from a notice until it is noticed, until all programs have saved, and until the copy is in the repository."""
    copied, announced = len(box.facts("OffsiteCopied")), len(box.facts("EndAnnounced"))
    saved = dict.fromkeys(GAMES, 0)
    began_wall_s, began_s = time.time(), time.monotonic()
    (box.here / "end").write_text("3600 a bench")
    wait_for(lambda: len(box.facts("OffsiteCopied")) > copied, NEEDED_S, 0.05)
    took_s = time.monotonic() - began_s
    heard_s = box.facts("EndAnnounced")[announced]["wall_s"] - began_wall_s
    asked_s = [each for each in box.facts("OffsiteAsked") if each["cause"] == "notice"][-1]["wall_s"] - began_wall_s
    newest = box.facts("OffsiteCopied")[-1]
    if newest["cause"] != "notice" or newest["steps"].keys() != saved.keys():
        raise RuntimeError(f"another copy came between: {newest}")
    (box.here / "end").unlink()
    wait_for(lambda: len(box.facts("EndCalledOff")) > announced, NEEDED_S, 0.1)
    return {"heard_s": heard_s, "saved_s": asked_s, "copied_s": took_s, "mb": newest["size_bytes"] / 1e6}


def turns(box: Trained, turn_s: float, pairs: int) -> dict[str, Any]:
    """Steps a second in turns without and with copies, the number of copies, and their share of the CPU time."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[tuple[float, float, float]]] = {
        False: [],
        True: [],
    }  # (wall s, the games' CPU s, the daemon's CPU s)
    made = 0
    for number in range(2 * pairs):
        copying = number % 2 == 1
        games_s, daemon_s = box.processor_s()
        began_s, before = box.steps()
        while time.monotonic() < began_s + turn_s:
            if copying:
                box.ctl("offsite", "now")
                made += 1
            else:
                time.sleep(0.2)
                box.status()  # the command that requests a copy polls as often
        ended_s, after = box.steps()
        rates[copying].append((after - before) / (ended_s - began_s))
        games_after_s, daemon_after_s = box.processor_s()
        spent[copying].append((ended_s - began_s, games_after_s - games_s, daemon_after_s - daemon_s))
    plain, slowed = statistics.mean(rates[False]), statistics.mean(rates[True])
    idle_s, _, usual_s = map(sum, zip(*spent[False], strict=True))
    wall_s, games_s, daemon_s = map(sum, zip(*spent[True], strict=True))
    copies_s = daemon_s - usual_s * wall_s / idle_s
    return {
        "without": rates[False], "with": rates[True], "slower_percent": 100.0 * (1.0 - slowed / plain), "copies": made,
        "copies_processor_s": copies_s, "copies_part_percent": 100.0 * copies_s / (copies_s + games_s),
    }  # fmt: skip


def installed(here: Path) -> dict[str, Any]:
    """Seconds from install.sh until both games train: plain, from a copy; and seconds for reading that copy alone."""
    sys.path[:0] = [str(ROOT / "tests" / "lab"), str(ROOT / "tests"), str(ROOT)]
    from installed import CONFIG as LAB_CONFIG
    from installed import Installed
    from labbox import unfit
    from test_lab_offsite import DROP_IN, PASSWORD, REPO, carried
    from test_lab_offsite import OFFSITE as LAB_OFFSITE

    if why := unfit():
        return {"left_out": why}
    boxes: list[Installed] = []

    def box() -> Installed:
        (here / f"box{len(boxes)}").mkdir()
        boxes.append(Installed(here / f"box{len(boxes)}"))
        boxes[-1].write("/etc/systemd/system/extralife.service.d/copies.conf", DROP_IN)
        boxes[-1].write("/srv/password", "correct horse\n")
        boxes[-1].run("install", "-d", "-m", "777", REPO)
        return boxes[-1]

    try:
        first = box()
        first.write("/srv/mine.toml", LAB_CONFIG)
        plain_s = _timed(lambda: (first.install("--config", "/srv/mine.toml"), first.wait_until_trains(240)))
        first.run("install", "-o", "extralife", "-m", "600", "/srv/password", PASSWORD)
        first.configure(LAB_CONFIG + LAB_OFFSITE)
        first.ctl("offsite", "init", check=True)
        first.ctl("update", check=True)
        first.ctl("offsite", "now", check=True)
        second = box()
        carried(first.from_outside(REPO), second.from_outside(REPO))
        second.run("chmod", "-R", "a+rwX", REPO)
        first.cut_power()
        wanted = ("--from-offsite", REPO, "--password-file", "/srv/password")
        again_s = _timed(lambda: (second.install(*wanted), second.wait_until_trains(240)))
        read_s = _timed(lambda: second.ctl("offsite", "restore", "--to", "/srv/read", check=True))
        return {"plain_s": plain_s, "from_offsite_s": again_s, "reading_s": read_s, "ratio": (again_s - read_s) / plain_s}
    finally:
        for each in boxes:
            each.close()


def _timed(do: Any) -> float:
    began_s = time.monotonic()
    do()
    return time.monotonic() - began_s


@contextlib.contextmanager
def trained() -> Iterator[Trained]:
    here = Path(tempfile.mkdtemp(prefix="xl-offsite-"))
    box = Trained(here)
    try:
        box.wait_until_trains()
        box.ctl("offsite", "now")
        yield box
    finally:
        box.close()
        shutil.rmtree(here, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="notices, and pairs of turns")
    parser.add_argument("--turn", type=float, default=15.0, help="seconds of a turn")
    parser.add_argument("--no-install", action="store_true", help="install no boxes")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with trained() as box:
        notices = [from_notice_to_copy(box) for _ in range(options.rounds)]
        found = turns(box, options.turn, options.rounds)
    rows: dict[str, Any] = {
        f"notice {number + 1}: heard / saved / copied, s": " / ".join(
            f"{each[k]:.1f}" for k in ("heard_s", "saved_s", "copied_s")
        )
        for number, each in enumerate(notices)
    }
    rows["worst notice to copy, s"] = max(each["copied_s"] for each in notices)
    rows["steps/s without copies (lowest, highest)"] = f"{min(found['without']):.0f}, {max(found['without']):.0f}"
    rows["steps/s with copies (lowest, highest)"] = f"{min(found['with']):.0f}, {max(found['with']):.0f}"
    rows["copies in those turns"] = found["copies"]
    rows["slower while copies are made, %"] = found["slower_percent"]
    rows["copies' part of the processor time of games and copies, %"] = found["copies_part_percent"]
    rows["processor time of a copy, s"] = found["copies_processor_s"] / max(1, found["copies"])
    result: dict[str, Any] = {"load": load, "notices": notices, "turns": found}
    if not options.no_install:
        with tempfile.TemporaryDirectory(prefix="xl-offsite-") as here:
            result["install"] = installed(Path(here))
        rows |= {f"install: {key}": value for key, value in result["install"].items()}
    rows["load of the machine at the beginning"] = load
    print(table({"two games": rows}))
    write_json("offsite", result)


if __name__ == "__main__":
    main()
