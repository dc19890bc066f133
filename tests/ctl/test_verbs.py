"""The verbs: Supervisor's words and exit codes, against a fake daemon."""

import base64
import json
import os
import socket as sockets
import subprocess
import threading
from pathlib import Path

import pytest
from fake_backend import program
from running import CTL, ctl, environment

from supervisor.ctl import actions
from supervisor.ctl.outcome import READER_LEFT, Options
from supervisor.ctl.session import Session
from supervisor.model.inputs import Verb


@pytest.fixture
def three(backend):
    backend.programs = {}
    backend.add(program("down", "STOPPED"), program("up"), program("other"))
    return backend


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("start", "down"), "down: started\n"),
        (("start", "up"), "up: ERROR (already started)\n"),
        (("stop", "up:up", "down"), "up: stopped\ndown: ERROR (not running)\n"),
        (("stop", "all"), "down: ERROR (not running)\nother: stopped\nup: stopped\n"),
        (("signal", "hup", "up", "other:*"), "up: signalled\nother: signalled\n"),
    ],
)
def test_what_is_no_error_to_supervisor_ends_with_0(api, three, args, said):
    told = ctl(*args, socket=api)
    assert (told.stdout, told.returncode) == (said, 0)


def test_restart_says_what_supervisor_says(api, three):
    told = ctl("restart", "up", "down", "nobody", socket=api)
    assert sorted(told.stdout.splitlines()) == [
        "down: ERROR (not running)", "down: started", "nobody: ERROR (no such process)", "up: started", "up: stopped",
    ]  # fmt: skip
    assert told.returncode == 1
    assert [asked[0] for asked in three.asked] == [Verb.RESTART], "one request: a client that dies leaves nothing stopped"


@pytest.mark.parametrize(
    ("code", "text", "line", "wanted"),
    [
        (50, "spawn error: no such file", "down: ERROR (spawn error: no such file)", 7),
        (40, "abnormal termination: exit code 1", "down: ERROR (abnormal termination: exit code 1)", 7),
        (30, "no answer within 10m", "down: ERROR (no answer within 10m)", 1),
        (6, "whatever", "down: ERROR (shutting down)", 1),
        (10, "no such program", "down: ERROR (no such process)", 1),
    ],
)
def test_faults_become_supervisors_texts_and_codes(api, three, code, text, line, wanted):
    three.do = lambda verb, name: (name, code, text)
    told = ctl("start", "down", socket=api)
    assert (told.stdout.strip(), told.returncode) == (line, wanted)


@pytest.mark.parametrize(
    ("args", "line", "wanted"),
    [
        (("tail", "a", "stdout", "x"), "Error: too many arguments", 1),
        (("tail", "up", "stdin"), "Error: bad channel 'stdin'", 1),
        (("tail", "-x", "up"), "Error: bad argument -x", 1),
        (("maintail", "up"), "Error: bad argument up", 1),
        (("avail", "x"), "Error: avail accepts no arguments", 1),
        pytest.param(("import",), "Error: import requires a supervisord.conf", 2, marks=pytest.mark.needs("dialect")),
        (("status", "--jsno"), "Error: unknown option --jsno; there are: --json, --wide, --watch", 2),
        (("history", "-n"), "Error: -n needs a value", 2),
        (("journal", "--after=-1"), "Error: --after must be a whole number from 0, not '-1'", 2),
        (("signal", "HUP", "nobody"), "nobody: ERROR (no such process)", 1),
        (("start", "\x1b]0;title\x07"), "\\x1b]0;title\\x07: ERROR (no such process)", 1),
    ],
)
def test_wrong_use_is_one_line(api, three, args, line, wanted):
    told = ctl(*args, socket=api)
    assert (told.stdout.strip(), told.returncode) == (line, wanted)
    assert three.asked == []


