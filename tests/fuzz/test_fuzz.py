"""A fixed budget of fuzzing for every commit, the same inputs each time, and every input that ever broke something.

`python tests/fuzz --minutes 30` goes on from here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "api")]

from targets import TARGETS  # noqa: E402

KEPT = sorted(path for path in (HERE / "corpus").glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_in(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=target.examples, derandomize=True, deadline=None, database=None,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(target.inputs)
    def run(data: bytes) -> None:
        target.check(data)

    run()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_something(path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes())


def test_the_corpus_knows_its_readers() -> None:
    assert {path.parent.name for path in KEPT} <= set(TARGETS)
