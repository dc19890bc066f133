"""Whole results of a scan of own checkpoints: each field, each limit at its edge, each clause of a note."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import BootClock, Inbox, eventually
from leaks import open_files
from test_health_checks import stdin_is
from test_own_checkpoints import check, plain, spec
from test_whole_files import saved

from supervisor.adapters import leftovers
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.process import own_checkpoints, whole_files
from supervisor.adapters.process.own_checkpoints import (
    BeforeStart,
    Budget,
    OwnCheckpoints,
    Place,
    Result,
    Scanner,
    Unanswered,
    is_aside,
    newer_than,
    parent_below,
    place_of,
    places_of,
    relative,
    set_aside,
)
from supervisor.model.inputs import CheckpointsFound, OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.policy.worker.newest_whole import DOUBTFUL, TORN, UNREADABLE, WHOLE, Candidate
from supervisor.policy.worker.step_in_name import parsed

WALL_S = 1_000_000.0


class FixedClock(BootClock):
    def now_s(self) -> float:
        return 1_000.0

    def wall_s(self) -> float:
        return WALL_S


def the_place(found: ProgramSpec) -> Place:
    place = place_of(found, "/nowhere")
    assert place is not None
    return place


def scan(found: ProgramSpec, scanner: Scanner | None = None, *, running: bool = False) -> Result:
    return (scanner or Scanner()).scan(the_place(found), Budget(), now_wall_s=WALL_S, running=running)


# --- the place ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "base", "parts"),
    [
        ("*.pt", "/work", ("*.pt",)),
        ("last.pt", "/work", ("last.pt",)),
        ("./a//b/*.pt", "/work/a/b", ("*.pt",)),
        ("a/[bc]/d.pt", "/work/a", ("[bc]", "d.pt")),
        ("a?/b/c", "/work", ("a?", "b", "c")),
        ("/data/runs/**/*.pt", "/data/runs", ("**", "*.pt")),
    ],
)
def test_wildcards_match_below_the_part_without_any(glob: str, base: str, parts: tuple[str, ...]) -> None:
    found = ProgramSpec(
        "Pong", ("x",), "d", directory="/work", checkpoint_glob=glob, checkpoint_step=r"(\d+)",
        checkpoint_check=("check", "-v"), checkpoint_check_timeout_s=7.0, env=(("A", "b"),),
    )  # fmt: skip
    place = Place(base, parts, parsed(r"(\d+)"), ("check", "-v"), 7.0, (("A", "b"),), "/work", "/run")
    assert place_of(found, "/run") == place
    assert place.pattern == f"{base}/{'/'.join(parts)}"


def test_the_places_of_programs_by_name(tmp_path: Path) -> None:
    """One without the setting and one that is no longer configured have none."""
    paths = Paths(str(tmp_path), "/run")
    script, other = replace(spec(tmp_path), directory=""), replace(spec(tmp_path), name="Bare", checkpoint_glob="")
    found = places_of(Settings(paths, (script, other)), paths, ["Pong", "Bare", "Gone"])
    assert found == {"Pong": place_of(script, paths.run_dir("Pong"))}
    assert found["Pong"].base == paths.run_dir("Pong")


@pytest.mark.parametrize(
    ("path", "below"), [("/a/b/c.pt", "c.pt"), ("/a/b/d/c.pt", "d/c.pt"), ("/a/bc.pt", None), ("/x/a/b/c.pt", None)]
)
def test_a_recorded_path_belongs_to_the_place_above_it(path: str, below: str | None) -> None:
    assert relative(Place("/a/b", ("*",), parsed("")), path) == below


@pytest.mark.parametrize(
    ("name", "aside"),
    [(".x.bad", True), (".x.tmp", True), ("x.bad", False), ("x.tmp", False), (".x", False), (".bad.pt", False)],
)
def test_the_names_of_what_was_set_aside(name: str, aside: bool) -> None:
    assert is_aside(name) is aside


# --- limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [{"until_s": -1.0}, {"over": lambda: True}])
def test_time_is_looked_at_once_in_256_entries(ended: dict[str, object]) -> None:
    budget = Budget(entries=258, **ended)  # type: ignore[arg-type]
    budget.spend()
    with pytest.raises(Unanswered, match=r"^its directory could not be read within 1m$"):
        budget.spend()
    ample = Budget(entries=513)
    for _ in range(513):
        ample.spend()


@pytest.mark.parametrize("glob", ["**/*.pt", "*/**/*.pt", "**/[d]/*.pt"])
def test_directories_below_a_double_star_are_read_sixteen_deep(tmp_path: Path, glob: str) -> None:
    plain(tmp_path / ("d/" * 16) / "step=16.pt")
    plain(tmp_path / ("d/" * 18) / "step=18.pt")
    assert [each.path for each in scan(spec(tmp_path, glob)).looked] == ["d/" * 16 + "step=16.pt"]
    assert scan(spec(tmp_path, glob)).matches == 1


def test_of_equal_steps_and_times_the_last_name_is_the_newest(tmp_path: Path) -> None:
    for name in "dbeac":
        saved(tmp_path / f"{name} step=1.pt")
        os.utime(tmp_path / f"{name} step=1.pt", (WALL_S,) * 2)
    assert [each.path for each in scan(spec(tmp_path)).looked] == ["e step=1.pt"]


def test_one_without_the_file_that_holds_the_step_is_torn(tmp_path: Path) -> None:
    saved(plain(tmp_path / "a" / "model.pt"))
    os.utime(tmp_path / "a" / "model.pt", (WALL_S,) * 2)
    size = (tmp_path / "a" / "model.pt").stat().st_size
    found = scan(spec(tmp_path, "*", "state.json:step")).looked
    assert found == (Candidate("a", None, WALL_S, size, TORN, "it has no state.json"),)


def test_links_are_counted_and_what_is_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"step={number}.pt").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "step=9.pt")
    place = the_place(spec(tmp_path))
    assert scan(spec(tmp_path)) == Result(place, links=3)
    assert scan(spec(tmp_path, "*/*.pt")) == Result(the_place(spec(tmp_path, "*/*.pt")), links=3)


@pytest.mark.parametrize(("torn", "looked"), [(19, 20), (20, 20), (21, 20)])
def test_twenty_are_looked_at_for_a_whole_one(tmp_path: Path, torn: int, looked: int) -> None:
    saved(tmp_path / "step=0.pt")
    for number in range(1, torn + 1):
        plain(tmp_path / f"step={number}.pt").write_bytes(b"PK\x03\x04")
    found = scan(spec(tmp_path))
    assert (len(found.looked), found.matches) == (looked, torn + 1)
    assert [each.verdict for each in found.looked] == [TORN] * min(torn, 20) + [WHOLE] * (torn < 20)


def test_the_first_directory_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer to others is given in its place."""
    plain(tmp_path / "a" / "step=1.pt")
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    shut, real, asked = {f"{tmp_path}/b", f"{tmp_path}/c"}, os.scandir, []

    def scandir(directory: str) -> object:
        if directory in shut:
            asked.append(directory)
            raise PermissionError(13, "Permission denied", directory)
        return real(directory)

    monkeypatch.setattr(own_checkpoints.os, "scandir", scandir)
    found = scan(spec(tmp_path, "*/*.pt"))
    assert (found.matches, found.unread, set(asked)) == (1, asked[0], shut)
    shut.add(str(tmp_path))
    with pytest.raises(Unanswered, match=r"^its directory cannot be read: Permission denied$"):
        scan(spec(tmp_path, "*/*.pt"))


