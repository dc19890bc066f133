"""What a cgroup of its own means for a worker, with controllers that a kernel enforces: the service as it was installed.

In the emulated box (`qemubox.py`): thirteen minutes on a busy machine, much of it booting and the start of the daemon.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from installed import CTL, STATE, UNIT
from labbox import ROOT
from qemubox import CHECKOUT, QemuBox, until

MB = 2**20
MEMORY_MB, PIDS_MAX, SLACK = 48, 40, 0.5
PYTHON = "/opt/extralife/current/.venv/bin/python"
CONFIG = f"""
[daemon]
state_dir = "/var/lib/extralife"
runtime_dir = "/run/extralife"
sample_period_s = 2.0
[level]
slots = 8
memory_mb = {MEMORY_MB}
[cgroups]
pids_max = {PIDS_MAX}
[program.counter]
command = ["{PYTHON}", "{CHECKOUT}/tests/lab/counter.py"]
[program.hog]
command = ["/usr/bin/python3", "-S", "/srv/hog.py", "200"]
autostart = false
progress = "none"
[program.crawler]
command = ["/usr/bin/python3", "-S", "/srv/hog.py", "60"]
autostart = false
progress = "none"
[program.forks]
command = ["/usr/bin/python3", "-S", "/srv/forks.py"]
autostart = false
progress = "none"
[program.hider]
command = ["/bin/sh", "/srv/hider.sh"]
autostart = false
progress = "none"
stop_grace_s = 3.0
[program.much]
command = ["/bin/sh", "-c", "while :; do :; done"]
autostart = false
progress = "none"
cpu_weight = 300
[program.little]
command = ["/bin/sh", "-c", "while :; do :; done"]
autostart = false
progress = "none"
"""
FILES = {
    "srv/checkout/tests/lab/counter.py": (ROOT / "tests/lab/counter.py").read_text(),
    # So many MiB, one after the other, and a child that has taken none of them.
    "srv/hog.py": "import os, sys, time\nif os.fork() == 0:\n    time.sleep(1e6)\nkept = []\n"
    "while len(kept) < int(sys.argv[1]):\n    kept.append(bytearray(b'x' * 2**20))\n    time.sleep(0.02)\ntime.sleep(1e6)\n",
    "srv/forks.py": "import os, time\nmade = 0\nwhile True:\n    try:\n        if os.fork() == 0:\n            time.sleep(1e6)\n"
    "        made += 1\n    except BlockingIOError:\n        break\nprint(f'refused after {made}', flush=True)\ntime.sleep(1e6)\n",
    # Out of its session, its environment and its family, and deaf.
    "srv/hider.sh": "trap '' TERM\n(env -i setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' &)\n"
    "(env -i setsid sh -c '(sleep 123456 &)' &)\nwhile :; do sleep 1; done\n",
}


@pytest.fixture(scope="module")
def box(own_kernel: QemuBox) -> QemuBox:
    until(lambda: own_kernel.show(UNIT, "ActiveState") == "active", 900, "the service to be ready")
    return own_kernel


def exits(box: QemuBox, name: str) -> list[dict[str, Any]]:
    return [each for each in box.facts("Exited") if each["program"] == name]


def start(box: QemuBox, name: str) -> str:
    """Start it; where its cgroup is."""
    box.run(*CTL, "start", name)
    return until(lambda: group(box, name), 120, f"the cgroup of {name}")


def group(box: QemuBox, name: str) -> str:
    return box.sh(f"ls -d /sys/fs/cgroup/extralife.slice/{UNIT}/worker-{name}-*", check=False).strip()


def figure(box: QemuBox, path: str, key: str) -> int:
    return int(re.search(rf"^{key} (\d+)$", box.read(path), re.MULTILINE)[1])


def test_the_controllers_are_on_and_a_worker_has_its_limits(box: QemuBox) -> None:
    told = box.status()["daemon"]["cgroups"]
    assert (told["on"], told["lacking"]) == (True, []), told
    assert {"cpu", "memory", "pids"} <= set(box.read(f"{told['path']}/cgroup.subtree_control").split())
    here = until(lambda: group(box, "counter"), 300, "the cgroup of counter")
    assert box.read(f"{here}/memory.max").strip() == str(MEMORY_MB * MB)
    assert box.read(f"{here}/memory.high").strip() == str(MEMORY_MB * MB)
    assert box.read(f"{here}/pids.max").strip() == str(PIDS_MAX)
    assert box.read(f"{here}/cpu.weight").strip() == "100"
    assert box.read(f"{here}/tree/memory.oom.group").strip() == "1"
    pid = until(lambda: box.program("counter")["pid"], 300, "counter to run")
    assert str(pid) in box.read(f"{here}/tree/cgroup.procs").split()


def test_what_wants_more_memory_is_ended_as_a_whole_and_told_as_its_own_doing(box: QemuBox) -> None:
    before = box.program("counter")
    start(box, "hog")
    exited = until(lambda: exits(box, "hog"), 600, "the kernel to end the hog")[0]
    print(f"hog: {exited}")
    assert exited["cause"] == "oom_killed"
    assert f"{MEMORY_MB} MiB" in exited["why"]
    assert exited["leftovers"] == [], "its child went with it (memory.oom.group)"
    assert exits(box, "counter") == []
    assert box.program("counter")["pid"] == before["pid"], "it was nobody else's misfortune"
    assert "Memory cgroup out of memory" in box.run("dmesg").stdout
    box.run(*CTL, "stop", "hog")


def test_what_forks_without_end_is_refused_by_its_own_limit(box: QemuBox) -> None:
    here = start(box, "forks")
    until(lambda: "refused after" in box.read(f"{STATE}/programs/forks/stdout.log"), 300, "fork to be refused")
    assert figure(box, f"{here}/pids.events", "max") >= 1
    assert int(box.read(f"{here}/pids.current")) == PIDS_MAX
    assert box.run("true").returncode == 0, "others can still be started"
    box.run(*CTL, "stop", "forks")
    until(lambda: not group(box, "forks"), 120, "all of them to be gone")


def test_a_stop_ends_what_has_hidden_from_its_parent(box: QemuBox) -> None:
    here = start(box, "hider")

    def grandchild() -> list[str]:  # not the shell that is about to start it
        return box.run("pgrep", "-f", "^sleep 123456", check=False).stdout.split()

    hidden = until(grandchild, 120, "the one that hides best")
    pids = until(
        lambda: (found := box.read(f"{here}/tree/cgroup.procs").split()) and len(found) >= 4 and found, 120, "all of them"
    )
    assert hidden[0] in pids
    box.run(*CTL, "stop", "hider")
    until(lambda: not group(box, "hider"), 120, "its cgroup to be gone")
    assert box.sh(f"ls -d {' '.join(f'/proc/{pid}' for pid in pids)}", check=False) == "", "not one of them lives"


def test_processors_are_shared_by_weight_and_pressure_is_read(box: QemuBox) -> None:
    places = {name: start(box, name) for name in ("much", "little")}
    assert box.read(f"{places['much']}/cpu.weight").strip() == "300"

    def used() -> dict[str, int]:
        return {name: figure(box, f"{place}/cpu.stat", "usage_usec") for name, place in places.items()}

    before = used()
    until(lambda: min(now - before[name] for name, now in used().items()) > 5_000_000, 600, "both to have had the processor")
    after = used()
    share = (after["much"] - before["much"]) / (after["little"] - before["little"])
    print(f"cpu.weight 300 : 100 gave {share:.2f} : 1")
    assert 2.2 < share < 3.8
    pressure = until(lambda: (box.program("little")["pressure"] or {}).get("cpu some"), 300, "pressure to be told")
    print(f"pressure of the one with less: cpu some {pressure}")
    assert pressure > 10.0
    for name in places:
        box.run(*CTL, "stop", name)


def test_with_slack_a_worker_is_slowed_before_it_is_ended(box: QemuBox) -> None:
    text = CONFIG.replace("[cgroups]", f"[cgroups]\nmemory_slack = {SLACK}")
    box.run("sh", "-c", 'printf %s "$1" >/etc/extralife/extralife.toml', "sh", text)
    box.run(*CTL, "update")
    here = start(box, "crawler")
    assert box.read(f"{here}/memory.high").strip() == str(MEMORY_MB * MB)
    assert box.read(f"{here}/memory.max").strip() == str(int(MEMORY_MB * MB * (1 + SLACK)))
    until(lambda: figure(box, f"{here}/tree/memory.events", "high") > 0 or
          figure(box, f"{here}/memory.events", "high") > 0, 600, "it to be slowed")  # fmt: skip
    assert exits(box, "crawler") == []
    box.run(*CTL, "stop", "crawler")
