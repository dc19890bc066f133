"""The examples in `deploy/when_done/`: what each hands to its provider's client."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "deploy" / "when_done"
IDS = {"RUNPOD_POD_ID": "pod1", "RUNPOD_API_KEY": "k", "CONTAINER_ID": "7", "CONTAINER_API_KEY": "k"}
LAMBDA = "https://cloud.lambdalabs.com/api/v1/instance-operations/terminate"
EXPECTED = {  # example -> (its arguments, the last call)
    "runpod": ((), "runpodctl stop pod pod1"),
    "vastai": ((), "vastai stop instance 7 --api-key k"),
    "thunder": (("0",), "tnr delete 0 --yes"),
    "lambda": (("ab",), f'--data {{"instance_ids": ["ab"]}} {LAMBDA}'),
    "aws": ((), "aws ec2 stop-instances --region curled --instance-ids curled"),
    "gcp": ((), "gcloud compute instances stop curled --zone curled --quiet"),
    "azure": ((), "az vm deallocate --ids curled --no-wait"),
    "poweroff": ((), "systemctl poweroff"),
    "slurm": (("box.toml",), "supervisorctl -c box.toml shutdown"),
}


def test_each_example_is_expected_here() -> None:
    assert {each.name for each in EXAMPLES.iterdir()} == {*EXPECTED, "kubernetes"}
    assert all(each.stat().st_mode & 0o111 == 0o111 for each in EXAMPLES.iterdir())


@pytest.mark.parametrize("name", EXPECTED)
def test_what_an_example_asks_of_its_provider(name: str, tmp_path: Path) -> None:
    args, expected = EXPECTED[name]
    deploy, tools = tmp_path / "deploy" / "when_done", tmp_path / ".venv" / "bin"
    for directory in (deploy, tools):
        directory.mkdir(parents=True)
    example = deploy / name
    example.write_bytes((EXAMPLES / name).read_bytes())
    example.chmod(0o755)
    for tool in ("runpodctl", "vastai", "tnr", "aws", "gcloud", "az", "systemctl", "sudo", "supervisorctl", "curl"):
        stub = tools / tool
        said = "echo curled" if tool == "curl" else ":"
        stub.write_text(f'#!/bin/sh\necho "{tool} $*" >> {tmp_path}/calls\n{said}\n')
        stub.chmod(0o755)
    env = {**os.environ, **IDS, "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run([example, *args], env=env, check=True, timeout=60)
    assert (tmp_path / "calls").read_text().splitlines()[-1].endswith(expected)


class Api(http.server.BaseHTTPRequestHandler):
    """Kubernetes' API server, which allows one request."""

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == "Bearer secret"
        self.server.asked.append((self.path, self.headers["Content-Type"], body))  # type: ignore[attr-defined]
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(b"{}" if allowed else b"extralife may not patch statefulsets/scale")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: apt-get install openssl")
def test_a_pod_scales_its_own_stateful_set_to_0(tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.crt", tmp_path / "key"
    subject = ["-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    (tmp_path / "namespace").write_text("team-a")
    with http.server.HTTPServer(("127.0.0.1", 0), Api) as api:
        api.socket, api.asked = context.wrap_socket(api.socket, server_side=True), []  # type: ignore[attr-defined]
        threading.Thread(target=api.serve_forever, daemon=True).start()
        env = {"PATH": os.environ["PATH"], "EXTRALIFE_SERVICE_ACCOUNT": str(tmp_path), "HOSTNAME": "extralife-0"}
        env |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.server_port)}

        def said(**more: str) -> tuple[int, str]:
            done = subprocess.run(
                [EXAMPLES / "kubernetes"], env=env | more, capture_output=True, text=True, timeout=60, check=False
            )
            return done.returncode, (done.stdout + done.stderr).strip()

        assert said()[0] == 1, "there is no token"
        (tmp_path / "token").write_text("old")
        assert said() == (1, "the API answers 403: extralife may not patch statefulsets/scale")
        (tmp_path / "token").write_text("secret\n")
        assert said() == (0, "StatefulSet extralife is scaled to 0")
        assert said(HOSTNAME="box")[1].endswith("is no pod of a StatefulSet, so it is not known what to scale")
        api.shutdown()
    path = "/apis/apps/v1/namespaces/team-a/statefulsets/extralife/scale"
    assert api.asked[-1] == (path, "application/merge-patch+json", {"spec": {"replicas": 0}})  # type: ignore[attr-defined]
