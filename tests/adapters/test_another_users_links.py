"""A daemon of root, and a program's user who attacks it with links: each hand of the daemon, on a real file system.

`runs/` of the user is a real directory, or a link to root's own directory, which has files of the same names. An attack
succeeds if anything in root's directory is read, written, renamed or handed over. Each hand is tried without an attack, too:
then it must do its work, and the files that it makes must belong to the user.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attempts_kit import BootClock, Inbox, World, eventually
from test_own_checkpoints import to_start

from supervisor import as_user, files
from supervisor.adapters import hooks, logs, procfs
from supervisor.adapters.copies import own, put_back, store
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.figures import reading
from supervisor.adapters.main_log import MainLog
from supervisor.adapters.process import endings, evidence, growth, health_checks, own_checkpoints, processes, trees
from supervisor.adapters.process.own_checkpoints import Place, place_of
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.adapters.threads import Thread
from supervisor.api import logfiles
from supervisor.as_user import acting_as, as_daemon
from supervisor.model.inputs import CheckpointsFound, Ended, Ending, SpawnBroke, SpawnSucceeded
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings
from supervisor.policy.script.figures import Figures
from supervisor.policy.script.service_health import HealthCheck
from supervisor.users import UnknownUser

PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")  # one that another user may execute
MINE, SECRET = 41414, 30303  # a newer checkpoint of root's would end a rollback
LOG_BYTES = 6000
ROUNDS = 4

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else"),
    pytest.mark.skipif(PYTHON is None, reason="no interpreter that another user may execute"),
]

FLICKER = """
import ctypes
libc = ctypes.CDLL(None)
while True:
    libc.renameat2(-100, b"runs", -100, b"decoy", 2)  # RENAME_EXCHANGE
