"""Scanner at the checkpoints that a script writes itself: real directories, odd ones too, and its own check as a real process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from attempts_kit import BootClock, Inbox, eventually, gone
from leaks import open_files
from structlog.testing import capture_logs
from test_whole_files import saved, trainer

from supervisor.adapters.copies import own
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.process import own_checkpoints, own_scans, whole_files
from supervisor.adapters.process.own_checkpoints import Budget, Life, Place, Scanner, Unanswered, place_of, places_of
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.formats import span
from supervisor.model.commands import Spawn
from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.policy.script.figures import Figures, Sources

OLD_S = 1_000.0  # before now


def spec(directory: Path, glob: str = "*.pt", step: str = r"step=(\d+)", **more: object) -> ProgramSpec:
    return ProgramSpec(
        "Pong", ("true",), "d", directory=str(directory), checkpoint_glob=glob, checkpoint_step=step, **more
    )  # type: ignore[arg-type]  # fmt: skip


def to_start(program: ProgramSpec, token: str, aside: tuple[str, ...] = (), **more: object) -> Spawn:
    return Spawn(program, 1, token, aside=aside, **more)  # type: ignore[arg-type]


def plain(path: Path, age_s: float = OLD_S, now_s: float | None = None) -> Path:
    """A file of a format that does not tell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"some bytes")
    os.utime(path, ((time.time() if now_s is None else now_s) - age_s,) * 2)
    return path


def aged(path: Path) -> Path:
    """It was written before all that follows: the clock of a file system stands still for some milliseconds."""
    os.utime(path, (path.stat().st_mtime - 10.0,) * 2)
    return path


def look(found: ProgramSpec, scanner: Scanner | None = None, run_dir: str = "/nowhere", **more: object) -> OwnCheckpoint:
    place = place_of(found, run_dir)
    assert place is not None
    given = {"now_wall_s": time.time(), "life": None} | more
    return (scanner or Scanner()).scan(place, Budget(), **given).as_input(BootClock())  # type: ignore[arg-type]


# --- finding ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.pt", {"step=1.pt", "odd\nname step=2.pt"}),
        ("a/*.pt", {"a/step=3.pt"}),
        ("./a//*.pt", {"a/step=3.pt"}),
        ("*/*.pt", {"a/step=3.pt", "run[1]/step=8.pt"}),
        ("**/*.pt", {"step=1.pt", "odd\nname step=2.pt", "a/step=3.pt", "a/b/step=4.pt", "run[1]/step=8.pt"}),
        ("a/**/*.pt", {"a/step=3.pt", "a/b/step=4.pt"}),
        ("a/b", {"a/b"}),
        ("[ab]", {"a"}),
        (".h*/*", {".hidden/step=6.pt"}),
        ("step=1.pt/*", set()),
        ("run[1]/*.pt", {"run[1]/step=8.pt"}),  # a bracket also matches itself
        ("run[1]/step=[89].pt", {"run[1]/step=8.pt"}),
        ("ck[v2]_*", {"ck[v2]_9"}),
    ],
)
def test_what_a_pattern_matches(tmp_path: Path, glob: str, expected: set[str]) -> None:
    names = "step=1.pt;odd\nname step=2.pt;a/step=3.pt;a/b/step=4.pt;.hidden/step=6.pt;.step=7.pt.bad;run[1]/step=8.pt"
    for name in (*names.split(";"), "ck[v2]_9"):
        plain(tmp_path / name)
    place = place_of(spec(tmp_path, glob), "/nowhere")
    assert place is not None
    found = own_checkpoints._find(place, Budget()).paths
    assert {os.path.relpath(f"{place.base}/{path}", tmp_path) for path in found} == expected


def test_relative_to_the_run_directory_and_absolute(tmp_path: Path) -> None:
    from supervisor.features.slurm.settings import LauncherSettings

    plain(tmp_path / "c" / "step=5.pt")
    found = replace(spec(tmp_path), directory="", checkpoint_glob="c/*.pt")
    place = place_of(found, str(tmp_path))
    assert place is not None
    assert (place.base, place.parts) == (f"{tmp_path}/c", ("*.pt",))
    assert look(replace(found, checkpoint_glob=f"{tmp_path}/*/*.pt")).step == 5
    assert place_of(replace(found, checkpoint_glob=""), "/x") is None
    cluster = Settings(Paths("/s", "/r"), programs=(found,), launcher=LauncherSettings("slurm"))
    assert own_checkpoints.places_of(cluster, cluster.paths, ["Pong"])["Pong"].shared, "other machines write there"


def test_links_are_followed_where_they_were_written_out_and_nowhere_else(tmp_path: Path) -> None:
    plain(tmp_path / "disk" / "step=5.pt")
    work = tmp_path / "work"
    (work / "loop").mkdir(parents=True)
    (work / "runs").symlink_to(tmp_path / "disk")
    (work / "loop" / "again").symlink_to(work)
    assert look(spec(work, "runs/*.pt")).step == 5
    assert look(spec(work, "**/*.pt")).note.endswith("nothing matches checkpoint_glob " + f"{work}/**/*.pt")
    (work / "latest.pt").symlink_to(plain(work / "saved" / "step=7.pt"))
    assert look(spec(work, "latest.pt")).path == f"{work}/saved/step=7.pt", "it is what the script goes on from"
    (work / "latest.pt").unlink()
    (work / "step=9.pt").symlink_to("/etc/passwd")
    assert not look(spec(work, "step=9.pt")).path
    os.mkfifo(work / "step=10.pt")
    assert look(spec(work)).note == f"nothing matches checkpoint_glob {work}/*.pt but 1 links, which are not followed"


