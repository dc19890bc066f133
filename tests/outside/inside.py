"""The only module of these tests that imports the daemon's own code. Code that moves is followed here and nowhere else.

`Host` is a simulated box (tests/sim) with three differences: its programs and levels come from a configuration file, its
journal is also written to a real file, and its daemon answers on a real control socket. The real application, backend, loop
and decisions run. The clock, the workers, the GPUs and the kernel are simulated.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parents[1] / "sim"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "core"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "adapters"))

from checkpoints_kit import commit
from daemon import Box
from tools import MEMORY_DIR
from world import CALM, Ending, Verb, World

from supervisor import config
from supervisor.adapters import state_files
from supervisor.adapters.copies import store as backups
from supervisor.adapters.host import boot
from supervisor.adapters.journal.sqlite import Journal, open_or_salvage
from supervisor.api.listener import listen
from supervisor.api.server import Server
from supervisor.features.alerts.adapters.delivery import tested
from supervisor.features.alerts.messages import AlertTried, Deliver
from supervisor.features.backups.messages import Backup, BackupDue, BackupMade
from supervisor.model import commands, facts
from supervisor.model.codec import as_text, decode, encode
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold_all, replay
from supervisor.model.inputs import (
    Asked,
    ClockMoved,
    ConfigFaulty,
    ConfigLoaded,
    FoundationsLooked,
    SnapshotDue,
    SpawnBroke,
    Terminated,
)
from supervisor.policy.box.foundations import Finding, Look
from supervisor.policy.box.gate import MB
from supervisor.policy.box.readings import Gpu, Gpus, Spread, Xid
from supervisor.ports import JournalMoved
from supervisor.shell.backend import DaemonBackend
from supervisor.shell.replies import Replies
from workers import results

VERSION = "1.2.3"
OPERATOR, OPERATOR_UID = "alice", 1000
_ANSWER_S = 1200.0  # of simulated time: a rollback waits for workers to leave
_SETTLE_S = 30.0


def directory() -> Path:
    """A directory of this run alone. Its path has the same length in every run, so that it moves no column of a page."""
    return Path(tempfile.mkdtemp(prefix="xl-" + "0" * (len("/dev/shm") - len(str(MEMORY_DIR))), dir=MEMORY_DIR))


class _Journaled(Box):
    """A simulated journal whose facts are also in a real file."""

    file: Journal | None = None

    def append(self, new: Any, *, at_s: float, wall_s: float, boot_id: str) -> list[Stamped]:
        rows: list[Stamped] = super().append(new, at_s=at_s, wall_s=wall_s, boot_id=boot_id)
        assert self.file is not None
        assert self.file.append(new, at_s=at_s, wall_s=wall_s, boot_id=boot_id) == rows
        return rows

    def begin(self, *args: Any) -> Any:
        loop = super().begin(*args)
        loop.publish = self.world.publish
        return loop


class Host(World):
    """One simulated box with a real journal, real checkpoints and a real control socket."""

    def __init__(self, seed: int, where: Path, text: str) -> None:
        self.where, self.state_dir, self.runtime_dir = where, where / "state", where / "run"
        self.config_file = where / "extralife.toml"
        for each in (self.state_dir, self.runtime_dir, where / "boot"):
            each.mkdir()
        self.configure(text)
        self.loaded = self.load()
        super().__init__(seed, programs=0, odds=replace(CALM), look_s=10.0)
        settings = self.loaded.settings
        self.all_names = self.names = [spec.name for spec in settings.programs]
        self.specs = {spec.name: spec for spec in settings.programs}
        self.disks = _Disks()
        self.configured = settings
        self.core = _Journaled(self, settings)
        self.core.file = Journal(self.state_dir / "journal.sqlite")
        self.figures: dict[str, dict[str, Any]] = {}
        self.end_of_boot: dict[str, Any] = {}  # what the boot that ends next leaves behind
        self.witnesses = {"hostname": "night", "product": "11111111-2222-3333-4444-555555555555", "machine": "a" * 32}
        self.target_error = ""  # why the alert target refuses; empty: it accepts
        self.backup_error = ""
        self.unstarted = ""
        self.doomed: set[str] = set()  # programs whose every attempt dies two seconds after its start
        self.replies = Replies()
        self.backend: _Backend | None = None

    # --- the configuration

    def configure(self, text: str) -> None:
        self.config_file.write_text(text.replace("DIRECTORY", str(self.where)))

    def load(self) -> config.Loaded:
        return config.load(str(self.config_file), {}, look=False)

    def update(self) -> None:
        """`extralifectl update`, without a socket."""
        before, self.loaded = self.loaded, self.load()
        self.configured = config.applicable(self.core.settings, self.loaded.settings)
        changed = config.differences(before, self.loaded)
        self.post(ConfigLoaded(0.0, self.configured, by=OPERATOR, uid=OPERATOR_UID, changed=changed))

    def refuse_config(self, *errors: str, in_use: str = "") -> None:
        self.post(ConfigFaulty(0.0, errors, in_use, OPERATOR))

    # --- the daemon

    def start(self) -> None:
        """As the simulator does; the boot adapter also reports which box this is and how the boot before ended."""
        examined, seen = boot.examine, self.end_of_boot
        with mock.patch.object(
            boot, "examine", lambda *args, **more: _with_end(examined(*args, **more), seen, self.witnesses)
        ):
            super().start()

    def reboot(self, down_s: float = 60.0, kind: str = "", *words: str) -> None:
        self.end_of_boot = {"kind": kind, "last_words": words}
        super().reboot(down_s)

    def turn_off(self, down_s: float) -> None:
        """An orderly end of the host: the daemon ends first."""
        self.post(Terminated(0.0, "SIGTERM"))
        self.run(60.0)
        self.reboot(down_s, "orderly", "systemd: Reached target reboot.target")

    def salvage(self, error: str, lost: int) -> None:
        """The next start of a daemon finds a damaged journal."""
        self.kill_daemon()
        fact = facts.JournalSalvaged(
            f"the journal was damaged ({error}): rebuilt of {len(self.core.journal)} facts", error,
            f"{self.state_dir}/journal.sqlite.damaged-1", len(self.core.journal), lost,
        )  # fmt: skip
        last = self.core.journal[-1]
        self.core.append([fact], at_s=last.at_s, wall_s=last.wall_s, boot_id=last.boot_id)

    def journal_moved(self) -> None:
        """The next write finds that somebody has removed the journal's file."""
        moved = JournalMoved(f"{self.state_dir}/journal.sqlite", "journal.sqlite was removed")
        self.core.failing, self.core.fails_once = moved, True

    def set_clock(self, step_s: float) -> None:
        self.core.wall_offset_s += step_s
        self.post(ClockMoved(0.0, step_s))

    def snapshot(self) -> None:
        self.post(SnapshotDue(0.0, len(self.core.journal)))

    def lose(self, name: str, path: str, look: str, *, error: str = "", restorable: bool = False, **more: Any) -> None:
        found = Finding(name, f"{self.where}/{path}", Look(look), restorable=restorable, error=error, **more)
        self.post(FoundationsLooked(0.0, (found,)))

    def find_all(self) -> None:
        self.post(FoundationsLooked(0.0))

    def calendar(self) -> None:
        self.post(BackupDue(0.0, self.wall_s - 1.0))

    def operator(self, verb: str, *names: str, text: str = "", for_s: float | None = None) -> None:
        """A request that is not made over the socket."""
        self.requests += 1
        self.waiting[self.requests] = self.daemon
        asked = Asked(0.0, Verb(verb), self.requests, names, "SIGUSR2", OPERATOR, OPERATOR_UID, text, for_s)
        if verb != "signal":
            asked = replace(asked, signal="")
        self.post(asked)

    # --- the workers

    def worker(self, name: str) -> Any:
        (found,) = self.alive(name)
        found.advance(self.now_s)
        return found

    def ends(self, name: str, *, after_s: float = 0.0, **ending: Any) -> None:
        """The present process of a program ends this way."""
        self.end(self.worker(name).token, Ending(**ending))
        self.run(after_s)

    def spawn(self, name: str, number: int, token: str) -> None:
        super().spawn(name, number, token)
        if token in self.living:
            self.living[token].figures = dict(self.figures.get(name, {}))

    def worker_goes_wrong(self, worker: Any) -> None:
        super().worker_goes_wrong(worker)
        if worker.name in self.doomed:
            self.after(2.0, self.end, worker.token, Ending(code=1, last_lines=("OSError: [Errno 5] Input/output error",)))

    def fails_to_start(self, name: str) -> None:
        """The next start of this program makes no process."""
        self.unstarted = name

    def start_goes_wrong(self, name: str, number: int, token: str) -> bool:
        if self.unstarted != name:
            return bool(super().start_goes_wrong(name, number, token))
        self.unstarted = ""
        self.post_later(SpawnBroke(0.0, name, token, "fork: Resource temporarily unavailable"))
        return True

    # --- the GPUs

    def show_gpus(self, *, free_mb: int = 30_000, lost: str = "", hot_c: float = 61.0, xid: int | None = None) -> None:
        gpus = []
        for index in (0, 1):
            gone = lost if index == 1 else ""
            gpus.append(
                Gpu(
                    index, f"GPU-{index}", "NVIDIA A100-SXM4-80GB", gone, total_bytes=81_920 * MB, free_bytes=free_mb * MB,
                    free_by_second=(free_mb * MB,) * 60, utilisation=87.0, utilisation_minute=Spread(55.0, 87.5, 100.0),
                    temperature_c=hot_c, slowdown_c=92.0, reasons=("sw_power_cap",), power_w=301.5, power_limit_w=400.0,
                    ecc_errors=0, processes=((4711, 12_000 * MB),),
                )
            )  # fmt: skip
        self.gpus = Gpus(tuple(gpus), xids=() if xid is None else (Xid(1, 1, xid),))

    def hang_gpus(self) -> None:
        self.gpus = Gpus(None, "nvmlDeviceGetMemoryInfo has not answered for 5s", 5.0)

    # --- what the daemon's commands do

    def do(self, command: Any) -> None:
        match command:
            case Deliver(target=target, notice=notice):
                self.after(1.0, self.arrive, self.daemon, AlertTried(0.0, target, notice.id, self.target_error))
            case Backup(name=name) if self.backup_error:
                self.post_later(BackupMade(0.0, name, self.backup_error))
            case Backup(name=name, programs=names, label=label, cause=cause):
                steps = {each: self.disks[each].newest() for each in names if self.disks[each].checkpoints}
                self.backups[name] = steps
                made = self.write_backup(name, steps, label, cause)
                self.post_later(BackupMade(0.0, name, "", steps, made.size_bytes, made.method))
            case commands.Reply(request_id=request, results=answers):
                super().do(command)
                self.replies.answer(request, answers)
            case commands.SendSignal(programs=sent, request_id=request, known=known):
                super().do(command)
                self.replies.answer(request, (*known, *((name, 80, "signalled") for name, _ in sent)))
            case commands.ClearLogs(request_id=request, programs=names, known=known):
                super().do(command)
                self.replies.answer(request, (*known, *((name, 80, "cleared") for name, _ in names)))
            case commands.EndDaemon():
                super().do(command)
                self.replies.abandon()
            case _:
                super().do(command)

    def refuse(self, item: Any, text: str) -> None:
        super().refuse(item, text)
        if isinstance(item, Asked):
            self.replies.answer(item.request_id, tuple((name, 30, text) for name in item.names or ("supervisord",)))
        elif isinstance(item, ConfigLoaded):
            self.replies.answer(item.request_id, (("", 30, text),))

    def restore(self, command: Any) -> Any:
        made = super().restore(command)
        self.write_backup(command.kept_as, self.backups[command.kept_as], "", "rollback")
        return made

    def write_backup(self, name: str, steps: dict[str, int], label: str, cause: str) -> Any:
        """A real backup of real, small checkpoints."""
        dirs = {each: self.state_dir / "programs" / each for each in steps}
        for each, step in steps.items():
            shutil.rmtree(dirs[each] / "checkpoints", ignore_errors=True)
            commit(dirs[each], step, f"{step:032x}", created_wall_s=self.wall_s)
        return backups.make(
            self.state_dir / "backups", name, dirs, label=label, cause=cause, wall_s=self.wall_s, task=backups.Task()
        )

    def write_results(self, program: str, game: str, algo: str, seed: int, scores: list[float]) -> None:
        rows = [
            results.Row(program, game, 2_000_000, number, score, algo, seed, 84, 8_000_000, 1.5, 900, None, len(scores))
            for number, score in enumerate(scores, 1)
        ]
        run_dir = self.state_dir / "programs" / program
        run_dir.mkdir(parents=True, exist_ok=True)
        results.write(run_dir / results.RESULTS_FILE, rows)

    def leave_mark(self) -> None:
        super().leave_mark()
        if self.mark is not None:
            mark = replace(self.mark, boot_id=self.mark.boot_id.replace("-", ""), seq=len(self.core.journal))
            (self.state_dir / "alive").write_bytes(boot.pack_mark(mark, 1))
            (self.where / "boot" / "boot_id").write_text(f"{mark.boot_id}\n")

    # --- what it has come to

    def publish(self, loop: Any) -> None:
        if self.backend is not None:
            self.backend.publish(loop)

    def rows(self, after: int = 0) -> list[dict[str, Any]]:
        """The journal as it is stored, without its first `after` rows: one dict a row."""
        return [_row(item) for item in self.core.journal[after:]]


