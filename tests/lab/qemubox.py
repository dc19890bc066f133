"""A box with a kernel of its own, in qemu: real cgroup controllers, panics, pstore, a hardware watchdog. No KVM needed.

What a container over this machine's kernel (`labbox.py`) cannot show. The processor is emulated, so everything takes ten to
fifty times as long as here; tests want few and small programs. The system is Debian's, made once by mmdebstrap
(network needed, some minutes, 700 MB) and kept in $EXTRALIFE_LAB_IMAGES (/var/tmp/extralife-lab). Into a copy of it extralife is
installed with deploy/install.sh, in a chroot at this machine's speed; the daemon is first started by the box's own systemd.

Commands go through a serial port of virtio's to a small agent, one at a time: no network, no keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import labbox
from installed import FACTS
from labbox import PATIENCE, ROOT

IMAGES: Final = Path(os.environ.get("EXTRALIFE_LAB_IMAGES", "/var/tmp/extralife-lab"))
CHECKOUT, PACKAGES, PORT = "/srv/checkout", "/srv/packages", "extralife"
_SUITE: Final = "bookworm"
_DEBIAN: Final = "systemd,systemd-sysv,dbus,udev,kmod,procps,util-linux,python3,e2fsprogs"
_MODULES: Final = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "crc32c_generic", "i6300esb")
# What the daemon imports and no more: this is no box to train on.
_DISTRIBUTIONS: Final = (
    "structlog", "psutil", "nvidia-ml-py", "apscheduler", "tzlocal", "starlette", "uvicorn", "anyio", "idna", "sniffio",
    "click", "h11", "typing_extensions",
)  # fmt: skip
_SHIPPED: Final = (
    "supervisor", "workers", "deploy", "units", "docs", "tests/requirements.lock", "tests/requirements-systemd.lock",
    "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE",
)  # fmt: skip
_TOOLS: Final = {
    "qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "cpio": "cpio", "xz": "xz-utils",
    "depmod": "kmod", "modprobe": "kmod", "dpkg-deb": "dpkg", "apt-get": "apt", "unshare": "util-linux",
}  # fmt: skip
_CMDLINE: Final = (
    "root=/dev/vda rw console=ttyS0 nokaslr mitigations=off net.ifnames=0 random.trust_cpu=on fsck.mode=skip "
    # An emulated processor stands still for seconds when this machine is busy: not what the kernel should judge by.
    "clocksource=acpi_pm rcupdate.rcu_cpu_stall_suppress=1 nowatchdog quiet"
)
_BOOT_S: Final = 900.0
# What supervisorctl asks, without its second of imports, which is half a minute here.
_ASK: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect("/run/extralife/supervisor.sock")
    asked.sendall(b"GET /api/v1/status HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    print(b"".join(iter(lambda: asked.recv(65536), b"")).partition(b"\\r\\n\\r\\n")[2].decode())
"""
_AGENT: Final = """
import json, os, subprocess, time
fd, left = os.open("/dev/virtio-ports/extralife", os.O_RDWR), b""
while True:
    data = os.read(fd, 65536)
    if not data:
        time.sleep(0.05)  # nobody is at the other end
    *lines, left = (left + data).split(b"\\n")
    for line in lines:
        try:
            asked = json.loads(line)
        except ValueError:
            continue  # half a line, from before a reboot
        try:
            done = subprocess.run(asked["argv"], capture_output=True, timeout=asked["timeout_s"], stdin=subprocess.DEVNULL)
            told = {"code": done.returncode, "out": done.stdout.decode(errors="replace"), "err": done.stderr.decode(errors="replace")}
        except (OSError, subprocess.TimeoutExpired) as error:
            told = {"code": 255, "out": "", "err": str(error)}
        answer = json.dumps({"id": asked["id"], **told}).encode() + b"\\n"
        while answer:
            answer = answer[os.write(fd, answer):]
"""
_AGENT_UNIT: Final = """
[Unit]
DefaultDependencies=no
After=local-fs.target systemd-udevd.service
[Service]
ExecStart=/usr/bin/python3 -S /srv/agent.py
Restart=always
RestartSec=1
[Install]
WantedBy=sysinit.target
"""
_INIT: Final = """#!/bin/busybox sh
for what in proc sysfs devtmpfs; do /bin/busybox mount -t $what $what /$what; done
while read -r module; do /bin/busybox insmod "/modules/$module"; done </modules/order
n=0; while [ ! -b /devtmpfs/vda ] && [ $n -lt 200 ]; do /bin/busybox sleep 0.1; n=$((n+1)); done
/bin/busybox mount -t ext4 /devtmpfs/vda /new || /bin/busybox poweroff -f
/bin/busybox mount --move /devtmpfs /new/dev
/bin/busybox umount /proc; /bin/busybox umount /sysfs
exec /bin/busybox switch_root /new /lib/systemd/systemd
"""
# What runs in the system's tree before it is booted: with /proc and /dev, and systemctl told that nobody listens.
_CHROOT: Final = """
set -e
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/run"; mkdir -p "$0/run/systemd/system"
exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SYSTEMD_OFFLINE=1 "$@"
"""


