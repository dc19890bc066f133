"""The interactive shell on a pseudo-terminal."""

import pytest
from running import Terminal

from supervisor.model.inputs import Verb

PROMPT = "extralife> "


@pytest.fixture
def history(tmp_path):
    return tmp_path / "deep" / "history"


def test_a_conversation(api, backend, history):
    with Terminal("-r", str(history), socket=api, columns=160) as terminal:
        assert "Pong" in terminal.until(PROMPT), "status comes first, as with Supervisor"
        terminal.type("stop Pong\n")
        assert "Pong: stopped" in terminal.until(PROMPT)
        terminal.type("stop nobody\n")
        assert "nobody: ERROR (no such process)" in terminal.until(PROMPT)
        terminal.type("frob\n")
        assert "*** Unknown syntax: frob" in terminal.until(PROMPT)
        terminal.type("\n")
        terminal.until(PROMPT)
        terminal.type("help stop\n")
        assert "usage: stop NAME" in terminal.until(PROMPT)
        terminal.type("shutdown\n")
        terminal.until("y/N? ")
        terminal.type("n\n")
        terminal.until(PROMPT)
        terminal.type("reload\n")
        terminal.until("y/N? ")
        terminal.type("y\n")
        assert "Restarted supervisord" in terminal.until(PROMPT)
        terminal.type("quit\n")
        assert terminal.end()[1] == 0, "whatever happened in between"
    assert [asked[0] for asked in backend.asked] == [Verb.STOP, Verb.RELOAD]
    assert "stop Pong" in history.read_text()


def test_ctrl_c_ends_what_runs_and_ctrl_d_the_shell(api, backend, history, tmp_path):
    (tmp_path / "log").write_bytes(b"something\n")
    backend.change("Pong", stdout_log=str(tmp_path / "log"))
    with Terminal("-r", str(history), socket=api) as terminal:
        terminal.until(PROMPT)
        terminal.type("tail -f Pong\n")
        terminal.until("something")
        terminal.interrupt_at_prompt(PROMPT)
        terminal.type("half a li")
        terminal.until("half a li")
        terminal.interrupt_at_prompt(PROMPT)
        terminal.type("pid\n")
        terminal.until("1234")
        terminal.until(PROMPT)
        terminal.type("\x04")
        assert terminal.end()[1] == 0


def test_names_are_completed(api, backend, history):
    with Terminal("-r", str(history), socket=api) as terminal:
        terminal.until(PROMPT)
        terminal.type("stop Po\t\n")
        assert "Pong: stopped" in terminal.until(PROMPT)
        terminal.type("maint\t\n")
        assert "no log file" in terminal.until(PROMPT)


def test_without_a_daemon_the_shell_still_opens(socket_path, history):
    with Terminal("-r", str(history), socket=socket_path) as terminal:
        assert "no such file" in terminal.until(PROMPT)
        terminal.type("pid\n")
        assert "no such file" in terminal.until(PROMPT)
        terminal.type("exit\n")
        assert terminal.end()[1] == 0


def test_an_action_with_i_is_done_first(api, history):
    with Terminal("-i", "-r", str(history), "pid", socket=api) as terminal:
        assert "1234" in terminal.until(PROMPT)
