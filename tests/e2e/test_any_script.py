"""Scripts that know nothing of extralife: none is ended while it works, and one that does nothing is."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from box import FLOOR_S, Box, until

COMPUTES = "while True: sum(range(100_000))"
# 20 ms of CPU time in every 0.2 s, however fast the machine is: well above the share that counts as work.
RARELY = (
    "import time\nwhile True:\n begun = time.process_time()\n"
    " while time.process_time() < begun + 0.02: sum(range(9_000))\n time.sleep(0.2)"
)
# Twelve kinds of programs that print nothing for as long as they run.
SILENT = {
    "computes": f"python -c '{COMPUTES}'",
    "computes-rarely": f"python -c '{RARELY}'",
    "sh-and-python": f"bash -c \"python -c '{COMPUTES}'; echo done\"",
    "piped": f"bash -c \"python -c '{COMPUTES}' | tee all.log\"",
    "ranks": (
        "python -c 'import subprocess, sys\n"
        f'for p in [subprocess.Popen([sys.executable, "-c", "{COMPUTES}"]) for _ in "ab"]: p.wait()\''
    ),
    "one-after-the-other": "bash -c 'while :; do python -S -c \"sum(range(2_000_000))\"; done'",
    "nobody-waits": "bash -c 'trap \"\" CHLD; while :; do seq 300000 > numbers; done'",
    "reads": "bash -c 'while :; do cat /proc/self/exe > /dev/null; sleep 0.02; done'",
    "writes": 'python -c \'import time\nwhile True: open("w", "wb").write(bytes(200_000)); time.sleep(1)\'',
    "compresses": "bash -c 'cat /dev/zero | gzip -c > /dev/null'",
    "session-of-its-own": f"bash -c \"setsid python -c '{COMPUTES}'; true\"",
    "sorts": "bash -c 'while :; do seq 200000 | sort -R > sorted; done'",
}


def program(name: str, command: str, directory: Path, keys: str = "") -> str:
    (directory / name).mkdir()
    python = command.replace("python ", f"{shlex.quote(sys.executable)} ")
    return f'[program.{name}]\ncommand = {json.dumps(["bash", "-c", "exec " + python])}\ndirectory = "{directory / name}"\n{keys}\n'


def child_of(box: Box, name: str, word: str) -> int:
    """A process of a program's tree whose command line holds this word, and that is not the first."""
    first = box.program(name)["pid"]

    def look() -> int | None:
        for pid in box.pids():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                place = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
                if pid != first and word.encode() in line and f"/{name}".encode() in place:
                    return pid
        return None

    return int(until(look, 10, f"{word} of {name}"))


@pytest.mark.slow
def test_none_of_twelve_silent_programs_is_ended_while_it_works(box: Box) -> None:
    programs = "".join(program(name, command, box.directory) for name, command in SILENT.items())
    stuck = program("stuck", "bash -c 'echo up; exec sleep 1000'", box.directory)
    box.config(programs + stuck, slots=13, extra="coarse_floor_s = 30.0")
    box.start()
    for name in SILENT:
        box.wait_fact("Quiet", name, timeout_s=120)
    box.wait_fact("Stalled", "stuck", timeout_s=60)
    assert not [name for name in SILENT if box.facts("Stalled", name) or box.facts("Exited", name)]


@pytest.mark.long
@pytest.mark.fault("silent-works")
@pytest.mark.fault("silent-hangs")
def test_a_silent_script_that_computes_is_quiet_and_one_that_does_nothing_is_ended(box: Box) -> None:
    box.config(
        program("computes", SILENT["computes-rarely"], box.directory)
        + program("stuck", "bash -c 'echo up; exec sleep 1000'", box.directory)
        + program("told", SILENT["computes-rarely"], box.directory, "start_timeout_s = 3.0")
        + program("board", "bash -c 'sleep 1000'", box.directory, 'kind = "service"\nrestart = "always"')
        + box.trainer("beats").replace('progress = "beat"\n', ""),
        extra="coarse_floor_s = 7.0", start_s=4 * FLOOR_S,
    )  # fmt: skip
    box.start()
    stalled = box.wait_fact("Stalled", "told")
    assert (stalled["stall"], stalled["limit_s"]) == ("silent", 3.0), "the operator's word is enough"
    stalled = box.wait_fact("Stalled", "stuck")
    assert (stalled["stall"], stalled["limit_s"]) == ("silent", 7.0)
    assert "nor has it used CPU time" in stalled["why"]
    box.wait_fact("Exited", "stuck")
    quiet = box.wait_fact("Quiet", "computes", timeout_s=60)
    assert quiet["witness"] == "cpu"
    assert "it uses CPU time" in box.program("computes")["why"]
    assert not box.facts("Stalled", "computes")
    assert box.wait_phase("board", "RUNNING")["progress_source"] == "none", "a service beside four trainings in four slots"
    assert not box.facts("Stalled", "board")
    beats = box.wait_phase("beats", "RUNNING")
    assert beats["progress_source"] == "beat"
    assert beats["steps"] is not None


@pytest.mark.fault("child-stopped")
@pytest.mark.parametrize("keys", ["", 'progress = "none"\n'], ids=["auto", "none"])
def test_a_suspended_child_of_a_tree_runs_again_in_seconds(box: Box, keys: str) -> None:
    box.config(program("tree", f"bash -c \"python -c '{RARELY}' | tee all.log\"", box.directory, keys))
    box.start()
    box.wait_phase("tree", "RUNNING")
    child = child_of(box, "tree", "range(")
    os.kill(child, signal.SIGSTOP)
    halted = box.wait_fact("ChildHalted", "tree")
    assert (halted["pid"], halted["proc_state"]) == (child, "T")
    until(lambda: state(child) in {"R", "S"}, 10, "it runs again")
    assert not box.facts("Stalled", "tree")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
