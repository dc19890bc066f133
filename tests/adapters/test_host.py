"""The host's readings from files laid out as the kernel's, and from the real ones; what is not there is unknown."""

import os

import pytest
from attempts_kit import eventually

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
    lay(
        tmp_path, proc__meminfo=MEMINFO, proc__pressure__memory=PRESSURE, proc__pressure__io=PRESSURE.replace("7.5", "3.5"),
        sys__fs__cgroup__cpu_DOT_max="100000 100000\n",
    )  # fmt: skip
    here = os.statvfs(tmp_path)
    found = LocalHost(str(tmp_path), root=tmp_path).look()
    disk = found.disk_free_bytes
    assert found == Host(1000 * KB, 400 * KB, 50 * KB, 5 * KB, 7.5, 3.5, 1, disk)
    assert disk == pytest.approx(here.f_bavail * here.f_frsize, rel=0.2), "other tests write there too"


def test_the_use_of_the_cores_is_that_between_two_readings(tmp_path):
    host = LocalHost(str(tmp_path), root=tmp_path)
    found = []
    for ticks in (
        "10 0 10 60 20 0 0 0 0 0",
        "40 0 20 90 40 0 5 5 7 7",
        "40 0 20 90 40 0 5 5 7 7",
        "1 2",
        "x",
        "1 1 1 1 1 1 1 1",
    ):
        lay(tmp_path, proc__stat=f"cpu  {ticks}\ncpu0 1 1 1 1 1 1 1 1\n")
        found.append(host.look().cpu_busy)
    assert found == [None, 50.0, None, None, None, None]
    real = LocalHost(str(tmp_path))
    assert eventually(lambda: 0.0 < (real.look().cpu_busy or 0.0) <= 100.0)


@pytest.mark.parametrize(
    ("limit", "used", "stat", "found"),
    [
        (500 * KB, 300 * KB, f"anon {200 * KB}\ninactive_file {50 * KB}\nodd\n", (500 * KB, 250 * KB)),
        ("max", 300 * KB, "", (1000 * KB, 400 * KB)),
        (2000 * KB, 300 * KB, "", (1000 * KB, 400 * KB)),  # more than the box has
        (500 * KB, 50 * KB, "", (500 * KB, 400 * KB)),  # more room than the box has
        (500 * KB, 600 * KB, "inactive_file 7\n", (500 * KB, 0)),  # over its limit
        (500 * KB, 499 * KB, "inactive_file x\ninactive_file 7\n", (500 * KB, KB + 7)),
    ],
)
def test_what_a_containers_limit_leaves(tmp_path, limit, used, stat, found):
    lay(
        tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_DOT_max=f"{limit}\n",
        sys__fs__cgroup__memory_DOT_current=f"{used}\n", sys__fs__cgroup__memory_DOT_stat=stat,
    )  # fmt: skip
    seen = LocalHost(str(tmp_path), root=tmp_path).look()
    assert (seen.memory_bytes, seen.available_bytes) == found


def test_its_thread_tells_the_newest_of_this_very_box(tmp_path):
    host = LocalHost(str(tmp_path), period_s=0.01)
    assert host.newest() is None
    host.start()
    assert eventually(lambda: host.newest() is not None)
    first = host.newest()
    assert 0 < first.available_bytes <= first.memory_bytes
    assert eventually(lambda: host.newest() is not first), "it looks again"
    host.stop()
