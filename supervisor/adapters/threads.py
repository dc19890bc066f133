"""Guards the daemon's threads: work that fails is tried again, and a repeated failure is reported.

An ordinary thread ends with the first exception, and nobody notices: workers whose ends it reported stay RUNNING for ever.
So every lasting thread repeats its turn whatever it raises (`Lasting`), and every task is repeated while the machine lacks
descriptors, memory or threads (`Tasks`). `failing` lists the work that failed at least twice in a row: the deciding thread
reads it (`policy/box/supervision.py`).

A look at files may also hang. It has a thread for each round, which is left behind then (`Rounds`).

An ordinary pool starts a thread at its first task. While no thread can be started, that raises, and so does a thread per
task. Then its work (ending a hung worker, for example) is not done until somebody requests it again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from supervisor.as_user import as_daemon
from supervisor.lack import NO_THREAD, is_lack
from supervisor.policy.box.supervision import Failing

log = structlog.get_logger()

T = TypeVar("T")

_START_S: Final = 2.0  # a new thread needs less than a millisecond
_PAUSES_S: Final = (0.1, 0.5, 1.0, 2.0)  # before each next try; the last one from then on
_HEAL_S: Final = 0.1  # from the end of a worker until its replacement runs, also on a busy box
_MOST_WAIT_S: Final = 1.0  # of one page, while one worker after the other ends

_guard = threading.Lock()
_failures: dict[str, tuple[int, float, str, bool]] = {}  # by thread: failures in a row, since when, the newest error, vital
_lasting: weakref.WeakSet[Lasting] = weakref.WeakSet()
_healed_s = 0.0  # until then, the interpreter belongs to the threads that replace a worker


def begun(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads all run already and wait for tasks."""
    pool, all_there = ThreadPoolExecutor(threads, name), threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(all_there.wait)
    return pool


def worker_ended() -> None:
    """A worker's end was noticed: threads that call `give_way` wait while it is replaced."""
    global _healed_s  # noqa: PLW0603  as there is one interpreter
    _healed_s = time.monotonic() + _HEAL_S


def give_way() -> None:
    """Wait while a worker is being replaced, but not for long.

    A death is handled in dozens of system calls, and after each of them its thread would wait for the interpreter. A lower
    priority for pages would be worse: their threads would keep the interpreter while they wait for a processor.
    """
    end_s = time.monotonic() + _MOST_WAIT_S
    while (now_s := time.monotonic()) < (until_s := min(_healed_s, end_s)):
        time.sleep(until_s - now_s)


def failing() -> tuple[Failing, ...]:
    """The present failures: at least two in a row, or a thread that has ended although its work is not over."""
    now_s = time.monotonic()
    with _guard:
        found = {
            name: Failing(name, error, now_s - since_s, vital=vital)
            for name, (count, since_s, error, vital) in _failures.items() if count > 1
        }  # fmt: skip
    for thread in tuple(_lasting):
        if thread.ident is not None and not thread.is_alive() and not thread.over():
            found[thread.name] = Failing(thread.name, "it has ended", None, vital=thread.vital)
    return tuple(found[name] for name in sorted(found))


class Thread(threading.Thread):
    """A daemon thread whose start never hangs.

    For lack of memory a new thread may end before it has reported that it runs. `threading` waits for that report for ever.
    """

    def __init__(self, name: str, target: Callable[..., object], *args: object) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._started = _Report()  # `threading` waits for it, without a limit
        self._claimed = threading.Lock()

    def start(self) -> None:
        """Start it. Raises RuntimeError if it does not run; then it never will."""
        with as_daemon():  # a new thread has the rights of the one that starts it
            super().start()
        if not self._started.is_set() and self._claimed.acquire(blocking=False):
            raise RuntimeError(NO_THREAD)

    def run(self) -> None:
        if self._claimed.acquire(blocking=False):
            super().run()


