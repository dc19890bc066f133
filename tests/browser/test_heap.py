"""The memory of an open dashboard over an hour of its requests, in a few minutes: the page's clock runs ahead."""

from __future__ import annotations

from typing import Any

import pytest
from tools import PATIENCE

TICK_MS, TICKS = 5_000, 720  # an hour
VIEWS = ("", "/program/Pong-s1?seeds=yes", "/compare?pick=Pong-s1,Breakout-s1", "/box")
EACH = 12  # ticks until the reader goes to the next page
MOST_MB = 2.0  # growth from a third of the hour to its end


def heap_mb(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 2**20


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_heap_is_flat_over_an_hour_of_polls(opened: Any) -> None:
    page = opened().page
    page.clock.install()
    page.reload(wait_until="commit")
    page.locator("#trained tbody tr").first.wait_for(timeout=120_000 * PATIENCE)
    answers: list[str] = []
    page.on("requestfinished", lambda request: answers.append(request.url) if "/api/v1/" in request.url else None)
    heaps: list[float] = []
    for tick in range(TICKS):
        if tick % EACH == 0:
            page.evaluate("(words) => { location.hash = words; }", VIEWS[tick // EACH % len(VIEWS)])
        page.clock.fast_forward(TICK_MS)
        page.wait_for_timeout(100)  # of real time, in which the requests are answered
        if (tick + 1) % (EACH * len(VIEWS)) == 0:  # always at the same page
            heaps.append(heap_mb(page))
            print(f"{tick + 1} of {TICKS}: {heaps[-1]:.2f} MB, {len(answers)} answers")
    third, end = heaps[len(heaps) // 3 - 1], heaps[-1]
    assert len(answers) > TICKS / 2
    assert end < third + MOST_MB
