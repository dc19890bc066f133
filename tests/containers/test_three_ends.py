"""Each template from nothing to two real games, and through three ends: the box is taken away, the budget is reached, all is done.

The provider is a service on this machine. At the request of the template's own command it stops the box, as a provider does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from containerbox import ENTRYPOINT, PACKAGES, ROOT, VOLUME, Box, limits, podman, unfit, until

from supervisor.adapters.process.checkpoints import survey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.skipif(bool(unfit()), reason=unfit())]
HERE = ROOT / "deploy/container"
SETTINGS = """\
[daemon]
state_dir = "{state}"
[load]
mode = "fixed"
[level]
slots = 2
num_envs = 4
batch_size = 32
threads = 1
[training]
steps = {steps}
learning_starts = 500
replay_size = 20_000
replay_ratio = 0.5
[checkpoint]
min_s = 2.0
first_s = 2.0
max_s = 4.0
[cost]
usd_per_hour = 3600.0
budget_usd = {budget}
[when_done]
command = {command}
when = ["done", "budget"]
after_s = 1.0
[program.Pong]
[program.Breakout]
"""
NEVER = 10**9
POD = "extralife-0"  # as the StatefulSet names it
SCALE = "PATCH /apis/apps/v1/namespaces/team/statefulsets/extralife/scale"
ANSWERS = {
    "PUT /api/v0/instances/7/": {"success": True},
    "POST /graphql": {"data": {"podStop": {"desiredStatus": "EXITED"}}},
    SCALE: {"kind": "Scale"},
}


class Provider(ThreadingHTTPServer):
    """`asked`: the requests with the key of this box. At each, the provider stops the box a second later."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.asked: list[str] = []
        self.box: Rented | None = None


class Request(BaseHTTPRequestHandler):
    server: Provider

    def do(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        request = f"{self.command} {self.path}"
        allowed = self.headers["Authorization"] == "Bearer k3y" and request in ANSWERS
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS.get(request)).encode())
        if allowed and self.server.box:
            self.server.asked.append(request)
            threading.Timer(1, self.server.box.stop).start()

    do_PUT = do_POST = do_PATCH = do  # noqa: N815

    def log_message(self, *_: object) -> None: ...


class Rented:
    """A box of a template. `home`: its files, which are `there` in the container; `command`: what ends it."""

    def __init__(
        self, home: Path, name: str, command: list[str], there: str = "/workspace/extralife", state: str = "state"
    ) -> None:
        self.home, self.name, self.command, self.there, self.state = home, name, command, there, state
        self.ctl = [f"{there}/extralifectl"]

    def begin(self) -> None:
        podman("start", self.name)

    def taken_away(self) -> None:
        podman("kill", "--signal", "KILL", self.name)
        podman("wait", self.name)

    def stop(self) -> None:
        podman("stop", "--time", "10", self.name)

    def is_off(self) -> bool:
        return podman("inspect", "--format", "{{.State.Status}}", self.name).stdout.strip() == "exited"

    def said(self) -> str:
        done = podman("logs", self.name, check=False)
        return done.stdout + done.stderr

    def asks(self, *words: str) -> str:
        return podman("exec", self.name, *self.ctl, *words, check=False).stdout

    def training(self) -> dict[str, int]:
        """Steps of each game that trains."""
        with contextlib.suppress(ValueError):
            found = json.loads(self.asks("status", "--json")).get("programs", [])
            return {each["name"]: each["steps"] for each in found if each["steps"] and each["worker_phase"] == "training"}
        return {}

    def two_train(self) -> dict[str, int]:
        return until(lambda: (found := self.training()) and len(found) >= 2 and found, 300, "two games", self.said)

    def saved(self) -> dict[str, int]:
        """The newest step of each game on the volume."""
        found = {name: survey(self.home / self.state / "programs" / name) for name in ("Pong", "Breakout")}
        return {name: each[0].env_steps for name, each in found.items() if each}

    def settings(self, steps: int = NEVER, budget: float = NEVER) -> None:
        text = SETTINGS.format(
            state=f"{self.there}/{self.state}", steps=steps, budget=budget, command=json.dumps(self.command)
        )
        (self.home / "extralife.toml").write_text(text)


