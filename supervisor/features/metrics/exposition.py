"""Families of metrics as text: Prometheus' format 0.0.4 and OpenMetrics 1.0. Pure.

Why not prometheus-client's encoder: for 500 programs (23,500 series) it takes 7 times as long for text, and 12 times for
OpenMetrics (237 ms, `bench/metrics.py`); a scrape may take 50 ms. The tests read this output with that library.

https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import isfinite
from typing import Final, Literal

from supervisor.records import Record

PREFIX: Final = "extralife_"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The unit is the last word of a name, as OpenMetrics requires. So a family has no field for it.
UNITS: Final = frozenset({"seconds", "bytes", "ratio", "celsius", "watts", "steps", "dollars"})

Labels = tuple[str, ...]


class Family(Record):
    """One metric. `name` is without the `_total` of a counter and the `_info` of an info. `labels` are the labels' names."""

    name: str
    kind: Literal["gauge", "counter", "info"]
    help: str
    labels: Labels = ()
    samples: Sequence[tuple[Labels, float]] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """The unit in the name; empty: the name has none of `UNITS`."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""


def wanted(accept: str) -> str:
    """The content type of the answer: OpenMetrics if the client accepts it and does not prefer plain text.

    Example: `application/openmetrics-text;version=1.0.0,text/plain;q=0.5` gives OpenMetrics; `*/*` or no header gives text.
    """
    weights = dict[str, float]()
    for part in accept.split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weight = next((word.removeprefix("q=") for word in parameters if word.startswith("q=")), "1")
        with contextlib.suppress(ValueError):
            weights[name] = max(weights.get(name, 0.0), float(weight))
    open_metrics = weights.get("application/openmetrics-text", 0.0)
    return OPENMETRICS if open_metrics > 0.0 and open_metrics >= weights.get("text/plain", 0.0) else TEXT


def encoded(families: Iterable[Family], content_type: str) -> bytes:
    """All families as one document. A family without samples is left out: an unknown value is absent."""
    open_metrics = content_type == OPENMETRICS
    rendered: dict[tuple[Labels, Labels], str] = {}
    pieces: list[str] = []
    for family in families:
        if family.samples:
            pieces += _head(family, open_metrics=open_metrics)
            pieces += _lines(family, rendered)
    return "".join([*pieces, "# EOF\n" if open_metrics else ""]).encode("utf-8", "backslashreplace")


_SUFFIX: Final = {"counter": "_total", "info": "_info", "gauge": ""}


def _head(family: Family, *, open_metrics: bool) -> list[str]:
    if open_metrics:
        unit = [f"# UNIT {family.name} {family.unit}\n"] if family.unit else []
        return [f"# HELP {family.name} {_escaped(family.help)}\n", f"# TYPE {family.name} {family.kind}\n", *unit]
    name = family.name + _SUFFIX[family.kind]
    help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {help_text}\n", f"# TYPE {name} {'gauge' if family.kind == 'info' else family.kind}\n"]


def _lines(family: Family, rendered: dict[tuple[Labels, Labels], str]) -> list[str]:
    name, labels = family.name + _SUFFIX[family.kind], family.labels
    lines = []
    for values, value in family.samples:
        known = rendered.get((labels, values))
        if known is None:  # most families have the same labels: those of the programs
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(labels, values, strict=True))
            known = rendered[labels, values] = f"{{{pairs}}}" if pairs else ""
        if isfinite(value):
            lines.append(f"{name}{known} {float(value)!r}\n")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
