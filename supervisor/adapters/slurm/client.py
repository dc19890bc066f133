"""Slurm's commands as children: no shell, a time limit, the C locale, and one typed answer each.

An answer is what was asked for, `SlurmRefused` with its own words, or `Unknown`. Unknown is never "it failed": an `sbatch`
that was cut off at its time limit, or whose controller went away in the middle, may have submitted the job. Whoever
submits looks for the job by its comment before it submits again.

A poll is one `squeue` for all jobs of this user, with those that ended in the last minutes, and at most one more call:
`sinfo` where a wanted job has failed, else `sacct` for wanted jobs that the controller has forgotten.
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

from supervisor.adapters.slurm import reading
from supervisor.adapters.slurm.reading import FIELD, RECORD, Garbage
from supervisor.policy.cluster.jobs import Job, Node, Partition
from supervisor.printable import printable
from supervisor.records import dataclass
from workers import contract

Why = Literal["timeout", "unreachable", "garbage", "missing"]
Found = TypeVar("Found")

CALLS_A_POLL: Final = 2
MAY_BE_ITS_NODE: Final = frozenset({"FAILED", "CANCELLED"})  # after these the launcher asks for the nodes
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
_NO_ACCOUNTING: Final = re.compile(r"accounting storage is disabled", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Submitted:
    id: int


@dataclass(frozen=True, slots=True)
class Done:
    """Slurm took the request."""


@dataclass(frozen=True, slots=True)
class SlurmRefused:
    """Slurm answered, and said no. `words` are its own, on one line."""

    words: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows: no answer in time, no controller, no binary, or an answer that is not understood."""

    words: str
    why: Why


@dataclass(frozen=True, slots=True)
class Jobs:
    """All jobs of this user. `absent`: targets that were wanted, and that neither the controller nor the accounting knows.

    `unread`: why nothing is known of other wanted jobs that are missing here; empty: each of them is in `found` or absent.
    """

    found: tuple[Job, ...]
    absent: frozenset[str] = frozenset()
    unread: str = ""


@dataclass(frozen=True, slots=True)
class _Said:
    code: int
    out: str
    err: str


