"""Pre-checks: readings of the box that veto a higher load before it causes a reboot.

Each rule may object to the levels above one level. An objection that lasts long enough becomes a veto. A veto is lifted
once readings have shown for `clear_s` (30 min) that its reason is gone. A missing reading neither makes nor ends an
objection: an objection survives up to a minute of samples without its reading. Nor does a missing reading show that a
reason is gone: the 30 minutes begin anew after a minute without readings. A veto whose readings have been missing for a day
is lifted: a lost sensor must not keep the box at a low level for ever.

| rule | objects when | held for | to |
|---|---|---|---|
| `gpu_memory` | by their measured needs, a level's programs hold more than the GPU has for us | 0 s | that level |
| `host_memory` | the same for the host's memory, and its cgroup's limit | 0 s | that level |
| `cores` | a level has more than four programs a core | 0 s | that level |
| `gpu_temperature` | a GPU is within `margin_c` (3) of its slowdown, or slowed because of heat | 30 s | any higher one |
| `gpu_slowdown` | the hardware limits a GPU's clocks: heat or power brake | 60 s | the present one too |
| `gpu_lost` | a GPU has fallen off the bus, or needs a reset | 0 s | any higher one |
| `gpu_errors` | uncorrected memory errors since the driver was loaded | 0 s | any higher one |
| `gpu_xid` | a grave Xid (not one that a faulty program causes) | 0 s | any higher one |
| `pressure` | all processes waited for memory (5 %) or for the disk (50 %) of a minute | 60 s | any higher one |
| `swap` | less than a twentieth of swap and a tenth of memory are left | 60 s | any higher one |
| `disk` | less than `disk_free_mb` (500) are left for the state, or a save met a full disk or quota | 0 s | higher ones |

A need is never estimated upwards: a level that has not run yet is assumed to need as much as a lower one did, program by
program. The lowest level is never vetoed: it is the last resort.

Worked example: at medium (4 programs) GPU 0 shows 88 C, and slows down at 90: after 30 s `gpu_temperature` forbids the
levels above medium. It cools at once, but heat comes in waves: the veto is lifted after 30 min without another such
reading.

Why not veto by guesses (so many environments surely need so many cores): in simulations, a right veto saves a few reboots,
and a wrong one costs a sixth of all work for as long as it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from supervisor.formats import span
from supervisor.keys import key
from supervisor.policy.box.readings import Gpu, Gpus, Host
from supervisor.records import Record

_MB: Final = 2**20
_PROGRAMS_PER_CORE: Final = 4
_MEMORY_FULL: Final = 5.0
_IO_FULL: Final = 50.0
_SWAP_LEFT: Final = 0.05
_MEMORY_LEFT: Final = 0.1
_HARDWARE: Final = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
_SOFTWARE: Final = frozenset({"sw_thermal_slowdown"})
_BRIDGED_S: Final = 60.0
_UNREAD_S: Final = 86_400.0
_HELD_S: Final = {"gpu_temperature": 30.0, "gpu_slowdown": 60.0, "pressure": 60.0, "swap": 60.0}

# Xids that a faulty program or its end causes, or that were corrected already. Source: NVIDIA's table of Xid errors.
HARMLESS_XIDS: Final = frozenset({13, 31, 43, 45, 63, 68, 92, 94, 109})


class PrecheckSettings(Record):
    margin_c: float = key(3.0, "a GPU within this many degrees C of its slowdown vetoes higher levels", low=0, high=50)
    clear_s: float = key(1800.0, "time for which the reason of a veto must be gone before the veto is lifted", low=0)
    disk_free_mb: int = key(
        500, "with fewer free MiB on the disk of the state directory, higher levels are vetoed", low=0, high=1_000_000_000
    )


class Rung(Record):
    """The needs of a level: its number of programs. `memory_bytes` is the budget of each, where the config has one."""

    name: str
    slots: int
    memory_bytes: int | None = None


class Need(Record):
    """The measured memory of one program, by level of the ladder: at that level or a lower one; None: not measured."""

    gpu: int | None  # None: not known which
    gpu_bytes: tuple[int | None, ...]
    host_bytes: tuple[int | None, ...]


class BoxReadings(Record):
    """All inputs of the rules. `ours_*`: memory that our own workers hold now, which counts as available for a level."""

    ladder: tuple[Rung, ...]
    present: int  # index in the ladder
    gpus: Gpus | None = None
    host: Host | None = None
    needs: tuple[Need, ...] = ()
    ours_gpu_bytes: Mapping[int, int | None] = field(default_factory=dict)  # by GPU; None: not known
    ours_host_bytes: int = 0
    xids: tuple[int, ...] = ()  # codes reported since the last sample
    save_error: str = ""  # of a program whose last save failed for lack of room


class Objection(Record):
    """A rule that objects to every level above `cap` (an index in the ladder), and why."""

    rule: str
    cap: int
    why: str


def objections(settings: PrecheckSettings, box: BoxReadings) -> tuple[Objection, ...]:
    """The objections of all rules now. A cap is never below the lowest level."""
    return (*_of_gpus(settings, box), *_of_needs(box), *_of_host(settings, box))


# --- the rules -----------------------------------------------------------------------------------------------------------


def _of_gpus(settings: PrecheckSettings, box: BoxReadings) -> Iterator[Objection]:
    grave = sorted(set(box.xids) - HARMLESS_XIDS)
    if grave:
        yield Objection("gpu_xid", box.present, f"the driver reported Xid {', '.join(map(str, grave))}")
    hot, slowed, lost, errors = [], [], [], []
    for gpu in _known(box.gpus):
        why = _heat(settings, gpu)
        hot += [why] if why else []
        held = sorted(_HARDWARE & set(gpu.reasons or ()))
        slowed += [f"the hardware slows GPU {gpu.index} down ({', '.join(held)})"] if held else []
        lost += [f"GPU {gpu.index} does not answer ({gpu.lost})"] if gpu.lost else []
        errors += [f"GPU {gpu.index} has {gpu.ecc_errors:,} uncorrected memory errors"] if gpu.ecc_errors else []
    for rule, found, cap in (
        ("gpu_temperature", hot, box.present), ("gpu_slowdown", slowed, max(0, box.present - 1)),
        ("gpu_lost", lost, box.present), ("gpu_errors", errors, box.present),
    ):  # fmt: skip
        if found:
            yield Objection(rule, cap, "; ".join(found))


def _heat(settings: PrecheckSettings, gpu: Gpu) -> str:
    if _SOFTWARE & set(gpu.reasons or ()):
        return f"GPU {gpu.index} is slowed down because of heat"
    if gpu.temperature_c is None or gpu.slowdown_c is None or gpu.temperature_c < gpu.slowdown_c - settings.margin_c:
        return ""
    return f"GPU {gpu.index} is at {gpu.temperature_c:.0f} C and slows down at {gpu.slowdown_c:.0f} C"


def _of_needs(box: BoxReadings) -> Iterator[Objection]:
    """For each of the three rules about needs, an objection to the lowest level above the present one that does not fit."""
    rungs = [(index, rung) for index, rung in enumerate(box.ladder) if index > box.present]
    cores = box.host.cores if box.host is not None else None
    for rule in ("gpu_memory", "host_memory", "cores"):
        for index, rung in rungs:
            if rule == "cores":
                why = _too_few(cores, rung)
            else:
                why = (_gpu_misfit if rule == "gpu_memory" else _host_misfit)(box, index, rung)
            if why:
                yield Objection(rule, max(0, index - 1), why)
                break


def _gpu_misfit(box: BoxReadings, index: int, rung: Rung) -> str:
    """Why a level does not fit, GPU by GPU: the least known need of its programs against free memory plus ours."""
    for gpu in _known(box.gpus):
        ours_bytes = box.ours_gpu_bytes.get(gpu.index, 0)
        if gpu.free_bytes is None or ours_bytes is None:
            continue
        needs = [rung.memory_bytes or need.gpu_bytes[index] for need in box.needs if need.gpu == gpu.index]
        room_bytes = gpu.free_bytes + ours_bytes
        need_bytes = _least(needs, rung.slots)
        if need_bytes > room_bytes:
            needs_it = f"{rung.name} needs {need_bytes / _MB:,.0f} MiB of GPU {gpu.index}"
            return f"{needs_it}, but only {room_bytes / _MB:,.0f} MiB are available"
    return ""


def _host_misfit(box: BoxReadings, index: int, rung: Rung) -> str:
    if box.host is None or box.host.available_bytes is None:
        return ""
    room_bytes = box.host.available_bytes + box.ours_host_bytes
    need_bytes = _least([need.host_bytes[index] for need in box.needs], rung.slots)
    if need_bytes <= room_bytes:
        return ""
    return f"{rung.name} needs {need_bytes / _MB:,.0f} MiB of memory, but only {room_bytes / _MB:,.0f} MiB are available"


def _least(needs: Sequence[int | None], slots: int) -> int:
    """The least memory that any `slots` of these programs hold together: the smallest needs, and 0 for an unknown need."""
    return sum(sorted(need or 0 for need in needs)[:slots])


def _too_few(cores: int | None, rung: Rung) -> str:
    if cores is None or rung.slots <= _PROGRAMS_PER_CORE * cores:
        return ""
    return f"{rung.name} has {rung.slots} programs for {cores} core{'' if cores == 1 else 's'}"


def _of_host(settings: PrecheckSettings, box: BoxReadings) -> Iterator[Objection]:
    host = box.host or Host()
    for share, limit, of in ((host.memory_full, _MEMORY_FULL, "memory"), (host.io_full, _IO_FULL, "the disk")):
        if share is not None and share >= limit:
            yield Objection("pressure", box.present, f"every process waited for {of} during {share:.0f} % of a minute")
            break
    if _below(host.swap_free_bytes, host.swap_bytes, _SWAP_LEFT) and _below(
        host.available_bytes, host.memory_bytes, _MEMORY_LEFT
    ):
        yield Objection("swap", box.present, "swap is used up, and less than a tenth of the memory is left")
    if host.disk_free_bytes is not None and host.disk_free_bytes < settings.disk_free_mb * _MB:
        why = f"only {host.disk_free_bytes / _MB:,.0f} MiB are free on the disk of the state directory"
        yield Objection("disk", box.present, why)
    elif box.save_error:  # a quota leaves less room than the file system has
        yield Objection("disk", box.present, f"a checkpoint could not be written: {box.save_error}")


def is_full(error: str) -> bool:
    """Whether a write failed for lack of room: by the error's text (ENOSPC, SQLite's, EDQUOT)."""
    return any(word in error.lower() for word in ("no space left", "is full", "disk quota"))


def _below(left: int | None, whole: int | None, share: float) -> bool:
    return left is not None and bool(whole) and left < share * (whole or 0)


def _known(gpus: Gpus | None) -> tuple[Gpu, ...]:
    return () if gpus is None or gpus.gpus is None else gpus.gpus


def unseen(box: BoxReadings) -> frozenset[str]:
    """The rules in `_HELD_S` that lack a reading now."""
    gpus = _known(box.gpus)
    blind = box.gpus is not None and box.gpus.gpus is None
    slowdown = blind or any(gpu.reasons is None for gpu in gpus)
    heat = slowdown or any(gpu.temperature_c is None for gpu in gpus)
    host = box.host or Host()
    pressure = host.memory_full is None or host.io_full is None
    swap = host.swap_free_bytes is None or host.available_bytes is None
    found = {"gpu_temperature": heat, "gpu_slowdown": slowdown, "pressure": pressure, "swap": swap}
    return frozenset(rule for rule, missing in found.items() if missing)


def blind(box: BoxReadings) -> frozenset[str]:
    """The rules that can judge nothing now, because every reading that they could object by is missing on some device.

    A GPU that never reports its reasons for lower clocks still shows by its temperature that it is cool.
    """
    gpus, host = _known(box.gpus), box.host or Host()
    silent = box.gpus is not None and box.gpus.gpus is None
    found = {
        "gpu_temperature": silent or any(gpu.temperature_c is None and gpu.reasons is None for gpu in gpus),
        "gpu_slowdown": silent or any(gpu.reasons is None for gpu in gpus),
        "gpu_lost": silent,
        "gpu_errors": silent,
        "gpu_xid": silent,
        "pressure": host.memory_full is None and host.io_full is None,
        "swap": host.swap_free_bytes is None or host.available_bytes is None,
        "disk": host.disk_free_bytes is None,
    }
    return frozenset(rule for rule, missing in found.items() if missing)


# --- from objections to vetoes -------------------------------------------------------------------------------------------


class StandingObjection(Record):
    """The state of a rule's objection at one level. Times are journal time."""

    since_s: float | None = None  # it has objected since then
    present: int = 0  # the level in force, an index in the ladder
    clear_since_s: float | None = None  # it has not objected since then
    read_s: float | None = None  # when a reading last decided the rule; if none has yet, since when it is wanted
    seen_s: float | None = None  # when it last objected


