"""Looking at what the daemon relies on, on real files: by identity, and without hanging."""

import errno
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock
from leaks import open_files

from supervisor import files
from supervisor.adapters.foundations import Foundations, Identity, Remembered, Seen, Watched, check_row, of_path
from supervisor.model.inputs import FoundationsLooked
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.box.foundations import Answer, Finding, Look, judge
from supervisor.shell.foundations import attempt_rows, log_row


class Posts:
    """`ports.Inbox` that keeps what is posted."""

    def __init__(self):
        self.items = []

    def post(self, item):
        self.items.append(item)

    def newest(self):
        """The findings that were posted last, as (name, look)."""
        return [(found.name, found.look) for found in self.items[-1].findings]


def watching(*rows, hang_s=60.0, clock=None, mistakes=list):
    posts = Posts()
    made = Foundations(posts, clock or FakeClock(), mistakes, hang_s=hang_s)
    made.watch(*rows)
    return made, posts


def remembered(path, **more):
    seen = Remembered(path)
    seen.renew()
    return Watched("thing", str(path), seen, **more)


def test_what_is_remembered_is_the_file_of_the_first_look_until_it_is_renewed(tmp_path):
    before, path = open_files(), tmp_path / "file"
    seen = Remembered(path)
    assert seen() is None, "there is none yet"
    path.touch()
    first = of_path(path)
    assert seen() == first
    path.rename(tmp_path / "away")
    path.symlink_to("away")
    assert seen() == first
    seen.renew()
    assert seen() == of_path(path) != first, "the link, not what it leads to"
    assert open_files() <= before + 1
    del seen
    assert open_files() <= before
    assert Remembered(path / "below")() is None, "a file has nothing below it"
    with pytest.raises(OSError, match="File name too long"):
        Remembered(tmp_path / ("x" * 300))()


def test_what_its_owner_may_replace_is_only_missed_once_it_was_there(tmp_path):
    path = tmp_path / "file"
    row = Watched("thing", str(path), Seen(path))
    assert check_row(row) is None
    path.touch()
    assert check_row(row) is None
    (tmp_path / "new").touch()
    (tmp_path / "new").replace(path)
    assert check_row(row) is None
    path.unlink()
    assert check_row(row).look is Look.MISSING