# --- results ------------------------------------------------------------------------------------------------------------


def test_a_whole_result(tmp_path: Path) -> None:
    """Newest first, to the newest whole one: each with its step, its newest file's time and the bytes of all its files."""
    for name, age_s in (("step=3/a.pt", 300.0), ("step=3/b.pt", 310.0)):
        saved(plain(tmp_path / name, age_s, WALL_S))
        os.utime(tmp_path / name, (WALL_S - age_s,) * 2)
    torn = plain(tmp_path / "step=5" / "c.pt", 100.0, WALL_S)
    torn.write_bytes(b"PK\x03\x04 begun")
    os.utime(torn, (WALL_S - 100.0,) * 2)
    (tmp_path / "step=4").mkdir()
    plain(tmp_path / "step=1" / "d.pt", 600.0, WALL_S)
    for step, age_s in ((1, 600.0), (3, 305.0), (4, 200.0), (5, 90.0)):
        os.utime(tmp_path / f"step={step}", (WALL_S - age_s,) * 2)
    (tmp_path / "step=9").symlink_to(tmp_path)
    size = sum((tmp_path / "step=3" / name).stat().st_size for name in ("a.pt", "b.pt"))
    expected = Result(
        the_place(spec(tmp_path, "step=*")),
        (
            Candidate("step=5", 5, WALL_S - 100.0, 10, TORN, "c.pt: its end is missing"),
            Candidate("step=4", 4, WALL_S - 200.0, 0, TORN, "it is an empty directory"),
            Candidate("step=3", 3, WALL_S - 300.0, size, WHOLE),
        ),
        matches=4, links=1, gap_s=100.0,
    )  # fmt: skip
    assert scan(spec(tmp_path, "step=*")) == expected
    assert scan(spec(tmp_path, "step=*"), running=True) == replace(expected, saving_since_wall_s=WALL_S - 60.0)


