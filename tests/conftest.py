"""The catalogue's table: `--fault-table FILE` runs the tests that carry `@pytest.mark.fault` and shows each with its time.

`tests/run faults` is the one command for it. Besides, Ctrl-C is let through to the tests, and no example of hypothesis has
a time limit: it would say how busy the machine is, not whether the code is right.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import removable
from catalogue import FAULTS
from hypothesis import HealthCheck, Phase, settings
from tools import PATIENCE

settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("mutants", settings.get_profile("untimed"), phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("untimed")

LONGEST_TEMPORARY = 24  # characters
HARD_S = 60.0 * PATIENCE  # after its own limit, a test that no exception can end ends with its process
STDERR = pytest.StashKey[int]()  # the descriptor of the run's standard error, which is captured during tests
_WORST = ("failed", "skipped", "passed")  # a test's outcome is the worst of its setup, call and teardown


def pytest_configure(config):
    """A shell that starts this in the background has it ignore SIGINT, and so do all whom it starts: no Ctrl-C for them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STDERR] = os.dup(2)
    sys.meta_path.append(removable.Skips)
    limit_waits_for_children()
    shorten_temporary_directory()
    gc.disable()  # until all tests are collected: what they import stays, and looking through it is a third of the time
    # Daemons of tests note the mount point of their state directory there, and not in the user's own cache.
    os.environ["XDG_CACHE_HOME"] = f"{tempfile.gettempdir()}/extralife-tests-{os.geteuid()}"
    os.environ["EXTRALIFE_BOOT_FILES"] = str(boot_files(Path(os.environ["XDG_CACHE_HOME"])))


def limit_waits_for_children():
    """A wait for a child process takes at most half of its test's limit; `subprocess.run` kills a child that passes it.

    A child that waits for input, for example, would otherwise keep the whole run waiting.
    """
    popen = subprocess.Popen
    wait, communicate = popen.wait, popen.communicate
    popen.wait = lambda self, timeout=None: wait(self, _child_s if timeout is None else timeout)
    popen.communicate = lambda self, input=None, timeout=None: communicate(  # noqa: A006  the name that callers use
        self, input, _child_s if timeout is None else timeout
    )


_child_s = None  # the longest wait for a child process of the test that runs; None: no test runs


