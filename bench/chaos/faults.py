"""The faults, one function each: the action, its target, and the invariants that it may break, with durations (`table.py`).

A sleep in a fault is the fault's duration and so a part of it. For effects of a fault use `Scene.wait`.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import preload
from box import PATIENCE

from chaos import ROOT
from chaos.invariants import ACKNOWLEDGED_S, LACK, Checker, Scoreboard
from chaos.world import SCRIPT, WATCHDOG_S, World, configuration


class NotPossible(Exception):
    """The world is not in the state that the fault needs: the fault is skipped and counted as left out."""


@dataclass(slots=True)
class Scene:
    """The context of a fault. It has its own `dice`, so its actions depend only on the seed and its place in the plan."""

    world: World
    board: Scoreboard
    checker: Checker
    dice: random.Random
    program: str
    answers: list[str] = field(default_factory=list)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)  # (seconds from now, action)

    def main(self) -> int:
        """The pid of the program's worker, from /proc."""
        program = self.checker.seen.get(self.program)
        if program is None or not program.mains or program.steps is None:
            raise NotPossible(f"no worker of {self.program} trains")
        return program.mains[0].pid

    def shim(self) -> int:
        program = self.checker.seen.get(self.program)
        if program is None or not program.shims or not program.mains:
            raise NotPossible(f"no worker of {self.program} runs")
        return program.shims[0].pid

    def daemon(self) -> int:
        life = self.world.systemd.alive()
        if life is None:
            raise NotPossible("no daemon is up")
        return int(life.process.pid)

    def order(self, fault: str) -> None:
        """Order the worker to cause the fault itself at its next step (`hooks/sitecustomize.py`)."""
        self.main()
        aside = self.world.orders / f".{self.program}"
        aside.write_text(fault)
        order = aside.rename(self.world.orders / self.program)
        if not self.wait(lambda: not order.exists(), 10.0):
            order.unlink(missing_ok=True)  # the next attempt must not take it
            raise NotPossible(f"{self.program} takes no steps")

    def newest(self) -> Path:
        found = self.checker.truth.newest(self.program)
        if found is None:
            raise NotPossible(f"{self.program} has no checkpoint yet")
        return found

    def ask(self, verb: str, *names: str) -> bool:
        done, answer = self.world.ask(verb, *names)
        self.answers.append(answer)
        return done

    def wait(self, look: Callable[[], Any], timeout_s: float) -> bool:
        """Wait until `look` returns a true value; False after the timeout."""
        deadline_s = time.monotonic() + timeout_s
        while not look():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.05)  # between two looks
        return True


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


# --- workers -----------------------------------------------------------------------------------------------------------


def worker_killed(scene: Scene) -> None:
    _kill(scene.main(), signal.SIGKILL)


def worker_terminated(scene: Scene) -> None:
    _kill(scene.main(), signal.SIGTERM)


def worker_stopped(scene: Scene) -> None:
    _kill(scene.main(), signal.SIGSTOP)


def worker_segfaults(scene: Scene) -> None:
    scene.order("segfault")


def worker_hangs(scene: Scene) -> None:
    scene.order("hang")


def worker_holds_gil(scene: Scene) -> None:
    scene.order("gil")


def worker_exits(scene: Scene) -> None:
    scene.order("exit")


def worker_out_of_memory(scene: Scene) -> None:
    scene.order("memory")


def worker_leaves_children(scene: Scene) -> None:
    before = len(scene.checker.seen[scene.program].processes)
    pid = scene.main()
    scene.order("orphan")
    if not scene.wait(lambda: len(scene.checker.seen[scene.program].processes) > before, 10.0):
        raise NotPossible("it took no order")
    _kill(pid, signal.SIGKILL)


def shim_killed(scene: Scene) -> None:
    _kill(scene.shim(), signal.SIGKILL)


