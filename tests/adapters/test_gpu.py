"""`ports.Gpu`: one suite for the fake and for the real pynvml on a simulated NVML; then what only the real one can show."""

import os
import subprocess
import sys
import time

import pytest
from fakes import FakeGpu
from simulated_nvml import MB, SimulatedNvml
from tools import PATIENCE, ROOT

from supervisor.adapters.host.gpu_nvml import NvmlGpu
from supervisor.policy.box.readings import Spread

HANG = "nvmlDeviceGetMemoryInfo_v2"
PATIENCE_S = 20.0 * PATIENCE


def until(look, what):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


class Nvml:
    """The real adapter on the simulated library, in this process."""

    def __init__(self, directory):
        self.nvml = SimulatedNvml(directory)
        self.plays = self.nvml.plays
        self.gpu = NvmlGpu(period_s=0.02, hang_s=0.3, retry_s=0.05)

    def start(self):
        self.nvml.load()
        self.gpu.start()

    def close(self):
        import pynvml

        self.plays("gpus 0")
        until(lambda: self.gpu.hung_s() is None, "the call that hangs to return")
        self.gpu.stop()
        pynvml.nvmlShutdown()


@pytest.fixture(params=["fake", "nvml"])
def box(request, tmp_path):
    made = FakeGpu() if request.param == "fake" else Nvml(tmp_path)
    yield made
    made.close()


@pytest.fixture
def real(tmp_path):
    made = Nvml(tmp_path)
    yield made
    made.close()


def seen(box, check, what):
    """The first newest readings that `check` is content with. Where a call takes long, there are no GPUs for a moment."""
    return until(lambda: (found := box.gpu.newest()) is not None and check(found) and found, what)


# --- what both do --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 8])
def test_every_gpu_is_reported_by_its_index(box, count):
    box.plays(f"gpus {count}")
    box.start()
    found = seen(box, lambda found: found.gpus is not None, "readings")
    assert [gpu.index for gpu in found.gpus] == list(range(count))
    assert not found.absent
    assert all(gpu.total_bytes and gpu.name and not gpu.lost for gpu in found.gpus)


def test_memory_falls_and_the_least_of_each_second_is_kept(box):
    box.plays("gpus 1", f"set 0 free {9_000 * MB}")
    box.start()
    seen(box, lambda found: found.gpus and found.gpus[0].free_bytes == 9_000 * MB, "the first memory")
    box.plays("gpus 1", f"set 0 free {2_000 * MB}")
    found = seen(box, lambda found: found.gpus and found.gpus[0].free_bytes == 2_000 * MB, "the memory to fall")
    assert min(found.gpus[0].free_by_second) == 2_000 * MB
    assert found.gpus[0].used_minute.most >= found.gpus[0].total_bytes - 9_000 * MB


def test_temperature_rises_and_the_clocks_are_held_back(box):
    box.plays("gpus 1", "set 0 temperature 60", "set 0 slowdown 90", "set 0 reasons 4")
    box.start()
    found = seen(box, lambda found: found.gpus and found.gpus[0].temperature_c == 60.0, "60 C")
    assert (found.gpus[0].slowdown_c, found.gpus[0].reasons) == (90.0, ("sw_power_cap",))
    box.plays("gpus 1", "set 0 temperature 89", "set 0 slowdown 90", "set 0 reasons 72")
    found = seen(box, lambda found: found.gpus and found.gpus[0].temperature_c == 89.0, "89 C")
    assert found.gpus[0].reasons == ("hw_slowdown", "hw_thermal_slowdown")


def test_an_xid_is_reported_with_its_gpu_and_numbered(box):
    box.plays("gpus 2", "xid 1 79")
    box.start()
    (first,) = seen(box, lambda found: found.xids, "an Xid").xids
    assert (first.gpu, first.code) == (1, 79)
    box.plays("gpus 2", "xid 1 79", "xid 0 31")
    both = seen(box, lambda found: len(found.xids) == 2, "another").xids
    assert [(xid.number, xid.gpu, xid.code) for xid in both] == [(1, 1, 79), (2, 0, 31)]


def test_a_gpu_falls_off_the_bus_while_the_other_goes_on_and_comes_back(box):
    box.plays("gpus 2")
    box.start()
    seen(box, lambda found: found.gpus and not found.gpus[1].lost, "two GPUs")
    box.plays("gpus 2", "lost 1")
    found = seen(box, lambda found: found.gpus and found.gpus[1].lost, "the loss")
    assert (found.gpus[1].free_bytes, found.gpus[1].lost) == (None, "it has fallen off the bus")
    assert found.gpus[0].free_bytes is not None
    box.plays("gpus 2")
    found = seen(box, lambda found: found.gpus and not found.gpus[1].lost, "its return")
    assert found.gpus[1].slowdown_c == 90.0


def test_a_call_that_never_returns_makes_all_unknown_until_it_does(box):
    box.plays("gpus 1")
    box.start()
    seen(box, lambda found: found.gpus, "readings")
    box.plays("gpus 1", f"hang {HANG}")
    found = seen(box, lambda found: found.gpus is None, "the hang to be seen")
    assert found.hung_s is not None
    assert "has not answered" in found.error
    box.plays("gpus 1")
    assert seen(box, lambda found: found.gpus, "the readings to come back").hung_s is None


