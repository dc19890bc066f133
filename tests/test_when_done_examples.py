"""The examples in `deploy/when_done/`, with a service of the provider behind them on 127.0.0.1: its record decides.

The service is a proxy that ends TLS itself, so each example asks at the real address. The clients of providers that a registry
has (vast.ai, RunPod, Thunder, AWS, Azure), kubectl, gcloud and curl are asked for the same: an example must send what they send.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from supervisor.adapters import procfs

EXAMPLES = Path(__file__).resolve().parents[1] / "deploy" / "when_done"
KEY = "k3y-of-this-box"
NAMES = (
    "console.vast.ai",
    "api.runpod.io",
    "cloud.lambda.ai",
    "api.thundercompute.com",
    "compute.googleapis.com",
    "management.azure.com",
    "kubernetes.default.svc",
)
VAST, LAMBDA, THUNDER = (
    "https://console.vast.ai/api/v0/instances/7/",
    "https://cloud.lambda.ai/api/v1",
    "https://api.thundercompute.com:8443/v1",
)
GOOGLE, AZURE = (
    "https://compute.googleapis.com/compute/v1/projects/5/zones/z1/instances/box1/stop",
    "https://management.azure.com",
)
SETS = "/apis/apps/v1/namespaces/team-a/statefulsets/extralife"
BOX = "/subscriptions/5/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/box1"  # of Azure
STOPPED = {
    "kind": "compute#operation", "operationType": "stop", "status": "RUNNING", "name": "op", "zone": "z1",
    "selfLink": "https://compute.googleapis.com/compute/v1/projects/box-project/zones/z1/operations/op",
}  # fmt: skip
AWS_XML = (
    '<StopInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instancesSet><item><instanceId>i-1</instanceId>'
    "<currentState><code>64</code><name>{}</name></currentState></item></instancesSet></StopInstancesResponse>"
)
# Azure's client decodes the token of the machine: a header, what it is for, and a signature that nobody here checks.
TOKEN = ".".join(
    [*(base64.urlsafe_b64encode(each).decode() for each in (b'{"alg":"RS256"}', b'{"tid":"t","n":12}')), f"{KEY}A"]
)
SUBSCRIPTIONS = {
    "value": [{"id": "/subscriptions/5", "subscriptionId": "5", "tenantId": "t", "displayName": "s", "state": "Enabled"}]
}
V1 = {"groupVersion": "apps/v1", "version": "v1"}
METADATA = {
    "/latest/api/token": "t0ken", "/latest/meta-data/placement/region": "eu-west-1", "/latest/meta-data/instance-id": "i-1",
    "/computeMetadata/v1/instance/service-accounts/default/token": {"access_token": KEY},
    "/computeMetadata/v1/instance/zone": "projects/5/zones/z1", "/computeMetadata/v1/instance/name": "box1",
    "/metadata/identity/oauth2/token": {"access_token": TOKEN, "expires_in": "3600"}, "/metadata/instance/compute/resourceId": BOX,
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [V1], "preferredVersion": V1}]},
    "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
        {"name": "statefulsets", "namespaced": True, "kind": "StatefulSet", "verbs": ["get", "patch"]},
        {"name": "statefulsets/scale", "namespaced": True, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["patch"]},
    ]},
    SETS: {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "extralife", "namespace": "team-a"}},
}  # fmt: skip
# example and its arguments -> the request that ends the box, the answer to it, an answer that refuses
ENDS = {
    ("vastai",): (f"PUT {VAST}", {"state": "stopped"}, {"success": True}, {"success": False, "msg": "no such instance"}),
    ("vastai", "destroy"): (f"DELETE {VAST}", None, {"success": True}, {"success": False}),
    ("runpod",): (
        "POST https://api.runpod.io/graphql", {"query": 'mutation { podStop(input: {podId: "pod1"}) {id desiredStatus} }'},
        {"data": {"podStop": {"id": "pod1", "desiredStatus": "EXITED"}}}, {"errors": [{"message": "pod not found"}], "data": None},
    ),
    ("runpod", "remove"): (
        "POST https://api.runpod.io/graphql", {"query": 'mutation { podTerminate(input: {podId: "pod1"}) }'},
        {"data": {"podTerminate": None}}, {"errors": [{"message": "pod not found"}], "data": {"podTerminate": None}},
    ),
    ("lambda", "ab"): (
        f"POST {LAMBDA}/instance-operations/terminate", {"instance_ids": ["ab"]}, {"data": {"terminated_instances": [{"id": "ab"}]}},
        {"data": {"terminated_instances": []}},
    ),
    ("thunder", "0"): (f"POST {THUNDER}/instances/0/delete", None, {"message": "deleted"}, 404),
    ("gcp",): (f"POST {GOOGLE}", None, STOPPED, STOPPED | {"error": {"errors": []}}),
    ("kubernetes",): (
        f"PATCH https://kubernetes.default.svc{SETS}/scale", {"spec": {"replicas": 0}},
        {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "extralife"}}, 403,
    ),
    ("azure",): (f"POST {AZURE}{BOX}/deallocate?api-version=2024-07-01", None, "", 409),
}  # fmt: skip


class Service(ThreadingHTTPServer):
    """`asked`: (request line, parsed body) of each request with the key. `answer`: the body to all of them, or a status."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.context, self.answer, self.shown = context, object(), False
        self.asked: list[tuple[str, object]] = []


