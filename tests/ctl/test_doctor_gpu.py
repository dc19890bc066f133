"""doctor on GPUs, with the real pynvml on a simulated NVML: drivers that updates have broken, and whose the memory is."""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patients import levels, make, told, with_settings, write
from simulated_nvml import MB, SimulatedNvml

from supervisor.ctl import checks_gpu, checks_training
from supervisor.model.facts import GpuUsed, NeedLearned, ProgramConfigured

TORCH = {"version": "2.13.0", "cuda": "13.0", "available": False}


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    made = SimulatedNvml(tmp_path)
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    return made


def gpu_finding(installation, torch=TORCH):
    (found,) = checks_training._torch({"torch": torch} if torch else {}, checks_gpu.driver(installation))
    return found


@pytest.mark.parametrize(
    ("code", "says", "do"),
    [
        (18, "is of another version than the kernel module 550.54.14 that is loaded", "reboot"),
        (9, f"none is installed for the running kernel {os.uname().release}", "dkms autoinstall"),
        (4, "this user may not use the GPU's device files", "ls -l /dev/nvidia"),
        (17, "its driver does not answer", "dmesg | grep NVRM"),
    ],
)
def test_a_driver_that_an_update_has_broken_is_reported_with_what_to_do(installation, nvml, code, says, do):
    write(
        installation, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n"
    )
    nvml.plays(f"init_error {code}")
    assert checks_gpu.driver(installation).error == "", "no GPU: a library that was left behind is nobody's concern"
    write(installation, "dev/nvidia0")
    found = gpu_finding(installation)
    assert found.level == "bad"
    assert says in found.what
    assert do in found.do


