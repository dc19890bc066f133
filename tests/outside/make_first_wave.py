"""How `first_wave/` was made: a real daemon with two real trainings, by the code of the day. Not to be run again.

What it left is read by every later version (`test_first_wave.py`): journal, sign of life, kept configuration, a backup and
one whole checkpoint. Run anew, it would record what the later version writes, and prove nothing.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from box import Box

KEPT = Path(__file__).parent / "first_wave"
CONFIG = """\
# Every section that there is.
[daemon]
state_dir = "{state}"
runtime_dir = "{runtime}"
sample_period_s = 0.5
alive_period_s = 1.0
log_level = "info"

[levels.light]
slots = 1
num_envs = 4
batch_size = 32
threads = 1
[levels.medium]
slots = 2

[load]
mode = "climb"
climb_s = 20.0
trial_s = 20.0
review_s = 5.0

[restart]
healthy_s = 20.0

[stall]
start_s = 120.0

[checkpoint]
min_s = 1.0
first_s = 1.0
max_s = 2.0

[divergence]
rollbacks = 2

[health]
on_exploding = "tell"

[gate]
timeout_s = 60.0

[prechecks]
margin_c = 5.0

[journal]
keep_days = 60

[backup]
calendar = "off"
keep = 3

[cost]
usd_per_hour = 1.5

[cgroups]
use = false

[alerts]
command = ["/bin/true"]

[training]
resolution = 42
network = "small"
replay_size = 2000
learning_starts = 200

[program.Catch]
priority = 10
steps = 100_000_000

[program.Paddle]
game = "Catch"
algo = "ppo"
steps = 100_000_000

[program.script]
command = ["/bin/sleep", "1000"]
progress = "none"
autostart = false
"""


def night(box):
    box.config_file.write_text(CONFIG.format(state=box.state, runtime=box.runtime))
    box.start()
    box.wait_fact("Checkpointed", "Catch", timeout_s=90)
    box.wait_fact("Checkpointed", "Paddle", timeout_s=120)
    resumes = len(box.facts("Resumed", "Catch"))
    os.kill(box.program("Catch")["pid"], signal.SIGKILL)
    box.wait_fact("Resumed", "Catch", count=resumes + 1, timeout_s=90)
    print(box.ctl("backup", "--label", "first wave", timeout_s=60).stdout)
    print(box.ctl("stop", "Paddle", timeout_s=60).stdout)
    print(box.ctl("start", "script").stdout)
    box.kill_daemon()
    box.start()
    box.wait_fact("DaemonStarted", count=2, timeout_s=60)
    time.sleep(10.0)
    print(box.ctl("status").stdout)
    print(box.ctl("history", "-n", "100").stdout)


def keep(box):
    """The journal as SQLite's own backup has it; the other files as they are."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "journal.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{box.state}/journal.sqlite?mode=ro", uri=True)) as db:
            with contextlib.closing(sqlite3.connect(copy)) as other:
                db.backup(other)
        files = {"state/journal.sqlite": copy, "extralife.toml": box.config_file}
        for path in sorted(box.state.iterdir()):
            if path.name in {"alive", "last-config", "reboot_alerts.log"}:
                files |= {
                    f"state/{each.relative_to(box.state)}": each for each in (path, *path.rglob("*")) if each.is_file()
                }
        (backup,) = (box.state / "backups").glob("*-first-wave")
        files |= {f"state/{each.relative_to(box.state)}": each for each in backup.rglob("*") if each.is_file()}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:xz") as archive:
            for name, path in files.items():
                print(f"{path.stat().st_size:>9} {name}")
                archive.add(path, name, filter=_plain)
    (KEPT / "state.tar.xz").write_bytes(data.getvalue())
    known = {"state": str(box.state), "runtime": str(box.runtime), "boot": (box.boot_files / "boot_id").read_text().strip()}
    (KEPT / "known.json").write_text(json.dumps(known, indent=1) + "\n")


def _plain(member):
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main():
    directory = Path(tempfile.mkdtemp(prefix="xl-first-wave-"))
    box = Box(directory)
    try:
        night(box)
        keep(box)
    finally:
        box.close()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
