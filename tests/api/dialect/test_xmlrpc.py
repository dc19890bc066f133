"""Supervisor's XML-RPC interface on a real server, asked as tools written for Supervisor ask."""

import os
import pwd
import re
import time
import xmlrpc.client

import pytest
from fake_backend import FakeBackend, known_to, program
from rpc_client import close_all, fault_of, proxy
from serving import Connection, call, raw, served, until
from structlog.testing import capture_logs
from tools import PATIENCE

from supervisor.api.limits import MOST_BODY_BYTES
from supervisor.features.dialect.describe import STATES, info, state_of
from supervisor.features.dialect.http import MOST_FOLLOWERS, TABLE
from supervisor.features.dialect.logs import window
from supervisor.features.dialect.programs import start_code
from supervisor.model.inputs import Verb
from supervisor.model.lifecycle import Phase

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def connections_are_closed():
    yield
    close_all()


@pytest.fixture
def rpc(api):
    return proxy(api)


# --- what it is ----------------------------------------------------------------------------------------------------------


def of(server):
    """The XML-RPC pages of a server."""
    posts = {path: handler for each in server._api._added for path, handler in each.post.items()}
    return posts["/RPC2"].__self__


def test_every_method_explains_itself(rpc):
    methods = rpc.system.listMethods()
    assert methods == sorted(TABLE)
    assert len([name for name in methods if name.startswith("supervisor.")]) >= 36
    for name in methods:
        signature = rpc.system.methodSignature(name)
        told = rpc.system.methodHelp(name)
        assert f"@return {signature[0]} result" in told
        assert re.findall(r"@param (\w+)", told) == signature[1:], name
    assert rpc.system.methodSignature("supervisor.signalProcess") == ["boolean", "string", "string"]
    assert fault_of(rpc.system.methodHelp, "supervisor.nothing") == (4, "SIGNATURE_UNSUPPORTED")
    assert fault_of(rpc.system.methodSignature, "x") == (4, "SIGNATURE_UNSUPPORTED")


def test_calls_that_are_none(rpc):
    for name in ("supervisor.nothing", "nothing", "supervisor.__class__.mro", "supervisor._update", "system.table.get"):
        assert fault_of(getattr(rpc, name)) == (1, "UNKNOWN_METHOD")
    assert fault_of(rpc.supervisor.getPID, 1) == (2, "INCORRECT_PARAMETERS")
    assert fault_of(rpc.supervisor.startProcess) == (2, "INCORRECT_PARAMETERS")
    for wrong, kind in ((1, "int"), (True, "bool"), (["Pong"], "list"), ({}, "dict")):
        told = fault_of(rpc.supervisor.getProcessInfo, wrong)
        assert told == (2, f"INCORRECT_PARAMETERS: string expected, not {kind}")
    assert fault_of(rpc.supervisor.readLog, True, 0) == (2, "INCORRECT_PARAMETERS: int expected, not bool")
    told = fault_of(rpc.supervisor.signalProcess, "Pong", False)
    assert told == (2, "INCORRECT_PARAMETERS: signal expected, not bool")
    assert fault_of(rpc.system.multicall, "x") == (2, "INCORRECT_PARAMETERS: array expected, not str")


def test_several_calls_in_one(rpc, backend):
    told = rpc.system.multicall(
        [
            {"methodName": "supervisor.getPID", "params": []},
            {"methodName": "supervisor.getPID"},
            {"methodName": "supervisor.stopProcess", "params": ["nobody"]},
            {"methodName": "system.multicall", "params": [[]]},
            {"params": []},
            {"methodName": "supervisor.getPID", "params": "x"},
            "x",
            {"methodName": "supervisor.stopProcess", "params": ["Pong"]},
        ]
    )
    assert told[:2] == [1234, 1234], "bare, as Supervisor's"
    assert told[2] == {"faultCode": 10, "faultString": "BAD_NAME: nobody"}
    assert told[3:7] == [
        {"faultCode": 2, "faultString": f"INCORRECT_PARAMETERS: {text}"}
        for text in ("Recursive system.multicall forbidden", "No methodName", "params must be an array", "No methodName")
    ]
    assert told[7] is True
    assert backend.programs["Pong"]["phase"] == "STOPPED"


