"""How a job's attempt ended, from its files: the exit record, the node's report and the job's own output."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from supervisor.adapters.process import endings
from supervisor.adapters.slurm.job_attempt import JobAttempt
from supervisor.adapters.slurm.job_files import OUTPUT_FILE
from supervisor.adapters.slurm.report import NodeReport
from supervisor.files import read_bounded
from supervisor.model.inputs import Ending
from supervisor.model.settings import Paths
from supervisor.policy.cluster.job_end import JobEnd
from supervisor.ports import Clock, ahead_s
from supervisor.records import Record, replace

_OUTPUT_BYTES: Final = 16_384
_OUT_OF_MEMORY: Final = re.compile(rb"(?im)^slurmstepd.* exceeded (job )?memory limit|^slurmstepd.* oom[-_ ]kill")


class JobEndings(Record):
    """Reads how attempts ended. `paths` is the result of `remote_paths`."""

    paths: Paths
    clock: Clock
    last_step: Callable[[str, str], int | None]
    """The newest step in an attempt's own output."""

    def read(
        self, attempt: JobAttempt, state: str, node_report: NodeReport | None, requeued: bool, next_token: str
    ) -> Ending:  # fmt: skip
        """The end of an attempt whose job Slurm shows in this state; empty: Slurm no longer lists the job."""
        logs_from = node_report.logs_from if node_report is not None else (0, 0)
        args = self.paths, attempt.program, attempt.number, attempt.token, logs_from, self._journal_of(node_report)
        try:
            ending = endings.read_ending(*args)
            if ending is None:
                ending = endings.without_record(*args, fate=_fate(attempt, state))
            if ending.steps is None:
                ending = replace(ending, shown_steps=self.last_step(attempt.program, attempt.token))
        except Exception as error:  # noqa: BLE001  an end that is never posted would block the program for ever
            ending = Ending(fate=f"its end could not be read: {type(error).__name__}: {error}")
        row = attempt.row
        node = node_report.node if node_report is not None else (row.nodes[0] if row is not None and row.nodes else "")
        job = JobEnd(
            str(attempt.job or "?"), "LAUNCH_FAILED" if attempt.given_up else self._by_output(attempt, state),
            "" if row is None else row.reason, node, requeued, "" if node_report is None else node_report.asked,
            attempt.spawned, next_token,
        )  # fmt: skip
        return replace(ending, oom_line="", oom_kills=None, job=job)

    def _by_output(self, attempt: JobAttempt, state: str) -> str:
        """The job's state, corrected to OUT_OF_MEMORY if its output shows that.

        Where memory is limited without cgroups, Slurm kills a job and reports FAILED. Only the output contains the reason.
        """
        if state != "FAILED":
            return state
        first = attempt.number - attempt.restart  # the number of the job's first attempt
        directory = self.paths.attempt_dir(attempt.program, first, attempt.submit_token)
        text = read_bounded(f"{directory}/{OUTPUT_FILE.format(attempt.job)}", _OUTPUT_BYTES)
        return "OUT_OF_MEMORY" if _OUT_OF_MEMORY.search(text) else state

    def _journal_of(self, node_report: NodeReport | None) -> Callable[[int], float] | None:
        """A function that converts a stamp of the node's clock to journal time, by the wall clocks of both hosts.

        None: there is no report, so the clocks were never compared.
        """
        if node_report is None:
            return None
        offset_s = node_report.wall_s - ahead_s(self.clock) - node_report.at_ns / 1e9
        return lambda at_ns: at_ns / 1e9 + offset_s


def _fate(attempt: JobAttempt, state: str) -> str:
    job = f"its job {attempt.job}"
    if not attempt.spawned:
        return f"{job} ended before its program began ({state or 'Slurm no longer lists the job'})"
    return f"{job} left no exit record ({state or 'Slurm no longer lists the job'})"
