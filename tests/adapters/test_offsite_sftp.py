"""A repository over SFTP: a real sshd on this machine's loopback."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from offsite_kit import WALL_S, Box, needs_restic, new_repository

from supervisor.features.offsite.adapters import restoring

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""
SFTP = "/usr/lib/openssh/sftp-server"
pytestmark = [
    needs_restic,
    pytest.mark.slow,
    pytest.mark.skipif(not SSHD or not Path(SFTP).exists(), reason="no sshd: apt-get install openssh-server"),
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd needs root"),
]


@pytest.fixture
def server(tmp_path):
    """The options of an ssh client that reaches it."""
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    keys = tmp_path / "authorized"
    shutil.copy(tmp_path / "client.pub", keys)
    keys.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {keys}\nStrictModes no\n"
        f"UsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp {SFTP}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + 20
        while not listens(port):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        known = f"-o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=accept-new -o BatchMode=yes"
        yield f"ssh -p {port} -i {tmp_path}/client {known} {getpass.getuser()}@127.0.0.1 -s sftp"
    finally:
        process.terminate()
        process.wait()


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_copy_goes_over_sftp_and_comes_back(server, tmp_path):
    (tmp_path / "off").mkdir()
    box = Box(tmp_path / "ada", new_repository(tmp_path / "off"))
    try:
        box.rules = replace(box.rules, repository=f"sftp:x:{tmp_path}/off/repo", sftp_command=server)
        done, _ = box.copies()
        assert (done.error, done.steps) == ("", {"Pong": 100, "Qbert": 7})
        restic = box.restic()
        chosen = restoring.choose(restic.snapshots())
        made = restoring.restore(restic, chosen, tmp_path / "new", take_over=True, box="bob", wall_s=WALL_S)
        assert made.steps == {"Pong": 100, "Qbert": 7}
        box.rules = replace(box.rules, sftp_command=server.replace("-i ", "-i /none"))
        assert "restic snapshots" in box.copies()[0].error
    finally:
        box.close()
