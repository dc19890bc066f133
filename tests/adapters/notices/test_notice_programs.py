"""The programs of deploy/notices/ beside services that answer as AWS, Google and Azure document it, and as they fail."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from fakes import FakeClock
from notices_kit import WALL_S, Metadata

from supervisor.features.notices.adapters.local import Command, Unreadable
from supervisor.features.notices.messages import EndNotice
from supervisor.features.notices.rules import END, RISK

PROGRAMS = Path(__file__).parents[3] / "deploy" / "notices"
AT = "2027-01-15T08:01:00Z"  # a minute after WALL_S


@pytest.fixture
def service():
    made = []

    def make(provider):
        made.append(Metadata(provider))
        return made[-1]

    yield make
    for each in made:
        each.close()


def printed(of: Metadata) -> str | int:
    """What it prints, or the status with which it says that it does not know."""
    env = {**os.environ, "EXTRALIFE_METADATA": of.endpoint}
    done = subprocess.run([PROGRAMS / of.provider], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert bool(done.stderr) is bool(done.returncode), done.stderr
    return done.returncode or done.stdout.removesuffix("\n")


def test_aws_announces_an_end_with_its_time_by_the_services_clock_and_a_risk(service):
    ec2 = service("aws")
    assert printed(ec2) == ""
    ec2.rebalance()
    assert printed(ec2) == "risk aws: rebalance recommendation"
    ec2.skew_s = 5000.0
    for action in ("terminate", "stop", "hibernate"):
        ec2.instance_action(action, 90.0)
        assert printed(ec2) == f"90 aws: spot {action}"
    ec2.instance_action("stop", -5.0)
    assert printed(ec2) == "0 aws: spot stop"
    ec2.token = ""  # IMDSv1: without a token
    assert printed(ec2) == "0 aws: spot stop"
    assert "X-aws-ec2-metadata-token" not in ec2.asked[-1][2]


def test_an_end_counts_even_if_aws_does_not_answer_about_a_risk(service):
    ec2 = service("aws")
    ec2.answers["events/recommendations/rebalance"] = 503, "busy"
    assert printed(ec2) == 1
    ec2.instance_action()
    assert printed(ec2) == "120 aws: spot terminate"


@pytest.mark.parametrize(
    "body", ["", "[]", "null", json.dumps({"action": "dance", "time": AT}), '{"action": "stop", "time": "soon"}', '{"action": "stop"}']
)  # fmt: skip
def test_what_is_no_announcement_of_aws_announces_nothing(service, body):
    ec2 = service("aws")
    ec2.answers["spot/instance-action"] = 200, body
    assert printed(ec2) == 1


@pytest.mark.parametrize(
    ("preempted", "event", "line"),
    [
        ((200, "TRUE\n"), (503, ""), "30 google: preempted"), ((200, "FALSE"), (200, "NONE"), ""),
        ((200, "FALSE"), (200, "MIGRATE_ON_HOST_MAINTENANCE"), ""),
        ((404, ""), (200, "TERMINATE_ON_HOST_MAINTENANCE"), "google: it ends for maintenance of its host"),
        ((200, "MAYBE"), (200, "NONE"), 1), ((503, ""), (200, "NONE"), 1), ((200, "FALSE"), (503, "busy"), 1),
    ],
)  # fmt: skip
def test_google_announces_a_preemption_and_maintenance_that_ends_the_box(service, preempted, event, line):
    gce = service("google")
    gce.answers |= {"preempted": preempted, "maintenance-event": event}
    assert printed(gce) == line
    assert gce.asked[0][2]["Host"] == "metadata.google.internal"


def test_what_does_not_say_that_it_is_googles_is_not_believed(service):
    gce = service("google")
    gce.answers["preempted"] = 200, "TRUE"
    gce.flavor = ""
    assert printed(gce) == 1


def test_azure_announces_events_of_this_machine_alone_and_a_freeze_is_none(service):
    azure = service("azure")
    assert printed(azure) == ""
    others = (
        azure.event(id_="B2", machines=("train-2",)), azure.event("Freeze", id_="C3"), azure.event("Unheard", id_="E5"),
    )  # fmt: skip
    azure.events(*others)
    assert printed(azure) == ""
    azure.events(*others, azure.event("Reboot", 900.0, id_="D4", machines=()), azure.event())
    assert printed(azure) == "30 azure: Preempt (by Platform)", "the earliest"
    azure.events(azure.event("Terminate", None, status="Started") | {"EventSource": "x\x1b"})
    assert printed(azure) == "0 azure: Terminate", "it has begun"
    assert not any(method == "POST" for method, _, _ in azure.asked), "never acknowledged"


@pytest.mark.parametrize("events", [{"Events": 5}, {}, {"Events": ["x"]}, {"Events": [{"EventId": 1}]}])
def test_what_is_no_list_of_events_announces_nothing(service, events):
    azure = service("azure")
    azure.answers["events"] = 200, json.dumps(events)
    assert printed(azure) == 1
    azure.events(azure.event() | {"NotBefore": "soon"})
    assert printed(azure) == 1


@pytest.mark.parametrize("provider", ["aws", "google", "azure"])
@pytest.mark.parametrize("odd", ["500", "302", "garbage", "noise"])
def test_a_service_that_fails_announces_nothing(service, provider, odd):
    bad = service(provider)
    bad.odd = odd
    assert printed(bad) == 1


@pytest.mark.parametrize("odd", ["silent", "drips", "endless"])
def test_a_service_that_does_not_end_is_given_up_by_the_daemon(service, odd):
    bad = service("azure")
    bad.odd = odd
    asked = Command(f"env EXTRALIFE_METADATA={bad.endpoint} {shlex.quote(str(PROGRAMS / 'azure'))}", 1.0, FakeClock())
    with pytest.raises(Unreadable, match=r"^it took longer than 1s$|^it ended with status 1$"):
        asked.read()


def test_the_daemon_hears_what_a_program_says(service):
    ec2, clock = service("aws"), FakeClock(at_s=1000.0, at_wall_s=WALL_S)
    asked = Command(f"env EXTRALIFE_METADATA={ec2.endpoint} {shlex.quote(str(PROGRAMS / 'aws'))}", 60.0, clock)
    assert asked.read() == ()
    ec2.rebalance()
    assert asked.read() == (EndNotice("command risk", "command", RISK, "aws: rebalance recommendation"),)
    ec2.instance_action()
    assert asked.read() == (EndNotice("command end", "command", END, "aws: spot terminate", 1120.0),)
