"""`ports.Gpu`: one suite for the fake and for the real pynvml on a simulated NVML; then what only the real one can show."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeGpu
from simulated_nvml import MB, SimulatedNvml
from tools import PATIENCE
from traces_kit import thread_begun_by

from supervisor.adapters.host import gpu_nvml
from supervisor.adapters.host.gpu_nvml import NvmlGpu
from supervisor.policy.box.readings import Gpu, Gpus, InPhase, Spread, Xid

ROOT = Path(__file__).resolve().parents[2]
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
def test_every_gpu_is_told_by_its_index(box, count):
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


def test_an_xid_is_told_with_its_gpu_and_numbered(box):
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
    assert found.gpus[1].free_bytes is None
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


def test_a_driver_with_nvmls_older_functions(real):
    real.plays("gpus 1", "old", "set 0 reasons 32", "set 0 free 5", "process 0 4242 77")
    real.start()
    (gpu,) = seen(real, lambda found: found.gpus, "readings").gpus
    assert (gpu.free_bytes, gpu.reasons, gpu.processes) == (5, ("sw_thermal_slowdown",), ((4242, 77),))


@pytest.mark.parametrize(("code", "said"), [(9, "Driver Not Loaded"), (18, "version mismatch")])
def test_a_driver_that_refuses_is_told_and_tried_again(real, code, said):
    real.plays("gpus 1", f"init_error {code}")
    real.start()
    # A busy machine may be slow to be refused: until then it is a call that hangs.
    found = seen(real, lambda found: found.gpus is None and said in found.error, "the refusal")
    assert not found.absent
    real.plays("gpus 1")
    seen(real, lambda found: found.gpus, "readings")


def test_a_hang_ends_neither_the_wait_for_readings_nor_the_stop(real):
    real.plays("gpus 1", "hang nvmlInitWithFlags")
    real.start()
    found = seen(real, lambda found: found.gpus is None, "the hang")
    assert found.error.startswith("nvmlInit has not answered")
    began_s = time.monotonic()
    real.gpu.stop()
    assert time.monotonic() - began_s < 30.0, "a thread that hangs in the driver is left behind"


def test_a_box_without_the_library_has_no_gpu_and_no_trouble():
    script = (
        "import time; from supervisor.adapters.host.gpu_nvml import NvmlGpu\n"
        "gpu = NvmlGpu(); gpu.start()\n"
        "while gpu.newest() is None: time.sleep(0.01)\n"
        "print(gpu.newest().absent, gpu.newest().gpus, gpu.newest().error)\n"
        "gpu.stop()"
    )
    hide = "import ctypes; ctypes.CDLL = None.__class__\n"  # as on a box without the driver, wherever this runs
    hide = "import ctypes\ndef none(*_, **__): raise OSError('no such file')\nctypes.CDLL = none\n"
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


def test_where_no_worker_is_known_by_its_process_nothing_is_booked(real):
    real.gpu = NvmlGpu(period_s=0.01, doing=lambda: {5: ("evaluating", 0)})
    real.plays("gpus 1", "process 0 4242 5")
    real.start()
    assert seen(real, lambda found: found.gpus and len(found.gpus[0].free_by_second) > 1, "looks").gpus[0].by_phase == ()


# --- a whole reading, by a library that says one thing of each kind -------------------------------------------------------


class Nvml1:
    """pynvml as far as it is asked, with values that no two figures share; it notes what it was asked."""

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_GPU = "slowdown", "gpu"
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = "uncorrected", "volatile"
    nvmlEventTypeXidCriticalError, nvmlMemory_v2 = "xid", "v2"  # noqa: N815

    def __init__(self):
        self.asked = []
        self.free, self.busy, self.heat = 700, 40, 61
        self.handle = ctypes.c_void_p(77)
        self.lacks, self.fails = set(), {}

    def __getattr__(self, name):
        def answer(*args):
            self.asked.append((name, args))
            if name in self.lacks or name in self.fails:
                raise self.NVMLError(self.fails.get(name, 3))
            return self.values().get(name)

        return answer

    def values(self):
        memory = SimpleNamespace(total=1000, free=self.free, used=900 - self.free)
        return {
            "nvmlEventSetCreate": "events", "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": self.handle,
            "nvmlDeviceGetName": "H200", "nvmlDeviceGetUUID": "GPU-7", "nvmlDeviceGetTemperatureThreshold": 92,
            "nvmlDeviceGetEnforcedPowerLimit": 700_500, "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=self.busy, memory=3), "nvmlDeviceGetTemperature": self.heat,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40 | 0x1000, "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1FF,
            "nvmlDeviceGetPowerUsage": 250_250, "nvmlDeviceGetTotalEccErrors": 5,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=11, usedGpuMemory=300),
                                                     SimpleNamespace(pid=12, usedGpuMemory=None)],
            "nvmlEventSetWait": SimpleNamespace(device=self.handle, eventData=79),
        }  # fmt: skip


@pytest.fixture
def one(monkeypatch):
    """One GPU, its library, and a clock; nothing runs by itself."""
    nvml = Nvml1()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    made = SimpleNamespace(nvml=nvml, now_s=100.0, doing={11: ("training", 1), 12: ("importing", 0)})
    made.gpu = NvmlGpu(now_s=lambda: made.now_s, doing=lambda: made.doing)
    return made


def looked(one, *, whole=True):
    (device,) = one.gpu._devices
    one.gpu._look(device, one.now_s, one.gpu._phases(), whole=whole)
    return device


def test_a_reading_has_every_figure_in_its_place_and_unit(one):
    one.gpu._open()
    device = looked(one)
    one.now_s, one.nvml.free, one.nvml.busy, one.nvml.heat = 101.5, 600, 60, 63
    one.doing = {11: ("training", 1), 12: ("importing", 0)}
    looked(one)
    one.now_s, one.nvml.free = 102.0, 650
    one.doing = {11: ("training", 2)}
    looked(one, whole=False)
    assert gpu_nvml._reading(device, 102.0) == Gpu(
        0, "GPU-7", "H200", "", 1000, 650, (700, 600), Spread(200.0, 750.0 / 3, 300.0), 60.0, Spread(40.0, 160.0 / 3, 60.0),
        63.0, Spread(61.0, 187.0 / 3, 63.0), 92.0, ("sw_power_cap", "hw_thermal_slowdown"), 250.25, 700.5, 5,
        ((11, 300), (12, None)),
        (
            InPhase("acting", 1, Spread(250.0, 250.0, 250.0), Spread(60.0, 60.0, 60.0)),
            InPhase("importing", 2, Spread(200.0, 250.0, 300.0), Spread(40.0, 50.0, 60.0)),
            InPhase("updating", 1, Spread(300.0, 300.0, 300.0), Spread(60.0, 60.0, 60.0)),
        ),
    )  # fmt: skip
    one.gpu._take_events()
    assert one.gpu._xids[0] == Xid(1, 0, 79)
    assert len(one.gpu._xids) == gpu_nvml._XIDS_A_LOOK, "more wait for the next look"
    one.now_s = 160.0
    looked(one, whole=False)
    one.now_s = 161.0
    assert [look.at_s for look in device.looks] == [100.0, 101.5, 102.0, 160.0]
    looked(one, whole=False)
    assert [look.at_s for look in device.looks] == [101.5, 102.0, 160.0, 161.0], "a minute is kept"


def test_what_the_library_is_asked_to_the_letter(one):
    one.gpu._open()
    looked(one)
    handle = one.nvml.handle
    assert one.nvml.asked == [
        ("nvmlInit", ()), ("nvmlEventSetCreate", ()), ("nvmlDeviceGetCount", ()), ("nvmlDeviceGetHandleByIndex", (0,)),
        ("nvmlDeviceGetName", (handle,)), ("nvmlDeviceGetUUID", (handle,)),
        ("nvmlDeviceGetTemperatureThreshold", (handle, "slowdown")), ("nvmlDeviceGetEnforcedPowerLimit", (handle,)),
        ("nvmlDeviceRegisterEvents", (handle, "xid", "events")), ("nvmlDeviceGetMemoryInfo", (handle, "v2")),
        ("nvmlDeviceGetUtilizationRates", (handle,)), ("nvmlDeviceGetTemperature", (handle, "gpu")),
        ("nvmlDeviceGetCurrentClocksEventReasons", (handle,)), ("nvmlDeviceGetPowerUsage", (handle,)),
        ("nvmlDeviceGetTotalEccErrors", (handle, "uncorrected", "volatile")),
        ("nvmlDeviceGetComputeRunningProcesses", (handle,)),
    ]  # fmt: skip


def test_what_it_lacks_is_unknown_and_an_older_name_is_tried(one):
    one.nvml.lacks = {
        name for name in one.nvml.values() if name.startswith("nvmlDevice") and not name.endswith(("Count", "ByIndex"))
    } - {"nvmlDeviceGetCurrentClocksThrottleReasons"}
    one.gpu._open()
    device = looked(one)
    found = gpu_nvml._reading(device, one.now_s)
    assert found == Gpu(0, "", "", "", reasons=tuple(gpu_nvml._REASONS.values()))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError(), Gpus((), "Python's nvidia-ml-py is not installed", absent=True)),
        (Nvml1.NVMLError(12), Gpus((), "this box has no NVIDIA driver", absent=True)),
        (Nvml1.NVMLError(9), Gpus(None, "NVML: 9", xids=(Xid(4, 1, 31),))),
    ],
)
def test_what_stands_in_the_way_of_all(error, told):
    made = NvmlGpu()
    made._xids.append(Xid(4, 1, 31))
    assert made._trouble(error) == told


class Turns:
    """In place of the thread's event: each wait takes so long, and after so many of them all is over."""

    def __init__(self, one, count, each_s):
        self.one, self.left, self.each_s, self.waits, self.found = one, count, each_s, [], []

    def is_set(self):
        return self.left <= 0

    def wait(self, for_s):
        self.waits.append(for_s)
        self.found.append(self.one.gpu.newest())
        self.left -= 1
        self.one.now_s += self.each_s


