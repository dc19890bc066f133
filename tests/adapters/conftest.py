"""Starts shims and attempts, and sees to it that nothing of their trees is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attempts_kit import Groups, World, eventually, spec
from shim_kit import TOKEN, Shim

from supervisor import files
from supervisor.adapters.process import processes
from supervisor.model.settings import Paths


@pytest.fixture(autouse=True)
def _slow_shims(monkeypatch):
    """On a busy machine a shim may stand still for longer than a daemon waits before it ends the tree itself."""
    monkeypatch.setattr(processes, "_KILL_PATIENCE_S", 60.0)


@pytest.fixture(autouse=True)
def _nothing_put_aside():
    """What another test has put aside is not reported by this one."""
    files.put_aside.clear()


@pytest.fixture
def no_umask():
    """What is made has the modes that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, Groups())
    yield world
    world.close()


@pytest.fixture
def start(tmp_path):
    shims = []
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))

    def start(argv, attempt=1, token=TOKEN, **changes) -> Shim:
        order = processes.shim_order(paths, spec("Pong", argv), attempt, token, "00" * 16)
        for place in (order["attempt_dir"], Path(order["record"]).parent):
            processes.make_dir(place)
        shims.append(Shim(order | changes))
        return shims[-1]

    yield start
    for one in shims:
        one.process.stdout.close()
        one.process.terminate()
        one.process.wait(60)
        assert eventually(lambda token=one.order["token"]: not processes._members(token, None))
