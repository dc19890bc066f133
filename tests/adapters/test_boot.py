"""Whether the box restarted, and the sign of life that tells since when. Real files, damaged on purpose."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tools import ROOT

from supervisor.adapters.host.boot import AliveMark, AliveWriter, Boot, BootFiles, examine, read_boot, read_mark
from supervisor.model.inputs import BootEvidence

HZ = os.sysconf("SC_CLK_TCK")
OLD, NEW = "a" * 32, "b" * 32
# Last sign of life at 12:00:00, the boot then 1,000 s old, pid 1 started 2 s into it.
LAST = AliveMark(OLD, 2 * HZ, at_s=5_000.0, wall_s=1_800_043_200.0, boot_s=1_000.0, level="light", steps={"Pong": 700})


RAN_ON = {"boot_now_s": 1_045.0}  # a host that has not rebooted since


def seen(now, last=LAST, *, marker=True, clean=False, wall_now_s=1_800_043_245.0, boot_now_s=5.0, **more):
    where = Path("/" if marker else "/nowhere/marker")
    return examine(now, last, marker=where, clean=clean, wall_now_s=wall_now_s, boot_now_s=boot_now_s, **more)


# --- this boot ---------------------------------------------------------------------------------------------------------


def test_this_machines_boot():
    found = read_boot(BootFiles.of({}))
    assert len(found.boot_id) == 32
    assert int(found.boot_id, 16)
    assert found.pid1_ticks is not None


# --- did it restart? -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "more", "why"),
    [
        (Boot(NEW, 2 * HZ), {}, "the boot id changed"),  # at the very same tick
        (Boot(NEW, 3 * HZ), {"last": None, "journal_boot_id": OLD}, "the boot id changed"),
        # A time namespace: its clocks begin at zero with each boot. 5 s up now, 1,000 s at the last sign of life.
        (Boot(OLD, 2 * HZ), {}, "the time since boot is less than at the last sign of life"),
        (Boot(OLD, 2 * HZ), {"boot_now_s": 999.9}, "the time since boot is less than at the last sign of life"),
        (Boot(OLD, 2 * HZ), {"boot_now_s": 1_000.0}, ""),
        # A restarted container keeps the boot id of its host, whose CLOCK_BOOTTIME goes on.
        (Boot(OLD, 1_040 * HZ), RAN_ON, "pid 1 was started at another time"),
        (Boot(OLD, None), RAN_ON, ""), (Boot(OLD, 2 * HZ), RAN_ON | {"last": replace(LAST, pid1_ticks=None)}, ""),
        (Boot(OLD, 2 * HZ), RAN_ON | {"marker": False}, ""),  # a removed runtime directory alone
        (Boot(OLD, 2 * HZ), {"last": None, "journal_boot_id": OLD}, ""),
        (Boot(NEW, 7 * HZ), {"journal_boot_id": NEW}, ""),  # it is on record: the daemon died before its first mark
        (Boot(OLD, 2 * HZ), {"journal_boot_id": "c" * 32}, ""),  # the journal lost its newest facts
    ],
)  # fmt: skip
def test_a_reboot_is_what_one_witness_tells(now, more, why):
    told = seen(now, **more)
    assert (told.rebooted, told.evidence) == (bool(why), why or "the same boot")


@pytest.mark.parametrize(
    ("now", "more", "down_s"),
    [
        (Boot(OLD, 2 * HZ), {}, 42.0),  # 12:00:00 to 2 s after 12:00:40
        (Boot(OLD, 1_040 * HZ), RAN_ON, 40.0),
        (Boot(NEW, 5 * HZ), {}, 45.0), (Boot(NEW, 5 * HZ + 1), {}, 40.0),  # pid 1 cannot have started in the future
        *(  # neither is known from a clock that is not set, nor when the wall clock contradicts it
            (Boot(NEW, 0), {"wall_now_s": 1_800_043_243.0 + step_s}, down_s)
            for step_s, down_s in ((0.0, 38.0), (3_600.0, 3_638.0), (-3_600.0, None), (-40.0, 0.0), (-40.1, None))
        ),
        (Boot(NEW, 0), {"wall_now_s": 12.0}, None), (Boot(NEW, 0), {"last": replace(LAST, wall_s=9.0)}, None),
        (Boot(NEW, 0), {"last": replace(LAST, wall_s=9.0), "wall_now_s": 12.0}, None),
    ],
)  # fmt: skip
def test_the_downtime_is_from_the_last_sign_of_life_to_the_start_of_pid_1_if_the_clock_allows(now, more, down_s):
    assert seen(now, **more).down_s == (None if down_s is None else pytest.approx(down_s))


POD = replace(LAST, first=f"70 {9 * HZ}", root="mnt:[7] 0:50 / / rw - overlay overlay upperdir=/1")


@pytest.mark.parametrize(
    ("first", "root", "marker", "lives", "rebooted"),
    [
        (f"70 {1_009 * HZ + 1}", "mnt:[8]", True, False, True),
        (f"70 {1_009 * HZ + 1}", POD.root, False, False, True),  # the numbers of namespaces and mounts are used again
        (f"70 {1_009 * HZ + 1}", POD.root, True, False, False),  # one witness: another `kubectl exec` started this daemon
        (POD.first, "mnt:[8]", False, False, False),
        (f"70 {1_009 * HZ + 1}", "mnt:[8]", False, True, False),  # a worker of it still lives
        ("", "", False, False, False),
    ],
)
def test_where_containers_share_their_processes_two_others_are_needed(first, root, marker, lives, rebooted, tmp_path):
    """Pid 1 is the pod's own process, and the boot id that of the host: both stay."""
    now = Boot(OLD, 2 * HZ, first, root)
    told = examine(
        now, POD, marker=tmp_path if marker else tmp_path / "gone", clean=False, wall_now_s=1_800_043_245.0,
        boot_now_s=1_045.0, lives=lambda: lives,
    )  # fmt: skip
    assert (told.rebooted, told.kind) == (rebooted, "container" if rebooted else "")
    if rebooted:
        assert told.evidence.startswith("the container has another first process and root")
        assert told.down_s == pytest.approx(9.01), "since then pid 1 has run on"
        assert told.up_s == pytest.approx(991.0)


