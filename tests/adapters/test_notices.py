"""Notices that this box ends: metadata services as they are documented and as they fail, a command, a file."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from attempts_kit import eventually, gone
from fakes import FakeClock
from notices_kit import TOKEN, WALL_S, Metadata
from structlog.testing import capture_logs

from supervisor.adapters.host import boot
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File, notice
from supervisor.adapters.notices.metadata import PROVIDERS
from supervisor.adapters.notices.thread import NoticeWatch
from supervisor.adapters.notices.web import Unreadable, Web
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.notices import END, RISK, EndNotice, NoticeSettings
from supervisor.shell.inbox import Inbox


@pytest.fixture
def clock():
    return FakeClock(at_s=1000.0, at_wall_s=WALL_S)


@pytest.fixture
def service():
    made = []

    def make(provider):
        made.append(Metadata(provider))
        return made[-1]

    yield make
    for each in made:
        each.close()


def source(of, clock, timeout_s=60.0):
    return PROVIDERS[of.provider](Web(of.endpoint, timeout_s), clock)


# --- AWS -----------------------------------------------------------------------------------------------------------------


def test_aws_announces_an_end_with_its_time_and_a_risk(service, clock):
    ec2 = service("aws")
    asked = source(ec2, clock)
    assert asked.read() == ()
    ec2.rebalance()
    assert asked.read() == (EndNotice("aws rebalance", "aws", RISK, "rebalance recommendation"),)
    ec2.instance_action()
    assert asked.read()[0] == EndNotice("aws terminate", "aws", END, "spot terminate", 1120.0)
    tokens = [path for method, path, _ in ec2.asked if method == "PUT"]
    assert tokens == ["/latest/api/token"], "one session token for many questions"
    assert {headers["X-aws-ec2-metadata-token"] for method, _, headers in ec2.asked if method == "GET"} == {TOKEN}


@pytest.mark.parametrize("answer", [(503, "busy"), (200, "<html>oops</html>")])
def test_an_end_that_aws_announces_counts_even_if_it_does_not_answer_about_a_risk(service, clock, answer):
    ec2 = service("aws")
    ec2.answers["events/recommendations/rebalance"] = answer
    asked = source(ec2, clock)
    with pytest.raises(Unreadable):
        asked.read()
    ec2.rebalance()
    asked.read()
    ec2.instance_action()
    ec2.answers["events/recommendations/rebalance"] = answer
    assert [each.id for each in asked.read()] == ["aws terminate", "aws rebalance"], "the risk as last read"


def test_the_time_is_right_by_the_services_clock_where_this_boxs_is_not(service, clock):
    ec2 = service("aws")
    ec2.skew_s = 5000.0
    ec2.instance_action("stop", 90.0)
    assert source(ec2, clock).read()[0].until_s == 1090.0


def test_a_token_that_has_run_out_is_renewed(service, clock):
    ec2 = service("aws")
    asked = source(ec2, clock)
    asked.read()
    ec2.token = "another"
    ec2.instance_action("hibernate", 0.0)
    assert [each.id for each in asked.read()] == ["aws hibernate"]


def test_without_tokens_the_older_way_is_taken(service, clock):
    ec2 = service("aws")
    ec2.token = ""
    ec2.instance_action()
    assert [each.id for each in source(ec2, clock).read()] == ["aws terminate"]
    assert not any("X-aws-ec2-metadata-token" in headers for method, _, headers in ec2.asked if method == "GET")


@pytest.mark.parametrize(
    "body", ["", "[]", "null", '{"action": "dance", "time": "2027-01-15T08:00:00Z"}', '{"action": "stop", "time": "soon"}',
             '{"action": "stop"}', '{"action": ["stop"], "time": 5}', "[" * 5000]
)  # fmt: skip
def test_what_is_no_announcement_of_aws_is_not_understood(service, clock, body):
    ec2 = service("aws")
    ec2.answers["spot/instance-action"] = 200, body
    with pytest.raises(Unreadable) as told:
        source(ec2, clock).read()
    assert str(told.value) == f"its answer cannot be parsed: {body[:80]!r}"


def test_a_recommendation_or_a_token_in_another_form_is_not_understood(service, clock):
    ec2 = service("aws")
    ec2.answers["events/recommendations/rebalance"] = 200, "{}"
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(ec2, clock).read()
    ec2.token = "a\x01b"
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(ec2, clock).read()


# --- Google --------------------------------------------------------------------------------------------------------------


def test_google_announces_a_preemption_of_which_thirty_seconds_are_left(service, clock):
    gce = service("google")
    asked = source(gce, clock)
    assert asked.read() == ()
    gce.answers["preempted"] = 200, "TRUE"
    assert asked.read() == (EndNotice("google preempted", "google", END, "preempted", 1030.0),)
    clock.advance(4.0)
    assert asked.read()[0].until_s == 1030.0, "from when it was first seen"
    assert gce.asked[0][2]["Host"] == "metadata.google.internal"
    gce.answers["preempted"] = 200, "FALSE"
    assert asked.read() == ()
    gce.answers["preempted"] = 200, "TRUE"
    assert asked.read()[0].until_s == 1034.0, "another one"


def test_a_preemption_counts_even_if_google_does_not_answer_about_maintenance(service, clock):
    gce = service("google")
    gce.answers["maintenance-event"] = 503, "busy"
    asked = source(gce, clock)
    with pytest.raises(Unreadable, match=r"^it answers /computeMetadata/v1/instance/maintenance-event with status 503$"):
        asked.read()
    gce.answers["preempted"] = 200, "TRUE"
    assert [each.id for each in asked.read()] == ["google preempted"]


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ("NONE", ()), ("MIGRATE_ON_HOST_MAINTENANCE", ()),
        ("TERMINATE_ON_HOST_MAINTENANCE",
         (EndNotice("google maintenance", "google", END, "it ends for maintenance of its host"),)),
    ],
)  # fmt: skip
def test_google_maintenance_counts_if_it_ends_the_box(service, clock, event, found):
    gce = service("google")
    gce.answers["maintenance-event"] = 200, event
    gce.answers["preempted"] = 404, ""
    assert source(gce, clock).read() == found


def test_what_does_not_say_that_it_is_googles_is_not_believed(service, clock):
    gce = service("google")
    gce.answers["preempted"] = 200, "TRUE"
    gce.flavor = ""
    with pytest.raises(Unreadable, match=r"^it does not say that it is Google's \(Metadata-Flavor\)$"):
        source(gce, clock).read()
    gce.flavor = "Google"
    gce.answers["preempted"] = 200, "MAYBE"
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(gce, clock).read()


# --- Azure ---------------------------------------------------------------------------------------------------------------


def test_azure_announces_events_of_this_machine_alone_and_a_freeze_is_none(service, clock):
    azure = service("azure")
    asked = source(azure, clock)
    assert asked.read() == ()
    azure.events(
        azure.event(), azure.event(id_="B2", machines=("train-2",)), azure.event("Freeze", id_="C3"),
        azure.event("Reboot", 900.0, id_="D4", machines=()), azure.event("Unheard", id_="E5"),
    )  # fmt: skip
    assert asked.read() == (
        EndNotice("azure A1", "azure", END, "Preempt (by Platform)", 1030.0),
        EndNotice("azure D4", "azure", END, "Reboot (by Platform)", 1900.0),
    )
    assert not any(method == "POST" for method, _, _ in azure.asked), "never acknowledged"


def test_an_event_of_azure_that_has_begun_is_now(service, clock):
    azure = service("azure")
    azure.events(azure.event("Terminate", None, status="Started"))
    asked = source(azure, clock)
    assert asked.read()[0].until_s == 1000.0
    clock.advance(3.0)
    assert asked.read()[0].until_s == 1000.0


@pytest.mark.parametrize("events", [{"Events": 5}, {}, {"Events": ["x"]}, {"Events": [{"EventType": 1}]}])
def test_what_is_no_list_of_events_is_not_understood(service, clock, events):
    import json

    azure = service("azure")
    azure.answers["events"] = 200, json.dumps(events)
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(azure, clock).read()


def test_an_odd_time_or_a_machine_without_a_name_is_not_understood(service, clock):
    azure = service("azure")
    azure.events(azure.event() | {"NotBefore": "soon"})
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(azure, clock).read()
    azure.answers["name"] = 200, " "
    with pytest.raises(Unreadable, match="cannot be parsed"):
        source(azure, clock).read()


# --- what can be wrong with any of them ------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["aws", "google", "azure"])
@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ("500", r"^it answers /\S+ with status 500$|Metadata-Flavor"),
        ("302", r"^it answers with a redirect \(302\): that is no metadata service$"),
        ("garbage", "^its answer cannot be parsed: "), ("noise", r"^it cannot be asked \(BadStatusLine\)$"),
        ("silent", "^it has not answered within 0.3 s$"), ("drips", "^it has not answered within 0.3 s$"),
    ],
)  # fmt: skip
def test_a_service_that_fails_says_nothing_and_takes_no_longer_than_its_time(service, clock, provider, odd, told):
    bad = service(provider)
    bad.odd = odd
    began_s = time.monotonic()
    with pytest.raises(Unreadable, match=told):
        source(bad, clock, 0.3 if odd in {"silent", "drips"} else 60.0).read()
    assert time.monotonic() - began_s < 25.0, "not the 30 s for which it would have said nothing"


def test_an_endless_answer_is_cut(service, clock):
    azure = service("azure")
    azure.odd = "endless"
    answer = Web(azure.endpoint, 60.0).ask("/")
    assert len(answer.body) == 65_536


def test_where_nobody_listens_that_is_told(clock):
    with socket.socket() as bound:  # and nobody else can meanwhile
        bound.bind(("127.0.0.1", 0))
        asked = PROVIDERS["aws"](Web(f"http://127.0.0.1:{bound.getsockname()[1]}", 60.0), clock)
        with pytest.raises(Unreadable, match="it cannot be asked \\(Connection refused\\)"):
            asked.read()


# --- a line --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "what", "until_s"),
    [
        ("30", END, "an end", 1030.0), ("120.5 evicted", END, "evicted", 1120.5), ("", END, "an end", None),
        ("maintenance at noon", END, "maintenance at noon", None), ("risk the price rises", RISK, "the price rises", None),
        ("risk", RISK, "an end may come", None), ("RISK 30 soon", RISK, "soon", None),
        (f"{int(WALL_S) + 60} gone", END, "gone", 1060.0), ("2027-01-15T08:01:00Z", END, "an end", 1060.0),
        ("2027-01-15T09:01:00+01:00 x", END, "x", 1060.0), ("a\x1b[31mb", END, "a\\x1b[31mb", None),
    ],
)  # fmt: skip
def test_what_a_line_announces(clock, line, kind, what, until_s):
    assert notice(line, "file", clock) == EndNotice(f"file {kind}", "file", kind, what, until_s)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("99999999 s", "99999999 s are more than 30 days"), ("2592000.1", "2592000.1 s are more than 30 days"),
        ("2027-01-15T08:01:00", "'2027-01-15T08:01:00' has no zone: append Z, or an offset such as +01:00"),
        ("2027-15-15T08:01:00Z", "'2027-15-15T08:01:00Z' is no time such as 2026-11-23T08:22:00Z"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_understood(clock, line, told):
    with pytest.raises(Unreadable) as refused:
        notice(line, "file", clock)
    assert str(refused.value) == told


def test_a_large_number_is_a_time_and_thirty_days_are_the_most(clock):
    assert notice("2592000", "file", clock).until_s == 1000.0 + 30 * 86_400
    assert notice("1000000000", "file", clock).until_s == 1000.0 + 1e9 - WALL_S
    assert notice("x" * 201, "file", clock).what == "x" * 200


def test_a_time_of_day_says_nothing_before_the_clock_is_set(clock):
    clock.at_wall_s = 5.0
    assert notice("2027-01-15T08:01:00Z", "file", clock).until_s is None
    assert notice("30", "file", clock).until_s == 1030.0


def test_a_file_counts_from_its_last_change(tmp_path, clock):
    path = tmp_path / "end"
    asked = File(str(path), clock)
    assert asked.read() == ()
    path.touch()
    assert asked.read()[0].until_s is None
    path.write_text("60 evicted\nmore\n")
    os.utime(path, (WALL_S - 10.0, WALL_S - 10.0))
    assert asked.read() == (EndNotice("file end", "file", END, "evicted", 1050.0),)
    os.utime(path, (WALL_S + 9e6, WALL_S + 9e6))
    assert asked.read()[0].until_s == 1060.0, "a change in the future counts from now"
    path.unlink()
    path.mkdir()
    with pytest.raises(Unreadable) as told:
        asked.read()
    assert re.fullmatch(rf"{re.escape(str(path))} cannot be read \(.+\)", str(told.value))


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "is it the end"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' now"


def test_a_command_says_nothing_or_a_line(tmp_path, clock):
    assert Command(script(tmp_path, ":"), 60.0, clock).read() == ()
    asked = Command(script(tmp_path, 'echo 30 "$1"; echo more >&2'), 60.0, clock)
    assert asked.read() == (EndNotice("command end", "command", END, "now", 1030.0),)
    clock.advance(10.0)
    assert asked.read()[0].until_s == 1030.0, "the same line again is the same moment"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo 30; exit 3", "^it ended with status 3$"), ("kill -9 $$", "^it ended with status -9$"),
        ("sleep 30", "^it took longer than 0.5 s$"),
    ],
)  # fmt: skip
def test_a_command_that_fails_cannot_tell(tmp_path, clock, body, told):
    with pytest.raises(Unreadable, match=told):
        Command(script(tmp_path, body), 0.5 if "sleep" in body else 20.0, clock).read()


def test_a_command_that_is_not_there_cannot_tell(clock):
    with pytest.raises(Unreadable, match=r"^/nowhere/x cannot be started \(No such file or directory\)$"):
        Command("/nowhere/x", 5.0, clock).read()


def test_what_a_command_leaves_running_is_ended_and_not_waited_for(tmp_path, clock):
    mark = tmp_path / "pid"
    asked = Command(script(tmp_path, f"sleep 300 & echo $! > '{mark}'; echo 30; yes | head -c 100000"), 20.0, clock)
    assert asked.read()[0].until_s == 1030.0
    assert eventually(lambda: gone(int(mark.read_text())))


# --- which provider --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ""), ({"sys_vendor": "Amazon EC2\n"}, "aws"), ({"sys_vendor": "Google"}, ""),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "google"),
        ({"sys_vendor": "Microsoft Corporation"}, ""),
        ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "QEMU"}, ""),
    ],
)  # fmt: skip
def test_the_provider_is_known_by_the_firmware(tmp_path, files, found):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert detect.provider(BootFiles.of({"EXTRALIFE_BOOT_FILES": str(tmp_path)})) == found


def test_daemons_of_tests_take_this_machine_for_no_provider_s():
    files = BootFiles.of(os.environ)
    assert files.folder is not None
    assert {each.name for each in files.folder.iterdir()} == {"boot_id", "pid1_stat"}
    assert boot.read_boot(files) == boot.read_boot(BootFiles())


# --- the threads -----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, clock, rules, detected="") -> None:
        self.inbox, self.settings = Inbox(), Settings(Paths("/s", "/r"), notice=rules)
        self.watch = NoticeWatch(lambda: self.settings, self.inbox, clock, lambda: detected)
        self.watch.start()

    def takes(self):
        item = self.inbox.take(30.0)
        assert item is not None, "nothing was posted"
        return [each.id for each in item.found], item.errors


@pytest.fixture
def watched(clock):
    made = []

    def make(rules, detected=""):
        made.append(Watched(clock, rules, detected))
        return made[-1]

    yield make
    for each in made:
        each.watch.stop()


def test_what_all_sources_say_is_posted_when_it_changes(service, watched, tmp_path, clock):
    ec2, path = service("aws"), tmp_path / "end"
    found = watched(NoticeSettings(endpoint=ec2.endpoint, file=str(path), every_s=0.05, timeout_s=60.0), "aws")
    assert found.takes() == ([], {})
    ec2.instance_action()
    assert found.takes() == (["aws terminate"], {})
    ec2.skew_s = -1.0  # the answer is of another second now
    aside = tmp_path / "aside"
    aside.write_text("30")
    aside.rename(path)  # whole: an empty file announces an end too, without a time
    assert found.takes() == (["file end", "aws terminate"], {})
    ec2.odd = "500"
    status = "it answers /latest/meta-data/spot/instance-action with status 500"
    assert found.takes() == (["file end"], {"aws": status})
    ec2.odd = ""
    assert found.takes() == (["file end", "aws terminate"], {})


def test_a_source_that_hangs_keeps_no_other_from_being_heard(service, watched, tmp_path):
    ec2, path = service("aws"), tmp_path / "end"
    rules = NoticeSettings("aws", ec2.endpoint, file=str(path), every_s=0.05, timeout_s=0.2)
    ec2.odd = "silent"
    found = watched(rules)
    assert list(found.takes()[1]) == ["aws"]
    path.touch()
    assert found.takes()[0] == ["file end"]


def test_nothing_is_asked_unless_it_is_configured_or_detected(service, watched):
    ec2 = service("aws")
    with capture_logs() as logged:
        assert watched(NoticeSettings(endpoint=ec2.endpoint, every_s=0.05)).takes() == ([], {})
    assert logged == [{"event": "notices", "provider": "none detected", "log_level": "info"}]
    assert watched(NoticeSettings("off", ec2.endpoint, every_s=0.05), "aws").takes() == ([], {})
    assert ec2.asked == []


def test_another_configuration_is_followed(service, watched, tmp_path):
    ec2 = service("aws")
    ec2.instance_action()
    found = watched(NoticeSettings(endpoint=ec2.endpoint, every_s=0.05, timeout_s=60.0), "aws")
    assert found.takes()[0] == ["aws terminate"]
    found.settings = Settings(Paths("/s", "/r"), notice=NoticeSettings("off", every_s=0.05))
    assert found.takes() == ([], {})


def test_a_bug_in_a_source_is_an_error_and_ends_no_thread(service, watched, monkeypatch, tmp_path):
    broken = threading.Event()
    broken.set()
    real = File.read
    monkeypatch.setattr(File, "read", lambda self: 1 / 0 if broken.is_set() else real(self))
    told = "it stopped at a bug (ZeroDivisionError); see the daemon's log"
    with capture_logs() as logged:
        found = watched(NoticeSettings("off", file=str(tmp_path / "end"), every_s=0.05))
        assert found.takes()[1] == {"file": told}
        assert eventually(lambda: len([each for each in logged if "error" in each]) == 1), "once, not at each look"
    assert {"event": "notices_not_read", "source": "file", "exc_info": True, "log_level": "error"} in logged
    assert {"event": "notices_not_read", "source": "file", "error": told, "log_level": "warning"} in logged
    broken.clear()
    assert found.takes() == ([], {})