def test_what_cannot_be_examined_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "step=1"
    for name in "ab":
        saved(plain(made / f"{name}.pt"))
    os.utime(made, (WALL_S - 70.0,) * 2)
    found, real = spec(tmp_path, "step=*"), whole_files.file_defect
    written_s = max(path.stat().st_mtime_ns for path in made.iterdir()) / 1e9

    def broken(*_: object) -> str:
        raise OSError(5, "Input/output error", "a.pt")

    scanner = Scanner()
    monkeypatch.setattr(whole_files, "file_defect", broken)
    unreadable = Candidate("step=1", 1, written_s, 0, UNREADABLE, "it cannot be read: Input/output error")
    assert scan(found, scanner).looked == (unreadable,)
    monkeypatch.setattr(whole_files, "file_defect", real)
    size = sum(path.stat().st_size for path in made.iterdir())
    assert scan(found, scanner).looked == (Candidate("step=1", 1, written_s, size, WHOLE),), "asked again"
    monkeypatch.setattr(whole_files, "_MOST_FILES", 1)
    assert scan(found).looked == (replace(unreadable, why="it has more than 1 files"),)


def test_a_step_in_a_file_that_cannot_be_had_is_unknown_and_the_descriptor_is_closed(tmp_path: Path) -> None:
    for name, body in (("a", '{"step": 5}'), ("b", '{"step": 7}'), ("c", '{"other": 9}'), ("d", "{"), ("e", None)):
        saved(plain(tmp_path / name / "model.pt"))
        if body is not None:
            (tmp_path / name / "state.json").write_text(body)
        os.utime(tmp_path / name, (WALL_S,) * 2)
    place, before = the_place(spec(tmp_path, "*", "state.json:step")), open_files()
    assert newer_than(place, "c", Budget()) == ["d", "e", "a", "b"]
    assert newer_than(place, "b", Budget()) == []
    assert newer_than(place, "nothing", Budget()) == []
    assert open_files() <= before