def test_five_looks_a_second_of_which_one_is_whole(one, monkeypatch):
    libraries = []
    monkeypatch.setattr(gpu_nvml.ctypes, "CDLL", libraries.append)
    one.gpu._over = turns = Turns(one, 9, 0.25)
    while not turns.is_set():
        one.gpu._turn()
    assert libraries == ["libnvidia-ml.so.1"]
    assert turns.waits == [0.2] * 9
    assert [len(found.gpus[0].free_by_second) for found in turns.found] == [1] * 4 + [2] * 4 + [3]
    assert [len(found.xids) for found in turns.found] == [32] * 4 + [50] * 5
    assert turns.found[-1].xids == tuple(Xid(number, 0, 79) for number in range(47, 97)), "the newest of them"
    asked = [name for name, _ in one.nvml.asked]
    assert (asked.count("nvmlDeviceGetUtilizationRates"), asked.count("nvmlDeviceGetTemperature")) == (9, 3)


def test_a_library_that_breaks_is_tried_again_after_a_while(one, monkeypatch):
    monkeypatch.setattr(gpu_nvml.ctypes, "CDLL", lambda _: None)
    one.gpu._over = turns = Turns(one, 3, 1.0)
    one.nvml.fails["nvmlInit"] = 18
    while not turns.is_set():
        one.gpu._turn()
    assert one.gpu.newest() == Gpus(None, "NVML: 18")
    assert turns.waits == [5.0] * 3