def save_fails(scene: Scene) -> None:
    """For a few seconds no write beyond the first 4 KiB of a file succeeds, as with a bad disk.

    This also affects the rows of a replay, whose space is reserved against a full disk: its worker ends with this error.
    """
    pid = scene.main()
    if not scene.checker.training(scene.program):
        raise NotPossible(f"{scene.program} does not train yet, and saves nothing")
    scene.board.exempt("steps", scene.program, 40.0)
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    time.sleep(6.0 * PATIENCE)  # two intervals: a busy machine saves late
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def _damage(scene: Scene, how: Callable[[Path], None]) -> None:
    """Damage the newest checkpoint while its worker is suspended; then kill the worker, so that the checkpoint is loaded."""
    pid = scene.main()
    whole = scene.checker.seen[scene.program].whole
    if len(whole) < 2:
        raise NotPossible("there is no second checkpoint to go back to")
    scene.board.exempt("checkpoint", scene.program, 20.0)
    scene.board.exempt("steps", scene.program, 60.0)
    _kill(pid, signal.SIGSTOP)
    try:
        how(scene.newest() / "tensors.safetensors")
    except FileNotFoundError as error:
        raise NotPossible("it was pruned meanwhile") from error
    finally:
        _kill(pid, signal.SIGKILL)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def checkpoint_flipped(scene: Scene) -> None:
    _damage(scene, _flip)


def checkpoint_cut(scene: Scene) -> None:
    _damage(scene, lambda path: os.truncate(path, path.stat().st_size // 2))


def checkpoint_emptied(scene: Scene) -> None:
    _damage(scene, lambda path: os.truncate(path, 0))


def checkpoint_file_missing(scene: Scene) -> None:
    _damage(scene, Path.unlink)


# --- a script of somebody's own ------------------------------------------------------------------------------------------


def _script(scene: Scene) -> int:
    """The pid of the script's worker, once it has saved."""
    if scene.checker.truth.script_figure("saved") is None:
        raise NotPossible("the script has not saved yet")
    return scene.main()


def script_terminated(scene: Scene) -> None:
    """Send SIGTERM to the script, which saves and exits with 0 far below its target."""
    _kill(_script(scene), signal.SIGTERM)


def script_cut_while_it_saves(scene: Scene) -> None:
    """Kill the script in the middle of a write over its only checkpoint."""
    pid, order = _script(scene), scene.world.orders / "slow-save"
    order.touch()
    if not scene.wait(lambda: not order.exists(), 20.0 * PATIENCE):
        order.unlink(missing_ok=True)
        raise NotPossible("the script saves nothing")
    _kill(pid, signal.SIGKILL)


# --- the daemon --------------------------------------------------------------------------------------------------------


def daemon_killed(scene: Scene) -> None:
    _kill(scene.daemon(), signal.SIGKILL)


def daemon_terminated(scene: Scene) -> None:
    _kill(scene.daemon(), signal.SIGTERM)


def daemon_frozen(scene: Scene) -> None:
    """Suspend the daemon for less time than the watchdog allows.

    A daemon that is still starting would not report the suspension, because it does not measure its loop yet.
    """
    pid = scene.daemon()
    try:
        scene.world.request("GET", "/api/v1/status", timeout_s=5.0 * PATIENCE)
    except (OSError, http.client.HTTPException) as error:
        raise NotPossible("the daemon does not serve yet") from error
    seconds = scene.dice.uniform(6.0, WATCHDOG_S - 4.0)
    scene.board.exempt("status", "daemon", seconds + 4.0 * PATIENCE)
    _kill(pid, signal.SIGSTOP)
    time.sleep(seconds)  # the duration of the fault
    _kill(pid, signal.SIGCONT)


def daemon_hangs(scene: Scene) -> None:
    """Suspend the daemon until the service manager's watchdog ends it."""
    pid = scene.daemon()
    scene.board.exempt("status", "daemon", WATCHDOG_S + 8.0 * PATIENCE)
    _kill(pid, signal.SIGSTOP)
    scene.wait(lambda: scene.world.systemd.life.process.pid != pid, WATCHDOG_S + 8.0)


def daemon_reloaded(scene: Scene) -> None:
    scene.daemon()
    scene.board.exempt("status", "daemon", 8.0 * PATIENCE)  # requests during the reload wait for the new image
    scene.ask("reload")


def second_daemon(scene: Scene) -> None:
    scene.daemon()
    env = {**os.environ, **scene.world.env, "EXTRALIFE_BOOT_FILES": str(scene.world.box.boot_files), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "-c", str(scene.world.config_file)],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    scene.answers.append(f"status {done.returncode}: {done.stderr}")


def second_daemon_without_lock(scene: Scene) -> None:
    """Remove the lock file, and start another daemon right after."""
    scene.daemon()
    _removed(scene.world.state / "lock")
    second_daemon(scene)


def journal_not_writable(scene: Scene) -> None:
    """For a few seconds no file of the daemon can grow, and a killed worker is an event to record."""
    pid, worker = scene.daemon(), scene.main()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    _kill(worker, signal.SIGKILL)
    time.sleep(scene.dice.uniform(3.0, 6.0))  # the duration of the fault: longer than the restart of the killed worker takes
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def journal_flipped(scene: Scene) -> None:
    """Flip one bit of a recorded fact while no daemon runs."""
    pid = scene.daemon()
    with scene.world.systemd.held():
        _kill(pid, signal.SIGKILL)
        scene.world.systemd.life.process.wait()
        path = scene.world.state / "journal.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data = bytearray(path.read_bytes())
        offsets, at = [], -1
        while (at := data.find(b"a slot of level", at + 1)) >= 0:
            offsets.append(at)
        if offsets:
            data[scene.dice.choice(offsets)] ^= 1
            path.write_bytes(data)
    if not offsets:
        raise NotPossible("the journal holds no start")


def clock_stepped(scene: Scene) -> None:
    if "LD_PRELOAD" not in scene.world.env:
        raise NotPossible("there is no C compiler for the library that steps the clock")
    scene.daemon()
    preload.set_clock(
        scene.world.directory, scene.dice.choice((-7200, -3600, 0, 3600, 7200)) + scene.dice.randrange(60, 600)
    )


def _refused(scene: Scene, limit: int, lowest: Callable[[int], int]) -> None:
    """For some seconds the daemon gets no more of a resource than it has, and a killed worker is an event to notice."""
    pid, worker = scene.daemon(), scene.main()
    seconds = scene.dice.uniform(10.0, 20.0)
    scene.board.exempt("status", "daemon", seconds + 10.0 * PATIENCE)
    # a worker that starts meanwhile has the same limit, and the time to die of it
    scene.board.exempt(LACK, "", seconds + 40.0 * PATIENCE)
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (lowest(pid), before[1]))
    try:
        _kill(worker, signal.SIGKILL)
        time.sleep(seconds)  # the duration of the fault
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, limit, before)


