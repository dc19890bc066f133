"""The templates for providers, checked by their own tools where these are installed, else for what extralife relies on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from containerbox import COUNTER, PACKAGES, ROOT, VOLUME, Box, limits, podman, unfit, until

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


@pytest.fixture
def half_cloned(tmp_path):
    """A volume with settings, on which a `git clone` has died half-way."""
    made = Box(tmp_path / "volume")
    for each in ("source/.git", "source.new/.git"):
        (made.home / each).mkdir(parents=True)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.skipif(bool(unfit()), reason=unfit())
def test_vast_ai_from_nothing_to_training_and_again_after_a_stop(half_cloned, repository, tmp_path):
    """In ssh mode vast.ai's own first process runs the script at each start, as root, and knows nothing of its children."""
    onstart = tmp_path / "onstart.sh"
    onstart.write_text((HERE / "onstart.sh").read_text().replace("REPOSITORY", repository))
    assert len(onstart.read_text()) <= 4048, "vast.ai takes no more"
    line = "bash /onstart.sh; while :; do sleep 1000; done"
    half_cloned.run(
        "--volume",
        f"{onstart}:/onstart.sh:ro",
        "--volume",
        f"{repository[7:]}:{repository[7:]}:ro",
        command=("bash", "-c", line),
    )
    half_cloned.trains()
    # The commands of docs/first-night.md, from a shell in any directory.
    assert "one" in half_cloned.exec("extralifectl", "status").stdout
    assert half_cloned.exec("extralife", "--check").stdout.startswith("config OK: 1 program")
    half_cloned.exec("test", "-x", "/opt/extralife/deploy/when_done/vastai")
    half_cloned.exec("test", "-x", "/workspace/extralife/deploy/when_done/vastai")
    stored = half_cloned.acknowledged()
    half_cloned.stop(1)
    half_cloned.start()
    assert half_cloned.trains()["steps"] >= stored


# --- the image, as compose runs it ----------------------------------------------------------------------------------------


def trains(container: str) -> bool:
    done = podman("exec", container, "/workspace/extralife/extralifectl", "status", "--json", check=False)
    found = json.loads(done.stdout)["programs"] if done.returncode == 0 else []
    return any(each["steps"] and each["phase"] == "RUNNING" for each in found)


def ends_in_order(container: str, grace_s: int) -> None:
    """The container's end within the template's grace period, and what its entrypoint said."""
    podman("stop", "--time", str(grace_s), container)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", container).stdout.strip() == "0"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compose_from_nothing_to_training_and_an_orderly_end(image, volume, tmp_path):
    """By podman-compose, with this image in place of its build."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    argv = [tmp_path / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", "podman-compose"]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("podman-compose cannot be installed")
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())
    service = compose["services"]["extralife"]
    del service["build"]
    service |= {"image": image, "network_mode": "host", "container_name": "xl-compose"}
    service["environment"]["EXTRALIFE_PACKAGES"] = PACKAGES
    service["volumes"].append(f"{ROOT}:{ROOT}:ro")
    service["ulimits"] = {
        name: int(most) for name, _, most in (each.replace("=", ":").split(":") for each in limits()[1::2])
    }
    compose["volumes"] = {"extralife": {"external": True, "name": VOLUME}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(compose))
    command = [tmp_path / "env/bin/podman-compose", "-f", tmp_path / "compose.yaml"]
    (volume / "extralife.toml").write_text(COUNTER.replace(sys.executable, "/workspace/extralife/current/.venv/bin/python"))
    subprocess.run([*command, "up", "--detach"], check=True, capture_output=True, timeout=300, cwd=tmp_path)
    try:
        until(lambda: trains("xl-compose"), 120, "training", lambda: podman("logs", "xl-compose").stdout)
        subprocess.run(["podman", "healthcheck", "run", "xl-compose"], check=True)
        ends_in_order("xl-compose", int(service["stop_grace_period"].removesuffix("s")))
    finally:
        subprocess.run([*command, "down", "--timeout", "0"], check=False, capture_output=True, cwd=tmp_path)