# --- what is known of programs ---------------------------------------------------------------------------------------------


def test_a_running_program_is_described_as_supervisors_and_goes_on_with_ours(rpc, backend):
    told = rpc.supervisor.getProcessInfo("Pong:Pong")
    assert re.match(r"pid 4242, uptime 0:02:35, step 12.3M, ", told["description"])
    backend.change("Pong", uptime_s=2 * 86400 + 7384.0)
    assert rpc.supervisor.getProcessInfo("Pong")["description"].startswith("pid 4242, uptime 2 days, 2:03:04, ")
    for name in ("nobody", "Pong:*", "Pong:Breakout", ":"):
        assert fault_of(rpc.supervisor.getProcessInfo, name) == (10, f"BAD_NAME: {name}")


def test_every_phase_has_one_of_supervisors_states(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    snapshot = FakeBackend().snapshot()
    for phase in Phase:
        view = program("P", phase.value, why="because", ended_wall_s=1_763_700_000.0, exit_code=3, pid=None)
        told = info(view, snapshot)
        assert told["statename"] in STATES
        assert told["statename"] != "UNKNOWN", f"{phase} has no state of Supervisor's yet: describe._STATE_OF"
        assert "because" in told["description"]
        assert told["exitstatus"] == 3
    ended = program("P", "DONE", why="reached its target", ended_wall_s=1_763_700_000.0, exit_code=0)
    assert info(ended, snapshot)["description"] == "Nov 21 04:40 AM, DONE: reached its target"
    assert info(known_to(ended, exit_code=None), snapshot)["exitstatus"] == -1, "a signal"
    missing = program("P", "FATAL", spawn_error="no such file: 'x'", autostart=False, why="no such file: 'x'")
    assert info(missing, snapshot)["description"] == "Not started, FATAL: no such file: 'x'"
    assert info(known_to(missing, autostart=True), snapshot)["statename"] == "FATAL"
    failed = info(program("P", "EXITED", why="exit code 7", ended_wall_s=1_763_700_000.0, exit_code=7), snapshot)
    assert (failed["statename"], failed["exitstatus"], failed["spawnerr"]) == ("EXITED", 7, "")
    assert failed["description"] == "Nov 21 04:40 AM, exit status 7; not expected: exit code 7"
    waiting = program("P", "QUEUED", attempt=0)
    assert info(waiting, snapshot)["description"] == "Not started, QUEUED"
    assert info(waiting, snapshot)["exitstatus"] == 0
    failed = info(program("P", "BACKOFF", why="exit code 1", retry_in_s=42.0, slow_retry=True), snapshot)
    assert (failed["spawnerr"], failed["description"]) == ("exit code 1", "BACKOFF, exit code 1, slow retry in 42s")
    assert (failed["state"], failed["statename"]) == (200, "FATAL"), "monitoring has to see an open breaker"
    soon = info(program("P", "BACKOFF", why="exit code 1", retry_in_s=4.0), snapshot)
    assert (soon["statename"], soon["description"]) == ("BACKOFF", "exit code 1, retry in 4s")
    trial = program("P", "STARTING", slow_retry=True)
    assert state_of(trial) == "STARTING", "the trial itself"
    assert info(program("P", "FATAL"), snapshot)["description"] == 'unknown error (try "tail P")'
    assert info(program("P", "FATAL", spawn_error="no such file: 'x'"), snapshot)["description"] == "no such file: 'x'"
    starting = program("P", "STARTING", pid=7, worker_phase="importing")
    assert info(starting, snapshot)["description"] == "importing, pid 7"
    assert info(program("P", "STOPPING", pid=None), snapshot)["description"] == "stopping"
    assert state_of(program("P", "LATER")) == "UNKNOWN"


# --- start, stop, signal ---------------------------------------------------------------------------------------------------


def test_all_of_them_in_one_request(rpc, backend):
    backend.add(program("Done", "DONE"), program("Retry", "BACKOFF"), program("Down", "STOPPED"))
    backend.do = lambda verb, name: (name, 80, verb.value)
    told = rpc.supervisor.stopAllProcesses()
    assert told == [
        {"name": name, "group": name, "status": 80, "description": "OK"} for name in ("Breakout", "Pong", "Retry")
    ], "what waits for a slot would start instead"
    assert len(backend.asked) == 1
    backend.change("Retry", priority=1)
    assert [each["name"] for each in rpc.supervisor.stopAllProcesses()] == ["Retry", "Breakout", "Pong"]
    assert backend.asked[1][:2] == (Verb.STOP, ("Retry", "Breakout", "Pong"))
    backend.asked.clear()
    rpc.supervisor.startAllProcesses(False)
    assert backend.asked[0][:2] == (Verb.START, ("Breakout", "Done", "Down"))
    backend.asked.clear()
    assert [result["name"] for result in rpc.supervisor.signalAllProcesses("HUP")] == ["Pong"]
    backend.programs.clear()
    for method in ("stopAllProcesses", "startAllProcesses", "clearAllProcessLogs"):
        assert getattr(rpc.supervisor, method)() == []
    assert rpc.supervisor.signalAllProcesses("HUP") == []


def test_a_start_that_fails_is_told_in_codes_that_the_stock_client_knows(rpc, backend):
    known = {10, 20, 21, 40, 50, 60, 80}  # any other has its `start` raise ValueError
    cases = {
        "no such file: '/x'": 20, "no such command: 'x' is not in PATH (/bin)": 20,
        "cannot start 'x': permission denied, 'x' is not an executable file for this user": 21,
        "cannot start 'x': it is neither a program nor a script with a #! line": 21, "cannot fork: no memory": 50,
    }  # fmt: skip
    for error, code in cases.items():

        def do(_, name, error=error):
            backend.change(name, phase="FATAL", attempt=(backend.programs[name]["attempt"] or 0) + 1, spawn_error=error)
            return name, 80, "started"

        backend.do = do
        assert fault_of(rpc.supervisor.startProcess, "Breakout")[0] == code, error
        assert code in known
    assert rpc.supervisor.startProcessGroup("Breakout")[0]["description"].startswith("SPAWN_ERROR: Breakout: ")
    assert start_code(70, "not running: it was stopped meanwhile") == 40
    assert start_code(40, "abnormal termination: exit code 3") == 50, "Supervisor's word for an end within startsecs"


def test_too_many_waiting_requests_get_a_fault(socket_path, backend, monkeypatch):
    monkeypatch.setattr("supervisor.api.app.MOST_ASKS", 0)
    with served(backend, socket_path) as server:
        code, text = fault_of(proxy(socket_path).supervisor.stopProcess, "Pong")
        assert (code, text) == (30, "FAILED: 0 requests are waiting already: try again")
        with capture_logs() as logged:
            assert proxy(socket_path).supervisor.stopProcess("Pong", False) is True, "nobody hears of it but the log"
            until(lambda: not of(server)._later, "the request to be given up")
        error = "0 requests are waiting already: try again"
        assert logged == [{"event": "request_failed_unheard", "error": error, "log_level": "warning"}]
        assert backend.asked == []
        close_all()


def test_while_the_daemon_ends_it_is_only_read(rpc, backend):
    backend.header = known_to(backend.header, state="stopping")
    assert rpc.supervisor.getState() == {"statecode": -1, "statename": "SHUTDOWN"}
    assert rpc.supervisor.getAllProcessInfo()
    for method, args in (
        ("startProcess", ("Pong",)), ("stopProcess", ("Pong",)), ("signalProcess", ("Pong", "HUP")), ("shutdown", ()),
        ("restart", ()), ("reloadConfig", ()), ("clearAllProcessLogs", ()), ("addProcessGroup", ("x",)), ("clearLog", ()),
    ):  # fmt: skip
        assert fault_of(getattr(rpc.supervisor, method), *args) == (6, "SHUTDOWN_STATE")
    assert backend.asked == []
    backend.header = known_to(backend.header, state="reloading")
    assert rpc.supervisor.getState()["statename"] == "RESTARTING"


def test_standard_input(rpc, backend):
    assert fault_of(rpc.supervisor.sendProcessStdin, "Pong", "x") == (20, "NO_FILE: Pong")
    assert fault_of(rpc.supervisor.sendProcessStdin, "Breakout", "x") == (70, "NOT_RUNNING: Breakout")
    assert fault_of(rpc.supervisor.sendProcessStdin, "nobody", "x") == (10, "BAD_NAME: nobody")
    backend.input = []
    assert rpc.supervisor.sendProcessStdin("Pong:Pong", "größer\n") is True
    assert backend.input == [("Pong", "größer\n".encode())]


# --- the configuration -----------------------------------------------------------------------------------------------------


def test_what_changed_as_the_stock_update_walks_through_it(rpc, backend):
    backend.changes = {
        "added": ["new"], "changed": ["Pong"], "removed": ["Breakout"], "live": ["Qbert"], "sections": ["[level]"],
    }  # fmt: skip
    [[added, changed, removed]] = rpc.supervisor.reloadConfig()
    assert (added, changed, removed) == (["new", "[level]", "[program.Qbert]"], ["Pong"], ["Breakout"])
    rpc.supervisor.stopProcessGroup("Breakout")
    assert rpc.supervisor.removeProcessGroup("Breakout") is True
    assert backend.removed == [("Breakout", ME, os.getuid())]
    assert rpc.supervisor.stopProcessGroup("[level]") == []
    for name in added:
        assert rpc.supervisor.addProcessGroup(name) is True
    assert [names for names, _ in backend.updates] == [("new",), ("[level]",), ("Qbert",)]


def test_a_configuration_that_cannot_be_used_is_a_fault(rpc, backend):
    backend.changes = {"errors": ["line 1: not TOML", "line 2: neither"]}
    for method, args in (("reloadConfig", ()), ("addProcessGroup", ("new",))):
        assert fault_of(getattr(rpc.supervisor, method), *args) == (92, "CANT_REREAD: line 1: not TOML; line 2: neither")


def test_a_change_that_is_refused_is_no_success(rpc, backend, monkeypatch):
    monkeypatch.setattr(backend, "remove", lambda *_: ("", 30, "the disk is full"))
    assert fault_of(rpc.supervisor.removeProcessGroup, "Breakout") == (30, "FAILED: the disk is full")
    backend.changes["added"] = ["new"]
    monkeypatch.setattr(backend, "update", lambda *_, **__: {"errors": ["edited meanwhile"]})
    assert fault_of(rpc.supervisor.addProcessGroup, "new") == (92, "CANT_REREAD: edited meanwhile")


def test_configured_programs(rpc, backend):
    row = {
        "name": "Pong", "in_use": True, "argv": ["python", "a b"], "directory": "", "priority": 5, "autostart": False,
        "done_codes": [0, 3], "stop_grace_s": 20.0, "start_timeout_s": None, "window_deaths": 8, "stdout_log": "/o",
        "stderr_log": "/e", "log_max_bytes": 50, "log_backups": 3, "socket": "/s", "start_s": None, "start_retries": None,
        "stop_signal": "INT", "redirect_stderr": False, "user": "",
    }  # fmt: skip
    own = {"start_s": 2.0, "start_retries": 4, "redirect_stderr": True, "stderr_log": None, "user": "www"}
    backend.file = [row, {**row, **own, "name": "Asterix", "in_use": False}]
    told = rpc.supervisor.getAllConfigInfo()
    assert [found["name"] for found in told] == ["Asterix", "Pong"]
    assert len(told[1]) == 29, "Supervisor's"
    assert (told[0]["inuse"], told[1]["inuse"], told[1]["autostart"], told[1]["group_prio"]) == (False, True, False, 5)
    keys = "startsecs", "startretries", "stopsignal", "redirect_stderr", "stderr_logfile", "uid"
    assert [told[0][key] for key in keys] == [2, 4, 2, True, "none", "www"]
    assert [told[1][key] for key in keys] == [0, 8, 2, False, "/e", "none"]


def test_the_ladder_and_what_is_done_when_all_is(rpc, backend):
    assert rpc.extralife.getLevel() == {"level": "light", "levels": [{"name": "light"}]}, "unknown is left out"
    assert rpc.extralife.pinLevel("heavy", 60) == "done"
    assert rpc.extralife.pinLevel("light") == "done"
    assert rpc.extralife.unpinLevel() == "done"
    assert [(level, for_s) for level, for_s, _, _ in backend.pins] == [("heavy", 60.0), ("light", None), (None, None)]
    assert fault_of(rpc.extralife.pinLevel, "hevy")[0] == 10
    assert fault_of(rpc.extralife.pinLevel, "heavy", -1)[0] == 2
    assert rpc.extralife.whenDone("delay", 60) == "20261121-033000"
    assert fault_of(rpc.extralife.whenDone, "delay")[0] == 2
    assert fault_of(rpc.extralife.whenDone, "dance")[0] == 2


# --- logs ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(backend, tmp_path):
    path = tmp_path / "o.log"
    path.write_bytes(b"0123456789")
    backend.change("Pong", stdout_log=str(path), stderr_log=str(tmp_path / "none"))
    backend.header = known_to(backend.header, main_log=str(path))
    return path


@pytest.mark.parametrize(
    ("offset", "length", "told"),
    [(0, 0, "0123456789"), (2, 3, "234"), (2, 0, "23456789"), (-3, 0, "789"), (-99, 0, "0123456789"), (99, 0, ""),
     (2**31 - 1, 5, ""), (0, 99, "0123456789"), (0, -1, 3), (-3, 1, 3), (-3, -1, 3)],
)  # fmt: skip
def test_reading_a_log(rpc, log, offset, length, told):
    for call_, args in ((rpc.supervisor.readProcessStdoutLog, ("Pong",)), (rpc.supervisor.readLog, ())):
        if isinstance(told, int):
            assert fault_of(call_, *args, offset, length) == (told, "BAD_ARGUMENTS")
        else:
            assert call_(*args, offset, length) == told


def tail_file(data, offset, length):
    """Supervisor 4.3.0's `tailFile`, line by line."""
    sz, overflow = len(data), False
    if sz > (offset + length):
        overflow = True
        offset = sz - 1
    if (offset + length) > sz:
        if offset > (sz - 1):
            length = 0
        offset = sz - length
    offset, length = max(0, offset), max(0, length)
    return [data[offset : offset + length].decode(), sz, overflow]


def test_following_a_log_by_offset(rpc, log):
    for offset in (0, 3, 8, 9, 10, 11, 50):
        for length in (0, 1, 4, 10, 30):
            told = rpc.supervisor.tailProcessStdoutLog("Pong", offset, length)
            assert told == tail_file(b"0123456789", offset, length), (offset, length)
    assert window(100, -5, -5) == (99, 0, True)
    assert rpc.supervisor.tailProcessStderrLog("Pong", 0, 10) == ["", 0, False]
    assert rpc.supervisor.tailProcessLog("Breakout", 0, 10) == ["", 0, False]


# --- HTTP ------------------------------------------------------------------------------------------------------------------


def post(api, body, target="/RPC2"):
    connection = Connection(api)
    connection.request("POST", target, body, {"Content-Type": "text/xml"})
    response = connection.getresponse()
    got = response.status, response.read()
    connection.close()
    return got


def test_bodies_that_are_no_calls_and_other_requests(api):
    assert post(api, b"<x/>")[0] == 400
    assert post(api, b"x" * (MOST_BODY_BYTES + 1))[0] == 413
    assert post(api, xmlrpc.client.dumps((), "supervisor.getPID").encode(), "/RPC2/")[0] == 200
    assert call(api, "/RPC2", method="GET")[0] == 405


def test_a_bug_is_an_http_error_and_the_connection_lives_on(api, backend):
    rpc = proxy(api)
    backend.error = RuntimeError("broken")
    with pytest.raises(xmlrpc.client.ProtocolError, match="500"):
        rpc.supervisor.stopProcess("Pong")
    backend.error = None
    assert rpc.supervisor.stopProcess("Pong") is True


STOCK = (
    b"GET /logtail/%s HTTP/1.1\r\nHost: \r\nAccept-Encoding: chunked\r\nAccept: */*\r\n"
    b"User-agent: Supervisor HTTP Client\r\n\r\n\r\n"
)  # the very bytes, with the line end too many


class Following:
    """The stock client's `tail -f`."""

    def __init__(self, api, request):
        self.connection = Connection(api)
        self.connection.connect()
        self.connection.sock.sendall(request)
        self.connection.sock.settimeout(10 * PATIENCE)
        self.got = b""

    def reads(self, text):
        while text not in self.got:
            piece = self.connection.sock.recv(65536)
            assert piece, f"ended before {text!r}: {self.got!r}"
            self.got += piece

    def close(self):
        self.connection.sock.close()


def test_a_followed_log(api, log):
    log.write_bytes(b"x" * 2000 + b"\nbefore\n")
    follow = Following(api, STOCK % b"Pong:Pong/stdout")
    follow.reads(b"before\n")
    assert b"HTTP/1.1 200 OK" in follow.got
    assert b"transfer-encoding: chunked" in follow.got.lower()
    assert b"content-type: text/plain;charset=utf-8" in follow.got
    assert follow.got.count(b"x") == 1016 + 2, "the last 1024 bytes, as Supervisor"
    with log.open("ab") as out:
        out.write("half of Ä".encode()[:-1])
    follow.reads(b"half of ")
    with log.open("ab") as out:
        out.write("Ä".encode()[1:] + b" \x1b[2J\xff\n")
    follow.reads("Ä ␛[2J\ufffd\n".encode())
    os.truncate(log, 0)
    follow.reads(b"\r\n17\r\n==> File truncated <==\n\r\n")
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"after rotation\n")
    follow.reads(b"after rotation\n")
    follow.close()


