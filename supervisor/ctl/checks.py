"""Checks of `doctor` on the host and the installation: files, systemd, the kernel, the clock. One function each."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from supervisor import config
from supervisor.core.settings import Settings
from supervisor.ctl.session import Options

UNIT: Final = "extralife.service"
_SLOW_SYNC_S: Final = 0.1
_SYNCS: Final = 5
_TOOL_S: Final = 10.0
_UNSYNCED: Final = "the clock is not synchronised: times in history and alerts may be wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `level`: ok, warn, bad (training will not run, or not survive), unknown."""

    name: str
    level: str
    what: str
    do: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined. `settings` are None where the configuration has mistakes: they are in `mistakes`."""

    settings: Settings | None
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    root: str = ""  # of /proc, /sys, /etc and /dev: another one in tests


def patient(options: Options) -> Patient:
    """The configuration that the options name, checked."""
    flags = {"state_dir": options.state_dir} if options.state_dir is not None else {}
    try:
        loaded = config.load(options.config_file, os.environ, flags, look=False)
    except config.ConfigError as error:
        return Patient(None, tuple(error.errors))
    return Patient(loaded.settings, (), tuple(loaded.warnings))


def settings(who: Patient) -> Iterator[Finding]:
    for sentence in who.mistakes:
        yield Finding("settings", "bad", sentence, "correct it, then: supervisorctl doctor")
    for sentence in who.warnings:
        yield Finding("settings", "warn", sentence)
    if who.settings is not None and not who.warnings:
        count = len(who.settings.programs)
        yield Finding("settings", "ok", f"{count} program{'s' if count != 1 else ''}, no mistake")


def directories(who: Patient) -> Iterator[Finding]:
    """The state directory is there, of one owner, on a disk; the runtime directory is in memory."""
    if who.settings is None:
        return
    state, runtime = Path(who.settings.paths.state_dir), Path(who.settings.paths.runtime_dir)
    if not state.is_dir():
        yield Finding("state", "warn", f"{state} is not there yet", "the first start makes it")
        return
    kind = filesystem(state, who.root)
    if kind in {"tmpfs", "ramfs"}:
        yield Finding("state", "bad", f"{state} is in memory ({kind}): a reboot takes it", "choose a state_dir on a disk")
    elif os.statvfs(state).f_flag & os.ST_RDONLY:
        yield Finding("state", "bad", f"{state} lies on a read-only file system", "dmesg may say why; mount it writable")
    else:
        owner = state.stat().st_uid
        strange = [entry.name for entry in state.iterdir() if entry.lstat().st_uid != owner]
        if strange:
            what = f"in {state}, {strange[0]} belongs to another user than the directory itself"
            yield Finding("state", "bad", what, f"chown -R --reference={state} {state}")
        else:
            yield Finding("state", "ok", f"{state} on {kind or 'an unknown file system'}")
    kind = filesystem(runtime if runtime.is_dir() else runtime.parent, who.root)
    if kind and kind not in {"tmpfs", "ramfs"}:
        what = f"{runtime} lies on {kind}: beats go to a disk, and a reboot does not clear it"
        yield Finding("runtime", "warn", what, "choose a runtime_dir on tmpfs, below /run")
    else:
        yield Finding("runtime", "ok", f"{runtime} in memory")


def fsync(who: Patient) -> Iterator[Finding]:
    """How long the disk under the state takes to make a small write durable: each fact and each checkpoint waits for it."""
    if who.settings is None or not Path(who.settings.paths.state_dir).is_dir():
        return
    try:
        times = sync_times(who.settings.paths.state_dir)
    except OSError as error:
        yield Finding(
            "fsync", "unknown", f"cannot write there: {error.strerror}", "run doctor as the daemon's user or as root"
        )
        return
    median = statistics.median(times)
    told = f"a small durable write takes {1000 * median:.1f} ms, at worst {1000 * max(times):.1f} ms of {len(times)}"
    slow = median > _SLOW_SYNC_S
    do = "move the state directory to a faster disk, or give this one less to do" if slow else ""
    yield Finding("fsync", "warn" if slow else "ok", told, do)


def sync_times(directory: str) -> list[float]:
    """Seconds of a few writes of 4 KiB, each with fsync, in a file that is gone at once."""
    found = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            found.append(time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
    return found


def service(who: Patient) -> Iterator[Finding]:
    """The unit is known to systemd, as it was installed, and is started at boot."""
    if not Path(f"{who.root}/run/systemd/system").is_dir():
        what = "this machine was not booted with systemd: nothing starts extralife at boot or after a crash"
        yield Finding("service", "warn", what, "have something else start it, always (docs/box.md)")
        return
    shown = _properties(UNIT, "LoadState", "UnitFileState", "ActiveState", "NeedDaemonReload", "DropInPaths", "FragmentPath")
    if shown.get("LoadState") != "loaded":
        what = f"{UNIT} is not installed: nothing starts extralife at boot or after a crash"
        yield Finding("service", "warn", what, "deploy/install.sh")
        return
    if shown["UnitFileState"] != "enabled":
        yield Finding("service", "bad", f"{UNIT} is {shown['UnitFileState']}: no start at boot", f"systemctl enable {UNIT}")
    if shown["ActiveState"] != "active":
        yield Finding("service", "bad", f"{UNIT} is {shown['ActiveState']}", f"systemctl start {UNIT}; journalctl -u {UNIT}")
    if shown["NeedDaemonReload"] == "yes":
        yield Finding("service", "warn", "its unit has changed since systemd read it", "systemctl daemon-reload")
    if shown["DropInPaths"]:
        yield Finding("service", "warn", f"drop-ins change it: {shown['DropInPaths']}", "make sure that they are yours")
    drift = _drift(Path(shown["FragmentPath"]))
    if drift:
        yield Finding("service", "warn", drift, "deploy/install.sh writes it anew; own settings: systemctl edit extralife")
    elif shown["UnitFileState"] == "enabled" and shown["ActiveState"] == "active":
        yield Finding("service", "ok", f"{UNIT} is active, enabled, as installed")


def _properties(unit: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, "") | dict(
        line.split("=", 1)
        for line in _tool("systemctl", "show", *(f"--property={name}" for name in names), unit).splitlines()
    )


def _drift(installed: Path) -> str:
    """What is wrong with the unit file, beside the one that came with this program; empty when they are alike."""
    ours = Path(__file__).parents[2] / "units" / UNIT
    try:
        there, wanted = installed.read_text(), ours.read_text()
    except OSError:
        return ""  # this program did not come with units: it is not the service's
    prefix = str(ours.parents[3])  # PREFIX/releases/NAME/units/extralife.service
    wanted = wanted.replace("/opt/extralife/", f"{prefix}/")
    return "" if there == wanted else f"{installed} differs from the one that came with this version"


def cgroups(who: Patient) -> Iterator[Finding]:
    """Each worker has a cgroup of its own: limits that the kernel enforces, a tree that ends at once."""
    from supervisor.adapters.cgroups import DAEMON, WANTED, mounted

    pid = _ours(who)
    try:
        there = mounted(Path(f"{who.root}/proc/self/mountinfo").read_text(errors="replace"))
        lines = Path(f"{who.root}/proc/{pid}/cgroup").read_text(errors="replace").splitlines() if pid else []
    except OSError:
        there, lines = None, []
    own = next((line[3:] for line in lines if line.startswith("0::")), "")
    if there is None:
        yield Finding("cgroups", "ok", "not used: there is no cgroup v2 here; workers have no limits of their own")
    elif not own:
        yield Finding("cgroups", "unknown", "no daemon runs whose cgroup could be looked at")
    elif Path(own).name != DAEMON:
        what = "not used: the daemon was not given a part of the tree; workers have no limits of their own"
        yield Finding("cgroups", "warn", what, "run it as a service with Delegate=yes, as deploy/install.sh installs it")
    else:
        path = Path(who.root + there[1] + own[len(there[0].rstrip("/")) :]).parent
        try:
            on = (path / "cgroup.subtree_control").read_text().split()
        except OSError as error:
            yield Finding("cgroups", "unknown", f"{path}: {error.strerror}")
            return
        lacking = [name for name in WANTED if name not in on]
        if lacking:
            what = f"each worker has its own, but without {', '.join(lacking)}: such limits are not enforced"
            do = "boot with systemd.unified_cgroup_hierarchy=1, or see what else holds these controllers"
            yield Finding("cgroups", "warn", what, do)
        else:
            yield Finding("cgroups", "ok", f"each worker has its own below {path}, with {', '.join(WANTED)}")


def boot_enabled_watchdog(who: Patient) -> Iterator[Finding]:
    """A kernel that hangs is reset by the hardware, one that panics reboots."""
    panic = _number(f"{who.root}/proc/sys/kernel/panic")
    if panic is None:
        yield Finding("kernel panic", "unknown", "kernel.panic cannot be read")
    elif panic == 0:
        what = "kernel.panic is 0: after a kernel panic the box stands still until somebody resets it"
        yield Finding("kernel panic", "warn", what, "echo kernel.panic=10 >/etc/sysctl.d/90-panic.conf; sysctl --system")
    else:
        yield Finding(
            "kernel panic", "ok", f"the box reboots {'at once' if panic < 0 else f'{panic} s'} after a kernel panic"
        )
    if not list(Path(f"{who.root}/dev").glob("watchdog[0-9]")):
        yield Finding("hardware watchdog", "unknown", "there is no /dev/watchdog0: a kernel that hangs stays so")
        return
    shown = _tool("systemctl", "show", "--property=RuntimeWatchdogUSec", "--value").strip()
    if shown in {"", "0", "infinity"}:
        do = "RuntimeWatchdogSec=60 in /etc/systemd/system.conf.d/watchdog.conf, then systemctl daemon-reexec"
        yield Finding("hardware watchdog", "warn", "there is one and systemd does not use it", do)
    else:
        yield Finding("hardware watchdog", "ok", f"systemd feeds it, limit {shown}")


def previous_boots(who: Patient) -> Iterator[Finding]:
    """The system's journal outlives a boot: evidence for the cause of a reboot."""
    if Path(f"{who.root}/var/log/journal").is_dir():
        yield Finding("system journal", "ok", "kept over reboots")
    elif Path(f"{who.root}/run/systemd/system").is_dir():
        do = "mkdir -p /var/log/journal; systemctl restart systemd-journald"
        yield Finding("system journal", "warn", "it ends with the boot: the last words before a reboot are lost", do)


