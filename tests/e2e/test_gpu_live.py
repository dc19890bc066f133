"""A real daemon, the real pynvml, and an NVML that plays scenarios: the gate, a driver that hangs, a GPU that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from box import Box, until
from simulated_nvml import MB, SimulatedNvml

GATE = "[gate]\nmin_free_mb = 12000\npoll_s = 1.0\n"


def gpu(box: Box) -> dict[str, Any]:
    return box.status()["daemon"]["gpu"]


@pytest.mark.fault("gpu-memory")
def test_a_program_waits_for_memory_and_starts_when_it_is_free(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 1", f"set 0 free {3_000 * MB}", "set 0 gpu 97")
    box.config(box.trainer("a") + box.trainer("b", keys="min_free_mb = 0"), extra=GATE)
    box.start()
    box.wait_phase("a", "GATED")
    box.wait_phase("b", "RUNNING")
    (gated,) = box.facts("Gated", "a")
    assert (gated["need_bytes"], gated["free_bytes"]) == (12_000 * MB, 3_000 * MB)
    page = box.ctl("status").stdout
    assert "GPU 0 Simulated GPU: 3,000 MiB of 81,559 MiB free, 97 % busy, 50 C (slows down at 90)" in page
    assert "waits for 12,000 MiB on GPU 0 (as configured); 3,000 MiB are free" in page
    assert box.ctl("start", "a").stdout.startswith("a: gated, starts by itself: waits for 12,000 MiB")
    assert box.program("a")["phase"] == "GATED"
    nvml.plays("gpus 1", f"set 0 free {70_000 * MB}")
    box.wait_phase("a", "RUNNING")
    assert box.facts("SpawnIntended", "a")[0]["why"].startswith("the GPU memory that it needs is free, after")
    assert box.program("b")["attempt"] == 1


def test_it_waits_for_the_gpu_that_the_daemon_lets_it_see(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 2", f"set 0 free {9 * MB}", f"set 1 free {3_000 * MB}")
    box.env["CUDA_VISIBLE_DEVICES"] = "1"
    own = 'env = { CUDA_VISIBLE_DEVICES = "" }'
    box.config(box.trainer("a") + box.trainer("b", keys=own), extra=GATE)
    box.start()
    box.wait_phase("a", "GATED")
    assert "waits for 12,000 MiB on GPU 1 (as configured); 3,000 MiB are free" in box.facts("Gated", "a")[0]["why"]
    box.wait_phase("b", "RUNNING")  # it sees no GPU
    nvml.plays("gpus 2", f"set 0 free {9 * MB}")
    box.wait_phase("a", "RUNNING")


@pytest.mark.fault("gpu-hangs")
def test_a_driver_that_hangs_is_unknown_and_neither_workers_nor_daemon_care(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 1")
    box.config(box.trainer("a") + box.trainer("b", keys="autostart = false"), extra=GATE)
    box.start()
    box.wait_phase("a", "RUNNING")
    nvml.plays("gpus 1", "hang nvmlDeviceGetMemoryInfo_v2")
    box.wait_fact("GpusUnknown")
    assert gpu(box)["known"] is False
    assert "GPUs unknown: nvmlDeviceGetMemoryInfo has not answered for" in box.ctl("status").stdout
    assert "b: gated, starts by itself: it asks for a GPU (min_free_mb = 12000), but the GPU's driver hangs" in (
        box.ctl("start", "b").stdout
    )
    assert box.program("a")["attempt"] == 1
    assert box.stop_daemon() == 0
    assert box.facts("DaemonStopped")


@pytest.mark.fault("gpu-lost")
def test_a_gpu_that_falls_off_the_bus_and_an_xid_are_reported(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 2")
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    box.wait_fact("GpusFound")
    nvml.plays("gpus 2", "lost 1", "xid 1 79")
    assert (box.wait_fact("GpuLost")["gpu"], box.wait_fact("XidReported")["xid"]) == (1, 79)
    box.wait_fact("Vetoed", count=2)
    page = box.ctl("status").stdout
    assert "GPU 1 Simulated GPU: lost: it has fallen off the bus" in page
    assert "levels above" not in page, "no level is above the only one"
    assert "(gpu_lost): GPU 1 does not answer" in page
    assert "(gpu_xid): the driver reported Xid 79" in page
    assert "Xid 79 on GPU 1" in box.ctl("history").stdout
    assert box.program("a")["phase"] == "RUNNING"


def test_what_no_gpu_here_can_hold_and_a_gpu_that_is_not_there_are_refused(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 1")
    box.config(
        box.trainer("big", keys="min_free_mb = 90000")
        + box.trainer("away", keys="gpu = 5")
        + box.trainer("pinned", keys="gpu = 0")
    )
    box.start()
    assert "GPU 0 has 81,559 MiB in all, but min_free_mb asks for 90,000" in box.wait_phase("big", "FATAL")["why"]
    assert "gpu = 5, but this box has 1 GPU, 0 to 0: correct `gpu`" in box.wait_phase("away", "FATAL")["why"]
    pid = box.wait_phase("pinned", "RUNNING")["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {b"CUDA_VISIBLE_DEVICES=0", b"CUDA_DEVICE_ORDER=PCI_BUS_ID"} <= set(environment)


def test_the_minute_of_a_gpu_is_told_by_what_its_worker_does(box: Box, nvml: SimulatedNvml) -> None:
    nvml.plays("gpus 1", f"set 0 free {70_000 * MB}", "set 0 gpu 35")
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    pid = box.program("a")["pid"]
    nvml.plays("gpus 1", f"set 0 free {70_000 * MB}", "set 0 gpu 35", f"process 0 {pid} 5")
    phases = until(lambda: gpu(box)["gpus"][0]["by_phase"], 30, "a look to be booked on the worker")
    assert {each["phase"] for each in phases} <= {"acting", "updating"}
    assert phases[0]["used"]["most"] == 11_559 * MB
    page = box.ctl("status").stdout
    assert f"in the last minute: {phases[0]['phase']} up to 11,559 MiB, 35 % busy" in page