def test_a_module_that_is_not_loaded_leaves_no_device_file_and_the_bus_tells_of_the_gpu(installation, nvml):
    nvml.plays("init_error 9")
    write(installation, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x10de\n")
    write(installation, "sys/bus/pci/devices/0000:00:02.0/class", "0x040300\n")
    write(installation, "sys/bus/pci/devices/0000:00:03.0/vendor", "0x8086\n")
    write(installation, "sys/bus/pci/devices/0000:00:03.0/class", "0x030000\n")
    assert gpu_finding(installation).level == "ok", "NVIDIA's sound device is no GPU, and Intel's GPU is not NVIDIA's"
    write(installation, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    write(installation, "sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
    assert "none is installed for the running kernel" in gpu_finding(installation).what
    write(installation, f"lib/modules/{os.uname().release}/updates/dkms/nvidia.ko.xz")
    found = gpu_finding(installation)
    assert "it is installed but not loaded" in found.what
    assert "modprobe nvidia" in found.do


def test_a_driver_that_hangs_holds_nobody_up(installation, nvml, monkeypatch):
    nvml.plays("gpus 1", "hang nvmlDeviceGetCount_v2")
    write(installation, "dev/nvidia0")
    monkeypatch.setattr(checks_gpu, "_PROBE_S", 2.0)
    found = gpu_finding(installation)
    assert (found.level, "the driver hangs" in found.what) == ("bad", True)


def test_a_library_that_is_not_there(installation):
    if "code" not in (checks_gpu.ask_nvml() or {}):
        pytest.skip("this machine has a driver of its own")
    write(installation, "dev/nvidia0")
    assert "libnvidia-ml.so.1 is missing" in gpu_finding(installation).what


@pytest.mark.parametrize(
    ("torch", "plays", "level", "says"),
    [
        (TORCH | {"cuda": None}, ("gpus 0",), "ok", "none; torch 2.13.0 trains on the CPU"),
        (TORCH | {"available": True}, ("gpus 1", "cuda 13000"), "ok", "Simulated GPU (driver 570.00.01); torch 2.13.0, CUDA 13.0"),
        (TORCH, ("gpus 1", "cuda 12080"), "bad", "torch 2.13.0 (CUDA 13.0) is too new for its driver, which serves CUDA 12.8"),
        (TORCH, ("gpus 1", "cuda 13000"), "bad", "does not work with the driver"),
        (TORCH | {"cuda": None}, ("gpus 1",), "bad", "a build for CPU"),
        (None, ("gpus 1",), "bad", "cannot be loaded: no error message"),
    ],
)  # fmt: skip
def test_torch_and_the_driver_have_to_fit(installation, nvml, torch, plays, level, says):
    nvml.plays(*plays)
    found = gpu_finding(installation, torch)
    assert found.level == level
    assert says in found.what
    assert bool(found.do) is (level == "bad")


@pytest.mark.parametrize(
    ("plays", "what"), [(("init_error 9",), "the NVIDIA kernel module is missing"), (("gpus 0",), "NVML shows no GPU")]
)
def test_a_gpu_that_is_not_there_is_a_fault_where_programs_used_one_or_ask_for_one(tmp_path, nvml, plays, what):
    from supervisor.adapters.journal.sqlite import Journal

    installation = make(tmp_path, "gpu = 0\n")
    with contextlib.closing(Journal(installation.settings.paths.journal)) as journal:
        facts = [ProgramConfigured("new", "Pong", digest="d"), GpuUsed("it held memory", "Pong", (0,))]
        journal.append(facts, at_s=1.0, wall_s=1.0, boot_id="b")
    nvml.plays(*plays)
    found = gpu_finding(installation)
    assert (found.level, found.what.startswith(what)) == ("bad", True), found
    assert found.what.endswith("; Breakout, Pong ran on a GPU or asked for one")
    assert found.do
    scripts = tuple(replace(spec, builtin=False) for spec in installation.settings.programs)
    only_scripts = with_settings(installation, programs=scripts)
    assert [each.what for each in checks_gpu.gpu_memory(only_scripts)] == [found.what], "without torch to compare with"
    cpu = tuple(replace(spec, when_no_gpu="cpu") for spec in scripts)
    assert checks_gpu.driver(with_settings(installation, programs=cpu)).error == ""


# --- memory --------------------------------------------------------------------------------------------------------------


def test_a_gpu_that_is_free_and_of_which_nothing_is_known_to_be_needed_is_well(installation, nvml):
    nvml.plays("gpus 1")
    (found,) = checks_gpu.gpu_memory(installation)
    assert (found.level, found.what) == ("ok", "81,559 MiB of 81,559 MiB are free")


TIGHT = ("gpus 1", f"set 0 total {8000 * MB}", f"set 0 free {5000 * MB}")
TOLD, UNTOLD = 3000 * MB, 2**64 - 1
SEEN, UNSEEN = os.getpid(), int(Path("/proc/sys/kernel/pid_max").read_text()) + 1


@pytest.mark.parametrize(
    ("pid", "amount", "level", "says"),
    [
        (SEEN, TOLD, "warn", (f"pid {SEEN} (", "holds 3,000 MiB, outside of extralife", "needs 6,000 MiB", "wait for 1,000 MiB more")),
        (SEEN, UNTOLD, "warn", ("holds an unknown amount, outside of",)),
        (UNSEEN, TOLD, "ok", ("3,000 MiB are held by processes that cannot be seen from here",)),
        (UNSEEN, UNTOLD, "warn", ("an unknown amount is held by processes",)),
    ],
    ids=range(4),  # the pids are not the same in each process
)  # fmt: skip
def test_who_else_holds_memory_is_named_and_what_the_level_lacks(tmp_path, nvml, pid, amount, level, says):
    nvml.plays(*TIGHT, f"process 0 {pid} {amount}")
    (found,) = checks_gpu.gpu_memory(make(tmp_path, "[gate]\nmin_free_mb = 3000\n"))
    assert [each for each in says if each not in found.what] == [], found.what
    assert (found.level, bool(found.do)) == (level, level == "warn")


def test_what_our_own_workers_hold_is_not_held_against_them(tmp_path, nvml):
    installation = make(tmp_path, "[gate]\nmin_free_mb = 3000\n")
    shim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (tmp_path / "run/shims").mkdir()
        (tmp_path / "run/shims/Pong.json").write_text(f'{{"shim_pid": {shim.pid}}}')
        nvml.plays(*TIGHT, f"process 0 {shim.pid} {TOLD}")
        (found,) = checks_gpu.gpu_memory(installation)
        assert found.level == "ok", found
    finally:
        shim.kill()
        shim.wait()


def test_what_was_learned_counts_as_what_is_configured_does(installation, nvml):
    from supervisor.adapters.journal.sqlite import Journal

    level = installation.settings.level.name
    with contextlib.closing(Journal(installation.settings.paths.journal)) as journal:
        for name in ("Pong", "Breakout"):
            learned = NeedLearned("it held so much", name, level=level, gpu_bytes=5000 * MB, host_bytes=None)
            journal.append([ProgramConfigured("new", name, digest="d"), learned], at_s=1.0, wall_s=1.0, boot_id="b")
    nvml.plays("gpus 1", f"set 0 total {8000 * MB}")
    (found,) = checks_gpu.gpu_memory(installation)
    assert found.level == "bad", "there is no lower level"
    assert f"level {level} cannot fit" in found.what


def test_a_level_higher_up_that_cannot_fit_is_a_warning(installation, nvml):
    heavy = replace(installation.settings.level, name="heavy", slots=2)
    light = replace(installation.settings.level, name="light", slots=1)
    rungs = tuple(replace(installation.settings.rungs[0], level=each) for each in (light, heavy))
    installation = with_settings(installation, ladder=rungs, gate=replace(installation.settings.gate, min_free_mb=5000))
    nvml.plays("gpus 1", f"set 0 total {8000 * MB}")
    (found,) = checks_gpu.gpu_memory(installation)
    assert (found.level, "level heavy needs 10,000 MiB: level heavy cannot fit" in found.what) == ("warn", True)


def test_a_gpu_that_is_lost_and_one_that_does_not_tell(installation, nvml):
    nvml.plays("gpus 2", "lost 0", "unsupported nvmlDeviceGetMemoryInfo_v2", "unsupported nvmlDeviceGetMemoryInfo")
    found = list(checks_gpu.gpu_memory(installation))
    assert levels(found) == ["bad", "unknown"]
    assert "it has fallen off the bus" in told(found)
