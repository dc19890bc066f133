"""Runs Slurm's commands as child processes: no shell, a time limit, the C locale, and one typed answer per call.

An answer is the requested result, `SlurmRefused` with Slurm's own message, or `Unknown`. `Unknown` never means "it failed".
An `sbatch` that was killed at its time limit, or that lost its controller during the call, may have submitted the job. So a
caller must look for the job by its comment before it submits again.

A poll runs one `squeue` for all jobs of this user, including those that ended in the last minutes. It runs at most one more
command: `sinfo` if a wanted job has failed, otherwise `sacct` for wanted jobs that the controller has forgotten.

An empty answer with status 0 proves nothing: wrappers and overloaded controllers give it for jobs that run. If `squeue`
lacks wanted jobs and the accounting shows no end of them, one `scontrol show job` asks for the newest of them by its id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar

from supervisor.features.slurm.adapters import reading
from supervisor.features.slurm.adapters.reading import FIELD, RECORD, ParseError
from supervisor.features.slurm.rules.jobs import Job, Node, Partition
from supervisor.formats import span
from supervisor.policy.worker.inherited import is_inherited
from supervisor.printable import printable
from supervisor.records import Record
from workers import contract

Why = Literal["timeout", "unreachable", "garbage", "missing"]
Found = TypeVar("Found")
_Output = subprocess.CompletedProcess[str]

NODE_SUSPECT_STATES: Final = frozenset({"FAILED", "CANCELLED"})  # after these job states the launcher also queries the nodes
_MOST_SAID: Final = 600
_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_CONF_SERVER"})
_TOOLS: Final = ("SLURM_", "SLURMD_", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_", "SCONTROL_", "SRUN_")
_NOISE: Final = re.compile(r"^(sbatch|squeue|sacct|sinfo|scancel|scontrol): (error: |fatal: )?", re.IGNORECASE)
_SUBMITTED: Final = re.compile(r"^([0-9]+)(?:;[\w.-]+)?$", re.ASCII)
_UNREACHABLE: Final = re.compile(
    r"unable to contact slurm controller|connection (refused|timed out|reset)|timed out|zero bytes were transmitted|"
    r"communication (connection|shutdown|connection failure)|(message|header) (receive|send) failure|insane message length|"
    r"transport endpoint|unable to establish (controller|configuration)|could not establish|could not resolve|"
    r"controller in standby|temporarily unable|authentication|munge|unexpected message|unspecified error|no route to host|"
    r"network is unreachable|resource temporarily unavailable|persistconn|persist_conn|fetch_config|dns srv|"
    r"incompatible versions of client and server|socket",
    re.IGNORECASE,
)
_SBATCH_SAYS: Final = re.compile(r"^sbatch: ", re.MULTILINE)
_NO_SUCH_JOB: Final = re.compile(r"invalid job id", re.IGNORECASE)
_NO_ACCOUNTING: Final = re.compile(r"accounting storage is disabled", re.IGNORECASE)


class Submitted(Record):
    id: int


class Done(Record):
    """Slurm accepted the request."""


class SlurmRefused(Record):
    """Slurm rejected the request. `words` is Slurm's own message, on one line."""

    words: str


class Unknown(Record):
    """The outcome is unknown: no answer in time, no controller, no binary, or an answer that cannot be parsed."""

    words: str
    why: Why


class Jobs(Record):
    """All jobs of this user.

    `absent`: wanted targets that neither the controller, by two of its answers, nor the accounting database knows. `unread`:
    why the state of the other missing targets is unknown. If it is empty, every wanted job is in `found` or in `absent`.
    """

    found: tuple[Job, ...]
    absent: frozenset[str] = frozenset()
    unread: str = ""