class Slurm:
    """The commands of one cluster. Every call blocks, for `timeout_s` at most."""

    def __init__(self, *, timeout_s: float = 30.0, directory: str = "") -> None:
        """`directory`: where the commands are, if not on the path."""
        self._timeout_s, self._directory = timeout_s, directory
        self._by_json = False
        self._accounting = True
        self.calls = 0

    def version(self) -> tuple[int, int] | Unknown:
        """(22, 5). It needs no controller."""
        return self._read(["sinfo", "--version"], reading.version_in)

    def submit(self, script: str, options: Sequence[str] = (), *, cwd: str = "/") -> Submitted | SlurmRefused | Unknown:
        """Submit a batch script, which begins with `#!`. `options` count more than the script's #SBATCH lines."""
        said = self._run(["sbatch", "--parsable", *options], given=script, cwd=cwd)
        if isinstance(said, Unknown):
            return said
        numbers = [match[1] for line in said.out.splitlines() if (match := _SUBMITTED.match(line.strip()))]
        if len(numbers) == 1:
            return Submitted(int(numbers[0]))
        if said.code == 0:
            return Unknown(f"sbatch: an answer without a job's number: {printable(said.out.strip())[:200]!r}", "garbage")
        answer = _refusal("sbatch", said)
        if isinstance(answer, SlurmRefused) and not _SBATCH_SAYS.search(said.err):
            return Unknown(answer.words, "garbage")  # a site's wrapper around it broke, perhaps after the submission
        return answer

    def would_take(self, script: str) -> Done | SlurmRefused | Unknown:
        """Whether Slurm would take this script. Nothing is submitted."""
        said = self._run(["sbatch", "--test-only"], given=script)
        if isinstance(said, Unknown):
            return said
        return Done() if said.code == 0 else _refusal("sbatch", said)

    def jobs(self, wanted: Collection[str] = ()) -> Jobs | Unknown:
        """All jobs of this user. `wanted`: `Job.target`s to be looked for, though they may have ended long ago."""
        before = self.calls
        found = self._queue()
        if isinstance(found, Unknown):
            return found
        missing = sorted(frozenset(wanted) - {job.target for job in found})
        if not missing:
            return Jobs(tuple(found))
        if self.calls - before >= CALLS_A_POLL:
            return Jobs(tuple(found), unread="squeue had to be asked twice: the accounting is asked next time")
        if any(job.target in wanted and job.state in MAY_BE_ITS_NODE for job in found):
            return Jobs(tuple(found), unread="a job failed and its node is asked for: the accounting is asked next time")
        past = self._past(missing)
        if isinstance(past, Unknown):
            return Jobs(tuple(found), unread=past.words)
        # The accounting calls a job running for ever if the controller never reported its end: only an end is news.
        ended = [job for job in past if job.ended]
        return Jobs((*found, *ended), frozenset(missing) - {job.target for job in ended})

    def cancel(self, targets: Collection[str]) -> Done | SlurmRefused | Unknown:
        """`Job.target`s. Slurm says nothing of one that has ended, or that it does not know: that is done too."""
        return self._ask(["scancel", *targets])

    def signal(self, target: str, name: str) -> Done | SlurmRefused | Unknown:
        """To the batch script alone."""
        return self._ask(["scancel", f"--signal={name}", "--batch", target])

    def requeue(self, target: str) -> Done | SlurmRefused | Unknown:
        return self._ask(["scontrol", "requeue", target])

    def hold(self, target: str) -> Done | SlurmRefused | Unknown:
        return self._ask(["scontrol", "hold", target])

    def release(self, target: str) -> Done | SlurmRefused | Unknown:
        return self._ask(["scontrol", "release", target])

    def update(self, target: str, **fields: str) -> Done | SlurmRefused | Unknown:
        """`update("17", ExcNodeList="n1,n2")`: the names are scontrol's. Most of them change jobs that wait alone."""
        return self._ask(["scontrol", "update", f"JobId={target}", *(f"{name}={value}" for name, value in fields.items())])

    def nodes(self) -> list[Node] | Unknown:
        return self._read(["sinfo", "--all", "-N", "-h", "-o", FIELD.join(reading.SINFO_NODE)], reading.nodes_in)

    def partitions(self) -> list[Partition] | Unknown:
        return self._read(["sinfo", "--all", "-h", "-o", FIELD.join(reading.SINFO_PARTITION)], reading.partitions_in)

    def _queue(self) -> list[Job] | Unknown:
        """As text: the same in all versions, and for 1,000 jobs a twentieth of the time of JSON (ADR 0077).

        A row for each task: else a task that was put back is folded with those that never began, and its restarts are lost.
        Where the text is not understood, a field that a version has dropped for example, JSON is asked from then on.
        """
        who = ["--all", "--states=all", f"--user={os.getuid()}"]
        if not self._by_json:
            ends = [FIELD] * (len(reading.SQUEUE_FIELDS) - 1) + [RECORD]
            form = ",".join(f"{name}:{end}" for name, end in zip(reading.SQUEUE_FIELDS, ends, strict=True))
            text = self._read(["squeue", *who, "--array", "--noheader", "-O", form], reading.jobs_in_text)
            if not isinstance(text, Unknown) or text.why != "garbage":
                return text
        answer = self._read(["squeue", "--json", *who], lambda said: reading.jobs_in_json(said, os.getuid()))
        if not self._by_json and isinstance(answer, Unknown):
            return text
        self._by_json = True
        return answer

    def _past(self, targets: Sequence[str]) -> list[Job] | Unknown:
        """Jobs of the accounting; none where there is none. The controller was asked for ended jobs already."""
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
        said = self._run(argv)
        if isinstance(said, Unknown):
            return said
        # scancel says "Invalid job id" and ends with 0.
        return Done() if said.code == 0 and not said.err.strip() else _refusal(argv[0], said)

    def _read(self, argv: Sequence[str], parse: Callable[[str], Found]) -> Found | Unknown:
        said = self._run(argv)
        if isinstance(said, Unknown):
            return said
        if said.code:
            refusal = _refusal(argv[0], said)
            return refusal if isinstance(refusal, Unknown) else Unknown(refusal.words, "garbage")
        try:
            return parse(said.out)
        except Garbage as error:
            return Unknown(printable(error), "garbage")

    def _run(self, argv: Sequence[str], *, given: str = "", cwd: str = "/") -> _Said | Unknown:
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
            return Unknown(f"{argv[0]} has not answered within {self._timeout_s:g} s", "timeout")
        return _Said(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def environment() -> dict[str, str]:
    """Without what a surrounding job or a user's shell would make of the commands: SBATCH_ACCOUNT, SQUEUE_FORMAT ...

    Times are printed as seconds since the epoch, and long lists of an array's tasks are not cut.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT or not (key.startswith(_TOOLS) or key in contract.STRIPPED_ENV)
    }
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


def _refusal(command: str, said: _Said) -> SlurmRefused | Unknown:
    """What Slurm itself refused, or Unknown where the answer shows that nobody may have decided."""
    words = _words(said) or f"{command} ended with status {said.code} and said nothing"
    if said.code < 0 or words.startswith(f"{command} ended"):
        return Unknown(words, "garbage")
    return Unknown(words, "unreachable") if _UNREACHABLE.search(words) else SlurmRefused(words)


def _words(said: _Said) -> str:
    lines = [_NOISE.sub("", line.strip()) for line in (said.err.splitlines() or said.out.splitlines())]
    return printable("; ".join(line for line in dict.fromkeys(lines) if line))[:_MOST_SAID]