class _Disks(dict[str, Any]):
    """The disk of every program that there will ever be."""

    def __missing__(self, name: str) -> Any:
        from training import Disk

        return self.setdefault(name, Disk())


def _with_end(found: Any, end: dict[str, Any], witnesses: dict[str, str]) -> Any:
    found = replace(found, box=dict(witnesses))
    return replace(found, **end) if found.rebooted else found


# --- the journal ---------------------------------------------------------------------------------------------------------


def _row(item: Stamped) -> dict[str, Any]:
    kind, version, body = encode(item.fact)
    return {
        "seq": item.seq, "at_s": item.at_s, "wall_s": item.wall_s, "boot_id": item.boot_id, "kind": kind,
        "version": version, "body": json.loads(body),
    }  # fmt: skip


def folded(rows: list[dict[str, Any]]) -> Any:
    """The state that recorded rows come to, by the code of today: fold and replay agree. As JSON."""
    journal = [
        Stamped(
            row["seq"], row["at_s"], row["wall_s"], row["boot_id"],
            decode(row["kind"], row["version"], json.dumps(row["body"])),
        )
        for row in rows
    ]  # fmt: skip
    state = fold_all(journal)
    assert replay(journal)[0] == state
    return json.loads(as_text(state))


def open_journal(path: Path) -> tuple[int, str, Any]:
    """As a daemon opens it at its start: how many facts it has, what was lost (empty: nothing), and the state of them."""
    mark = boot.read_mark(path.with_name("alive"))
    assert mark is not None
    journal, known, salvage = open_or_salvage(path, wall_s=mark.wall_s + 60.0, seen_seq=mark.seq)
    journal.close()
    state, misfits = replay(known)
    assert not misfits
    return len(known), str(salvage or ""), state


