"""Repositories of restic behind real servers on this machine's loopback: sshd, the REST protocol by rclone, S3 by moto."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tools import PATIENCE

from supervisor.features.offsite.settings import OffsiteSettings

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""
SFTP = "/usr/lib/openssh/sftp-server"
LACKS = {
    "sftp": "" if SSHD and Path(SFTP).exists() and os.geteuid() == 0 else "sshd as root: apt-get install openssh-server",
    "rest": "" if shutil.which("rclone") else "a server of restic's REST protocol: apt-get install rclone",
    "s3": "" if shutil.which("moto_server") else "a server of S3: pip install moto[server]",
}


class Server:
    """A server of one kind. `stop` takes it away, so that nobody answers at its port; `start` brings it back.

    That of S3 keeps its data in memory, so they do not come back.
    """

    def __init__(self, kind: str, directory: Path) -> None:
        if LACKS[kind]:
            pytest.skip(f"no {LACKS[kind]}")
        self.kind, self.directory = kind, directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.argv = getattr(self, f"_{kind}")()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def rules(self) -> OffsiteSettings:
        password = str(self.directory / "password")
        if self.kind == "sftp":
            known = f"-o UserKnownHostsFile={self.directory}/known -o StrictHostKeyChecking=accept-new -o BatchMode=yes"
            ssh = f"ssh -p {self.port} -i {self.directory}/client {known} {getpass.getuser()}@127.0.0.1 -s sftp"
            return OffsiteSettings(f"sftp:x:{self.directory}/repo", password, "", ssh)
        if self.kind == "rest":
            return OffsiteSettings(f"rest:http://127.0.0.1:{self.port}/repo", password)
        return OffsiteSettings(f"s3:http://127.0.0.1:{self.port}/copies/repo", password, str(self.directory / "env"))

    def _sftp(self) -> list[str]:
        for name in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / name], check=True)
        keys = self.directory / "authorized"
        shutil.copy(self.directory / "client.pub", keys)
        keys.chmod(0o600)
        config = self.directory / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.directory}/host\nAuthorizedKeysFile {keys}\n"
            f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp {SFTP}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        return [SSHD, "-D", "-e", "-f", str(config)]

    def _rest(self) -> list[str]:
        return ["rclone", "serve", "restic", "--addr", f"127.0.0.1:{self.port}", str(self.directory)]

    def _s3(self) -> list[str]:
        env = self.directory / "env"
        env.write_text("AWS_ACCESS_KEY_ID=anybody\nAWS_SECRET_ACCESS_KEY=any-secret\nAWS_DEFAULT_REGION=us-east-1\n")
        env.chmod(0o600)
        return ["moto_server", "-H", "127.0.0.1", "-p", str(self.port)]

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_s = time.monotonic() + 20 * PATIENCE
        while True:
            with socket.socket() as client:
                if not client.connect_ex(("127.0.0.1", self.port)):
                    return
            assert time.monotonic() < until_s, f"{self.argv[0]} does not listen"
            assert self.process.poll() is None, f"{self.argv[0]} has ended"
            time.sleep(0.02)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