def test_removed_and_replaced_are_told_apart(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    row = remembered(path, consequence="nothing works", remedy="do something")
    path.write_text("other content, the same file")
    os.link(path, tmp_path / "second name")
    assert check_row(row) is check_row(replace(row, expected=lambda: replace(of_path(path), links=1))) is None
    assert check_row(Watched("thing", str(path), lambda: None)) is None, "nobody knows which one it should be"
    path.rename(tmp_path / "elsewhere")
    assert check_row(row) == Finding("thing", str(path), Look.MISSING, "", "nothing works", "do something")
    path.write_text("x")
    found = check_row(row)
    assert (found.look, found.detail) == (Look.REPLACED, "by another file")
    path.unlink()
    path.mkdir()
    assert check_row(row).detail == "by a directory"
    (tmp_path / "elsewhere").replace(tmp_path / "again")
    path.rmdir()
    (tmp_path / "again").rename(path)
    assert check_row(row) is None, "the same file is back"


def refuses(error):
    def fail():
        raise error

    return fail


MORE = {"consequence": "nothing works", "remedy": "do something", "by_others": True, "restarts": True, "holds_starts": True}


@pytest.mark.parametrize(
    ("expected", "check", "look", "detail"),
    [
        (None, None, Look.DAMAGED, "it is empty"),
        (refuses(OSError(5, "Input/output error")), None, Look.UNKNOWN, "Input/output error"),
        (lambda: Identity(1, 1, "file"), None, Look.REPLACED, "it is on another file system"),
    ],
)
def test_each_finding_has_all_that_its_row_says(tmp_path, expected, check, look, detail):
    path = tmp_path / "file"
    path.touch()
    row = Watched("thing", str(path), expected or Remembered(path), check or (lambda: "it is empty"), **MORE)
    assert check_row(row) == Finding(
        "thing", str(path), look, detail, "nothing works", "do something", True, True, holds_starts=True
    )  # fmt: skip
    assert not check_row(replace(row, by_others=False)).restorable


def test_only_changes_are_posted(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    made, posts = watching(remembered(path))
    made.check_all()
    assert not posts.items
    path.unlink()
    made.check_all()
    made.check_all()
    assert posts.items == [FoundationsLooked(1_000.0, (Finding("thing", str(path), Look.MISSING, ""),))]
    path.write_text("y")
    made.check_all()
    made.forget("thing")
    made.check_all()
    assert [[found.look for found in item.findings] for item in posts.items] == [[Look.MISSING], [Look.REPLACED], []]


def test_each_thing_that_was_put_aside_is_reported_in_one_round(tmp_path):
    made, posts = watching(Watched("main log", str(tmp_path / "log"), lambda: None))
    for name in ("log", "alive"):
        os.mkfifo(tmp_path / name)
        files.make_room(tmp_path / name)
    made.check_all()
    made.check_all()
    found = [[(each.name, each.look, each.detail) for each in item.findings] for item in posts.items]
    detail = "by a FIFO, which is now {}.found"
    expected = [("main log", detail.format("log")), ("file alive", detail.format("alive"))]
    assert found == [[(name, Look.REPLACED, detail) for name, detail in expected], []]


def test_while_no_thread_can_be_begun_the_checking_thread_looks_itself(tmp_path, monkeypatch):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    (tmp_path / "file").touch()
    made, posts = watching(remembered(tmp_path / "file"))
    (tmp_path / "file").unlink()
    monkeypatch.setattr(threading.Thread, "start", refused)
    made.check_all()
    assert posts.newest() == [("thing", Look.MISSING)]


def test_a_look_that_hangs_is_reported_and_holds_up_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    answer = threading.Event()

    def hangs():
        answer.wait(60.0)
        return of_path(tmp_path)

    made, posts = watching(
        Watched("mount", "/mnt/dead", hangs, consequence="no backups", remedy="mount it", holds_starts=True),
        Watched("thing", str(path), Remembered(path)), hang_s=3.0,
    )  # fmt: skip
    while not posts.items:  # the look's thread may stand still for so long before it has even begun
        made.check_all()
    made._rounds.hang_s = 60.0  # for those that answer, however slowly
    assert posts.newest() == [("mount", Look.UNKNOWN)]
    assert posts.items[-1].findings[0] == Finding(
        "mount", "/mnt/dead", Look.UNKNOWN, "its file system has not answered for 3s", "no backups", "mount it",
        holds_starts=True,
    )  # fmt: skip
    made.check_all()  # what came behind the one that hangs is looked at now
    path.unlink()
    made.check_all()
    assert posts.newest() == [("mount", Look.UNKNOWN), ("thing", Look.MISSING)]
    answer.set()
    waiting = [thread for thread in threading.enumerate() if thread.name == "foundations-look"]
    for thread in waiting:
        thread.join(60.0)
    made.check_all()
    assert posts.newest() == [("mount", Look.MISSING), ("thing", Look.MISSING)], "it is looked at again"


def test_what_its_worker_makes_again_is_found_once_and_is_trouble_if_it_stays_away(tmp_path):
    path = tmp_path / "checkpoints"
    path.mkdir()
    made, posts = watching(remembered(path, by_others=True))
    path.rename(tmp_path / "away")
    path.mkdir()  # at once
    for _ in range(2):
        made.check_all()
    path.rmdir()
    for _ in range(2):
        made.check_all()
    path.mkdir()
    made.check_all()
    assert [[(each.look, each.error) for each in item.findings] for item in posts.items] == [
        [(Look.REPLACED, "")], [], [(Look.MISSING, "")], [(Look.MISSING, "it is still missing or damaged")], [],
    ]  # fmt: skip


def test_a_restart_is_prepared_and_what_would_let_it_fail_is_told(tmp_path):
    path, errors = tmp_path / "lock", [OSError(errno.EBUSY, "it is held"), OSError("words alone"), None]
    path.touch()

    def prepare():
        if (error := errors.pop(0)) is not None:
            raise error

    made, posts = watching(remembered(path, restarts=True, prepare=prepare))
    path.unlink()
    for _ in range(3):
        made.check_all()
    assert [item.findings[0].error for item in posts.items] == ["it is held", "words alone", ""]
    assert not errors, "what is in place needs no preparation"


def test_no_restart_while_the_next_image_could_not_start(tmp_path):
    path, clock, answers = tmp_path / "lock", FakeClock(), [["python is missing", "more"], OSError("words alone"), []]
    path.touch()

    def mistakes():
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    made, posts = watching(remembered(path, restarts=True), clock=clock, mistakes=mistakes)
    made.check_all()
    path.unlink()
    for _ in range(9):
        made.check_all()
        clock.at_s += 10.0
    assert [item.findings[0].error for item in posts.items] == ["python is missing", "words alone", ""]
    assert not answers, "asked each half minute, and only when a restart is due"


def test_a_file_that_was_removed_after_its_row_is_no_finding(tmp_path):
    path = tmp_path / "control"
    path.touch()
    posts = Posts()
    made = Foundations(posts, FakeClock(), list, hang_s=60.0)

    def ends():
        """The attempt ends in the middle of the round."""
        made.forget("thing")
        path.unlink()
        return ""

    made.watch(remembered(path, check=ends))
    made.check_all()
    assert not posts.items


_SEEN = """
import pathlib, subprocess, sys
from supervisor.shell.foundations import unwritable
path = sys.argv[1]
print(unwritable(path, "it") or "writable")
subprocess.run(["mount", "--bind", path, path], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
print(unwritable(path, "it"))
print(unwritable(path + "/missing", "it") or "another finding")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8192", "tmpfs", path], check=True)
print(unwritable(path, "it", 8192) or "writable")
pathlib.Path(path, "file").write_bytes(b"x")
print(unwritable(path, "it", 8192))
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8192,nr_inodes=2", "tmpfs", path], check=True)
print(unwritable(path, "it") or "writable")
pathlib.Path(path, "file").touch()
print(unwritable(path, "it"))
"""


@pytest.mark.root
def test_a_file_system_that_is_full_or_read_only_is_seen_without_a_write(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", _SEEN, str(tmp_path)], capture_output=True, text=True, check=False
    )
    # In a chroot whose root is no mount point, unshare itself fails; in a container, mount(2) may be forbidden.
    if done.returncode != 0 and any(each in done.stderr for each in ("unshare: ", "not permitted", "denied")):
        pytest.skip(f"root may not mount in a namespace here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "writable", "it is mounted read-only", "another finding", "writable", "it is full", "writable", "it has no free inode",
    ]  # fmt: skip


def test_a_log_that_was_taken_away_under_its_worker_is_a_trouble_with_its_remedy(tmp_path):
    path, taken = tmp_path / "stdout.log", []
    row = log_row("Pong", "stdout", str(path), lambda: taken[0] if taken else None)
    assert check_row(row) is None, "nobody writes to it"
    taken.append((1, 2))
    found = check_row(row)
    assert (found.name, found.look, judge(found, may_restart=True)[0]) == (
        "stdout log of Pong",
        Look.MISSING,
        Answer.TROUBLE,
    )
    assert found.remedy.endswith("supervisorctl restart Pong")
    path.touch()
    assert check_row(row).look is Look.REPLACED


def test_a_run_directory_behind_a_link_to_nothing_is_a_trouble_of_the_next_daemon_too(tmp_path):
    """The link leads to a disk that is not mounted: a restart would not help."""
    paths, disk = Paths(str(tmp_path / "state"), str(tmp_path / "run")), tmp_path / "disk"
    Path(paths.state_dir).mkdir()
    Path(paths.programs).symlink_to(disk)
    made, posts = watching(next(attempt_rows(paths, None, ProgramSpec("Pong", ("x",), "d"), 1, "t")))
    made.check_all()
    answer, why = judge(posts.items[-1].findings[0], may_restart=True)
    assert answer is Answer.TROUBLE
    assert f"({paths.programs} leads to {disk}, which is missing)" in why
    disk.mkdir()
    Path(paths.run_dir("Pong")).mkdir()
    made.check_all()
    assert posts.newest() == []
