"""Work that goes on where no new thread can be started: real threads, of which no more can begin."""

from __future__ import annotations

import threading

import pytest

from supervisor.adapters.threads import Tasks, begun


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From `refuse` on no thread can be started, as with EAGAIN; the names of those that were tried."""
    tried: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        tried.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return tried


def test_a_pool_has_all_of_its_threads_before_its_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    pool = begun(3, "keeper")
    new = set(threading.enumerate()) - before
    assert sorted(thread.name for thread in new) == ["keeper_0", "keeper_1", "keeper_2"]
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("no thread can be started any more"))
    together = threading.Barrier(3)
    assert sorted(each.result(60) for each in [pool.submit(together.wait, 60) for _ in range(3)]) == [0, 1, 2]
    pool.shutdown()
    assert not new & set(threading.enumerate())


def test_each_task_has_its_own_thread_with_its_name_and_what_it_was_given() -> None:
    tasks, told, both = Tasks("spare"), [], threading.Barrier(3)

    def work(*given: object) -> None:
        told.append((threading.current_thread().name, threading.current_thread().daemon, given))
        both.wait(60)

    tasks.begin("first", work, 1, "one")
    tasks.begin("second", work)
    both.wait(60)
    assert sorted(told) == [("first", True, (1, "one")), ("second", True, ())]
    tasks.close()


def test_without_new_threads_one_spare_thread_does_all_in_order_and_ends(request: pytest.FixtureRequest) -> None:
    before = set(threading.enumerate())
    tasks = Tasks("spare")
    (spare,) = set(threading.enumerate()) - before
    assert (spare.name, spare.daemon) == ("spare", True)
    refused = request.getfixturevalue("refused")
    told: list[tuple[str, tuple[object, ...]]] = []
    for number in range(3):
        tasks.begin(f"task {number}", lambda *given: told.append((threading.current_thread().name, given)), number, "x")
    tasks.close()
    spare.join(60)
    assert not spare.is_alive()
    assert told == [("spare", (0, "x")), ("spare", (1, "x")), ("spare", (2, "x"))]
    assert refused == ["task 0", "task 1", "task 2"]
