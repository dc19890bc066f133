"""`cost` and `status` with a price, as people run them."""

from __future__ import annotations

from pathlib import Path

from fake_backend import FakeBackend, known_to
from running import ctl


def test_without_a_price_it_says_how_to_set_one(api: Path, backend: FakeBackend) -> None:
    backend.header = known_to(backend.header, usd_per_hour=None)
    done = ctl("cost", socket=api)
    assert "$" not in done.stdout
    assert "set usd_per_hour in [cost]" in done.stdout
    assert "cost" not in ctl("status", socket=api).stdout
