"""Parses the output of Slurm's commands into records. Pure: text in, records out, `ParseError` if the text cannot be parsed.

The text of `squeue -O` is the same in all versions, unlike the schema of `squeue --json`, and for 1,000 jobs takes 0.05 s
instead of 1.07 s (Slurm 24.11, two cores). Its fields end with U+001F and its records with U+001E. No name contains
these characters, so a comma, a bar or a line end in a job's name or comment does no harm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from supervisor.features.slurm.rules.jobs import ENDED, Job, Node, Partition
from supervisor.features.slurm.rules.node_names import BadNodes, expand

FIELD: Final = "\x1f"
RECORD: Final = "\x1e"
SQUEUE_FIELDS: Final = (
    "JobID", "Name", "Comment", "State", "Reason", "NodeList", "Partition", "Account", "QOS", "StartTime",
    "exit_code", "RestartCnt", "tres-alloc", "tres-per-node", "TimeLimit",
)  # fmt: skip
SACCT_FIELDS: Final = (
    "JobID", "JobName", "Comment", "State", "NodeList", "Partition", "Account", "QOS", "ExitCode", "AllocTRES",
    "TimelimitRaw",
)  # fmt: skip
SINFO_NODE: Final = ("%N", "%T", "%E", "%R", "%G", "%c")
SINFO_PARTITION: Final = ("%P", "%a", "%l", "%D")

_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN", "None assigned", "INVALID"})
_GPUS: Final = re.compile(r"(?:^|,|/|:)gpu(?::[^=:,(]+)?[=:]([0-9]{1,9})")
_LIMIT: Final = re.compile(r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})")
_MOST_DIGITS: Final = 18
_WAIT_STATUSES: Final = 1 << 16
_MARKS: Final = {"*": "not_responding", "~": "powered_down", "#": "powering_up", "!": "powering_down", "%": "powering_down",
                 "$": "maint", "@": "reboot", "^": "reboot_issued", "-": "planned"}  # fmt: skip


class ParseError(ValueError):
    """An answer that cannot be parsed. The message describes the defect, on one line."""


def jobs_in_text(text: str) -> list[Job]:
    """Parse the output of `squeue -O` with SQUEUE_FIELDS."""
    return [
        _job(row, _gpus_of_job(row["tres-alloc"], row["tres-per-node"]), _limit_s(row["TimeLimit"]))
        for row in _records(text, SQUEUE_FIELDS, "squeue")
    ]


def jobs_in_accounting(text: str) -> list[Job]:
    """Parse the output of `sacct -P -X` with SACCT_FIELDS: ended jobs that the controller has forgotten."""
    found: list[Job] = []
    for row in _records(text, SACCT_FIELDS, "sacct", record="\n"):
        minutes = _int(row["TimelimitRaw"])
        as_squeue = row | {
            "JobID": row["JobID"].partition("+")[0], "Name": row["JobName"], "State": row["State"].partition(" ")[0],
            "Reason": "", "StartTime": "", "exit_code": row["ExitCode"], "RestartCnt": "",
        }  # fmt: skip
        found.append(_job(as_squeue, _gpus(row["AllocTRES"]), None if minutes is None else minutes * 60.0))
    return found


def nodes_in(text: str) -> list[Node]:
    """Parse the output of `sinfo -N`: one row for each partition of each node."""
    found: dict[str, Node] = {}
    for row in _records(text, SINFO_NODE, "sinfo", record="\n"):
        name, before = row["%N"], found.get(row["%N"])
        found[name] = Node(
            name=name, states=_node_states(row["%T"]), reason=_word(row["%E"]).replace("none", ""),
            partitions=(*(before.partitions if before else ()), row["%R"]), cpus=_int(row["%c"]), gpus=_gpus(row["%G"]),
        )  # fmt: skip
    return list(found.values())


def partitions_in(text: str) -> list[Partition]:
    """Parse the output of `sinfo`: one row for each partition and state of nodes."""
    found: dict[str, Partition] = {}
    for row in _records(text, SINFO_PARTITION, "sinfo", record="\n"):
        name = row["%P"].rstrip("*")
        before = found.get(name)
        count = _int(row["%D"])
        found[name] = Partition(
            name=name, default=row["%P"].endswith("*"), up=row["%a"] == "up", time_limit_s=_limit_s(row["%l"]),
            nodes=count if before is None else (before.nodes or 0) + (count or 0),
        )  # fmt: skip
    return list(found.values())


def version_in(text: str) -> tuple[int, int]:
    """`slurm-wlm 22.05.8` is (22, 5)."""
    match = re.search(r"\bslurm\S* ([0-9]+)\.([0-9]+)", text)
    if match is None:
        raise ParseError(f"--version: {text.strip()[:80]!r} names no version")
    return int(match[1]), int(match[2])


def _job(row: Mapping[str, str], gpus: int | None, limit_s: float | None) -> Job:
    """A value is kept only if it has a meaning in the job's state."""
    id_ = _int(row["JobID"])
    if id_ is None:
        raise ParseError("a job without a number")
    state = row["State"] or "UNKNOWN"
    ended = state in ENDED
    began = ended or state in {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "CONFIGURING"}
    start = _int(row["StartTime"])
    code, signal = _ending(row["exit_code"])
    try:
        names = expand(row["NodeList"])
    except BadNodes as error:
        raise ParseError(f"job {id_}: {error}") from error
    return Job(
        id=id_, name=row["Name"], comment=_word(row["Comment"]),
        state=state, reason=_reason(row["Reason"]), nodes=names, partition=_word(row["Partition"]),
        account=_word(row["Account"]), qos=_word(row["QOS"]),
        start_expected_at_wall_s=None if began or start is None else float(start),
        exit_code=code if state == "COMPLETED" or (ended and code) else None, signal=signal if ended else None,
        restarts=_int(row["RestartCnt"]), gpus=gpus, time_limit_s=limit_s,
    )  # fmt: skip