@contextlib.contextmanager
def hard_limit(item):
    """pytest-timeout raises an exception in the main thread. It ends no thread, and none that the `with` of a pool then awaits.

    So the whole process ends some time after that, with the stacks of all threads. xdist reports its test as failed and starts
    another process for the rest.
    """
    global _child_s  # noqa: PLW0603
    mark = item.get_closest_marker("timeout")
    limit_s = float(mark.args[0] if mark is not None and mark.args else item.config.getini("timeout"))
    _child_s = limit_s / 2.0
    faulthandler.dump_traceback_later(limit_s + HARD_S, exit=True, file=item.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _child_s = None


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        removable.need(*mark.args)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    with hard_limit(item):
        return (yield)


def pytest_unconfigure(config):
    """A thread that a test left, such as a pool's, keeps no process from its end. xdist and mutmut end their own processes.

    mutmut forks after a run: a child lacks the timer's thread, and would wait for it for ever.
    """
    if hasattr(config, "workerinput") or "MUTANT_UNDER_TEST" in os.environ:
        return
    faulthandler.dump_traceback_later(HARD_S, exit=True, file=config.stash[STDERR])


def shorten_temporary_directory():
    """The path of a socket has room for 107 bytes: below a long TMPDIR there would be none for the names of tests."""
    if len(tempfile.gettempdir()) > LONGEST_TEMPORARY:
        shorter = next((each for each in ("/tmp", "/var/tmp", "/dev/shm") if os.access(each, os.W_OK | os.X_OK)), None)
        os.environ["TMPDIR"] = tempfile.tempdir = shorter or tempfile.gettempdir()


def pytest_collection_finish():
    gc.freeze()
    # A test that needs a collection asks for it. With the default, collections take a tenth of all CPU time.
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def boot_files(cache):
    """This boot's, but of no provider: on a cloud's machine no daemon of a test asks the metadata service."""
    directory = cache / "boot"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, there in (("boot_id", "/proc/sys/kernel/random/boot_id"), ("pid1_stat", "/proc/1/stat")):
        with contextlib.suppress(FileExistsError):  # another process's, the same
            (directory / name).symlink_to(there)
    return directory


def pytest_addoption(parser):
    parser.addoption(
        "--fault-table", metavar="FILE", help="run the catalogue's tests alone; print a table and write it as JSON"
    )  # fmt: skip


def pytest_collection_modifyitems(config, items):
    items[:] = spread(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    if config.getoption("--fault-table") is None:
        return
    chosen = [item for item in items if item.get_closest_marker("fault")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    for item in items:  # travels with the reports, also from another process
        item.user_properties += [("fault", mark.args[0]) for mark in item.iter_markers("fault")]


def spread(items, processes):
    """The order of the tests: long ones first, then `mixed` ones.

    End-to-end tests mostly wait, the others mostly compute. Processes that share the tests get neighbours of both kinds, and no
    core is idle while all of them wait.

    xdist gives each process one part of the list to begin with, of the sizes below. Files with long tests are dealt to the
    beginnings of half of the parts: none of these may be the one that all others have to wait for at the end, and most of
    them wait, so the other half computes meanwhile.
    """
    long = {}
    for item in items:
        if item.get_closest_marker("long"):
            long.setdefault(item.path, []).append(item)
    others = mixed([item for item in items if not item.get_closest_marker("long")])
    ordered, left, half = [], len(items), (processes + 1) // 2
    for number in range(processes):
        size = left // (processes - number)
        left -= size
        own = [item for file in list(long.values())[number::half] for item in file] if number < half else []
        rest = max(0, size - len(own))
        ordered += own + others[:rest]
        del others[:rest]
    return ordered + others


def mixed(items):
    """End-to-end tests evenly among the others, file by file; tests that share a browser stay together."""
    places = {}
    for waits in (True, False):
        kind = [item for item in items if (layer(item.nodeid) == "e2e") == waits]
        for number, item in enumerate(kind):
            shared = item.path.parent if layer(item.nodeid) == "browser" else item.path
            places.setdefault(shared, number / len(kind))
            places[item] = places[shared]
    return sorted(items, key=places.__getitem__)


def rows(reports):
    """Fault, test, layer, seconds and outcome of every (test, fault), in the catalogue's order."""
    found = {}
    for report in reports:
        for key, fault in report.user_properties:
            if key == "fault":
                row = found.setdefault((fault, report.nodeid), {"seconds": 0.0, "outcome": "passed"})
                row["seconds"] += report.duration
                row["outcome"] = min(row["outcome"], report.outcome, key=_WORST.index)
    order = list(FAULTS)
    return [
        {"fault": fault, "test": node.partition("::")[2], "layer": layer(node), **row}
        for (fault, node), row in sorted(found.items(), key=lambda item: (order.index(item[0][0]), layer(item[0][1]), item))
    ]


def layer(node):
    """`e2e` of tests/e2e/test_healing.py::... and of tests/e2e/alerts/test_alerts_live.py::..."""
    return node.removeprefix("tests/").partition("/")[0]


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("--fault-table")
    if path is None:
        return
    reports = [each for stats in terminalreporter.stats.values() for each in stats if isinstance(each, pytest.TestReport)]
    table = rows(reports)
    tests = {row["test"] for row in table}
    wide = {key: max([len(key), *(len(row[key]) for row in table)]) for key in ("fault", "test", "layer")}
    terminalreporter.section("faults")
    for row in [{"fault": "fault", "test": "test", "layer": "layer", "seconds": None, "outcome": "outcome"}, *table]:
        seconds = "seconds" if row["seconds"] is None else f"{row['seconds']:.2f}"
        named = "  ".join(row[key].ljust(wide[key]) for key in wide)
        terminalreporter.write_line(f"{named}  {seconds:>7}  {row['outcome']}")
    covered = {row["fault"] for row in table if row["outcome"] == "passed"}
    terminalreporter.write_line(f"{len(covered)} of {len(FAULTS)} faults shown by {len(tests)} tests")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(table, indent=1) + "\n")