"""


class Box:
    """Root's daemon with the directories `state` and `vault`, and the user nobody with `home`."""

    def __init__(self, base: Path, *, closed: bool) -> None:
        """`closed`: root's directory may not be entered, and its files could be read; else the reverse."""
        base.chmod(0o755)
        self.base, self.home, self.vault, self.state = base, base / "home", base / "vault", base / "state"
        self.runs, self.log = self.home / "runs", self.home / "runs" / "run.log"
        self.home.mkdir()
        self._fill(self.vault, SECRET, 0o644 if closed else 0o600)
        self.vault.chmod(0o700 if closed else 0o755)
        self.reset()
        shutil.chown(self.home, "nobody", "nogroup")
        self.paths = Paths(str(self.state), str(base / "run"))
        self.run_dir = Path(self.paths.run_dir("Pong"))
        self.spec = ProgramSpec(
            "Pong", ("true",), "d", user="nobody", directory=str(self.home), checkpoint_glob="runs/ck*",
            checkpoint_step="state.json:step", progress_glob="runs/*", stdout_log=str(self.log),
        )  # fmt: skip
        as_user.note_logs({str(self.log): "nobody"})
        self.before = self.vault_now()
        self.attacks = False

    @staticmethod
    def _fill(directory: Path, number: int, mode: int) -> None:
        body = json.dumps({"step": number})
        texts = {
            "ck1/state.json": json.dumps({"step": number - 1}), "ck2/state.json": body, "rows.jsonl": f"{body}\n",
            "run.log": f"{body}\n" * (LOG_BYTES // len(body)), "run.log.1": body, ".ck3.tmp": body,
        }  # fmt: skip
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)

    def reset(self) -> None:
        """The user's directory as it was, and root's without the daemon's files."""
        for path in (self.runs, self.home / "decoy"):
            if path.is_symlink():
                path.unlink()
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.state, self.base / "run"):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700)
        (self.state / "programs" / "Pong").mkdir(mode=0o700, parents=True)
        self._fill(self.runs, MINE, 0o644)
        for path in (self.runs, *self.runs.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
        os.symlink(self.vault, self.home / "decoy")
        os.lchown(self.home / "decoy", 65534, 65534)

    def strike(self) -> None:
        """What the user does at the worst moment of each hand."""
        if self.attacks:
            os.rename(self.runs, self.home / "real")
            os.rename(self.home / "decoy", self.runs)

    def vault_now(self) -> dict[str, os.stat_result]:
        found = {str(path): path.lstat() for path in (self.vault, *self.vault.rglob("*"))}
        return {  # all but the time of access
            path: (each.st_mode, each.st_uid, each.st_gid, each.st_ino, each.st_size, each.st_nlink, each.st_mtime_ns, each.st_ctime_ns)
            for path, each in found.items()
        }  # type: ignore[misc]  # fmt: skip

    def assert_untouched(self, answer: object) -> None:
        assert self.vault_now() == self.before
        given = [answer, *(path.read_text(errors="replace") for path in self.all_files())]
        assert not any(str(secret) in str(each) for secret in (SECRET, SECRET - 1) for each in given)

    def all_files(self) -> list[Path]:
        """What the user or the daemon has by now."""
        found = (path for top in (self.home, self.state) for path in top.rglob("*"))
        return [path for path in found if not path.is_symlink() and path.is_file()]

    def has_found(self, seen: object) -> bool:
        """Whether that was found in a directory that the user may not enter."""
        return bool(seen) and self.attacks and self.vault.stat().st_mode & 0o7 == 0

    def loses(self, name: str) -> None:
        with acting_as("nobody"):
            shutil.rmtree(self.runs / name)

    @property
    def place(self) -> Place:
        place = place_of(self.spec, str(self.run_dir))
        assert place is not None
        return place

    def begins(self, **more: object) -> object:
        """All that happens to its checkpoints before a start."""
        inbox = Inbox()
        checkpoints = OwnCheckpoints(self.paths, BootClock(), inbox, KeptCopies())
        order = to_start(self.spec, "t1", **more)  # type: ignore[arg-type]
        checkpoints.before_start(order, lambda _: None, pytest.fail)
        try:
            return inbox.expect(CheckpointsFound).found
        finally:
            checkpoints.close()

    def keep(self) -> None:
        """Look, and copy the newest one: the user strikes in between."""
        scanner = own_checkpoints.Scanner()
        with acting_as("nobody"):
            found = scanner.scan(self.place, own_checkpoints.Budget(), now_wall_s=time.time(), life=None)
        newest = found.choice.newest
        if newest is not None:
            self.strike()
            KeptCopies().keep(self.place, newest, scanner.known[newest.path].files, replaced=True)

    def backup(self, name: str = "b1") -> store.BackupInfo:
        return store.make(
            Path(self.paths.backups), name, {"Pong": self.run_dir}, label="", cause="operator", wall_s=1.5e9, task=Task(),
            places={"Pong": self.place},
        )  # fmt: skip

    def runs_a_program(self, script: str, **more: object) -> str:
        shutil.rmtree(self.state)
        shutil.rmtree(self.base / "run")
        world = World(self.base)
        try:
            token = world.begin(["/bin/sh", "-c", script], user="nobody", **{"directory": "/"} | more)
            begun = world.inbox.expect((SpawnSucceeded, SpawnBroke), token)
            return str(world.inbox.expect(Ended, token).ending if isinstance(begun, SpawnSucceeded) else begun)
        finally:
            world.close()


@pytest.fixture(autouse=True)
def no_logs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "_logs", {})