def descriptors_refused(scene: Scene) -> None:
    """For some seconds the daemon gets no descriptor (EMFILE, ENFILE or ENOMEM); a worker is killed meanwhile."""
    number = scene.dice.choice((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
    if "LD_PRELOAD" not in scene.world.env or number == errno.EMFILE:
        _refused(scene, resource.RLIMIT_NOFILE, lambda pid: len(os.listdir(f"/proc/{pid}/fd")))
        return
    for name in (*scene.world.programs, SCRIPT):  # workers load the same library
        scene.board.cause(name, "descriptors refused to every process")
        scene.board.exempt("steps", name, 45.0)  # nor can a worker save
    preload.no_opens(scene.world.directory, number)
    try:
        _refused(scene, resource.RLIMIT_NOFILE, lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])
    finally:
        preload.no_opens(scene.world.directory, None)


def memory_refused(scene: Scene) -> None:
    """For some seconds the daemon gets no more memory (ENOMEM); a worker is killed meanwhile."""
    scene.board.exempt("restarts", "daemon", 40.0)
    _refused(scene, resource.RLIMIT_AS, lambda pid: 4096 * int(Path(f"/proc/{pid}/statm").read_text().split()[0]))


def forks_refused(scene: Scene) -> None:
    if "LD_PRELOAD" not in scene.world.env:
        raise NotPossible("there is no C compiler for the library that refuses them")
    scene.daemon()
    pid = scene.main()
    preload.no_forks(scene.world.directory, refused=True)
    try:
        _kill(pid, signal.SIGKILL)
        time.sleep(4.0)  # the duration of the fault: the first restarts are refused
    finally:
        preload.no_forks(scene.world.directory, refused=False)


# --- the box -----------------------------------------------------------------------------------------------------------


def box_cut_off(scene: Scene) -> None:
    scene.world.power_cut()


def disk_full(scene: Scene) -> None:
    """Fill the state directory's file system to its last byte; a killed worker is an event to record."""
    if scene.world.disk is None:
        raise NotPossible("the state directory is on no file system of its own (that needs root)")
    scene.daemon()
    pid = scene.main()
    for name in scene.world.programs:
        scene.board.exempt("steps", name, 45.0)
    scene.board.exempt(LACK, SCRIPT, 45.0)  # it prints into a log on this disk
    ballast = scene.world.disk / "ballast"
    with ballast.open("wb") as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while os.write(file.fileno(), bytes(size)) == size:
                    pass
        _kill(pid, signal.SIGKILL)
        deadline_s = time.monotonic() + scene.dice.uniform(4.0, 8.0)
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):  # fill it again: pruned files free space
                while os.write(file.fileno(), bytes(4096)) == 4096:
                    pass
            time.sleep(0.1)  # between two checks for free space
    ballast.unlink()


