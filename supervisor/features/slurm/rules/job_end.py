"""The meaning of a job's end for its program: from Slurm's state, and from what the job itself reported.

The rule, first match wins:

| observation | cause | counts against the program | the node's fault | then |
|---|---|---|---|---|
| Slurm put it back into its queue, and it had been asked to leave | `job_preempted` | no | no | resumes in the same job |
| Slurm put it back, and it vanished without a report | `node_failed` | no | yes | resumes in the same job |
| NODE_FAIL, BOOT_FAIL; held because its launch failed | `node_failed` | no | yes | the next job |
| PREEMPTED, REVOKED | `job_preempted` | no | no | the next job |
| its node asked it to save before its time was over, and it left | `time_limit` | no | no | the next job |
| TIMEOUT, DEADLINE, and it had not left by itself | `timeout` | yes | no | the next job, later and later |
| OUT_OF_MEMORY | `oom_killed` | yes | no | a smaller batch |
| it failed, and its last lines or its node's reason name broken hardware | `node_failed` | no | yes | the next job |
| CANCELLED, and neither extralife nor its time limit asked for it | `cancelled` | no | no | stays down: it was deleted |
| anything else | by its exit code, as on one machine (`policy/worker/diagnosis.py`) | | | |

There are two witnesses of broken hardware: the error text of CUDA or the driver in the program's last lines
("uncorrectable ECC error encountered"), and the reason with which the cluster's own health check has drained the node
("gpu ecc", "xid 79"). A job of a user can read no more about a node. An end that neither names stays a crash of the
program.

A success code overrides all of this.

Worked example: time limit 4 h, lead 120 s. After 3 h 58 min Slurm sends USR1, the worker saves at step 1,200,000 and exits
with 75; the job ends COMPLETED: `time_limit`, the end does not count, and the next job resumes at step 1,200,000.

Why a deleted job stays down: somebody, the user or the cluster's staff, wrote `scancel` to end it, and a daemon that
submits it again a minute later works against them. `extralifectl start` brings it back.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.records import Record

GOES_ON: Final = frozenset({"time_limit", "job_preempted", "node_failed"})  # the next job starts at once; no end counts
CANCELLED: Final = "cancelled"
NODE_FAILED: Final = "node_failed"
PREEMPTED: Final = "job_preempted"  # `preempted` alone is the end of a box that its provider announced

_NODE: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"})
_TAKEN: Final = frozenset({"PREEMPTED", "REVOKED"})
_LATE: Final = frozenset({"TIMEOUT", "DEADLINE"})
_BY_ALARM: Final = "time limit"
_OFF: Final = frozenset({"down", "drain", "draining", "drained", "fail", "failing", "error"})
# Texts of cudaGetErrorString, NVML and the driver. Other CUDA errors may be the program's own fault.
_BROKEN_LINE: Final = re.compile(
    r"uncorrectable (ecc|nvlink) error|gpu has fallen off the bus|gpu is lost|row remapp\w+ fail", re.IGNORECASE
)
# Texts of health checks, such as "NHC: check_nv_healthmon", "gpu ecc", "Xid 79", "memory DIMM error".
_BROKEN_NODE: Final = re.compile(
    r"\b(ecc|xid|gpus?|gres/gpu|nvlink|nvml|nv_healthmon|nvidia\S*|dcgm|dimm|mce|hardware)\b", re.IGNORECASE
)


class JobEnd(Record):
    """The data about a job that is over, or that Slurm has put back into its queue (`requeued`)."""

    job: str
    state: str  # Slurm's, such as NODE_FAIL; empty: Slurm does not know the job any more
    reason: str = ""
    node: str = ""
    requeued: bool = False
    asked: str = ""  # why its node asked it to leave: "time limit", "signal"; empty: it was not asked
    began: bool = False  # its node had started the worker
    next_token: str = ""  # token of the next attempt, which runs in the same job
    node_states: tuple[str, ...] = ()  # states of its node, queried after a job that failed; empty: no query, or no answer
    node_reason: str = ""  # why the cluster's staff, or its health check, has taken the node out of use


class JobVerdict(Record):
    """`counted`: whether the restart policy counts it as a death; `fault`: whether its node is to blame."""

    cause: str
    counted: bool
    why: str
    fault: bool = False


def broken(end: JobEnd, last_lines: tuple[str, ...] = ()) -> str:
    """The text that shows broken hardware of the node; empty: there is none."""
    line = next((line for line in reversed(last_lines) if _BROKEN_LINE.search(line)), "")
    if line:
        return line.strip()
    if _OFF.intersection(end.node_states) and _BROKEN_NODE.search(end.node_reason):
        return f"the node is out of use: {end.node_reason}"
    return ""


def judge(
    end: JobEnd, *, code: int | None, signal: int | None, done_codes: tuple[int, ...], last_lines: tuple[str, ...] = ()
) -> JobVerdict | None:
    """The verdict about a job's end. None: the exit code decides, as on one machine."""
    if code is not None and code in done_codes:
        return None
    job, where = f"job {end.job}", f" on node {end.node}" if end.node else ""
    left = code is not None or signal is not None
    if end.requeued:
        if left or end.asked:
            return JobVerdict(PREEMPTED, counted=False, why=f"Slurm took {job}{where} back into its queue")
        why = f"{job} vanished{where}, and Slurm put it back into its queue"
        return JobVerdict(NODE_FAILED, counted=False, why=why, fault=True)
    if end.state in _NODE:
        return JobVerdict(NODE_FAILED, counted=False, why=f"{job} ended with its node{where} ({end.state})", fault=True)
    if end.state in _TAKEN:
        return JobVerdict(PREEMPTED, counted=False, why=f"{job}{where} had to make room for another ({end.state})")
    if end.asked == _BY_ALARM and left:
        return JobVerdict("time_limit", counted=False, why=f"the time of {job}{where} is over: it saved and left")
    if end.state in _LATE:
        why = f"{job}{where} was killed at its time limit before it had saved and left; raise launcher.signal_lead_s"
        return JobVerdict("timeout", counted=True, why=why)
    if end.state == "OUT_OF_MEMORY":
        return JobVerdict("oom_killed", counted=True, why=f"{job}{where} needed more memory than it was given")
    if end.node and (words := broken(end, last_lines)):
        return JobVerdict(NODE_FAILED, counted=False, why=f"{job} failed{where}: {words}", fault=True)
    if end.state == "CANCELLED":
        return JobVerdict(CANCELLED, counted=False, why=f"somebody deleted {job}{where}, such as with scancel")
    return None
