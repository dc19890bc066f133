"""Why the box went down, from the traces that it left. Decided once, at the first start after the reboot.

The rule; the first match wins:

| evidence | kind |
|---|---|
| the kernel turned the box off because of heat | `thermal` |
| our own record of an orderly end; the system's journal or wtmp ends with a shutdown | `orderly` |
| a dump or the kernel's log has a panic or an oops that ended the box: by its text | `oom`, `hung`, `hardware`, `panic` |
| a grave Xid of the GPU in the last two minutes | `gpu` |
| the kernel ended three or more processes for lack of memory in the last five minutes | `oom` |
| a watchdog device reports that it reset the box | `watchdog` |
| the processor reports what reset it: its heat, the watchdog, an error | `thermal`, `watchdog`, `hardware` |
| the kernel reported tasks or processors that are stuck, in the last ten minutes | `hung` |
| the journal of that boot exists and stops abruptly, or was never written to disk | `power` |
| there is no readable trace | `` (unknown) |

Worked example: the last lines are "INFO: task kworker/0:1:51 blocked for more than 120 seconds." and 40 s without a line:
hung. A journal that stops between two ordinary lines: power, short for "a power cut, or a reset that left no trace".

Why heat comes before an orderly end: the kernel then shuts down in order, but the load was the cause. Why one process that
was ended for its memory is not enough: that costs a worker, not a box; and one in a cgroup with a limit of its own proves
nothing about the box at all.

Why a kind beside `cause`, and not more values of it: readers that look for `unclean` would take a panic for an intended
reboot.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable
from typing import Final

from supervisor.policy.box.prechecks import HARMLESS_XIDS
from supervisor.records import Record

THERMAL, ORDERLY, PANIC, OOM = "thermal", "orderly", "panic", "oom"
HUNG, GPU, WATCHDOG, HARDWARE, POWER, UNKNOWN = "hung", "gpu", "watchdog", "hardware", "power", ""
CONTAINER: Final = "container"  # its host went on: known from the boot id, before any trace is read
SUDDEN: Final = frozenset({PANIC, OOM, HUNG, GPU, WATCHDOG, HARDWARE, POWER, CONTAINER})  # unless `cause` is "orderly"
WORDS: Final = {
    THERMAL: "it switched itself off because of heat", ORDERLY: "it was shut down in order", PANIC: "the kernel panicked",
    OOM: "its memory ran out", HUNG: "it hung", GPU: "its GPU failed", WATCHDOG: "its hardware watchdog reset it",
    HARDWARE: "its hardware failed", POWER: "a power cut, or a reset that left no trace", UNKNOWN: "the reason is unknown",
}  # fmt: skip
_XID_S: Final = 120.0
_STORM_S: Final = 300.0
_STORM: Final = 3
_HUNG_S: Final = 600.0
_MOST_WORDS: Final = 5
_WORD_CHARS: Final = 200

_HEAT: Final = re.compile(
    r"critical temperature reached|HARDWARE PROTECTION (?:shutdown|reboot) \(Temperature|Emergency Poweroff.*[Tt]emperature"
)
_DOWN: Final = re.compile(
    r"Reached target (?:reboot|poweroff|halt|kexec|shutdown)\.target|^Journal stopped$|System is (?:rebooting|powering down)"
)
_PANIC: Final = re.compile(
    r"Kernel panic - not syncing|BUG: unable to handle|BUG: kernel NULL pointer|general protection fault|kernel BUG at|"
    r"Internal error: Oops|Oops: [0-9a-f]{4} \["
)
_PANIC_OF: Final = (
    (OOM, re.compile(r"not syncing: (?:Out of memory|System is deadlocked on memory)")),
    (HUNG, re.compile(r"not syncing: (?:hung_task|softlockup|Hard LOCKUP|RCU Stall)")),
    (HARDWARE, re.compile(r"not syncing: (?:Fatal |Timeout: Not all CPUs entered.*)?[Mm]achine check|not syncing: NMI")),
)
_XID: Final = re.compile(r"NVRM: Xid \([^)]*\): (\d+)\b")
_KILLED: Final = re.compile(r"^Out of memory: Kill(?:ed)? process \d+")
_STUCK: Final = re.compile(
    r"blocked for more than \d+ seconds|soft lockup - CPU#\d+ stuck|detected hard LOCKUP|rcu.*detected stall"
)
_RESET: Final = (
    (THERMAL, re.compile(r"\bthermal\b", re.IGNORECASE)),
    (WATCHDOG, re.compile(r"watchdog", re.IGNORECASE)),
    (HARDWARE, re.compile(r"uncorrected error|parity error|sync flood|shutdown event", re.IGNORECASE)),
)


class Journal(enum.Enum):
    """Whether the system's journal of that boot could be read."""

    READ = "read"
    LOST = "lost"  # it is persistent and readable, but has no entry of that boot: none was written to disk
    UNKNOWN = "unknown"


