"""An orderly reboot of the host while two games train: the delay by the service, compared with its slowest save.

    sudo python bench/orderly_reboot.py [--rounds 3] [--json FILE]

It uses the box of tests/lab (a real systemd and logind; it prints what it needs). Each round reboots the box twice, once
with the service stopped and once while Pong and Breakout train. The delay ("held up") is the difference. The slowest save
is the time from the announcement to the last worker's end, from the facts in the journal. Target: a delay of at most the
slowest save plus one second. Without polkit on this machine the daemon may not delay a shutdown; the table shows that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "lab"))

from installed import CONFIG, UNIT, Installed
from labbox import unfit

ROOT = Path(__file__).resolve().parents[1]
MORE_S = 1.0


def one_round(box: Installed) -> dict[str, float | bool]:
    box.run("systemctl", "stop", UNIT)
    bare_s = box.go_down()
    box.boot()
    box.wait_until_trains()
    delays = "extralife" in box.run("systemd-inhibit", "--list", "--no-pager", check=False).stdout
    down_s = box.go_down()
    box.boot()
    box.wait_until_trains()
    save_s = box.facts("DaemonStopped")[-1]["at_s"] - box.facts("DaemonStopping")[-1]["at_s"]
    return {"bare_s": bare_s, "down_s": down_s, "save_s": save_s, "held_up_s": down_s - bare_s, "delay_lock": delays}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / "orderly_reboot.json"))
    options = parser.parse_args()
    if unfit():
        raise SystemExit(f"no box can be made here: {unfit()}")
    rounds = []
    with tempfile.TemporaryDirectory(prefix="box-") as directory:
        box = Installed(Path(directory))
        try:
            box.configure(CONFIG)
            box.install()
            print(f"{'round':<7}{'without':>9}{'with':>9}{'held up':>9}{'save':>9}  delay lock", flush=True)
            for number in range(1, options.rounds + 1):
                found = one_round(box)
                rounds.append(found)
                seconds = "".join(f"{found[name]:>7.2f} s" for name in ("bare_s", "down_s", "held_up_s", "save_s"))
                print(f"{number:<7}{seconds}  {'granted' if found['delay_lock'] else 'refused'}", flush=True)
        finally:
            box.close()
    return report(rounds, Path(options.json))


def report(rounds: list[dict[str, float | bool]], path: Path) -> int:
    more_s = statistics.median(each["held_up_s"] - each["save_s"] for each in rounds)
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"rounds": rounds, "more_than_save_s": more_s, "revision": revision}, indent=1) + "\n")
    print(f"held up {more_s:.2f} s more than the slowest save takes (median of {len(rounds)}; at most {MORE_S:g} s)")
    return 0 if more_s <= MORE_S else 1


if __name__ == "__main__":
    sys.exit(main())