def test_sections_and_programs_that_need_no_restart_are_reported_too(api, three):
    assert ctl("reread", socket=api).stdout == "No config updates to processes\n"
    three.changes = {"added": [], "changed": [], "removed": [], "live": ["up"], "sections": ["[alerts]", "[level]"]}
    told = [ctl(*words, socket=api) for words in (("reread",), ("update", "--dry-run"), ("update",), ("update", "[level]"))]
    assert [(each.stdout, each.returncode) for each in told] == [
        ("[alerts]: changed\n[level]: changed\nup: changed, no restart\n", 0),
        ("[alerts]: would be updated\n[level]: would be updated\nup: would be updated, no restart\n", 0),
        ("[alerts]: updated\n[level]: updated\nup: updated, no restart\n", 0),
        ("[level]: updated\n", 0),
    ]


def test_add(api, three):
    three.changes = {"added": ["new"], "changed": ["up"], "removed": []}
    told = ctl("add", "new", "up", "nobody", socket=api)
    assert told.stdout == (
        "new: added process group\nERROR: process group already active\nERROR: no such process/group: nobody\n"
    )
    assert told.returncode == 1
    assert three.updates == [(("new",), False)]
    assert ctl("add", "up", socket=api).returncode == 0


def test_open_goes_to_another_daemon(api, tmp_path):
    told = ctl("open", f"unix://{api}", socket=tmp_path / "nobody")
    assert "Breakout" in told.stdout or "up" in told.stdout
    assert ctl("open", "ftp://x").stdout.startswith("Error: open takes unix:///path/to/socket")
    shell = ctl(socket=tmp_path / "nobody", stdin=f"open unix://{api}\npid\n")
    assert "1234" in shell.stdout


def test_a_bug_in_the_daemon_is_one_line(api, three):
    three.error = ValueError("x")
    told = ctl("stop", "up", socket=api)
    assert told.stdout.startswith("ERROR: this request stopped at a bug (ValueError)")
    assert told.returncode == 1
    assert told.stderr == ""


def test_a_near_miss_is_named_beside_supervisors_words(api, three):
    for args, line, near in (
        (("staus",), "*** Unknown syntax: staus", "status"),
        (("stop", "othr"), "othr: ERROR (no such process)", "other"),
        (("pid", "othr"), "No such process othr", "other"),
        (("help", "histroy"), "*** No help on histroy", "history"),
    ):
        told = ctl(*args, socket=api)
        assert (told.stdout, told.stderr, told.returncode) == (f"{line}\n", f"did you mean {near}?\n", 1)


def test_over_tcp_with_a_password_that_no_command_line_shows():
    """What a request has of `-s http://`, `-u` and `-p -`; and what a wrong password says."""
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        asked = []

        def serve():
            for status, body in (("200 OK", b'{"daemon": {"pid": 77}}'), ("401 Unauthorized", b"")):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        told = ctl("-s", url, "-u", "ann", "-p", "-", "pid", stdin="secret: é\n")
        assert told.stdout == "77\n"
        told = ctl("-s", url, "-u", "ann", "-p", "wrong", "pid")
        assert (
            told.stdout == f"ERROR: {url} refused this user and password: give -u USER -p -, which asks for the password\n"
        )
        thread.join(20)
    head = {b"Host: " + url.removeprefix("http://").encode(), b"Cache-Control: no-cache"}  # no older answer
    assert head <= {*asked[0].splitlines()}
    assert b"Authorization: Basic " + base64.b64encode("ann:secret: é".encode()) in asked[0]
    assert ctl("-s", url, "pid").stdout == f"{url} refused connection\n"


@pytest.mark.parametrize("verb", ["status", "start", "wait-gpu", "level"])
def test_every_verb_explains_itself(verb):
    told = ctl(verb, "--help")
    assert (told.returncode, told.stdout) == (0, ctl("help", verb).stdout)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("-x",), "Error: unrecognized arguments: -x"),
        (("-c",), "Error: argument -c/--configuration: expected one argument"),
        (("-s", "http:///", "status"), "Error: -s takes unix:///path/to/socket"),
        (("-s", "unix://", "status"), "Error: -s takes unix:///path/to/socket"),
    ],
)
def test_wrong_options_are_one_line(args, sentence):
    told = ctl(*args)
    assert told.stderr.startswith(sentence)
    assert told.returncode == 2