def unfit() -> str:
    """Why no such box can be made on this machine; empty when one can."""
    if os.geteuid() != 0:
        return "only root can make a box"
    if platform.machine() != "x86_64":
        return f"the box with a kernel of its own is made for x86_64, not {platform.machine()}"
    missing = sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None})
    return f"not found (apt-get install {' '.join(missing)})" if missing else ""


def until(look: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """As `labbox.until`, with pauses: a look is a second's work for such a processor, which has other things to do."""
    return labbox.until(look, timeout_s, what, pause_s=4.0)


class NoImage(Exception):
    """The system for the box could not be made: no network, most likely."""


def base() -> Path:
    """The directory with `root`, `vmlinux` and `initrd`; made when it does not exist yet."""
    recipe = (_SUITE, _DEBIAN, *_MODULES, _INIT)
    where = IMAGES / hashlib.sha256("\0".join(recipe).encode()).hexdigest()[:12]
    if not (where / ".complete").exists():
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        try:
            _host("mmdebstrap", "--quiet", "--variant=minbase", f"--include={_DEBIAN}", _SUITE, where / "root")
            _make_kernel(where)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout or "").strip().splitlines() or ["no reason given"]
            raise NoImage(f"{Path(str(error.cmd[0])).name} could not make the box's system: {said[-1]}") from error
        (where / ".complete").touch()
    return where


def _host(*command: str | Path, cwd: Path | None = None, stdin: bytes | None = None) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, cwd=cwd, input=stdin, check=False)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, [str(command[0])], out, err)
    return out


def _make_kernel(where: Path) -> None:
    """Debian's kernel, its few modules that are needed, and what finds the disk."""
    unpacked, initrd = where / "debs", where / "initrd.d"
    unpacked.mkdir()
    kernel = _host("apt-cache", "depends", "--important", "linux-image-amd64").partition("Depends:")[2].split()[0]
    _host("apt-get", "download", "-q", kernel, "busybox-static", cwd=unpacked)
    for deb in unpacked.glob("*.deb"):
        _host("dpkg-deb", "-x", deb, unpacked)
    release = next((unpacked / "lib/modules").iterdir()).name
    _host("depmod", "-b", unpacked, release)
    for name in ("bin", "proc", "sysfs", "devtmpfs", "new", "modules"):
        (initrd / name).mkdir(parents=True)
    order: list[Path] = []
    for module in _MODULES:
        shown = _host("modprobe", "--show-depends", "-d", unpacked, "-S", release, module)
        order += [path for line in shown.splitlines() if line.startswith("insmod ")
                  and (path := Path(line.split()[1])) not in order]  # fmt: skip
    for path in order:
        shutil.copy(path, initrd / "modules" / path.name)
    (initrd / "modules/order").write_text("".join(f"{path.name}\n" for path in order))
    shutil.copy(unpacked / "bin/busybox", initrd / "bin/busybox")
    (initrd / "init").write_text(_INIT)
    (initrd / "init").chmod(0o755)
    names = "".join(f"{path.relative_to(initrd)}\n" for path in sorted(initrd.rglob("*")))
    archive = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), capture_output=True, cwd=initrd, check=True
    )
    (where / "initrd").write_bytes(archive.stdout)
    (where / "vmlinux").write_bytes(_vmlinux(unpacked / "boot" / f"vmlinuz-{release}"))
    shutil.rmtree(unpacked)


