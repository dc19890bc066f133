from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import FakeBackend, program
from serving import served


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Short: an AF_UNIX path has 107 bytes, and pytest's own directories can be longer."""
    directory = Path(tempfile.mkdtemp(prefix="xl-"))
    yield directory / "supervisor.sock"
    shutil.rmtree(directory)


@pytest.fixture
def backend() -> FakeBackend:
    made = FakeBackend()
    made.add(program("Pong", steps=12_345_678, mean_return=-18.25), program("Breakout", "QUEUED", attempt=0))
    return made


@pytest.fixture
def api(backend: FakeBackend, socket_path: Path) -> Iterator[Path]:
    with served(backend, socket_path):
        yield socket_path
