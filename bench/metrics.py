"""The cost of a scrape of /metrics with 500 running programs: cold (in a new loop turn), cached, and by prometheus-client.

Usage: .venv/bin/python bench/metrics.py [--programs 500] [--rounds 30]. It uses a real server on a real unix socket; its
state is a real fold, and every program trains and reports its figures. Minimum, median and maximum of the rounds.
prometheus-client encodes the same families for comparison. Prints a table and writes bench/results/metrics.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "core"), str(ROOT / "tests" / "api")]

from core_kit import Core, settings  # noqa: E402
from fake_backend import FakeBackend  # noqa: E402
from fakes import FakeSources  # noqa: E402
from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric  # noqa: E402
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics  # noqa: E402
from serving import served  # noqa: E402

from supervisor.features.metrics.exposition import OPENMETRICS, TEXT, Family, encoded  # noqa: E402
from supervisor.features.metrics.families import metrics_view  # noqa: E402

_FORMATS = {"text": TEXT, "OpenMetrics": OPENMETRICS}
_FIGURES = (
    "mean_return", "loss", "q_mean", "q_max_abs", "q_bound", "grad_norm", "updates", "best_return", "first_return",
    "share_act", "share_env", "share_learn", "share_copy", "share_save", "test_return", "entropy", "entropy_share",
)  # fmt: skip


def night(count: int) -> FakeSources:
    """A state in which `count` programs train."""
    names = [f"Game{number:03}" for number in range(count)]
    core = Core(settings(*names, slots=count), checks=10**9).running(*names)
    shared = {"frames": 40_000, "episodes": 12, "ckpt_count": 3, "ckpt_step": 9_000, "ckpt_at_s": 0.5, "steps_per_s": 812.5}
    shared |= {"rss_bytes": 2**30, "num_envs": 64, "batch_size": 512, "memory_bytes": 2**30}
    core.look(
        **{
            name: {"steps": 10_000 + place, **shared, **dict.fromkeys(_FIGURES, place / 7)}
            for place, name in enumerate(names)
        }
    )
    return FakeSources(core.state, core.settings, core.memory, core.journal, core.now_s)


class Backend(FakeBackend):
    """A backend whose `new_turn` makes the next scrape cold."""

    def __init__(self, sources: FakeSources) -> None:
        super().__init__()
        self._sources, self._turn = sources, object()

    def new_turn(self) -> None:
        self._turn = object()

    def turn(self) -> object:
        return self._turn

    def metrics(self) -> list[Family]:
        return metrics_view(self._sources)


def timed(call: Callable[[], Any], rounds: int, before: Callable[[], None] = lambda: None) -> dict[str, float]:
    took_s = []
    for _ in range(rounds):
        before()
        began_s = time.perf_counter()
        call()
        took_s.append(time.perf_counter() - began_s)
    return {"least_ms": min(took_s) * 1e3, "median_ms": statistics.median(took_s) * 1e3, "most_ms": max(took_s) * 1e3}


class ByTheLibrary:
    """The same families as a collector of prometheus-client."""

    def __init__(self, sources: FakeSources) -> None:
        self._sources = sources
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)  # type: ignore[arg-type]

    def collect(self) -> list[Metric]:
        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}
        made: list[Metric] = []
        for family in metrics_view(self._sources):
            metric = kinds[family.kind](family.name, family.help, labels=family.labels)
            for values, value in family.samples:
                if family.kind == "info":
                    metric.add_metric([], dict(zip(family.labels, values, strict=True)))
                else:
                    metric.add_metric(values, value)
            made.append(metric)
        return made


def scrape(path: Path, accept: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        return answer.read()


def measured(count: int, rounds: int) -> dict[str, Any]:
    sources = night(count)
    backend, library = Backend(sources), ByTheLibrary(sources)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, served(backend, Path(name) / "s.sock"):
        path = Path(name) / "s.sock"
        for title, accept in _FORMATS.items():
            data = scrape(path, accept)
            by = generate_latest if accept == TEXT else generate_openmetrics
            found[title] = {
                "bytes": len(data),
                "series": sum(not line.startswith(b"#") for line in data.splitlines()),
                "cold": timed(lambda a=accept: scrape(path, a), rounds, backend.new_turn),
                "cached": timed(lambda a=accept: scrape(path, a), rounds),
                "made": timed(lambda a=accept: encoded(metrics_view(sources), a), rounds),
                "by_prometheus_client": timed(lambda b=by: b(library.registry), rounds),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    found = measured(given.programs, given.rounds)
    print(f"{given.programs} running programs, {given.rounds} rounds, milliseconds as least / median / most")
    for title, each in found.items():
        print(f"\n{title}: {each['series']:,} series, {each['bytes']:,} bytes")
        for kind in ("cold", "cached", "made", "by_prometheus_client"):
            row = each[kind]
            print(f"  {kind.replace('_', ' '):22} {row['least_ms']:7.1f} / {row['median_ms']:.1f} / {row['most_ms']:.1f}")
    out = ROOT / "bench" / "results"
    out.mkdir(exist_ok=True)
    about = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "programs": given.programs}
    (out / "metrics.json").write_text(json.dumps(about | {"formats": found}, indent=1))


if __name__ == "__main__":
    main()
