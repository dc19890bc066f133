"""Which alerts are sent, when, and which are combined into one.

The rule, for an alert that is raised now:

1. Its kind is not wanted (`kinds`), or it is less severe than `min_severity`: it is not sent.
2. The same kind for the same program was sent within the last `same_within_s`: the alert is held. For a critical one only
   earlier critical ones count: `extralife restarts itself` must not hold back that it no longer can.
3. Otherwise it costs a token. The bucket holds `at_most_per_h` tokens, is full at first, and gets one back every 1 h /
   `at_most_per_h`. Without a token the alert is held.

Held alerts are counted by kind and program, and sent as one alert once 2 and 3 allow it: silence would look like health.

Worked example, `at_most_per_h = 12`, `same_within_s = 3600`: Pong's breaker opens at 2:00, and 12 more times up to 2:50.
One alert is sent at 2:00, the others are held, and one at 3:00 says `12 alerts of this kind in the last hour`.

A sent alert waits for each target (a URL, the command) until that target has accepted it. After a failure of a target, the
next try is after 15, 30, 60 ... 900 s, the oldest alert first. An alert that a target got without an answer in time may have
arrived: it is dropped, not sent again. An alert that a target has not accepted after `keep_days` is dropped, and so are the
oldest of more than 100. The next alert that this target accepts reports how many were dropped.

Why not a limit by windows (12 in each clock hour): it would allow 24 in a minute, around the full hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Final

from supervisor.features.alerts.settings import AlertSettings
from supervisor.formats import span
from supervisor.policy.upkeep.alarm import CRITICAL, DO, DONE, INFO, NOTHING, SEVERITIES, WARNING, Notice
from supervisor.records import Record

REPORT: Final = "report"
ALWAYS: Final = frozenset({REPORT, DONE})  # the operator has configured them, and each comes rarely: never held back
MOST_OWED: Final = 100
_HOUR_S: Final = 3600.0
_FIRST_RETRY_S: Final = 15.0
_LONGEST_RETRY_S: Final = 900.0


class Kind(Record):
    """The MESSAGE_ID in systemd's journal (never change it: people filter by it), what happened, and what you must do.

    `words` say what happened: of a critical alert, of a warning, of an info; the last one stands for milder ones, too.
    `do` is empty if extralife has done everything already. It holds for alerts of at least the severity `do_from`.
    """

    message_id: str
    words: tuple[str, ...]
    do: str = ""
    do_from: str = WARNING


_EXPLAIN: Final = "extralifectl explain {program}"
KINDS: Final[dict[str, Kind]] = {  # docs/alerts.md has their meanings
    "reboot": Kind("dd8602d3be0647a6befbeb274eabd778", ("rebooted",)),
    "level": Kind("04b21ab7e22941cc89972a5e82ab1274", ("trains at a lower level after a reboot",)),
    "fatal": Kind(
        "28fc5e657fed466f8bc5c766b33c713b",
        ("given up", "ended, perhaps before its target"),
        f"{_EXPLAIN}, correct the cause, then extralifectl start {{program}}",
    ),
    "breaker": Kind("9a3c697dbacd461992fe1151a08d44df", ("fails repeatedly",), _EXPLAIN),
    "quarantine": Kind("691bfcd26c4440bc9b9bde5edb080013", ("a checkpoint was set aside",)),
    "checkpoint": Kind("3a3c3878e81246749a301ac757785698", ("trouble with a checkpoint",), _EXPLAIN),
    "unproven": Kind("5f0d1c9a7b7e4f0e9c1d3a4ce2b86d17", ("restarted, and how much work was lost is unknown",)),
    "still": Kind("b7c21b0f4d1c4f5e8a3d6f0e92c47a58", ("works, but makes no steps",), _EXPLAIN),
    "ailing": Kind("d2f0a6c35e814b7c9a40e1b8c7d3f695", ("trains badly",), _EXPLAIN),
    "unhealthy": Kind("96d83786af3846719fba188c03ee1ead", ("does not answer, and is restarted",)),
    "unended": Kind(
        "5b8e3d0c7f1a49b2860de4c79f25a1d3", ("cannot be ended",), "as its user or root, end the process that the alert names"
    ),
    "background": Kind(
        "c1e6b0f2a7d34e58b9c4d2f10a6e8735",
        ("trains in the background",),
        "let the command of {program} stay in the foreground",
    ),
    "disk": Kind("a31eadf44b6947899cfcb620fea4e3e9", ("a disk is full",), "free space (df -h)"),
    "gpu": Kind(
        "6ddc2545566941c48fe43765f53460f1",
        ("a GPU is lost or in error", "its GPUs have changed"),
        "nvidia-smi, then reset the GPU or reboot the box",
        CRITICAL,
    ),
    "backup": Kind("8b471541574c4f5b90f1030dfa868f1d", ("a backup failed or lacks a program",), "extralifectl backups"),
    "offsite": Kind(
        "0c9d5a4be1f04f0f9d3c6a8f27d1b6e4",
        ("trouble with the copies off the box", "a copy off the box lacks a program"),
        "extralifectl offsite status",
    ),
    "notice": Kind(
        "e4f1c7a5b2d84c0fa3c96d1be870f5c2",
        ("this box ends", "this box may end", "this box does not end"),
        "rent the next box; extralifectl offsite status shows the copy that it continues",
        CRITICAL,
    ),
    "next_box": Kind(
        "3c5d7e0b9a8f4d12b6e1f0a4c2975d38",
        ("the next box could not be rented", "trouble with the next box", "the next box is rented"),
        "extralifectl next-box keep says more; its log has all",
        CRITICAL,
    ),
    "daemon": Kind("7165f5c801d44a20aa4e14e143269604", ("extralife ended, and has started again",)),
    "journal": Kind("b262a1e13e3949e892af1a55c605f31e", ("trouble with extralife's journal",), "check the disk (dmesg)"),
    "foundation": Kind(
        "6b1de7d1f37c4b7e9a0f6f4c2f0f3b55",
        ("files of extralife are gone", "a file of extralife has changed", "the files of extralife are back"),
        "extralifectl doctor",
        CRITICAL,
    ),
    "config": Kind(
        "68cf6726e7ab4874bf4d4dbd52cf4f8a",
        ("the configuration cannot be used",),
        "correct the file, then extralifectl update",
    ),
    "finished": Kind("83dc2f89fb064928bbf328640fdf84c1", ("has reached its target",)),
    DONE: Kind(
        "6f0a1d3c8b5e4f7a9d2c4b1e7a90c3d8",
        ("this box is about to stop",),
        "extralifectl report; extralifectl when-done cancel keeps the box",
    ),
    "meter": Kind(
        "a4d7c2e95b184f60b3e8d1f7c6a2905e",
        ("this box could not be stopped, and costs money",),
        "stop this box at its provider",
    ),
    "service": Kind(
        "d757b11095ea415f937f85215e71ad07", ("extralife does not run",), "journalctl -u extralife, then extralifectl doctor"
    ),
    REPORT: Kind("2f0d3c1e5a9b4c67b1d8e4f7a6c5092d", ("daily report",)),
    "test": Kind("315af56f4e5b4ddea33e8e6214f42414", ("a test",)),
}


class Gone(Record):
    """The alerts sent so far: the tokens after the newest one, and when each kind and program was last sent."""

    tokens: float | None = None  # None: full
    at_s: float = 0.0
    last_s: dict[str, float] = field(default_factory=dict)  # by `same`
    critical_s: dict[str, float] = field(default_factory=dict)  # the same of critical ones alone


def same(kind: str, program: str) -> str:
    """The key that two alerts of the same kind and program share."""
    return f"{kind}/{program}"


def wanted(rules: AlertSettings, kind: str, severity: str) -> bool:
    if kind in ALWAYS:
        return True
    return (not rules.kinds or kind in rules.kinds) and SEVERITIES.index(severity) >= SEVERITIES.index(rules.min_severity)


def tokens(rules: AlertSettings, gone: Gone, now_s: float) -> float:
    """The tokens in the bucket now. Example, 12 an hour: empty at 2:00 it holds one at 2:05, and is full at 3:00."""
    most = float(rules.at_most_per_h)
    return most if gone.tokens is None else min(most, gone.tokens + max(0.0, now_s - gone.at_s) * most / _HOUR_S)


def due_s(rules: AlertSettings, gone: Gone, key: str, now_s: float, severity: str = INFO) -> float:
    """When the next alert of this key (`same`) may be sent; `now_s` or earlier: at once."""
    last_s = gone.critical_s if severity == CRITICAL else gone.last_s
    again_s = last_s[key] + rules.same_within_s if key in last_s else now_s
    lacking = 1.0 - tokens(rules, gone, now_s)
    # A millisecond later than computed: a deadline that is too early by rounding would be set again and again.
    return max(again_s, now_s + lacking * _HOUR_S / rules.at_most_per_h + 1e-3 if lacking > 0 else now_s)


def retry_s(failures: int) -> float:
    """Seconds until the next try after so many failures in a row. Example: 15, 30, 60 ... 900 s."""
    return min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(failures - 1, 10))


def overdue(rules: AlertSettings, raised: Iterable[tuple[str, float]], now_s: float) -> tuple[str, ...]:
    """The alerts to drop, among those that wait for one target ((id, time raised) each, oldest first).

    The comparison uses `at_s + keep_s`, exactly as the deadline does: at the deadline, rounding may make the difference
    `now_s - at_s` smaller than `keep_s`.
    """
    waiting = list(raised)
    spare = len(waiting) - MOST_OWED
    return tuple(id_ for place, (id_, at_s) in enumerate(waiting) if place < spare or now_s >= at_s + rules.keep_s)


def summary(count: int, newest: str, for_s: float) -> str:
    """The text for held alerts: `12 alerts of this kind in the last hour, the newest: ...`; one alone keeps its text."""
    if count == 1:
        return newest
    last = "hour" if for_s <= _HOUR_S else span(for_s)
    return f"{count} alerts of this kind in the last {last}, the newest: {newest}"


def action(notice: Notice) -> str:
    """`Nothing to do`, or such as `Do: extralifectl explain Pong`."""
    kind = KINDS[notice.kind]
    if notice.kind == REPORT:
        return f"{DO}read its first line" if notice.text.startswith(DO) else NOTHING
    if not kind.do or SEVERITIES.index(notice.severity) < SEVERITIES.index(kind.do_from):
        return NOTHING
    return DO + kind.do.format(program=notice.program)


def title(notice: Notice, host: str) -> str:
    """What happened, and where: `Pong on box: given up`."""
    words = KINDS[notice.kind].words
    mild = len(SEVERITIES) - 1 - SEVERITIES.index(notice.severity)
    where = f"{notice.program} on {host}" if notice.program else host
    return f"{where}: {words[min(mild, len(words) - 1)]}"


def body(notice: Notice, link: str = "") -> str:
    """The text, what to do, the number of alerts dropped before it, the address of the dashboard, and the id."""
    lines = [notice.text, *([] if notice.kind == REPORT else [f"{action(notice)}."])]
    if notice.dropped:
        lines.append(f"({notice.dropped} earlier alert{'' if notice.dropped == 1 else 's'} may not have arrived)")
    lines += [link] if link else []
    return "\n".join([*lines, f"[{notice.severity}, id {notice.id}]"])