def _records(text: str, fields: Sequence[str], command: str, record: str = RECORD) -> Iterator[dict[str, str]]:
    rows = text.split(record)
    if rows[-1].strip():
        raise ParseError(f"{command}: its last line has no end: {rows[-1].strip()[:80]!r}")
    for row in rows[:-1]:
        values = row.lstrip("\n").split(FIELD)
        if len(values) != len(fields):
            raise ParseError(f"{command}: a line of {len(values)} fields instead of {len(fields)}: {row.strip()[:80]!r}")
        yield {name: value.strip() for name, value in zip(fields, values, strict=True)}


def _ending(text: str) -> tuple[int | None, int | None]:
    """`3:0` and `0:9` are exit code and signal; a bare number is a wait status."""
    code, colon, signal = text.partition(":")
    if colon:
        return (None, _int(signal)) if _int(signal) else (_int(code), None)
    status = _int(code)
    if status is None or not 0 <= status < _WAIT_STATUSES:  # Slurm's own "no value" is 4294967294
        return None, None
    return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)


def _limit_s(text: str) -> float | None:
    """Seconds of `2-00:30:00` or `30:00`; None for UNLIMITED and for unknown values."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _gpus(*texts: str) -> int | None:
    """The GPUs in `gres/gpu=2` or `gres:gpu:a100:2`, from the first text that names any; None if no text names GPUs."""
    for text in texts:
        total = [int(each) for each in re.findall(r"gres/gpu=([0-9]{1,9})", text)] or [
            int(each) for each in _GPUS.findall(text)
        ]
        if total:
            return sum(total)
    return None


def _gpus_of_job(*texts: str) -> int | None:
    """The GPUs of a job: 0 if the texts list its CPUs but no GPU, None if they list neither."""
    found = _gpus(*texts)
    return 0 if found is None and any("cpu=" in text for text in texts) else found


def _node_states(text: str) -> tuple[str, ...]:
    """The states in `mixed+drain` or `down*`: each word, and each suffix mark as a word."""
    found: dict[str, None] = {}
    for word in text.lower().split("+"):
        bare = word.rstrip("".join(_MARKS))
        found.update(dict.fromkeys([bare, *(_MARKS[mark] for mark in word[len(bare) :])]))
    return tuple(found)


def _reason(text: str) -> str:
    """Slurm's reason word, without the detail that the text output adds to some: `RaisedSignal:9(Killed)`.

    A whole sentence is kept.
    """
    first = re.split(r"[:,]", text, maxsplit=1)[0]
    return _word(text if " " in first else first)


def _word(text: str) -> str:
    return "" if text in _NOTHING else text


def _int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