def test_a_follower_that_has_gone_is_let_go_though_the_log_stands_still(socket_path, backend, log, monkeypatch):
    monkeypatch.setattr("supervisor.features.dialect.http.MOST_FOLLOWERS", 1)
    for name in ("_LAST_ANSWERS_S", "_STOP_S"):
        monkeypatch.setattr(f"supervisor.api.server.{name}", 60)  # a follower that is waited for would take so long
    with served(backend, socket_path) as server:
        rpc = of(server)
        for path in (b"Pong", b"Pong/stdout"):
            follow = Following(socket_path, STOCK % path)
            follow.reads(b"0123456789")
            assert b" 503 " in raw(
                socket_path, b"GET /mainlogtail HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n", half_close=False
            )
            follow.close()
            until(lambda: rpc._followers.count == 0, "the follower to be let go")
        follow = Following(socket_path, STOCK.replace(b"/logtail/%s", b"/mainlogtail"))
        follow.reads(b"0123456789")
        began = time.monotonic()
    follow.close()
    assert time.monotonic() - began < 30, "a follower does not hold up the end of the daemon"
    assert MOST_FOLLOWERS > 10


@pytest.mark.parametrize("path", [b"nobody/stdout", b"Pong/stderr", b"Pong/stdin", b"Pong:*/stdout", b"Breakout", b""])
def test_what_cannot_be_followed(api, log, path):
    request = (STOCK % path).replace(b"Accept: */*", b"Connection: close")
    assert b"HTTP/1.1 404 " in raw(api, request, half_close=False)


