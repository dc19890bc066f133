"""Workers that fall ill rather than die plainly: each told apart, healed by its own rule, explained with its evidence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import FLOOR_S, LONG_S, PATIENCE, ROOT, Box, until

PROGRAMS = ROOT / "tests" / "e2e" / "programs"
QUICK = f"""slow_for_s = 0.5
slow_restart_s = {1.5 * PATIENCE}
[restart]
base_delay_s = 0.05
max_delay_s = 0.2
window_deaths = 20
[divergence]
nan_for_s = 0.5
"""


def ailing(name: str, fault: str, *flags: str, keys: str = "") -> str:
    command = json.dumps([sys.executable, str(PROGRAMS / "ailing.py"), fault, *flags])
    grace_s = 3.0 if fault == "spin" else LONG_S  # the others leave by themselves, if late on a busy machine
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = {grace_s}\n{keys}\n'


def real(name: str, fault: str, amount: int, *flags: str) -> str:
    """The real worker in surroundings that make it fail."""
    flags = (
        "--program", "Catch", "--num-envs", "8", "--threads", "1", "--learning-starts", "200", "--steps", "100000000",
        *flags,
    )  # fmt: skip
    command = json.dumps([sys.executable, str(PROGRAMS / "real_worker.py"), fault, str(amount), *flags])
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstall_timeout_s = 60.0\n'


def explained(box: Box, name: str) -> str:
    return box.ctl("explain", name, "-n", "20", check=True).stdout


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One daemon with all of the small trainers at once, each with an illness of its own: no cause is taken for another."""
    box = Box(tmp_path_factory.mktemp("ward"))
    faults = ("spin", "memory", "crawl", "breather", "poison", "nan", "no-cuda")
    box.config("".join(ailing(fault, fault) for fault in faults), slots=len(faults), extra=QUICK, floor_s=FLOOR_S)
    box.config_file.write_text(box.config_file.read_text().replace("sample_period_s = 0.2", "sample_period_s = 0.04"))
    try:
        box.start()
        yield box
    finally:
        box.close()


@pytest.mark.fault("no-progress")
def test_a_loop_that_spins_without_a_step_is_a_hang_although_its_side_thread_beats(ward: Box) -> None:
    assert ward.wait_fact("Stalled", "spin")["stall"] == "hang", "its other threads live: nothing holds the GIL"
    assert ward.wait_fact("Exited", "spin")["cause"] == "stalled"
    told = explained(ward, "spin")
    assert "its other threads run" in told
    assert "in spin_without_a_step" in told, "all-thread stacks name the function"


@pytest.mark.fault("memory-error")
def test_a_memory_error_is_answered_with_smaller_batches_until_one_fits(ward: Box) -> None:
    ward.wait_fact("BatchLowered", "memory", count=2)
    program = until(
        lambda: (p := ward.program("memory")).get("batch_size") == 16 and p["steps"] > 80 and p, 20, "it to train"
    )
    assert program["lowered_batch"] == 16
    assert [fact["batch_size"] for fact in ward.facts("BatchLowered", "memory")] == [32, 16]
    assert [fact["cause"] for fact in ward.facts("Exited", "memory")] == ["out_of_memory"] * 2
    told = explained(ward, "memory")
    assert "ran out of the host's memory, exit code 1: MemoryError" in told
    assert "ran out of memory with batch 64 at level light: 32 from now on" in told
    assert "batch       16 at level" in told
    assert "bytearray(batch << 24)" in told, "its traceback"


@pytest.mark.fault("slow")
def test_a_crawl_is_reported_and_looked_into_and_started_again_when_it_lasts_alone(ward: Box) -> None:
    ward.wait_fact("Slowed", "breather")
    (ward.state / "programs" / "breather" / "go-on").touch()
    ward.wait_fact("PaceRegained", "breather")
    assert not ward.facts("Exited", "breather"), "slow is no reason to die"
    asked = ward.wait_fact("StopIntended", "crawl")
    assert asked["reason"] == "slow"
    assert ward.wait_fact("Resumed", "crawl", count=2)["step"] >= 300
    assert [(fact["cause"], fact["counted"]) for fact in ward.facts("Exited", "crawl")] == [("stopped", False)]
    told = explained(ward, "crawl")
    assert "20 steps/s for" in told
    assert "evidence taken while slow" in told
    assert "in fall_ill" in told or "in main" in told
    assert "host: load" in told
    assert "saves and restarts" in told


