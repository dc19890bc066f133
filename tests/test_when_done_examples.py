"""The examples in `deploy/when_done/`: what each hands to its provider's client."""

from __future__ import annotations

import os
import subprocess
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
    assert {each.name for each in EXAMPLES.iterdir()} == EXPECTED.keys()
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