def test_a_call_hangs_from_the_fifth_second_on(one):
    one.gpu._call = ("nvmlDeviceGetName", 100.0)
    one.gpu._xids.append(Xid(4, 1, 31))
    one.now_s = 104.9
    assert one.gpu.hung_s() is one.gpu.newest() is None
    one.now_s = 105.0
    assert one.gpu.hung_s() == 5.0
    error = "nvmlDeviceGetName has not answered for 5s"
    assert one.gpu.newest() == Gpus(None, error, 5.0, xids=(Xid(4, 1, 31),))


def test_the_call_that_is_asked_is_known_until_it_ends_however_it_does(one, monkeypatch):
    one.gpu._nvml, seen = one.nvml, []
    monkeypatch.setattr(one.nvml, "values", lambda: seen.append(one.gpu._call) or {})
    one.gpu._ask("nvmlInit")
    one.nvml.fails["nvmlInit"] = 9
    with pytest.raises(Nvml1.NVMLError):
        one.gpu._ask("nvmlInit")
    assert seen == [("nvmlInit", 100.0)]
    assert one.gpu._call is None


@pytest.mark.parametrize("code", [1, 9, 12, 18, 15, 16, 28])
def test_an_error_of_the_whole_or_of_a_lost_gpu_is_no_missing_value(one, code):
    one.gpu._nvml = one.nvml
    one.nvml.fails["nvmlDeviceGetName"] = code
    with pytest.raises(Nvml1.NVMLError):
        one.gpu._maybe("nvmlDeviceGetName", one.nvml.handle)
    one.nvml.fails["nvmlDeviceGetName"] = 2
    assert one.gpu._maybe("nvmlDeviceGetName", one.nvml.handle) is None