def test_a_reboot_is_reported_with_all_that_is_known_of_it():
    last = replace(LAST, ckpt_steps={"mine": 650})
    found = seen(Boot(NEW, 3 * HZ), last, journal_boot_id=OLD, marker=False, clean=True)
    evidence = "the boot id changed, pid 1 was started at another time, the marker in the runtime directory is gone"
    assert found == BootEvidence(
        NEW, rebooted=True, evidence=evidence, cause="orderly", down_s=43.0, up_s=998.0, steps={"Pong": 700},
        ckpt_steps={"mine": 650}, last_sign_wall_s=1_800_043_200.0, boot_wall_s=1_800_043_243.0, last_sign_s=5_000.0,
        mark_at_s=5_000.0,
    )  # fmt: skip
    assert seen(Boot(NEW, 2 * HZ), clean=None).cause == seen(Boot(NEW, 2 * HZ), clean=False).cause == "unclean"
    assert seen(Boot(NEW, 0), replace(LAST, pid1_ticks=1_001 * HZ)).up_s == 1_000.0, "pid 1 started before the mark"
    same = seen(Boot(OLD, 2 * HZ), **RAN_ON)
    assert (same.steps, same.last_sign_s, same.kind) == ({"Pong": 700}, 5_000.0, "")
    first = seen(Boot(OLD, 2 * HZ), None)
    assert (first.rebooted, first.evidence) == (None, "no sign of an earlier life")


def test_a_fact_after_the_mark_is_a_later_sign_of_life_if_it_is_of_the_same_boot():
    told = seen(Boot(NEW, 0), journal_boot_id=OLD, journal_at_s=5_004.0)
    assert told.down_s == pytest.approx(36.0), "12:00:04 to 12:00:40, as the accounts book it"
    assert (told.last_sign_s, told.last_sign_wall_s, told.mark_at_s) == (5_004.0, 1_800_043_204.0, 5_000.0)
    assert told.up_s == pytest.approx(1_002.0)
    told = seen(Boot(NEW, 0), journal_boot_id="c" * 32, journal_at_s=5_004.0)  # it lost its newest facts
    assert (told.last_sign_s, told.mark_at_s, told.down_s, told.up_s) == (5_000.0, 5_000.0, 40.0, 998.0)


# --- the sign of life ------------------------------------------------------------------------------------------------------