class Change(Record):
    """A veto that begins, gets a lower cap (`cap` is an index in the ladder), or is lifted (None)."""

    rule: str
    cap: int | None
    why: str


def weigh(
    settings: PrecheckSettings, found: Sequence[Objection], *, present: int, now_s: float, vetoes: Mapping[str, int],
    held: Mapping[str, StandingObjection], unseen: Collection[str] = (), blind: Collection[str] = (),
) -> tuple[tuple[Change, ...], dict[str, StandingObjection]]:  # fmt: skip
    """The result of a look: changes of the vetoes in force (rule -> cap), and the objections to keep until the next look.

    An objection counts at the level where it was seen: a change of level restarts its time. So heat that remains after a
    step down does not cause a second step at once. `unseen` are the rules that lack a reading this time, `blind` those that
    lack all of theirs.
    """
    changes: list[Change] = []
    kept: dict[str, StandingObjection] = {}
    objecting = {each.rule: each for each in found}
    for rule, each in objecting.items():
        old = held.get(rule, StandingObjection())
        since_s = old.since_s if old.since_s is not None and old.present == present else now_s
        kept[rule] = StandingObjection(since_s, present, seen_s=now_s, read_s=now_s)
        in_force = vetoes.get(rule)
        if now_s - since_s >= _HELD_S.get(rule, 0.0) and (in_force is None or each.cap < in_force):
            changes.append(Change(rule, each.cap, each.why))
    for rule in held.keys() & set(unseen) - objecting.keys():
        seen_s = held[rule].seen_s
        if seen_s is not None and now_s - seen_s <= _BRIDGED_S:
            kept[rule] = held[rule]
    for rule in sorted(vetoes.keys() - objecting.keys()):
        old = held.get(rule, StandingObjection())
        read_s = now_s if rule not in blind or old.read_s is None else old.read_s
        clear_since_s = old.clear_since_s if rule in blind or old.clear_since_s is not None else now_s
        if now_s - read_s > _BRIDGED_S:  # a minute without readings ends the time that counts as clear
            clear_since_s = None
        if why := _lifted(settings, read_s, clear_since_s, now_s):
            changes.append(Change(rule, None, why))
            kept.pop(rule, None)
        else:
            kept[rule] = replace(kept.get(rule, StandingObjection()), clear_since_s=clear_since_s, read_s=read_s)
    return tuple(changes), kept


def _lifted(settings: PrecheckSettings, read_s: float, clear_since_s: float | None, now_s: float) -> str:
    """The reason why a veto ends; empty: it stays."""
    if read_s == now_s and clear_since_s is not None and now_s - clear_since_s >= settings.clear_s:
        return f"the reason has been gone for {span(settings.clear_s)}"
    return f"no reading for {span(_UNREAD_S)}" if now_s - read_s >= _UNREAD_S else ""
