"""After a power cut: time from the service's start to each program's first new update, compared with bare workers.

    sudo python bench/power_cut.py [--rounds 3] [--json FILE]

It also measures the time to READY. It uses the box of tests/lab (a real systemd, a real loss of power; it prints what it
needs), with Pong and Breakout. Each round cuts the power twice while both train. After one cut extralife.service is started
and resumes them. After the other cut the same two command lines are started at the same time without a supervisor, on the
same kind of checkpoints. Both start only after the box has booted, so that the boot itself does not count. Targets: READY
within 1 s; at most 1.3 times as long as the bare workers. It also prints the CPU seconds of all processes until then, which
hardly change on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "lab"))

from installed import CONFIG, GAMES, UNIT, Installed
from labbox import CHECKOUT, box_python, unfit, until

ROOT = Path(__file__).resolve().parents[1]
RATIO, READY_S = 1.3, 1.0
_OF_PROCESS = """
import json, os, sys
found = []
for name, pid in zip(sys.argv[1::2], sys.argv[2::2]):
    argv = open(f"/proc/{pid}/cmdline").read().split("\\0")[:-1]
    environ = dict(line.split("=", 1) for line in open(f"/proc/{pid}/environ").read().split("\\0") if "=" in line)
    found.append({"name": name, "argv": argv, "environ": environ, "cwd": os.readlink(f"/proc/{pid}/cwd")})
print(json.dumps(found))
"""


def train(box: Installed) -> list[dict]:
    """Wait until both train and have saved since this start; returns the command and environment of each."""
    box.wait_until_trains()
    since = {name: program["ckpt_step"] or 0 for name, program in box.programs().items()}
    until(lambda: all((p["ckpt_step"] or 0) > since[n] for n, p in box.programs().items()), 120, "a checkpoint of each")
    pids = [word for name, pids in box.workers().items() for word in (name, str(pids[0]))]
    found: list[dict] = json.loads(box.python(_OF_PROCESS, *pids))
    return found


def measured(box: Installed, *words: str, given: str = "") -> dict:
    script = f"{CHECKOUT}/tests/lab/first_update.py"
    if given:
        box.write("/run/given", given)
    done = box.run(
        "sh", "-c", f'exec "$0" "$@" {"</run/given" if given else ""}', str(box_python()), script, *words, timeout_s=400
    )
    found: dict = json.loads(done.stdout)
    return found


def cut(box: Installed) -> None:
    box.cut_power()
    box.boot()
    assert box.show(UNIT, "ActiveState") == "inactive"


def one_round(box: Installed) -> dict[str, dict]:
    started = train(box)
    cut(box)
    bare = measured(box, "bare", given=json.dumps(started))
    box.run("systemctl", "start", UNIT)
    train(box)
    cut(box)
    return {"bare": bare, "service": measured(box, "service", *GAMES), "load": {"load": os.getloadavg()[0]}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / "power_cut.json"))
    options = parser.parse_args()
    if unfit():
        raise SystemExit(f"no box can be made here: {unfit()}")
    rounds = []
    with tempfile.TemporaryDirectory(prefix="box-") as directory:
        box = Installed(Path(directory))
        try:
            box.configure(CONFIG)
            box.install()
            box.run("systemctl", "disable", UNIT)
            for number in range(1, options.rounds + 1):
                found = one_round(box)
                rounds.append(found)
                service, bare = found["service"], found["bare"]
                print(
                    f"round {number}: READY {service['ready_s']:.2f} s ({service['ready_cpu_s']:.2f} s of CPU), "
                    f"'{service['status']}'; all train again {service['all_s']:.1f} s, "
                    f"bare {bare['all_s']:.1f} s, {service['all_s'] / bare['all_s']:.2f}x, "
                    f"{service['all_cpu_s'] / bare['all_cpu_s']:.2f}x in CPU; load {found['load']['load']:.1f}",
                    flush=True,
                )
        finally:
            box.close()
    report(rounds, Path(options.json))


def report(rounds: list[dict], path: Path) -> None:
    middle = {
        "ready_cpu_s": statistics.median(each["service"]["ready_cpu_s"] for each in rounds),
        "ready_s": statistics.median(each["service"]["ready_s"] for each in rounds),
        "cpu_ratio": statistics.median(each["service"]["all_cpu_s"] / each["bare"]["all_cpu_s"] for each in rounds),
        "ratio": statistics.median(each["service"]["all_s"] / each["bare"]["all_s"] for each in rounds),
    }
    print(
        f"\nmedians of {len(rounds)}; seconds from the start\n{'':<10}{'first beat':>12}{'trains':>10}{'first update':>14}"
    )
    for kind in ("service", "bare"):
        for name in GAMES:
            at = [
                statistics.median(each[kind]["programs"][name][what] for each in rounds)
                for what in ("first beat", "trains", "updates")
            ]
            print(f"{kind} {name:<9}" + "".join(f"{value:>12.2f}" for value in at))
    print(
        f"READY after {middle['ready_s']:.2f} s (at most {READY_S:g}), {middle['ready_cpu_s']:.2f} s of CPU; "
        f"{middle['ratio']:.2f} times bare (at most {RATIO:g}), {middle['cpu_ratio']:.2f} times in CPU"
    )
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"rounds": rounds, **middle, "revision": revision}, indent=1) + "\n")


if __name__ == "__main__":
    main()