def test_a_hundred_thousand_files_and_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2_000):
        (tmp_path / f"step={number}.pt").touch()
    plain(tmp_path / "step=1999.pt")
    assert look(spec(tmp_path)).step == 1999
    monkeypatch.setattr(own_checkpoints, "_MOST_ENTRIES", 1_000)
    place = place_of(spec(tmp_path), "")
    for budget, why in (
        (Budget(entries=1_000), r"^its directory has more than 1,000 entries: use a narrower checkpoint_glob$"),
        (Budget(until_s=time.monotonic() - 1.0), "could not be read within"),
    ):
        with pytest.raises(Unanswered, match=why):
            Scanner().scan(place, budget, now_wall_s=0.0, life=Life())  # type: ignore[arg-type]


def test_files_that_vanish_while_they_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(tmp_path / "step=1.pt")
    gone = plain(tmp_path / "step=2.pt")
    real = own_checkpoints._find

    def find(*args: object) -> object:
        found = real(*args)  # type: ignore[arg-type]
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(own_checkpoints, "_find", find)
    assert look(spec(tmp_path)).step == 1
    plain(tmp_path / "step=2.pt")
    real_files = own_checkpoints.whole_files.files_of

    def files_of(path: str, went_on: object) -> object:
        Path(path).unlink() if "=2" in path else None
        return real_files(path, went_on)  # type: ignore[arg-type]

    monkeypatch.setattr(own_checkpoints, "_find", real)
    monkeypatch.setattr(own_checkpoints.whole_files, "files_of", files_of)
    assert look(spec(tmp_path)).step == 1


def test_a_directory_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer to others is given in its place."""
    plain(tmp_path / "a" / "step=1.pt")
    (tmp_path / "b").mkdir()
    shut, real = {f"{tmp_path}/b"}, os.scandir

    def scandir(directory: str) -> object:
        if directory in shut:
            raise PermissionError(13, "Permission denied", directory)
        return real(directory)

    monkeypatch.setattr(own_checkpoints.os, "scandir", scandir)
    found = look(spec(tmp_path, "*/*.pt"))
    assert (found.step, found.sure, found.note) == (1, False, f"{tmp_path}/b may not be read")
    shut.add(str(tmp_path))
    with pytest.raises(Unanswered, match=r"^its directory cannot be read: Permission denied$"):
        look(spec(tmp_path, "*/*.pt"))


# --- looking ------------------------------------------------------------------------------------------------------------


def test_one_that_is_being_written_is_no_news_while_the_program_runs(tmp_path: Path) -> None:
    saved(tmp_path / "step=100.pt")
    (tmp_path / "step=200.pt").write_bytes(b"PK\x03\x04 begun")
    found = look(spec(tmp_path), life=Life())
    assert (found.step, found.torn, found.note) == (100, "", "")
    found = look(spec(tmp_path), life=Life(), now_wall_s=time.time() + 61.0)
    assert (found.step, found.torn) == (100, f"{tmp_path}/step=200.pt")
    assert found.note == "step=200.pt is torn: its end is missing"


def test_steps_by_a_key_of_a_file_in_it(tmp_path: Path) -> None:
    for step in (500, 1000):
        trainer(tmp_path, step)
    (tmp_path / "checkpoint-2000").mkdir()
    found = look(spec(tmp_path, "checkpoint-*", "trainer_state.json:global_step"))
    assert (found.step, found.path) == (1000, f"{tmp_path}/checkpoint-1000")
    for step_rule in ("trainer_state.json:global_step", r"(\d+)"):
        found = look(spec(tmp_path, "checkpoint-*", step_rule))
        assert (found.step, found.torn) == (1000, f"{tmp_path}/checkpoint-2000"), "by its time, or by its name"
        assert found.note == "checkpoint-2000 is torn: it is an empty directory"
    (tmp_path / "checkpoint-1000" / "trainer_state.json").write_text("{")
    assert look(spec(tmp_path, "checkpoint-*", "trainer_state.json:global_step")).step == 500
    (tmp_path / "checkpoint-1000" / "trainer_state.json").unlink()
    (tmp_path / "checkpoint-1000" / "trainer_state.json").symlink_to("/etc/passwd")
    assert look(spec(tmp_path, "checkpoint-*", "trainer_state.json:global_step")).step == 500


def test_a_last_beside_the_best_of_long_ago_is_the_newest(tmp_path: Path) -> None:
    """Lightning's `save_top_k = 1` with `save_last`: the best has the step in its name."""
    plain(tmp_path / "step=100.pt", 300.0)
    plain(tmp_path / "last.pt", 20.0)
    assert look(spec(tmp_path)).path == f"{tmp_path}/last.pt"
    plain(tmp_path / "step=900.pt", 10.0)
    assert look(spec(tmp_path)).step == 900


def test_a_pattern_without_a_number_is_told_and_time_decides(tmp_path: Path) -> None:
    plain(tmp_path / "a.pt", 30.0)
    plain(tmp_path / "b.pt", 20.0)
    found = look(spec(tmp_path))
    assert (found.path, found.step, found.note) == (f"{tmp_path}/b.pt", None, "checkpoint_step finds no number for b.pt")
    assert look(spec(tmp_path, step="")).note == ""
    plain(tmp_path / "c" / "x.pt", 10.0)
    os.utime(tmp_path / "c", (0.0, 0.0))
    assert look(spec(tmp_path, "*")).path == f"{tmp_path}/c", "written when its newest file was"


