"""tail and maintail: bytes as they are, followed over growth, truncation, rotation and a daemon's end."""

import signal
import subprocess

import pytest
from fake_backend import program
from running import CTL, ROOT, Terminal, ctl, environment
from serving import served


@pytest.fixture
def log(backend, tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"first line\n")
    backend.change("Pong", stdout_log=str(path), stderr_log=str(tmp_path / "stderr.log"))
    return path


class Follower:
    """`tail -f` into pipes."""

    def __init__(self, socket, *args):
        self.process = subprocess.Popen(
            [*CTL, "-s", f"unix://{socket}", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=ROOT, env=environment(),
        )  # fmt: skip

    def line(self):
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def said(self):
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def follow(api, log):
    follower = Follower(api, "tail", "-f", "Pong")
    assert follower.said() == b"==> Press Ctrl-C to exit <==\n"
    assert follower.line() == b"first line\n"
    yield follower
    follower.process.kill()
    follower.process.communicate()


def test_the_last_bytes(api, log):
    log.write_bytes(b"x" * 5000 + b"\xff\x00end")
    told = subprocess.run(
        [*CTL, "-s", f"unix://{api}", "tail", "-6", "Pong"], capture_output=True, check=True, cwd=ROOT, env=environment()
    )
    assert told.stdout == b"x\xff\x00end", "the very bytes"
    log.write_bytes(b"y" * 5000)
    assert ctl("tail", "Pong:Pong", socket=api).stdout == "y" * 1600


def test_errors_are_supervisors(api, log):
    told = ctl("tail", "Pong", "stderr", socket=api)
    assert (told.stdout, told.returncode) == ("Pong: ERROR (no log file)\n", 1)
    told = ctl("tail", "-f", "nobody", socket=api)
    assert (told.stdout, told.returncode) == ("nobody: ERROR (no such process name)\n", 1)
    told = ctl("maintail", socket=api)
    assert (told.stdout, told.returncode) == ("supervisord: ERROR (no log file)\n", 1)


def test_follow_growth(follow, log):
    with log.open("ab") as file:
        file.write(b"second line\nthird")
    assert follow.line() == b"second line\n"
    with log.open("ab") as file:
        file.write(b" line\n")
    assert follow.line() == b"third line\n"
    assert follow.interrupt() == 0


def test_follow_truncation(follow, log):
    log.write_bytes(b"anew\n")
    assert follow.line() == b"anew\n"
    assert follow.said() == b"==> File truncated <==\n"


def test_follow_rotation_to_the_last_byte(follow, log):
    with log.open("ab") as file:
        file.write(b"last line of the old file\n")
        log.rename(log.with_name("stdout.log.1"))
    log.write_bytes(b"first line of the new file\n")
    assert follow.line() == b"last line of the old file\n"
    assert follow.line() == b"first line of the new file\n"
    assert follow.said() == b"==> File rotated <==\n"


def test_follow_a_file_that_vanishes_and_comes_back(follow, log):
    log.with_name("other").write_bytes(b"back again\n")  # while the first one still has its inode number
    log.unlink()
    log.with_name("other").rename(log)
    assert follow.line() == b"back again\n"


def test_follow_over_a_daemons_restart(backend, log, socket_path):
    with served(backend, socket_path):
        follower = Follower(socket_path, "tail", "-f", "Pong")
        assert follower.line() == b"first line\n"
    with log.open("ab") as file:
        file.write(b"written while nobody served\n")
    with served(backend, socket_path):
        assert follower.line() == b"written while nobody served\n"
        assert follower.interrupt() == 0
    follower.process.communicate()


def test_a_terminal_is_not_obeyed(api, log):
    log.write_bytes("caf\u00e9 \x1b[2Jhidden\rover \x07\n".encode() + b"\xff\n")
    with Terminal("tail", "-f", "Pong", socket=api) as terminal:
        shown = terminal.until("\\xff")
        assert "café \\x1b[2Jhidden\r\nover \\x07" in shown
        assert "\x1b" not in shown
        terminal.interrupt()
        assert terminal.end()[1] == 0


@pytest.mark.parametrize("size", [(1 << 20) + 1, 9_000_000])
def test_a_tail_of_more_than_one_answer_is_whole(api, log, size):
    """One answer has at most 1 MiB: the rest was left out without a word."""
    written = b"".join(b"line %07d\n" % number for number in range(400_000))
    log.write_bytes(written)
    done = subprocess.run(
        [*CTL, "-s", f"unix://{api}", "tail", f"-{size}", "Pong"], capture_output=True, check=True, cwd=ROOT,
        env=environment(),
    )  # fmt: skip
    assert done.stdout == written[-size:]


def test_a_long_tail_is_followed_without_a_gap_or_a_line_twice(api, log):
    written = b"".join(b"line %07d\n" % number for number in range(200_000))
    log.write_bytes(written)
    follower = Follower(api, "tail", "-f", "-2000000", "Pong")
    assert follower.process.stdout is not None
    assert follower.process.stdout.read(2_000_000) == written[-2_000_000:]
    with log.open("ab") as out:
        out.write(b"next\n")
    assert follower.line() == b"next\n"
    follower.interrupt()
    follower.process.communicate()


def test_a_program_by_the_name_of_its_group_and_its_own(api, backend, tmp_path):
    """As Supervisor's status names it: tail, fg, explain and history said `no such process`."""
    (tmp_path / "s4.log").write_bytes(b"seed 4\n")
    backend.add(program("Pong-s4", group="Pong", stdout_log=str(tmp_path / "s4.log")), program("Pong-s6", group="Pong"))
    assert ctl("tail", "Pong:Pong-s4", socket=api).stdout == "seed 4\n"
    told = ctl("tail", "Pong:nobody", socket=api)
    assert (told.stdout, told.returncode) == ("Pong:nobody: ERROR (no such process name)\n", 1)
    assert ctl("explain", "Pong:Pong-s4", socket=api).stdout.startswith("Pong-s4: RUNNING")
    assert ctl("history", "Pong:Pong-s4", socket=api).stdout == "nothing has happened yet\n"
    assert ctl("fg", "Pong:Pong-s4", socket=api).stdout.startswith("ERROR: Pong-s4 has no standard input")