def test_the_programs_own_check_is_started_as_the_program_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(tmp_path / "step=1.pt")
    told = tmp_path / "told.json"
    code = (
        "import json",
        "ids = [os.getpid(), os.getpgid(0), os.getsid(0)]",
        f"json.dump([sys.argv[1:], os.getcwd(), dict(os.environ), os.readlink('/proc/self/fd/0'), ids], open({str(told)!r}, 'w'))",
    )
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("XL_OWN", "of the daemon")
    monkeypatch.setenv("XL_BOTH", "of the daemon")
    with stdin_is(tmp_path / "stdin"):
        found = scan(spec(tmp_path, checkpoint_check=check(*code), env=(("XL_BOTH", "of the program"),)))
    assert [(each.verdict, each.why) for each in found.looked] == [(WHOLE, "")]
    arguments, directory, env, stdin, (pid, group, session) = json.loads(told.read_text())
    assert (arguments, directory, stdin) == ([f"{tmp_path}/step=1.pt"], str(tmp_path), "/dev/null")
    assert (group, session) == (pid, os.getsid(0)), "a group of its own in the daemon's session"
    assert {name: env.get(name) for name in ("XL_OWN", "XL_BOTH", "NOTIFY_SOCKET")} == {
        "XL_OWN": "of the daemon", "XL_BOTH": "of the program", "NOTIFY_SOCKET": None,
    }  # fmt: skip
    assert env[leftovers.ENV] == leftovers.mark(of_user=True)[leftovers.ENV]


@pytest.mark.parametrize(
    ("code", "verdict", "why"),
    [
        ("sys.exit(0)", WHOLE, ""),
        ("sys.exit(1)", TORN, "checkpoint_check ended with 1"),
        ("sys.exit(125)", TORN, "checkpoint_check ended with 125"),
        ("sys.exit(126)", UNREADABLE, "checkpoint_check ended with 126"),
        ("sys.exit(128)", TORN, "checkpoint_check ended with 128"),
        ("print('first\\n  last  \\n\\n', flush=True); sys.exit(2)", TORN, "  last"),
        ("sys.stderr.write('x' * 300); sys.exit(2)", TORN, "x" * 200),
        ("os.write(1, b'\\xff bad'); sys.exit(2)", TORN, "\ufffd bad"),
    ],
)
def test_the_answers_of_a_check(tmp_path: Path, code: str, verdict: str, why: str) -> None:
    plain(tmp_path / "step=1.pt")
    asked, before = tmp_path / "asked", open_files()
    command = check(f"open({str(asked)!r}, 'a').write('x')", code)
    scanner = Scanner()
    for _ in range(2):
        found = scan(spec(tmp_path, checkpoint_check=command), scanner).looked
        assert [(each.verdict, each.why, each.size_bytes) for each in found] == [(verdict, why, 10)]
    assert asked.read_text() == "x", "the same files are not asked for twice"
    assert open_files() <= before


def test_a_torn_one_is_not_given_to_the_check(tmp_path: Path) -> None:
    plain(tmp_path / "step=1.pt").write_bytes(b"PK\x03\x04")
    found = scan(spec(tmp_path, checkpoint_check=("/no/such/check",))).looked
    assert [(each.verdict, each.why) for each in found] == [(TORN, "its end is missing")]


def candidate(name: str, verdict: str, step: int | None = 1, written_s: float = WALL_S) -> Candidate:
    return Candidate(name, step, written_s, 7, verdict, "" if verdict == WHOLE else f"{verdict} for a reason")