def clock(who: Patient) -> Iterator[Finding]:
    if not Path(f"{who.root}/run/systemd/system").is_dir():
        yield Finding("clock", "unknown", "nobody here says whether it is synchronised")
        return
    said = _tool("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
    if said == "yes":
        yield Finding("clock", "ok", "synchronised")
    elif said == "no":
        yield Finding("clock", "warn", _UNSYNCED, "timedatectl set-ntp true, or install chrony")
    else:
        yield Finding("clock", "unknown", "timedatectl does not answer")


def other_supervisors(who: Patient) -> Iterator[Finding]:
    """Supervisor, the other program of this name, or a second extralife: each may start the same trainings."""
    ours = _ours(who)
    strange = []
    for entry in Path(f"{who.root}/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        named = any(word.rpartition(b"/")[2] == b"supervisord" for word in words[:2]) or words[1:3] == [b"-m", b"supervisor"]
        if (named or words[1:4] == [b"-P", b"-m", b"supervisor"]) and int(entry.name) != ours:
            strange.append(entry.name)
    if strange:
        what = f"another supervisord runs: pid {', '.join(sorted(strange, key=int))}"
        yield Finding("other supervisors", "warn", what, "make sure that it does not start the same trainings")
    else:
        yield Finding("other supervisors", "ok", "none")


def _ours(who: Patient) -> int | None:
    return None if who.settings is None else _number(who.settings.paths.lock)


def filesystem(path: Path, root: str = "") -> str:
    """The kind of file system that a path is on; empty when that cannot be told."""
    best, kind = -1, ""
    real = str(path.resolve())
    for line in Path(f"{root}/proc/self/mounts").read_text(errors="replace").splitlines():
        at = line.split()[1].replace("\\040", " ")
        if (real + "/").startswith(at.rstrip("/") + "/") and len(at) >= best:
            best, kind = len(at), line.split()[2]
    return kind


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _tool(*command: str) -> str:
    """What a program prints; nothing when it is not there, fails or does not come back."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done: Any = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return str(done.stdout)


ALL: Final = (
    settings, directories, fsync, service, cgroups, boot_enabled_watchdog, previous_boots, clock, other_supervisors,
)  # fmt: skip