@pytest.fixture(params=[True, False], ids=["closed directory", "closed files"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        yield Box(base, closed=request.param)
    finally:
        shutil.rmtree(base)


# --- the hands ------------------------------------------------------------------------------------------------------------


def scans(box: Box) -> object:
    box.strike()
    checkpoints = OwnCheckpoints(box.paths, BootClock(), Inbox(), KeptCopies())
    try:
        return checkpoints.last(box.spec, Ending(code=0), Figures())
    finally:
        checkpoints.close()


def checks_by_command(box: Box) -> object:
    box.spec = replace(
        box.spec, directory=str(box.runs), checkpoint_glob=f"{box.runs}/ck*", checkpoint_step="",
        checkpoint_check=("/bin/sh", "-c", "cat run.log > seen; id -u >> seen; exit 0"),
    )  # fmt: skip
    box.strike()
    return box.begins()


def sets_aside(box: Box) -> object:
    box.strike()
    found = box.begins(aside=(str(box.runs / "ck2"),))
    return found, sorted(os.listdir(box.home / "runs")) if not box.attacks else ""


def sets_aside_while_it_runs(box: Box) -> object:
    checkpoints = OwnCheckpoints(box.paths, BootClock(), Inbox(), KeptCopies())
    box.strike()
    checkpoints.set_aside(box.spec, (str(box.runs / "ck2"),))
    checkpoints.close()
    for thread in [each for each in threading.enumerate() if each.name == "aside-Pong"]:
        thread.join(60)
    return sorted(os.listdir(box.home / "runs")) if not box.attacks else ""


def puts_a_set_aside_one_back(box: Box) -> object:
    with acting_as("nobody"):
        own_checkpoints.set_aside(str(box.runs), "ck2")
    box.strike()
    return box.begins(back=(str(box.runs / "ck2"),))


def rolls_back(box: Box) -> object:
    box.strike()
    return box.begins(from_step=MINE)


def keeps_a_copy(box: Box) -> object:
    box.keep()
    return KeptCopies().of(box.place)


def puts_the_kept_copy_back(box: Box) -> object:
    attacks, box.attacks = box.attacks, False
    box.keep()
    box.attacks = attacks
    box.loses("ck2")
    box.strike()
    KeptCopies().put_back(box.place)
    return (box.runs / "ck2").owner()


def backs_up(box: Box) -> object:
    box.strike()
    return box.backup()


def rolls_back_to_a_backup(box: Box) -> object:
    info = box.backup()
    box.loses("ck2")
    box.strike()
    store.restore(info, {"Pong": box.run_dir}, lambda: None, Task(), {"Pong": box.place})
    return (box.runs / "ck2").owner()


def removes_a_staged_copy(box: Box) -> object:
    saved = box.backup().programs[0].own
    assert saved is not None
    own.stage(Path(box.paths.backups, "b1", "programs", "Pong"), replace(saved, path="ck3"), box.place, lambda _: None)
    staged = (box.runs / ".ck3.tmp").is_dir()
    box.strike()
    own.remove_staged(replace(saved, path="ck3"), box.place)
    return staged


def copies_off_the_box(box: Box) -> object:
    from supervisor.features.offsite.adapters import staging

    with contextlib.closing(sqlite3.connect(box.paths.journal)) as journal:
        journal.execute("CREATE TABLE fact (word)")
    box.strike()
    about, places = {"hostname": "ada"}, {"Pong": box.place}
    return staging.collect(box.paths, ("Pong",), about, wall_s=1.5e9, with_replay=True, task=Task(), places=places).steps


def puts_back_on_a_new_box(box: Box) -> object:
    box.backup()
    Path(box.paths.offsite).mkdir()
    put_back.note(Path(box.paths.offsite), "b1", ["Pong"])
    box.loses("ck2")
    box.strike()
    put_back.put_back(box.paths, "Pong", box.place)
    return (box.runs / "ck2").owner()


def checks_health(box: Box) -> object:
    box.strike()
    command = ("/bin/sh", "-c", "cat run.log > seen; id -u >> seen")
    return health_checks.make(HealthCheck(command=command, timeout_s=20.0), replace(box.spec, directory=str(box.runs)))


def look_at_figures(box: Box, **more: object) -> object:
    box.strike()
    request = {
        "logs": [], "opened": [], "regex": [], "off": [], "begin": {}, "globs": {}, "names": {}, "base": str(box.home),
        "since_wall_s": 0.0, "search": True, "first": False, "files": {}, "cursors": {}, "name": "Pong", "places": [],
        "contested": False, "trees": {}, "watch": False, "claims": {}, "user": "nobody",
    }  # fmt: skip
    return reading.read_once({**request, **more}).rows


def reads_rows(box: Box) -> object:
    return look_at_figures(box, globs={"json": "runs/*.jsonl"})


def reads_a_log_for_figures(box: Box) -> object:
    return look_at_figures(box, logs=[str(box.log)], regex=['"step": (?P<step>\\d+)'])


def looks_for_growth(box: Box) -> object:
    box.strike()
    seen = growth.files(box.paths, box.spec), growth.Logs(1).sizes(box.paths, box.spec)
    return SECRET if box.has_found(any(seen)) else seen


def looks_for_new_files(box: Box) -> object:
    box.strike()
    tree = trees.Tree(1, 1, str(box.runs), user="nobody")
    tree._newest_file()
    return SECRET if box.has_found(tree._written_ns) else tree._written_ns


def starts_with_a_log(box: Box) -> object:
    box.strike()
    return box.runs_a_program(f"echo {MINE}", stdout_log=str(box.log))


def starts_in_a_directory(box: Box) -> object:
    box.strike()
    return box.runs_a_program("cat run.log; cat run.log > seen; id -u >> seen", directory=str(box.runs))


def rotates(box: Box) -> object:
    box.strike()
    settings = Settings(box.paths, (box.spec,), daemon=DaemonSettings(log_max_bytes=4096))
    logs.LogGuard(lambda: settings).look()
    return "" if box.attacks else (box.runs / "run.log.2").read_text()


def clears(box: Box) -> object:
    box.strike()
    logs.clear(box.log)
    return box.log.stat().st_size


def shows_the_end(box: Box) -> object:
    with contextlib.suppress(OSError):
        first = logfiles.read_tail(str(box.log), 100)
        box.strike()
        rotated = logfiles.read_from(
            str(box.log), f"{box.vault.stat().st_dev:x}-{(box.vault / 'run.log.1').stat().st_ino:x}", 0, 100
        )
        return first, rotated, logfiles.read_part(str(box.log), lambda _: (0, 100))
    return ""


def shows_the_last_lines(box: Box) -> object:
    box.strike()
    return endings.last_lines(str(box.log))


def shows_the_last_lines_at_a_former_place(box: Box) -> object:
    """The configuration has changed since the attempt began, and another daemon runs."""
    attempt = Path(box.paths.attempt_dir("Pong", 1, "t1"))
    attempt.mkdir(parents=True)
    endings.note_logs(box.paths, box.spec, 1, "t1")
    as_user._logs.clear()
    box.strike()
    return endings.last_lines(endings.logs_of(box.paths, "Pong", 1, "t1")[0])


def makes_room_for_its_log(box: Box) -> object:
    with files.held(os.open(box.home / "roots", os.O_WRONLY | os.O_CREAT, 0o640)):  # as an earlier release has left it
        pass
    with acting_as("nobody"):
        (box.home / "roots").rename(box.log)
    box.strike()
    processes._make_room_for_logs(box.paths, box.spec)
    return sorted(os.listdir(box.home / "runs")) if not box.attacks else ""


REFUSALS = own_checkpoints.Unanswered, store.BackupError, store.PartlyRolledBack, health_checks.Failed
Hand = Callable[[Box], object]
HANDS: dict[Hand, Callable[[Box, object], bool]] = {  # with the proof that it has done its work
    scans: lambda _, found: found.step == MINE,  # type: ignore[attr-defined]
    checks_by_command: lambda box, _: (box.runs / "seen").read_text().endswith("\n65534\n"),
    sets_aside: lambda _, found: ".ck2.bad" in found[1],  # type: ignore[index]
    sets_aside_while_it_runs: lambda _, names: ".ck2.bad" in names,  # type: ignore[operator]
    puts_a_set_aside_one_back: lambda _, found: found.step == MINE,  # type: ignore[attr-defined]
    rolls_back: lambda box, found: found.step == MINE - 1 and (box.runs / ".ck2.bad").exists(),  # type: ignore[attr-defined]
    keeps_a_copy: lambda _, kept: kept.step == MINE,  # type: ignore[attr-defined]
    puts_the_kept_copy_back: lambda _, owner: owner == "nobody",
    backs_up: lambda _, info: info.steps == {"Pong": MINE},  # type: ignore[attr-defined]
    rolls_back_to_a_backup: lambda _, owner: owner == "nobody",
    removes_a_staged_copy: lambda box, staged: staged and not (box.runs / ".ck3.tmp").exists(),  # type: ignore[return-value]
    copies_off_the_box: lambda _, steps: steps == {"Pong": MINE},
    puts_back_on_a_new_box: lambda _, owner: owner == "nobody",
    checks_health: lambda box, _: (box.runs / "seen").read_text().endswith("\n65534\n"),
    reads_rows: lambda _, rows: rows[0][3] == {"step": MINE},  # type: ignore[index]
    reads_a_log_for_figures: lambda _, rows: rows[0][3] == {"step": MINE},  # type: ignore[index]
    looks_for_growth: lambda box, seen: {str(box.runs / "rows.jsonl")} < seen[0].keys() and "stdout" in seen[1],  # type: ignore[index]
    looks_for_new_files: lambda _, newest_ns: newest_ns is not None,
    starts_with_a_log: lambda box, _: box.log.read_text().endswith(f"{MINE}\n"),
    starts_in_a_directory: lambda box, _: (box.runs / "seen").read_text().endswith("\n65534\n"),
    rotates: lambda box, moved: str(MINE) in str(moved) and (box.runs / "run.log.1").owner() == "nobody",
    clears: lambda _, size: size == 0,
    shows_the_end: lambda _, chunks: all(str(MINE) in str(each) for each in (chunks[0], chunks[2])),  # type: ignore[index]
    shows_the_last_lines: lambda _, lines: str(MINE) in lines[-1],  # type: ignore[index]
    shows_the_last_lines_at_a_former_place: lambda _, lines: str(MINE) in lines[-1],  # type: ignore[index]
    makes_room_for_its_log: lambda _, names: "run.log.found" in names,  # type: ignore[operator]
}
each_hand = pytest.mark.parametrize("hand", HANDS, ids=lambda hand: hand.__name__)


@each_hand
def test_without_an_attack_each_hand_does_its_work(box: Box, hand: Hand) -> None:
    answer = hand(box)
    assert HANDS[hand](box, answer)
    box.assert_untouched(answer)


@each_hand
def test_a_link_in_place_of_the_directory_leads_no_hand_to_roots_files(box: Box, hand: Hand) -> None:
    box.attacks = True
    answer: object = ""
    with contextlib.suppress(OSError, ValueError, *REFUSALS):
        answer = hand(box)
    box.assert_untouched(answer)


@pytest.mark.parametrize("box", [False], ids=["closed files"], indirect=True)
@each_hand
def test_a_directory_that_is_exchanged_for_a_link_all_the_time(box: Box, hand: Hand) -> None:
    with subprocess.Popen([str(PYTHON), "-c", FLICKER], cwd=box.home, user="nobody") as attacker:
        try:
            for _ in range(ROUNDS):
                attacker.send_signal(signal.SIGSTOP)
                assert eventually(lambda: (stat := procfs.read_stat(attacker.pid)) is not None and stat.state == "T")
                spec = box.spec
                box.reset()
                attacker.send_signal(signal.SIGCONT)
                answer: object = ""
                with contextlib.suppress(Exception):  # whatever this hand finds
                    answer = hand(box)
                box.spec = spec
                attacker.send_signal(signal.SIGSTOP)
                assert eventually(lambda: (stat := procfs.read_stat(attacker.pid)) is not None and stat.state == "T")
                box.assert_untouched(answer)
        finally:
            attacker.kill()


# --- hands that no directory leads ----------------------------------------------------------------------------------------


def test_a_file_of_another_owner_is_copied_and_not_linked(box: Box) -> None:
    """Root may link to any file. The times of the copy are set, so with a link those of a system's file would be."""
    readable = box.base / "of the system"
    readable.write_text(json.dumps({"step": MINE}))
    os.utime(readable, (1.0, 1.0))
    (box.runs / "ck2" / "state.json").unlink()
    os.link(readable, box.runs / "ck2" / "state.json")  # the user, where fs.protected_hardlinks is 0
    before = readable.stat()
    box.keep()
    kept = next(box.run_dir.rglob("state.json"))
    assert (kept.read_text(), kept.stat().st_ino != before.st_ino) == (readable.read_text(), True)
    assert (readable.stat().st_nlink, readable.stat().st_ctime_ns) == (before.st_nlink, before.st_ctime_ns)


def test_a_log_in_a_directory_of_roots_is_opened_by_root(box: Box) -> None:
    """As Supervisor's users have it: the program's user may not write to /var/log."""
    log = box.base / "run.log"
    box.runs_a_program(f"echo {MINE}", stdout_log=str(log))
    assert (log.read_text(), log.owner()) == (f"{MINE}\n", "root")


def test_a_log_that_the_user_may_not_write_refuses_the_start_with_the_reason(box: Box) -> None:
    box.home.chmod(0o555)
    shutil.rmtree(box.state)
    shutil.rmtree(box.base / "run")
    world = World(box.base)
    broke = world.inbox.expect(SpawnBroke, world.begin(["true"], user="nobody", stdout_log=str(box.home / "x.log")))
    world.close()
    assert broke.error == (
        f"cannot open the log {box.home}/x.log as user id 65534, because others than root decide where its "
        "path leads: let that user write there, or choose AUTO"
    )


def test_a_run_directory_that_the_user_could_replace_refuses_the_start(box: Box) -> None:
    box.state.chmod(0o777)
    with pytest.raises(ValueError, match=rf"^every user may write to {box.state} \(mode 0777\), so user 'nobody' could "):
        processes.shim_order(box.paths, box.spec, 1, "ab", "boot")


def test_shared_memory_that_a_worker_has_mapped_is_removed_as_its_user(box: Box) -> None:
    """A worker may map any file that it may read: one of root's in /dev/shm, too."""
    roots, theirs = Path(f"/dev/shm/xl-{os.getpid()}"), Path(f"/dev/shm/xl-{os.getpid()}-theirs")
    (box.home / "maps.py").write_text(
        "import mmap, sys, time\n"
        "open(sys.argv[2], 'wb').write(b'x' * 4096)\n"
        "opened = [open(path, 'rb') for path in sys.argv[1:]]\n"
        "mapped = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in opened]\n"
        "open('up', 'w').close()\n"
        "time.sleep(600)\n"
    )
    roots.write_bytes(b"x" * 4096)
    try:
        left = f"{PYTHON} maps.py {roots} {theirs} & until test -e up; do sleep 0.05; done; exit 3"
        ended = box.runs_a_program(left, directory=str(box.home), stop_grace_s=0.1)
        assert (roots.exists(), theirs.exists()) == (True, False), ended
    finally:
        for path in (roots, theirs):
            path.unlink(missing_ok=True)


def test_py_spy_reads_a_process_as_the_user_of_that_process(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens the files that the process has mapped, by their names."""
    spy = box.base / "py-spy"
    spy.write_text("#!/bin/sh\necho; echo; id -u\n")
    spy.chmod(0o755)
    with subprocess.Popen(["/bin/sleep", "100"], user="nobody") as process:
        assert evidence._dump(str(spy), process.pid, 20.0) == "65534"
        process.kill()


# --- the rights of a thread -----------------------------------------------------------------------------------------------


def may_enter(directory: Path) -> bool:
    try:
        return bool(os.listdir(directory))
    except PermissionError:
        return False


def status_of_this_thread() -> dict[str, list[str]]:
    rows = (line.split(":") for line in Path("/proc/thread-self/status").read_text().splitlines())
    return {row[0]: row[1].split() for row in rows if row[0] in ("Uid", "Gid", "Groups", "CapEff")}


def test_only_the_calling_thread_acts_as_the_user_and_only_within_the_block(box: Box) -> None:
    before, ask, answered, elsewhere = status_of_this_thread(), threading.Event(), threading.Event(), list[bool]()

    def other_thread() -> None:
        ask.wait(60)
        elsewhere.append(may_enter(box.vault / "ck1") or may_enter(box.state))
        answered.set()

    begun_before = threading.Thread(target=other_thread)
    begun_before.start()
    with contextlib.suppress(ZeroDivisionError), acting_as("nobody"):
        now = status_of_this_thread()
        assert (now["Uid"][3], now["Gid"][3], now["Groups"], int(now["CapEff"][0], 16)) == ("65534", "65534", ["65534"], 0)
        assert not may_enter(box.state)
        begun_within = Thread("within", lambda: elsewhere.append(may_enter(box.state)))
        begun_within.start()
        begun_within.join()
        with as_daemon():
            assert may_enter(box.state)
        with acting_as("nobody"), acting_as(""):
            assert may_enter(box.state)
        assert not may_enter(box.state)
        ask.set()
        assert answered.wait(60)
        raise ZeroDivisionError
    assert elsewhere == [True, True]
    assert status_of_this_thread() == before
    begun_before.join()


def test_a_user_that_the_kernel_or_the_box_does_not_know_stops_the_work(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    before = status_of_this_thread()
    with pytest.raises(UnknownUser), acting_as("no-such-user"):
        pytest.fail("it must not go on as root")
    monkeypatch.setattr(as_user, "_SETGROUPS", {})  # of a machine whose number of the call is not known
    with (
        pytest.raises(OSError, match=r"^\[Errno 1\] the kernel does not let this thread act as user id 65534$"),
        acting_as("nobody"),
    ):
        pytest.fail("it must not go on with root's groups")
    assert {**status_of_this_thread(), "Groups": []} == {**before, "Groups": []}


def test_a_command_is_started_as_the_user_also_by_a_thread_that_acts_as_that_user(box: Box) -> None:
    with acting_as("nobody"):
        assert hooks.run(["id", "-u"], 20.0, user="nobody") == (0, "65534\n")
        sid = "echo $$; ps -o sid= -p $$ | tr -d ' '"
        own, session = hooks.run(["sh", "-c", sid], 20.0, user="nobody")[1].split()
        assert own == session, "it has no terminal to type into"
        assert hooks.run(["sleep", "1000"], 0.1, user="nobody") == (None, ""), "it is killed, which root alone may"


def test_a_thread_that_acts_as_a_user_logs_as_the_daemon(box: Box) -> None:
    path = box.state / "extralife.log"
    handler = MainLog(str(path), max_bytes=10**6, backups=1)
    with acting_as("nobody"):
        handler.handle(logging.makeLogRecord({"msg": "seen", "levelno": logging.INFO}))
    handler.close()
    assert (path.read_text(), path.owner()) == ("seen\n", "root")


def test_a_daemon_without_root_acts_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    before = status_of_this_thread()
    with acting_as("nobody"):
        assert status_of_this_thread() == before