@pytest.mark.parametrize(
    ("code", "lost"), [(15, "it has fallen off the bus"), (16, "it needs a reset"), (28, "it is not found")]
)
def test_a_lost_gpu_keeps_its_name_alone_and_is_described_anew_when_it_is_back(one, code, lost):
    one.gpu._open()
    looked(one)
    one.nvml.fails["nvmlDeviceGetMemoryInfo"] = code
    device = looked(one, whole=False)
    assert not device.looks
    assert gpu_nvml._reading(device, one.now_s) == Gpu(0, "GPU-7", "H200", lost)
    one.nvml.fails.clear()
    one.nvml.asked.clear()
    looked(one, whole=False)
    assert one.nvml.asked == [], "a lost one is asked once a second"
    one.nvml.handle = ctypes.c_void_p(78)
    looked(one)
    assert [args for name, args in one.nvml.asked if name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID")] == [
        (0,), (one.nvml.handle,),
    ]  # fmt: skip
    assert (device.lost, device.handle, len(device.looks)) == ("", one.nvml.handle, 1)


def test_a_driver_without_events_is_not_asked_for_any(one):
    one.nvml.lacks = {"nvmlEventSetCreate"}
    one.gpu._open()
    looked(one)
    one.gpu._take_events()
    asked = {name for name, _ in one.nvml.asked}
    assert not asked & {"nvmlDeviceRegisterEvents", "nvmlEventSetWait"}


def test_an_xid_belongs_to_the_gpu_whose_handle_it_names_and_else_to_the_first(one, monkeypatch):
    handles = [ctypes.c_void_p(77), ctypes.c_void_p(78)]
    events = [SimpleNamespace(device=ctypes.c_void_p(at), eventData=code) for at, code in ((78, 31), (77, 79), (99, 8))]
    one.gpu._open()
    one.gpu._devices = [gpu_nvml._Device(index, handle) for index, handle in enumerate(handles)]
    one.gpu._devices.append(gpu_nvml._Device(2, None, lost="it is not found"))

    def wait(name, *args):
        assert (name, args) == ("nvmlEventSetWait", ("events", 0))
        return events.pop(0) if events else None

    monkeypatch.setattr(one.gpu, "_maybe", wait)
    one.gpu._take_events()
    assert list(one.gpu._xids) == [Xid(1, 1, 31), Xid(2, 0, 79), Xid(3, 0, 8)]


def test_its_thread_has_a_name_and_goes_with_the_daemon(monkeypatch):
    def none(*_):
        raise OSError("no such file")

    monkeypatch.setattr(gpu_nvml.ctypes, "CDLL", none)
    gpu = NvmlGpu()
    gpu.stop()  # before it began, there is nothing to wait for
    gpu = NvmlGpu()
    found = thread_begun_by(gpu.start, "gpu")
    assert found.daemon
    until(lambda: gpu.newest() == Gpus((), "this box has no NVIDIA driver", absent=True), "its answer")
    gpu.stop()
    until(lambda: not found.is_alive(), "its end")