PLACE = Place("/work", ("*.pt",), parsed(r"step=(\d+)"))
AT_S = 1_000.0  # WALL_S in journal time


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Result(PLACE), OwnCheckpoint(note="nothing matches checkpoint_glob /work/*.pt")),
        (
            Result(PLACE, links=2),
            OwnCheckpoint(note="nothing matches checkpoint_glob /work/*.pt but 2 links, which are not followed"),
        ),
        (
            Result(PLACE, (candidate("a", WHOLE),), 1, unread="/work/b", gap_s=30.0),
            OwnCheckpoint("/work/a", 1, AT_S, 7, sure=False, note="/work/b may not be read", interval_s=30.0),
        ),
        (
            Result(PLACE, (candidate("b", TORN, written_s=WALL_S - 9.0), candidate("a", WHOLE, 5, WALL_S - 10.0)), 2),
            OwnCheckpoint("/work/a", 5, AT_S - 10.0, 7, torn="/work/b", note="b is torn: torn for a reason"),
        ),
        (Result(PLACE, (candidate("b", TORN),), 1), OwnCheckpoint(torn="/work/b", note="b is torn: torn for a reason")),
        (
            Result(PLACE, (candidate("b", DOUBTFUL), candidate("a", WHOLE)), 2),
            OwnCheckpoint("/work/a", 1, AT_S, 7, sure=False),
        ),
        (Result(PLACE, (candidate("b", DOUBTFUL),), 1), OwnCheckpoint(sure=False, note="b: doubtful for a reason")),
        (
            Result(PLACE, (candidate("b", UNREADABLE), candidate("a", WHOLE)), 2),
            OwnCheckpoint("/work/a", 1, AT_S, 7, sure=False, note="b: unreadable for a reason"),
        ),
        (
            Result(PLACE, (candidate("a", WHOLE, None),), 1),
            OwnCheckpoint("/work/a", None, AT_S, 7, note="checkpoint_step finds no number for a"),
        ),
        (
            Result(replace(PLACE, rule=parsed("a.json:b")), (candidate("a", WHOLE, None),), 1),
            OwnCheckpoint("/work/a", None, AT_S, 7, note="checkpoint_step finds no number for a"),
        ),
        (
            Result(replace(PLACE, rule=parsed("")), (candidate("a", WHOLE, None),), 1),
            OwnCheckpoint("/work/a", None, AT_S, 7),
        ),
        (Result(PLACE, (candidate("a", WHOLE, 0),), 1), OwnCheckpoint("/work/a", 0, AT_S, 7)),
    ],
)
def test_what_the_core_is_told_of_a_result(found: Result, told: OwnCheckpoint) -> None:
    assert found.as_input(FixedClock()) == told


@pytest.mark.parametrize(("written_s", "torn"), [(WALL_S - 1.0, "/work/b"), (WALL_S, ""), (WALL_S + 1.0, "")])
def test_a_torn_one_that_may_be_a_save_in_progress_is_not_told(written_s: float, torn: str) -> None:
    found = Result(PLACE, (candidate("b", TORN, written_s=written_s),), 1, saving_since_wall_s=WALL_S)
    assert found.as_input(FixedClock()).torn == torn


# --- setting aside ------------------------------------------------------------------------------------------------------


def test_setting_aside_is_durable_and_says_the_new_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real, before = [], os.fsync, open_files()

    def fsync(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), sorted(path.name for path in (tmp_path / "a").iterdir())))
        real(fd)

    monkeypatch.setattr(own_checkpoints.os, "fsync", fsync)
    for number, name in enumerate((".step=1.pt.bad", ".step=1.pt.2.bad", ".step=1.pt.3.bad"), 1):
        plain(tmp_path / "a" / "step=1.pt").write_bytes(b"%d" % number)
        assert set_aside(str(tmp_path), "a/step=1.pt") == f"a/{name}"
        assert (tmp_path / "a" / name).read_bytes() == b"%d" % number
        assert synced[-1][0] == f"{tmp_path}/a"
        assert name in synced[-1][1]
    assert set_aside(str(tmp_path / "a"), str(plain(tmp_path / "a" / "x.pt").name)) == ".x.pt.bad"
    with pytest.raises(FileNotFoundError):
        set_aside(str(tmp_path), "a/step=1.pt")
    assert open_files() <= before


