"""The box under test: two real games, a daemon as an ordinary process, and a driver that plays systemd."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from box import PATIENCE, Box

from chaos import ROOT

HOOKS = Path(__file__).parent / "hooks"
RESTART_S = 0.5  # RestartSec= of units/extralife.service
WATCHDOG_S = 12.0 * min(PATIENCE, 2.0)  # WatchdogSec=; shorter than the unit's 30 s, so that a run meets it often
CHECKPOINT_MAX_S = 3.0

CONTROL = "control"  # the control socket's name in the descriptor store
# $LISTEN_PID must be the daemon's own pid, and the first descriptor that is handed over is 3.
_HAND_OVER = 'fd=$1; shift; exec 3<&"$fd"; export LISTEN_PID=$$; exec "$@"'

ALGORITHMS = ("dqn", "ppo")
GAMES = ("Pong", "Breakout", "Catch", "Qbert")
SCRIPT = "script"  # somebody's own training, with one checkpoint file that it overwrites in place
SCRIPT_INTERVAL = 40  # its steps between two checkpoints
SCRIPT_BEHIND = 400  # 20 s of its steps: the daemon looks every ten seconds, and copies what it finds whole
OPTIONS = {
    "dqn": 'algo = "dqn"\nreplay_size = 4000\nlearning_starts = 200\nreplay_ratio = 0.5\nbatch_size = 32',
    "ppo": 'algo = "ppo"\nn_steps = 32\nepochs = 1\nbatch_size = 64',
}


def configuration(world: World, *, slots: int | None = None) -> str:
    """Limits so short that one hour can hold as many faults as a year: no operator would choose these values."""
    text = f"""
[daemon]
state_dir = "{world.state}"
runtime_dir = "{world.runtime}"
sample_period_s = 0.5
alive_period_s = 1.0
[level]
slots = {len(world.programs) + 1 if slots is None else slots}
num_envs = 4
batch_size = 32
threads = 1
[restart]
base_delay_s = 0.2
max_delay_s = 2.0
healthy_s = 10.0
window_s = 20.0
window_deaths = 64
[stall]
floor_s = {8.0 * min(PATIENCE, 2.0)}
live_s = 4.0
continue_s = 2.0
grace_s = 2.0
[checkpoint]
min_s = 1.0
first_s = 1.0
max_s = {CHECKPOINT_MAX_S}
"""
    for number, name in enumerate(world.programs):
        text += f"""
[program.{name}]
{OPTIONS[ALGORITHMS[number % 2]]}
steps = 1000000000
resolution = 36
stop_grace_s = 10.0
tensorboard = false
env = {{ PYTHONPATH = "{HOOKS}:{ROOT}", CHAOS_DIR = "{world.orders}" }}
"""
    return f"""{text}
