"""One training, as seen by its script: `init` makes it, and every call below is safe in a training loop.

Nothing here raises into the loop: an error is one line on stderr, and the training goes on. Four things end the
process, all at its beginning or its end: `init` refuses an identity that is no JSON, and `restore` another one (exit code
78), a directory that another process uses is refused (1), and `leave` exits with the code that tells the daemon why.

Three kinds of processes stay silent: ranks other than 0 (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, LOCAL_RANK), children of
one that reports (fork, spawn, subprocess), and daemonic processes of multiprocessing, as the workers of a SubprocVecEnv are.
Rank 0 of torch.multiprocessing.spawn, and of a process group, reports in place of its parent, which waits for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from . import contract
from .contract import Client, TargetKind, WorkerPhase
from .saving import AllDamaged, Fenced, Restored, Saver, WrongIdentity

__all__ = ["Restored", "Run", "init"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from types import FrameType, TracebackType

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")  # the first that is set counts
_ALONE_SAVE_S = 600.0
_LOOK_NS = 1_000_000_000
_RATE_WINDOW_S = 10.0
_LEAST, _MOST = -math.inf, math.inf
_SAVING_S = 900.0
_SILENCE_S = 600.0
_BAD_IN_A_ROW = 100  # bad losses: it has diverged
_GAMES = 100  # in the mean for a record
_OTHER_NAMES = {"reward": "mean_return", "mean_reward": "mean_return", "ep_rew_mean": "mean_return"}
_Handler = Any  # of signal.signal

_the_run: Run | None = None
_is_forked_group = False  # torch's process group is that of the parent of this process


def init(
    total: int | None = None, identity: Mapping[str, Any] | None = None, save_every_s: float | None = None,
    directory: str | os.PathLike[str] = "extralife-run", silence_s: float = _SILENCE_S,
) -> Run:  # fmt: skip
    """The training of this process; a second call returns the same one.

    total: the step at which the training is done. identity: what must match to resume a checkpoint, as JSON (game,
    network, ...). save_every_s: the longest time between two checkpoints; without it the daemon chooses, and without a
    daemon it is ten minutes. directory: for checkpoints without a daemon; with one, they lie in its run directory.
    silence_s: the longest time between two calls of `step`, an evaluation included; after that it counts as hung.
    """
    global _the_run  # noqa: PLW0603  one process has one beat
    given = (total, identity or {}, save_every_s, directory, silence_s)
    if _the_run is None and _is_being_spawned():
        return _later(*given)
    if _the_run is None:
        _the_run = Run(*given[:4], os.environ, silence_s)
    return _the_run


def _later(*given: Any) -> Run:
    """The Run of this process; if there is none, one that begins when it is first used. Before, its rank is not known."""
    global _the_run  # noqa: PLW0603
    if _the_run is None:
        _the_run = Run.__new__(Run)
        vars(_the_run)["_given"] = given
    return _the_run


class Run:
    """See `init`. Steps are counted by the script: environment steps, batches, epochs, but always the same."""

    def __init__(
        self, total: int | None, identity: Mapping[str, Any], save_every_s: float | None,
        directory: str | os.PathLike[str], environ: MutableMapping[str, str], silence_s: float = _SILENCE_S,
    ) -> None:  # fmt: skip
        self.total, self.at = total, 0
        self._target = contract.UNKNOWN if total is None or not math.isfinite(total) else max(0, math.ceil(total))
        place = _place(environ)
        self._is_helper, self._is_spawned, self._stands_in = place.is_helper, place.is_spawned, place.stands_in
        self.is_reporter = place.rank == 0 and not place.is_helper
        self._directory = directory
        self._client = _client(environ, Path(directory), is_reporter=self.is_reporter)
        self.supervised = self._client.supervised
        self.program, self.attempt = self._client.program, self._client.attempt
        self._environ = dict(environ)
        self.identity = _as_json(identity)  # may be completed until `restore`
        self._saver: Saver | None = None
        self._lock: Any = None  # the open file that keeps other processes out, without a daemon
        self._every_s = _ALONE_SAVE_S if save_every_s is None else save_every_s
        self._save_at_s = time.monotonic() + self._every_s
        self._silence_s = silence_s
        self._save_due = self._last_save_due = self._is_step_refused = False
        self._saves_asked = self._waited = False
        self._stop = False
        self._why: int | None = None  # the exit code for any other reason than a request to leave
        self._bad = self._bad_row = self._last_finite_step = 0
        self._outside_training = True  # not in phase TRAINING
        self._look_at_ns = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._returns: deque[float] = deque(maxlen=_GAMES)
        self._episodes = 0
        self._mean = math.nan
        self._best = self._first = math.nan
        self._locations: dict[str, contract.Location] = {}  # by the figure's name in `step`
        self._warned: set[str] = set()
        self._earlier: dict[int, _Handler] = {}
        self._listen()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled Run is that of the process that loads it: of rank 0 it reports, of a worker of SubprocVecEnv nothing."""
        return _later, self._as_given()

    def _as_given(self) -> tuple[Any, ...]:
        return self.total, self.identity, self._every_s, self._directory, self._silence_s

    if not TYPE_CHECKING:  # any attribute would pass its check

        def __getattr__(self, name: str) -> Any:
            """Begin a Run that was pickled or forked: it has no attributes until now."""
            given = None if name.startswith("__") else vars(self).pop("_given", None)
            if given is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__init__(*given[:4], os.environ, given[4])
            return getattr(self, name)

    # reporting

    def step(self, n: int, loss: float | None = None, **figures: float) -> None:
        """Report that the training is at step `n`. All figures are optional; give the newest values.

        A `loss` that is not finite is a bad update: many in a row are a divergence. `episode_return` is the return of an
        episode that has just ended: the mean of the last 100 is shown. `mean_return` (or `reward`) is your own mean.
        Others: episodes, updates, frames, entropy, grad_norm, q_mean and more, listed in docs/contract.md. A figure of
        any other name (`accuracy`) is shown under that name, at most 32 of them.
        """
        if self._is_helper:
            return
        before = self.at
        try:
            if loss is not None and not _LEAST < loss < _MOST:
                self._bad_loss()
                loss = None
            elif self._bad_row and loss is not None:
                self._bad_row = 0
            self.at = n
            if not self.is_reporter:
                return
            if self._outside_training:
                self._to_training()
            try:
                at_ns = self._client.progress_at(n, loss, self._locations, figures)
            except (KeyError, TypeError, ValueError):  # not cached, computed here, or wrong: the slow path says which
                self.at = before
                self.at = _whole(n)
                self._client.progress(env_steps=self.at, loss=loss, **self._known(figures))
                at_ns = contract.now_ns()
            if at_ns >= self._look_at_ns:
                self._look(at_ns)
        except Exception as error:
            self._warn_once(f"step({n!r}) was not reported: {error}")

    def phase(self, name: str, deadline_s: float | None = None) -> _PhaseContext:
        """Begin a phase other than training: "building", "compiling", "evaluating", "saving", "restoring".

        It may take `deadline_s` seconds. The next `step` ends it, and so does the end of a `with` block.
        """
        try:
            phase = WorkerPhase[name.upper()]
        except (KeyError, AttributeError):
            names = ", ".join(each.name.lower() for each in WorkerPhase)
            self._warn_once(f"{name!r} is not a phase; use one of {names}")
        else:
            self._enter(phase, deadline_s)
        return _PhaseContext(self)

    def _enter(self, phase: WorkerPhase, deadline_s: float | None = None) -> None:
        self._outside_training = True
        if self.is_reporter:
            with contextlib.suppress(Exception):
                self._client.phase(phase, deadline_s=deadline_s)

    def _to_training(self, *, saved: bool = False) -> None:
        self._outside_training = False
        total, kind = self._target, TargetKind.NONE if self._target == contract.UNKNOWN else TargetKind.ENV_STEPS
        self._client.phase(WorkerPhase.TRAINING, deadline_s=self._silence_s, target=total, target_kind=kind)
        if not saved:  # saving is a part of training, and of its rate
            self._marks.clear()

    def _known(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for given, value in figures.items():
            name = _OTHER_NAMES.get(given, given)
            if name == "episode_return":
                found.update(self._game(float(value)))
            elif name in contract.FIGURES:
                is_float = contract.FIGURES[name].code == "d"
                found[name] = value if is_float else int(value)
                if is_float:
                    self._locations[given] = self._client.field_location(name)
            elif value is not None:
                self._own(given, value)
        return found

    def _own(self, name: str, value: float) -> None:
        try:
            figures, key = self._client.own_location(name)
            figures[key] = value
        except (TypeError, ValueError) as error:
            self._warn_once(f"the figure {name!r:.80} is not shown: {error}")
        else:
            self._locations[name] = figures, key

    def _game(self, score: float) -> dict[str, float]:
        if math.isfinite(score):
            self._episodes += 1
            self._returns.append(score)
            self._mean = sum(self._returns) / len(self._returns)
            if len(self._returns) == _GAMES:
                self._first = self._mean if math.isnan(self._first) else self._first
                self._best = self._mean if not self._best >= self._mean else self._best
        return {
            "episodes": self._episodes, "mean_return": self._mean, "best_return": self._best, "first_return": self._first,
        }  # fmt: skip

    def _bad_loss(self) -> None:
        self._bad += 1
        self._bad_row += 1
        if self._bad_row == 1:
            self._last_finite_step = int(self.at)  # a report is JSON, which knows no integers of numpy
        if self.is_reporter:
            self._client.progress(nan_count=self._bad)
        if self._bad_row == _BAD_IN_A_ROW:
            self._stop, self._why = True, contract.EXIT_DIVERGED
            error = f"{_BAD_IN_A_ROW} losses in a row were not finite, the first after step {self._last_finite_step}"
            self._warn_once(error)
            if self.is_reporter:
                self._client.report("diverged", step=self._last_finite_step, error=error)

    def _look(self, at_ns: int) -> None:
        """Once a second: too slow for every step."""
        now_s = time.monotonic()
        self._look_at_ns = at_ns + _LOOK_NS
        marks = self._marks
        marks.append((now_s, self.at))
        while len(marks) > 2 and now_s - marks[0][0] > _RATE_WINDOW_S:
            marks.popleft()
        since_s, before = marks[0]
        figures: dict[str, Any] = {"rss_bytes": _rss_bytes(), **_cuda_bytes()}
        figures["phase_deadline_ns"] = at_ns + int(self._silence_s * 1e9)
        if now_s > since_s and self.at >= before:
            figures["steps_per_s"] = (self.at - before) / (now_s - since_s)
        self._client.progress(**figures)

    # checkpoints

    def restore(self) -> Restored | None:
        """The newest whole checkpoint, checked to the last bit; None if there is none.

        A damaged one is set aside and the one before it is used. Exits with 78 if its identity differs.
        """
        self._enter(WorkerPhase.RESTORING)
        saver = self._opened()
        if saver is None:
            return None
        try:
            found = saver.newest(change=self.is_reporter)
        except WrongIdentity as error:
            _end(contract.EXIT_CONFIG, str(error))
        except AllDamaged as error:
            self._warn_once(f"{error}; training begins at step 0")
            self._report("from_scratch", step=0, error=str(error))
            return None
        self.at = found.step if found else 0
        self._report("resumed" if found else "from_scratch", step=self.at)
        if self.is_reporter:
            with contextlib.suppress(Exception):
                self._client.progress(env_steps=self.at, resumed_step=self.at, ckpt_bad_count=saver.bad_count)
        return found

    def should_save(self) -> bool:
        """Whether a checkpoint is due: by time, on the daemon's request, before leaving, at the end. Only on rank 0."""
        if not self.is_reporter:
            return False
        self._saves_asked = True
        if self._client.save_wanted() or time.monotonic() >= self._save_at_s:
            self._save_due = True
        if not self._last_save_due and (self._leaving() or (self.total is not None and self.at >= self.total)):
            self._save_due = self._last_save_due = True
        if not self._save_due or self._bad_row:  # due until the loss is finite again
            return False
        self._save_due, self._save_at_s = False, time.monotonic() + self._every_s
        return True

    @contextlib.contextmanager
    def checkpoint(self, n: int, mean_return: float | None = None, deadline_s: float = _SAVING_S) -> Iterator[Path]:
        """A directory for the files of step `n`; after the block they are a durable, checked checkpoint.

        A disk error is reported, and the training goes on with the previous checkpoint; an error of the block's own
        code is raised. On ranks other than 0, and in children, the block's files are deleted.
        """
        saver, step = None, 0
        if self.is_reporter:
            try:
                step, saver = _whole(n), self._opened()
            except (TypeError, ValueError, OverflowError) as error:
                self._refuse_step(str(error))
        if saver is None:
            scratch = tempfile.mkdtemp(prefix="extralife-")
            try:
                yield Path(scratch)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            return
        began_s, was_away = time.perf_counter(), self._outside_training
        refusal = "the newest loss is not finite" if self._bad_row else ""
        self._enter(WorkerPhase.SAVING, deadline_s)
        try:
            with saver.saving(step, self._score(mean_return), refusal) as aside:
                yield aside
        except Fenced as error:
            self._stop, self._why = True, contract.EXIT_FENCED
            self._warn_once(str(error))
        finally:
            took_s = time.perf_counter() - began_s
            if saver.committed_step == step and saver.failure is None and not refusal:
                self._client.committed(step, stall_s=took_s, write_s=took_s)
                saver.tidy()
            if not was_away:
                with contextlib.suppress(Exception):
                    self._to_training(saved=True)

    def _refuse_step(self, error: str) -> None:
        """Report once that the script's checkpoints have no step: it trains on, and nothing is saved."""
        if not self._is_step_refused:
            self._is_step_refused = True
            self._warn_once(f"no checkpoint is saved: {error}")
            self._report("checkpoint_failed", step=0, error=f"no checkpoint is saved: {error}")

    def _score(self, mean_return: float | None) -> float | None:
        """A mean of few games is no record. The manifest is JSON, which knows no floats of numpy or torch."""
        mean = self._mean if mean_return is None and len(self._returns) == _GAMES else mean_return
        try:
            known = None if mean is None else float(mean)
        except (TypeError, ValueError, OverflowError):
            self._warn_once(f"checkpoint() was given {mean!r} as mean_return, which is no number")
            return None
        return known if known is not None and math.isfinite(known) else None

    def _opened(self) -> Saver | None:
        """The checkpoints; None if they cannot be read. Exits when another process uses them."""
        if self._saver is None:
            run_dir, identity = self._client.run_dir or Path(), _as_json(self.identity)
            try:
                if self.is_reporter and not _has_daemon(self._environ):  # else the shim holds that lock
                    self._keep_others_out(run_dir)
                self._saver = Saver(run_dir, self._client, identity)
            except OSError as error:
                self._warn_once(f"nothing can be saved in {run_dir}: {error.strerror}")
        return self._saver

    def _keep_others_out(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = (directory / contract.LOCK_FILE).open("a", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if self._stands_in:
                return  # its parent may hold it
            error = f"{directory} is in use by another process: stop that one, or use another directory"
            _end(contract.EXIT_FAILED, error)
        except OSError as error:  # a file system without locks, as network disks may be: it can hold checkpoints
            self._warn_once(f"{directory} cannot be locked ({error.strerror}): use it for one process at a time")

    # leaving

    def should_stop(self) -> bool:
        """Whether to leave now: after SIGTERM, when the daemon asks, or when the training has diverged.

        A script that calls `should_save` gets one chance to save first.
        """
        if not self._leaving():
            return False
        if self._saves_asked and not self._last_save_due and not self.is_saved() and not self._waited and self._why is None:
            self._waited = True
            return False
        self._stop = True  # also if the daemon takes its request back before `leave`
        return True

    def stop(self) -> None:
        """Leave with 75 as if this process were asked to: another rank was, and all ranks leave together."""
        self._stop = True

    def is_saved(self) -> bool:
        """Whether the newest step is in a checkpoint of this process."""
        return self._saver is not None and self._saver.committed_step == self.at

    def seconds_left(self) -> float | None:
        """Seconds until this box ends, as its provider announced; None: no end is announced, or no time."""
        path = self._environ.get(contract.ENV_LEAVE_BY)
        found = contract.read_leave_by(path) if path else None
        return None if found is None or found.wall_s is None else max(0.0, found.wall_s - time.time())

    def leave(self) -> NoReturn:
        """End the process with an exit code: 75 when it was asked to leave before `total`, 65, 77, else 0.

        A script that ends by itself before `total`, as an early stop does, is done: it would stop again after each start.
        """
        self.at = max(self.at, self._client.take_back())
        self._enter(WorkerPhase.LEAVING)
        with contextlib.suppress(ValueError, OSError):  # not the main thread
            # While Python exits, SIGTERM has its default again: a signal now would turn the exit into a kill.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = contract.EXIT_DONE
        if self._why is not None:
            code = self._why
        elif self._leaving() and (self.total is None or self.at < self.total):
            # To torch, that is a failure of a rank. Its parent leaves so.
            code = contract.EXIT_DONE if self._is_spawned else contract.EXIT_LEFT
        sys.exit(code)

    def _leaving(self) -> bool:
        return self._stop or self._client.control().leave_by_ns != contract.UNKNOWN

    # settings

    def batch_size(self, default: int) -> int:
        """The batch to use: `default`, or less when an earlier attempt ran out of memory or the level says so."""
        most = self._environ.get(contract.ENV_BATCH_SIZE, "")
        size = min(default, int(most)) if most.isdecimal() and int(most) else default
        self._figure("batch_size", size)
        return size

    def num_envs(self, default: int) -> int:
        """The number of environments to use: the level's, else `default`."""
        given = self._environ.get(contract.ENV_NUM_ENVS, "")
        number = int(given) if given.isdecimal() and int(given) else default
        self._figure("num_envs", number)
        return number

    def seed(self, default: int) -> int:
        """The random seed to use: another one after each rollback, because the same one would diverge again."""
        given, rollbacks = (self._environ.get(name, "") for name in (contract.ENV_SEED, contract.ENV_ROLLBACKS))
        seed = int(given) if given.isdecimal() else default
        return contract.seed_after(seed, int(rollbacks) if rollbacks.isdecimal() else 0)

    def _figure(self, name: str, value: int) -> None:
        if self.is_reporter:
            with contextlib.suppress(Exception):
                self._client.progress(**{name: value})

    # the process around it

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread() and not self._is_helper:
            with contextlib.suppress(ValueError, OSError):
                self._earlier[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._asked_to_leave)
        stacks = self._environ.get(contract.ENV_STACKS)
        if stacks:
            with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
                number = getattr(signal, contract.STACKS_SIGNAL)
                self._stacks = open(stacks, "a", encoding="utf-8")  # noqa: SIM115, PTH123  for as long as the process lives
                faulthandler.register(number, file=self._stacks, all_threads=True, chain=_has_handler(number))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _asked_to_leave(self, number: int, frame: FrameType | None) -> None:
        self._stop = True
        earlier = self._earlier.get(number)
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(number, frame)

    def _in_child(self) -> None:
        """A forked child is not the training, unless it is rank 0: its first call finds out. SIGTERM ends it as before."""
        global _is_forked_group  # noqa: PLW0603
        _is_forked_group = _group_rank() is not None
        if "_given" in vars(self):
            return
        for number, earlier in self._earlier.items():
            with contextlib.suppress(ValueError, TypeError, OSError):
                signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)
        given = self._as_given()
        vars(self).clear()
        vars(self)["_given"] = given

    def _report(self, kind: str, **fields: Any) -> None:
        if self.is_reporter:
            with contextlib.suppress(Exception):
                self._client.report(kind, **fields)

    def _warn_once(self, text: str) -> None:
        """Print each once: a loop repeats its mistakes."""
        if text not in self._warned and len(self._warned) < 100:
            self._warned.add(text)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                print(f"extralife: {text}", file=sys.stderr, flush=True)


class _PhaseContext:
    """A phase; at the end of a `with` block the training goes on."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        return self._run

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._run.is_reporter:
            with contextlib.suppress(Exception):
                self._run._to_training()


def _as_json(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity as a manifest holds it. Ends the process if it cannot: the first checkpoint would, much later."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(identity), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        _end(contract.EXIT_CONFIG, f"the identity must consist of values of JSON, without infinity and NaN: {error}")
    return found


def _whole(n: Any) -> int:
    """A step as an int: frameworks count in integers of numpy, and `1e6` is a float. Raises ValueError, TypeError."""
    step = int(n)
    if step != n or step < 0:
        raise ValueError(f"the step must be a whole number, at least 0, not {n!r}")
    return step


def _end(code: int, text: str) -> NoReturn:
    print(f"extralife: {text}", file=sys.stderr, flush=True)
    sys.exit(code)


class _Place(NamedTuple):
    """What this process is among those of its training."""

    rank: int
    is_helper: bool  # of the process that reports
    is_spawned: bool  # a rank that multiprocessing has started
    stands_in: bool  # for a parent that reported until now


def _place(environ: MutableMapping[str, str]) -> _Place:
    given = (int(environ[name]) for name in _RANKS if environ.get(name, "").isdecimal())
    process, spawned = _started_process(), _spawned_rank()
    rank = spawned or next(given, 0)
    # The value of the first process that reports. It survives an exec(2), and differs in each child.
    own = f"{os.getpid()}.{contract.start_ticks()}"
    is_first = environ.setdefault(contract.SPEAKER_ENV, own) == own
    if spawned is not None:
        environ[contract.SPEAKER_ENV] = own
        return _Place(rank, is_helper=False, is_spawned=True, stands_in=not is_first and rank == 0)
    is_daemonic = process is not None and process.daemon
    return _Place(rank, is_helper=is_daemonic or (rank == 0 and not is_first), is_spawned=False, stands_in=False)


def _spawned_rank() -> int | None:
    """The rank of a process that multiprocessing has started, by torch's spawn or fork, or in a process group of its own."""
    process = _started_process()
    arguments: tuple[Any, ...] = getattr(process, "_args", ())
    is_torchs = getattr(getattr(process, "_target", None), "__module__", "") == "torch.multiprocessing.spawn"
    if is_torchs and len(arguments) > 1 and isinstance(arguments[1], int):
        return arguments[1]
    return None if process is None or process.daemon or _is_forked_group else _group_rank()


def _group_rank() -> int | None:
    """The rank in torch's process group; None: there is none."""
    group = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):
        if group is not None and group.is_initialized():
            return int(group.get_rank())
    return None


def _started_process() -> Any:
    """The process as multiprocessing, which has started it, knows it; else None."""
    module = sys.modules.get("multiprocessing.process")
    return module.current_process() if module is not None and module.parent_process() is not None else None


def _is_being_spawned() -> bool:
    """Whether multiprocessing is still importing the script, before this process knows its task."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and getattr(module.current_process(), "_inheriting", False)


def _has_daemon(environ: Mapping[str, str]) -> bool:
    """Whether a daemon has started this process; that it can be reached is another question."""
    return bool(environ.get(contract.ENV_BEAT) and environ.get(contract.ENV_RUN_DIR))


def _client(environ: Mapping[str, str], directory: Path, *, is_reporter: bool) -> Client:
    names = (contract.ENV_PROGRAM, contract.ENV_TOKEN, contract.ENV_ATTEMPT, contract.ENV_RUN_DIR, contract.ENV_BOOT_ID)
    given = {name: environ[name] for name in names if environ.get(name)}
    if _has_daemon(environ):
        if not is_reporter:
            return Client(given)
        more = (contract.ENV_BEAT, contract.ENV_CONTROL, contract.ENV_NOTIFY)
        try:
            return Client({**given, **{name: environ[name] for name in more if environ.get(name)}})
        except (OSError, ValueError) as error:
            print(f"extralife: progress cannot be reported to the daemon: {error}", file=sys.stderr, flush=True)
            client = Client({key: value for key, value in given.items() if key != contract.ENV_ATTEMPT})
            client.is_fenced = True  # its directory is still the daemon's
            return client
    return Client({contract.ENV_TOKEN: os.urandom(16).hex(), contract.ENV_RUN_DIR: str(directory.absolute())})


def _has_handler(number: int) -> bool:
    return callable(signal.getsignal(number))


def _rss_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return contract.UNKNOWN


def _cuda_bytes() -> dict[str, int]:
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            return {"cuda_bytes": torch.cuda.memory_reserved()}
    return {}
