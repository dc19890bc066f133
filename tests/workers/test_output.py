"""A log that cannot be written ends no training: the disk below it may be full for hours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT

TRAIN = [
    sys.executable, "-m", "workers", "--program", "Catch", "--game", "Catch", "--algo", "ppo", "--steps", "512",
    "--num-envs", "2", "--n-steps", "16", "--batch-size", "32", "--epochs", "1", "--threads", "1", "--num-test-episodes", "0",
    "--device", "cpu", "--tensorboard", "false",
]  # fmt: skip
EXIT_DONE = 0
FULL = Path("/dev/full")  # every write ends with ENOSPC


def train(directory: Path, **streams: object) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(TRAIN, cwd=directory, env=env, timeout=120, check=False, **streams).returncode


@pytest.mark.fault("disk-full-checkpoint")
@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_training_whose_log_is_on_a_full_disk_trains_to_its_end(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        assert train(tmp_path, stdout=full, stderr=full) == EXIT_DONE
    assert list((tmp_path / "runs" / "Catch" / "checkpoints").glob("ckpt-512.*"))


def test_a_line_after_the_disk_has_room_again_is_written(tmp_path: Path) -> None:
    """The lines that were dropped do not come back, and fail no later one."""
    code = (
        "import resource, sys; from workers import output; output.drop_unwritable()\n"
        "limit = lambda n: resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))\n"
        "print('before'); limit(0); print('dropped'); print('so is this', file=sys.stderr)\n"
        "limit(resource.RLIM_INFINITY); print('after é', flush=True)\n"
    )
    log = tmp_path / "log"
    with log.open("w") as file:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=file, stderr=file, timeout=60, check=False)
    assert (done.returncode, log.read_text()) == (0, "before\nafter é\n")


def test_a_reader_that_goes_away_ends_it() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "from workers import output; output.drop_unwritable(); print('nobody reads this')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=write, stderr=subprocess.DEVNULL, timeout=60, check=False
    )
    os.close(write)
    assert done.returncode != 0
