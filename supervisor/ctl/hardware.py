"""GPUs and vetoes in the header of `status`: one line per GPU and one per veto. A box without GPUs has no GPU lines."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text


def lines(daemon: dict[str, Any], now_s: float) -> list[str]:
    """The header lines on GPUs and vetoes."""
    gpu = daemon.get("gpu") or {}
    out = []
    if gpu.get("error"):
        out.append(f"GPUs unknown: {text.printable(gpu['error'])}; decisions ignore them")
    for each in gpu.get("gpus") or []:
        out.append(_gpu(each))
        out += _minute(each)
    for veto in daemon.get("vetoes") or []:
        since, cap = text.duration(now_s - veto["since_wall_s"]), text.printable(veto["cap"])
        above = veto.get("forbids", True)  # an older daemon does not send this key
        what = f"levels above {cap} are vetoed, {since} so far" if above else f"pre-check for {since}"
        out.append(f"{what} ({text.printable(veto['rule'])}): {text.printable(veto['why'])}")
    return out


def _gpu(gpu: dict[str, Any]) -> str:
    name = f"GPU {gpu['index']}" + (f" {text.printable(gpu['name'])}" if gpu["name"] else "")
    if gpu["lost"]:
        return f"{name}: lost: {text.printable(gpu['lost'])}"
    busy, heat, limit = gpu["utilisation"], gpu["temperature_c"], gpu["slowdown_c"]
    parts = [f"{text.mib(gpu['free_bytes'])} of {text.mib(gpu['total_bytes'])} free"]
    parts += [f"{busy:.0f} % busy"] if busy is not None else []
    if heat is not None:
        parts.append(f"{heat:.0f} C" + (f" (slows down at {limit:.0f})" if limit is not None else ""))
    parts += [f"{gpu['power_w']:.0f} W"] if gpu.get("power_w") is not None else []
    parts += (
        [f"clocks limited by {', '.join(gpu['reasons'])}"] if set(gpu["reasons"] or ()) - {"idle", "clocks_setting"} else []
    )
    return f"{name}: {', '.join(parts)}"


def _minute(gpu: dict[str, Any]) -> list[str]:
    """One line on the last minute, for each phase of the workers: the most memory, and the mean utilisation."""
    parts = []
    for each in gpu.get("by_phase") or []:
        used, busy = each["used"], each["utilisation"]
        shown = [f"up to {text.mib(used['most'])}"] if used else []
        shown += [f"{busy['mean']:.0f} % busy"] if busy else []
        parts += [f"{text.printable(each['phase'])} {', '.join(shown)}"] if shown else []
    return [f"  in the last minute: {'; '.join(parts)}"] if parts else []