class Line(Record):
    """One line of that journal, `ago_s` before its last one. `kernel`: the kernel itself wrote it."""

    ago_s: float
    text: str
    kernel: bool = False


class Traces(Record):
    """All traces that were found. None is "not known"."""

    own_stop: bool | None = None  # the last daemon had ended in order
    journal: Journal = Journal.UNKNOWN
    lines: tuple[Line, ...] = ()  # oldest first
    dumps: tuple[str, ...] = ()  # parts of its log that the kernel saved when it died (pstore)
    went_down: bool | None = None  # wtmp records a shutdown
    watchdog: bool | None = None  # a watchdog device reports that it reset the box
    reset_reason: str = ""  # the processor's own text about its last reset


class Verdict(Record):
    """The kind of end. `words` are the lines of evidence, at most `_MOST_WORDS`."""

    kind: str
    why: str
    words: tuple[str, ...] = ()


def judge(traces: Traces) -> Verdict:
    """The kind of end, with its evidence."""
    for rule in _RULES:
        found = rule(traces)
        if found is not None:
            return found
    return Verdict(UNKNOWN, "no readable trace of the reason")


def _heat(traces: Traces) -> Verdict | None:
    return _verdict(THERMAL, [text for text in _kernel(traces) if _HEAT.search(text)])


def _orderly(traces: Traces) -> Verdict | None:
    if traces.own_stop:
        return Verdict(ORDERLY, "extralife was ending in order")
    lines = [line.text for line in traces.lines if not line.kernel and _DOWN.search(line.text)]
    wtmp = Verdict(ORDERLY, "wtmp records a shutdown") if traces.went_down else None
    return _verdict(ORDERLY, lines) or wtmp


def _panic(traces: Traces) -> Verdict | None:
    lines = [text for text in _kernel(traces) if _PANIC.search(text)]
    kind = next((kind for kind, pattern in _PANIC_OF if any(pattern.search(text) for text in lines)), PANIC)
    return _verdict(kind, sorted(lines, key=lambda text: "not syncing" not in text))


def _gpu(traces: Traces) -> Verdict | None:
    found = ((text, _XID.search(text)) for text in _kernel(traces, _XID_S))
    return _verdict(GPU, [text for text, xid in found if xid and int(xid[1]) not in HARMLESS_XIDS])


def _storm(traces: Traces) -> Verdict | None:
    return _verdict(OOM, [text for text in _kernel(traces, _STORM_S) if _KILLED.search(text)], least=_STORM)


def _watchdog(traces: Traces) -> Verdict | None:
    if not traces.watchdog:
        return None
    return Verdict(WATCHDOG, "the watchdog device reports that it reset the box", _words(_stuck(traces)))


def _processor(traces: Traces) -> Verdict | None:
    kind = next((kind for kind, pattern in _RESET if pattern.search(traces.reset_reason)), None)
    return _verdict(kind or UNKNOWN, [traces.reset_reason] if kind else [])


def _hung(traces: Traces) -> Verdict | None:
    return _verdict(HUNG, _stuck(traces))


def _power(traces: Traces) -> Verdict | None:
    if traces.journal is Journal.READ:
        last = [line.text for line in traces.lines[-1:]]
        return Verdict(POWER, "the system's journal stops abruptly and shows no trouble before that", _words(last))
    if traces.journal is Journal.LOST:
        return Verdict(POWER, "the system's journal of that boot was never written to disk")
    return None


_RULES: Final = (_heat, _orderly, _panic, _gpu, _storm, _watchdog, _processor, _hung, _power)


def _kernel(traces: Traces, within_s: float = math.inf) -> list[str]:
    """The kernel's lines of the last seconds of that boot, dumps first: they are from the moment of its death."""
    dumped = [_bare(text) for dump in traces.dumps for text in dump.splitlines()]
    return dumped + [line.text for line in traces.lines if line.kernel and line.ago_s <= within_s]


def _stuck(traces: Traces) -> list[str]:
    return [text for text in _kernel(traces, _HUNG_S) if _STUCK.search(text)]


def _bare(text: str) -> str:
    """A line of a dump without its level and time: `<6>[  121.380054] thermal ...` -> `thermal ...`."""
    return re.sub(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[[^\]]*\])? ?", "", text)


def _verdict(kind: str, said: list[str], least: int = 1) -> Verdict | None:
    words = _words(said)
    return Verdict(kind, words[0], words) if len(said) >= least else None


def _words(said: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip()[:_WORD_CHARS] for text in said))[:_MOST_WORDS]
