"""The page `status`: the daemon and its box, then every program. None is "not known" and is shown as such, never as 0."""

from __future__ import annotations

from dataclasses import asdict

from supervisor.model.codec import as_fields
from supervisor.model.memory import Memory, Trouble
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.box.foundations import Answer
from supervisor.policy.box.readings import Gpus
from supervisor.reports import climb_view
from supervisor.reports.added import added
from supervisor.reports.sources import Json, Sources
from supervisor.reports.view import program_views

_DAY_S = 86400.0


def config(sources: Sources) -> Json:
    """Every setting in force, where it comes from, and what the file says where that is something else."""
    return sources.config()


def status_view(sources: Sources) -> Json:
    """{"daemon", "programs", "now_s", "wall_s", "worst_gap_s"}; `wall_s` is the time at which all values are true."""
    state, now_s = sources.state, sources.now_s
    samples = {name: watch.sample for name, watch in sources.memory.watches.items()}
    programs = program_views(state, samples, sources.settings, now_s=now_s)
    for feature in added():
        programs = tuple(each | feature.program(sources, each["name"]) for each in programs)
    return {
        "daemon": _daemon(sources, state, sources.settings, sources.memory),
        "programs": [sources.corrected(each, state.programs[each["name"]].attempt) for each in programs],
        "now_s": now_s,
        "wall_s": sources.wall_s,
        "worst_gap_s": sources.worst_gap_s,
    }


def troubles(daemon: Json) -> list[str]:
    """The present problems of extralife itself, one sentence each; empty: none."""
    error = daemon["journal"]["error"]
    journal = [f"the journal cannot be written: {error}"] if error else []
    port = daemon["http"]
    closed = [f"the TCP port {port['listen']} of [http] is not open: {port['error']}"] if port and port["error"] else []
    return [
        *journal,
        *(each["why"] for each in daemon["foundations"]),
        *(each for feature in added() for each in feature.troubles(daemon)),
        *closed,
    ]


def _daemon(sources: Sources, state: State, settings: Settings | None, memory: Memory) -> Json:
    """The header. `state` is running, stopping, reloading or dead."""
    now_s, alive = sources.now_s, sources.alive
    since_s = state.daemon_since_s if alive else None
    return {
        "pid": state.daemon_pid if alive else None,
        "version": sources.version,
        "state": "dead" if not alive else "stopping" if state.stopping else "reloading" if memory.ended else "running",
        "state_dir": sources.state_dir,
        "level": _level(sources),
        "started_wall_s": state.daemon_since_wall_s if alive else None,
        "uptime_s": None if since_s is None else now_s - since_s,
        "config_file": settings.paths.config_file if settings is not None else None,
        "main_log": settings.paths.main_log if settings is not None else None,
        **box_view(state, now_s=now_s, boot_at_s=memory.boot_at_s),
        "journal": journal_view(state, memory.trouble),
        "foundations": troubles_view(memory),
        "held": [asdict(each) for each in memory.held],
        "config": None if state.config is None else asdict(state.config),
        "usd_per_hour": settings.cost.usd_per_hour if settings is not None else None,
        "gpu": gpu_view(memory.gpus, state),
        "cgroups": _cgroups(settings, sources.cgroups()),
        "vetoes": vetoes_view(state, settings),
        **{key: value for feature in added() for key, value in feature.status(sources).items()},
        "http": sources.http(),
        "release": sources.release,
        **sources.last_sign(),
    }


def _level(sources: Sources) -> Json:
    state, settings, climb = sources.state, sources.settings, climb_view.level(sources)
    return {
        "name": state.level,
        "slots": state.slots,
        "num_envs": None if settings is None else settings.level.num_envs,
        "batch_size": None if settings is None else settings.level.batch_size,
        "mode": climb["mode"],
        "trial": climb["trial"],
        "pinned": climb["pin"] is not None,
        "line": climb["line"],
    }


