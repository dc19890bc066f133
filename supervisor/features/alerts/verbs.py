"""`alerts` and `alerts test`: the targets, the alerts that wait for each, and whether deliveries succeed."""

from __future__ import annotations

import os
from typing import Any

from supervisor import discovery
from supervisor.ctl import text
from supervisor.ctl.locate import settings
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed, Unreachable
from supervisor.ctl.session import Session, parse_options
from supervisor.formats import span


def alerts(session: Session, args: list[str]) -> int:
    """`alerts [test] [--json]`.

    The targets, the alerts that wait and those delivered; `test` sends one to every target now and shows the result.
    """
    words, options = parse_options(args, "--json")
    if words == ["test"]:
        return _test(session, options)
    if words:
        raise Failed(f"Error: alerts takes `test` or nothing, not {' '.join(words)!r}", USAGE)
    session.warn_if_dead(to_stdout="--json" not in options)
    found = session.page("alerts")
    session.show(found, page, options)
    return GENERIC if any(each["state"] == "failing" for each in found["targets"]) else OK


def _test(session: Session, options: dict[str, str]) -> int:
    """Send one alert to every target now, even if others wait. Return 0 when every target has accepted it."""
    try:
        tried = session.client.post("/api/v1/alerts/test", {})["tried"]
    except Unreachable as gone:
        session.require_dead(gone)
        # The alerts are sent by this process, with the configuration as it is now.
        from supervisor.config import ConfigError
        from supervisor.features.alerts.adapters.delivery import tested
        from supervisor.features.alerts.config import alone

        try:
            tried = tested(alone(session.options.config_file, os.environ), text.wall_s())["tried"]
        except ConfigError as error:
            raise Failed(str(error)) from error
    known = settings(session.options, secrets=True)
    for each in [] if known is None else discovery.modules("checks"):
        tried += getattr(each, "tested", lambda _: [])(known)  # other ways to reach somebody, such as a heartbeat
    if not tried:
        raise Failed("alerts go nowhere: [alerts] has neither urls nor a command (docs/alerts.md)")
    session.show({"tried": tried}, lambda found: map(_tried, found["tried"]), options)
    return OK if all(each["ok"] for each in tried) else GENERIC


def _tried(each: dict[str, Any]) -> str:
    how = f"accepted in {span(each['took_s'])}" if each["ok"] else f"ERROR ({text.printable(each['error'])})"
    return f"{text.printable(each['target'])}: {how}"


def page(found: dict[str, Any]) -> list[str]:
    """The targets, the waiting alerts, the alerts held back by limits, and the newest deliveries."""
    now_s, lines = text.wall_s(), []
    if not found["targets"]:
        lines.append("alerts go nowhere: [alerts] has neither urls nor a command; history shows what happened")
    lines += [f"{text.printable(each['name'])}: {_how(each, now_s)}" for each in found["targets"]]
    if found["queue"]:
        lines += ["", "waiting:"]
    for each in found["queue"]:
        what = f"{each['severity']:<8}  {each['kind']}: {text.printable(each['text'])}"
        lines.append(f"  {text.when(each['wall_s'], now_s)}  {what}  for {text.printable(', '.join(each['owed']))}")
    if found["held"]:
        lines += ["", "held back by the limits, then sent as one alert each:"]
    lines += [
        f"  {each['count']} x {each['kind']}{_about(each)} in {text.duration(each['since_s'])}" for each in found["held"]
    ]
    if found["deliveries"]:
        lines += ["", "delivered:"]
    for each in reversed(found["deliveries"]):
        when, target = text.when(each["wall_s"], now_s), text.printable(each["target"])
        lines.append(f"  {when}  {each['kind']}{_about(each)} to {target}, after {text.duration(each['after_s'])}")
    return lines


def _how(target: dict[str, Any], now_s: float) -> str:
    waiting = f"{target['waiting']} waiting" if target["waiting"] else "nothing waiting"
    parts = [waiting]
    if target["state"] == "failing":
        since = text.duration(now_s - target["failing_since_wall_s"])
        again = "" if target["retry_in_s"] is None else f", next try in {text.duration(target['retry_in_s'])}"
        parts.append(f"FAILING for {since} ({text.printable(target['error'])}){again}")
    if target["dropped"]:
        parts.append(f"{target['dropped']} dropped")
    if target["last_wall_s"] is not None:
        parts.append(f"accepted the last {text.duration(now_s - target['last_wall_s'])} ago")
    if not target["configured"]:
        parts.append("not in the configuration")
    return ", ".join(parts)


def _about(each: dict[str, Any]) -> str:
    return f" of {text.printable(each['program'])}" if each["program"] else ""
