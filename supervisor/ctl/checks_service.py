"""Checks of `doctor` on what the daemon runs under: systemd, its units and cgroups, Python packages, other supervisors."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor import collision, files
from supervisor.adapters.process.cgroups import DAEMON, WANTED, mounted
from supervisor.ctl.checks import Finding, Installation, output_of, text_of, unknown_finding
from supervisor.ctl.foreign_config import read
from supervisor.ctl.outcome import Failed
from supervisor.places import SYSTEM_STATE
from supervisor.records import Record

UNIT: Final = "extralife.service"
UNITS: Final = (
    UNIT, "extralife-gpu.service", "extralife.slice", "extralife-alert@.service", "extralife-upgrade.service",
)  # fmt: skip
_OLDEST: Final = 250
# Unit properties that the promises of docs/box.md depend on, as `systemctl show` prints them. Drop-ins can change each.
_PROMISES: Final = {
    "Type": ("notify", "systemd does not know when it is ready, and its watchdog is off"),
    "KillMode": ("process", "a crash of the daemon ends every training"),
    "Restart": ("always", "a daemon that exits is not restarted"),
    "Delegate": ("yes", "workers have no cgroups, so no limits"),
}
_FOREIGN_UNITS: Final = ("supervisor.service", "supervisord.service")
_FOREIGN_CONFIGS: Final = ("etc/supervisor/supervisord.conf", "etc/supervisord.conf")


def systemd(installation: Installation) -> Iterator[Finding]:
    """The systemd version supports every setting of the units."""
    if not Path(f"{installation.root}/run/systemd/system").is_dir():
        return  # the check `service` reports this
    words = output_of("systemctl", "--version").split()
    if len(words) < 2 or not words[1].isdigit():
        yield Finding("systemd", "unknown", "systemctl does not report its version")
    elif int(words[1]) < _OLDEST:
        what = f"systemd {words[1]} is too old: without {_OLDEST} some of the unit's settings are ignored"
        yield Finding("systemd", "bad", what, "Debian 12, Ubuntu 24.04 or newer")
    else:
        yield Finding("systemd", "ok", f"systemd {words[1]}")


def service(installation: Installation) -> Iterator[Finding]:
    """The unit is loaded, unchanged since its installation, and enabled at boot."""
    if not Path(f"{installation.root}/run/systemd/system").is_dir():
        what = "this machine was not booted with systemd: nothing starts extralife at boot or after a crash"
        yield Finding("service", "warn", what, "let another service manager start it (docs/box.md)")
        return
    shown = _properties(
        UNIT, "LoadState", "UnitFileState", "ActiveState", "NeedDaemonReload", "DropInPaths", "FragmentPath", "WatchdogUSec",
        *_PROMISES,
    )  # fmt: skip
    if shown.get("LoadState") != "loaded":
        what = f"{UNIT} is not installed: nothing starts extralife at boot or after a crash"
        yield Finding("service", "warn", what, "deploy/install.sh")
        return
    found = [*_state(shown), *_promises(shown), *_files(shown)]
    yield from found or [Finding("service", "ok", f"{UNIT} is active, enabled, as installed")]


def _state(shown: dict[str, str]) -> Iterator[Finding]:
    if shown["UnitFileState"] != "enabled":
        yield Finding("service", "bad", f"{UNIT} is {shown['UnitFileState']}: no start at boot", f"systemctl enable {UNIT}")
    if shown["ActiveState"] != "active":
        yield Finding("service", "bad", f"{UNIT} is {shown['ActiveState']}", f"systemctl start {UNIT}; journalctl -u {UNIT}")
    if shown["NeedDaemonReload"] == "yes":
        yield Finding("service", "warn", "its unit has changed since systemd read it", "systemctl daemon-reload")
    upgrade = _properties("extralife-upgrade.service", "LoadState", "UnitFileState")
    if upgrade["LoadState"] == "loaded" and upgrade["UnitFileState"] != "enabled":
        what = "extralife-upgrade.service is not enabled: an upgrade that a power cut interrupts is never checked"
        yield Finding("service", "warn", what, "systemctl enable extralife-upgrade.service")


def _promises(shown: dict[str, str]) -> Iterator[Finding]:
    """Check the unit properties in force, whichever file sets them."""
    do = "systemctl cat extralife shows which file says so; take it out, then systemctl daemon-reload"
    for name, (wanted, otherwise) in _PROMISES.items():
        if shown[name] and shown[name] != wanted:
            yield Finding("service", "bad", f"{name}={shown[name]} is in force instead of {wanted}: {otherwise}", do)
    if shown["ActiveState"] not in {"active", "reloading"}:
        yield Finding("service", "unknown", f"WatchdogSec= not known: systemd shows it only while {UNIT} runs")
    elif shown["WatchdogUSec"] in {"0", "infinity"}:
        yield Finding("service", "bad", "WatchdogSec= is turned off: nothing restarts a daemon that freezes", do)


def _files(shown: dict[str, str]) -> Iterator[Finding]:
    if shown["DropInPaths"]:
        yield Finding(
            "service", "warn", f"drop-ins change it: {shown['DropInPaths']}", "check that these are your own changes"
        )
    installed = Path(shown["FragmentPath"])
    for unit in UNITS:
        drift = _drift(installed.with_name(unit), needed=unit == UNIT)
        if drift:
            do = "deploy/install.sh writes it again; for your own settings: systemctl edit extralife"
            yield Finding("service", "warn", drift, do)


def _properties(unit: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, "") | dict(
        line.split("=", 1)
        for line in output_of("systemctl", "show", *(f"--property={name}" for name in names), unit).splitlines()
    )


def _drift(installed: Path, *, needed: bool = True) -> str:
    """How an installed unit file differs from the one of this version; empty if they are equal."""
    ours = Path(__file__).parents[2] / "units" / installed.name
    try:
        wanted = ours.read_text(encoding="utf-8")
        installed_text = installed.read_text(encoding="utf-8")
    except OSError:
        missing = ours.exists() and not installed.exists() and not needed and (installed.parent / UNIT).exists()
        return f"{installed} is missing, but belongs to this version" if missing else ""  # else not the service's directory
    prefix = str(ours.parents[3])  # PREFIX/releases/NAME/units/extralife.service
    wanted = wanted.replace("/opt/extralife/", f"{prefix}/")
    return "" if installed_text == wanted else f"{installed} differs from the file of this version"


def cgroups(installation: Installation) -> Iterator[Finding]:
    """Each worker has its own cgroup: the kernel enforces its limits, and can kill its whole process tree at once."""
    pid, why = _ours(installation)
    mount = mounted(text_of(f"{installation.root}/proc/self/mountinfo"))
    lines = text_of(f"{installation.root}/proc/{pid}/cgroup").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), "")
    if mount is None:
        yield Finding("cgroups", "ok", "not used, because the box has no cgroup v2: workers have no limits")
    elif not own:
        yield why or Finding("cgroups", "unknown", "no daemon runs, so its cgroup cannot be checked")
    elif Path(own).name != DAEMON:
        what = "not used, because no cgroup was delegated to the daemon: workers have no limits"
        yield Finding("cgroups", "warn", what, "run it as a service with Delegate=yes, as deploy/install.sh installs it")
    else:
        path = Path(installation.root + mount[1] + own[len(mount[0].rstrip("/")) :]).parent
        try:
            on = (path / "cgroup.subtree_control").read_text(encoding="utf-8").split()
        except OSError as error:
            yield Finding("cgroups", "unknown", f"{path}: {error.strerror}")
            return
        lacking = [name for name in WANTED if name not in on]
        if lacking:
            what = f"each worker has one, but without {', '.join(lacking)}: these limits are not enforced"
            do = "boot with systemd.unified_cgroup_hierarchy=1, or find the service that uses these controllers"
            yield Finding("cgroups", "warn", what, do)
        else:
            yield Finding("cgroups", "ok", f"each worker has its own below {path}, with {', '.join(WANTED)}")


def environment(installation: Installation) -> Iterator[Finding]:  # noqa: ARG001  every check takes it
    """Supervisor's own package is not installed beside ours."""
    both = collision.sentence()
    what, _, do = both.partition(": ")
    if both:
        yield Finding("environment", "warn", what, do)
    else:
        yield Finding("environment", "ok", f"{sys.prefix} has no other package of the name supervisor")


