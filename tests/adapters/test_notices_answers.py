"""Every answer of a metadata service, a command and a file to the word: what is asked, what is made of it, what is kept."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import eventually
from fakes import FakeClock
from leaks import open_files
from notices_kit import WALL_S, Metadata
from structlog.testing import capture_logs

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect, web
from supervisor.adapters.notices.local import Command, File, notice
from supervisor.adapters.notices.metadata import PROVIDERS, NoticeTimes, Source
from supervisor.adapters.notices.thread import NoticeWatch
from supervisor.adapters.notices.web import Answer, Unreadable, Web
from supervisor.model.inputs import EndNoticesRead
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.notices import END, RISK, EndNotice, NoticeSettings
from supervisor.shell.inbox import Inbox

Asked = list[tuple[str, str, dict[str, str]]]
AT = "2027-01-15T08:01:00Z"  # a minute after WALL_S
TOKEN_HEADER = "X-aws-ec2-metadata-token"
ACTION, REBALANCE = "/latest/meta-data/spot/instance-action", "/latest/meta-data/events/recommendations/rebalance"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at_s=1000.0, at_wall_s=WALL_S)


class Told(Web):
    """A service whose answers are in `told`, by path: a body, or a status."""

    def __init__(self, **told: str | int) -> None:
        super().__init__("http://nowhere", 1.0)
        self.told: dict[str, str | int] = dict(told)
        self.asked: Asked = []
        self.headers: dict[str, str] = {}

    def ask(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        self.asked.append((method, path, dict(headers or {})))
        found = next((self.told[end] for end in self.told if path.partition("?")[0].endswith(end)), 404)
        return Answer(found if isinstance(found, int) else 200, found if isinstance(found, str) else "", self.headers, None)


def read(of: Source) -> tuple[EndNotice, ...] | str:
    try:
        return of.read()
    except Unreadable as error:
        return str(error)


def unparsed(body: str) -> str:
    return f"its answer cannot be parsed: {body!r}"


# --- one request -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[Callable[[bytes], tuple[str, list[bytes]]]]:
    """A server that answers each connection with these bytes: its address, and what it was sent."""
    with ExitStack() as stack:

        def serve(answer: bytes) -> tuple[str, list[bytes]]:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            got: list[bytes] = []

            def run() -> None:
                while True:
                    try:
                        connection, _ = server.accept()
                    except OSError:
                        return
                    with connection:
                        got.append(connection.recv(65536))
                        connection.sendall(answer)

            threading.Thread(target=run, daemon=True).start()
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            return f"http://127.0.0.1:{server.getsockname()[1]}", got

        yield serve


def test_an_answer_as_it_comes(served):
    head = b"HTTP/1.1 404 Not Found\r\nDate: Fri, 15 Jan 2027 08:00:30 GMT\r\nX-Odd: A b\r\n"
    endpoint, got = served(head + b"\r\ncaf\xe9")
    headers = {"date": "Fri, 15 Jan 2027 08:00:30 GMT", "x-odd": "A b"}
    assert Web(f"{endpoint}/base/", 60.0).ask("/a?b=c") == Answer(
        404, "caf\N{REPLACEMENT CHARACTER}", headers, WALL_S + 30.0
    )
    assert Web(f"{endpoint}/X", 60.0).ask("/a", {"X-A": "1"}, "PUT").status == 404
    host = endpoint.removeprefix("http://")
    lines = [f"Host: {host}", "Accept-Encoding: identity"]
    assert [each.decode().split("\r\n") for each in got] == [
        ["GET /base/a?b=c HTTP/1.1", *lines, "Connection: close", "", ""],
        ["PUT /X/a HTTP/1.1", *lines, "Content-Length: 0", "Connection: close", "X-A: 1", "", ""],
    ]


@pytest.mark.parametrize("date", ["", "Date: soon\r\n", "Date: Fri, 15 Jan 99999999999 08:00:30 GMT\r\n"])
def test_a_service_without_a_clock_says_nothing_of_the_time(served, date):
    endpoint, _ = served(f"HTTP/1.1 200 OK\r\n{date}\r\n".encode())
    assert Web(endpoint, 60.0).ask("/").date_wall_s is None


@pytest.mark.parametrize("status", [299, 300, 399, 400])
def test_which_statuses_are_a_redirect(served, status):
    endpoint, _ = served(f"HTTP/1.1 {status} X\r\n\r\n".encode())
    if status in (299, 400):
        assert Web(endpoint, 60.0).ask("/") == Answer(status, "", {}, None)
        return
    with pytest.raises(Unreadable) as told:
        Web(endpoint, 60.0).ask("/")
    assert str(told.value) == f"it answers with a redirect ({status}): that is no metadata service"


def test_without_a_port_it_is_that_of_http(monkeypatch):
    asked: list[object] = []

    def refuses(address: object, timeout_s: float) -> None:
        asked.append((address, timeout_s))
        raise OSError(111, "Connection refused")

    monkeypatch.setattr(web.socket, "create_connection", refuses)
    for endpoint in ("http://169.254.169.254", "http://box:8080", "nothing"):
        with pytest.raises(Unreadable, match=r"^it cannot be asked \(Connection refused\)$"):
            Web(endpoint, 2.0).ask("/")
    assert asked == [(("169.254.169.254", 80), 2.0), (("box", 8080), 2.0), (("", 80), 2.0)]


def test_a_question_that_cannot_be_asked_is_an_error_and_leaves_no_connection_open(served):
    endpoint, _ = served(b"noise\r\n\r\n")
    before = open_files()
    for path, headers, reason in (
        ("/", {}, "BadStatusLine"), ("/a b", {}, "InvalidURL"), ("/", {"X": "a\nb"}, "ValueError"),
    ):  # fmt: skip
        with pytest.raises(Unreadable) as told:
            Web(endpoint, 60.0).ask(path, headers)
        assert str(told.value) == f"it cannot be asked ({reason})"
        assert open_files() <= before


def test_a_service_that_takes_no_question_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreadable, match=r"^it has not answered within 0\.3 s$"):
            Web(endpoint, 0.3).ask("/", {"X": "x" * 20_000_000})


def test_the_time_for_a_request_is_over_when_it_has_passed(served, monkeypatch):
    endpoint, _ = served(b"HTTP/1.1 200 OK\r\n\r\n")
    for passed_s, over in ((59.5, False), (60.0, True)):
        times = [100.0]
        monkeypatch.setattr(
            web,
            "time",
            SimpleNamespace(monotonic=lambda passed_s=passed_s, times=times: times.pop() if times else 100.0 + passed_s),
        )
        if not over:
            assert web._left_s(160.0) == 60.0
            assert web._left_s(160.0) == 0.5
            continue
        with pytest.raises(Unreadable, match=r"^it has not answered within 60 s$"):
            Web(endpoint, 60.0).ask("/")


# --- times of a provider ---------------------------------------------------------------------------------------------------


def test_a_time_counts_by_the_services_clock_or_by_this_box_s_or_is_unknown(clock):
    times = NoticeTimes(clock)
    assert times.at(WALL_S + 90.0, Answer(200, "", {}, WALL_S + 30.0)) == 1060.0
    assert times.at(WALL_S + 90.0, Answer(200, "", {}, None)) == 1090.0
    clock.at_wall_s = 5.0
    assert times.at(WALL_S + 90.0, Answer(200, "", {}, None)) is None
    assert times.at(WALL_S + 90.0, Answer(200, "", {}, WALL_S)) == 1090.0


def test_soon_counts_from_when_it_was_first_seen_until_it_is_forgotten(clock):
    times = NoticeTimes(clock)
    assert (times.soon("a", 30.0), times.soon("b", 0.0)) == (1030.0, 1000.0)
    clock.advance(5.0)
    times.forget_but("b")
    assert (times.soon("a", 30.0), times.soon("b", 0.0)) == (1035.0, 1000.0)


# --- AWS -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
@pytest.mark.parametrize(
    ("at", "until_s"), [(AT, 1060.0), ("2027-01-15T08:01:00", 1060.0), ("2027-01-15T09:01:00+01:00", 1060.0)]
)
def test_each_end_that_aws_announces(clock, action, at, until_s):
    told = Told(**{"instance-action": json.dumps({"action": action, "time": at})})
    assert PROVIDERS["aws"](told, clock).read() == (EndNotice(f"aws {action}", "aws", END, f"spot {action}", until_s),)


def test_a_risk_is_kept_as_long_as_aws_does_not_answer_about_it(clock):
    end = EndNotice("aws stop", "aws", END, "spot stop", 1060.0)
    risk = EndNotice("aws rebalance", "aws", RISK, "rebalance recommendation")
    told = Told(**{"instance-action": json.dumps({"action": "stop", "time": AT}), "rebalance": 503})
    aws = PROVIDERS["aws"](told, clock)
    assert aws.read() == (end,), "none was read yet"
    told.told["rebalance"] = json.dumps({"noticeTime": AT})
    assert aws.read() == (end, risk)
    told.told["rebalance"] = json.dumps({"noticeTime": "soon"})
    assert aws.read() == (end, risk)
    told.told["rebalance"] = 404
    assert aws.read() == (end,)


@pytest.mark.parametrize(
    ("path", "answer", "error"),
    [
        ("instance-action", 500, f"it answers {ACTION} with status 500"), ("rebalance", 201, f"it answers {REBALANCE} with status 201"),
        ("instance-action", 401, f"it answers {ACTION} with status 401"), ("rebalance", "{}", unparsed("{}")),
        ("rebalance", '{"noticeTime": 5}', unparsed('{"noticeTime": 5}')), ("rebalance", "[1]", unparsed("[1]")),
        ("token", "", unparsed("")), ("token", "a b\x7f", unparsed("a b\x7f")), ("token", "\xe9", unparsed("\xe9")),
        ("token", "x" * 1025, unparsed("x" * 80)), ("instance-action", "{", unparsed("{")),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_aws(clock, path, answer, error):
    assert read(PROVIDERS["aws"](Told(**{path: answer}), clock)) == error


def test_a_session_of_aws_lasts_half_its_time_and_ends_early_when_it_is_refused(clock):
    clock.at_s = 0.0  # journal time may begin there
    told = Told(token="x" * 1024)
    aws = PROVIDERS["aws"](told, clock)
    ask = ("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
    looks = [("GET", path, {TOKEN_HEADER: "x" * 1024}) for path in (ACTION, REBALANCE)]
    for advance_s, wanted in ((0.0, [ask, *looks]), (10_799.0, looks), (1.0, [ask, *looks])):
        clock.advance(advance_s)
        told.asked.clear()
        assert aws.read() == ()
        assert told.asked == wanted
    told.told["rebalance"] = 401
    told.asked.clear()
    assert read(aws) == f"it answers {REBALANCE} with status 401"
    assert told.asked == [*looks, ask, looks[1]]


def test_without_sessions_aws_is_asked_for_one_as_seldom(clock):
    told = Told()
    aws = PROVIDERS["aws"](told, clock)
    ask = ("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
    for _ in range(2):
        assert aws.read() == ()
    assert told.asked == [ask, *[("GET", path, {}) for path in (ACTION, REBALANCE)] * 2]


# --- Google ----------------------------------------------------------------------------------------------------------------

GOOGLE = "/computeMetadata/v1/instance/"


@pytest.mark.parametrize(
    ("preempted", "event", "found"),
    [
        ("TRUE\n", "NONE", (EndNotice("google preempted", "google", END, "preempted", 1030.0),)),
        ("FALSE\n", " TERMINATE_ON_HOST_MAINTENANCE\n",
         (EndNotice("google maintenance", "google", END, "it ends for maintenance of its host"),)),
        ("FALSE", "ON_TERMINATE", ()), (404, 404, ()), (404, "TERMINATE",
         (EndNotice("google maintenance", "google", END, "it ends for maintenance of its host"),)),
        ("MAYBE", "NONE", unparsed("MAYBE")), (503, "NONE", f"it answers {GOOGLE}preempted with status 503"),
        ("FALSE", 201, f"it answers {GOOGLE}maintenance-event with status 201"),
    ],
)  # fmt: skip
def test_what_google_announces(clock, preempted, event, found):
    told = Told(preempted=preempted, **{"maintenance-event": event})
    told.headers = {"metadata-flavor": "Google"}
    assert read(PROVIDERS["google"](told, clock)) == found
    headers = {"Metadata-Flavor": "Google", "Host": "metadata.google.internal"}
    asked = [("GET", f"{GOOGLE}{key}", headers) for key in ("preempted", "maintenance-event")]
    assert told.asked == asked[: len(told.asked)]
    told.headers = {"metadata-flavor": "google"}
    assert read(PROVIDERS["google"](told, clock)) == "it does not say that it is Google's (Metadata-Flavor)"


# --- Azure -----------------------------------------------------------------------------------------------------------------


def azure(*events: object, name: str | int = " Train-1\n") -> Told:
    return Told(name=name, scheduledevents=json.dumps({"Events": events}))


EVENT = {"EventType": "Reboot", "EventId": "A1", "NotBefore": "Fri, 15 Jan 2027 08:01:00 GMT"}


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ({}, ("azure A1", "Reboot", 1060.0)), ({"EventSource": "User"}, ("azure A1", "Reboot (by User)", 1060.0)),
        ({"EventSource": "Platform"}, ("azure A1", "Reboot (by Platform)", 1060.0)),
        ({"EventSource": "x\x1b"}, ("azure A1", "Reboot", 1060.0)), ({"EventType": "Preempt"}, ("azure A1", "Preempt", 1060.0)),
        ({"EventType": "Terminate"}, ("azure A1", "Terminate", 1060.0)), ({"EventType": "Redeploy"}, ("azure A1", "Redeploy", 1060.0)),
        ({"EventId": "x" * 300}, ("azure " + "x" * 194, "Reboot", 1060.0)), ({"NotBefore": None}, ("azure A1", "Reboot", 1000.0)),
        ({"Resources": ["other", "TRAIN-1"]}, ("azure A1", "Reboot", 1060.0)), ({"Resources": []}, ("azure A1", "Reboot", 1060.0)),
        ({"Resources": ["other"]}, None), ({"EventType": "Freeze"}, None), ({"EventType": "Freeze", "Resources": ["other"]}, None),
    ],
)  # fmt: skip
def test_each_event_of_azure(clock, event, found):
    notices = PROVIDERS["azure"](azure(EVENT | event), clock).read()
    assert notices == (() if found is None else (EndNotice(found[0], "azure", END, found[1], found[2]),))


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (azure(name=""), unparsed("")), (azure(name=503), "it answers /metadata/instance/compute/name with status 503"),
        (azure(EVENT | {"Resources": "Train-1"}), None), (azure(EVENT | {"EventType": 5}), None), (azure("x"), None),
        (azure(EVENT, "x"), None), (azure(EVENT | {"NotBefore": "soon"}), None),
        (Told(name="a", scheduledevents=404), "it answers /metadata/scheduledevents with status 404"),
        (Told(name="a", scheduledevents="{}"), unparsed("{}")),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_azure(clock, told, error):
    assert read(PROVIDERS["azure"](told, clock)) == (error or unparsed(str(told.told["scheduledevents"])[:80]))


def test_azure_is_asked_once_for_its_name_and_forgets_what_it_no_longer_announces(clock):
    begun = EVENT | {"NotBefore": ""}
    told = azure(begun, begun | {"EventId": "B2"})
    asked = PROVIDERS["azure"](told, clock)
    assert [each.until_s for each in asked.read()] == [1000.0, 1000.0]
    clock.advance(5.0)
    told.told |= azure(begun).told
    assert [each.until_s for each in asked.read()] == [1000.0]
    told.told |= azure(begun, begun | {"EventId": "B2"}).told
    assert [each.until_s for each in asked.read()] == [1000.0, 1005.0]
    assert told.asked == [("GET", path, {"Metadata": "true"}) for path in (NAME, EVENTS, EVENTS, EVENTS)]


# --- a line, a file, a command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  30   evicted ", (END, "evicted", 1030.0)), (" risk   30  soon ", (RISK, "soon", None)),
        ("30s evicted", (END, "30s evicted", None)), ("Risk", (RISK, "an end may come", None)),
        ("0", (END, "an end", 1000.0)), ("0.5 x", (END, "x", 1000.5)), ("-5", (END, "-5", None)),
        ("risk 2592001", "2592001 s are more than 30 days"), ("٣٠ x", (END, "٣٠ x", None)),
        ("2027-01-15T" + "9" * 60, f"{'2027-01-15T' + '9' * 60!r:.40} is no time such as 2026-11-23T08:22:00Z"),
        ("2027-01-15T08:01:00.123456", "'2027-01-15T08:01:00.123456' has no zone: append Z, or an offset such as +01:00"),
        ("risk " + "y" * 201, (RISK, "y" * 200, None)),
    ],
)  # fmt: skip
def test_each_part_of_a_line(clock, line, found):
    try:
        told: object = notice(line, "command", clock)
    except Unreadable as error:
        told = str(error)
    assert told == (found if isinstance(found, str) else EndNotice(f"command {found[0]}", "command", *found))


def test_a_file_is_closed_and_only_its_first_line_and_four_kilobytes_count(tmp_path, clock):
    path = tmp_path / "end"
    asked = File(str(path), clock)
    before = open_files()
    path.write_bytes(b"caf\xe9\nmore")
    assert asked.read() == (EndNotice("file end", "file", END, "caf\N{REPLACEMENT CHARACTER}"),)
    path.write_bytes(b" " * 4095 + b"ab")
    assert asked.read() == (EndNotice("file end", "file", END, "a"),)
    path.unlink()
    path.mkdir()
    assert read(asked) == f"{path} cannot be read (a directory, not a regular file)"
    path.rmdir()
    path.symlink_to("/etc/hostname")
    assert read(asked) == f"{path} cannot be read ({os.strerror(40)})"
    assert open_files() <= before


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "end?"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' 'a b'"


def test_a_command_runs_by_itself_and_its_words_are_those_of_a_shell(tmp_path, clock, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("MINE", "kept")
    out = tmp_path / "out"
    body = f"""exec 3> '{out}'
{{ pwd; readlink /proc/$$/fd/0; readlink /proc/$$/fd/2; cut -d ' ' -f 5 /proc/$$/stat; echo $$; echo "$#$1"; env; }} >&3
echo late >&2; printf '\\n 3'; printf '0 x \\nmore'"""
    asked = Command(script(tmp_path, body), 60.0, clock)
    before = open_files()
    assert asked.read() == (EndNotice("command end", "command", END, "x", 1030.0),)
    assert open_files() <= before
    directory, stdin, stderr, group, pid, words, *env = out.read_text().splitlines()
    assert (directory, stdin, stderr, words) == ("/", "/dev/null", "/dev/null", "1a b")
    assert group == pid, "it leads a process group, which is ended with it"
    assert "MINE=kept" in env
    assert not any(each.startswith("NOTIFY_SOCKET=") for each in env)
    (mark,) = [each for each in env if each.startswith("EXTRALIFE_CHILD_OF=")] if env else [""]
    assert mark.endswith(f":{os.getsid(0)}"), "the daemon's next start ends it if it is left behind"


def test_the_same_line_of_a_command_is_a_new_moment_only_after_another(tmp_path, clock):
    said = tmp_path / "said"
    asked = Command(script(tmp_path, f"cat '{said}'"), 60.0, clock)
    for text, until_s in (
        ("30\n", 1030.0),
        ("30 x\n", 1031.0),
        ("30\n", 1032.0),
        ("30\n\nmore", 1032.0),
        ("", None),
        ("30", 1035.0),
    ):
        said.write_text(text)
        assert [each.until_s for each in asked.read()] == ([] if until_s is None else [until_s])
        clock.advance(1.0)


@pytest.mark.parametrize(
    ("body", "timeout_s", "found"),
    [
        ("exec >&-; exit 0", 60.0, ()), ("exec >&-; exit 3", 60.0, "it ended with status 3"),
        ("printf 'caf\\351'", 60.0, (EndNotice("command end", "command", END, "caf\N{REPLACEMENT CHARACTER}"),)),
        ("echo 30; exec sleep 300", 0.25, "it took longer than 0.25 s"),
        ("head -c 4095 /dev/zero | tr '\\0' '\\n'; echo ab", 60.0, (EndNotice("command end", "command", END, "a"),)),
    ],
)  # fmt: skip
def test_what_is_made_of_a_command(tmp_path, clock, body, timeout_s, found):
    before = open_files()
    assert read(Command(script(tmp_path, body), timeout_s, clock)) == found
    assert open_files() <= before


# --- which provider --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"product_name": b"Google Compute Engine"}, ""), ({"sys_vendor": b"Google\xff"}, ""),
        ({"sys_vendor": b"Google\n", "product_name": b" Google Compute Engine \n"}, "google"),
        ({"sys_vendor": b"Google", "chassis_asset_tag": b"7783-7084-3265-9085-8269-3286-77\n"}, "azure"),
        ({"sys_vendor": b" " * 246 + b"Amazon EC2" + b"x"}, "aws"), ({"sys_vendor": b"amazon ec2"}, ""),
    ],
)  # fmt: skip
def test_the_firmware_s_words(tmp_path, files, found):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert detect.provider(BootFiles(folder=tmp_path)) == found


# --- the threads -----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, clock: FakeClock, rules: NoticeSettings, detected: str = "") -> None:
        self.inbox, self.settings = Inbox(), Settings(Paths("/s", "/r"), notice=rules)
        self.detected: list[str] = []
        self.watch = NoticeWatch(lambda: self.settings, self.inbox, clock, lambda: self.detects(detected))

    def detects(self, found: str) -> str:
        self.detected.append(found)
        return found

    def takes(self) -> EndNoticesRead:
        item = self.inbox.take(30.0)
        assert isinstance(item, EndNoticesRead)
        return item


@pytest.fixture
def watched(clock: FakeClock) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []
    assert eventually(nobody_watches), "what an earlier test began would be in the log of this one"

    def make(rules: NoticeSettings, detected: str = "") -> Watched:
        made.append(Watched(clock, rules, detected))
        made[-1].watch.start()
        return made[-1]

    yield make
    for each in made:
        each.watch.stop()
    assert eventually(nobody_watches)


def nobody_watches() -> bool:
    return not any(each.name.startswith("notices-") for each in threading.enumerate())


def test_all_that_is_posted_is_in_the_order_of_the_sources(watched, tmp_path):
    service, path = Metadata("azure"), tmp_path / "end"
    try:
        service.events(service.event())
        path.write_text("risk it may")
        rules = NoticeSettings(
            "azure", service.endpoint, script(tmp_path, "echo 30 of the command"), str(path), every_s=0.05, timeout_s=60.0
        )
        with capture_logs() as logged:
            found = watched(rules)
            first = found.takes()
        threads = {each.name: each.daemon for each in threading.enumerate() if each.name.startswith("notices-")}
        assert threads == {"notices-provider": True, "notices-command": True, "notices-file": True}
    finally:
        service.close()
    at_once = (
        EndNotice("command end", "command", END, "of the command", 1030.0), EndNotice("file risk", "file", RISK, "it may"),
        EndNotice("azure A1", "azure", END, "Preempt (by Platform)", 1030.0),
    )  # fmt: skip
    assert first == EndNoticesRead(1000.0, at_once, {})
    assert (found.detected, logged) == ([], []), "the provider is configured"


def test_a_provider_is_detected_once_and_logged(watched, tmp_path, clock):
    service = Metadata("google")
    try:
        with capture_logs() as logged:
            found = watched(NoticeSettings(endpoint=service.endpoint, every_s=0.05, timeout_s=60.0), "google")
            assert found.takes() == EndNoticesRead(1000.0, (), {})
            found.settings = Settings(Paths("/s", "/r"), notice=NoticeSettings(
                endpoint=service.endpoint, file=str(tmp_path / "end"), every_s=0.05, timeout_s=60.0
            ))  # fmt: skip
            (tmp_path / "end").touch()
            assert found.takes() == EndNoticesRead(1000.0, (EndNotice("file end", "file", END, "an end"),), {})
    finally:
        service.close()
    assert found.detected == ["google"]
    assert logged == [{"event": "notices", "provider": "google", "log_level": "info"}]


def test_an_error_is_printable_and_is_logged_again_when_it_is_another(watched, tmp_path):
    path = tmp_path / "end\x1b"
    path.mkdir()
    with capture_logs() as logged:
        found = watched(NoticeSettings("off", file=str(path), every_s=0.05))
        first = f"{tmp_path}/end\\x1b cannot be read (a directory, not a regular file)"
        assert found.takes() == EndNoticesRead(1000.0, (), {"file": first})
        aside = tmp_path / "aside"
        aside.symlink_to("/etc/hostname")
        path.rmdir()
        aside.rename(path)
        second = f"{tmp_path}/end\\x1b cannot be read ({os.strerror(40)})"
        while (item := found.takes()).errors != {"file": second}:
            assert item == EndNoticesRead(1000.0, (), {}), "between the two there is no file"
        assert eventually(lambda: any(second in each.values() for each in logged))
    assert [each for each in logged if each.get("error") in (first, second)] == [
        {"event": "notices_not_read", "source": "file", "error": told, "log_level": "warning"} for told in (first, second)
    ]


def test_a_time_that_moves_by_more_than_some_seconds_is_posted(watched, tmp_path):
    path = tmp_path / "end"

    def says(left_s: int) -> None:
        aside = tmp_path / "aside"
        aside.write_text(str(left_s))
        os.utime(aside, (WALL_S, WALL_S))
        aside.rename(path)

    says(30)
    found = watched(NoticeSettings("off", file=str(path), every_s=0.02))
    assert [each.until_s for each in found.takes().found] == [1030.0]
    says(60)
    assert [each.until_s for each in found.takes().found] == [1060.0]
