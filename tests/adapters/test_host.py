"""The host's readings from files laid out as the kernel's, and from the real ones; what is not there is unknown."""

import time
from types import SimpleNamespace

from supervisor.adapters.host import host as host_module
from supervisor.adapters.host.host import LocalHost
from supervisor.policy.box.readings import Host

KB = 1024


def lay(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MEMINFO = "MemTotal:  1000 kB\nMemAvailable:  400 kB\nSwapTotal:  50 kB\nSwapFree:  5 kB\nHugePages_Total:  0\nBad\n"
PRESSURE = "some avg10=1.00 avg60=2.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=7.50 avg300=0.00 total=1\n"


def test_everything_as_the_kernel_tells_it(tmp_path):
    lay(tmp_path, proc__meminfo=MEMINFO, proc__pressure__memory=PRESSURE, proc__pressure__io=PRESSURE.replace("7.5", "3.5"))
    found = LocalHost(str(tmp_path), root=tmp_path).look()
    assert (found.memory_bytes, found.available_bytes) == (1000 * KB, 400 * KB)
    assert (found.swap_bytes, found.swap_free_bytes) == (50 * KB, 5 * KB)
    assert (found.memory_full, found.io_full) == (7.5, 3.5)
    assert found.cores >= 1
    assert found.disk_free_bytes > 0


def test_a_containers_own_limit_counts_where_it_is_lower(tmp_path):
    lay(
        tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_DOT_max=f"{500 * KB}\n",
        sys__fs__cgroup__memory_DOT_current=f"{300 * KB}\n",
        sys__fs__cgroup__memory_DOT_stat=f"anon {200 * KB}\ninactive_file {50 * KB}\nodd\n",
    )  # fmt: skip
    found = LocalHost(str(tmp_path), root=tmp_path).look()
    assert (found.memory_bytes, found.available_bytes) == (500 * KB, 250 * KB)
    lay(tmp_path, sys__fs__cgroup__memory_DOT_max="max\n")
    assert LocalHost(str(tmp_path), root=tmp_path).look().memory_bytes == 1000 * KB


def test_a_container_whose_host_tells_nothing(tmp_path):
    lay(tmp_path, sys__fs__cgroup__memory_DOT_max="500", sys__fs__cgroup__memory_DOT_current="300")
    found = LocalHost(str(tmp_path), root=tmp_path).look()
    assert (found.memory_bytes, found.available_bytes) == (500, 200)


def test_what_cannot_be_read_is_unknown(tmp_path):
    lay(tmp_path, proc__pressure__memory="full avg10=x\n", proc__pressure__io="full avg60=x\n")
    found = LocalHost(str(tmp_path / "gone"), root=tmp_path).look()
    assert found == Host(cores=found.cores)


def test_its_thread_tells_the_newest_of_this_very_box(tmp_path):
    host = LocalHost(str(tmp_path))
    assert host.newest() is None
    host.start()
    deadline = time.monotonic() + 20
    while host.newest() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    host.stop()
    assert 0 < host.newest().available_bytes <= host.newest().memory_bytes


def test_old_readings_are_not_readings(tmp_path, monkeypatch):
    host = LocalHost(str(tmp_path), root=tmp_path)
    host._newest = (100.0, Host(cores=1))
    monkeypatch.setattr(host_module, "time", SimpleNamespace(monotonic=lambda: 130.0))
    assert host.newest() == Host(cores=1)
    monkeypatch.setattr(host_module, "time", SimpleNamespace(monotonic=lambda: 130.1))
    assert host.newest() is None