def test_if_nothing_is_shown_an_unknown_format_is_whole_once_it_is_closed_or_at_the_second_look(tmp_path: Path) -> None:
    path, scanner, found = plain(tmp_path / "step=1.pt"), Scanner(), spec(tmp_path)
    with path.open("ab"):
        for _ in range(2):
            plain(path)
            first = look(found, scanner, life=Life())
            assert (first.path, first.sure) == ("", False)
            assert first.note == "step=1.pt: it may be cut, and its format does not show that"
            assert look(found, scanner, life=Life()).step == 1
            path.write_bytes(b"other bytes")
    place = replace(place_of(found, "/nowhere"), shared=True)  # type: ignore[type-var]
    now_s = plain(path, 60.0).stat().st_mtime
    for given, age_s in ((place, 60.0), (replace(place, shared=False), 0.4)):
        assert Scanner().scan(given, Budget(), now_wall_s=now_s + age_s, life=Life()).choice.newest is None
    assert look(found, scanner, life=Life(), now_wall_s=now_s + 0.6).step == 1
    assert look(found, scanner, doubt_from_wall_s=now_s - 1.0).step == 1, "a later end cuts nothing that was closed"
    plain(tmp_path / "step=2.pt" / "shard")
    for step in (1, 2):  # the next file of a directory may not be there yet
        assert look(found, scanner, life=Life()).step == step


def test_an_unknown_format_is_whole_once_its_program_has_shown_progress_after_a_look_at_it(tmp_path: Path) -> None:
    path, scanner, found = plain(tmp_path / "step=1.pt"), Scanner(), spec(tmp_path)
    with path.open("ab"):
        seen_s = time.monotonic()
        for progress_s, step in ((seen_s - 60.0, None), (seen_s + 4.0, None), (seen_s + 10.0, 1)):
            assert look(found, scanner, life=Life(progress_s=progress_s)).step == step
            assert look(found, scanner, life=Life(progress_s=progress_s)).step == step


def test_a_file_that_a_dead_process_has_closed_may_be_cut(tmp_path: Path) -> None:
    """It was killed within the write, and the daemon does not know of that yet."""
    code = "import sys, time; open(sys.argv[1], 'wb', buffering=0).write(b'half'); time.sleep(600)"
    found, path = spec(tmp_path), tmp_path / "step=1.pt"
    dead = subprocess.Popen([sys.executable, "-c", code, str(path)])  # a zombie until it is waited for
    assert eventually(lambda: path.exists() and path.stat().st_size)
    running = Life().next((os.getpid(), dead.pid), time.monotonic())
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    at_s = path.stat().st_mtime + 60.0
    assert look(found, life=running, now_wall_s=at_s).step is None
    dead.wait(30.0)
    assert look(found, life=running, now_wall_s=at_s).step is None
    without = running.next((os.getpid(),), running.progress_s)
    assert look(found, life=without, now_wall_s=at_s).step is None, "also once a look at its processes has missed it"
    os.utime(path, (without.lost_wall_s + 1.0,) * 2)
    assert look(found, life=without.next((os.getpid(), 1), None), now_wall_s=at_s).step == 1, "another one has written it"


def test_after_a_violent_end_a_start_gets_the_newest_and_a_backup_the_newest_whole_one(
    tmp_path: Path, daemon: Daemon
) -> None:
    plain(tmp_path / "step=1.pt", 100.0)
    plain(tmp_path / "step=2.pt", 10.0)
    found = look(spec(tmp_path), doubt_from_wall_s=time.time() - 50.0)
    assert (found.step, found.sure) == (1, False)
    begun = daemon.begins(to_start(spec(tmp_path), "t1", doubt_from_wall_s=time.time() - 50.0)).found
    assert (begun.step, begun.sure, begun.spare) == (2, False, f"{tmp_path}/step=1.pt")
    assert begun.note == "step=2.pt: it may be cut, and its format does not show that"
    assert look(spec(tmp_path), doubt_from_wall_s=None).step == 2


def test_the_newest_whole_one_is_found_behind_torn_ones_and_has_the_size_of_all_its_files(tmp_path: Path) -> None:
    size = sum(saved(plain(tmp_path / "step=3" / name)).stat().st_size for name in ("a.pt", "b.pt"))
    plain(tmp_path / "step=1" / "d.pt")
    (tmp_path / "step=4").mkdir()
    plain(tmp_path / "step=5" / "c.pt").write_bytes(b"PK\x03\x04 begun")
    found = look(spec(tmp_path, "step=*", checkpoint_check=check("sys.exit(0)")))  # which a torn one is not given to
    assert (found.step, found.size_bytes, found.torn) == (3, size, f"{tmp_path}/step=5")


def test_what_cannot_be_read_is_not_torn_and_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(plain(tmp_path / "step=1" / "a.pt"))
    scanner, real = Scanner(), whole_files.file_defect

    def broken(*_: object) -> str:
        raise OSError(5, "Input/output error", "a.pt")

    monkeypatch.setattr(whole_files, "file_defect", broken)
    found = look(spec(tmp_path, "step=*"), scanner)
    assert (found.path, found.torn, found.note) == ("", "", "step=1: it cannot be read: Input/output error")
    monkeypatch.setattr(whole_files, "file_defect", real)
    assert look(spec(tmp_path, "step=*"), scanner).step == 1
    monkeypatch.setattr(whole_files, "_MOST_FILES", 0)
    found = look(spec(tmp_path, "step=*"))
    assert (found.torn, found.note) == ("", "step=1: it has more than 0 files")


# --- the program's own check ------------------------------------------------------------------------------------------