@pytest.mark.fault("slower-than-before")
def test_an_attempt_that_is_slower_than_earlier_ones_is_reported_with_its_last_warning(ward: Box) -> None:
    ward.wait_fact("PaceLearned", "no-cuda")
    os.kill(ward.program("no-cuda")["pid"], signal.SIGKILL)
    slowed = ward.wait_fact("Slowed", "no-cuda")
    assert slowed["anew"]
    assert "usually 100 steps/s in earlier attempts" in slowed["why"]
    until(lambda: "CUDA unknown error" in ward.program("no-cuda")["why"], 20, "its warning")
    needs = json.loads(ward.ctl("report", "--json", check=True).stdout)["needs"]
    assert any(each.startswith("no-cuda: ") and "CUDA unknown error" in each for each in needs), needs


@pytest.mark.fault("checkpoint-poison")
def test_a_checkpoint_that_kills_whoever_loads_it_is_set_aside_after_three_deaths(ward: Box) -> None:
    quarantined = ward.wait_fact("CheckpointQuarantined", "poison")
    assert quarantined["step"] == 100
    until(lambda: any(f["step"] == 50 for f in ward.facts("Resumed", "poison")), 20, "it to resume from the one before")
    deaths = [fact["why"] for fact in ward.facts("Exited", "poison")]
    assert len(deaths) == 4
    assert all("cannot live with checkpoint 100" in why for why in deaths[1:])
    kept = [path.name for path in (ward.state / "programs" / "poison" / "checkpoints").glob("*.bad")]
    assert [name.split(".")[0] for name in kept] == ["ckpt-100"], "kept, not deleted"
    told = explained(ward, "poison")
    assert "3 deaths in a row after resuming from step 100: the checkpoint before it is used" in told
    assert "cannot live with checkpoint 100" in told


@pytest.mark.fault("nan")
def test_a_worker_that_beats_on_with_nan_is_ended_and_rolled_back(ward: Box) -> None:
    back = ward.wait_fact("RolledBack", "nan")
    assert (back["from_step"], back["number"]) == (100, 1)
    assert ward.wait_fact("Resumed", "nan", count=2)["step"] == 50
    assert ward.facts("Exited", "nan")[0]["cause"] == "diverged"
    told = explained(ward, "nan")
    assert "was finite, and earlier ones were" in told
    assert "rollback 1 of 3: checkpoints from step 100 on are set aside; restarts with another random seed" in told


# --- the real trainer ------------------------------------------------------------------------------------------------------


@pytest.mark.fault("nan")
@pytest.mark.fault("memory-error")
def test_the_real_trainer_is_rolled_back_from_nan_and_gets_a_batch_that_fits(box: Box) -> None:
    """NaN rewards, and too little memory for a batch of 32,768: two real runs of Double DQN, each healed by its own rule."""
    box.config(
        real("nan", "nan", 3, "--batch-size", "32", "--replay-size", "2000")
        + real("memory", "memory", 60, "--batch-size", "32768", "--replay-ratio", "512", "--replay-size", "70000"),
        extra="[checkpoint]\nmin_s = 0.5\nfirst_s = 0.5\nmax_s = 1.0\n",
    )
    box.start()
    exited = box.wait_fact("Exited", "nan", timeout_s=60)
    assert (exited["cause"], exited["code"]) == ("diverged", 65)
    back = box.wait_fact("RolledBack", "nan")
    (resumed, *_) = until(lambda: [new for new in box.facts("Resumed", "nan") if new["seq"] > back["seq"]], 30, "a resume")
    assert 0 < resumed["step"] < back["from_step"] <= back["step"]
    run_dir = box.state / "programs" / "nan"
    aside = [int(path.name.split("-")[1].split(".")[0]) for path in (run_dir / "checkpoints").glob("*.bad")]
    assert min(aside) >= back["from_step"]
    seeds = [line.rpartition("seed ")[2] for line in (run_dir / "stdout.log").read_text().splitlines() if "seed " in line]
    assert len(seeds) == len(set(seeds)) == 2, "other chance"
    told = explained(box, "nan")
    assert "the last" in told
    assert "updates were not finite (loss nan) and none was applied" in told
    assert "rollback 1 of 3" in told
    until(lambda: (box.program("nan").get("steps") or 0) > back["step"], 60, "it to get beyond where it diverged")
    box.ctl("stop", "nan", check=True)  # it would train on for nothing, on a core of its own

    lowered = box.wait_fact("BatchLowered", "memory", timeout_s=60)
    assert (lowered["from_batch"], lowered["batch_size"]) == (32768, 16384)
    exited = box.facts("Exited", "memory")[0]
    assert (exited["cause"], exited["code"]) == ("out_of_memory", 71)
    told = explained(box, "memory")
    assert "out of memory (host) with batch 32768" in told
    assert "peak_rss_bytes" in told

    def learns_with() -> list[int]:
        """All batches that it was lowered to, once it learns with the last: one that fits an update need not fit the next."""
        found, halves = box.program("memory"), [fact["batch_size"] for fact in box.facts("BatchLowered", "memory")]
        return halves if found.get("updates") and found["lowered_batch"] == found["batch_size"] == halves[-1] else []

    halves = until(learns_with, 60, "a batch that fits")
    assert halves == [32768 >> number for number in range(1, len(halves) + 1)]


