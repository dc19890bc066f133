"""What Slurm prints, read into whole records: every field, every form of a value, and each sentence about garbage."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from supervisor.features.slurm.adapters import reading
from supervisor.features.slurm.adapters.reading import FIELD, RECORD, ParseError
from supervisor.features.slurm.rules.jobs import Job, Node, Partition

WAITS = {
    "JobID": "17", "Name": "a, b|c", "Comment": "run=a\nb", "State": "PENDING",
    "Reason": "Resources", "NodeList": "", "Partition": "a100", "Account": "lab", "QOS": "night",
    "StartTime": "1100", "exit_code": "0", "RestartCnt": "2", "tres-alloc": "cpu=4,mem=1G,gres/gpu=2",
    "tres-per-node": "N/A", "TimeLimit": "1-02:03:04",
}  # fmt: skip
WAITING = Job(
    17, "a, b|c", "run=a\nb", "PENDING", "Resources", (), "a100", "lab", "night", start_expected_at_wall_s=1100.0,
    restarts=2, gpus=2, time_limit_s=93_784.0,
)  # fmt: skip
RAN = {"start_expected_at_wall_s": None}


def known(**fields: Any) -> Job:
    return replace(WAITING, **fields)


def text_of(*rows: dict[str, str], end: str = RECORD + "\n") -> str:
    return "".join(FIELD.join(row[name] for name in reading.SQUEUE_FIELDS) + end for row in rows)


@pytest.mark.parametrize(
    ("row", "job"),
    [
        ({}, WAITING),
        ({"State": " RUNNING ", "NodeList": "n[1-2]"}, known(state="RUNNING", nodes=("n1", "n2"), **RAN)),
        *(({"State": state}, known(state=state, **RAN))
          for state in ("COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "CONFIGURING")),
        ({"State": "REQUEUED"}, known(state="REQUEUED")),
        ({"State": ""}, known(state="UNKNOWN")),
        ({"State": "COMPLETED"}, known(state="COMPLETED", exit_code=0, **RAN)),
        ({"State": "FAILED", "exit_code": "768"}, known(state="FAILED", exit_code=3, **RAN)),
        ({"State": "FAILED", "exit_code": "3:0"}, known(state="FAILED", exit_code=3, **RAN)),
        ({"State": "FAILED", "exit_code": "9"}, known(state="FAILED", signal=9, **RAN)),
        ({"State": "TIMEOUT", "exit_code": "0:15"}, known(state="TIMEOUT", signal=15, **RAN)),
        ({"State": "TIMEOUT", "exit_code": "0"}, known(state="TIMEOUT", **RAN)),
        ({"State": "FAILED", "exit_code": "65535"}, known(state="FAILED", exit_code=255, **RAN)),
        ({"State": "FAILED", "exit_code": "65536"}, known(state="FAILED", **RAN)),
        ({"State": "FAILED", "exit_code": "4294967294"}, known(state="FAILED", **RAN)),
        ({"exit_code": "9"}, WAITING),
        ({"StartTime": "Unknown", "RestartCnt": "-1"},
         known(start_expected_at_wall_s=None, restarts=None)),
        ({"State": "CANCELLED", "StartTime": "N/A"}, known(state="CANCELLED", start_expected_at_wall_s=None)),
        ({"Comment": "(null)", "Partition": "N/A", "Account": "n/a", "QOS": "None"},
         known(comment="", partition="", account="", qos="")),
        ({"Reason": "RaisedSignal:9(Killed)"}, known(reason="RaisedSignal")),
        ({"Reason": "ReqNodeNotAvail,UnavailableNodes:n1"}, known(reason="ReqNodeNotAvail")),
        ({"Reason": "Nodes required: n1, n2"}, known(reason="Nodes required: n1, n2")),
        ({"Reason": "None"}, known(reason="")),
        ({"tres-alloc": "cpu=4,mem=1G"}, known(gpus=0)),
        ({"tres-alloc": "mem=1G"}, known(gpus=None)),
        ({"tres-alloc": "mem=1G", "tres-per-node": "cpu=1"}, known(gpus=0)),
        ({"tres-alloc": "cpu=1", "tres-per-node": "gres:gpu:a100:3"}, known(gpus=3)),
        ({"tres-alloc": "cpu=1", "tres-per-node": "gpu:1,gpu:a100:2"}, known(gpus=3)),
        ({"tres-alloc": "gres/gpu=1,gres/gpu=2,gres/gpu:a100=9"}, known(gpus=3)),
        *(({"TimeLimit": text}, known(time_limit_s=limit_s)) for text, limit_s in (
            ("30:05", 1805.0), ("1:00:00", 3600.0), ("0:01", 1.0), ("2-00:00:00", 172_800.0), ("UNLIMITED", None), ("5", None),
            ("Partition_Limit", None), ("1-30:05", 88_205.0),
        )),
    ],
)  # fmt: skip
def test_a_row_of_the_queue(row: dict[str, str], job: Job) -> None:
    assert reading.jobs_in_text(text_of(WAITS | row)) == [job]


def test_rows_come_in_their_order_and_none_is_an_answer_too() -> None:
    rows = [{**WAITS, "JobID": str(number)} for number in (3, 1, 2)]
    assert [job.id for job in reading.jobs_in_text(text_of(*rows))] == [3, 1, 2]
    assert reading.jobs_in_text("") == reading.jobs_in_text("\n") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a" + FIELD + "b" + RECORD, "squeue: a line of 2 fields instead of 15: 'a\\x1fb'"),
        ("x" * 90 + RECORD, f"squeue: a line of 1 fields instead of 15: {'x' * 80!r}"),
        (" " + "x" * 90 + " ", f"squeue: its last line has no end: {'x' * 80!r}"),
        (text_of(WAITS | {"JobID": "x"}), "a job without a number"),
        (text_of(WAITS | {"JobID": "9" * 19}), "a job without a number"),
        (text_of(WAITS | {"JobID": "²"}), "a job without a number"),
        (text_of(WAITS | {"NodeList": "n[1"}), "job 17: 'n[1' has brackets that do not match"),
    ],
)
def test_a_queue_that_makes_no_sense_says_where(text: str, says: str) -> None:
    with pytest.raises(ParseError, match=f"^{re.escape(says)}$"):
        reading.jobs_in_text(text)


# --- accounting, nodes, partitions -------------------------------------------------------------------------------------------

PAST = {
    "JobID": "17", "JobName": "a", "Comment": "c", "State": "CANCELLED by 1000", "NodeList": "n1", "Partition": "a100",
    "Account": "lab", "QOS": "night", "ExitCode": "3:0",
    "AllocTRES": "cpu=8,gres/gpu=2", "TimelimitRaw": "240",
}  # fmt: skip
CANCELLED = Job(17, "a", "c", "CANCELLED", "", ("n1",), "a100", "lab", "night", None, 3, None, None, 2, 14_400.0)


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({}, {}),
        ({"JobID": "17+1"}, {}),
        (
            {"NodeList": "None assigned", "Comment": "", "Partition": "Unknown"},
            {"nodes": (), "comment": "", "partition": ""},
        ),
        ({"ExitCode": "0:9"}, {"exit_code": None, "signal": 9}),
        ({"AllocTRES": "", "TimelimitRaw": "UNLIMITED"}, {"gpus": None, "time_limit_s": None}),
        ({"State": "TIMEOUT", "ExitCode": "0:0"}, {"state": "TIMEOUT", "exit_code": None}),
        ({"Account": "(null)", "QOS": "Unknown"}, {"account": "", "qos": ""}),
    ],
)
def test_a_row_of_the_accounting(row: dict[str, str], fields: dict[str, Any]) -> None:
    text = FIELD.join((PAST | row)[name] for name in reading.SACCT_FIELDS) + "\n"
    assert reading.jobs_in_accounting(text) == [replace(CANCELLED, **fields)]
    with pytest.raises(ParseError, match=r"^sacct: its last line has no end: '"):
        reading.jobs_in_accounting(text[:-1])


def sinfo(*rows: tuple[str, ...]) -> str:
    return "".join(FIELD.join(row) + "\n" for row in rows)


def test_a_node_has_one_record_with_all_its_partitions() -> None:
    text = sinfo(
        ("n1", "MIXED*+drain$", "a fan, loud", "main", "gpu:a100:2(S:0-1),gpu:v100:1", "32"),
        ("n2", "idle", "none", "main", "(null)", "x"), ("n1", "idle~", "none", "short", "gpu:4", "16"),
    )  # fmt: skip
    assert reading.nodes_in(text) == [
        Node("n1", ("idle", "powered_down"), "", ("main", "short"), 16, 4),
        Node("n2", ("idle",), "", ("main",), None, None),
    ]
    assert reading.nodes_in(text.partition("\n")[0] + "\n") == [
        Node("n1", ("mixed", "not_responding", "drain", "maint"), "a fan, loud", ("main",), 32, 3)
    ]
    with pytest.raises(ParseError, match=r"^sinfo: a line of 2 fields instead of 6: 'a\\x1fb'$"):
        reading.nodes_in(sinfo(("a", "b")))


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("idle#", ("idle", "powering_up")), ("idle!", ("idle", "powering_down")), ("idle%", ("idle", "powering_down")),
        ("idle@", ("idle", "reboot")), ("idle^", ("idle", "reboot_issued")), ("idle-", ("idle", "planned")),
        ("down*~", ("down", "not_responding", "powered_down")), ("idle+idle", ("idle",)),
    ],
)  # fmt: skip
def test_each_mark_of_a_node_is_a_word(text: str, states: tuple[str, ...]) -> None:
    (node,) = reading.nodes_in(sinfo(("n1", text, "", "main", "", "1")))
    assert node.states == states


def test_a_partition_counts_the_nodes_of_all_its_rows() -> None:
    text = sinfo(
        ("main*", "up", "infinite", "2"), ("short", "down", "1:00:00", "x"), ("main*", "up", "infinite", "3"),
        ("short", "drain", "1:00:00", "4"), ("odd", "up", "soon", "0"), ("odd", "up", "soon", "?"),
    )  # fmt: skip
    assert reading.partitions_in(text) == [
        Partition("main", True, True, None, 5),
        Partition("short", False, False, 3600.0, 4),
        Partition("odd", False, True, None, 0),
    ]
    assert reading.partitions_in(sinfo(("a", "up", "UNLIMITED", "?"))) == [Partition("a", False, True, None, None)]
    with pytest.raises(ParseError, match=r"^sinfo: its last line has no end: 'a'$"):
        reading.partitions_in("a")
