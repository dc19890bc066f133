"""The table of injected and reported causes, the broken invariants, and the JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from chaos.invariants import INVARIANTS
from chaos.run import Run

TARGET_RIGHT = 0.98


def result(run: Run, *, seed: int, took_s: float) -> dict[str, Any]:
    outcomes = Counter(each.outcome for each in run.injections)
    judged = outcomes["right"] + outcomes["wrong"]
    times = sorted(run.probe.times_s)
    return {
        "seed": seed,
        "minutes": round(took_s / 60, 2),
        "programs": list(run.world.programs),
        "injected": len(run.injections),
        "left_out": len(run.skipped),
        "outcomes": dict(outcomes),
        "right_share": None if not judged else round(outcomes["right"] / judged, 4),
        "broken": [each.to_json() for each in run.board.broken],
        "kinds": kinds(run),
        "looks": run.checker.looks,
        "slowest_look_s": round(run.checker.slowest_look_s, 2),
        "status": {
            "asked": len(times), "median_s": round(statistics.median(times), 4) if times else None,
            "worst_s": round(times[-1], 3) if times else None,
        },
        "daemons": len(run.world.systemd.lives),
        "watchdog_kills": run.world.systemd.watchdog_kills,
        "flat": run.checker.flatness(),
        "facts": len(run.reports.rows),
    }  # fmt: skip


def kinds(run: Run) -> list[dict[str, Any]]:
    """One row for each injected kind."""
    rows = []
    for fault in dict.fromkeys(each.planned.fault for each in run.injections):
        mine = [each for each in run.injections if each.planned.fault is fault]
        count = Counter(each.outcome for each in mine)
        after = [each.after_s for each in mine if each.after_s is not None]
        examples = [each.report for each in mine if each.outcome == "right"][:1]
        wrong = [each.report for each in mine if each.outcome == "wrong"]
        rows.append(
            {
                "kind": fault.name,
                "injected": len(mine),
                "right": count["right"],
                "wrong": count["wrong"],
                "masked": count["masked"],
                "expected": fault.report,
                "reported_instead": wrong,
                "median_after_s": round(statistics.median(after), 1) if after else None,
                "example": examples[0] if examples else "",
            }
        )
    return rows


def text(found: dict[str, Any], again: str) -> str:
    lines = [f"{'injected':<24}{'times':>6}{'right':>7}{'wrong':>7}{'masked':>8}{'after':>8}  reported"]
    for row in sorted(found["kinds"], key=lambda row: row["kind"]):
        after = "" if row["median_after_s"] is None else f"{row['median_after_s']:.1f} s"
        report = (row["example"] or row["expected"] or "no report is due")[:110]
        lines.append(
            f"{row['kind']:<24}{row['injected']:>6}{row['right']:>7}{row['wrong']:>7}{row['masked']:>8}{after:>8}  {report}"
        )
        lines += [f"{'':<24}  wrong: {instead[:140]}" for instead in row["reported_instead"]]
    share = found["right_share"]
    status, masked = found["status"], found["outcomes"].get("masked", 0)
    right = "nothing to report" if share is None else f"{share:.1%}"
    lines.append("")
    lines.append(f"{found['injected']} faults in {found['minutes']:.1f} min, {found['left_out']} left out")
    lines.append(f"{found['daemons']} daemons; `status`: median {status['median_s']} s, worst {status['worst_s']} s")
    lines.append(f"reported right: {right} of those not masked ({masked} masked); at least {TARGET_RIGHT:.0%} are wanted")
    lines.append(f"invariants broken: {len(found['broken'])} in {found['looks']} looks")
    for each in found["broken"]:
        lines.append(f"  {each['at_s']:.1f} s  {each['invariant']} ({each['subject']}): {each['text']}")
        lines.append(f"      means: {INVARIANTS[each['invariant']]}")
        lines.append(f"      injected just before: {'; '.join(each['before'])}")
    if not passed(found):
        lines.append(f"again: {again}")
    return "\n".join(lines)


def passed(found: dict[str, Any]) -> bool:
    share = found["right_share"]
    return not found["broken"] and (share is None or share >= TARGET_RIGHT)
