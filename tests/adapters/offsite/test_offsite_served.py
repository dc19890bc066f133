"""Repositories behind real servers: over SFTP, restic's REST protocol and S3, a copy goes there and the next box takes over.

A server that is away for a while is no silence of the box.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib import request as urls

import pytest
from offsite_kit import WAIT_S, Box, needs_restic, new_repository
from served_repository import LACKS, Server
from tools import ROOT

from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import Restic
from supervisor.features.offsite.settings import OffsiteSettings

pytestmark = [needs_restic, pytest.mark.slow]


class Place:
    """A repository behind a server, and a box that has copied into it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.off = directory / "off"
        self.off.mkdir()
        new_repository(self.off)
        self.server = Server(kind, self.off)
        self.rules = self.server.rules()
        if kind == "s3":
            url = f"http://127.0.0.1:{self.server.port}/copies"
            urls.urlopen(urls.Request(url, method="PUT"), timeout=WAIT_S).close()
            Restic(self.rules, self.off / "cache").init()
        self.box = Box(directory / "ada", self.off)
        self.box.rules = self.rules
        done, _ = self.box.copies(then="900")
        assert (done.error, done.steps) == ("", {"Pong": 100, "Qbert": 7})

    def begin(self, *words: str) -> subprocess.Popen[str]:
        rules = self.rules
        given = {"REPOSITORY": rules.repository, "PASSWORD_FILE": rules.password_file, "ENV_FILE": rules.env_file,
                 "SFTP_COMMAND": rules.sftp_command}  # fmt: skip
        env = {f"EXTRALIFE_OFFSITE_{name}": value for name, value in given.items() if value}
        homes = {"XDG_CACHE_HOME": str(self.off), "XDG_STATE_HOME": str(self.off), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "supervisor.ctl", "next-box", *words]
        return subprocess.Popen(
            argv, cwd=ROOT, env={**os.environ, **env, **homes}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.begin(*words)
        said = process.communicate(timeout=WAIT_S)[0]
        return process.returncode, said

    def close(self) -> None:
        self.box.close()
        self.server.stop()


@pytest.fixture(params=LACKS)
def place(request, tmp_path):
    made = Place(request.param, tmp_path)
    yield made
    made.close()


def test_the_next_box_takes_over_from_a_served_repository(place, tmp_path):
    code, said = place.run("start", "--to", str(tmp_path / "b"), "--if-alive", "end")
    assert (code, "box ada gave its last sign of life" in said) == (75, True), said
    code, said = place.run("start", "--to", str(tmp_path / "b"), "--if-alive", "wait", "--after", "1", "--every", "1")
    assert (code, "restored copy" in said) == (0, True), said
    assert (tmp_path / "b" / "journal.sqlite").exists()
    held = leases.in_repository(Restic(place.rules, place.off / "cache"))
    assert (held.box, held.generation) == (socket.gethostname(), 2)
    assert "belongs to box" in place.box.copies()[0].error, "the old box comes back"
    wrong: OffsiteSettings = replace(place.rules, password_file=str(tmp_path / "wrong"))
    (tmp_path / "wrong").write_text("guess\n")
    place.rules = wrong
    code, said = place.run("start", "--to", str(tmp_path / "c"))
    assert (code, "wrong password" in said) == (1, True), said


def test_a_server_that_is_away_for_a_while_is_waited_for_and_nothing_is_rented(place, tmp_path):
    if place.server.kind == "s3":
        pytest.skip("this server of S3 keeps its data in memory")
    keep = ("keep", "--once", "--after", "1", "--log", str(tmp_path / "log"), "--", "touch", str(tmp_path / "rented"))
    assert place.run(*keep)[0] == 0
    place.server.stop()
    code, said = place.run(*keep)
    assert (code, "the repository does not answer" in said) == (1, True), said
    assert place.box.copies()[0].error
    start = place.begin("start", "--to", str(tmp_path / "b"), "--after", "1", "--every", "1")
    assert "the repository does not answer" in start.stdout.readline()
    place.server.start()
    said = start.communicate(timeout=WAIT_S)[0]
    assert (start.returncode, "restored copy" in said) == (0, True), said
    assert place.run(*keep)[0] == 0
    assert not (tmp_path / "rented").exists(), "silence of the repository is no silence of a box"