# --- the application -------------------------------------------------------------------------------------------------------


class _Backend(DaemonBackend):
    """The daemon's own backend. Every request comes from the same operator, and the box has the zone of the client."""

    def page(self, name: str, query: Any) -> Any:
        with mock.patch.object(state_files, "local_zone", return_value=("XLT", 7200.0)):
            return super().page(name, query)

    def ask(self, verb: Any, names: Any, signal: str, by: str, uid: int | None, timeout_s: float) -> Any:
        return super().ask(verb, names, signal, OPERATOR, OPERATOR_UID, timeout_s)

    def update(self, names: Any, *, dry_run: bool, by: str, uid: int | None) -> Any:
        return super().update(names, dry_run=dry_run, by=OPERATOR, uid=OPERATOR_UID)

    def remove(self, name: str, by: str, uid: int | None) -> Any:
        return super().remove(name, OPERATOR, OPERATOR_UID)

    def request(
        self, verb: Any, text: str, names: Any, by: str, uid: int | None, timeout_s: float, for_s: float | None = None
    ) -> Any:  # fmt: skip
        return super().request(verb, text, names, OPERATOR, OPERATOR_UID, timeout_s, for_s)


class _Door:
    """The inbox that the backend posts to. Simulated time goes on until the daemon has answered and is at rest again."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def post(self, item: Any) -> None:
        self._application.within(self._post, item)

    def _post(self, item: Any) -> None:
        host = self._application.host
        if isinstance(item, ConfigLoaded):
            host.configured = item.settings
        if isinstance(item, Asked | ConfigLoaded):
            host.waiting[item.request_id] = host.daemon
        host.post(item)
        for _ in range(int(_ANSWER_S / _SETTLE_S)):
            host.run(_SETTLE_S)
            if not host.waiting:
                return


class _Clock:
    def __init__(self, host: Host) -> None:
        self.now_s = lambda: host.core.now_s
        self.wall_s = lambda: host.wall_s


class Application:
    """The API of a host on its control socket. All of the host happens in one thread, as in the daemon."""

    def __init__(self, make: Any) -> None:
        """`make` makes the host; it is called in the thread of the host."""
        self._thread = ThreadPoolExecutor(1, "host")
        self.host: Host = self._thread.submit(make).result()
        self._server: Server | None = None
        self.routes: list[tuple[str, str]] = []

    def within(self, function: Any, *args: Any) -> Any:
        """Call it in the host's thread."""
        return self._thread.submit(function, *args).result()

    def serve(self) -> None:
        host = self.host
        host.replies._numbers = itertools.count(host.requests + 1)
        cgroups = {
            "on": True, "why": "", "path": "/sys/fs/cgroup/extralife", "controllers": ["cpu", "memory", "pids"],
            "lacking": [],
        }  # fmt: skip
        host.backend = _Backend(
            _Door(self), host.replies, _Clock(host), host.loaded, host.load, VERSION,
            {"backups": lambda: None}, {"alerts/test": lambda: tested(host.core.settings.alerts, 0.0)},
            cgroups=lambda: cgroups,
        )  # fmt: skip
        self.within(host.run, 30.0)
        self._listener = listen(str(host.runtime_dir / "supervisor.sock"))
        with _routes_into(self.routes):
            self._server = Server(host.backend, self._listener, lambda: host.core.now_s)
        self._server.start()

    def run(self, seconds: float) -> None:
        self.within(self.host.run, seconds)

    def stop(self) -> None:
        """The daemon is dead, its control socket gone."""
        if self._server is not None:
            self._server.stop()
            self._listener.close()
            self._server = None

    def close(self) -> None:
        self.stop()
        self.within(self.host.core.file.close)
        self._thread.shutdown()
        shutil.rmtree(self.host.where)


class _routes_into:  # noqa: N801  reads as a statement: `with _routes_into(found)`
    """Every route of the application that is built meanwhile: (method, path)."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        self._found = found

    def __enter__(self) -> None:
        from starlette.applications import Starlette

        begin, found = Starlette.__init__, self._found

        def noting(app: Any, *args: Any, routes: Any = (), **more: Any) -> None:
            found.extend((min(route.methods - {"HEAD"}), route.path) for route in routes)
            begin(app, *args, routes=routes, **more)

        self._patch = mock.patch.object(Starlette, "__init__", noting)
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