class Pod(Rented):
    """`manifest`: of the pod, for podman. Kubernetes makes a new one each time."""

    manifest: Path

    def begin(self) -> None:
        podman("pod", "rm", "--force", "--time", "0", POD, check=False)
        podman("play", "kube", str(self.manifest), timeout_s=300)

    def taken_away(self) -> None:
        podman("pod", "rm", "--force", "--time", "0", POD)

    def stop(self) -> None:
        podman("pod", "stop", "--time", "60", POD)


@pytest.fixture
def provider():
    with Provider() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def empty(tmp_path):
    """A volume without anything, for a container that reaches the provider."""
    made = Box(tmp_path / "volume")
    shutil.rmtree(made.home)
    try:
        yield made
    finally:
        made.close()


def run(box: Box, repository: str, env: dict[str, str], *more: str, command: tuple[str, ...]) -> str:
    variables = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    clone = f"{repository[7:]}:{repository[7:]}:ro"
    return box.run("--network", "host", "--volume", clone, *variables, *more, command=command)


def goes_through_three_ends(box: Rented, provider: Provider, asks: str = "") -> None:
    """`asks`: the request that ends this box; without one it ends by itself."""
    provider.box = box

    def is_over(number: int) -> bool:
        assert provider.asked == [asks] * len(provider.asked)
        assert len(provider.asked) <= number, "once an end"
        return (not asks or len(provider.asked) == number) and box.is_off()

    box.two_train()  # of the settings that the template writes
    box.settings()
    updated = box.asks("update")
    until(lambda: len(found := box.training()) >= 2 and set(found) == {"Pong", "Breakout"}, 300, updated, box.said)
    until(lambda: len(box.saved()) == 2, 60, "a checkpoint of each", box.said)

    box.taken_away()
    before = box.saved()
    box.begin()
    after = box.two_train()
    assert all(after[name] >= steps for name, steps in before.items()), (before, after)

    spent = json.loads(box.asks("cost", "--json"))["usd"]
    box.settings(budget=spent + 15)
    box.asks("update")
    until(lambda: is_over(1) or after.update(box.training()), 300, "the end of the budget", box.said)
    saved = box.saved()
    assert all(saved[name] >= steps for name, steps in after.items()), (saved, after)

    box.settings(steps=max(saved.values()) + 500)
    box.begin()
    until(lambda: is_over(2), 300, "the end of two games that are done", box.said)
    assert min(box.saved().values()) >= max(saved.values()) + 500


def test_vast_ai(empty, repository, provider, tmp_path):
    onstart = tmp_path / "onstart.sh"
    onstart.write_text((HERE / "onstart.sh").read_text().replace("REPOSITORY", repository))
    env = {"CONTAINER_ID": "7", "CONTAINER_API_KEY": "k3y", "VAST_URL": f"http://127.0.0.1:{provider.server_port}"}
    line = ("bash", "-c", "bash /onstart.sh; while :; do sleep 1000; done")
    name = run(empty, repository, env, "--volume", f"{onstart}:/onstart.sh:ro", command=line)
    box = Rented(empty.home, name, ["/opt/extralife/deploy/when_done/vastai"])
    goes_through_three_ends(box, provider, "PUT /api/v0/instances/7/")


def test_runpod(empty, repository, provider, tmp_path):
    """The image's own /start.sh stays beside it."""
    template = json.loads((HERE / "runpod.json").read_text())
    assert template["volumeMountPath"] == "/workspace"
    start = tmp_path / "start.sh"
    start.write_text("#!/bin/sh\nexec sleep 1000\n")
    start.chmod(0o755)
    env = {
        "RUNPOD_POD_ID": "pod1",
        "RUNPOD_API_KEY": "k3y",
        "RUNPOD_API_BASE_URL": f"http://127.0.0.1:{provider.server_port}",
    }
    command = tuple(word.replace("REPOSITORY", repository) for word in template["dockerStartCmd"])
    name = run(empty, repository, env | template["env"], "--volume", f"{start}:/start.sh:ro", command=command)
    box = Rented(empty.home, name, ["/opt/extralife/deploy/when_done/runpod"])
    goes_through_three_ends(box, provider, "POST /graphql")


