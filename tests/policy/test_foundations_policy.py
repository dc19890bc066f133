"""The rule for a file that is not in place any more: restored where that is safe, else trouble with what to do."""

from dataclasses import replace
from math import inf

import pytest

from supervisor.policy.box.foundations import Answer, Finding, Look, judge, may_restart_at_s, over, record_at_s

GONE = Finding("control socket", "/run/x/supervisor.sock", Look.MISSING, restorable=True)


@pytest.mark.parametrize(
    ("finding", "answer", "why"),
    [
        (GONE, Answer.RESTORE, "the control socket /run/x/supervisor.sock was removed: it is restored"),
        (
            replace(GONE, look=Look.REPLACED, detail="by another socket"), Answer.RESTORE,
            "the control socket /run/x/supervisor.sock was replaced (by another socket): it is restored",
        ),
        (
            replace(GONE, look=Look.UNKNOWN, detail="Input/output error"), Answer.TROUBLE,
            "the control socket /run/x/supervisor.sock cannot be checked (Input/output error)",
        ),
        (
            replace(GONE, error="No space left on device", consequence="requests do not arrive"), Answer.TROUBLE,
            (
                "the control socket /run/x/supervisor.sock was removed; restoring it failed (No space left on device) "
                "and is tried again; requests do not arrive"
            ),
        ),
        (
            Finding("state directory", "/s", Look.REPLACED, "it is on another file system", "no worker starts", "mount it"),
            Answer.TROUBLE,
            "the state directory /s was replaced (it is on another file system); no worker starts; mount it",
        ),
        (
            Finding("shim", "/run/x/shim.pyc", Look.DAMAGED, "it has another content", restorable=True), Answer.RESTORE,
            "the shim /run/x/shim.pyc is damaged (it has another content): it is restored",
        ),
    ],
)  # fmt: skip
def test_the_answer_and_its_sentence(finding, answer, why):
    assert judge(finding, may_restart=True) == (answer, why)


LOCK = Finding("lock", "/s/lock", Look.MISSING, restarts=True)


@pytest.mark.parametrize(
    ("finding", "may_restart", "answer", "why"),
    [
        (LOCK, True, Answer.RESTART, ": extralife restarts itself, which restores it; workers run on"),
        (LOCK, False, Answer.TROUBLE, "; extralife has restarted itself 3 times within a minute, and waits for its end"),
        (replace(LOCK, error="busy"), True, Answer.TROUBLE, "; restoring it failed (busy) and is tried again"),
    ],
)
def test_the_daemon_restarts_itself_where_that_helps_and_not_too_often(finding, may_restart, answer, why):
    assert judge(finding, may_restart=may_restart) == (answer, f"the lock /s/lock was removed{why}")


@pytest.mark.parametrize(
    ("restarts_s", "at_s"), [((), -inf), ((0.0, 60.0), -inf), ((0.0, 20.0, 40.0), 60.0), ((0.0, 5.0, 6.0, 62.0), 65.0)]
)
def test_it_restarts_itself_three_times_in_a_minute(restarts_s, at_s):
    assert may_restart_at_s(restarts_s) == at_s


def test_the_end_of_it_says_how_long_it_took():
    assert over("lock", "/s/lock", 2.4) == "the lock /s/lock is in place again, after 2.4s"


@pytest.mark.parametrize(("before_s", "at_s"), [(None, -inf), (100.0, 700.0)])
def test_what_comes_and_goes_is_recorded_once_in_ten_minutes(before_s, at_s):
    assert record_at_s(before_s) == at_s
