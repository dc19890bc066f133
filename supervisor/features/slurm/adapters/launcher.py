"""The launcher of a Slurm cluster: each attempt is a job, and one thread talks to Slurm.

`spawn` returns at once. The thread writes the order and the batch script into the attempt's directory, writes the attempt's
token into the fence, and submits the job. The journal records `SpawnIntended` before that, and the job carries the attempt's
token in its comment. So whatever happens between submitting and recording, the daemon finds the job again and submits no
second one:

* An `sbatch` that gives no answer may have submitted the job. The launcher searches the queue for `settle_s`. The start has
  failed only if Slurm then answers and does not know such a job. The next attempt has another token.
* If the daemon was killed between these steps, the next daemon finds the intent in the journal and does the same (`survey`).
* A job with our mark that belongs to no expected attempt is deleted. It could not train anyway: the fence names another
  attempt.

A poll is one call for all jobs. If Slurm does not answer, the state is unknown: no attempt ends, and nothing is submitted
again.

Slurm itself may put a job back into its queue (`--requeue`: a node failed, a job was preempted). Its attempt has then ended.
The next attempt is the same job with the next token (`workers.contract.next_token`), which the node computes by itself.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.process import endings
from supervisor.adapters.process.processes import fence_of, make_dir, prune, signal_number
from supervisor.adapters.threads import Lasting
from supervisor.features.slurm.adapters import report
from supervisor.features.slurm.adapters.client import (
    NODE_SUSPECT_STATES,
    Done,
    Jobs,
    Slurm,
    SlurmRefused,
    Submitted,
    Unknown,
)
from supervisor.features.slurm.adapters.job_files import SCRIPT_FILE, JobFiles
from supervisor.features.slurm.adapters.jobs import (
    JobAttempt,
    QueueState,
    RequeuedJob,
    SubmitRequest,
    job_sight,
    queue_state,
    read_ending,
    row_of,
    token_after,
)
from supervisor.features.slurm.adapters.script import Tag, Terms
from supervisor.features.slurm.messages import JobSight, JobsSeen
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.rules.jobs import Job, Node
from supervisor.features.slurm.settings import LauncherSettings, NextJob
from supervisor.formats import span
from supervisor.model.inputs import Ended, SpawnBroke, SpawnSucceeded, Survival, Survivor
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script import placeholders
from supervisor.policy.script.figures import Figures
from supervisor.ports import Clock, Inbox, Launcher
from workers import contract
from workers.exit_record import ExitRecord

log = structlog.get_logger()

_FILES_LEFT_S: Final = 30.0  # a node's exit record may become visible on this host only after a delay
_NO_REPORT_S: Final = 900.0  # a job had a node for so long and never started its program: the node or `setup` hangs
_ERRORS: Final = 2  # failed polls before an outage is reported: a single one is ordinary ...
_AWAY_S: Final = 25.0  # ... unless Slurm has given no answer for so long
_IDLE_S: Final = 0.2
_NEVER_WORKS: Final = re.compile(
    r"invalid (account|partition|qos|feature|generic resource|gres|license|time limit|job constraint)|"
    r"invalid .*specification|unable to allocate resources: (invalid|requested node configuration)|"
    r"requested (node configuration|time limit|partition configuration) is|not permitted|unrecognized option",
    re.IGNORECASE,
)
_TARGET: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_HELD_BY_SYSTEM: Final = re.compile(r"launch.?fail|jobholdmaxrequeue|prolog", re.IGNORECASE)


class _Stopped(ValueError):
    """The attempt was stopped before it was submitted."""


def mark_of(state_dir: str) -> str:
    """A short hash that identifies a state directory in the comments of its jobs."""
    return blake2b(str(Path(state_dir).resolve()).encode(), digest_size=4).hexdigest()


def remote_paths(paths: Paths) -> Paths:
    """Paths for jobs: beats and controls lie below the state directory.

    Other hosts cannot see this host's runtime directory.
    """
    return replace(paths, runtime_dir=f"{paths.state_dir}/slurm")


class SlurmLauncher(Launcher):
    """`ports.Launcher` of a Slurm cluster. Calls return at once, and the launcher posts their outcomes to the inbox."""

    def __init__(
        self, paths: Paths, settings: Callable[[], LauncherSettings], cluster: Slurm, inbox: Inbox, clock: Clock,
        shown: Callable[[str, str, float, tuple[int, int]], Figures] = lambda *_: Figures(),
    ) -> None:  # fmt: skip
        """`paths` is the result of `remote_paths`. `shown` returns the figures in an attempt's own output."""
        self._paths, self._settings, self._cluster = paths, settings, cluster
        self._inbox, self._clock = inbox, clock
        self.mark = mark_of(paths.state_dir)
        self._guard = threading.Lock()  # protects the four below; never held during a call to Slurm or to a file system
        self._attempts: dict[str, JobAttempt] = {}  # by token
        self._requeued: dict[str, RequeuedJob] = {}  # by program
        self._found: dict[str, JobAttempt] = {}  # by token: found by `survey` or `unrecorded_workers`, waits for `adopt`
        self._requests: list[SubmitRequest] = []
        self._tasks: deque[Callable[[], None]] = deque()
        self._files = JobFiles(paths, self.mark)
        self._shown = shown
        self._due_s = 0.0
        self._errors, self._heard_s = 0, clock.now_s()
        self._last: dict[str, JobSight] = {}
        self._nodes: dict[str, Node] | None = None  # the nodes as queried in this poll; None: not queried
        self._wake = threading.Event()
        self._over = False
        self._thread: Lasting | None = None

    # --- calls from the deciding thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to talk to Slurm. Nothing is submitted before this call."""
        self._thread = Lasting("slurm", self._turn, lambda: self._over, vital=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; the jobs continue to run.

        A call to Slurm in progress may take long, so this waits at most 2 s for it.
        """
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def spawn(self, spec: ProgramSpec, attempt: int, token: str) -> None:
        """Submit one attempt, or continue it in the job that Slurm has put back into its queue."""
        new, job = JobAttempt(spec.name, attempt, token, token), spec.of(NextJob)
        with self._guard:
            # If the token differs, no attempt continues the requeued job, and `_end_strays` deletes it.
            requeued = self._requeued.pop(spec.name, None)
            if requeued is not None and requeued.token == token:
                new = replace(
                    new, submit_token=requeued.submit_token, restart=requeued.restart, job=requeued.job, submitting=False
                )
            self._attempts[token] = new
            if new.job is None:
                terms = Terms(job.resources.over(self._settings()), job.avoid, requeue=not _takes_checkpoint(spec))
                self._requests.append(SubmitRequest(new, spec, terms))
        if new.job is None:
            self._wake.set()
        else:
            self._put(self._poll_now)

    def refuse(self, program: str, token: str, error: str) -> None:
        with self._guard:
            self._attempts.pop(token, None)
        self._broke(program, token, f"cannot submit {program}: {error}")

    def signal(self, program: str, token: str, signal: str) -> str:
        """Send SIGCONT to a job on a node, which continues its tree. All other signals are only logged.

        Slurm passes signals to the batch script, and that script gives most signals a meaning of its own.
        """
        signal_number(signal)
        attempt = self._of(token)
        if signal == "SIGCONT" and attempt is not None and attempt.job is not None and attempt.began_s is not None:
            self._put(partial(self._continue, attempt))
            return ""
        why = "its process is on another host"
        log.info("signal_not_sent", program=program, token=token, signal=signal, why=why)
        return why

    def ask_to_leave(self, program: str, token: str) -> None:  # noqa: ARG002
        """Ask the job to save and leave. A job that is still pending is deleted. A second call changes nothing."""
        attempt = self._of(token)
        if attempt is not None and not attempt.leaving:
            attempt.leaving = True
            self._put(partial(self._ask, attempt))

    def kill_tree(self, program: str, token: str) -> None:  # noqa: ARG002
        attempt = self._of(token)
        if attempt is not None:
            attempt.leaving = attempt.killed = True
            self._put(partial(self._cancel, attempt))

    def number(self, token: str) -> int | None:
        attempt = self._of(token)
        return None if attempt is None else attempt.number

    def begun(self, token: str) -> bool:
        """Whether the attempt's job has a node."""
        attempt = self._of(token)
        return attempt is not None and attempt.began_s is not None

    def suspended(self, token: str) -> bool:
        """Whether Slurm has suspended the attempt's job, as far as its last readable answer says."""
        attempt = self._of(token)
        return attempt is not None and attempt.row is not None and attempt.row.suspended

    # --- re-adoption -------------------------------------------------------------------------------------------------

    def adopt(self, program: str, number: int, survivor: Survivor) -> None:
        """Take charge of an attempt that `survey` or `unrecorded_workers` has found. Makes its run directory again."""
        with self._guard:
            attempt = self._found.pop(survivor.token, None)
            if attempt is None:
                return
            self._attempts[survivor.token] = attempt
        try:
            make_dir(self._paths.attempt_dir(program, number, survivor.token))
            if not fence_of(self._paths, program):
                self._files.fence(program, survivor.token)
        except OSError as error:
            log.warning("run_directory_not_restored", program=program, error=str(error))

    def survey(self, expected: dict[str, tuple[int, str]], *, reads: bool = True) -> dict[str, Survivor]:  # noqa: ARG002
        """Find out the state of attempts.

        An attempt whose state is unknown counts as alive until `poll` learns more. May block.
        """
        answer = self._cluster.jobs() if expected else None
        queue = queue_state(answer) if isinstance(answer, Jobs) else None
        return {name: self._survey(queue, name, *attempt) for name, attempt in sorted(expected.items())}

    def _survey(self, queue: QueueState | None, program: str, number: int, token: str) -> Survivor:
        attempt = JobAttempt(program, number, token, token, submitting=False, unanswered_s=self._clock.now_s())
        if queue is not None and (found := row_of(queue, self.mark, program, number, token)) is not None:
            row, tag = found
            self._is_job(attempt, row)
            attempt.submit_token, attempt.restart = tag.token, number - tag.attempt
            self._adopt_begin(attempt, row)
        self._found[token] = attempt
        latest = report.read(self._paths, program, number, token)
        if attempt.job is None and latest is None and not self._may_be_submitted(program, number, token):
            del self._found[token]
            return Survivor(token, Survival.NEVER)
        if latest is None:
            return Survivor(token, Survival.ALIVE)
        attempt.spawned = True
        self._take_job_of_report(attempt)
        return Survivor(token, Survival.ALIVE, latest.pid, latest.start_ticks, latest.shim_pid, latest.shim_start_ticks)

    def _take_job_of_report(self, attempt: JobAttempt) -> None:
        latest = self._report(attempt)
        if attempt.job is None and latest is not None and _TARGET.fullmatch(latest.job):
            attempt.job, attempt.restart = latest.job, latest.restart

    def _may_be_submitted(self, program: str, number: int, token: str) -> bool:
        """Whether the attempt may have been submitted: its script is written before sbatch is called.

        An attempt that continues a restarted job has no script of its own. It has no directory either, until its node
        creates one.
        """
        directory = Path(self._paths.attempt_dir(program, number, token))
        return (directory / SCRIPT_FILE).exists() or (fence_of(self._paths, program) != "" and not directory.is_dir())

    def unrecorded_workers(self, programs: Iterable[str]) -> dict[str, tuple[int, Survivor]]:
        """Our jobs that are missing in the journal, because it was damaged or is older than the jobs. May block."""
        fenced = any(Path(self._paths.run_dir(name), contract.FENCE_FILE).exists() for name in programs)
        answer = self._cluster.jobs() if fenced else None
        if not isinstance(answer, Jobs):
            return {}
        wanted, found = set(programs), {}
        queue = queue_state(answer)
        for target, tag in queue.tags.items():
            row = queue.by_target[target]
            if tag.mark != self.mark or tag.program not in wanted or row.ended:
                continue
            restart = row.restarts or 0
            token, number = token_after(tag.token, restart), tag.attempt + restart
            if token in self._found or fence_of(self._paths, tag.program) not in {token, tag.token}:
                continue
            attempt = JobAttempt(tag.program, number, token, tag.token, restart, submitting=False)
            self._is_job(attempt, row)
            self._adopt_begin(attempt, row)
            self._found[token] = attempt
            found[tag.program] = number, Survivor(token, Survival.ALIVE)
        return found

    def _adopt_begin(self, attempt: JobAttempt, row: Job) -> None:
        """Note that the job has a node. A request to leave may come before the next poll, and deletes a job that waits."""
        if not (row.waiting or row.ended):
            attempt.began_s = self._clock.now_s()

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.step()
        self._wake.wait(_IDLE_S if self._tasks or self._requests else min(_IDLE_S * 5, self._settings().poll_s))
        self._wake.clear()

    def step(self) -> None:
        """Do everything that is due now: requested tasks first, then submissions, then a poll of the queue."""
        while self._tasks and not self._over:
            self._safely(self._tasks.popleft())
        with self._guard:
            requests, self._requests = self._requests, []
        for request in requests:
            if not self._over:
                self._safely(partial(self._submit, request))
        if not self._over and self._clock.now_s() >= self._due_s and (self._attempts or self._requeued):
            self._due_s = self._clock.now_s() + self._settings().poll_s
            self._safely(self.poll)

    def _put(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        self._wake.set()

    def _poll_now(self) -> None:
        self._due_s = 0.0

    @staticmethod
    def _safely(task: Callable[[], object]) -> None:
        try:
            task()
        except Exception:  # one attempt's broken directory must not end the only thread that handles the others
            log.exception("slurm_task_failed")

    def _of(self, token: str) -> JobAttempt | None:
        with self._guard:
            return self._attempts.get(token)

    # --- submitting ----------------------------------------------------------------------------------------------------

    def _submit(self, request: SubmitRequest) -> None:
        try:
            if request.attempt.leaving:
                raise _Stopped("it was stopped before it was submitted")
            self._files.prepare(request)
            script = self._files.write_script(request)
            if request.attempt.leaving:
                raise _Stopped("it was stopped before it was submitted")
            self._files.fence(request.spec.name, request.attempt.token)
        except (OSError, ValueError) as error:
            name = request.spec.name
            self._drop(request.attempt)
            where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            message = f"{where}{getattr(error, 'strerror', None) or error}"
            message = message if isinstance(error, _Stopped) else f"cannot submit {name}: {message}"
            self._broke(name, request.attempt.token, message)
            return
        answer = self._cluster.submit(script, cwd=self._paths.run_dir(request.spec.name))
        self._answered(request, answer)
        if isinstance(answer, Submitted):
            self._post_sights()
            self._poll_now()

    def _answered(self, request: SubmitRequest, answer: Submitted | SlurmRefused | Unknown) -> None:
        attempt, name = request.attempt, request.spec.name
        attempt.submitting = False
        match answer:
            case Submitted(id=job):
                attempt.job = str(job)
            case Unknown(why=why) if why != "missing":
                attempt.unanswered_s = self._clock.now_s()
                log.warning("submission_unanswered", program=name, error=answer.words)
            case _:
                self._drop(attempt)
                never = isinstance(answer, SlurmRefused) and _NEVER_WORKS.search(answer.words) is not None
                self._broke(name, attempt.token, f"Slurm refuses the job of {name}: {answer.words}", refused=never)

    # --- ending --------------------------------------------------------------------------------------------------------

    def _ask(self, attempt: JobAttempt) -> None:
        """Send USR1 to the batch script, as Slurm does before the time limit.

        If Slurm does not answer, the next poll sends it again. An adopted attempt may run although no poll has seen its job
        on a node yet: its node has reported it.
        """
        if attempt.job is None:
            return
        if attempt.began_s is None and not attempt.spawned:
            self._cancel(attempt)
            return
        answer = self._cluster.signal(attempt.job, "USR1")
        attempt.leave_sent = not isinstance(answer, Unknown)
        self._note_answer(answer)
        if not isinstance(answer, Done):
            log.info("job_not_signalled", program=attempt.program, job=attempt.job, said=answer.words)

    def _continue(self, attempt: JobAttempt) -> None:
        if attempt.job is not None and not isinstance(answer := self._cluster.signal(attempt.job, "CONT"), Done):
            log.info("job_not_continued", program=attempt.program, job=attempt.job, said=answer.words)

    def _cancel(self, attempt: JobAttempt) -> None:
        if attempt.job is None:
            return
        answer = self._cluster.cancel([attempt.job])
        self._note_answer(answer)
        attempt.refused = answer.words if isinstance(answer, SlurmRefused) else ""
        if not isinstance(answer, Done):
            log.warning("job_not_deleted", program=attempt.program, job=attempt.job, said=answer.words)
        self._poll_now()

    # --- polling the queue ---------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Query the queue once and act on the answer."""
        self._nodes = None
        with self._guard:
            attempts, requeued = list(self._attempts.values()), list(self._requeued.values())
        targets = {each.job for each in attempts if each.job is not None} | {each.job for each in requeued}
        answer = self._cluster.jobs(sorted(targets))
        self._note_answer(answer)
        if isinstance(answer, Unknown):
            return
        queue = queue_state(answer)
        for each in attempts:
            self._update(each, queue)
        self._end_strays(queue)
        self._post_sights(always=True)

    def _note_answer(self, answer: object) -> None:
        """Report an outage of the cluster, after a call that got this answer."""
        if not isinstance(answer, Unknown):
            self._errors, self._heard_s = 0, self._clock.now_s()
            return
        self._errors += 1
        if self._errors >= _ERRORS or self._clock.now_s() - self._heard_s >= _AWAY_S:
            self._inbox.post(JobsSeen(self._clock.now_s(), dict(self._last), answer.words))

    def _update(self, attempt: JobAttempt, queue: QueueState) -> None:
        row = self._find(attempt, queue)
        if row is None:
            self._handle_missing(attempt, queue)
            return
        self._is_job(attempt, row)
        if (row.restarts or 0) > attempt.restart:
            # Slurm has restarted the job, or will. This attempt has ended, and the next attempt is the same job.
            if attempt.leaving:
                self._cancel(attempt)
            following = "" if attempt.leaving else contract.next_token(attempt.token)
            self._end(attempt, row.state, requeued=True, next_token=following)
        elif row.ended:
            self._end(attempt, row.state)
        elif row.waiting or (row.state == "CONFIGURING" and not attempt.spawned):
            # A node that sleeps or is rented first boots, for a quarter of an hour and more; Slurm limits that itself.
            if attempt.leaving or attempt.killed:
                self._cancel(attempt)
            elif row.state in {"REQUEUE_HOLD", "SPECIAL_EXIT"} or _HELD_BY_SYSTEM.search(row.reason):
                self._cancel(attempt)
                self._end(attempt, "LAUNCH_FAILED")
        else:
            self._while_running(attempt)

    @staticmethod
    def _is_job(attempt: JobAttempt, row: Job) -> None:
        attempt.job, attempt.row, attempt.unanswered_s = row.target, row, None
        attempt.missing_s, attempt.unread = None, ""

    def _find(self, attempt: JobAttempt, queue: QueueState) -> Job | None:
        """The row of the attempt's job. If the attempt was submitted twice, one job is kept and the others are deleted.

        A running job is kept rather than a pending one, then the job with the lowest id.
        """
        rows = queue.by_submit_token.get(attempt.submit_token, [])
        if attempt.job is None and rows and not attempt.submitting:
            rows = sorted(rows, key=lambda row: (row.ended, row.waiting, row.id))
            if len(rows) > 1:
                log.warning("submitted_twice", program=attempt.program, jobs=[row.target for row in rows])
                self._cluster.cancel([row.target for row in rows[1:] if not row.ended])
            return rows[0]
        row = queue.by_target.get(attempt.job or "")
        return row if row is not None and self._is_of(row, attempt, queue.tags.get(row.target)) else None

    def _is_of(self, row: Job, attempt: JobAttempt, tag: Tag | None) -> bool:
        """Whether this row is the attempt's job. Its job id alone is not enough.

        A controller that was killed forgets the newest jobs and gives their ids to new jobs, even to unrelated ones. The
        accounting may have lost the comment; then the job's name identifies its program.
        """
        if tag is not None:
            return tag.token == attempt.submit_token
        return row.name == Tag(self.mark, attempt.program, attempt.number, attempt.submit_token).name

    def _handle_missing(self, attempt: JobAttempt, queue: QueueState) -> None:
        """Handle an answer from Slurm that does not show the attempt's job."""
        now_s = self._clock.now_s()
        if attempt.job is None:
            self._take_job_of_report(attempt)
        if attempt.job is not None:
            gone = attempt.job in queue.absent or attempt.job in queue.by_target
            unread = "Slurm does not list the job, and its node still reports" if gone else queue.unread
            # The node's record of the end proves the end if the accounting gives no answer.
            if self._exit_record(attempt) is not None or (gone and not self._still_reports(attempt)):
                self._end(attempt, "")
            else:
                attempt.missing_s = now_s if attempt.missing_s is None else attempt.missing_s
                attempt.unread = unread if now_s - attempt.missing_s >= _AWAY_S else ""
        elif attempt.unanswered_s is not None and now_s - attempt.unanswered_s >= self._settings().settle_s:
            waited_s = now_s - attempt.unanswered_s
            if attempt.spawned:
                self._end(attempt, "")
                return
            self._drop(attempt)
            error = f"sbatch gave no answer, and Slurm has not shown such a job for {span(waited_s)}"
            self._broke(attempt.program, attempt.token, f"cannot submit {attempt.program}: {error}")

    def _still_reports(self, attempt: JobAttempt) -> bool:
        """Whether its node has written a report since the last call: the job runs, whatever Slurm's answer lacks."""
        latest = self._report(attempt)
        if latest is None or latest.at_ns == attempt.report_ns:
            return False
        attempt.report_ns, attempt.over_s = latest.at_ns, None
        return True

    def _exit_record(self, attempt: JobAttempt) -> ExitRecord | None:
        return endings.read_exit(self._paths, attempt.program, attempt.number, attempt.token)

    def _report(self, attempt: JobAttempt) -> report.NodeReport | None:
        return report.read(self._paths, attempt.program, attempt.number, attempt.token)

    def _while_running(self, attempt: JobAttempt) -> None:
        now_s = self._clock.now_s()
        if attempt.began_s is None or (attempt.row is not None and attempt.row.suspended):
            attempt.began_s = now_s
        if attempt.killed:
            self._cancel(attempt)
        elif attempt.leaving and not attempt.leave_sent:
            self._ask(attempt)
        if attempt.spawned:
            return
        latest = self._report(attempt)
        if latest is not None:
            self._spawned(attempt, latest)
        elif now_s - attempt.began_s > _NO_REPORT_S and not attempt.killed:
            attempt.killed = attempt.given_up = True
            self._cancel(attempt)

    def _spawned(self, attempt: JobAttempt, node_report: report.NodeReport) -> None:
        attempt.spawned = True
        self._inbox.post(
            SpawnSucceeded(
                self._clock.now_s(), attempt.program, attempt.token,
                node_report.pid, node_report.start_ticks, node_report.shim_pid, node_report.shim_start_ticks,
            )
        )  # fmt: skip

    def _end_strays(self, queue: QueueState) -> None:
        """Delete jobs with our mark that belong to no attempt. They could not train and would only wait in the queue."""
        with self._guard:
            now_s, claim_s = self._clock.now_s(), max(30.0, 2 * self._settings().poll_s)
            late = [name for name, requeued in self._requeued.items() if now_s - requeued.since_s > claim_s]
            for name in late:  # no attempt continues it: its program was stopped, or lost its slot
                del self._requeued[name]
            submit_tokens = self._submit_tokens()
        ours = [target for target, tag in queue.tags.items() if tag.mark == self.mark and tag.token not in submit_tokens]
        strays = [target for target in ours if not queue.by_target[target].ended]
        if strays:
            answer = self._cluster.cancel(strays)
            log.warning("stray_jobs", jobs=strays, deleted=isinstance(answer, Done))

    def _end(self, attempt: JobAttempt, state: str, *, requeued: bool = False, next_token: str = "") -> None:
        """Post how the attempt ended, once no process of its job runs and its files are visible on this host."""
        now_s = self._clock.now_s()
        if attempt.over_s is None:
            attempt.over_s = now_s
        latest = self._report(attempt)
        # Slurm counts a restart while the node is still saving. A node that leaves no exit record is blamed, so wait for the
        # record.
        expects_record = requeued or state in {"COMPLETED", "FAILED", ""}
        record = self._exit_record(attempt)
        if record is None and expects_record and now_s - attempt.over_s < _FILES_LEFT_S:
            return  # the next poll tries again
        if record is not None and record.spawn_error:
            self._drop(attempt)
            by_setup = record.code == contract.EXIT_CONFIG
            self._broke(attempt.program, attempt.token, record.spawn_error, permanent=by_setup)
            return
        if latest is not None and not attempt.spawned:  # it began and ended between two polls
            self._spawned(attempt, latest)
        if next_token and attempt.job is not None:
            with self._guard:
                self._requeued[attempt.program] = RequeuedJob(
                    attempt.job, attempt.submit_token, attempt.restart + 1, next_token, now_s
                )
        self._drop(attempt)
        ending = read_ending(
            self._paths, self._clock, self._shown, attempt, state, latest, requeued=requeued, next_token=next_token
        )
        if state in NODE_SUSPECT_STATES and not attempt.leaving and isinstance(ending.job, JobEnd):
            ending = replace(ending, job=self._with_node(ending.job))
        self._inbox.post(Ended(now_s, attempt.program, attempt.token, ending))

    def _with_node(self, job: JobEnd) -> JobEnd:
        """Add the node's state, as the cluster reports it, to a failed job.

        One call serves all jobs that ended in this poll.
        """
        if self._nodes is None:
            answer = self._cluster.nodes()
            self._nodes = {} if isinstance(answer, Unknown) else {each.name: each for each in answer}
        node = self._nodes.get(job.node)
        return job if node is None else replace(job, node_states=node.states, node_reason=node.reason)

    def _drop(self, attempt: JobAttempt) -> None:
        with self._guard:
            self._attempts.pop(attempt.token, None)
            kept = self._submit_tokens()
        with contextlib.suppress(OSError):
            # Not the files of an attempt whose job Slurm restarts: each restart reads the order and writes its output there.
            prune(self._paths, attempt.program, attempt.number, kept)

    def _submit_tokens(self) -> set[str]:
        """The tokens under which our live jobs were submitted. The caller holds the guard."""
        live: tuple[JobAttempt | RequeuedJob, ...] = (
            *self._attempts.values(), *self._found.values(), *self._requeued.values(),
        )  # fmt: skip
        return {each.submit_token for each in live}

    def _broke(self, program: str, token: str, error: str, *, permanent: bool = False, refused: bool = False) -> None:
        self._inbox.post(SpawnBroke(self._clock.now_s(), program, token, error, permanent or refused, refused))

    # --- reporting -----------------------------------------------------------------------------------------------------

    def _post_sights(self, *, always: bool = False) -> None:
        with self._guard:
            sights = {each.program: job_sight(each) for each in self._attempts.values() if each.job is not None}
        if always or sights != self._last:
            self._last = sights
            self._inbox.post(JobsSeen(self._clock.now_s(), dict(sights)))


def _takes_checkpoint(spec: ProgramSpec) -> bool:
    """Whether the command names a checkpoint.

    The daemon looks for the newest one before each start; Slurm would reuse the old one.
    """
    used = () if spec.template is None else placeholders.uses([*spec.argv, *dict(spec.env).values()])
    return bool(spec.checkpoint_glob) or placeholders.RESUME in used
