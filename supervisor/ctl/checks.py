"""Types that all checks of `doctor` share, and its checks of settings, directories, the kernel and the clock."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from supervisor import config, formats, membership, trust
from supervisor.adapters.durable import json_of
from supervisor.config.directories import unsafe_file
from supervisor.ctl import locate
from supervisor.ctl.outcome import Options
from supervisor.filesystems import MEMORY, kind_of, layered, unsafe
from supervisor.formats import span
from supervisor.model.settings import Settings
from supervisor.records import Record
from supervisor.users import name_of

_TOOL_S: Final = 10.0
_TIMEX_BYTES: Final = 256  # larger than the kernel's struct timex; all zero: adjtimex only reads
_TIME_ERROR: Final = 5
_HOMES: Final = ("/home/", "/root/", "/run/user/")  # directories that ProtectHome= of the unit hides (systemd.exec(5))


class Finding(Record):
    """One result of a check. `level`: ok, warn, bad (training will not run, or not survive), unknown."""

    name: str
    level: str
    what: str
    do: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class NoSettings(Exception):
    """The check needs settings, and the configuration cannot be used. The check `settings` reports it."""


class Installation(Record):
    """The installation to check. If the configuration has mistakes, `loaded` is None and `mistakes` lists them."""

    loaded: Settings | None
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unreadable: str = ""  # path of the configuration file, if this user may not read it
    root: str = ""  # prefix of /proc, /sys, /etc and /dev; tests set another one

    @property
    def settings(self) -> Settings:
        """Raises NoSettings."""
        if self.loaded is None:
            raise NoSettings
        return self.loaded


def unknown_finding(name: str, error: OSError) -> Finding:
    """The finding of a check that could not run: the reason, and which user can run it."""
    where = error.filename or "it"
    if not isinstance(error, PermissionError):
        return Finding(name, "unknown", f"not known: {where}: {error.strerror or error}")
    what, owner = f"not known: {name_of(os.geteuid(), '#{}')} may not read {where}", _owner(where)
    return Finding(name, "unknown", what, f"run it as {owner}: sudo -u {owner} extralifectl doctor, with the same -c")


def _owner(path: object) -> str:
    """Owner of the path, or of the nearest directory above it that this user can stat."""
    at = Path(str(path))
    for each in (at, *at.parents):
        try:
            return name_of(each.stat().st_uid, "#{}")
        except OSError:
            continue
    return "root"


def load_installation(options: Options) -> Installation:
    try:
        loaded = locate.load(options)
    except config.ConfigError as error:
        path = options.config_file or config.find_config(os.environ)
        if path is not None and Path(path).exists() and not os.access(path, os.R_OK):
            return Installation(None, unreadable=path)
        return Installation(None, tuple(error.errors))
    return Installation(loaded.settings, (), tuple(loaded.warnings))


def settings(installation: Installation) -> Iterator[Finding]:
    if installation.unreadable:
        yield unknown_finding("settings", PermissionError(errno.EACCES, os.strerror(errno.EACCES), installation.unreadable))
    for sentence in installation.mistakes:
        yield Finding("settings", "bad", sentence, "correct it, then: extralifectl doctor")
    for sentence in installation.warnings:
        yield Finding("settings", "warn", sentence)
    if installation.loaded is not None and not installation.warnings:
        yield Finding("settings", "ok", f"{formats.count(len(installation.settings.programs), 'program')}, no mistake")


def directories(installation: Installation) -> Iterator[Finding]:
    """The state directory exists on a disk and has one owner; the runtime directory is in memory."""
    state, runtime = Path(installation.settings.paths.state_dir), Path(installation.settings.paths.runtime_dir)
    if state.is_dir():
        owner = state.stat().st_uid
        yield from _state(state, owner, installation)
    else:
        owner = os.geteuid()  # a daemon that this user starts
        yield Finding("state", "warn", f"{state} does not exist yet", "the first start creates it")
    file = installation.settings.paths.config_file
    if file and (why := unsafe_file(file, owner)):
        yield Finding("settings", "warn", why, "chmod go-w")
    yield from _runtime(runtime, owner, installation.root)
    yield from _lingering(runtime, owner, installation.root)
    group = installation.settings.daemon.socket_group
    if group and (why := membership.outside(group, owner)):
        what = f"daemon.socket_group: {why}: only the daemon's own user and root can use the control socket"
        yield Finding("control socket", "bad", what, f"usermod -aG {group} USER, then restart the daemon; or leave it empty")


def _state(state: Path, owner: int, installation: Installation) -> Iterator[Finding]:
    kind = kind_of(state, installation.root)
    if why := unsafe(kind, cluster=installation.settings.remote):
        yield Finding("state", "bad", f"{state} {why}", "choose a state_dir on a disk of this machine")
    elif os.statvfs(state).f_flag & os.ST_RDONLY:
        yield Finding("state", "bad", f"{state} lies on a read-only file system", "dmesg may say why; mount it writable")
    else:
        strange = [entry.name for entry in state.iterdir() if entry.lstat().st_uid != owner]
        if strange:
            what = f"in {state}, {strange[0]} belongs to another user than the directory itself"
            yield Finding("state", "bad", what, f"chown -R --reference={state} {state}")
        elif layered(kind):
            what = f"{state} on {kind}: a layer of a container, which is deleted with the container"
            yield Finding("state", "warn", what, "mount a volume of the host there, unless the container is never replaced")
        else:
            yield Finding("state", "ok", f"{state} on {kind or 'an unknown file system'}")
        if why := trust.why_untrusted(state, owner):
            yield Finding("state", "warn", f"{why}: another user could replace checkpoints in {state}", "chmod go-w")


def _runtime(runtime: Path, owner: int, root: str) -> Iterator[Finding]:
    """The runtime directory is in memory, and only `owner` can change it."""
    kind = kind_of(runtime if runtime.is_dir() else runtime.parent, root)
    try:
        why = trust.why_untrusted(runtime, owner)
    except PermissionError as error:
        yield Finding("runtime", "unknown", f"{error.filename} cannot be read by this user", "run doctor as root")
        return
    if why:
        yield Finding(
            "runtime", "bad", f"{runtime} is not safe: {why}; no daemon starts there", "chmod go-w, or choose another"
        )
    elif kind and kind not in MEMORY:
        what = f"{runtime} lies on {kind}: beats are written to a disk, and a reboot does not clear it"
        yield Finding("runtime", "warn", what, "choose a runtime_dir on tmpfs, below /run")
    else:
        yield Finding("runtime", "ok", f"{runtime} in memory")


def _lingering(runtime: Path, owner: int, root: str) -> Iterator[Finding]:
    """Logind removes /run/user/UID at the user's last logout and kills the user's processes, unless lingering is on."""
    if runtime.parts[:3] != ("/", "run", "user") or owner == 0:
        return
    name = name_of(owner, "{}")
    if Path(f"{root}/var/lib/systemd/linger/{name}").exists():
        yield Finding("lingering", "ok", f"on for {name}: {runtime} outlives a logout")
    else:
        what = f"{runtime} is removed when {name} logs out, and the processes of {name} may be killed"
        yield Finding("lingering", "bad", what, f"loginctl enable-linger {name}, or install the service (deploy/install.sh)")


def boot_enabled_watchdog(installation: Installation) -> Iterator[Finding]:
    """The hardware watchdog resets a kernel that hangs, and a kernel that panics reboots."""
    digits = text_of(f"{installation.root}/proc/sys/kernel/panic").strip()
    panic = int(digits) if digits.lstrip("-").isdecimal() else None
    keep = "echo kernel.panic=10 >/etc/sysctl.d/90-panic.conf; sysctl --system"
    if panic is None:
        yield Finding("kernel panic", "unknown", "kernel.panic cannot be read")
    elif panic == 0:
        what = "kernel.panic is 0: after a kernel panic the box hangs until somebody resets it"
        yield Finding("kernel panic", "warn", what, keep)
    else:
        what = f"the box reboots {'at once' if panic < 0 else f'{span(panic)}'} after a kernel panic"
        if _panic_is_persistent(installation.root):
            yield Finding("kernel panic", "ok", what)
        else:
            yield Finding("kernel panic", "warn", f"{what}, but no file sets this again at the next boot", keep)
    if not list(Path(f"{installation.root}/dev").glob("watchdog[0-9]")):
        what = "there is no /dev/watchdog0: nothing reboots a kernel that hangs"
        do = "modprobe iTCO_wdt, sp5100_tco or ipmi_watchdog (servers), i6300esb (guests); rented boxes may have none"
        yield Finding("hardware watchdog", "unknown", what, do)
        return
    shown = output_of("systemctl", "show", "--property=RuntimeWatchdogUSec", "--value").strip()
    if shown in {"", "0", "infinity"}:
        do = "RuntimeWatchdogSec=60 in /etc/systemd/system.conf.d/watchdog.conf, then systemctl daemon-reexec"
        yield Finding("hardware watchdog", "warn", "the box has one, but systemd does not use it", do)
    else:
        yield Finding("hardware watchdog", "ok", f"systemd feeds it, limit {shown}")


def _panic_is_persistent(root: str) -> bool:
    """Whether the next boot sets kernel.panic again: by a sysctl file or by the kernel's command line."""
    files = [Path(f"{root}/etc/sysctl.conf")]
    for directory in ("etc", "run", "usr/local/lib", "usr/lib", "lib"):
        files += Path(f"{root}/{directory}/sysctl.d").glob("*.conf")
    lines = [line for path in files for line in text_of(path).splitlines() if "=" in line]
    keys = {line.partition("=")[0].strip().lstrip("-").replace("/", ".") for line in lines}
    return "kernel.panic" in keys or any(word.startswith("panic=") for word in text_of(f"{root}/proc/cmdline").split())


