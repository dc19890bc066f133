"""A box that comes back without its GPU: a real daemon, the real pynvml, and an NVML that plays scenarios."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from alert_receiver import Hook
from box import Box, until
from simulated_nvml import MB, SimulatedNvml

TOLD_WITHIN_S = 10.0
OTHERWISE = 'it waits for its GPU (when_no_gpu = "cpu" lets it use the CPU)'


def alerting(hook: Hook) -> str:
    return f"[alerts]\ncommand = {json.dumps(hook.argv)}\n"


def trained_on(box: Box, nvml: SimulatedNvml, gpu: int = 0, *, gpus: int = 1, name: str = "a", **more: Any) -> None:
    """The program trains and holds memory on this GPU; then the power is cut."""
    nvml.plays(f"gpus {gpus}")
    box.start()
    box.wait_phase(name, "RUNNING", **more)
    nvml.plays(f"gpus {gpus}", f"process {gpu} {box.program(name)['pid']} {4_000 * MB}")
    assert box.wait_fact("GpuUsed", name)["gpus"] == [gpu]


def told(hook: Hook) -> list[dict[str, Any]]:
    return [each["told"] for each in hook.got() if each["told"]["kind"] == "gpu"]


def after_start_s(box: Box, fact: dict[str, Any]) -> float:
    return fact["at_s"] - box.facts("DaemonStarted")[-1]["at_s"]


@pytest.mark.parametrize(
    ("scenario", "missing"),
    [
        (None, "this box has no NVIDIA driver"),
        (["init_error 9"], "the GPUs cannot be read (NVML: Driver Not Loaded)"),
        (["gpus 0"], "this box has no GPU now"),
    ],
)
def test_a_box_that_comes_back_without_its_gpu_trains_nothing_on_the_cpu(
    box: Box, nvml: SimulatedNvml, tmp_path: Path, scenario: list[str] | None, missing: str
) -> None:
    hook, why = Hook(tmp_path), f"it ran on a GPU before, but {missing}: {OTHERWISE}"
    box.config(box.trainer("a") + box.trainer("b"), extra=alerting(hook))
    trained_on(box, nvml)
    box.power_cut()
    nvml.installed(scenario is not None)
    nvml.plays(*scenario or ["gpus 1"])
    box.start()
    gated = box.wait_fact("Gated", "a")
    assert (gated["why"], gated["lost"], after_start_s(box, gated) < TOLD_WITHIN_S) == (why, "box", True)
    box.wait_phase("b", "RUNNING")  # it has never used a GPU
    (alert,) = until(lambda: told(hook), 30, "the alert")
    assert (alert["severity"], alert["text"]) == ("critical", f"a: {why}")
    assert why in box.ctl("status").stdout
    assert box.asked("/api/v1/report?since=3600s")["needs"] == [f"a: {why}"]
    nvml.plays("gpus 1")
    nvml.installed(there=True)
    box.wait_phase("a", "RUNNING")
    assert box.facts("SpawnIntended", "a")[-1]["why"].startswith("its GPU is back, after")
    assert len(told(hook)) == 1


def test_of_fewer_gpus_the_missing_one_is_waited_for_and_another_model_is_reported(
    box: Box, nvml: SimulatedNvml, tmp_path: Path
) -> None:
    hook = Hook(tmp_path)
    box.config(box.trainer("a", keys="gpu = 1") + box.trainer("b", keys="gpu = 0"), extra=alerting(hook))
    trained_on(box, nvml, 1, gpus=2)
    box.power_cut()
    nvml.plays("gpus 1", "model T4")
    box.start()
    assert "GPU 1 is gone (this box has 1 GPU)" in box.wait_fact("Gated", "a")["why"]
    box.wait_phase("b", "RUNNING")
    until(lambda: len(told(hook)) == 2, 30, "both alerts")
    assert {each["severity"] for each in told(hook)} == {"critical", "warning"}
    assert box.facts("GpusFound")[-1]["another"]
    assert "this box has 1 GPU (Simulated T4) instead of Simulated GPU" in box.ctl("history").stdout
    nvml.plays("gpus 2", "model T4")
    box.wait_phase("a", "RUNNING")


def test_the_cpu_by_an_explicit_word(box: Box, nvml: SimulatedNvml) -> None:
    box.config(box.trainer("a", keys='when_no_gpu = "cpu"\nmin_free_mb = 1000'))
    trained_on(box, nvml)
    box.power_cut()
    nvml.installed(there=False)
    box.start()
    box.wait_phase("a", "RUNNING")
    assert not box.facts("Gated")
    pid = box.program("a")["pid"]
    assert b"EXTRALIFE_WHEN_NO_GPU=cpu" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_a_worker_that_finds_no_gpu_where_the_box_shows_one_refuses_the_cpu(box: Box, nvml: SimulatedNvml) -> None:
    """As if the GPU vanished between the look at it and the start: torch sees none here."""
    box.calm()
    box.config('[program.Catch]\nalgo = "pqn"\nnum_envs = 4\n')
    trained_on(box, nvml, name="Catch", timeout_s=60)
    os.kill(box.program("Catch")["pid"], signal.SIGKILL)
    gated = box.wait_fact("Gated", "Catch", timeout_s=60)
    assert gated["lost"] == "worker"
    assert gated["why"].startswith("its worker found no GPU (exit code 69: workers: torch ")
    assert box.facts("Exited", "Catch")[-1]["cause"] == "no_gpu"
    assert not box.facts("Exited", "Catch")[-1]["counted"]