def check(*code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", "\n".join(("import sys, time, os", *code)))


@pytest.mark.parametrize(
    ("command", "torn", "why"),
    [
        (check("sys.exit(0)"), False, ""),
        (check("sys.exit(1)"), True, "checkpoint_check ended with 1"),
        (check("print('first\\n  last  \\n\\n', flush=True); sys.exit(2)"), True, "  last"),
        (check("sys.stderr.write('x' * 300); sys.exit(2)"), True, "x" * 200),
        (check("os.write(1, b'\\xff bad'); sys.exit(2)"), True, "\ufffd bad"),
        (check("os._exit(126)"), False, "checkpoint_check ended with 126"),
        (check("os.kill(os.getpid(), 9)"), False, "checkpoint_check ended with -9"),
        (("/x/y",), False, "checkpoint_check cannot be started: [Errno 2] No such file or directory: '/x/y'"),
    ],
)
def test_the_answers_of_a_check(tmp_path: Path, command: tuple[str, ...], torn: bool, why: str) -> None:
    """Only one that says no sets a checkpoint aside: a check that breaks says nothing about it."""
    path, asked = str(plain(tmp_path / "step=1.pt")), tmp_path / "asked"
    scanner, whole = Scanner(), not why
    for _ in range(2):
        counted = (*command[:-1], f"import sys; open({str(asked)!r}, 'a').write('x')\n{command[-1]}")
        found = look(spec(tmp_path, checkpoint_check=command if len(command) == 1 else counted), scanner)
        said = "" if whole else f"step=1.pt {'is torn' if torn else ''}".strip() + f": {why}"
        assert (found.path, found.torn, found.sure, found.note) == (
            path if whole else "", path if torn else "", whole or torn, said,
        )  # fmt: skip
    assert len(command) == 1 or not (whole or torn) or asked.read_text() == "x", "the same files are not asked for twice"


def test_the_programs_own_check_is_started_as_the_program_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    code = f"print(sys.argv[1:], os.getcwd(), os.environ['XL_BOTH'], file=open({str(told)!r}, 'w'))"
    monkeypatch.setenv("XL_BOTH", "of the daemon")
    plain(tmp_path / "step=1.pt")
    look(spec(tmp_path, checkpoint_check=check(code), env=(("XL_BOTH", "of the program"),)))
    assert told.read_text() == f"['{tmp_path}/step=1.pt'] {tmp_path} of the program\n"


def test_a_check_that_never_ends_is_ended_with_its_children(tmp_path: Path) -> None:
    plain(tmp_path / "step=1.pt")
    child = tmp_path / "child"
    code = ("pid = os.fork()", f"open({str(child)!r} + str(bool(pid)), 'w').write(str(os.getpid()))", "time.sleep(600)")
    noted = tmp_path / "childFalse"
    for timeout_s in (3.0, 60.0):  # in the shorter time a busy machine may not have begun all of it
        found = look(spec(tmp_path, checkpoint_check=check(*code), checkpoint_check_timeout_s=timeout_s))
        assert found.note == f"step=1.pt: checkpoint_check did not answer within {span(timeout_s)}"
        if noted.exists() and noted.read_text():
            break
    pid = int(noted.read_text())
    assert eventually(lambda: gone(pid))


# --- setting aside ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/\0"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name of a file below its directory"):
        own_checkpoints.set_aside(str(tmp_path), path)


def test_a_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    plain(tmp_path / "out" / "step=1.pt")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(tmp_path / "out")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        own_checkpoints.set_aside(str(tmp_path / "in"), "a/step=1.pt")
    assert (tmp_path / "out" / "step=1.pt").exists()


def test_setting_aside_is_durable_and_says_the_new_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real, before = [], os.fsync, open_files()

    def fsync(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), sorted(path.name for path in (tmp_path / "a").iterdir())))
        real(fd)

    monkeypatch.setattr(own_checkpoints.os, "fsync", fsync)
    for number, name in enumerate((".step=1.pt.bad", ".step=1.pt.2.bad", ".step=1.pt.3.bad"), 1):
        plain(tmp_path / "a" / "step=1.pt").write_bytes(b"%d" % number)
        assert own_checkpoints.set_aside(str(tmp_path), "a/step=1.pt") == f"a/{name}"
        assert (tmp_path / "a" / name).read_bytes() == b"%d" % number
        assert synced[-1][0] == f"{tmp_path}/a"
        assert name in synced[-1][1]
    assert own_checkpoints.set_aside(str(tmp_path / "a"), str(plain(tmp_path / "a" / "x.pt").name)) == ".x.pt.bad"
    with pytest.raises(FileNotFoundError):
        own_checkpoints.set_aside(str(tmp_path), "a/step=1.pt")
    assert open_files() <= before


# --- of the daemon ----------------------------------------------------------------------------------------------------


