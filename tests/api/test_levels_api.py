"""The ladder over HTTP and XML-RPC: read, pinned, unpinned, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend
from rpc_client import close_all, fault_of, proxy
from serving import call


@pytest.fixture(autouse=True)
def connections_are_closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def rpc(api: Path) -> Any:
    return proxy(api)


def test_read_pin_unpin(api: Path, backend: FakeBackend) -> None:
    assert call(api, "/api/v1/level")[1]["level"] == "light"
    assert call(api, "/api/v1/level", {"pin": "heavy", "for_s": 60})[1] == {"name": "heavy", "code": 80, "text": "done"}
    assert call(api, "/api/v1/level", {"unpin": True})[0] == 200
    assert [(level, for_s) for level, for_s, _, _ in backend.pins] == [("heavy", 60.0), (None, None)]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "give pin, a level's name, or unpin, true"),
        ({"pin": "heavy", "unpin": True}, 400, "give pin, a level's name, or unpin, true"),
        ({"pin": 3}, 400, "pin must be the name of a level"),
        ({"pin": "heavy", "for_s": 0}, 400, "for_s must be a number of seconds"),
        ({"pin": "heavy", "for_s": True}, 400, "for_s must be a number of seconds"),
        ({"pin": "hevy"}, 404, "no such level: hevy"),
        ({"level": "heavy"}, 400, "unknown key 'level'"),
    ],
)
def test_what_is_refused(api: Path, backend: FakeBackend, body: dict[str, Any], status: int, told: str) -> None:
    got, answer = call(api, "/api/v1/level", body)
    assert got == status
    assert told in answer["error"]
    assert not backend.pins


def test_pin_is_no_verb_for_programs(api: Path) -> None:
    status, answer = call(api, "/api/v1/ask", {"verb": "pin", "names": ["Pong"]})
    assert status == 400
    assert "verb must be one of start, stop" in answer["error"]


def test_over_xml_rpc(rpc: Any, backend: FakeBackend) -> None:
    assert rpc.extralife.getLevel() == {"level": "light", "levels": [{"name": "light"}]}, "unknown is left out"
    assert rpc.extralife.pinLevel("heavy", 60) == "done"
    assert rpc.extralife.pinLevel("light") == "done"
    assert rpc.extralife.unpinLevel() == "done"
    assert [(level, for_s) for level, for_s, _, _ in backend.pins] == [("heavy", 60.0), ("light", None), (None, None)]
    assert fault_of(rpc.extralife.pinLevel, "hevy")[0] == 10
    assert fault_of(rpc.extralife.pinLevel, "heavy", -1)[0] == 2
    assert rpc.extralife.whenDone("delay", 60) == "20261121-033000"
    assert fault_of(rpc.extralife.whenDone, "delay")[0] == 2
    assert fault_of(rpc.extralife.whenDone, "dance")[0] == 2