def _vmlinux(packed: Path) -> bytes:
    """The kernel without its own unpacker, which an emulated processor would be at for a minute."""
    data = packed.read_bytes()
    for magic, tool in ((b"\xfd7zXZ\x00", "xz"), (b"(\xb5/\xfd", "zstd")):
        at = data.find(magic)
        while at >= 0:
            done = subprocess.run(
                [tool, "-dc"], input=data[at:], capture_output=True, check=False
            )  # what follows is no error
            if done.stdout.startswith(b"\x7fELF"):
                return done.stdout
            at = data.find(magic, at + 1)
    raise NoImage(f"{packed.name} is packed in a way that is not known here")


class QemuBox:
    """One box: made with extralife installed and enabled; `boot`, then `run` commands in it; `close` at the end."""

    def __init__(self, directory: Path, config: str, files: dict[str, str] | None = None) -> None:
        self.directory, self.console = directory, directory / "console.log"
        self._image, self._base = directory / "disk.img", base()
        self._process: subprocess.Popen[bytes] | None = None
        self._port: socket.socket | None = None
        self._left, self._asked = b"", 0
        self._make_disk(config, files or {})

    # --- the disk ------------------------------------------------------------------------------------------------------

    def _make_disk(self, config: str, files: dict[str, str]) -> None:
        root = self.directory / "root"
        _host("cp", "-a", "--reflink=auto", self._base / "root", root)
        for name in _SHIPPED:
            target = root / CHECKOUT[1:] / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
        for name in _DISTRIBUTIONS:
            with contextlib.suppress(metadata.PackageNotFoundError):  # what it needs differs a little by version
                _copy_distribution(name, root / PACKAGES[1:])
        furniture = {
            "etc/hostname": "box\n", "etc/fstab": "", "etc/machine-id": f"{os.urandom(16).hex()}\n", "srv/agent.py": _AGENT,
            "etc/systemd/system/agent.service": _AGENT_UNIT, "etc/extralife/extralife.toml": config,
            # Starting takes a minute on such a processor.
            "etc/systemd/system/extralife.service.d/slow.conf":
                "[Service]\nTimeoutStartSec=900\nTimeoutStopSec=600\nWatchdogSec=600\n",
            "etc/systemd/system.conf.d/slow.conf": "[Manager]\nDefaultTimeoutStartSec=600\n",
        }  # fmt: skip
        for name, text in (furniture | files).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(text)
        (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
        self._furnish(root)
        with self._image.open("wb") as image:
            image.truncate(3 * 2**30)
        _host("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", root, self._image)
        shutil.rmtree(root)

    def _furnish(self, root: Path) -> None:
        def inside(*command: str) -> str:
            try:
                return _host("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _CHROOT, root, *command)
            except subprocess.CalledProcessError as error:
                raise AssertionError(f"{' '.join(command)}, in the box's system: {error.stdout}{error.stderr}") from None

        inside("python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", PACKAGES, "/usr/lib/python3")
        inside(f"{CHECKOUT}/deploy/install.sh", "--packages", PACKAGES, "--no-start")
        masked = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
                  "e2scrub_reap.service", "serial-getty@ttyS0.service", "getty@tty1.service", "systemd-fsck-root.service",
                  "systemd-networkd.service", "systemd-timesyncd.service")  # fmt: skip
        inside("systemctl", "--quiet", "mask", *masked)
        inside("systemctl", "--quiet", "enable", "agent.service", "extralife.service", "systemd-pstore.service")
        inside("systemctl", "--quiet", "set-default", "multi-user.target")

    # --- power ---------------------------------------------------------------------------------------------------------

    def boot(self, *, pstore: bool = True) -> float:
        """Turn it on; returns the seconds until it answers. Without `pstore` a panic has nowhere to leave its last words."""
        began_s = time.monotonic()
        erst = self.directory / "erst"
        if not erst.exists():
            erst.touch()
            os.truncate(erst, 256 * 1024)
        port = self.directory / "port"
        port.unlink(missing_ok=True)
        command = [
            "qemu-system-x86_64", "-M", "pc,hpet=off,usb=off,smm=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512",
            "-cpu", "max,la57=off", "-smp", "1", "-m", "1G", "-nodefaults", "-no-user-config", "-display", "none",
            "-serial", f"file:{self.console}",
            "-kernel", str(self._base / "vmlinux"), "-initrd", str(self._base / "initrd"), "-append", _CMDLINE,
            "-drive", f"file={self._image},format=raw,if=none,id=disk,cache=writeback", "-device", "virtio-blk-pci,drive=disk",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=port,path={port},server=on,wait=off",
            "-device", f"virtserialport,chardev=port,name={PORT}",
            "-device", "i6300esb", "-action", "watchdog=reset",
        ]  # fmt: skip
        if pstore:
            command += ["-object", f"memory-backend-file,id=erst,mem-path={erst},size=256K,share=on"]
            command += ["-device", "acpi-erst,memdev=erst"]
        with (self.directory / "qemu.log").open("ab") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/")
        until(port.exists, 30, "qemu to start")
        self._port = socket.socket(socket.AF_UNIX)
        self._port.connect(str(port))
        self.wait_up()
        return time.monotonic() - began_s

    def wait_up(self, other_than: str = "") -> str:
        """Until its agent answers, from another boot than that one; returns the boot's id."""

        def look() -> str:
            if self._process is None or self._process.poll() is not None:
                raise AssertionError(f"the box went down: {(self.directory / 'qemu.log').read_text()[-2000:]}")
            found = self.run("cat", "/proc/sys/kernel/random/boot_id", check=False, timeout_s=5).stdout.strip()
            return found if found != other_than else ""

        found: str = until(look, _BOOT_S, f"the box to boot; {self.console} has what it said")
        return found

    def cut_power(self) -> None:
        """What was not synced is lost with the processes. `boot` is what comes next."""
        if self._port is not None:
            self._port.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process, self._port = None, None

    def close(self) -> None:
        self.cut_power()
        self._image.unlink(missing_ok=True)

    # --- inside --------------------------------------------------------------------------------------------------------

    def run(self, *argv: str, check: bool = True, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """A command in the box, as root."""
        assert self._port is not None
        self._asked += 1
        ask = {"id": self._asked, "argv": argv, "timeout_s": timeout_s * PATIENCE}
        self._port.sendall(json.dumps(ask).encode() + b"\n")
        until_s = time.monotonic() + timeout_s * PATIENCE + (30 if check else 0)
        began_s = time.monotonic()
        told = self._answer(until_s)
        with (self.directory / "asked.log").open("a") as log:  # where the time goes
            log.write(
                f"{began_s:.1f} +{time.monotonic() - began_s:.1f} s {argv[-1][:60]!r} {None if told is None else told['code']}\n"
            )
        if told is None:
            if check:
                raise AssertionError(f"{' '.join(argv)}: no answer from the box")
            return subprocess.CompletedProcess(argv, 255, "", "no answer")
        if check and told["code"] != 0:
            raise AssertionError(f"{' '.join(argv)} ended with {told['code']}:\n{told['out']}{told['err']}"[-4000:])
        return subprocess.CompletedProcess(argv, told["code"], told["out"], told["err"])

    def tell(self, script: str) -> None:
        """A line of shell of which no answer is expected."""
        assert self._port is not None
        self._asked += 1
        ask = {"id": self._asked, "argv": ["sh", "-c", script], "timeout_s": 60}
        self._port.sendall(json.dumps(ask).encode() + b"\n")

    def _answer(self, until_s: float) -> dict[str, Any] | None:
        """The one to the newest question; those to earlier ones, given up, are passed over."""
        assert self._port is not None
        while time.monotonic() < until_s:
            line, found, rest = self._left.partition(b"\n")
            if found:
                self._left = rest
                with contextlib.suppress(ValueError):
                    told: dict[str, Any] = json.loads(line)
                    if told["id"] == self._asked:
                        return told
                continue
            self._port.settimeout(max(0.01, until_s - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                data = self._port.recv(65536)
                if not data:
                    return None
                self._left += data
        return None

    def sh(self, script: str, check: bool = True, timeout_s: float = 300.0) -> str:
        return self.run("sh", "-c", script, check=check, timeout_s=timeout_s).stdout

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout

    def python(self, code: str, *args: str) -> Any:
        """The JSON that a few lines of Python print."""
        return json.loads(self.run("/usr/bin/python3", "-I", "-S", "-c", code, *args).stdout)

    def status(self) -> dict[str, Any]:
        """As the daemon says it."""
        found: dict[str, Any] = self.python(_ASK)
        return found

    def program(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.status()["programs"] if each["name"] == name)
        return found

    def facts(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.python(FACTS, kind)
        return found

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--property", name, "--value", unit).stdout.strip()


def _copy_distribution(name: str, target: Path) -> None:
    found = metadata.distribution(name)
    for file in found.files or ():
        source, to = Path(str(file.locate())), target / str(file)
        if ".." not in file.parts and source.is_file() and source.suffix != ".pyc":
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to)