class Daemon:
    """The looks of a daemon, and what it posts and starts."""

    def __init__(self, directory: Path) -> None:
        self.inbox, self.started = Inbox(), threading.Event()
        self.own = OwnCheckpoints(
            Paths(str(directory / "state"), "/run"), BootClock(), self.inbox, KeptCopies(), self._put_back,
            lambda _: self.figures,
        )  # fmt: skip
        self.figures: Figures | None = None
        self.path: str | None = ""
        self.run_dir = f"{directory}/state/programs/Pong"  # made by the first start
        self.put_back: Callable[[], object] = lambda: None
        self.refused = queue.SimpleQueue[str]()

    def _put_back(self, _paths: Paths, program: str, place: Place) -> None:
        assert (program, bool(place.base)) == ("Pong", True)
        self.put_back()

    def begins(self, order: Spawn) -> CheckpointsFound:
        self.started.clear()
        self.own.before_start(order, self._start, self.refused.put)
        assert self.started.wait(60.0)
        return self.inbox.expect(CheckpointsFound)

    def _start(self, path: str | None) -> None:
        self.path = path
        self.started.set()

    def began(self, ago_s: float) -> None:
        """The newest attempt began so long ago."""
        path = Path(self.run_dir, own_checkpoints._STARTS_FILE)
        body = json.loads(path.read_text())
        path.write_text(json.dumps(body | {"starts": [at_s - ago_s for at_s in body["starts"]]}))

    def shows(self, *marks: tuple[float, int], found: ProgramSpec) -> OwnCheckpoint:
        """The next look after the output has shown these steps, each so many seconds ago."""
        now_s = BootClock().now_s()
        seen = tuple((now_s - ago_s, at) for ago_s, at in marks)
        self.figures = Figures(steps=marks[-1][1], first_steps=(1, 2), marks=seen)
        watched = self.own._of(found)
        assert watched is not None
        self.own.newest(found)
        self.own._look_again(watched)
        assert watched.reported is not None
        return watched.reported

    def newest(self, found: ProgramSpec) -> OwnCheckpoint:
        deadline = time.monotonic() + 30.0
        while (told := self.own.newest(found)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return told


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    monkeypatch.setattr(own_scans, "_START_WAIT_S", 55.0)  # a busy machine may take longer than a start waits
    return Daemon(tmp_path)


def test_a_start_gets_the_newest_whole_one_and_sets_aside_first(tmp_path: Path, daemon: Daemon) -> None:
    for step in (100, 200, 300):
        saved(tmp_path / f"step={step}.pt")
    os.truncate(tmp_path / "step=300.pt", 700)
    found = daemon.begins(to_start(spec(tmp_path), "t1"))
    assert (found.program, found.token, found.found.step, found.left) == ("Pong", "t1", 200, ())
    assert daemon.path == f"{tmp_path}/step=200.pt"
    aside = (f"{tmp_path}/step=300.pt", f"{tmp_path}/gone.pt", "/elsewhere/x.pt")
    found = daemon.begins(to_start(spec(tmp_path), "t2", aside))
    assert (found.found.torn, found.left) == ("", ())
    assert (tmp_path / ".step=300.pt.bad").exists()
    assert daemon.newest(spec(tmp_path)).step == 200


def test_what_an_end_may_have_cut_stays_doubtful_until_it_is_written_again(tmp_path: Path, daemon: Daemon) -> None:
    """Else a cut file is whole one attempt later. As the only one it is used all the same: to begin from nothing costs more."""
    cut, age_s = plain(tmp_path / "last.pickle", 100.0), time.time() - 110.0
    place: Place = place_of(spec(tmp_path, "*.pickle"), daemon.run_dir)  # type: ignore[assignment]
    backup, _ = own.save(place, tmp_path / "backup", lambda _: None)  # type: ignore[misc]
    found = daemon.begins(to_start(spec(tmp_path, "*.pickle"), "t1", doubt_from_wall_s=age_s)).found
    assert (found.path, found.torn, found.sure) == (str(cut), "", False)
    for again in (daemon, Daemon(tmp_path)):  # the next attempt ends before it saves; the daemon is started again
        assert not look(spec(tmp_path, "*.pickle"), run_dir=daemon.run_dir, life=Life()).path, "no copy is made of it"
        found = again.begins(to_start(spec(tmp_path, "*.pickle"), "t2", doubt_from_wall_s=time.time())).found
        assert (again.path, found.torn, found.sure) == (str(cut), "", False)
    later = plain(tmp_path / "later.pickle", 50.0)
    daemon.begins(to_start(spec(tmp_path, "*.pickle"), "t3", doubt_from_wall_s=age_s))
    for aside, back, newest in (((str(later),), (), cut), ((), (str(later),), later), ((str(later),), (), cut)):
        found = daemon.begins(replace(to_start(spec(tmp_path, "*.pickle"), "t4", aside), back=back)).found
        assert (found.path, found.torn, found.sure) == (str(newest), "", False), "set aside and put back, it is doubted"
    assert not daemon.begins(to_start(spec(tmp_path, "*.pickle"), "t4", (str(cut),))).found.path, (
        "nothing whole goes with it"
    )
    daemon.begins(replace(to_start(spec(tmp_path, "*.pickle"), "t4"), back=(str(cut),)))
    own.stage(tmp_path / "backup", backup, place, lambda _: None)
    own.exchange(backup, place)
    assert daemon.begins(to_start(spec(tmp_path, "*.pickle"), "t5")).found.sure, "a copy has the same times"


def test_a_start_waits_for_a_check_that_takes_long(tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_scans, "_START_WAIT_S", 0.05)
    plain(tmp_path / "step=5.pt")
    slow = spec(tmp_path, checkpoint_check=check("time.sleep(0.3)"))
    assert daemon.begins(to_start(slow, "t")).found.step == 5, "else it would begin without its checkpoint"


def test_a_script_that_counts_from_zero_again_goes_on_from_what_it_wrote_last(tmp_path: Path, daemon: Daemon) -> None:
    """As Stable-Baselines3 does after it has loaded a file: each kill would go back to the same old one."""
    work = tmp_path / "work"
    began_s = time.time()
    for attempt, steps in enumerate(((1000, 2300), (0,), (), (100, 760))):
        daemon.begins(to_start(spec(work), f"t{attempt}"))
        for step in steps:
            saved(plain(work / f"step={step}.pt"))
            os.utime(work / f"step={step}.pt", (time.time(),) * 2)
    assert daemon.begins(to_start(spec(work), "t4")).found.step == 760
    assert len(own_checkpoints.noted_of(place_of(spec(work), daemon.run_dir)).starts) == 5  # type: ignore[arg-type]
    assert own_checkpoints.noted_of(place_of(spec(work), daemon.run_dir)).starts[0] >= began_s - 0.1  # type: ignore[arg-type]
    assert daemon.begins(to_start(spec(work), "t5", from_step=700)).found.step == 100
    assert (work / "step=2300.pt").exists(), "a rollback stops at the first older one"
    starts = place_of(spec(work), daemon.run_dir)
    for path in Path(daemon.run_dir).rglob(own_checkpoints._STARTS_FILE):
        path.write_text(json.dumps([began_s, time.time() + 3600]))
    assert own_checkpoints.noted_of(starts).starts == (began_s,), "the clock was ahead at the other one"  # type: ignore[arg-type]


def test_times_from_before_the_clock_was_set_back_neither_doubt_nor_win_for_long(tmp_path: Path, daemon: Daemon) -> None:
    for name, age_s in (("a", 600.0), ("b", 300.0), ("c", 0.0)):
        plain(tmp_path / name, age_s - 86_400.0)
    found = daemon.begins(to_start(spec(tmp_path, "?", ""), "t1", doubt_from_wall_s=time.time() - 5.0)).found
    assert (found.path, found.sure, found.spare) == (f"{tmp_path}/c", False, f"{tmp_path}/b"), (
        "only the last one is doubtful"
    )
    plain(tmp_path / "9", 0.0)
    assert Daemon(tmp_path).begins(to_start(spec(tmp_path, "?", ""), "t2")).found.path == f"{tmp_path}/9"


def test_a_rollback_goes_by_the_steps_that_are_in_files(tmp_path: Path, daemon: Daemon) -> None:
    for step in (500, 1000, 1500):
        trainer(tmp_path, step)
    order = to_start(spec(tmp_path, "checkpoint-*", "trainer_state.json:global_step"), "t1", from_step=1000)
    assert daemon.begins(order).found.step == 500
    assert sorted(path.name for path in tmp_path.glob(".*.bad")) == [".checkpoint-1000.bad", ".checkpoint-1500.bad"]


def test_a_rollback_goes_back_behind_hundreds_of_checkpoints(tmp_path: Path, daemon: Daemon) -> None:
    """A script may remove none of its checkpoints, as the callback of Stable-Baselines3 does."""
    for step in range(1, 302):
        plain(tmp_path / f"step={step}.pt")
    assert daemon.begins(to_start(spec(tmp_path), "t1", from_step=51)).found.step == 50


def test_a_directory_that_does_not_answer_holds_up_nobody_for_long(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(own_scans, "_START_WAIT_S", 0.05)
    monkeypatch.setattr(Scanner, "scan", lambda *_, **__: hangs.wait(30.0))
    found = daemon.begins(to_start(spec(tmp_path), "t", ("/a",)))
    assert (found.found.error, found.found.sure, found.left) == (f"its directory {tmp_path} does not answer", False, ("/a",))
    assert daemon.path is None, "unknown is not none"
    assert daemon.own.newest(spec(tmp_path)) is None
    monkeypatch.setattr(own_checkpoints, "MOST_S", -10_000.0)
    assert daemon.own.newest(spec(tmp_path)).error == f"its directory {tmp_path} does not answer"
    hangs.set()
    for thread in [each for each in threading.enumerate() if each.name == "look-Pong"]:
        thread.join(30.0)  # what it logs is of this test, and not of the next one


def test_the_last_whole_one_is_never_set_aside(tmp_path: Path, daemon: Daemon) -> None:
    path = str(saved(tmp_path / "step=200.pt"))
    saved(tmp_path / "step=100.pt").write_bytes(b"PK\x03\x04")
    found = daemon.begins(to_start(spec(tmp_path), "t", (path,)))
    assert (found.found.path, found.found.spare, found.left) == (path, "", (path,))
    saved(Path(path)).write_bytes(b"PK\x03\x04")
    found = daemon.begins(to_start(spec(tmp_path), "t", (path,)))
    assert (found.found.path, found.left, Path(path).exists()) == ("", (), False), "a torn one kills each start"


@pytest.mark.parametrize(
    ("pointer", "said", "names", "stale"),
    [
        ("latest", "global_step20", ("global_step20", "global_step10"), "global_step20, {}; write into it: global_step10"),
        ("latest_checkpointed_iteration.txt", "20\n", ("iter_0000020", "iter_0000010"), "20, {}; write into it: 10"),
        ("checkpoint", 'model_checkpoint_path: "/x/c-20"\n', ("c-20.index", "c-10.index"), "c-20, {}; write into it: {}"),
        ("last", None, ("step20", "step10"), "step20, {}; link it to step10"),
        ("latest", "step10", ("step20", "step10"), ""),
        ("seed", "20", ("step20", "step10"), ""),
    ],
)
def test_the_file_that_still_names_what_was_set_aside_is_told(
    tmp_path: Path, daemon: Daemon, pointer: str, said: str | None, names: tuple[str, str], stale: str
) -> None:
    newest, older = names
    for name, age_s in ((older, OLD_S), (newest, OLD_S / 2)):
        plain(tmp_path / name / "model.bin", age_s)
    if said is None:
        (tmp_path / pointer).symlink_to(newest)
    else:
        (tmp_path / pointer).write_text(said)
    found = daemon.begins(to_start(spec(tmp_path, "*0*"), "t", (f"{tmp_path}/{newest}",))).found
    assert found.path == f"{tmp_path}/{older}"
    stale = stale.format("which was set aside", 'model_checkpoint_path: "c-10"')
    assert found.stale == (f"{tmp_path}/{pointer} still names {stale}" if stale else "")
    assert pointer in os.listdir(tmp_path), "a foreign file stays as it is"


def test_what_was_set_aside_on_trial_is_put_back_under_its_name(tmp_path: Path, daemon: Daemon) -> None:
    for step in (100, 200, 300):
        saved(tmp_path / f"step={step}.pt")
    plain(tmp_path / ".step=300.pt.bad", 10.0)
    plain(tmp_path / ".step=300.pt.old.bad", 1.0)
    paths = tuple(f"{tmp_path}/step={step}.pt" for step in (300, 200))
    found = daemon.begins(to_start(spec(tmp_path), "t1", paths)).found
    assert (found.step, found.spare) == (100, "")
    saved(tmp_path / "step=200.pt").write_bytes(b"PK\x03\x04 new")
    found = daemon.begins(to_start(spec(tmp_path), "t2", back=(*paths, f"{tmp_path}/step=7.pt"))).found
    assert (found.step, found.spare) == (300, f"{tmp_path}/step=100.pt")
    assert (tmp_path / "step=200.pt").read_bytes() == b"PK\x03\x04 new", "a new one of that name stays"
    assert sorted(path.name for path in tmp_path.glob(".*")) == [
        ".step=200.pt.bad", ".step=300.pt.bad", ".step=300.pt.old.bad",
    ]  # fmt: skip


def test_nothing_is_set_aside_once_the_attempt_has_begun(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long look at the attempt before delays the look of a start; the script saves under the condemned name meanwhile."""
    monkeypatch.setattr(own_scans, "_START_WAIT_S", 0.05)
    saved(tmp_path / "step=100.pt")
    watched = daemon.own._of(spec(tmp_path))
    assert watched is not None
    others = set(threading.enumerate())
    with watched.guard:
        found = daemon.begins(to_start(spec(tmp_path), "t", (f"{tmp_path}/step=100.pt",), from_step=50))
        (late,) = [thread for thread in threading.enumerate() if thread.name == "look-Pong" and thread not in others]
    late.join(30.0)
    assert found.left == (f"{tmp_path}/step=100.pt",), "the next start does it"
    assert (tmp_path / "step=100.pt").exists()


def test_a_bug_is_unknown(tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(own_checkpoints, "_find", breaks)
    assert daemon.newest(spec(tmp_path)).error == "it stopped at a bug (KeyError); see the daemon's log"


def test_what_a_disk_does_not_let_be_set_aside_is_told_and_left(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(5, "Input/output error")

    path, error = str(saved(tmp_path / "step=5.pt")), "[Errno 5] Input/output error"
    saved(tmp_path / "step=4.pt")
    monkeypatch.setattr(own_checkpoints, "set_aside", refuses)
    monkeypatch.setattr(own_checkpoints, "roll_back", refuses)
    with capture_logs() as logged:
        told = daemon.begins(to_start(spec(tmp_path), "t", (path, "/elsewhere/x.pt"), from_step=5))
    assert told.left == (path,)
    assert [(each["event"], each["error"]) for each in logged] == [
        ("not_rolled_back", error), ("checkpoint_not_renamed", error)
    ]  # fmt: skip


def test_a_start_waits_for_a_checkpoint_that_is_put_back(tmp_path: Path, daemon: Daemon) -> None:
    daemon.put_back = lambda: saved(tmp_path / "step=300.pt")
    assert daemon.begins(to_start(spec(tmp_path), "t")).found.step == 300
    daemon.started.clear()

    def fails() -> None:
        raise OSError(28, "No space left on device")

    daemon.put_back = fails
    daemon.own.before_start(to_start(spec(tmp_path), "t"), daemon._start, daemon.refused.put)
    why = "its checkpoint from the copy off the box cannot be put back: [Errno 28] No space left on device"
    assert daemon.refused.get(timeout=30.0) == why
    assert not daemon.started.is_set(), "it would begin from scratch"


def test_checkpoints_of_a_second_writer_are_left_out_and_the_start_gets_the_own_ones(tmp_path: Path, daemon: Daemon) -> None:
    """Somebody runs the same script by hand, from step 10,000 on, in the same directory."""
    found = spec(tmp_path / "work")
    (tmp_path / "work").mkdir()
    daemon.begins(to_start(found, "t1"))
    daemon.began(60.0)
    for step, age_s in ((40, 20.0), (80, 10.0)):
        saved(tmp_path / "work" / f"step={step}.pt")
        os.utime(tmp_path / "work" / f"step={step}.pt", (time.time() - age_s,) * 2)
    assert daemon.shows((50.0, 1), (20.1, 41), (10.1, 82), (0.0, 100), found=found).odd == ""
    for step in range(10_040, 12_000, 40):
        saved(tmp_path / "work" / f"step={step}.pt")
    seen = daemon.shows((9.0, 90), (0.0, 100), found=found)
    why = "its number is 11,960, and this training has come to 100: another process writes there"
    assert (seen.step, seen.odd) == (80, f"step=11960.pt is not of this training: {why}; {LEFT}")
    paths = Paths(str(tmp_path / "state"), "/run")
    place = places_of(Settings(paths, programs=(found,)), paths, ["Pong"], daemon.own.shown)["Pong"]
    copied, _ = own.save(place, tmp_path / "copy", lambda _: None)  # type: ignore[misc]
    assert copied.step == 80, "of a backup, or off the box"
    assert own_checkpoints.newer_than(place, "step=40.pt", Budget()) == ["step=80.pt"], "what a rollback sets aside"
    assert daemon.begins(to_start(found, "t2")).found.step == 80
    assert Daemon(tmp_path).begins(to_start(found, "t3")).found.step == 80, "the next daemon knows it from the record"
    daemon.figures = Figures(steps=3, first_steps=(1, 2), laps=1)
    daemon.own.newest(found)
    assert daemon.begins(to_start(found, "t4")).found.step == 11_960, "steps of an epoch do not show how far it has come"


def test_load_makes_looks_at_an_only_file_no_rarer(tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(plain(tmp_path / "last.pt"))
    found, real = spec(tmp_path), own_checkpoints._find
    watched = daemon.own._of(found)
    assert watched is not None

    def slowly(place: Place, budget: Budget) -> object:
        threading.Event().wait(0.3)
        return real(place, budget)

    monkeypatch.setattr(own_checkpoints, "_find", slowly)
    daemon.own._look_again(watched)
    assert watched.due_s - time.monotonic() < 5.0, "a fiftieth of its time would be 15 s"


LEFT = "it is left where it is, and no start gets it"


def test_one_beyond_the_target_from_before_the_first_start_is_another_trainings(tmp_path: Path, daemon: Daemon) -> None:
    aged(saved(tmp_path / "step=5000.pt"))
    at_1000 = spec(tmp_path, figures=Sources(target_steps=1000))
    found = daemon.begins(to_start(at_1000, "t1")).found
    why = "its number 5,000 is beyond the target of 1,000, and it is older than the first attempt"
    assert (found.path, found.odd) == ("", f"step=5000.pt is not of this training: {why}; {LEFT}")
    daemon.figures = Figures(steps=90, target=1000)
    assert daemon.newest(at_1000).displaced == ()
    for later_s in (1.0, 2.0):  # one is saved, and removed in favour of the largest number
        os.utime(tmp_path, (time.time() + later_s,) * 2)
        displaced = daemon.shows((0.0, 90), found=at_1000).displaced
    assert displaced == (f"{tmp_path}/step=5000.pt",)
    daemon.own.set_aside(at_1000, displaced)
    assert eventually((tmp_path / ".step=5000.pt.bad").exists)
    saved(tmp_path / "step=60.pt")
    assert daemon.begins(to_start(at_1000, "t2")).found.step == 60


def test_without_a_configured_target_only_one_of_another_day_is_an_older_experiments(tmp_path: Path, daemon: Daemon) -> None:
    saved(plain(tmp_path / "step=5000.pt", 86_000.0))
    daemon.begins(to_start(spec(tmp_path), "t1"))
    daemon.figures = Figures(steps=90, target=1000)  # of the bar of an epoch
    assert daemon.newest(spec(tmp_path)).step == 5000
    os.utime(tmp_path / "step=5000.pt", (time.time() - 87_000.0,) * 2)
    assert daemon.begins(to_start(spec(tmp_path), "t2")).found.path == ""
    daemon.figures = Figures(steps=1, target=1000, laps=1)  # it begins anew
    daemon.own.newest(spec(tmp_path))
    assert daemon.begins(to_start(spec(tmp_path), "t3")).found.step == 5000


def test_numbers_that_do_not_count_the_shown_steps_are_no_steps(tmp_path: Path, daemon: Daemon) -> None:
    found = spec(tmp_path / "work", step=r"epoch=(\d+)")
    (tmp_path / "work").mkdir()
    daemon.begins(to_start(found, "t1"))
    daemon.began(60.0)
    for epoch, age_s in ((5, 20.0), (6, 10.0)):
        saved(tmp_path / "work" / f"epoch={epoch}.pt")
        os.utime(tmp_path / "work" / f"epoch={epoch}.pt", (time.time() - age_s,) * 2)
    for _ in range(2):
        seen = daemon.shows((50.0, 1), (20.1, 1200), (10.1, 1320), (0.0, 1400), found=found)
    assert (seen.path, seen.step) == (f"{tmp_path}/work/epoch=6.pt", None)
    assert seen.odd.endswith("epoch=6.pt, are not the steps that its output shows: set checkpoint_step")


def test_another_name_that_is_written_in_place_of_the_named_one_is_reported(tmp_path: Path, daemon: Daemon) -> None:
    """Lightning saves to last-v1.ckpt after a resume, because last.ckpt is taken."""
    work = tmp_path / "work"
    aged(saved(plain(work / "last.ckpt")))
    found = spec(work, "last.ckpt", "")
    daemon.begins(to_start(found, "t1"))
    daemon.began(1.0)
    saved(work / "last-v1.ckpt")
    assert daemon.newest(found).odd == "", "the first checkpoint of an attempt may take a minute"
    odd = daemon.begins(to_start(found, "t2")).found.odd
    assert odd == (
        f"{work}/last.ckpt is not written any more, and last-v1.ckpt beside it is newer: set checkpoint_glob so that it matches both"
    )
    daemon.began(1.0)
    saved(work / "last.ckpt")
    assert daemon.begins(to_start(found, "t3")).found.odd == ""


def test_a_program_without_the_setting_is_not_looked_at(tmp_path: Path, daemon: Daemon) -> None:
    bare = replace(spec(tmp_path), checkpoint_glob="")
    assert daemon.own.newest(bare) is None


def test_a_rollback_sets_aside_the_oldest_first_and_needs_an_older_one(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("step=100.pt", "step=200.pt", "step=300.pt", "last.pt"):
        saved(tmp_path / name)
    real, order = own_checkpoints.set_aside, []

    def noted(base: str, path: str) -> str:
        order.append(path)
        return real(base, path)

    monkeypatch.setattr(own_checkpoints, "set_aside", noted)
    assert daemon.begins(to_start(spec(tmp_path), "t1", from_step=100)).found.step == 300
    assert daemon.begins(to_start(spec(tmp_path), "t2", from_step=101)).found.step == 100
    assert order == ["step=200.pt", "step=300.pt"], "a crash in between leaves no gap"
    assert (tmp_path / "last.pt").exists(), "one without a step is not judged by it"