def other_supervisors(installation: Installation) -> Iterator[Finding]:
    """No Supervisor (the other project of this name) and no second extralife runs: each may start the same trainings."""
    ours, why = _ours(installation)
    running = [each for each in _running(installation) if each.pid != ours]
    places = [Path(f"{installation.root}/{name}") for name in _FOREIGN_CONFIGS]
    places += [each.config for each in running if each.config is not None]
    same = _same_programs(installation, places)
    if same:
        same_names = "; ".join(f"{path} starts {', '.join(names)}" for path, names in same.items())
        what = f"Supervisor's configuration has the same trainings: {same_names}"
        do = "take these sections out of it (supervisorctl of that package: reread, update): two supervisors destroy a run"
        yield Finding("other supervisors", "bad", what, do)
    foreign = [each for each in running if not each.extralife]
    if foreign:
        do = "check that it does not start the same trainings"
        yield Finding("other supervisors", "warn", f"another supervisord runs: pid {_pids(foreign)}", do)
    extralife = [each for each in running if each.extralife]
    if extralife and why is not None:
        what = f"cannot tell whether this is another supervisor: extralife runs as pid {_pids(extralife)}; {why.what}"
        yield Finding("other supervisors", "unknown", what, why.do)
    for each in extralife if why is None else []:
        named = f" with -c {each.named}" if each.named else ""
        do = f"if that is the one you mean: extralifectl{' -c ' + each.named if each.named else ''} doctor"
        what = f"another extralife daemon runs with another state directory: pid {each.pid}{named}"
        yield Finding("other supervisors", "warn", what, f"{do}; otherwise check that it does not start the same trainings")
    if not running and not same:
        wanted = Path(f"{installation.root}/etc/systemd/system")
        unit = next((name for name in _FOREIGN_UNITS if any(wanted.glob(f"*.wants/{name}"))), "")
        if unit:
            what = f"{unit} (Supervisor's service) is started at boot"
            do = f"systemctl disable --now {unit}, unless other programs need it"
            yield Finding("other supervisors", "warn", what, do)
        else:
            yield Finding("other supervisors", "ok", "none")


