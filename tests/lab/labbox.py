"""A box with a real systemd that can be rebooted and can lose its power: a container over this machine's own `/`.

The box sees this machine's file system through an overlay, so there is nothing to build: interpreter, packages and
checkout are there. Whatever it writes goes to an ext4 file system in an image of its own. A power cut shuts that ext4
down first, as if the disk had gone (EXT4_IOC_SHUTDOWN without a flush of its log: what was not synced is lost), and
then kills every process. Each boot has a boot id and an uptime of its own.

What it is not: another kernel. No panic, no hardware watchdog; and where this machine keeps its cgroup controllers in
the first version's hierarchies, limits of memory and tasks are accepted in the box but not enforced.

Needs root, Linux 5.6, ext4, overlayfs and systemd-nspawn (Debian, Ubuntu: systemd-container). `unfit()` says what lacks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT, PACKAGES, SHARED = "/srv/checkout", "/srv/packages", "/srv/shared"  # in the box; packages are /srv/packages0 ...
PATIENCE = float(os.environ.get("EXTRALIFE_TEST_PATIENCE", "1"))  # multiplies every deadline, for slow machines
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_DISK_BYTES = 6 * 2**30
_REBOOT = 133  # how systemd-nspawn says that its system wants to be started again
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MASKED = (  # what a machine of its own would have, and a guest has no use for
    "console-getty.service", "e2scrub_reap.service", "systemd-timesyncd.service", "systemd-pstore.service",
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
)  # fmt: skip

# In namespaces of its own: its disk (mounted nowhere else: a namespace that somebody else makes meanwhile would copy that
# mount and hold the file system beyond its end), a tmpfs over /run (nspawn takes its directories below /run for the machine's otherwise), the
# second version's cgroups alone, and then, with clocks that begin now, the box itself.
_OUTER = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
since_mono=$1 since_boot=$2 image=$3 disk=$4 root=$5
shift 5
mount -o loop "$image" "$disk"
mount -t overlay box -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root"
exec unshare -T --monotonic "-$since_mono" --boottime "-$since_boot" -f -- systemd-nspawn --quiet --boot \
    --directory="$root" --register=no --keep-unit --private-network --hostname=box --resolv-conf=off --timezone=off --console=read-only "$@"
"""


def unfit() -> str:
    """Why no box can be made on this machine; empty when one can."""
    if os.geteuid() != 0:
        return "only root can make a box"
    tools = ("systemd-nspawn", "unshare", "nsenter", "mke2fs", "mount")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (apt-get install systemd-container util-linux e2fsprogs)"
    if not Path("/proc/self/ns/time").exists():
        return "the kernel has no time namespaces"
    if box_python() is None:
        return f"no Python {sys.version_info[0]}.{sys.version_info[1]} that everybody may execute, as the packages here need"
    return ""