def _cgroups(settings: Settings | None, cgroups: Json | None) -> Json | None:
    """`unmet` says in one sentence why the memory limit is not enforced; empty if it is enforced or there is no limit."""
    if settings is None or not cgroups:
        return None
    limit_mb = settings.level.memory_mb
    if limit_mb is None or not settings.cgroups.use or "memory" in cgroups["controllers"]:
        return {**cgroups, "unmet": ""}
    why = cgroups["why"] or "its cgroups have no memory controller"
    return {**cgroups, "unmet": f"no worker is held to the {limit_mb:,} MB of level {settings.level.name}: {why}"}


def box_view(state: State, *, now_s: float, boot_at_s: float | None) -> Json:
    """The box: its identity, boots and stability."""
    recent = [reboot for reboot in state.reboots if now_s - reboot.at_s <= _DAY_S]  # no clock change moves journal time
    last = state.reboots[-1] if state.reboots else None
    boot_up_s = None if boot_at_s is None else now_s - boot_at_s
    figures = [climb_view.up_at(state, name, now_s=now_s, boot_at_s=boot_at_s) for name in {*state.levels, state.level}]
    up_s, unclean = (sum(each) for each in zip(*figures, strict=True))
    return {
        "boot_id": state.boot_id,
        "boots": state.boots,
        "boot_up_s": boot_up_s,
        "reboots_total": state.reboots_total,
        "reboots_24h": len(recent),
        "last_reboot": None
        if last is None
        else {
            "wall_s": last.wall_s,
            "cause": last.cause,
            "down_s": last.down_s,
            "level": last.level,
            "ago_s": now_s - last.at_s,
        },
        "box": _box(state),
        "reboot_pattern": state.reboot_pattern(now_s),
        "mtbf_s": up_s / unclean if unclean > 0 and up_s > 0.0 else None,
    }


def _box(state: State) -> Json | None:
    """Which box this is, since when, and the former boxes of the state directory."""
    if state.box is None:
        return None
    former = [
        {"hostname": each.hostname, "since_wall_s": each.since_wall_s, "until_wall_s": each.until_wall_s,
         "reboots": each.reboots}
        for each in state.former_boxes
    ]  # fmt: skip
    return {"hostname": state.box.hostname, "since_wall_s": state.box.since_wall_s, "former": former}


def journal_view(state: State, trouble: Trouble | None) -> Json:
    """The condition of the journal: whether it can be written now, its newest damage, and whether counts have gaps."""
    damage = state.damage
    return {
        "error": "" if trouble is None else trouble.error,
        "error_since_wall_s": None if trouble is None else trouble.since_wall_s,
        "damage": None if damage is None else asdict(damage),
        "gaps": state.gaps,  # how often facts were lost: from then on, counts of events are lower bounds
    }


def troubles_view(memory: Memory) -> list[Json]:
    """Troubles with files and directories that the daemon relies on, oldest first, without those that are restored."""
    standing = sorted(memory.foundations.values(), key=lambda each: (each.since_s, each.finding.name))
    return [
        {
            "name": each.finding.name, "path": each.finding.path, "look": each.finding.look.value, "why": each.why,
            "since_wall_s": each.since_wall_s,
        }
        for each in standing if each.answer is Answer.TROUBLE
    ]  # fmt: skip


def gpu_view(gpus: Gpus | None, state: State) -> Json:
    """The GPUs. The key `gpus` is None while they are unknown; `error` then says why, if the reason is known."""
    found = None if gpus is None or gpus.gpus is None else list(map(as_fields, gpus.gpus))
    for each in found or ():
        del each["free_by_second"]
    error = "" if gpus is None or gpus.absent else gpus.error
    return {"known": found is not None, "error": error, "gpus": found, "count": state.gpus.count}


def vetoes_view(state: State, settings: Settings | None) -> list[Json]:
    """The vetoes in force, the oldest first. `cap`: the highest level that it allows; `forbids`: others are above."""
    vetoes = sorted(state.vetoes.values(), key=lambda veto: (veto.since_s, veto.rule))
    top = "" if settings is None else settings.rungs[-1].level.name
    return [
        {"rule": v.rule, "cap": v.cap, "why": v.why, "since_wall_s": v.since_wall_s, "forbids": v.cap != top} for v in vetoes
    ]
