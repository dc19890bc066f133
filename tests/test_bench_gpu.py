"""bench/gpu.py without a GPU: it says so; every part's own code runs in small; a part that hangs or crashes spoils no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT

ABSENT = {"gate", "hidden GPU", "NVML by phase"} | {
    f"{algo}, 4 envs, {what}" for algo in ("dqn", "ppo", "pqn") for what in ("without CUDA graphs", "fp16")
}
# What a part may do: gpu_parts.py's place is taken by this. The one that hangs leaves a process in a session of its own.
PARTS = """
import json, subprocess, sys, time
scratch, what = sys.argv[4], sys.argv[5]
if what == "crash":
    assert "/of/the/caller" in sys.path
    raise SystemError("the driver is gone")
if what == "hang":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", scratch], start_new_session=True)
    time.sleep(600)
print("a library prints something")
print(json.dumps({"figures": {"steps/s": 1234.5}, "absent": [], "failed": ""}))
"""
PLAY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import gpu, sides
from pathlib import Path
gpu.BENCH = Path(sys.argv[2])
for name, limit_s in (("hang", 1.5), ("crash", 60.0), ("fine", 60.0)):
    print(gpu.row(gpu.play(gpu.Part(name, (name,)), limit_s, "cpu", "tiny")))
print([pid for pid in sides.pids_of(sys.argv[2] + "/extralife-gpu-") if pid != os.getpid()])
"""


def bench(*words: str | Path, timeout_s: float, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "bench" / "gpu.py", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env)


def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    done = bench(timeout_s=120, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (77, "")
    assert done.stdout == "There is no GPU here that torch can use: bench/gpu.py measures nothing without one.\n"


def test_a_part_that_hangs_or_crashes_is_one_row_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "gpu_parts.py").write_text(PARTS)
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": "/of/the/caller"}
    command = [sys.executable, "-c", PLAY, ROOT / "bench", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    hang, crash, fine, left = done.stdout.splitlines()
    assert hang.split()[:2] == ["hang", "FAILED"], done.stderr
    assert hang.endswith("not done after 2 s")
    assert crash.endswith("exit status 1: SystemError: the driver is gone")
    assert fine.split()[:2] == ["fine", "ok"]
    assert fine.endswith("steps/s 1,234")
    assert left == "[]", "a process in a session of its own has ended too"
    assert not list(tmp_path.glob("extralife-gpu-*")), "and so has its directory"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_runs_in_small_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = bench("--device", "cpu", "--size", "tiny", "--minutes", "25", "--json", out, timeout_s=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {each["name"]: each for each in json.loads(out.read_text())["parts"]}
    without = {name for name, each in outcomes.items() if not each["figures"]}
    assert {name for name in without if not name.startswith("SB3")} == ABSENT, "only what needs a GPU is not there"
    assert all(outcomes[name]["absent"] for name in without)
    assert outcomes["out of memory"]["figures"]["lowered to"] < outcomes["out of memory"]["figures"]["batch"]
    assert "\nNot there:\n" in done.stdout
    for name in without:
        assert f"\n  {name}: " in done.stdout