def test_nobody_there(tmp_path, socket_path):
    told = ctl("status", socket=socket_path)
    assert told.stdout.startswith(f"unix://{socket_path} no such file\n")
    assert "start it with extralife" in told.stdout
    assert told.returncode == 4
    told = ctl("status", "--json", socket=socket_path)
    assert told.returncode == 4
    error = json.loads(told.stdout)
    assert error == {"version": 1, "error": f"unix://{socket_path} no such file", "exit_code": 4}
    assert ctl("--json", "status", socket=socket_path).stdout == told.stdout
    told = ctl("pid", "--json", socket=socket_path)
    assert (json.loads(told.stdout)["exit_code"], told.returncode) == (7, 7)
    for action in (("start", "a"), ("pid",), ("tail", "a"), ("history",), ("reread",)):
        told = ctl(*action, socket=socket_path)
        assert (told.stdout, told.returncode) == (f"unix://{socket_path} no such file\n", 7), action
    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(socket_path))
    assert ctl("pid", socket=socket_path).stdout == f"unix://{socket_path} refused connection\n"
    assert ctl("status", socket=socket_path).returncode == 4


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("pid", b""),
        ("pid", b"SSH-2.0-OpenSSH\r\n"),
        ("pid", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("pid", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"),
        ("pid", b"\r\n\r\n"),
        ("pid", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"),
        ("maintail", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"),
    ],
)
def test_something_else_on_the_socket_is_one_line(socket_path, verb, answer):
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()

        def serve():
            for _ in range(2):  # a reading that was cut off is asked again
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        told = ctl(verb, socket=socket_path)
        assert told.stdout.startswith(f"unix://{socket_path} ")
        assert len(told.stdout.splitlines()) == 1
        assert told.returncode == 1
        assert told.stderr == ""
        if thread.is_alive():  # it was asked once only
            with sockets.socket(sockets.AF_UNIX) as last:
                last.connect(str(socket_path))
                last.sendall(b"x")
                thread.join(20)


@pytest.mark.parametrize("name", sorted({*actions.names()} - {"exit"}))
def test_every_action_says_how_it_is_used_and_what_it_does(name, capsys):
    assert actions.run(Session(Options()), ["help", name]) == 0
    usage, *text = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"usage: {name}")
    assert "`" not in usage
    if name != "help":
        assert text
        assert all(line.startswith("  ") and line.strip() for line in text)


def test_remove_takes_a_group_and_says_what_a_user_without_the_file_cannot_do(api, backend, tmp_path, monkeypatch, capsys):
    backend.add(program("Pong-s4", group="Seeds"), program("Pong-s6", group="Seeds"))
    told = ctl("remove", "Seeds:*", "Seeds:Pong-s6", "nobody", socket=api)
    assert told.stdout == "".join(f"{name}: removed process group\n" for name in ("Pong-s4", "Pong-s6")) + (
        "ERROR: no such process/group: nobody\n"
    )
    assert told.returncode == 1

    def hidden(_, **__):
        raise PermissionError(13, "Permission denied")

    options = Options()
    options.socket, options.state_dir = str(api), str(tmp_path)
    monkeypatch.setattr(Path, "stat", hidden)
    assert actions.run(Session(options), ["remove", "Pong"]) == 0, "a member of the socket's group got a traceback"
    out, err = capsys.readouterr()
    assert out == "Pong: removed process group\n"
    assert "it comes back at the next update" in err


def test_an_address_that_is_none_is_one_sentence():
    told = ctl("-s", "http://a..b", "status")
    assert (told.stdout, told.stderr, told.returncode) == ("http://a..b is no address that can be connected to\n", "", 4)


@pytest.mark.parametrize("args", [("help", "pid"), ("status",)])
def test_a_reader_that_has_left_and_a_full_disk_end_it_without_a_traceback(args, tmp_path):
    """With the buffer of a normal environment, both came at the exit of the interpreter: exit code 120."""
    env = environment(EXTRALIFE_STATE_DIR=str(tmp_path))
    env.pop("PYTHONUNBUFFERED", None)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run([*CTL, *args], stdout=pipe, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (READER_LEFT, "")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*CTL, *args], stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    said = "Error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