def test_a_container_that_ends_with_its_daemon(empty, repository, provider):
    name = run(empty, repository, {"EXTRALIFE_STOP_WITHIN_S": "60"}, command=(ENTRYPOINT,))
    shutdown = ["/opt/extralife/deploy/when_done/slurm", "/workspace/extralife/extralife.toml"]
    goes_through_three_ends(Rented(empty.home, name, shutdown), provider)


def test_try_as_the_command_of_a_container(box, repository, provider):
    [release] = box.home.glob("releases/*")
    clone = box.volume / "clone"
    shutil.copytree(release, clone, symlinks=True)
    (clone / "deploy/bootstrap").write_text("#!/bin/sh\n")  # the release is a whole installation
    name = run(box, repository, {}, command=("sh", "-c", "cd /workspace/clone && exec deploy/try"))
    there = "/workspace/clone"
    shutdown = [f"{there}/deploy/when_done/slurm", f"{there}/extralife.toml"]
    rented = Rented(clone, name, shutdown, there, "run")
    rented.ctl = [f"{there}/.venv/bin/extralifectl", "-c", f"{there}/extralife.toml"]
    goes_through_three_ends(rented, provider)


def test_kubernetes(image, volume, provider, tmp_path, monkeypatch):
    """As an ordinary user on a read-only root, by `podman play kube`; a manifest's StatefulSet and claims are the cluster's."""
    account = tmp_path / "account"
    account.mkdir()
    argv = (
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=api -addext subjectAltName=IP:127.0.0.1 -keyout key -out ca.crt"
    )
    subprocess.run(argv.split(), cwd=account, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "key")
    provider.socket = context.wrap_socket(provider.socket, server_side=True)
    (account / "token").write_text("k3y")
    (account / "namespace").write_text("team")
    documents = yaml.safe_load_all((HERE / "kubernetes.yaml").read_text())
    manifest = next(each for each in documents if each["kind"] == "StatefulSet")
    pod = manifest["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"]["name"] = POD
    [container] = pod["spec"]["containers"]
    container["image"], container["imagePullPolicy"] = image, "Never"
    cluster = {
        "EXTRALIFE_PACKAGES": PACKAGES, "HOSTNAME": "extralife-0", "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(provider.server_port),
    }  # fmt: skip
    container["env"] += [{"name": name, "value": value} for name, value in cluster.items()]
    container["volumeMounts"] += [
        {"name": "checkout", "mountPath": str(ROOT), "readOnly": True},
        {"name": "account", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
    ]
    pod["spec"]["hostNetwork"] = True
    for each in pod["spec"]["volumes"]:  # everybody may write to an emptyDir of Kubernetes, but not to podman's
        assert "emptyDir" in each
        (tmp_path / each["name"]).mkdir()
        (tmp_path / each["name"]).chmod(0o1777 if each["emptyDir"].get("medium") == "Memory" else 0o777)
        each["hostPath"] = {"path": str(tmp_path / each["name"])}
        del each["emptyDir"]
    pod["spec"]["volumes"] += [
        {"name": "state", "persistentVolumeClaim": {"claimName": VOLUME}},
        {"name": "checkout", "hostPath": {"path": str(ROOT)}},
        {"name": "account", "hostPath": {"path": str(account)}},
    ]
    user = pod["spec"]["securityContext"]["runAsUser"]
    for each in (volume.parent, volume):
        os.chown(each, user, user)
    ulimits = ", ".join(f'"{each}"' for each in limits()[1::2])  # a pod's file has none
    (tmp_path / "containers.conf").write_text(f"[containers]\ndefault_ulimits = [{ulimits}]\n")
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    # A read-only root has no /opt/extralife of the volume; the image has its own.
    box = Pod(volume, f"{POD}-extralife", ["/opt/extralife/deploy/when_done/kubernetes"])
    box.manifest = tmp_path / "pod.yaml"
    box.manifest.write_text(yaml.safe_dump(pod))
    box.begin()
    try:
        box.two_train()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            podman("exec", box.name, *container[probe]["exec"]["command"])
        goes_through_three_ends(box, provider, SCALE)
    finally:
        podman("pod", "rm", "--force", "--time", "0", POD, check=False)