def state_read_only(scene: Scene) -> None:
    """For some seconds no file in the state directory can be opened for writing, as after an error of its disk.

    A read-only mount covers it: the kernel refuses to remount a file system while files on it are open for writing.
    """
    if scene.world.disk is None:
        raise NotPossible("there is no mount namespace for it (that needs root)")
    scene.daemon()
    for name in scene.world.programs:
        scene.board.exempt("steps", name, 45.0)
    aside = scene.world.directory / "read-only"
    aside.mkdir(exist_ok=True)
    state = str(scene.world.state)
    _run("mount", "--bind", state, str(aside))
    _run("mount", "-o", "remount,bind,ro", str(aside))  # on the second path, where no file is open for writing
    _run("mount", "--bind", str(aside), state)
    try:
        _run("umount", str(aside))
        time.sleep(scene.dice.uniform(5.0, 8.0))  # the duration of the fault: longer than a checkpoint interval
    finally:
        _run("umount", "-l", state)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


# --- requests ----------------------------------------------------------------------------------------------------------


def _killed_after(scene: Scene, pid: int) -> None:
    time.sleep(scene.dice.choice((0.0, 0.0, 0.02, 0.2)))  # before, during and after the acknowledged action
    _kill(pid, signal.SIGKILL)


def stopped_by_operator(scene: Scene) -> None:
    """Kill the daemon right after it acknowledged a stop; some seconds later do the same with a start."""
    pid = scene.daemon()
    scene.main()
    program, world, board = scene.program, scene.world, scene.board
    board.want(program, False)
    if not scene.ask("stop", program):
        board.want(program, True)
        scene.wait(lambda: world.ask("start", program)[0], 20.0 * PATIENCE)  # it may have been carried out, its answer lost
        raise NotPossible(f"the stop was not acknowledged: {scene.answers[-1]}")
    _killed_after(scene, pid)

    def start() -> None:
        board.want(program, True)  # before the request: it may be carried out although its answer is lost or late
        until_s = time.monotonic() + 20.0 * PATIENCE
        while time.monotonic() < until_s:
            life = world.systemd.alive()
            if life is not None and world.ask("start", program)[0]:
                board.cause(program, "started by the operator")
                _kill(life.process.pid, signal.SIGKILL)
                board.cause("daemon", "killed after the start was acknowledged")
                return
            time.sleep(1.0)  # no answer until the daemon runs again, and it may refuse requests while it starts
        board.breaks("acknowledged", program, f"no start was accepted for {20 * PATIENCE:g} s")

    scene.later.append((ACKNOWLEDGED_S + 4.0, start))


def restarted_by_operator(scene: Scene) -> None:
    pid = scene.daemon()
    scene.main()
    token = scene.checker.seen[scene.program].mains[0].token
    if not scene.ask("restart", scene.program):
        raise NotPossible(f"the restart was not acknowledged: {scene.answers[-1]}")
    _killed_after(scene, pid)
    board, checker, program = scene.board, scene.checker, scene.program

    def runs() -> bool:
        return any(each.token == token for each in checker.seen[program].mains)

    scene.wait(lambda: not runs(), ACKNOWLEDGED_S)  # a fault in an attempt that is already leaving would not be reported

    def look() -> None:
        if runs():
            board.breaks("acknowledged", program, "its restart was acknowledged, and the old attempt still runs")

    scene.later.append((ACKNOWLEDGED_S, look))


