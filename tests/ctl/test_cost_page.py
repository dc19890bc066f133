"""`cost` and `status` with a price, as people run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_backend import FakeBackend, known_to
from running import ctl

from supervisor.model import facts
from supervisor.model.facts import Stamped


@pytest.fixture
def paid(backend: FakeBackend) -> FakeBackend:
    """A thousand seconds of one slot, all of it training."""
    told = [
        facts.DaemonStarted("first", 1, "1", clean=True, salt=""), facts.LevelChosen("set", "light", 1),
        facts.ProgramConfigured("new", "Pong", "d"), facts.SpawnIntended("free", "Pong", "t", 1, "d", "light"),
        facts.BecameReady("trains", "Pong", "t", 0.0), facts.Resumed("begins", "Pong", "t", 0, None),
    ]  # fmt: skip
    backend.journal = [Stamped(number, 0.0, 0.0, "b", fact) for number, fact in enumerate(told, 1)]
    backend.header = known_to(backend.header, usd_per_hour=3.6)
    return backend


def test_without_a_price_it_says_how_to_set_one(api: Path, paid: FakeBackend) -> None:
    paid.header = known_to(paid.header, usd_per_hour=None)
    done = ctl("cost", socket=api)
    assert "$" not in done.stdout
    assert "set usd_per_hour in [cost]" in done.stdout
    assert "cost" not in ctl("status", socket=api).stdout