# --- what the real one shows -----------------------------------------------------------------------------------------------


def test_what_a_driver_does_not_support_is_unknown_each_on_its_own(real):
    told = "temperature power ecc reasons gpu slowdown limit".split()
    real.plays("gpus 1", *(f"set 0 {name} -3" for name in told), "unsupported nvmlEventSetCreate")
    real.start()
    (gpu,) = seen(real, lambda found: found.gpus, "readings").gpus
    assert (gpu.temperature_c, gpu.power_w, gpu.ecc_errors, gpu.reasons, gpu.utilisation) == (None,) * 5
    assert (gpu.slowdown_c, gpu.power_limit_w, gpu.temperature_minute) == (None,) * 3
    assert gpu.free_bytes


def test_each_figure_is_in_its_place_and_unit(real):
    real.plays(
        "gpus 1", "set 0 power 250250", "set 0 limit 700500", "set 0 ecc 5", "set 0 gpu 40", "set 0 temperature 61",
        "set 0 slowdown 92", "set 0 total 1000", "set 0 reserved 100", "set 0 free 700", "process 0 11 300", "model H200",
    )  # fmt: skip
    real.start()
    (gpu,) = seen(real, lambda found: found.gpus, "readings").gpus
    assert (gpu.name, gpu.uuid[:4], gpu.lost) == ("Simulated H200", "GPU-", "")
    assert (gpu.power_w, gpu.power_limit_w, gpu.ecc_errors, gpu.processes) == (250.25, 700.5, 5, ((11, 300),))
    assert (gpu.utilisation, gpu.temperature_c, gpu.slowdown_c) == (40.0, 61.0, 92.0)
    assert (gpu.total_bytes, gpu.free_bytes, gpu.used_minute) == (1000, 700, Spread(200.0, 200.0, 200.0))
    assert (gpu.temperature_minute, gpu.utilisation_minute) == (Spread(61.0, 61.0, 61.0), Spread(40.0, 40.0, 40.0))


@pytest.mark.parametrize(("code", "said"), [(9, "Driver Not Loaded"), (18, "version mismatch")])
def test_a_driver_that_refuses_is_reported_and_tried_again(real, code, said):
    real.plays("gpus 1", f"init_error {code}")
    real.start()
    # A busy machine may be slow to be refused: until then it is a call that hangs.
    found = seen(real, lambda found: found.gpus is None and said in found.error, "the refusal")
    assert not found.absent
    real.plays("gpus 1")
    seen(real, lambda found: found.gpus, "readings")


def test_a_box_without_the_library_has_no_gpu_and_no_trouble():
    script = (
        "import time; from supervisor.adapters.host.gpu_nvml import NvmlGpu\n"
        "gpu = NvmlGpu(); gpu.start()\n"
        "while gpu.newest() is None: time.sleep(0.01)\n"
        "print(gpu.newest().absent, gpu.newest().gpus, gpu.newest().error)\n"
        "gpu.stop()"
    )
    hide = "import ctypes\nown = ctypes.CDLL\ndef none(name, *_, **__):\n if name: raise OSError('no such file')\n return own(name)\nctypes.CDLL = none\n"
    done = subprocess.run(
        [sys.executable, "-c", hide + script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "True () this box has no NVIDIA driver\n"


# --- by what the workers do ------------------------------------------------------------------------------------------------


def test_each_look_is_booked_on_what_the_workers_on_that_gpu_do(real):
    """A learner that acts with little memory and updates with much; another one on GPU 1 that is not on GPU 0's account."""
    doing = {4242: ("training", 0), 77: ("evaluating", 5), 9: ("saving", 0)}
    steps = [0]

    def ask():
        steps[0] += 1
        return doing | ({4242: ("training", steps[0])} if doing[4242] == ("training", 0) else {})

    real.gpu = NvmlGpu(period_s=0.01, hang_s=5.0, doing=ask)
    both = ("gpus 2", "process 0 4242 5", "process 1 77 5")
    real.plays(*both, f"set 0 free {70_000 * MB}", "set 0 gpu 20")
    real.start()

    def phases(found, index=0):
        return {each.phase: each for each in found.gpus[index].by_phase}

    acting = phases(seen(real, lambda found: found.gpus and "acting" in phases(found), "acting"))
    assert set(acting) == {"acting"}
    assert (acting["acting"].utilisation.most, acting["acting"].used.most) == (20.0, 11_559 * MB)
    real.plays(*both, f"set 0 free {1_000 * MB}", "set 0 gpu 98")  # first, so that no look at the update has old readings
    doing[4242] = ("training", 7)
    found = seen(
        real, lambda found: found.gpus and "updating" in phases(found) and phases(found)["updating"].looks > 3, "it"
    )
    updating = phases(found)["updating"]
    assert updating.used.most == 80_559 * MB
    assert updating.utilisation.most == 98.0
    assert phases(found)["acting"].used.least == 11_559 * MB
    assert set(phases(found, 1)) == {"evaluating"}
    assert phases(found, 1)["evaluating"].looks > 3
