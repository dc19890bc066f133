"""A real worker that runs out of memory gets its fallback batch, and the level remembers it through all that follows."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from box import Box, until

from workers import contract

BATCH, FALLBACK = 32_768, 8_192
# No update before the limit is there: with this much to learn at once, the first one asks for more than is left.
CATCH = f"""
[program.Catch]
fallback_batch = {FALLBACK}
replay_size = 140_000
learning_starts = 130_000
replay_ratio = 512
threads = 1
stop_grace_s = 5.0
"""


def level(box: Box, name: str, batch: int) -> None:
    box.config(CATCH)
    text = box.config_file.read_text()
    box.config_file.write_text(
        text.replace("num_envs = 4\nbatch_size = 32", f'name = "{name}"\nnum_envs = 64\nbatch_size = {batch}')
    )


def limit_memory(pid: int, left_mb: int) -> None:
    in_use = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (in_use + (left_mb << 20), resource.RLIM_INFINITY))


@pytest.mark.slow  # half a minute; what it strings together is tested apart (core, test_levels, test_worker_faults)
@pytest.mark.fault("memory-error")
def test_a_fallback_batch_and_a_level_that_remembers_it(box: Box) -> None:
    level(box, "heavy", BATCH)
    box.env["GLIBC_TUNABLES"] = "glibc.malloc.arena_max=2"  # set: the worker keeps nothing back from the limit
    box.start()
    training = until(lambda: (p := box.program("Catch")).get("steps") and p, 120, "it to train")
    limit_memory(training["pid"], 40)
    lowered = box.wait_fact("BatchLowered", "Catch", timeout_s=180)
    assert (lowered["level"], lowered["from_batch"], lowered["batch_size"]) == ("heavy", BATCH, FALLBACK)
    assert lowered["why"] == f"ran out of memory with batch {BATCH} at level heavy: {FALLBACK} from now on"
    exited = box.facts("Exited", "Catch")[0]
    assert (exited["cause"], exited["code"]) == ("out_of_memory", contract.EXIT_NO_MEMORY)

    def runs_with(batch: int, lowered_batch: int | None) -> None:
        until(
            lambda: (p := box.program("Catch")).get("batch_size") == batch and p["lowered_batch"] == lowered_batch,
            90, f"batch {batch}",
        )  # fmt: skip

    runs_with(FALLBACK, FALLBACK)
    assert f"batch       {FALLBACK} at level heavy, since it ran out of memory" in box.ctl("explain", "Catch").stdout

    level(box, "light", 64)
    box.ctl("update", check=True)
    runs_with(64, None)
    box.kill_daemon()
    box.start()
    level(box, "heavy", BATCH)
    box.ctl("update", check=True)
    runs_with(FALLBACK, FALLBACK)
