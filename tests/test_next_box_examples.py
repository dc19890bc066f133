"""The examples in `deploy/next_box/`: what each orders, the price that it reports, and that it fails if no box was made.

The clients of providers are stand-ins that record how they were called: the real ones would rent.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[1] / "deploy" / "next_box"
OFFERS = '[{"id": 7, "dph_total": 0.31}, {"id": 8, "dph_total": 0.9}]'


@pytest.fixture
def client(tmp_path):
    """Make a stand-in that answers by its first words."""

    def make(name, answers):
        cases = "\n".join(f"  {words!r}*) printf '%s\\n' {answer!r}; exit {code} ;;" for words, answer, code in answers)
        path = tmp_path / name
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >>{tmp_path}/calls\ncase "$*" in\n{cases}\nesac\n')
        path.chmod(0o755)

    return make


def run(tmp_path, name, *words, **env):
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONNOUSERSITE": "1", **env}
    done = subprocess.run([EXAMPLES / name, *words], env=env, capture_output=True, text=True, timeout=60, check=False)
    calls = tmp_path / "calls"
    return done.returncode, done.stdout, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize(("bid", "price"), [({}, "0.31"), ({"VAST_BID": "0.2"}, "0.2")])
def test_vastai_rents_the_cheapest_offer_below_the_limit(client, tmp_path, bid, price):
    client("vastai", [("search offers", OFFERS, 0), ("create instance", '{"success": true, "new_contract": 9}', 0)])
    env = {"VAST_TEMPLATE": "h4sh", "VAST_QUERY": "gpu_name=RTX_4090", "EXTRALIFE_USD_PER_HOUR": "0.5", **bid}
    code, said, (search, create) = run(tmp_path, "vastai", **env)
    assert (code, said) == (0, f"usd_per_hour={price}\n")
    assert search.endswith("gpu_name=RTX_4090 dph<=0.5")
    assert create.startswith("create instance 7 --template_hash h4sh")
    assert ("--bid_price 0.2" in create) is bool(bid)


@pytest.mark.parametrize("offers", ["[]", OFFERS])
def test_vastai_fails_if_there_is_no_offer_or_no_box(client, tmp_path, offers):
    client("vastai", [("search offers", offers, 0), ("create instance", '{"success": false}', 0)])
    code, said, _ = run(tmp_path, "vastai", VAST_TEMPLATE="h4sh", VAST_QUERY="gpu_name=A100")
    assert (code != 0, said) == (True, "")


def test_aws_starts_the_launch_template_and_knows_whether_a_box_is_there(client, tmp_path):
    client("aws", [("ec2 run-instances", "i-0123", 0), ("ec2 describe-instances", "1", 0)])
    code, _, calls = run(tmp_path, "aws", AWS_TEMPLATE="extralife")
    assert (code, "LaunchTemplateName=extralife" in calls[0]) == (0, True)
    assert run(tmp_path, "aws", "--is-there")[0] == 0
    client("aws", [("ec2 describe-instances", "0", 0)])
    assert run(tmp_path, "aws", "--is-there")[0] == 1
    client(
        "aws",
        [("ec2 describe-instances", "no credentials", 255), ("ec2 run-instances", "InsufficientInstanceCapacity", 254)],
    )
    assert run(tmp_path, "aws", "--is-there")[0] == 2, "not known"
    assert run(tmp_path, "aws", AWS_TEMPLATE="extralife")[0] != 0


def test_gcp_goes_on_to_the_next_zone(client, tmp_path):
    client("gcloud", [("compute instances create", "no room", 1)])
    code, _, calls = run(tmp_path, "gcp", GCP_TEMPLATE="extralife", GCP_ZONES="a b")
    assert code == 1
    assert [call.split("--zone ")[1].split()[0] for call in calls] == ["a", "b"]
    client("gcloud", [("compute instances create", "made", 0)])
    assert run(tmp_path, "gcp", GCP_TEMPLATE="extralife", GCP_ZONES="a b")[0] == 0


class Provider(HTTPServer):
    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.answers, self.got = answers, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.server.got.append((self.path, json.loads(body or b"null"), self.headers["Authorization"]))
            status, answer = self.server.answers[self.path]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST  # noqa: N815  http.server's name

        def log_message(self, *_):
            pass


def test_runpod_rents_a_pod_from_the_template(tmp_path):
    (tmp_path / ".runpod-key").write_text("k3y\n")
    provider = Provider({"/v1/pods": (201, {"id": "p1", "costPerHr": "0.22"})})
    env = {"RUNPOD_TEMPLATE": "t1", "RUNPOD_GPUS": "NVIDIA A40,NVIDIA L4", "RUNPOD_REST_URL": provider.url}
    code, said, _ = run(tmp_path, "runpod", **env)
    assert (code, said) == (0, "usd_per_hour=0.2200\n")
    ((_, body, key),) = provider.got
    assert (body["templateId"], body["gpuTypeIds"], key) == ("t1", ["NVIDIA A40", "NVIDIA L4"], "Bearer k3y")
    provider.answers = {"/v1/pods": (500, {"error": "no instances"})}
    assert run(tmp_path, "runpod", **env)[0] == 1
    provider.close()


def test_lambda_launches_where_there_is_room_below_the_limit(tmp_path):
    (tmp_path / ".lambda-key").write_text("k3y\n")
    (tmp_path / "user-data").write_text("#cloud-config\n")
    kinds = {
        name: {
            "instance_type": {"price_cents_per_hour": cents},
            "regions_with_capacity_available": [{"name": "us-1"}] * room,
        }
        for name, cents, room in (("full", 50, 0), ("dear", 900, 1), ("fit", 75, 1))
    }
    provider = Provider({
        "/api/v1/instance-types": (200, {"data": kinds}),
        "/api/v1/instance-operations/launch": (200, {"data": {"instance_ids": ["i1"]}}),
    })  # fmt: skip
    env = {
        "LAMBDA_SSH_KEY": "me", "LAMBDA_USER_DATA": str(tmp_path / "user-data"), "LAMBDA_URL": provider.url, "EXTRALIFE_USD_PER_HOUR": "2",
    }  # fmt: skip
    code, said, _ = run(tmp_path, "lambda", LAMBDA_TYPES="full dear fit", **env)
    assert (code, said) == (0, "usd_per_hour=0.75\n")
    assert provider.got[-1][1] == {
        "region_name": "us-1", "instance_type_name": "fit", "ssh_key_names": ["me"], "user_data": "#cloud-config\n",
    }  # fmt: skip
    assert run(tmp_path, "lambda", LAMBDA_TYPES="full dear", **env)[0] == 1
    provider.close()


@pytest.mark.parametrize(
    ("name", "parse"),
    [("skypilot", "sky.Task.from_yaml(PATH)"),
     ("dstack", "dstack._internal.core.models.configurations.parse_apply_configuration(yaml.safe_load(open(PATH)))")],
)  # fmt: skip
def test_the_template_of_an_engine_names_the_repository_and_no_secret(name, parse):
    """Its own package parses it, if it is installed (skypilot 0.14, dstack 0.22)."""
    path = EXAMPLES / f"{name}.yaml"
    body = yaml.safe_load(path.read_text())
    env = body.get("envs") or dict((each.partition("=")[::2]) for each in body["env"])
    assert env["EXTRALIFE_NEXT_BOX"] == "take-over"
    secrets = body.get("secrets", {}) | env
    assert {secrets[each] or None for each in ("EXTRALIFE_OFFSITE_PASSWORD", "AWS_SECRET_ACCESS_KEY")} == {None}
    module = parse.split("(")[0].rpartition(".")[0].removesuffix(".Task")
    python = os.environ.get(f"EXTRALIFE_TEST_{name.upper()}")  # an interpreter that has the package
    if python:
        code = f"import yaml, {module}; PATH = {str(path)!r}; {parse}"
        subprocess.run([python, "-c", code], check=True, timeout=300, capture_output=True)
