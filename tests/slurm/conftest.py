"""A real Slurm for the tests of this directory that ask for one: `tests/run slurm` installs it and runs them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster import Cluster, unfit


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    why = unfit()
    if why:
        pytest.skip(why)
    # Slurm's paths have a limit, and a job's output goes where it runs: a short path for all.
    made = Cluster(Path(tmp_path_factory.mktemp("s")))
    before = os.environ.get("SLURM_CONF")
    try:
        made.up()
        os.environ["SLURM_CONF"] = made.environ["SLURM_CONF"]
        yield made
    finally:
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before
        made.down()
