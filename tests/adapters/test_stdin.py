"""Input for a worker through the pipe that its shim holds: real pipes, and a process that holds their writing end."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest
from leaks import open_files

from supervisor.adapters import procfs
from supervisor.adapters.process import stdin


@pytest.fixture
def held():
    """The reading end, and the identity of a process whose standard input is the writing end."""
    reading, writing = os.pipe()
    with subprocess.Popen(["sleep", "60"], stdin=writing) as holder:
        os.close(writing)
        yield reading, holder.pid, procfs.read_stat(holder.pid).start_ticks
        holder.kill()
    os.close(reading)


def test_more_than_a_pipe_holds_arrives_whole(held):
    reading, *holder = held
    data, got = os.urandom(300_000), bytearray()

    def read() -> None:
        while len(got) < len(data):
            got.extend(os.read(reading, 10_000))

    reader = threading.Thread(target=read)
    reader.start()
    before = open_files()
    stdin.send(*holder, data)
    reader.join()
    assert bytes(got) == data
    assert open_files() <= before


def test_one_that_does_not_read_is_told_with_what_it_got(held, monkeypatch):
    reading, *holder = held
    monkeypatch.setattr(stdin, "_PATIENCE_S", 0.05)
    before = open_files()
    for sent in (65_536, 0):
        began_s = time.monotonic()
        with pytest.raises(BlockingIOError) as refused:
            stdin.send(*holder, b"x" * 70_000)
        assert time.monotonic() - began_s > 0.04, "it is given a moment"
        assert str(refused.value) == f"[Errno 11] it is not read: {sent} of 70000 bytes were sent"
    assert open_files() <= before
    assert len(os.read(reading, 100_000)) == 65_536


def test_what_is_no_pipe_of_ours_is_refused_and_nothing_stays_open(held, tmp_path):
    reading, pid, ticks = held
    before = open_files()
    for wrong, said in (((pid, ticks + 1), "[Errno 3] it is gone"), ((0, 0), "[Errno 3] it is gone")):
        with pytest.raises(stdin.NoInput) as refused:
            stdin.send(*wrong, b"x")
        assert str(refused.value) == said
    # A program that starts opens its libraries, on the free descriptor 0: so the shell stops itself.
    for command, said in (("echo up; kill -STOP $$", "[Errno 6] it is no pipe"),
                          ("exec <&-; echo up; kill -STOP $$", "[Errno 2] No such file or directory")):  # fmt: skip
        with (tmp_path / "input").open("w") as file:
            other = subprocess.Popen(["sh", "-c", command], stdin=file, stdout=subprocess.PIPE)
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(stdin.NoInput) as refused:
            stdin.send(other.pid, procfs.read_stat(other.pid).start_ticks, b"x")
        other.kill()
        other.communicate()
        assert str(refused.value) == said
    assert open_files() <= before
    stdin.send(pid, ticks, b"after all")
    assert os.read(reading, 100) == b"after all"


def test_a_pipe_that_nobody_reads_any_more_is_none():
    reading, writing = os.pipe()
    with subprocess.Popen(["sleep", "60"], stdin=writing) as holder:
        os.close(reading)
        os.close(writing)
        before = open_files()
        with pytest.raises(stdin.NoInput) as refused:
            stdin.send(holder.pid, procfs.read_stat(holder.pid).start_ticks, b"x")
        holder.kill()
    assert str(refused.value) == "[Errno 32] nobody reads it any more"
    assert open_files() <= before