def bad_update(scene: Scene) -> None:
    """Write a mistake into the configuration, and request an update as a client does."""
    scene.daemon()
    good = scene.world.config_file.read_text()
    scene.world.config_file.write_text(configuration(scene.world, slots=-7))
    try:
        scene.answers.append(str(scene.world.request("POST", "/api/v1/update", {"names": [], "dry_run": False})))
    finally:
        scene.world.config_file.write_text(good)


def hostile_clients(scene: Scene) -> None:
    """Send incomplete requests, garbage and huge headers, and hold silent connections open for some seconds."""
    scene.daemon()
    path, held = str(scene.world.runtime / "supervisor.sock"), []
    noise = [
        b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00" * 40,
        b"POST /RPC2 HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", scene.dice.randbytes(2000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]  # fmt: skip
    try:
        for _ in range(60):
            with contextlib.suppress(OSError):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                held.append(client)
                client.settimeout(2.0)
                client.connect(path)
                client.sendall(scene.dice.choice(noise))
        time.sleep(2.0)  # the duration of the fault: all clients are connected, and none of them reads
    finally:
        for client in held:
            client.close()


# --- removed files -------------------------------------------------------------------------------------------------------


def _removed(*paths: Path) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def journal_removed(scene: Scene) -> None:
    scene.daemon()
    _removed(*scene.world.state.glob("journal.sqlite*"))


def journal_replaced(scene: Scene) -> None:
    """Replace the journal by an empty file with another identity."""
    scene.daemon()
    path = scene.world.state / "journal.sqlite"
    aside = path.with_name("other")
    aside.write_bytes(b"")
    aside.rename(path)


def lock_removed(scene: Scene) -> None:
    scene.daemon()
    _removed(scene.world.state / "lock")


def main_log_removed(scene: Scene) -> None:
    scene.daemon()
    _removed(scene.world.state / "extralife.log")


OWN_NAMES = ("extralife.log", "alive", "lock")
NAMES_OF_A_START = ("reboot_alerts.log", "journal.sqlite.rebuilt")


def _in_its_place(scene: Scene, path: Path) -> None:
    """Something else under the name of a file: a FIFO, a directory with a file in it, a socket or a link to nowhere."""
    _removed(path)
    match scene.dice.choice(("fifo", "directory", "socket", "link")):
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
            (path / "somebody's").write_text("not extralife's")
        case "socket":
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as made, contextlib.chdir(path.parent):
                made.bind(path.name)
        case _:
            path.symlink_to("nowhere/at/all")


def name_replaced(scene: Scene) -> None:
    """Put something that is no file in the place of one of the daemon's own files."""
    scene.daemon()
    scene.answers.append(name := scene.dice.choice(OWN_NAMES))
    _in_its_place(scene, scene.world.state / name)


def name_replaced_before_start(scene: Scene) -> None:
    """The same while no daemon runs, also with the names that it uses for a moment at its start."""
    pid = scene.daemon()
    with scene.world.systemd.held():
        _kill(pid, signal.SIGKILL)
        scene.world.systemd.life.process.wait()
        for name in scene.dice.sample((*OWN_NAMES, *NAMES_OF_A_START), 2):
            _in_its_place(scene, scene.world.state / name)


def worker_log_removed(scene: Scene) -> None:
    """Remove the log of a worker, as a rotation of the operator's own does."""
    scene.daemon()
    scene.main()
    _removed(scene.world.run_dir(scene.program) / "stdout.log")


def alert_log_removed(scene: Scene) -> None:
    """Remove the alert log, and cut the power, so that the daemon has an alert to write."""
    scene.daemon()
    path = scene.world.state / "reboot_alerts.log"
    _removed(path)
    scene.world.power_cut()


def alive_mark_removed(scene: Scene) -> None:
    scene.daemon()
    _removed(scene.world.state / "alive")


def socket_removed(scene: Scene) -> None:
    scene.daemon()
    scene.board.exempt("status", "daemon", 12.0 * PATIENCE)
    _removed(scene.world.runtime / "supervisor.sock")


def runtime_dir_removed(scene: Scene) -> None:
    """Remove the runtime directory, as logind does at the logout of an ordinary user."""
    scene.daemon()
    scene.board.exempt("status", "daemon", 12.0 * PATIENCE)
    _removed(scene.world.runtime)


def run_dir_removed(scene: Scene) -> None:
    scene.daemon()
    scene.main()
    _forget_checkpoints(scene)
    _removed(scene.world.run_dir(scene.program))


def checkpoints_removed(scene: Scene) -> None:
    scene.daemon()
    scene.main()
    _forget_checkpoints(scene)
    _removed(scene.world.run_dir(scene.program) / "checkpoints")


def _forget_checkpoints(scene: Scene) -> None:
    """The fault itself removes all checkpoints; the invariant holds again from the next checkpoint on."""
    scene.board.exempt("checkpoint", scene.program, 10.0)
    scene.board.exempt("steps", scene.program, 90.0)


def fence_removed(scene: Scene) -> None:
    scene.main()
    _removed(scene.world.run_dir(scene.program) / "fence")


def beat_removed(scene: Scene) -> None:
    scene.daemon()
    scene.main()
    _removed(*(scene.world.runtime / "beats").glob(f"{scene.program}.*.beat"))


def beat_overwritten(scene: Scene) -> None:
    scene.daemon()
    scene.main()
    for path in (scene.world.runtime / "beats").glob(f"{scene.program}.*.beat"):
        with path.open("r+b") as record:  # without truncating: the worker has mapped the file
            record.write(scene.dice.randbytes(4096))


def state_dir_renamed(scene: Scene) -> None:
    """Rename the state directory, and rename it back after some seconds."""
    scene.daemon()
    for name in scene.world.programs:
        scene.board.exempt("checkpoint", name, 20.0)
        scene.board.exempt("steps", name, 60.0)
    away = scene.world.state.with_name("state.away")
    scene.world.state.rename(away)
    time.sleep(scene.dice.uniform(3.0, 6.0))  # the duration of the fault: the daemon looks every second
    new = scene.world.state
    if new.exists():
        _removed(new)
    away.rename(new)


def bad_reload(scene: Scene) -> None:
    """Run `extralifectl reload` with a mistake in the configuration file."""
    scene.daemon()
    good = scene.world.config_file.read_text()
    scene.world.config_file.write_text(configuration(scene.world, slots=-7))
    try:
        scene.answers.append(str(scene.world.request("POST", "/api/v1/ask", {"verb": "reload", "names": []}, 30.0)))
        time.sleep(2.0)  # a daemon that reloaded in spite of its answer would read the mistake now
    finally:
        scene.world.config_file.write_text(good)


def bad_hangup(scene: Scene) -> None:
    """Send SIGHUP with a mistake in the configuration file."""
    pid = scene.daemon()
    good = scene.world.config_file.read_text()
    scene.world.config_file.write_text(configuration(scene.world, slots=-7))
    try:
        _kill(pid, signal.SIGHUP)
        time.sleep(3.0)  # a signal has no answer: the daemon reads the file within a second, on a busy machine within two
    finally:
        scene.world.config_file.write_text(good)


def _serves(scene: Scene) -> bool:
    try:
        return bool(scene.world.request("GET", "/api/v1/status", timeout_s=5.0)[0] == 200)
    except (OSError, http.client.HTTPException):
        return False


def bad_boot(scene: Scene) -> None:
    """Cut the power with a mistake in the configuration file: the next daemon starts with the last good configuration."""
    scene.daemon()
    good = scene.world.config_file.read_text()
    scene.world.config_file.write_text(configuration(scene.world, slots=-7))
    try:
        scene.world.power_cut()
        scene.wait(lambda: _serves(scene), 30.0 * PATIENCE)  # it serves only after it has read its configuration
    finally:
        scene.world.config_file.write_text(good)