class Running(Record):
    """A running supervisord: its pid, whether it is extralife's, the Supervisor configuration it reads, its -c as given."""

    pid: int
    extralife: bool
    config: Path | None
    named: str


def _running(installation: Installation) -> Iterator[Running]:
    for entry in Path(f"{installation.root}/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        named = any(word.rpartition(b"/")[2] == b"supervisord" for word in words[:2])
        extralife = words[1:3] == [b"-m", b"supervisor"] or words[1:4] == [b"-P", b"-m", b"supervisor"]
        if named or extralife:
            given = next((value for flag, value in itertools.pairwise(words) if flag in {b"-c", b"--config"}), b"")
            extralife = extralife or given.endswith(b".toml")
            yield Running(int(entry.name), extralife, _named_config(installation, entry, words), os.fsdecode(given))


def _pids(running: list[Running]) -> str:
    return ", ".join(str(pid) for pid in sorted(each.pid for each in running))


def _named_config(installation: Installation, entry: Path, words: list[bytes]) -> Path | None:
    for flag, value in itertools.pairwise(words):
        if flag in {b"-c", b"--configuration"} and value.endswith((b".conf", b".ini")):
            path = Path(os.fsdecode(value))
            try:
                return Path(f"{installation.root}{path}") if path.is_absolute() else (entry / "cwd").readlink() / path
            except OSError:
                return None
    return None


def _same_programs(installation: Installation, places: list[Path]) -> dict[Path, list[str]]:
    """By file: its programs that are ours too, or that start extralife.

    A program is ours if its command names our state directory or the trainer's module, or if its name and script match.
    """
    found: dict[Path, list[str]] = {}
    if installation.loaded is None:
        return found
    names = {spec.name for spec in installation.settings.programs}
    scripts = {spec.argv[1] for spec in installation.settings.programs if not spec.builtin and len(spec.argv) > 1}
    ours = ("-m workers", "-m supervisor", "extralife", installation.settings.paths.state_dir)
    for path in dict.fromkeys(places):
        with contextlib.suppress(Failed):  # no such file, or no configuration of Supervisor's
            for section in read(path):
                mine = (*ours, *scripts) if section.title in names else ours
                if section.kind == "program" and any(each in section.keys.get("command", "") for each in mine):
                    found.setdefault(section.file, []).append(section.title)
    return found


def _ours(installation: Installation) -> tuple[int | None, Finding | None]:
    """(pid in the lock of the state directory or None, finding if the pid cannot be determined).

    If this user may not read the lock, systemd reports the pid, provided that the unit uses this state directory.
    """
    if installation.loaded is None:
        return None, unknown_finding(
            "other supervisors", PermissionError(0, "", installation.unreadable)
        ) if installation.unreadable else None
    try:
        return int(files.read(installation.settings.paths.lock, 32)), None
    except PermissionError as error:
        main = output_of("systemctl", "show", "--property=MainPID", "--value", UNIT).strip()
        if installation.settings.paths.state_dir == SYSTEM_STATE and main.isdecimal() and int(main):
            return int(main), None
        return None, unknown_finding("cgroups", error)
    except (OSError, ValueError):
        return None, None
