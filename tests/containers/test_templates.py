"""The templates for providers, checked by their own tools where these are installed, else for what extralife relies on."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import yaml
from containerbox import ROOT

HERE = ROOT / "deploy/container"
PROBE = ["/opt/extralife/deploy/container/entrypoint", "probe"]


def test_compose_gives_time_shared_memory_and_a_volume():
    [service] = yaml.safe_load((HERE / "compose.yaml").read_text())["services"].values()
    assert service["stop_grace_period"] == service["environment"]["EXTRALIFE_STOP_WITHIN_S"] + "s"
    assert service["volumes"] == ["extralife:/workspace"]
    assert (service["restart"], service["environment"]["EXTRALIFE_AFTER_SHUTDOWN"]) == ("unless-stopped", "stay")
    assert service["healthcheck"]["test"] == ["CMD", *PROBE, "ready"]
    assert (HERE / service["build"]["context"]).resolve() == ROOT
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0
        ):
            subprocess.run([*command, "-f", HERE / "compose.yaml", "config"], check=True, stdout=subprocess.DEVNULL)


def test_the_pod_has_time_a_volume_and_probes_without_a_password():
    account, role, binding, manifest = yaml.safe_load_all((HERE / "kubernetes.yaml").read_text())
    pod = manifest["spec"]["template"]["spec"]
    assert role["rules"][0]["resourceNames"] == [manifest["metadata"]["name"]]
    assert {account["metadata"]["name"], binding["subjects"][0]["name"]} == {pod["serviceAccountName"]}
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (role["kind"], role["metadata"]["name"])
    [container] = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert str(pod["terminationGracePeriodSeconds"]) == env["EXTRALIFE_STOP_WITHIN_S"]
    assert {key: container[key]["exec"]["command"] for key in container if key.endswith("Probe")} == {
        "startupProbe": [*PROBE, "live"], "livenessProbe": [*PROBE, "live"], "readinessProbe": [*PROBE, "ready"],
    }  # fmt: skip
    [claim] = manifest["spec"]["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/workspace"} in container["volumeMounts"]
    assert manifest["spec"]["selector"]["matchLabels"] == manifest["spec"]["template"]["metadata"]["labels"]


@pytest.mark.slow
def test_kubernetes_own_schema_accepts_the_manifest(tmp_path):
    """With `kubernetes-validate` in an environment of its own, by pip."""
    subprocess.run(["python3", "-m", "venv", tmp_path / "env"], check=True)
    installed = subprocess.run(
        [tmp_path / "env/bin/pip", "install", "--quiet", "kubernetes-validate"], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        pytest.skip(f"kubernetes-validate cannot be installed: {installed.stderr[-200:]}")
    done = subprocess.run(
        [tmp_path / "env/bin/kubernetes-validate", "--strict", HERE / "kubernetes.yaml"], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_providers_commands_are_short_and_can_be_parsed():
    template = json.loads((HERE / "runpod.json").read_text())
    assert template["volumeMountPath"] == "/workspace"
    bash, option, line = template["dockerStartCmd"]
    assert (bash, option) == ("bash", "-c")
    onstart = (HERE / "onstart.sh").read_text()
    assert len(onstart) <= 4048, "vast.ai takes no more"
    for script in (line, onstart):
        subprocess.run(["bash", "-n", "-c", script], check=True)
        assert "git clone -q REPOSITORY " in script
