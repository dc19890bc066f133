"""A container that is replaced by one with fewer GPUs, with another model, with none: played by the NVML of tests/nvml."""

from __future__ import annotations

import shutil

import pytest
from containerbox import until
from simulated_nvml import SimulatedNvml


@pytest.mark.slow
def test_what_asks_for_a_gpu_that_is_gone_waits_and_goes_on_when_it_is_back(box):
    nvml = SimulatedNvml(box.volume)
    nvml.link.unlink()
    shutil.copy(nvml.library, nvml.link)
    config = box.home / "extralife.toml"
    first = config.read_text() + "gpu = 0\n"
    config.write_text(first + first[first.index("[program.one]") :].replace(".one]", ".two]").replace("gpu = 0", "gpu = 1"))
    library = ("--env", "LD_LIBRARY_PATH=/workspace/nvml-library", "--env", "NVML_SCENARIO=/workspace/nvml-scenario")

    def runs(name: str) -> bool:
        return box.program(name).get("phase") == "RUNNING"

    nvml.plays("gpus 2")
    box.run(*library)
    until(lambda: runs("one") and runs("two"), 60, "two programs on two GPUs", box.said)
    box.kill()
    nvml.plays("gpus 1", "model T4")
    box.run(*library)
    until(lambda: runs("one") and "GPU 1 is gone (this box has 1 GPU)" in box.ctl("status"), 60, "one to wait", box.said)
    assert not runs("two")
    assert "this box has 1 GPU (Simulated T4) instead of " in box.ctl("history")
    box.kill()
    nvml.plays("gpus 0")
    box.run(*library)
    until(lambda: box.ctl("status", check=False).count("this box has no GPU now") >= 2, 60, "both to wait", box.said)
    assert not runs("one")
    assert not runs("two")
    nvml.plays("gpus 2")
    until(lambda: runs("one") and runs("two"), 60, "both GPUs to be used again", box.said)