class Answers(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    behind = ""

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.behind = f"https://{self.path.removesuffix(':443')}"
        self.close_connection = False

    def do(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if self.command != "PATCH" and path in METADATA:
            return self.reply(METADATA[path])
        self.server.shown |= any(KEY in (procfs.read_text(pid, "cmdline") or "") for pid in procfs.pids())
        scheme, _, key = (self.headers["Authorization"] or "").partition(" ")
        if self.command == "GET" or KEY not in (base64.b64decode(key).decode() if scheme == "Basic" else key):
            return self.reply(SUBSCRIPTIONS)  # a client looks around first
        form = "x-www-form-urlencoded" in (self.headers.get("Content-Type") or "")
        body = {k: v for k, [v] in parse_qs(sent.decode()).items()} if form else (json.loads(sent) or None) if sent else None
        self.server.asked.append((f"{self.command} {self.behind}{self.path}", body))
        return self.reply(self.server.answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do  # noqa: N815

    def reply(self, answer: object) -> None:
        body = b"" if isinstance(answer, int) else (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(answer if isinstance(answer, int) else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    at = tmp_path_factory.mktemp("tls") / "both.pem"
    names = ",".join(f"DNS:{each}" for each in NAMES)
    subprocess.run(
        [*"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x -addext".split(),
         f"subjectAltName={names}", "-keyout", at, "-out", f"{at}.crt"], check=True, capture_output=True,
    )  # fmt: skip
    at.write_text(at.read_text() + Path(f"{at}.crt").read_text())
    return at


@pytest.fixture
def service(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Service(context) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def run(service, certificate, tmp_path):
    """Runs an example as the daemon does on a box of the provider. (exit status, output)"""
    proxy = f"http://127.0.0.1:{service.server_port}"
    for name in ("lambda", "thunder"):
        (tmp_path / f".{name}-key").write_text(f'user = "{KEY}:"\n' if name == "lambda" else f"{KEY}\n")
    for name, text in {"token": f"{KEY}\n", "namespace": "team-a", "ca.crt": certificate.read_text()}.items():
        (tmp_path / name).write_text(text)
    box = {
        "EXTRALIFE_SERVICE_ACCOUNT": str(tmp_path), "HOSTNAME": "extralife-0", "KUBERNETES_SERVICE_HOST": NAMES[-1],
        "RUNPOD_POD_ID": "pod1", "RUNPOD_API_KEY": KEY, "CONTAINER_ID": "7", "CONTAINER_API_KEY": KEY, "HOME": str(tmp_path),
        "https_proxy": proxy, "EXTRALIFE_METADATA": proxy, "SSL_CERT_FILE": str(certificate), "REQUESTS_CA_BUNDLE": str(certificate),
        "PATH": os.environ["PATH"],
    }  # fmt: skip

    def run(argv: list[str | Path], **more: str) -> tuple[int, str]:
        done = subprocess.run(
            argv, env=box | more, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def test_each_example_is_expected_here() -> None:
    examples = {each.name for each in EXAMPLES.iterdir() if os.access(each, os.X_OK)}
    assert examples == {name for name, *_ in ENDS} | {"aws", "slurm", "poweroff"}


@pytest.mark.parametrize("example", ENDS, ids=" ".join)
def test_the_service_of_the_provider_is_asked_once_to_end_this_box(example, service, run) -> None:
    (name, *args), (request, body, service.answer, _) = example, ENDS[example]
    assert run([EXAMPLES / name, *args]) == (0, "")
    assert service.asked == [(request, body)]
    assert not service.shown, "the key was in a command line"


@pytest.mark.parametrize("example", ENDS, ids=" ".join)
@pytest.mark.parametrize("refusal", ["of the service", 500, "<html>gateway</html>"])
def test_an_example_that_did_not_end_the_box_fails_and_shows_no_key(example, refusal, service, run) -> None:
    (name, *args), service.answer = example, ENDS[example][3] if refusal == "of the service" else refusal
    if name in {"thunder", "azure"} and isinstance(refusal, str) and refusal.startswith("<"):
        pytest.skip("its service says all by its status")
    status, said = run([EXAMPLES / name, *args])
    assert status == 1
    assert service.asked
    assert KEY not in said


@pytest.mark.parametrize("example", ENDS, ids=" ".join)
def test_a_service_that_cannot_be_reached_is_named(example, run) -> None:
    name, *args = example
    status, said = run([EXAMPLES / name, *args], https_proxy="http://127.0.0.1:9")
    assert status == 1
    assert any(host in said.splitlines()[-1] for host in NAMES)


@pytest.mark.parametrize("args", [("slurm", "box.toml"), ("poweroff",)])
def test_an_end_without_a_provider(args, tmp_path, run) -> None:
    """The commands that would stop this machine are stand-ins."""
    deploy, tools = tmp_path / "deploy" / "when_done", tmp_path / ".venv" / "bin"
    for directory in (deploy, tools):
        directory.mkdir(parents=True)
    for tool in ("systemctl", "sudo", "extralifectl"):
        (tools / tool).write_text(f'#!/bin/sh\necho "{tool} $*"\nexit 3\n')
        (tools / tool).chmod(0o755)
    name, *more = args
    (deploy / name).symlink_to(EXAMPLES / name) if name == "poweroff" else (deploy / name).write_bytes(
        (EXAMPLES / name).read_bytes()
    )
    (deploy / name).chmod(0o755)
    (tmp_path / "link").symlink_to(deploy)
    expected = "extralifectl -c box.toml shutdown\n" if name == "slurm" else "systemctl poweroff\n"
    status, said = run([tmp_path / "link" / name, *more], PATH=f"{tools}:{os.environ['PATH']}")
    assert (status, said.endswith(expected)) == (3, True)


# --- the providers' own clients ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Environments with the newest clients from pip's index, made on first use: the directory of a client's programs."""
    made = {}

    def of(*packages: str) -> Path:
        if packages not in made:
            made[packages] = tmp_path_factory.mktemp("clients") / "env"
            subprocess.run([sys.executable, "-m", "venv", made[packages]], check=True)
            argv = [made[packages] / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            installed = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
            if installed.returncode:
                pytest.skip(f"the clients cannot be installed: {installed.stderr[-200:]}")
        return made[packages] / "bin"

    return of


RUNPOD = 'python -c \'import os, runpod; runpod.api_key = os.environ["RUNPOD_API_KEY"]; runpod.{}("pod1")\''
# example, package of pip's index with the client (none: the client is this machine's), the client's commands
CLIENTS = [
    (("vastai",), "vastai", ["vastai stop instance 7"]), (("vastai", "destroy"), "vastai", ["vastai destroy instance 7 --yes"]),
    (("runpod",), "runpod", [RUNPOD.format("stop_pod")]), (("thunder", "0"), "tnr", ["tnr delete 0"]),
    (("runpod", "remove"), "runpod", [RUNPOD.format("terminate_pod")]),
    (("azure",), "azure-cli", ["az login --identity", f"az vm deallocate --ids {BOX}"]),
    (("gcp",), "", ["gcloud compute instances stop box1 --zone z1 --project box-project --async --quiet"]),
    (("kubernetes",), "", [
        f"kubectl --server https://{NAMES[-1]} --token {KEY} --namespace team-a scale statefulset extralife --replicas 0",
    ]),
    (("lambda", "ab"), "", [
        f"curl --fail --user {KEY}: {LAMBDA}/instance-operations/terminate --json " + """'{"instance_ids": ["ab"]}'""",
    ]),
]  # fmt: skip


def plain(request: str, body: object) -> tuple[str, str]:
    """Without what may differ: a version of the API, the project's name in place of its number, layout."""
    request = request.partition("?")[0].replace("/box-project/", "/5/").replace(":8443/v1/", ":8443/")
    return request, "".join(str(body).replace("\\n", "").split())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("example", "package", "commands"), CLIENTS, ids=[" ".join(row[0]) for row in CLIENTS])
def test_an_example_sends_what_the_client_of_the_provider_sends(
    example, package, commands, clients, certificate, service, run
) -> None:
    service.answer = ENDS[example][2]
    proxy = f"http://127.0.0.1:{service.server_port}"
    more = {
        "TNR_API_TOKEN": KEY, "VAST_URL": proxy, "VAST_API_KEY": KEY,  # its client knows no other certificates
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": proxy, "no_proxy": "127.0.0.1", "AZURE_CORE_COLLECT_TELEMETRY": "no",
        "CLOUDSDK_AUTH_ACCESS_TOKEN": KEY, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(certificate), "CURL_CA_BUNDLE": str(certificate),
    }  # fmt: skip
    for command in commands:
        program, *args = shlex.split(command)
        if (at := clients(package) / program if package else shutil.which(program)) is None:
            pytest.skip(f"{program} is not installed, and no registry of this project has it")
        status, said = run([at, *args], **more)
        assert status == 0, said
    assert run([EXAMPLES / example[0], *example[1:]], **more) == (0, "")
    [theirs, ours] = [plain(*each) for each in service.asked]
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_client_of_aws_stops_the_instance_and_a_refusal_is_a_failure(clients, service, run) -> None:
    more = {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{service.server_port}",
        "PATH": f"{clients('awscli')}:{os.environ['PATH']}", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    for state, ends in (("stopping", True), ("stopped", True), ("running", False)):
        service.answer = AWS_XML.format(state)
        status, said = run([EXAMPLES / "aws"], **more)
        assert (status == 0) == ends, said
    service.answer = 403
    status, said = run([EXAMPLES / "aws"], **more)
    assert (status, KEY in said, "s3cret" in said) == (1, False, False)
    assert {(body["Action"], body["InstanceId.1"]) for _, body in service.asked} == {("StopInstances", "i-1")}
