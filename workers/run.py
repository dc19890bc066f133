"""One attempt from its first import to its exit code: restore, build, train, and the work between two steps.

    IMPORTING -> RESTORING (-> COMPILING) -> BUILDING -> TRAINING -> SAVING -> EVALUATING -> 0      the target is reached
                                                         TRAINING -> LEAVING -> 75                  asked to leave

Restoring comes before building because it fails quickly: a checkpoint of another game, or a run that is already done,
must not cost a minute of building environments first. (Doing both at once gains nothing: envpool holds the GIL while it
builds.)
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from workers import algorithms, auto, envs, networks, out_of_memory, precision
from workers.args import BadArguments, with_algorithm
from workers.checkpoint import Checkpointer
from workers.contract import (
    ENV_WHEN_NO_GPU,
    EXIT_CONFIG,
    EXIT_DIVERGED,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_LEFT,
    EXIT_NO_GPU,
    EXIT_NO_MEMORY,
    LOCK_FILE,
    REPLAY_DIR,
    UNKNOWN,
    Client,
    TargetKind,
    WorkerPhase,
)
from workers.evaluate import EvaluationGames
from workers.learner import GAMES_AVERAGED, Diverged
from workers.on_policy import RolloutTooLarge
from workers.options import AUTO
from workers.records import Records
from workers.replay import ReplayError, ReplayInUse
from workers.stopwatch import REST, SAVE, TEST
from workers.store import AllDamaged, Fenced, WrongIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from workers.args import Args
    from workers.learner import Learner
    from workers.listen import PendingRequests

RUNS_DIR: Final = "runs"
ALONE_SAVE_S: Final = 60.0  # interval between saves without a supervisor, which would choose a better one
PRINT_S: Final = 5.0
LOOK_S: Final = 1.0
RATE_WINDOW_S: Final = 10.0
HALF_DONE_S: Final = 5.0  # after a request to leave, a rollout is finished if that takes no longer, else discarded
LAST_SAVE_S: Final = 100.0  # a disk may be slow, but the supervisor waits only two minutes
_NO_CODE: Final = (
    "torch may not make machine code here: take MemoryDenyWriteExecute= out of the service's unit (systemctl edit extralife)"
)
_NEVER: Final = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)


class InUse(Exception):
    """Another run owns the directory; the message is one sentence for the user."""


class Unusable(Exception):
    """This configuration can never work; the message is one sentence for the user."""


def run(args: Args, client: Client, pending: PendingRequests) -> int:
    """The exit code of this attempt; every known error is one sentence on stderr."""
    try:
        return _run(args, client, pending)
    except BadArguments as mistakes:  # mistakes for the algorithm that `auto` has chosen
        return max(_print_error(mistake, EXIT_CONFIG) for mistake in mistakes.errors)
    except (Unusable, precision.NoSuchDevice, WrongIdentity) as error:
        return _print_error(error, EXIT_CONFIG)
    except precision.NoGpu as error:
        return _print_error(error, EXIT_NO_GPU)
    except Fenced as error:
        return _print_error(error, EXIT_FENCED)
    except Diverged as error:
        client.report("diverged", step=error.last_finite_step, error=str(error))
        return _print_error(error, EXIT_DIVERGED)
    except (InUse, RolloutTooLarge) as error:
        return _print_error(error, EXIT_FAILED)
    except (ReplayError, OSError, MemoryError, RuntimeError) as error:
        if not out_of_memory.is_out(error):
            if isinstance(error, ReplayError | OSError):
                return _print_error(error, EXIT_FAILED)
            if out_of_memory.is_refused_code(error):
                return _print_error(_NO_CODE, EXIT_CONFIG)
            raise
        report = out_of_memory.describe(error, args.batch_size)
    # Report only here: the memory of the failed attempt is free again, and a report needs some.
    client.report("out_of_memory", **report)
    print(
        f"workers: out of memory ({report['where']}) with batch {args.batch_size}: {report['error']}",
        file=sys.stderr,
        flush=True,
    )
    return EXIT_NO_MEMORY


def _print_error(error: Exception | str, code: int) -> int:
    print(f"workers: {error}", file=sys.stderr, flush=True)
    return code


def _run(args: Args, client: Client, pending: PendingRequests) -> int:
    if not client.fence_holds():
        raise Fenced(f"another attempt owns {client.run_dir}: nothing was written")
    chosen = precision.choose(args.device, args.dtype, os.environ.get(ENV_WHEN_NO_GPU, ""))
    idle = precision.idle_gpu(chosen, args.device, os.environ)
    if idle:
        print(f"workers: {idle}", file=sys.stderr, flush=True)
    torch.set_num_threads(args.threads)
    with contextlib.suppress(RuntimeError):  # only before the first parallel work; the default does no harm
        torch.set_num_interop_threads(1)
    if args.deterministic:
        precision.use_deterministic(chosen.device)
    else:
        precision.use_fast_matmul(chosen.device)
    run_dir = (client.run_dir or Path(RUNS_DIR) / args.program).absolute()
    args = _with_an_algorithm(args, chosen, run_dir, client)
    _banner(args, chosen, run_dir)
    client.phase(WorkerPhase.RESTORING)
    with _run_dir_lock(run_dir, client):
        return _restore_and_train(args, chosen, run_dir, client, pending)


def _with_an_algorithm(args: Args, chosen: precision.Precision, run_dir: Path, client: Client) -> Args:
    """Replace `auto` by an algorithm and print the reason; keep other values."""
    if args.algo != AUTO:
        return args
    algo, why = auto.choose(algorithms.measure_constraints(args, envs.spec_of(args.game, args.resolution), chosen, run_dir))
    print(f"{args.program}: auto is {algo}: {why}", flush=True)
    client.report("algorithm", algo=algo, because=why)
    return with_algorithm(args, algo)


def _restore_and_train(
    args: Args, chosen: precision.Precision, run_dir: Path, client: Client, pending: PendingRequests
) -> int:
    learner, checkpointer = restore(args, chosen, run_dir, client)
    with contextlib.closing(Session(learner, checkpointer, client, pending, run_dir)) as session:
        if session.target_reached():
            session.say("the target is already reached")
        else:
            if client.leave_wanted:
                return EXIT_LEFT
            client.phase(WorkerPhase.BUILDING, num_envs=args.num_envs)
            session.say(f"building {args.num_envs} environments")
            # Otherwise each attempt has its own seeds: a game that killed the previous attempt may not occur again.
            attempt = 1 if args.deterministic else client.attempt
            seeds = envs.env_seeds(args.seed, attempt, learner.env_steps, args.num_envs)
            games = envs.make(learner.spec, seeds, args.threads)
            session.begin()
            learner.train(games, session.boundary, session.updated)
            session.save_last()
            if not session.target_reached():
                session.say(f"left on request; everything is saved{learner.unlearned()}")
                return EXIT_LEFT
            session.say("the target is reached")
        return session.test()


@contextlib.contextmanager
def _run_dir_lock(run_dir: Path, client: Client) -> Iterator[None]:
    """Hold the run directory's lock: two writers would mix two runs. Under a supervisor the attempt's shim holds it."""
    if client.supervised:
        yield
        return
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        file = (run_dir / LOCK_FILE).open("a", encoding="utf-8")
    except _NEVER as error:
        raise _unwritable(run_dir, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                f"{run_dir} is in use by another process: stop that one, or give this run another --program"
            ) from None
        yield


def _unwritable(run_dir: Path, error: OSError) -> Unusable:
    return Unusable(f"the run directory {run_dir} can't be written: {error.strerror}")


def restore(args: Args, chosen: precision.Precision, run_dir: Path, client: Client) -> tuple[Learner, Checkpointer]:
    """A learner from the newest whole checkpoint, or a new one. Prints and reports it if all checkpoints are damaged."""
    spec = envs.spec_of(args.game, args.resolution)
    identity = identity_of(args, spec)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        checkpointer = Checkpointer(run_dir, client, identity)
    except _NEVER as error:
        raise _unwritable(run_dir, error) from error
    damaged: AllDamaged | None = None
    try:
        loaded = checkpointer.load_newest()
    except AllDamaged as error:
        loaded, damaged = None, error
    try:
        over = loaded is not None and is_reached(args, loaded.state)
        # A finished run needs no replay files.
        learner = algorithms.kind(args.algo).make(
            args, spec, chosen, None if over else run_dir / REPLAY_DIR, only_tests=over
        )
    except ReplayInUse:
        raise
    except (ReplayError, RolloutTooLarge) as error:
        # Too large for this box. At a first start the configuration is the cause; later it is the box, perhaps temporarily.
        raise Unusable(str(error)) if loaded is None else error from error
    if loaded is not None:
        learner.restore(loaded.tensors, loaded.state)
        print(f"resumed at step {learner.env_steps:,} from {loaded.path.name}{learner.recovered}", flush=True)
    elif damaged is not None:
        print(f"workers: {damaged}; training begins from scratch", file=sys.stderr, flush=True)
        client.report("from_scratch", step=0, error=str(damaged))
    else:
        print("no checkpoint: training begins at step 0", flush=True)
    if damaged is None:
        client.report("resumed", step=learner.env_steps)
    client.progress(resumed_step=learner.env_steps, ckpt_bad_count=checkpointer.bad_count)
    return learner, checkpointer


def identity_of(args: Args, spec: envs.Spec) -> dict[str, Any]:
    """Settings that must match between a checkpoint and the run that resumes from it.

    Older checkpoints lack newer fields. Such a field is written only when it differs from the old default, so older
    checkpoints stay usable.
    """
    identity = {
        "game": spec.game, "algo": args.algo, "actions": spec.actions, "stack": spec.stack,
        "frame_shape": list(spec.frame_shape),
    }  # fmt: skip
    if networks.kind_of(spec, args.network) == "small":
        identity["network"] = "small"
    return identity | algorithms.kind(args.algo).identity(args)


def is_reached(args: Args, state: Mapping[str, Any]) -> bool:
    """Whether these counters have reached the target; with several targets, the first one counts."""
    return any(done >= limit for _, done, limit in _targets(args, state))


def _targets(args: Args, state: Mapping[str, Any]) -> list[tuple[TargetKind, float, float]]:
    """(kind, done, limit) of each limit that is set. Old checkpoints without a training clock count as 0 s."""
    hours_s = None if args.hours is None else args.hours * 3600.0
    limits = (
        (TargetKind.EPISODES, state["episodes"], args.episodes), (TargetKind.ENV_STEPS, state["env_steps"], args.steps),
        (TargetKind.SECONDS_LEFT, state.get("trained_s", 0.0), hours_s),
    )  # fmt: skip
    return [(kind, done, limit) for kind, done, limit in limits if limit is not None]


def nearest_target(args: Args, state: Mapping[str, Any]) -> tuple[TargetKind, int]:
    """The limit with the largest completed share, for the beat: at the present rate, this limit ends the training.

    Example: with 300 of 1,000 episodes and 5 of 10 hours it is the hours; 18,000 s are left.
    """
    ahead = max(_targets(args, state), key=lambda target: target[1] / target[2], default=None)
    if ahead is None:
        return TargetKind.NONE, UNKNOWN
    kind, done, limit = ahead
    return kind, math.ceil(max(0.0, limit - done) if kind is TargetKind.SECONDS_LEFT else limit)


class Session:
    """The work between two steps: report, save, print, test, and stop when it is time."""

    def __init__(
        self, learner: Learner, saver: Checkpointer, client: Client, pending: PendingRequests, run_dir: Path
    ) -> None:
        self.learner, self.saver, self.client, self.pending, self.run_dir = learner, saver, client, pending, run_dir
        self._began_at = learner.env_steps
        self._loss = self._rate = math.nan
        self._figures: dict[str, float] = {}
        self._marks: deque[tuple[float, int]] = deque()
        self._look_at_s = self._print_at_s = self._save_at_s = math.inf
        self._finish_by_s: float | None = None
        self._tests = EvaluationGames(learner, run_dir)
        self._records = Records(learner, run_dir)
        self._training_since_s = math.nan

    def begin(self) -> None:
        """Training begins now."""
        now_s = time.monotonic()
        self._look_at_s, self._print_at_s, self._save_at_s = now_s + LOOK_S, now_s + PRINT_S, now_s + ALONE_SAVE_S
        self._marks.append((now_s, self.learner.env_steps))
        self._records.begin(now_s, self._tests.beyond(), self._tests.newest())
        self._training_since_s = now_s
        self.say("training")
        self.client.phase(WorkerPhase.TRAINING, **self.counters())

    # between two steps

    def boundary(self) -> bool:
        """The training loop calls this between two vector steps; False ends the loop. Time in here is not training time."""
        learner, now_s = self.learner, time.monotonic()
        learner.trained_s += now_s - self._training_since_s
        learner.watch.to(REST)
        go_on = self._between(learner, now_s)
        self._training_since_s = time.monotonic()
        return go_on

    def _between(self, learner: Learner, now_s: float) -> bool:
        if now_s >= self._look_at_s:
            self._look(now_s)
        self.client.progress(
            env_steps=learner.env_steps, frames=learner.frames, updates=learner.updates, episodes=learner.episodes
        )
        if self.target_reached() or self._must_leave(now_s):
            return False
        if self._save_due(now_s):
            self._save()
        return not self._tests.is_due() or self._test_between()

    def updated(self) -> bool:
        """The training loop calls this after each update. True: leave now, even if the rollout is not fully learned."""
        self.client.progress()
        return self._leave_wanted() and self._late(time.monotonic())

    def close(self) -> None:
        """Write the last points of the curves, but wait only briefly for a slow disk."""
        self._tests.close()
        self._records.close()

    def target_reached(self) -> bool:
        learner = self.learner
        return is_reached(learner.args, self._done())

    def _done(self) -> dict[str, float]:
        learner = self.learner
        return {"env_steps": learner.env_steps, "episodes": learner.episodes, "trained_s": learner.trained_s}

    def _leave_wanted(self) -> bool:
        return self.client.leave_wanted or self.client.control().leave_by_ns != UNKNOWN

    def _must_leave(self, now_s: float) -> bool:
        """Whether to leave now: a request exists, and either no work is unfinished or finishing it would take too long."""
        return self._leave_wanted() and (self.learner.can_save_all() or self._late(now_s))

    def _late(self, now_s: float) -> bool:
        """Whether the time for finishing a rollout is over: `HALF_DONE_S`, but at most a third of the time left."""
        if self._finish_by_s is None:
            by_ns = self.client.control().leave_by_ns
            left_s = math.inf if by_ns == UNKNOWN else (by_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
            self._finish_by_s = now_s + min(HALF_DONE_S, left_s / 3.0)
        return now_s >= self._finish_by_s

    def _look(self, now_s: float) -> None:
        """Once a second: work that is too expensive for every step (waiting for the device, reading /proc, printing)."""
        self._look_at_s = now_s + LOOK_S
        self._loss, not_finite = self.learner.look()
        self._figures = self.learner.figures()
        self._marks.append((now_s, self.learner.env_steps))
        while len(self._marks) > 2 and now_s - self._marks[0][0] > RATE_WINDOW_S:
            self._marks.popleft()
        since_s, before = self._marks[0]
        self._rate = (self.learner.env_steps - before) / (now_s - since_s) if now_s > since_s else math.nan
        self.client.progress(nan_count=not_finite, **self.counters())
        if now_s >= self._print_at_s:
            self._print_at_s = now_s + PRINT_S
            self.say(self._line())
        line = self._records.look(now_s, self._figures)
        if line:
            self.say(line)
        if self.saver.is_gone():  # the progress since the start is now only in memory
            self.pending.save = True

    def counters(self) -> dict[str, Any]:
        """Fields of the beat that change slowly."""
        args, learner = self.learner.args, self.learner
        kind, target = nearest_target(args, self._done())
        mean = learner.mean_return
        found: dict[str, Any] = {
            "env_steps": learner.env_steps, "frames": learner.frames, "updates": learner.updates,
            "episodes": learner.episodes, "target": target, "target_kind": kind, "loss": self._loss,
            "mean_return": math.nan if mean is None else mean, "steps_per_s": self._rate, "rss_bytes": _rss_bytes(),
            "batch_size": args.batch_size, "num_envs": args.num_envs, "q_bound": learner.value_bound,
            "best_return": learner.best_mean_return, "first_return": learner.first_mean_return,
            "best_spread": learner.best_spread,
            **{name: value for name, value in self._figures.items() if name != "loss"},
            **self._records.for_the_beat(),
        }  # fmt: skip
        if learner.precision.device.type == "cuda":
            found["cuda_bytes"] = torch.cuda.memory_reserved(learner.precision.device)
        return found

    def _line(self) -> str:
        learner = self.learner
        mean = "-" if learner.mean_return is None else f"{learner.mean_return:.2f}"
        loss = "-" if math.isnan(self._loss) else f"{self._loss:.4f}"
        return (
            f"step {learner.env_steps:,}  games {learner.episodes:,}  mean return {mean}  loss {loss}  "
            f"{learner.describe()}  updates {learner.updates:,}  "
            f"{self._rate:,.0f} steps/s"
        )

    @staticmethod
    def say(line: str) -> None:
        print(line, flush=True)

    # saving

    def _save_due(self, now_s: float) -> bool:
        if self.client.save_wanted():
            self.pending.save = True
        if not self.client.supervised and now_s >= self._save_at_s:
            self._save_at_s = now_s + ALONE_SAVE_S
            self.pending.save = True
        # The request stays while another save is running, and in the middle of a rollout, which a save would not include.
        return self.pending.save and self.learner.can_save_all() and self.saver.wait(0)

    def _save(self) -> None:
        """Begin a save. Call it only while no save is running: a running save uses the learner's snapshot."""
        if self.learner.last_update_not_finite():
            return  # the request stays until the updates are finite again
        self.learner.watch.to(SAVE)
        begun_s = time.perf_counter()
        tensors, state = self.learner.snapshot()
        stall_s = time.perf_counter() - begun_s
        if self.learner.env_steps > self._began_at:
            full = len(self.learner.recent) == GAMES_AVERAGED  # a mean of few games is not comparable
            score = self.learner.mean_return if full else None
            self.saver.save(self.learner.env_steps, tensors, state, mean_return=score, stall_s=stall_s)
            if self.client.fence_holds():  # otherwise another attempt uses the same files
                self.learner.commit()
        self.pending.save = False
        self.learner.watch.to(REST)

    def save_last(self) -> None:
        """Save the last checkpoint of this attempt, with all experience. Raises if it fails: then the attempt fails too."""
        reached = self.target_reached()
        self.client.phase(WorkerPhase.SAVING if reached else WorkerPhase.LEAVING, **self.counters())
        hangs = f"the disk under {self.run_dir} hangs: the checkpoint at step {self.learner.env_steps} was not written"
        if not self.saver.wait(LAST_SAVE_S):
            raise OSError(hangs)
        self.learner.require_finite()
        self._save()
        if not self.saver.wait(LAST_SAVE_S):
            raise OSError(hangs)
        if self.saver.failure is not None:
            raise OSError(self.saver.failure)
        if not self.client.fence_holds():
            raise Fenced(f"another attempt owns {self.run_dir}: the replay was not committed")
        self.learner.close()

    # testing

    def test(self) -> int:
        """Play the final test games, if they are configured and not played yet; returns the exit code."""
        if not self.learner.args.num_test_episodes or self._tests.is_done():
            return EXIT_DONE
        self.client.phase(WorkerPhase.EVALUATING, **self.counters())
        found = self._tests.run(self.client, lambda: not self._leave_wanted())
        if found is None:
            return EXIT_LEFT
        self._records.add_test(found)
        return EXIT_DONE

    def _test_between(self) -> bool:
        """A test in the middle of the training; False when a request to leave interrupted it."""
        watch = self.learner.watch
        watch.to(TEST)
        self.client.phase(WorkerPhase.EVALUATING, **self.counters())

        def go_on() -> bool:
            if self._save_due(time.monotonic()):
                self._save()
                watch.to(TEST)
            return not self._leave_wanted()

        found = self._tests.run(self.client, go_on, training=True)
        watch.to(REST)
        if found is None:
            return False
        self._records.add_test(found)
        now_s = time.monotonic()
        self._marks.clear()  # the rate covers only training
        self._marks.append((now_s, self.learner.env_steps))
        self._look_at_s = now_s + LOOK_S
        self.client.phase(WorkerPhase.TRAINING, **self.counters())
        return True


def _banner(args: Args, chosen: precision.Precision, run_dir: Path) -> None:
    print(
        f"{args.program}: {args.algo.upper()} on {args.game}, {args.num_envs} environments, batch "
        f"{args.batch_size}, {algorithms.kind(args.algo).settings_that_matter(args)}, seed {args.seed}\n"
        f"{args.program}: {chosen}, {args.threads} threads, in {run_dir}",
        flush=True,
    )


def _rss_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return UNKNOWN