[program.{SCRIPT}]
command = ["{sys.executable}", "{HOOKS}/script.py", "{world.orders}", "{SCRIPT_INTERVAL}", "{{resume}}"]
checkpoint_glob = "{world.orders}/last.pt"
log_regex = 'step=(?P<step>\\d+)'
target_steps = 1000000000
stop_grace_s = 10.0
"""


@dataclass(slots=True)
class Life:
    """One process of the daemon, as its service manager sees it."""

    process: subprocess.Popen[bytes]
    began_s: float  # time.monotonic(), as everywhere in this package
    ready_s: float | None = None
    ended_s: float | None = None
    watchdog_s: float = 0.0


class Systemd(threading.Thread):
    """Plays systemd for one service: Restart=always, RestartSec=, WatchdogSec=, a notify socket, a descriptor store."""

    def __init__(self, world: World) -> None:
        super().__init__(name="systemd", daemon=True)
        self._world = world
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._held = 0
        self.lives: list[Life] = []
        self.watchdog_kills = 0
        self._due_s = 0.0
        self._stored: dict[str, int] = {}  # name -> descriptor, as FileDescriptorStoreMax= allows
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = str(world.short / "notify")
        self._socket.bind(self.address)

    @property
    def life(self) -> Life | None:
        return self.lives[-1] if self.lives else None

    def alive(self) -> Life | None:
        """The present daemon, once it has sent READY."""
        life = self.life
        return life if life is not None and life.ready_s is not None and life.process.poll() is None else None

    @contextlib.contextmanager
    def held(self) -> Any:
        """Start no daemon in this block, as between a power cut and the boot."""
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                self._due_s = 0.0

    def run(self) -> None:
        while not self._over.is_set():
            self._hear()
            with self._lock:
                self._turn()

    def _turn(self) -> None:
        now_s, life = time.monotonic(), self.life
        if life is not None and life.ended_s is None:
            if life.process.poll() is not None:
                life.ended_s = now_s
                self._due_s = now_s + RESTART_S
                self._world.event(f"systemd: the daemon {life.process.pid} ended with {life.process.returncode}")
            elif life.ready_s is not None and now_s - life.watchdog_s > WATCHDOG_S:
                self.watchdog_kills += 1
                self._world.event(f"systemd: no WATCHDOG=1 for {WATCHDOG_S:g} s from the daemon {life.process.pid}: killed")
                life.process.kill()
                life.watchdog_s = now_s
        elif not self._held and now_s >= self._due_s:
            self._start(now_s)

    def _start(self, now_s: float) -> None:
        world = self._world
        env = {
            **os.environ, **world.env, "EXTRALIFE_BOOT_FILES": str(world.box.boot_files), "PYTHONPATH": str(ROOT),
            "NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command, stored = [sys.executable, "-m", "supervisor", "-c", str(world.config_file)], self._stored.get(CONTROL)
        if stored is not None:
            env |= {"LISTEN_FDS": "1", "LISTEN_FDNAMES": CONTROL}
            command = ["sh", "-c", _HAND_OVER, "sh", str(stored), *command]
        with world.daemon_log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                pass_fds=() if stored is None else (stored,),
            )  # fmt: skip
        self.lives.append(Life(process, now_s))
        world.event(f"systemd: started the daemon {process.pid}")

    def _hear(self) -> None:
        """Read notifications of the present daemon for 50 ms."""
        until_s = time.monotonic() + 0.05
        while (left_s := until_s - time.monotonic()) > 0 and select.select([self._socket], [], [], left_s)[0]:
            message, fds, _, _ = socket.recv_fds(self._socket, 8192, 8)
            with self._lock:
                self._store(message, fds)
            life = self.life
            if life is None or life.ended_s is not None:
                continue
            life.watchdog_s = time.monotonic()
            if b"READY=1" in message:
                life.ready_s = time.monotonic()
            if b"RELOADING=1" in message:
                life.ready_s = None

    def _store(self, message: bytes, fds: list[int]) -> None:
        fields = dict(line.split("=", 1) for line in message.decode().splitlines() if "=" in line)
        name = fields.get("FDNAME", "stored")
        kept = fds[:1] if "FDSTORE" in fields else []
        for fd in fds[len(kept) :]:
            os.close(fd)
        if kept or "FDSTOREREMOVE" in fields:
            self.forget(name)
        if kept:
            self._stored[name] = kept[0]

    def forget(self, name: str) -> None:
        """Drop a stored descriptor: the daemon requests it, or the box went down."""
        with self._lock:
            if name in self._stored:
                os.close(self._stored.pop(name))

    def close(self) -> None:
        self._over.set()
        self.forget(CONTROL)
        if self.is_alive():
            self.join()
        self._socket.close()


@dataclass(slots=True)
class World:
    """Directories, programs and the service manager of one run."""

    directory: Path
    programs: tuple[str, ...]
    started_s: float = field(default_factory=time.monotonic)
    env: dict[str, str] = field(default_factory=dict)
    events: list[tuple[float, str]] = field(default_factory=list)
    box: Any = None
    systemd: Any = None
    short: Path = Path()
    disk: Path | None = None  # a separate file system that can be filled; it holds the state directory
    verbose: bool = False

    def __post_init__(self) -> None:
        self.short = Path(tempfile.mkdtemp(prefix="xlc-", dir="/dev/shm"))
        self.box = Box(self.directory)
        if self.disk is not None:
            self.box.state = self.disk / "state"
        self.orders.mkdir()
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.config_file.write_text(configuration(self))
        self.systemd = Systemd(self)

    @property
    def state(self) -> Path:
        return self.box.state

    @property
    def runtime(self) -> Path:
        return self.box.runtime

    @property
    def config_file(self) -> Path:
        return self.box.config_file

    @property
    def daemon_log(self) -> Path:
        return self.box.log

    @property
    def orders(self) -> Path:
        return self.directory / "orders"

    def run_dir(self, program: str) -> Path:
        return self.state / "programs" / program

    def event(self, text: str) -> None:
        at_s = time.monotonic() - self.started_s
        self.events.append((at_s, text))
        if self.verbose:
            print(f"{at_s:7.1f}  {text}", flush=True)

    # requests of a client

    def request(self, method: str, path: str, body: Any = None, timeout_s: float = 30.0) -> tuple[int, Any]:
        """One request on the control socket. Raises OSError, or http.client.HTTPException."""
        connection = _Connection(str(self.runtime / "supervisor.sock"), timeout_s)
        try:
            headers = {"Host": "localhost", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(data)
        return answer.status, data.decode(errors="replace")

    def ask(self, verb: str, *names: str, timeout_s: float = 30.0) -> tuple[bool, str]:
        """(acknowledged, answer or error). A missing answer is not an acknowledgement."""
        body = {"verb": verb, "names": list(names), "wait": False, "timeout_s": 25.0}
        try:
            status, answer = self.request("POST", "/api/v1/ask", body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            return False, str(error)
        results = answer.get("results", []) if isinstance(answer, dict) else []
        return status == 200 and bool(results) and all(each["code"] == 80 for each in results), str(answer)

    # faults of the box

    def power_cut(self) -> None:
        """Remove all processes and the tmpfs; the next boot has another id."""
        with self.systemd.held():
            life = self.systemd.life
            if life is not None and life.process.poll() is None:
                life.process.kill()
                life.process.wait()
            self.systemd.forget(CONTROL)
            self.box.power_cut()
        self.event("the box was cut off and boots")

    def close(self) -> None:
        life = self.systemd.life
        with self.systemd.held():
            if life is not None and life.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(life.process.pid, signal.SIGCONT)
                life.process.kill()
                life.process.wait()
            self.systemd.close()
        self.box.close()
        for path in sorted(self.short.rglob("*"), reverse=True):
            path.unlink()
        self.short.rmdir()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