def test_missing_directories_on_the_way_are_made_only_if_asked_for(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        parent_below(str(tmp_path), "a/b/c.pt")
    assert not (tmp_path / "a").exists()
    for _ in range(2):
        fd, name = parent_below(str(tmp_path), "a/b/c.pt", make=True)
        assert (os.readlink(f"/proc/self/fd/{fd}"), name) == (f"{tmp_path}/a/b", "c.pt")
        assert not os.get_inheritable(fd)
        os.close(fd)
    fd, name = parent_below(str(tmp_path), "c.pt")
    assert (os.readlink(f"/proc/self/fd/{fd}"), name) == (str(tmp_path), "c.pt")
    os.close(fd)
    plain(tmp_path / "file")
    for path in ("file/c.pt", "a/gone/c.pt"):
        with pytest.raises((NotADirectoryError, FileNotFoundError)):
            parent_below(str(tmp_path), path)
    assert open_files() <= before


# --- of the daemon ------------------------------------------------------------------------------------------------------


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def own(tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnCheckpoints]:
    monkeypatch.setattr(own_checkpoints, "_START_WAIT_S", 55.0)  # a busy machine may take longer than a start waits
    made = OwnCheckpoints(Paths(str(tmp_path / "state"), "/run"), FixedClock(), inbox, KeptCopies())
    yield made
    made.close()


def begins(own: OwnCheckpoints, inbox: Inbox, order: BeforeStart) -> tuple[CheckpointsFound, str | None]:
    """What is posted for a start, and the path that it gets."""
    paths: list[str | None] = []
    own.before_start(order, paths.append, paths.append)
    assert eventually(lambda: paths)
    return inbox.expect(CheckpointsFound), paths[0]


def test_all_that_a_start_posts(tmp_path: Path, own: OwnCheckpoints, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, age_s in ((1, 300.0), (2, 200.0), (3, 100.0)):
        plain(tmp_path / f"step={step}.pt", age_s, WALL_S)
    aside = ("/elsewhere/x.pt", f"{tmp_path}/gone.pt", f"{tmp_path}/step=3.pt")
    told, path = begins(own, inbox, BeforeStart(spec(tmp_path), "t1", aside, doubt_from_wall_s=WALL_S - 200.0))
    found = OwnCheckpoint(f"{tmp_path}/step=1.pt", 1, 700.0, 10, sure=False)
    assert (told, path) == (CheckpointsFound(1_000.0, "Pong", "t1", found), f"{tmp_path}/step=1.pt")
    assert sorted(each.name for each in tmp_path.glob("*.pt")) == ["step=1.pt", "step=2.pt"]
    hangs = threading.Event()
    monkeypatch.setattr(Scanner, "scan", lambda *_, **__: hangs.wait(60.0) and Result(PLACE))
    assert own.newest(spec(tmp_path)) == found, "it is what a running program has at first"
    hangs.set()


def test_a_running_programs_own_are_seen_as_of_one_that_runs(tmp_path: Path, own: OwnCheckpoints) -> None:
    saved(tmp_path / "step=1.pt")
    torn = plain(tmp_path / "step=2.pt")
    torn.write_bytes(b"PK\x03\x04")
    for name in ("step=1.pt", "step=2.pt"):
        os.utime(tmp_path / name, (WALL_S - 60.0,) * 2)
    size = (tmp_path / "step=1.pt").stat().st_size
    assert eventually(lambda: own.newest(spec(tmp_path)) is not None)
    assert own.newest(spec(tmp_path)) == OwnCheckpoint(f"{tmp_path}/step=1.pt", 1, 940.0, size)


def test_a_rollback_sets_aside_the_oldest_first_and_needs_an_older_one(
    tmp_path: Path, own: OwnCheckpoints, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("step=100.pt", "step=200.pt", "step=300.pt", "last.pt"):
        saved(tmp_path / name)
    real, order = own_checkpoints.set_aside, []

    def noted(base: str, path: str) -> str:
        order.append(path)
        return real(base, path)

    monkeypatch.setattr(own_checkpoints, "set_aside", noted)
    assert begins(own, inbox, BeforeStart(spec(tmp_path), "t1", from_step=100))[0].found.step == 300
    assert begins(own, inbox, BeforeStart(spec(tmp_path), "t2", from_step=101))[0].found.step == 100
    assert order == ["step=200.pt", "step=300.pt"], "a crash in between leaves no gap"
    assert (tmp_path / "last.pt").exists(), "one without a step is not judged by it"


def test_a_directory_that_cannot_be_read_is_an_error_of_the_look(tmp_path: Path, own: OwnCheckpoints, inbox: Inbox) -> None:
    (tmp_path / "loop").symlink_to("loop")
    told, path = begins(own, inbox, BeforeStart(spec(tmp_path / "loop"), "t"))
    assert told.found == OwnCheckpoint(sure=False, error="its directory cannot be read: Too many levels of symbolic links")
    assert path is None


def test_looks_are_ten_seconds_apart_or_fifty_times_as_long_as_they_take(
    tmp_path: Path, own: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_s, took_s, looks = 1_000.0, 0.0, []

    def scanned(*_: object, **given: object) -> Result:
        nonlocal at_s
        looks.append(given["running"])
        at_s += took_s
        return Result(PLACE)

    monkeypatch.setattr(own_checkpoints, "time", SimpleNamespace(monotonic=lambda: at_s))
    monkeypatch.setattr(Scanner, "scan", scanned)

    def after(seconds: float) -> int:
        """How many looks there have been that long after the newest one began."""
        nonlocal at_s
        at_s = began_s + seconds
        own.newest(spec(tmp_path))
        assert eventually(lambda: "checkpoints-Pong" not in {thread.name for thread in threading.enumerate()})
        return len(looks)

    began_s = at_s
    assert after(0.0) == 1
    assert after(9.9) == 1
    took_s = 1.0
    assert after(10.0) == 2
    began_s += 10.0
    assert after(49.9) == 2
    assert after(50.0) == 3
    assert looks == [True] * 3


def test_a_look_that_takes_longer_than_it_may_is_told(
    tmp_path: Path, own: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 s for the scan, and its own check's time for each of twenty."""
    at_s, hangs, begun = 1_000.0, threading.Event(), threading.Event()

    def scanned(*_: object, **__: object) -> Result:
        begun.set()
        hangs.wait(60.0)
        return Result(PLACE)

    monkeypatch.setattr(own_checkpoints, "time", SimpleNamespace(monotonic=lambda: at_s))
    monkeypatch.setattr(Scanner, "scan", scanned)
    found = spec(tmp_path, checkpoint_check_timeout_s=3.0)
    assert own.newest(found) is None
    assert begun.wait(60.0)
    at_s += 120.0
    assert own.newest(found) is None
    at_s += 0.1
    assert own.newest(found) == OwnCheckpoint(sure=False, error=f"its directory {tmp_path} does not answer")
    hangs.set()
    assert eventually(lambda: own.newest(found) == Result(PLACE).as_input(FixedClock()))


@pytest.mark.parametrize(("check_fields", "wait_s"), [({}, 10.0), ({"checkpoint_check": ("true",)}, 16.0)])
def test_a_start_waits_ten_seconds_and_twice_the_time_of_a_check(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, check_fields: dict[str, object], wait_s: float
) -> None:
    waited: list[float | None] = []

    def wait(done: object, timeout: float) -> object:
        waited.append(timeout)
        return real(done, 60.0)

    real = own_checkpoints.wait
    own = OwnCheckpoints(Paths(str(tmp_path / "state"), "/run"), FixedClock(), inbox, KeptCopies())
    monkeypatch.setattr(own_checkpoints, "wait", wait)
    begins(own, inbox, BeforeStart(spec(tmp_path, checkpoint_check_timeout_s=3.0, **check_fields), "t"))
    own.close()
    assert waited == [wait_s]


def test_closing_ends_the_spare_thread(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    own = OwnCheckpoints(Paths(str(tmp_path / "state"), "/run"), FixedClock(), Inbox(), KeptCopies())
    (spare,) = set(threading.enumerate()) - others
    assert spare.name == "checkpoints"
    own.close()
    spare.join(60.0)
    assert not spare.is_alive()


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (OwnCheckpoint("/a", 1, 10.49), True), (OwnCheckpoint("/a", 1, 9.51), True), (OwnCheckpoint("/a", 1, 10.5), False),
        (OwnCheckpoint("/a", 1, 9.5), False), (OwnCheckpoint("/a", 2, 10.0), False), (OwnCheckpoint("/b", 1, 10.0), False),
    ],
)  # fmt: skip
def test_less_than_half_a_second_is_the_clocks_and_no_news(now: OwnCheckpoint, same: bool) -> None:
    assert own_checkpoints._is_same(OwnCheckpoint("/a", 1, 10.0), now) is same
    assert own_checkpoints._is_same(OwnCheckpoint(), OwnCheckpoint())