def box_python() -> str | None:
    """An interpreter for the service's own user: of the version that the packages are for, and not below a closed home."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (Path(f"/usr/bin/{name}"), Path(f"/usr/local/bin/{name}"), Path(sys.executable).resolve()):
        if path.exists() and all(parent.stat().st_mode & 0o001 for parent in (path, *path.resolve().parents)):
            return str(path)
    return None


def packages() -> list[str]:
    """Where the packages of this very interpreter lie."""
    return [entry for entry in sys.path if entry.endswith("site-packages") and any(Path(entry).glob("torch"))]


def _binds(shared: Path | None) -> list[str]:
    """The checkout and the packages at places that do not depend on where they lie here."""
    found = [f"--bind-ro={ROOT}:{CHECKOUT}", *(f"--bind-ro={entry}:{PACKAGES}{n}" for n, entry in enumerate(packages()))]
    return found if shared is None else [*found, f"--bind={shared}:{SHARED}"]


def until(look: Callable[[], Any], timeout_s: float, what: str, pause_s: float = 0.05) -> Any:
    """The first true answer of `look`, asked again and again until the deadline."""
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}; last answer: {answer!r}")
        time.sleep(pause_s)


class Box:
    """One box: `boot`, then `run` commands in it, `cut_power`, `reboot`; `close` at the end, whatever happened."""

    def __init__(self, directory: Path, shared: Path | None = None) -> None:
        """`shared`: a directory of this machine that the box writes too, as SHARED."""
        self.directory, self.shared = directory, shared
        self.image, self.disk, self.root = directory / "disk.img", directory / "disk", directory / "root"
        self.console = directory / "console.log"
        base = Path("/sys/fs/cgroup/unified")
        self.cgroup = (base if base.is_dir() else Path("/sys/fs/cgroup")) / f"extralife-{os.getpid()}-{directory.name}"
        self._outer: subprocess.Popen[bytes] | None = None

    # --- power ---------------------------------------------------------------------------------------------------------

    def boot(self) -> float:
        """Start it; returns the seconds until systemd has started everything."""
        began_s = time.monotonic()
        if not self.image.exists():
            self._make_disk()
        self.cgroup.mkdir(exist_ok=True)
        before = [str(int(time.clock_gettime(clock))) for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        enter = 'echo $$ >"$0/cgroup.procs"; exec unshare -m -C -p -f --kill-child=KILL --mount-proc sh -c "$@"'
        with self.console.open("ab") as console:
            self._outer = subprocess.Popen(
                [
                    "sh", "-c", enter, str(self.cgroup), _OUTER, "box", *before, self.image, self.disk, self.root,
                    *_binds(self.shared),
                ],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True, cwd="/",
            )  # fmt: skip
        until(self._is_up, 90, f"the box to boot; {self.console} has what it said")
        return time.monotonic() - began_s

    def _is_up(self) -> bool:
        if self._outer is None or self._outer.poll() is not None:
            raise AssertionError(f"the box went down: {self.console.read_text(errors='replace')[-2000:]}")
        said = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return said in {"running", "degraded"}

    def freeze(self) -> None:
        """Everything in it stands still, until its power is cut."""
        self._freezer.write_text("1")

    @property
    def _freezer(self) -> Path:
        return self.cgroup / "payload" / "cgroup.freeze"

    def cut_power(self) -> None:
        """Nothing more reaches the disk, then everything is dead. `boot` is what comes next."""
        assert self._outer is not None
        fd = os.open(f"/proc/{self._outer.pid}/root{self.disk}", os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)
        self._kill()

    def from_outside(self, path: str) -> Path:
        """Where its disk has what it wrote to `path`, for looking at from out here, without asking anybody in there."""
        assert self._outer is not None
        return Path(f"/proc/{self._outer.pid}/root{self.disk}/upper{path}")

    def reboot(self) -> float:
        """`systemctl reboot`; returns the seconds until everything is started again."""
        began_s = time.monotonic()
        self.go_down()
        self.boot()
        return time.monotonic() - began_s

    def go_down(self) -> float:
        """`systemctl reboot`; returns the seconds until it is down. `boot` is what comes next."""
        began_s = time.monotonic()
        self.run("systemctl", "reboot", check=False)
        assert self._outer is not None
        assert self._outer.wait(180 * PATIENCE) == _REBOOT, self.console.read_text(errors="replace")[-2000:]
        took_s = time.monotonic() - began_s
        self._kill()
        return took_s

    def close(self) -> None:
        """Off, and nothing of it left but its directory."""
        self._kill()
        for directory, _, _ in os.walk(self.cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        self.image.unlink(missing_ok=True)

    def _kill(self) -> None:
        outer, self._outer = self._outer, None
        if outer is not None and outer.poll() is None:
            outer.kill()  # its child is process 1 of a namespace, and the kernel ends all of that with it
            outer.wait()
        until(lambda: not self._processes(), 20, "every process of the box to be gone")
        with contextlib.suppress(FileNotFoundError):
            self._freezer.write_text("0")  # the next boot is in the same cgroup
        # The namespaces of the dead let go of the disk a little later. Until then a new mount would be of the same file
        # system, shut down as it is.
        until(lambda: not self.disk_is_held(), 60, "the disk to be let go")

    def disk_is_held(self) -> bool:
        """Somebody still has its file system mounted."""
        return _host("losetup", "--associated", str(self.image), check=False).stdout != ""

    def _processes(self) -> list[int]:
        found: list[int] = []
        for directory, _, _ in os.walk(self.cgroup):
            with contextlib.suppress(OSError):
                found += map(int, Path(directory, "cgroup.procs").read_text().split())
        return found

    # --- the disk ------------------------------------------------------------------------------------------------------

    def _make_disk(self) -> None:
        with self.image.open("wb") as image:
            image.truncate(_DISK_BYTES)
        _host("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self.image))
        for directory in (self.disk, self.root):
            directory.mkdir(exist_ok=True)
        _host("mount", "-o", "loop", str(self.image), str(self.disk))
        upper, work = self.disk / "upper", self.disk / "work"
        try:
            for directory in (upper, work):
                directory.mkdir()
            _host("mount", "-t", "overlay", "box", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", str(self.root))
            self._furnish()
        finally:
            for directory in (self.root, self.disk):
                if directory.is_mount():
                    _host("umount", str(directory))

    def _furnish(self) -> None:
        """What makes it another machine than this one, and a quiet one."""
        etc = self.root / "etc"
        units = etc / "systemd" / "system"
        for enabled in (*units.glob("multi-user.target.wants/*"), *units.glob("timers.target.wants/*")):
            enabled.unlink()
        for name in _MASKED:
            (units / name).unlink(missing_ok=True)
            (units / name).symlink_to("/dev/null")
        (units / "default.target").unlink(missing_ok=True)
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        (etc / "machine-id").write_text(f"{os.urandom(16).hex()}\n")
        (etc / "fstab").write_text("")
        (self.root / "var/log/journal").mkdir(parents=True, exist_ok=True)

    # --- inside --------------------------------------------------------------------------------------------------------

    @property
    def init(self) -> int | None:
        """Process 1 of the box, by its number out here."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((self.cgroup / "payload/init.scope/cgroup.procs").read_text().split()[0])
        return None

    def run(self, *command: str, check: bool = True, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """A command in the box, as root."""
        init = self.init
        if init is None:
            return subprocess.CompletedProcess(command, 255, "", "the box is not up")
        seat = str(self.cgroup / "payload" / "visitors")  # of its cgroups too, or they could not be told in its terms
        enter = 'mkdir -p "$0"; echo $$ >"$0/cgroup.procs"; exec nsenter -t "$1" -m -u -i -n -p -C -T -r -w env -i "${@:2}"'
        done = subprocess.run(
            ["bash", "-c", enter, seat, str(init), _PATH, "HOME=/root", "LANG=C.UTF-8", *command],
            capture_output=True, text=True, timeout=timeout_s * PATIENCE, check=False, stdin=subprocess.DEVNULL,
            start_new_session=True,  # a signal for a process group stays in the box
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
        return done

    def signal(self, pid: int, number: signal.Signals) -> None:
        """A signal for a process of the box, by its number in there.

        Never 0, which MainPID is while a service is down: that would be the whole process group of the command.
        """
        if pid <= 0:
            raise AssertionError(f"no process has the number {pid}")
        self.run("kill", f"-{number.name.removeprefix('SIG')}", str(pid))

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).stdout.strip()

    def boot_id(self) -> str:
        return self.run("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def python(self, code: str, *args: str) -> str:
        """What a few lines of Python print in the box."""
        return self.run(box_python() or "python3", "-c", code, *args).stdout


def _host(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done