def test_the_seeds_of_a_game_are_a_group(rpc, backend):
    backend.programs = {}
    backend.add(program("Pong-s4", group="Pong"), program("Pong-s6", group="Pong"), program("Qbert"))
    assert [(each["group"], each["name"]) for each in rpc.supervisor.getAllProcessInfo()] == [
        ("Pong", "Pong-s4"), ("Pong", "Pong-s6"), ("Qbert", "Qbert"),
    ]  # fmt: skip
    assert rpc.supervisor.getProcessInfo("Pong:Pong-s6")["name"] == "Pong-s6"
    assert fault_of(rpc.supervisor.getProcessInfo, "Qbert:Pong-s6")[0] == 10
    assert fault_of(rpc.supervisor.removeProcessGroup, "Pong")[0] == 91
    for method, name in (("stopProcess", "Pong:*"), ("startProcessGroup", "Pong"), ("stopProcessGroup", "Pong")):
        done = getattr(rpc.supervisor, method)(name)
        assert [(each["group"], each["name"], each["status"]) for each in done] == [
            ("Pong", "Pong-s4", 80), ("Pong", "Pong-s6", 80),
        ]  # fmt: skip
    assert rpc.supervisor.stopProcessGroup("Pong") == [], "nothing to do"
    assert rpc.supervisor.removeProcessGroup("Pong") is True