def test_a_cuda_out_of_memory_is_told_from_one_of_the_host(box: Box) -> None:
    """There need be no GPU for torch's own error: only the cause is told here, for a program without a batch."""
    code = "import torch; raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB.')"
    once = "[restart]\nbase_delay_s = 60.0\n"  # one death is enough: each attempt imports torch
    box.config(f'[program.a]\ncommand = {json.dumps([sys.executable, "-c", code])}\nprogress = "log"\n', extra=once)
    box.start()
    exited = box.wait_fact("Exited", "a", timeout_s=60)
    assert exited["cause"] == "cuda_out_of_memory"
    assert "ran out of the GPU's memory" in explained(box, "a")
    assert not box.facts("BatchLowered", "a")


# --- the kernel's OOM killer -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup of 200 MB, as a service with MemoryMax= or a container has one; v2 or v1, where we may make one."""
    v2, v1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
    base, limit = (v2, "memory.max") if (v2 / "cgroup.controllers").exists() else (v1, "memory.limit_in_bytes")
    group = base / f"extralife-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(200 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), 10, "the cgroup to be empty")
    group.rmdir()


@pytest.mark.fault("oom-kill")
def test_a_worker_that_the_kernel_takes_for_its_memory_is_told_from_one_that_is_killed(
    small_cgroup: Path, tmp_path: Path
) -> None:
    box = Box(tmp_path)
    try:
        later = "autostart = false"
        programs = ailing("eater", "killed", "--batch", "32", keys=later) + ailing("plain", "none", keys=later)
        box.config(programs, slots=2, extra=QUICK)
        daemon = box.start()
        (small_cgroup / "cgroup.procs").write_text(str(daemon.pid))
        box.ctl("start", "all", check=True)
        for name in ("eater", "plain"):
            box.wait_phase(name, "RUNNING")
        eater = box.facts("Spawned", "eater")[0]
        # The kernel may take a second one before the memory of the first is free: nobody else is left in the group.
        for pid in {daemon.pid, *box.pids()} - {eater["pid"], eater["shim_pid"]}:
            (small_cgroup.parent / "cgroup.procs").write_text(str(pid))
        (box.state / "programs" / "eater" / "go-on").touch()
        lowered = box.wait_fact("BatchLowered", "eater", timeout_s=40)
        assert (lowered["from_batch"], lowered["batch_size"]) == (32, 16)
        exited = box.facts("Exited", "eater")[0]
        assert (exited["cause"], exited["signal"]) == ("oom_killed", signal.SIGKILL)
        told = explained(box, "eater")
        assert "killed by the kernel's OOM killer" in told
        os.kill(box.wait_phase("plain", "RUNNING")["pid"], signal.SIGKILL)
        assert box.wait_fact("Exited", "plain")["cause"] == "killed", "the kill before it was the eater's"
    finally:
        box.close()
