"""Fixtures that the tests of the API and of its client share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fake_backend import FakeBackend, program
from serving import served

from supervisor.api import rest


class Current:
    """Whatever backend the running test uses: one server serves them all, because starting one takes a while."""

    backend = FakeBackend()

    @property
    def acts(self) -> dict[str, Callable[[], Any]]:
        return {"alerts/test": lambda: self.backend.test_alerts()}  # noqa: PLW0108  the backend changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@pytest.fixture(autouse=True)
def bodies_may_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """`http.client` sends head and body apart. A busy machine may stop it in between, and then a refusal would close the
    connection before the body is sent."""
    monkeypatch.setattr(rest, "MOST_REST_S", 60.0)


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


@pytest.fixture(scope="session")
def shared() -> Iterator[tuple[Path, Current]]:
    directory, current = Path(tempfile.mkdtemp(prefix="xl-")), Current()
    with served(cast("FakeBackend", current), directory / "supervisor.sock"):
        yield directory / "supervisor.sock", current
    shutil.rmtree(directory)


@pytest.fixture
def api(backend: FakeBackend, shared: tuple[Path, Current]) -> Path:
    path, current = shared
    current.backend = backend
    return path