class _Report(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(_START_S if timeout is None else timeout)


class Lasting(Thread):
    """A thread that repeats its turn until `over` returns True. A turn that raises is repeated after a pause."""

    def __init__(self, name: str, turn: Callable[[], object], over: Callable[[], bool], *, vital: bool = False) -> None:
        """`vital`: without this thread supervision cannot be trusted."""
        super().__init__(name, self._last)
        self._turn, self.over, self.vital = turn, over, vital

    def start(self) -> None:
        """Start it. Raises RuntimeError while no thread can be started."""
        super().start()
        _lasting.add(self)

    def _last(self) -> None:
        while not self.over():
            with contextlib.suppress(BaseException):  # of the guard itself, for lack of memory
                repeat(self.name, self._turn, self.over, vital=self.vital)


class Repeated:
    """Work with a thread of its own that repeats `_turn` from `start` to `stop`."""

    def __init__(self, name: str, *, vital: bool = False) -> None:
        self._over = threading.Event()
        self._thread = Lasting(name, self._turn, self._over.is_set, vital=vital)

    def _turn(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Raises RuntimeError while no thread can be started."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its present turn for up to 5 s. Does nothing before `start`."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)


def repeat(name: str, turn: Callable[[], object], over: Callable[[], bool], *, vital: bool = False) -> None:
    """Repeat a turn in this thread until `over`, whatever it raises. A success ends the row of failures."""
    while not over():
        try:
            turn()
        except BaseException as error:  # noqa: BLE001  the next turn may succeed; a thread that ends helps nobody
            if not over():
                time.sleep(_failed(name, error, vital=vital))
        else:
            _succeeded(name)
    with _guard:
        _failures.pop(name, None)


class Rounds(Generic[T]):
    """Looks at several things in turn, in a thread that may hang at one of them: the next rounds go on without that one.

    A network file system that is gone answers no `stat`, and no signal ends the wait.
    """

    def __init__(self, name: str, hang_s: float) -> None:
        """A look that has not ended after `hang_s` to twice as long hangs."""
        self._name, self.hang_s = name, hang_s
        self._stuck: list[_Round[T]] = []

    def of(self, looks: Mapping[str, Callable[[], T]]) -> tuple[dict[str, T], frozenset[str]]:
        """The results by name, and the names of the looks that hang. Raises the error of a look."""
        self._stuck = [each for each in self._stuck if not each.over.is_set()]
        hung = {each.at for each in self._stuck}
        now = _Round(self._name, {name: look for name, look in looks.items() if name not in hung})
        try:
            now.start()
        except RuntimeError:  # no thread can be started
            now.look()
        before = ""
        while not now.over.wait(self.hang_s):
            if now.at == before:
                now.given_up = True
                self._stuck.append(now)
                break
            before = now.at
        if now.error is not None:
            raise now.error
        return now.found, frozenset(each.at for each in self._stuck)


class _Round(Thread, Generic[T]):
    """One look at each thing. `at`: the name of the present one."""

    def __init__(self, name: str, looks: Mapping[str, Callable[[], T]]) -> None:
        super().__init__(name, self.look)
        self._looks = looks
        self.found: dict[str, T] = {}
        self.at, self.given_up, self.over = "", False, threading.Event()
        self.error: BaseException | None = None

    def look(self) -> None:
        try:
            for name, look in self._looks.items():
                self.at = name
                self.found[name] = look()
                if self.given_up:
                    break
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self.error = error
        finally:
            self.over.set()


def note(name: str, error: str) -> None:
    """Report that work named `name` does not get on, at the second time in a row; `error` empty: it does."""
    if error:
        _failed(name, TimeoutError(error), vital=False)
    else:
        _succeeded(name)


class Tasks:
    """Runs each task in its own thread, or in one spare thread (running since the start) if no thread can be started.

    Tasks in the spare thread run one after the other: slower, but none is lost. A task that fails for lack of descriptors,
    memory or threads is tried again until the lack is over, so it must be repeatable.
    """

    def __init__(self, name: str, *, vital: bool = False) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._vital, self._closed = vital, False
        Lasting(name, self._run_next, lambda: self._closed, vital=vital).start()

    def begin(self, name: str, target: Callable[..., object], *args: object) -> None:
        """Run a task. Returns at once; never raises."""
        task = partial(_until_done, name, partial(target, *args), vital=self._vital)
        try:
            Thread(name, task).start()
        except (RuntimeError, MemoryError):  # no thread can be started
            self._waiting.put(task)

    def close(self) -> None:
        """End the spare thread after its queued tasks."""
        self._waiting.put(self._close)

    def _run_next(self) -> None:
        self._waiting.get()()

    def _close(self) -> None:
        self._closed = True


class OneAtATime(Generic[T]):
    """Makes each caller's result by a run that begins after its call; one runs, at most one more waits.

    Example: three calls come while the first run goes on. They get the result of a second run, which sees the newest state.
    """

    def __init__(self, run: Callable[[], T]) -> None:
        self._run, self._running, self._guard = run, threading.Lock(), threading.Lock()
        self._next: Future[T] | None = None

    def __call__(self) -> T:
        with self._guard:
            runs, self._next = self._next is None, self._next or Future()
            result = self._next
        if runs:
            with self._running:
                with self._guard:
                    self._next = None
                try:
                    result.set_result(self._run())
                except BaseException as error:  # noqa: BLE001  it is raised by each caller
                    result.set_exception(error)
        return result.result()


def _until_done(name: str, target: Callable[[], object], *, vital: bool) -> None:
    while True:
        try:
            target()
        except Exception as error:  # as in its own thread: a failed task must not affect the next one
            if not is_lack(error):
                log.exception("task_failed", task=name)
                break
            time.sleep(_failed(name, error, vital=vital))
        else:
            break
    _succeeded(name)


def _failed(name: str, error: BaseException, *, vital: bool) -> float:
    """Note a failure; return the pause before the next try. Never raises."""
    with contextlib.suppress(BaseException):
        with _guard:
            count, since_s, _, _ = _failures.get(name, (0, time.monotonic(), "", vital))
            _failures[name] = count + 1, since_s, str(error) or type(error).__name__, vital
        if count == 0 and is_lack(error):
            log.warning("thread_failed", thread=name, error=str(error) or type(error).__name__)
        elif count == 0:
            log.error("thread_failed", thread=name, exc_info=error)
        return _PAUSES_S[min(count, len(_PAUSES_S) - 1)]
    return _PAUSES_S[-1]


def _succeeded(name: str) -> None:
    if name in _failures:
        with _guard:
            count = _failures.pop(name, (0,))[0]  # 0: another task of this name has succeeded meanwhile
        log.info("thread_works_again", thread=name, failures=count)
