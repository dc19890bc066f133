"""The report as one HTML file with its pictures inside: no script and no request, so a mail client shows it too."""

from __future__ import annotations

import html as markup

from supervisor.api.night import headline, other_levels, until_done
from supervisor.ctl import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_WIDE, _BAND, _LINE = 720, 18, 24
_TITLES = ("Program", "State", "Trained", "Kept steps", "Lost", "Failures", "Return", "Best", "Done in")
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 18px; } h2 { font-size: 15px; margin: 1.5rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .2rem .6rem; text-align: right; white-space: nowrap; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
th { font-weight: 600; border-bottom: 1px solid #888; } svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.l0 { fill: #bbb; } .l1 { fill: #7aa6c9; } .l2 { fill: #0072b2; } .trial { opacity: .5; } .off { fill: #d55e00; }
.run { fill: #7aa6c9; } .wait { fill: #bbb; } .down { fill: #d55e00; }
.curve { fill: none; stroke: #0072b2; stroke-width: 1.5; }
"""
_GAP_PERIODS = 2.5  # as on the dashboard: the curve is interrupted after a longer time without points
_RUNS, _DOWN = {"RUNNING"}, {"BACKOFF", "FATAL", "OFF"}


def html(
    found: dict[str, Any], rows: list[tuple[str, ...]], timeline: dict[str, Any], curves: dict[str, Any]
) -> list[str]:  # fmt: skip
    """The lines of the file, from the pages report, timeline and curves of one window. `rows`: the cells of each program."""
    title = _safe(headline(found))
    lanes = {each["name"]: each["spans"] for each in timeline["programs"]}
    drawn = {each["program"]: each for each in curves["subjects"]}
    broke = [
        f"{group['count']} x {_safe(group['what'])}{_where(group)}; newest "
        f"{_safe(text.when(group['newest_wall_s'], found['until_wall_s']))}: {_safe(group['why'])}"
        for group in found["broke"]
    ]
    return [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">',
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        "<h2>What trained</h2>", '<div class="scroll"><table><thead><tr>',
        *(f"<th>{name}</th>" for name in _TITLES), "</tr></thead><tbody>",
        *(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows),
        "</tbody></table></div>",
        "<h2>Levels and states</h2>", *_picture(found, timeline, lanes),
        *_returns(found, drawn, timeline, _GAP_PERIODS * curves["period_s"]),
        "<h2>What broke</h2>", *_list(broke),
        "<h2>What comes next</h2>", f"<p>{_safe(until_done(found['next']))}</p>",
        *(f"<p>{_safe(line)}</p>" for line in other_levels(found["levels"])),
        "<h2>What needs you</h2>",
        *_list([_safe(each) for each in found["needs"]]),
        "</body></html>",
    ]  # fmt: skip


def _list(items: list[str]) -> list[str]:
    return ["<ul>", *(f"<li>{item}</li>" for item in items), "</ul>"] if items else ["<p>Nothing.</p>"]


def _safe(said: object) -> str:
    """Untrusted text, escaped for HTML."""
    return markup.escape(text.printable(said))


def _where(group: dict[str, Any]) -> str:
    return f" ({', '.join(map(_safe, group['programs']))})" if group["programs"] else ""


def _scale(timeline: dict[str, Any]) -> Callable[[float], float]:
    """Journal time -> x, cut at the ends of the window."""
    begin_s, end_s = timeline["since_s"], timeline["until_s"]
    span_s = max(end_s - begin_s, 1e-9)
    return lambda at_s: _WIDE * (min(max(at_s, begin_s), end_s) - begin_s) / span_s


def _picture(found: dict[str, Any], timeline: dict[str, Any], lanes: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A band for the levels and one for each program's states. Times without the box or daemon cover all bands."""
    x, names = _scale(timeline), [row["name"] for row in found["programs"] if row["name"] in lanes]
    order = {level["name"]: place for place, level in enumerate(found["levels"])}
    high = _LINE * (len(names) + 1)
    out = [f'<svg viewBox="0 0 {_WIDE + 140} {high}" role="img" aria-label="levels and states over time">']
    out += [
        _label(0, "level"),
        *(_bar(x, 0, span, _level_class(order, span), _level_title(span)) for span in timeline["levels"]),
    ]
    for place, name in enumerate(names, 1):
        out += [_label(place, name), *(_bar(x, place, span, _state_class(span), span["phase"]) for span in lanes[name])]
    for span in timeline["box"]:
        out += [_bar(x, place, span, "off", f"{span['kind']}: {span['why']}") for place in range(len(names) + 1)]
    return [*out, "</svg>"]


def _label(place: int, said: str) -> str:
    return f'<text x="{_WIDE + 8}" y="{_LINE * place + 14}">{_safe(text.clip(text.printable(said), 20))}</text>'


def _bar(x: Callable[[float], float], place: int, span: dict[str, Any], kind: str, title: str) -> str:
    left = x(span["from_s"])
    wide = max(1.0, x(span["to_s"]) - left)
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{_LINE * place + 2}" width="{wide:.1f}" height="{_BAND}">'
        f"<title>{_safe(title)}</title></rect>"
    )


def _level_class(order: dict[str, int], span: dict[str, Any]) -> str:
    place = order.get(span["level"], 0)
    return f"l{min(2, place)}{' trial' if span['trial'] else ''}"


def _level_title(span: dict[str, Any]) -> str:
    return f"{span['level']}{' on trial' if span['trial'] else ''}: {span['why']}"


def _state_class(span: dict[str, Any]) -> str:
    return "run" if span["phase"] in _RUNS else "down" if span["phase"] in _DOWN else "wait"


def _returns(
    found: dict[str, Any], drawn: dict[str, dict[str, Any]], timeline: dict[str, Any], gap_s: float
) -> list[str]:  # fmt: skip
    """A small curve of the mean return for every program that has one. Gaps stay gaps."""
    rows = [(row["name"], points) for row in found["programs"] if (points := _points(drawn.get(row["name"]), gap_s))]
    if not rows:
        return []
    x, high, out = _scale(timeline), 3 * _LINE, ["<h2>Mean return</h2>"]
    for name, points in rows:
        values = [value for _, value in points if value is not None]
        low, top = min(values), max(values)
        per = (high - 12) / ((top - low) or 1.0)
        paths = _paths([(x(at_s), None if value is None else high - 6 - per * (value - low)) for at_s, value in points])
        out += [
            f'<svg viewBox="0 0 {_WIDE + 140} {high}" role="img" aria-label="mean return of {_safe(name)}">',
            *(f'<polyline class="curve" points="{path}"/>' for path in paths),
            f'<text x="{_WIDE + 8}" y="14">{_safe(text.clip(text.printable(name), 20))}</text>',
            f'<text x="{_WIDE + 8}" y="32">{low:.1f} to {top:.1f}</text></svg>',
        ]
    return out


def _points(subject: dict[str, Any] | None, gap_s: float) -> list[tuple[float, float | None]]:
    """(journal time, mean or None) of each point; empty if no mean is known. None also marks a time without points."""
    if subject is None:
        return []
    means = subject["series"]["mean_return"]["mean"]
    kept = [mean if keep else None for mean, keep in zip(means, subject["kept"], strict=True)]
    found: list[tuple[float, float | None]] = []
    for at_s, mean in zip(subject["at_s"], kept, strict=True):
        if found and at_s - found[-1][0] > gap_s:
            found.append((at_s, None))
        found.append((at_s, mean))
    return found if any(mean is not None for mean in kept) else []


def _paths(points: list[tuple[float, float | None]]) -> list[str]:
    """One list of coordinates for each stretch without a gap."""
    found: list[list[str]] = [[]]
    for x, y in points:
        if y is None:
            found.append([])
        else:
            found[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(path if len(path) > 1 else path * 2) for path in found if path]