class CheckedWriter:
    """A writer on a real file, and what it complained of."""

    def __init__(self, path, period_s=3600.0):
        self.errors, self.mark = [], LAST
        self.writer = AliveWriter(path, lambda: self.mark, period_s, self.errors.append)


def test_a_mark_comes_back_as_it_was(tmp_path):
    told = CheckedWriter(tmp_path / "alive")
    told.writer.write()
    assert read_mark(tmp_path / "alive") == LAST
    again = CheckedWriter(tmp_path / "alive")  # the next writer goes on with the numbers of the marks
    again.mark = POD
    again.writer.write()
    assert read_mark(tmp_path / "alive") == POD
    assert (tmp_path / "alive").stat().st_mode & 0o777 == 0o600
    assert not told.errors


def test_a_torn_write_costs_one_period_wherever_it_tears(tmp_path):
    path = tmp_path / "alive"
    told = CheckedWriter(path)
    for number in (1, 2, 3):
        told.mark = replace(LAST, at_s=float(number))
        told.writer.write()
    before = path.read_bytes()
    told.mark = replace(LAST, at_s=4.0)
    told.writer.write()
    after = path.read_bytes()
    changed = [at for at in range(len(after)) if at >= len(before) or before[at] != after[at]]
    first, last = changed[0], changed[-1]
    for cut in range(first, last + 1):
        for torn in (
            after[:cut] + before[cut:],
            before[:cut] + after[cut:],
            after[:cut] + b"\0" * (last - cut) + after[last:],
        ):
            path.write_bytes(torn)
            assert read_mark(path).at_s in {3.0, 4.0}
    path.write_bytes(after)
    assert read_mark(path).at_s == 4.0


def test_the_thread_writes_every_period_and_once_at_the_end(tmp_path):
    told = CheckedWriter(tmp_path / "alive", period_s=0.01)
    written = threading.Event()

    def make():
        told.mark = replace(told.mark, at_s=told.mark.at_s + 1)
        if told.mark.at_s >= LAST.at_s + 3:
            written.set()
        return told.mark

    writer = AliveWriter(tmp_path / "alive", make, 0.01, told.errors.append)
    writer.start()
    assert written.wait(20)
    writer.stop()
    writer._thread.join(60)  # `stop` itself waits for five seconds, and a busy disk may take longer
    assert read_mark(tmp_path / "alive") == told.mark
    assert not told.errors


def test_a_disk_that_refuses_is_reported_once_and_tried_again(tmp_path):
    path = tmp_path / "gone" / "alive"
    told = CheckedWriter(path)
    told.writer.write()
    told.writer.write()
    assert told.errors == [f"cannot write the sign of life {path}: No such file or directory"]
    path.parent.mkdir()
    told.writer.write()
    assert read_mark(path) == LAST
    path.unlink()
    path.parent.rmdir()
    told.writer.write()
    assert told.errors == [f"cannot write the sign of life {path}: No such file or directory"] * 2, "a new one is told again"


def test_what_was_written_outlives_a_kill(tmp_path):
    """A process that writes marks as fast as it can is killed at a random moment, five times over."""
    path = tmp_path / "alive"
    code = (
        "import sys; from pathlib import Path; from supervisor.adapters.host.boot import *\n"
        "n = int(sys.argv[2])\n"
        "def make():\n    global n; n += 1\n    return AliveMark('a' * 32, 1, float(n), 0.0, 0.0, steps={'Pong': n})\n"
        "w = AliveWriter(Path(sys.argv[1]), make, 9, print)\n"
        "w.write(); print('ready', flush=True)\n"
        "while True: w.write()\n"
    )
    newest = 0.0
    for _ in range(5):
        args = [sys.executable, "-c", code, str(path), str(int(newest))]
        with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"ready\n"
            deadline = time.monotonic() + 0.02
            while time.monotonic() < deadline:
                mark = read_mark(path)
                assert mark is not None
                assert mark.steps == {"Pong": int(mark.at_s)}
            child.kill()
        mark = read_mark(path)
        assert mark is not None
        assert mark.at_s > newest
        newest = mark.at_s


def test_the_mark_stays_in_its_directory_when_another_one_takes_the_path(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    told = CheckedWriter(state / "alive")
    told.writer.write()
    state.rename(tmp_path / "away")
    state.mkdir()
    told.writer.write()
    assert not list(state.iterdir()), "it may belong to another journal"
    assert read_mark(tmp_path / "away" / "alive") == told.mark
