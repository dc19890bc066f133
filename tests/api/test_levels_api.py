"""The ladder over HTTP and XML-RPC: read, pinned, unpinned, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend
from rpc_client import close_all, fault_of, proxy


@pytest.fixture(autouse=True)
def connections_are_closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def rpc(api: Path) -> Any:
    return proxy(api)


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
