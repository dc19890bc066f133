"""`cost` and `status` with a price, as people run them."""

from __future__ import annotations

import json
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


def test_the_bill_of_people(api: Path, paid: FakeBackend) -> None:
    done = ctl("cost", socket=api)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("at $3.60 an hour: $1.00")
    assert lines[2].split() == ["SPENT", "ON", "SLOT", "HOURS", "SHARE", "COST"]
    assert lines[3].split() == ["useful", "0.28", "100%", "$1.00"]
    assert lines[4].split() == ["total", "0.28", "100%", "$1.00"]
    assert "useful frames: not known" in lines
    assert any("without Pong" in line for line in lines)
    assert lines[-1].endswith("not known: all programs: the configuration cannot be read")


def test_without_a_price_it_says_how_to_set_one(api: Path, paid: FakeBackend) -> None:
    paid.header = known_to(paid.header, usd_per_hour=None)
    done = ctl("cost", socket=api)
    assert "$" not in done.stdout
    assert "set usd_per_hour in [cost]" in done.stdout
    assert "cost" not in ctl("status", socket=api).stdout


def test_status_has_it_in_short_and_json_has_it_all(api: Path, paid: FakeBackend) -> None:
    assert "cost $1.00, 100% useful" in ctl("status", "--wide", socket=api).stdout
    told = json.loads(ctl("cost", "--since", "500s", "--json", socket=api).stdout)
    assert told["usd"] == pytest.approx(0.5)


def test_what_it_does_not_take_is_said(api: Path, paid: FakeBackend) -> None:
    assert "takes no names" in ctl("cost", "Pong", socket=api).stdout
    assert "--since takes" in ctl("cost", "--since", "yesterday", socket=api).stdout
