"""Looking at what the daemon relies on, on real files: by identity, and without hanging."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fakes import FakeClock, ListInbox

from supervisor import files
from supervisor.adapters.foundations import Foundations, Identity, Remembered, Seen, Watched, check_row, of_path
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.box.foundations import Answer, Finding, Look, judge
from supervisor.shell.foundations import attempt_rows, log_row


class Posts(ListInbox):
    def newest(self):
        """The findings that were posted last, as (name, look)."""
        return [(found.name, found.look) for found in self.items[-1].findings]


def watching(*rows, hang_s=60.0, clock=None, mistakes=list):
    posts = Posts()
    made = Foundations(posts, clock or FakeClock(), mistakes, hang_s=hang_s)
    made.watch(*rows, program="Pong")
    return made, posts


def remembered(path, **more):
    seen = Remembered(path)
    seen.renew()
    return Watched("thing", str(path), seen, **more)


def raises(error):
    raise error


def away_and_back(path):
    path.rename(path.with_name("away"))
    path.with_name("away").rename(path)


def replaced(path):
    path.with_name("new").touch()
    path.with_name("new").replace(path)


def becomes_a_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("expected", "change", "look", "detail"),
    [
        (Remembered, lambda path: path.write_text("other content"), None, ""),
        (Remembered, lambda path: os.link(path, path.with_name("second name")), None, ""),
        (Remembered, away_and_back, None, ""),
        (Remembered, Path.unlink, Look.MISSING, ""),
        (Remembered, replaced, Look.REPLACED, "by another file"),
        (Remembered, becomes_a_directory, Look.REPLACED, "by a directory"),
        (Seen, replaced, None, ""),
        (Seen, Path.unlink, Look.MISSING, ""),
        (lambda _: lambda: None, Path.unlink, None, ""),
        (lambda _: lambda: Identity(1, 1, "file"), Path.touch, Look.REPLACED, "it is on another file system"),
        (lambda _: lambda: raises(OSError(5, "Input/output error")), Path.touch, Look.UNKNOWN, "Input/output error"),
    ],
)
def test_a_look_finds_what_happened_to_the_file_and_says_what_its_row_says(tmp_path, expected, change, look, detail):
    path = tmp_path / "file"
    row = Watched("thing", str(path), expected(path), None, True, True, None, "nothing works", "do something", True)
    if expected is Seen:
        assert check_row(row) is None, "it was never there"
    path.touch()
    check_row(row)
    change(path)
    whole = Finding("thing", str(path), look, detail, "nothing works", "do something", True, True, holds_starts=True)
    assert check_row(row) == (whole if look else None)


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


def test_a_look_that_hangs_is_reported_and_holds_up_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    answer = threading.Event()

    def hangs():
        answer.wait(60.0)
        return of_path(tmp_path)

    made, posts = watching(
        Watched("mount", "/mnt/dead", hangs, consequence="no backups"),
        Watched("thing", str(path), Remembered(path)),
        hang_s=3.0,
    )
    while not posts.items:  # a busy machine may begin the look's thread that late
        made.check_all()
    made._rounds.hang_s = 60.0  # for those that answer, however slowly
    assert [(each.detail, each.consequence) for each in posts.items[-1].findings] == [
        ("its file system has not answered for 3s", "no backups")
    ]
    made.check_all()  # the row behind the one that hangs
    path.unlink()
    made.check_all()
    assert posts.newest() == [("mount", Look.UNKNOWN), ("thing", Look.MISSING)]
    answer.set()
    for thread in [each for each in threading.enumerate() if each.name == "foundations-look"]:
        thread.join(60.0)
    made.check_all()
    assert posts.newest() == [("mount", Look.MISSING), ("thing", Look.MISSING)], "it answers again"


@pytest.mark.parametrize("why", ["prepare", "mistakes"])
def test_a_start_that_would_fail_is_found_before_the_restart(tmp_path, why):
    """`prepare` is the row's own check; `mistakes` is the check of the next image, asked once in half a minute."""
    path, clock = tmp_path / "lock", FakeClock()
    answers = [["it is held"], OSError("words alone"), []]
    path.touch()

    def asked():
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    def prepare():
        for error in asked():
            raise OSError(errno.EBUSY, error)

    row = remembered(path, restarts=True, prepare=prepare if why == "prepare" else None)
    made, posts = watching(row, clock=clock, mistakes=asked if why == "mistakes" else list)
    made.check_all()
    path.unlink()
    for _ in range(3 if why == "prepare" else 9):
        made.check_all()
        clock.at_s += 10.0
    errors = [item.findings[0].error for item in posts.items]
    assert list(dict.fromkeys(errors)) == ["it is held", "words alone", ""]
    assert not answers, "a file in place needs no check"


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
    assert found.remedy.endswith("extralifectl restart Pong")
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