class Slurm:
    """Runs the commands of one cluster. Every call blocks for at most `timeout_s`."""

    def __init__(self, *, timeout_s: float = 30.0, directory: str = "") -> None:
        """`directory`: folder of the Slurm commands, if they are not on PATH."""
        self._timeout_s, self._directory = timeout_s, directory
        self._accounting = True
        self.calls = 0

    def version(self) -> tuple[int, int] | Unknown:
        """Slurm's version, such as (22, 5). Needs no controller."""
        return self._read(["sinfo", "--version"], reading.version_in)

    def submit(self, script: str, options: Sequence[str] = (), *, cwd: str = "/") -> Submitted | SlurmRefused | Unknown:
        """Submit a batch script, which begins with `#!`. `options` override the script's #SBATCH lines."""
        output = self._run(["sbatch", "--parsable", *options], given=script, cwd=cwd)
        if isinstance(output, Unknown):
            return output
        numbers = [match[1] for line in output.stdout.splitlines() if (match := _SUBMITTED.match(line.strip()))]
        if len(numbers) == 1:
            return Submitted(int(numbers[0]))
        if output.returncode == 0:
            shown = printable(output.stdout.strip())[:200]
            return Unknown(f"sbatch: an answer without a job's number: {shown!r}", "garbage")
        answer = _refusal("sbatch", output)
        if isinstance(answer, SlurmRefused) and not _SBATCH_SAYS.search(output.stderr):
            return Unknown(answer.words, "garbage")  # a site's wrapper around sbatch failed, perhaps after the submission
        return answer

    def would_take(self, script: str) -> Done | SlurmRefused | Unknown:
        """Check whether Slurm would accept this script. Submits nothing."""
        output = self._run(["sbatch", "--test-only"], given=script)
        if isinstance(output, Unknown):
            return output
        return Done() if output.returncode == 0 else _refusal("sbatch", output)

    def jobs(self, wanted: Collection[str] = ()) -> Jobs | Unknown:
        """All jobs of this user. `wanted`: `Job.target`s to look up in any case, even if they ended long ago."""
        found = self._queue()
        if isinstance(found, Unknown):
            return found
        missing = sorted(frozenset(wanted) - {job.target for job in found})
        if not missing:
            return Jobs(tuple(found))
        if any(job.target in wanted and job.state in NODE_SUSPECT_STATES for job in found):
            return Jobs(
                tuple(found), unread="a job failed, so sinfo is queried for its node; sacct is queried at the next poll"
            )
        past = self._accounting_jobs(missing)
        if isinstance(past, Unknown):
            return Jobs(tuple(found), unread=past.words)
        # If the controller never reported a job's end, the accounting lists the job as running for ever. So only ended jobs
        # are used.
        ended = [job for job in past if job.ended]
        absent = frozenset(missing) - {job.target for job in ended}
        doubt = self._doubt(absent) if absent else ""
        return Jobs((*found, *ended), frozenset() if doubt else absent, doubt)

    def cancel(self, targets: Collection[str]) -> Done | SlurmRefused | Unknown:
        """Cancel jobs, given by `Job.target`.

        Slurm reports no error for a job that has ended or is unknown: that is `Done` as well.
        """
        return self._ask(["scancel", *targets])

    def signal(self, target: str, name: str) -> Done | SlurmRefused | Unknown:
        """Send a signal to the batch script only, not to its child processes."""
        return self._ask(["scancel", f"--signal={name}", "--batch", target])

    def nodes(self) -> list[Node] | Unknown:
        return self._read(["sinfo", "--all", "-N", "-h", "-o", FIELD.join(reading.SINFO_NODE)], reading.nodes_in)

    def partitions(self) -> list[Partition] | Unknown:
        return self._read(["sinfo", "--all", "-h", "-o", FIELD.join(reading.SINFO_PARTITION)], reading.partitions_in)

    def _queue(self) -> list[Job] | Unknown:
        ends = [FIELD] * (len(reading.SQUEUE_FIELDS) - 1) + [RECORD]
        form = ",".join(f"{name}:{end}" for name, end in zip(reading.SQUEUE_FIELDS, ends, strict=True))
        filters = ["--all", "--states=all", f"--user={os.getuid()}"]
        return self._read(["squeue", *filters, "--noheader", "-O", form], reading.jobs_in_text)

    def _doubt(self, absent: Collection[str]) -> str:
        """Why these jobs may exist although `squeue` lacks them; empty: they do not.

        One answer of `squeue` is right or wrong for all of them, so the newest one is enough.
        """
        newest = max(absent, key=int)
        output = self._run(["scontrol", "-o", "show", "job", newest])
        if isinstance(output, Unknown):
            return "" if output.why == "missing" else output.words
        if output.returncode:
            words = _refusal("scontrol", output).words
            return "" if _NO_SUCH_JOB.search(words) else words
        if "JobId=" in output.stdout and f"({os.getuid()})" not in output.stdout:
            return ""  # the controller has lost our job and given its id to another user's
        return f"squeue does not list job {newest}, and scontrol does not say that it is unknown"

    def _accounting_jobs(self, targets: Sequence[str]) -> list[Job] | Unknown:
        """Jobs from the accounting database, or none if the cluster has no accounting.

        The controller was already asked for ended jobs.
        """
        if not self._accounting:
            return []
        answer = self._read(
            ["sacct", "-n", "-P", "-X", f"--delimiter={FIELD}", f"--jobs={','.join(targets)}",
             f"--format={','.join(reading.SACCT_FIELDS)}"],
            reading.jobs_in_accounting,
        )  # fmt: skip
        if isinstance(answer, Unknown) and _NO_ACCOUNTING.search(answer.words):
            self._accounting = False
            return []
        return answer

    def _ask(self, argv: Sequence[str]) -> Done | SlurmRefused | Unknown:
        output = self._run(argv)
        if isinstance(output, Unknown):
            return output
        # scancel prints "Invalid job id" and still exits with 0, so stderr must be empty, too.
        return Done() if output.returncode == 0 and not output.stderr.strip() else _refusal(argv[0], output)

    def _read(self, argv: Sequence[str], parse: Callable[[str], Found]) -> Found | Unknown:
        output = self._run(argv)
        if isinstance(output, Unknown):
            return output
        if output.returncode:
            refusal = _refusal(argv[0], output)
            return refusal if isinstance(refusal, Unknown) else Unknown(refusal.words, "garbage")
        try:
            return parse(output.stdout)
        except ParseError as error:
            return Unknown(printable(error), "garbage")

    def _run(self, argv: Sequence[str], *, given: str = "", cwd: str = "/") -> _Output | Unknown:
        self.calls += 1
        command = str(Path(self._directory, argv[0])) if self._directory else argv[0]
        try:
            process = subprocess.Popen(
                [command, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                env=environment(), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return Unknown(f"{argv[0]} cannot be run: {getattr(error, 'strerror', None) or error}", "missing")
        try:
            out, err = process.communicate(given.encode(), self._timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            return Unknown(f"{argv[0]} has not answered within {span(self._timeout_s)}", "timeout")
        return _Output(argv, process.returncode, *(text.decode("utf-8", "replace") for text in (out, err)))


def environment() -> dict[str, str]:
    """The environment for the commands.

    It omits variables of a surrounding job or of a user's shell that change the commands: SBATCH_ACCOUNT, SQUEUE_FORMAT ...
    A job inherits the rest, so it omits what no program inherits.
    The added variables make Slurm print times as seconds since the epoch.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT or (is_inherited(key) and not (key.startswith(_TOOLS) or key in contract.STRIPPED_ENV))
    }
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def _refusal(command: str, output: _Output) -> SlurmRefused | Unknown:
    """`SlurmRefused` if Slurm itself rejected the request; `Unknown` if Slurm may not have decided."""
    lines = [_NOISE.sub("", line.strip()) for line in (output.stderr.splitlines() or output.stdout.splitlines())]
    message = printable("; ".join(line for line in dict.fromkeys(lines) if line))[:_MOST_SAID]
    message = message or f"{command} ended with status {output.returncode} and printed nothing"
    if output.returncode < 0 or message.startswith(f"{command} ended"):
        return Unknown(message, "garbage")
    return Unknown(message, "unreachable") if _UNREACHABLE.search(message) else SlurmRefused(message)
