"""deploy/prometheus and deploy/grafana: rules that promtool accepts and proves, and no name that /metrics does not have."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from fakes import FakeSources
from tools import PATIENCE, ROOT

from supervisor.features.metrics.exposition import TEXT, encoded
from supervisor.features.metrics.families import metrics_view
from supervisor.model.state import State

RULES = ROOT / "deploy/prometheus/extralife-rules.yml"
RULES_TESTS = ROOT / "deploy/prometheus/extralife-rules.test.yml"
DASHBOARD = ROOT / "deploy/grafana/extralife.json"
FOREIGN = {"node_textfile_mtime_seconds"}  # node_exporter's


def emitted() -> set[str]:
    suffixes = {"counter": "_total", "info": "_info", "gauge": ""}
    return {family.name + suffixes[family.kind] for family in metrics_view(FakeSources(State()))}


def from_debian(name: str, directory: Path) -> Path | None:
    """Out of a package that is not installed, because `prometheus` would start a server. None: it cannot be had here."""
    for package in {name, "prometheus"}:  # promtool has a package of its own since Debian 13
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["apt-get", "download", package], cwd=directory, check=True, capture_output=True, timeout=120)
            for each in directory.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg", "-x", each, directory], check=True, capture_output=True, timeout=120)
            if (made := directory / "usr/bin" / name).exists():
                return made
    return None


def tool(name: str, directory: Path) -> Path:
    """`promtool` or `prometheus`. It is kept beside the Python of the tests, so that the package is fetched once."""
    kept = Path(sys.executable).parent / name
    found = os.environ.get(name.upper()) or shutil.which(name) or (str(kept) if kept.exists() else None)
    if found is None:
        made = from_debian(name, directory)
        if made is None:
            pytest.skip(f"needs {name}: install Prometheus, or set {name.upper()}")
        shutil.copy(made, f"{kept}.{os.getpid()}")
        Path(f"{kept}.{os.getpid()}").replace(kept)
        found = str(kept)
    return Path(found)


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tool("promtool", tmp_path_factory.mktemp("debian"))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server that has read the metrics of the recorded night some times."""
    directory = tmp_path_factory.mktemp("prometheus")
    program = tool("prometheus", directory)

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(recorded())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as served, socket.socket() as free:
        threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        job = {"job_name": "extralife", "static_configs": [{"targets": [f"127.0.0.1:{served.server_port}"]}]}
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job], "rule_files": [str(RULES)]}
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        flags = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
        with (directory / "log").open("wb") as log, subprocess.Popen(
            [program, *flags, f"--web.listen-address={address}"], stdout=log, stderr=log
        ) as server:  # fmt: skip
            try:
                deadline_s = time.monotonic() + 60 * PATIENCE
                while not query(address, "count_over_time(extralife_up[1m]) >= 3"):
                    assert time.monotonic() < deadline_s, (directory / "log").read_text()
                    select.select([], [], [], 0.2)
                yield address
            finally:
                server.kill()
                served.shutdown()


def recorded() -> bytes:
    found = json.loads((ROOT / "tests/outside/recorded/api/metrics.json").read_text())["answer"]
    return "\n".join([*found, ""]).encode()


def query(address: str, text: str) -> list[object]:
    """The series that the server answers with; none while it is not up."""
    try:
        with urlopen(f"http://{address}/api/v1/query?{urlencode({'query': text})}", timeout=30) as answer:
            return list(json.load(answer)["data"]["result"])
    except HTTPError as error:
        if error.code == 503:  # it is starting
            return []
        pytest.fail(f"{text}: {error.read().decode()}")
    except (ConnectionError, URLError):
        return []


def run(promtool: Path, *args: str | Path, told: bytes | None = None) -> None:
    done = subprocess.run([promtool, *args], input=told, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def expressions() -> list[str]:
    """Of every panel, annotation and variable of the dashboard, with Grafana's own variables filled in."""
    found: list[str] = []

    def look(node: object) -> None:
        match node:
            case dict():
                found.extend(node[key] for key in ("expr", "definition") if isinstance(node.get(key), str))
                for item in node.values():
                    look(item)
            case list():
                for item in node:
                    look(item)
            case _:
                pass

    look(json.loads(DASHBOARD.read_text()))
    return [re.sub(r"\$\w+", ".*", re.sub(r"^label_values\((.*), \w+\)$", r"\1", text)) for text in found]


def test_the_rules_hold_what_they_say(promtool: Path) -> None:
    run(promtool, "check", "rules", RULES)
    run(promtool, "test", "rules", RULES_TESTS)


def test_every_alert_is_tested_where_it_fires_and_where_it_does_not() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tests = RULES_TESTS.read_text()
    assert len(alerts) > 15
    assert not [name for name in alerts if f"name: {name} fires" not in tests or f"name: {name} is quiet" not in tests]


def test_every_expression_of_the_dashboard_is_promql(promtool: Path, tmp_path: Path) -> None:
    assert len(expressions()) > 30
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    run(promtool, "check", "rules", file)


@pytest.mark.parametrize("text", [RULES.read_text(), RULES_TESTS.read_text(), "\n".join(expressions())])
def test_every_name_is_one_that_is_emitted(text: str) -> None:
    used = {*re.findall(r"\b(?:extralife|node_textfile)_[a-z0-9_]+", text)}
    assert len(used) > 10
    assert used <= emitted() | FOREIGN


def test_every_panel_of_the_dashboard_shows_something_of_a_night_with_all_faults(prometheus: str) -> None:
    known = set(re.findall(r"^(extralife_\w+)", recorded().decode(), re.MULTILINE))
    unread = {text for text in expressions() if not set(re.findall(r"extralife_\w+", text)) <= known}
    assert len(unread) < 8, "the host was not read in that night, and no program was a service"
    empty = {text for text in expressions() if not query(prometheus, text)} - unread
    assert [text for text in empty if "changes(extralife_host_boot_time" not in text] == [], "no reboot within these seconds"


def test_promtool_finds_nothing_to_say_about_the_metrics(promtool: Path) -> None:
    for text in (recorded(), encoded(metrics_view(FakeSources(State())), TEXT)):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    board = json.loads(DASHBOARD.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells
