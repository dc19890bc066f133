"""Notices about this box's end from the metadata services of AWS, Google and Azure.

Each source asks as the provider documents it, and accepts an answer only in the documented form. A service that gives no
answer, or another one, announces nothing: neither that the box ends nor that it does not. An end counts even if the service
does not answer the other request, which could only announce less.

* AWS: `spot/instance-action` (two minutes before the end) and `events/recommendations/rebalance` (a risk). Status 404 means
  that there is no notice. A session token comes first (IMDSv2); if the service issues none (IMDSv1), the request goes
  without.
* Google: `instance/preempted` (30 s before the end), and `maintenance-event`, of which only a termination counts: a live
  migration is not an end.
* Azure: scheduled events for this machine. The same answer also contains those of other machines of its group. A freeze of
  some seconds is not an end. Events are never acknowledged (StartRequests): that would only make the end come earlier.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from supervisor.adapters.notices.web import Answer, Unreadable, Web, bad_status, unparseable
from supervisor.policy.box import wall_clock
from supervisor.policy.upkeep.notices import AWS, AZURE, END, GOOGLE, RISK, EndNotice
from supervisor.ports import Clock
from supervisor.printable import printable
from supervisor.records import dataclass

_TOKEN_S: Final = 21_600
_TOKEN_HEADER: Final = "X-aws-ec2-metadata-token"  # noqa: S105  a header's name
_PREEMPTED_S: Final = 30.0
_AZURE_ENDS: Final = frozenset({"Preempt", "Terminate", "Reboot", "Redeploy"})
_AZURE_EVENTS: Final = "/metadata/scheduledevents?api-version=2020-07-01"
_AZURE_NAME: Final = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_SHOWN: Final = 200


class Source(Protocol):
    """One source of notices about the end of this box."""

    def read(self) -> tuple[EndNotice, ...]:
        """All notices that it announces at the moment. Raises Unreadable."""
        ...


@dataclass(slots=True)
class NoticeTimes:
    """Converts times of the provider to journal time. A notice that only says "soon" counts from when it was first seen."""

    clock: Clock
    seen: dict[str, float] = field(default_factory=dict)

    def at(self, wall_s: float, answer: Answer) -> float | None:
        """Converts a time by the service's clock, or else by this box's clock. None if neither clock is set."""
        if answer.date_wall_s is not None:
            return self.clock.now_s() + wall_s - answer.date_wall_s
        return self.clock.now_s() + wall_s - self.clock.wall_s() if wall_clock.is_set(self.clock.wall_s()) else None

    def soon(self, id_: str, left_s: float) -> float:
        return self.seen.setdefault(id_, self.clock.now_s() + left_s)

    def forget_but(self, *ids: str) -> None:
        for gone in self.seen.keys() - set(ids):
            del self.seen[gone]


class Aws:
    """EC2: IMDSv2."""

    def __init__(self, web: Web, clock: Clock) -> None:
        self._web, self._times, self._token = web, NoticeTimes(clock), ""
        self._asks_token_s = 0.0
        self._risks: tuple[EndNotice, ...] = ()  # as last read

    def read(self) -> tuple[EndNotice, ...]:
        action = self._get("/latest/meta-data/spot/instance-action")
        found = []
        if action is not None:
            body = _object(action)
            what, at_s = body.get("action"), _iso(body.get("time"))
            if what not in ("terminate", "stop", "hibernate") or at_s is None:
                raise unparseable(action)
            found.append(EndNotice(f"aws {what}", AWS, END, f"spot {what}", self._times.at(at_s, action)))
        try:
            self._risks = self._read_risks()
        except Unreadable:
            if not found:
                raise
        return (*found, *self._risks)

    def _read_risks(self) -> tuple[EndNotice, ...]:
        rebalance = self._get("/latest/meta-data/events/recommendations/rebalance")
        if rebalance is None:
            return ()
        if _iso(_object(rebalance).get("noticeTime")) is None:
            raise unparseable(rebalance)
        return (EndNotice("aws rebalance", AWS, RISK, "rebalance recommendation"),)

    def _get(self, path: str) -> Answer | None:
        """The service's answer; None: status 404, there is no notice."""
        answer = self._web.ask(path, self._headers())
        if answer.status == 401:  # the token has expired
            self._token, self._asks_token_s = "", 0.0
            answer = self._web.ask(path, self._headers())
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise bad_status(answer, path)
        return answer

    def _headers(self) -> dict[str, str]:
        now_s = self._times.clock.now_s()
        if now_s >= self._asks_token_s:
            answer = self._web.ask("/latest/api/token", {f"{_TOKEN_HEADER}-ttl-seconds": str(_TOKEN_S)}, "PUT")
            if answer.status == 200 and not _is_token(answer.body):
                raise unparseable(answer)
            self._token = answer.body if answer.status == 200 else ""
            self._asks_token_s = now_s + _TOKEN_S / 2
        return {_TOKEN_HEADER: self._token} if self._token else {}


class Google:
    """Compute Engine."""

    def __init__(self, web: Web, clock: Clock) -> None:
        self._web, self._times = web, NoticeTimes(clock)

    def read(self) -> tuple[EndNotice, ...]:
        preempted = self._get("preempted")
        if preempted is not None and preempted.body.strip() not in {"TRUE", "FALSE"}:
            raise unparseable(preempted)
        if preempted is not None and preempted.body.strip() == "TRUE":
            until_s = self._times.soon("google preempted", _PREEMPTED_S)
            return (EndNotice("google preempted", GOOGLE, END, "preempted", until_s),)
        self._times.forget_but()
        maintained = self._get("maintenance-event")
        if maintained is not None and maintained.body.strip().startswith("TERMINATE"):
            return (EndNotice("google maintenance", GOOGLE, END, "it ends for maintenance of its host"),)
        return ()

    def _get(self, key: str) -> Answer | None:
        path = f"/computeMetadata/v1/instance/{key}"
        answer = self._web.ask(path, {"Metadata-Flavor": "Google", "Host": "metadata.google.internal"})
        if answer.headers.get("metadata-flavor") != "Google":
            raise Unreadable("it does not say that it is Google's (Metadata-Flavor)")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise bad_status(answer, path)
        return answer


class Azure:
    """Virtual machines: scheduled events."""

    def __init__(self, web: Web, clock: Clock) -> None:
        self._web, self._times, self._name = web, NoticeTimes(clock), ""

    def read(self) -> tuple[EndNotice, ...]:
        name = self._name or self._own_name()
        answer = self._get(_AZURE_EVENTS)
        events = _object(answer).get("Events")
        if not isinstance(events, list) or not all(isinstance(each, dict) for each in events):
            raise unparseable(answer)
        found = [self._notice(each, answer) for each in events if _is_ours(each, name, answer)]
        self._times.forget_but(*(each.id for each in found))
        return tuple(found)

    def _notice(self, event: dict[str, Any], answer: Answer) -> EndNotice:
        what, source, not_before = event["EventType"], event.get("EventSource"), event.get("NotBefore")
        id_ = f"azure {event.get('EventId')}"[:_SHOWN]
        reason = f"{what} (by {source})" if source in {"Platform", "User"} else what
        if not not_before:  # the event has begun
            return EndNotice(id_, AZURE, END, reason, self._times.soon(id_, 0.0))
        try:
            at_s = parsedate_to_datetime(str(not_before)).timestamp()
        except (ValueError, TypeError, OverflowError):
            raise unparseable(answer) from None
        return EndNotice(id_, AZURE, END, reason, self._times.at(at_s, answer))

    def _own_name(self) -> str:
        answer = self._get(_AZURE_NAME)
        self._name = answer.body.strip().lower()
        if not self._name:
            raise unparseable(answer)
        return self._name

    def _get(self, path: str) -> Answer:
        answer = self._web.ask(path, {"Metadata": "true"})
        if answer.status != 200:
            raise bad_status(answer, path)
        return answer


PROVIDERS: Final[dict[str, Callable[[Web, Clock], Source]]] = {AWS: Aws, GOOGLE: Google, AZURE: Azure}


def _is_ours(event: dict[str, Any], name: str, answer: Answer) -> bool:
    """Whether the event ends this machine. An event that names no machine applies to all of them."""
    resources = event.get("Resources", [])
    if not isinstance(resources, list) or not isinstance(event.get("EventType"), str):
        raise unparseable(answer)
    named = {str(each).lower() for each in resources}
    return event["EventType"] in _AZURE_ENDS and (not named or name in named)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise unparseable(answer) from None
    if not isinstance(body, dict):
        raise unparseable(answer)
    return body


def _iso(text: object) -> float | None:
    """`2026-11-23T08:22:00Z` as seconds since the epoch."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if found is None:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _is_token(text: str) -> bool:
    return 0 < len(text) <= 1024 and text.isascii() and text.isprintable() and printable(text) == text