def previous_boots(installation: Installation) -> Iterator[Finding]:
    """The system journal survives a reboot: it is evidence for the cause of the reboot."""
    if Path(f"{installation.root}/var/log/journal").is_dir():
        yield Finding("system journal", "ok", "kept over reboots")
    elif Path(f"{installation.root}/run/systemd/system").is_dir():
        do = "mkdir -p /var/log/journal; systemctl restart systemd-journald"
        yield Finding(
            "system journal", "warn", "it is not kept over a reboot: its last lines, which explain a reboot, are lost", do
        )


def clock(installation: Installation) -> Iterator[Finding]:
    """The clock is synchronised, as timedatectl reports on a box with systemd, else as the kernel reports."""
    answer = ""
    if Path(f"{installation.root}/run/systemd/system").is_dir():
        answer = output_of("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
    known = {"yes": True, "no": False}.get(answer)
    known = synchronised() if known is None else known
    if known:
        yield Finding("clock", "ok", "synchronised")
    elif known is False:
        do = "timedatectl set-ntp true, or install chrony; a container has the clock of its host"
        yield Finding("clock", "warn", "the clock is not synchronised: times in history and alerts may be wrong", do)
    else:
        yield Finding("clock", "unknown", "nothing on this box reports whether it is synchronised")


def synchronised() -> bool | None:
    """Whether a time service disciplines the kernel's clock: adjtimex(2) returns TIME_ERROR while none does."""
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else bool(answer != _TIME_ERROR)


def text_of(path: str | Path) -> str:
    """A file's text; empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace", encoding="utf-8")
    except OSError:
        return ""


def output_of(*command: str) -> str:
    """The output of a program; empty if it is not installed, cannot start, or does not end within `_TOOL_S`."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TOOL_S, check=False)
        return done.stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def probed(probe: str, *args: str, timeout_s: float, given: str = "") -> Any:
    """The JSON that Python code prints in a process of its own; None if it hangs, crashes or prints anything else.

    The imports of such probes take seconds and hundreds of megabytes, and may hang or crash on a driver.
    """
    command = [sys.executable, "-P", "-Xutf8=1", "-c", probe, *args]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False, cwd="/"
        )
        return json_of(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def command_findings(section: str, command: Sequence[str], user: int, root: str) -> Iterator[Finding]:
    """Why the daemon cannot run the command of a section."""
    if not command:
        return
    name, what = command[0], f"{section}.command: {command[0]}"
    path = shutil.which(name) or (name if os.path.lexists(name) else "")
    if not path:
        yield Finding(section, "bad", f"{what} does not exist", f"correct {section}.command")
    elif not _may_execute(Path(path), user):
        yield Finding(section, "bad", f"{what} may not be executed by the daemon, user {user}", f"chmod 755 {path}")
    elif str(Path(path).resolve()).startswith(_HOMES) and Path(f"{root}/etc/systemd/system/extralife.service").exists():
        what = f"{what} lies in a home directory, which the service does not see"
        yield Finding(section, "bad", what, "put it into /usr/local/bin, /srv or /etc/extralife")


def _may_execute(path: Path, user: int) -> bool:
    """Judge by mode and owner only: the daemon's groups are unknown here."""
    try:
        status = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    return bool(status.st_mode & (0o111 if user == 0 else 0o100 if status.st_uid == user else 0o011))


def daemon_user(state_dir: str) -> int:
    """User id of the daemon: the owner of its state directory; without one, the current user."""
    try:
        return Path(state_dir).stat().st_uid
    except OSError:
        return os.geteuid()
