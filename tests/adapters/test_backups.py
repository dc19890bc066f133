"""Backups on real files: verified, whole or not at all, and the way back leaves the old or the new whatever dies in it."""

import errno
import fcntl
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from checkpoints_kit import OTHER, TOKEN, commit
from killing import killed
from tools import MEMORY_DIR

from supervisor.adapters.copies import own
from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.store import BackupError, Interrupted, PartlyRolledBack, Task
from supervisor.adapters.process import checkpoints


def run_dirs(tmp_path, *names):
    return {name: tmp_path / "programs" / name for name in names}


def make(tmp_path, *names, name="b1", **more):
    given = {"label": "x", "cause": "operator", "wall_s": 1e9, "task": Task(), **more}
    return backups.make(tmp_path / "backups", name, run_dirs(tmp_path, *names), **given)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # a link leads to the backup too
    path.write_bytes(data)


def steps(tmp_path, name="Pong"):
    return [info.env_steps for info in checkpoints.survey(tmp_path / "programs" / name)]


@pytest.fixture
def pong(tmp_path):
    """Two checkpoints and results."""
    run_dir = run_dirs(tmp_path, "Pong")["Pong"]
    for step in (100, 200):
        commit(run_dir, step)
    (run_dir / "results.csv").write_text("then\n")
    return run_dir


def later(pong):
    """It trains on: another two checkpoints, another result."""
    for step in (300, 400):
        commit(pong, step)
    (pong / "results.csv").write_text("later\n")


def restore(tmp_path, name="b1", kept="kept", task=None):
    info = backups.find(tmp_path / "backups", name)
    dirs = run_dirs(tmp_path, *info.steps)
    keep = lambda: make(tmp_path, *info.steps, name=kept, cause="rollback", every=True)  # noqa: E731
    return backups.restore(info, dirs, keep, task or Task())


# --- making ----------------------------------------------------------------------------------------------------------------


def test_a_backup_has_the_newest_checkpoint_of_each_and_says_so(tmp_path, pong):
    commit(run_dirs(tmp_path, "Qbert")["Qbert"], 7, OTHER)
    info = make(tmp_path, "Pong", "Qbert", "Never")
    assert info.steps == {"Pong": 200, "Qbert": 7}
    assert info.method in {own.LINK, own.REFLINK}
    (found,) = backups.survey(tmp_path / "backups")
    assert found == info
    assert backups.verify(found) == ""
    kept = tmp_path / "backups" / "b1" / "programs" / "Pong"
    assert (kept / "results.csv").read_text() == "then\n"
    assert {item.name for item in kept.iterdir()} == {f"ckpt-200.{TOKEN}", "results.csv"}
    assert make(tmp_path, "Pong") == info, "asked again after a crash, it is there already"


def test_a_clone_is_read_back_like_anything_else(tmp_path, pong, monkeypatch):
    """A file system that clones is rarely under a test: stand in for its ioctl, once rightly and once wrongly."""

    def clone(fd, _request, source):
        os.write(fd, os.pread(source, 1 << 20, 0))

    monkeypatch.setattr(fcntl, "ioctl", clone)
    assert make(tmp_path, "Pong").method == "reflink"
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, _request, _source: os.write(fd, b"rubbish"))
    with pytest.raises(BackupError, match="does not match its digest"):
        make(tmp_path, "Pong", name="b2")


def test_a_flipped_bit_in_the_newest_makes_it_the_one_before(tmp_path, pong):
    flip(pong / "checkpoints" / f"ckpt-200.{TOKEN}" / "tensors.safetensors")
    assert make(tmp_path, "Pong").steps == {"Pong": 100}
    flip(pong / "checkpoints" / f"ckpt-100.{TOKEN}" / "state.json")
    with pytest.raises(BackupError, match=r"Pong: none of its checkpoints can be copied; ckpt-200.*does not match"):
        make(tmp_path, "Pong", name="b2")
    assert sorted(item.name for item in (tmp_path / "backups").iterdir()) == ["b1"]


def test_a_full_disk_leaves_nothing(tmp_path, pong, monkeypatch):
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: (_ for _ in ()).throw(OSError(errno.EOPNOTSUPP, "no")))
    monkeypatch.setattr(os, "link", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EXDEV, "no")))
    write, room = os.write, [500]

    def full(fd, data):
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(BackupError, match=r"^the disk is full: make room, or lower \[backup\] keep$"):
        make(tmp_path, "Pong")
    assert list((tmp_path / "backups").iterdir()) == []


def test_what_is_pruned_while_it_is_copied_is_copied_all_the_same_or_the_next_one_taken(tmp_path, pong, monkeypatch):
    opened, pruned = checkpoints.opened, []

    def and_prune(path, name):
        if name != "manifest.json" and not pruned:
            pruned.append(path)
            checkpoints.set_aside(path)
        return opened(path, name)

    monkeypatch.setattr(checkpoints, "opened", and_prune)
    assert make(tmp_path, "Pong").steps == {"Pong": 100}
    monkeypatch.setattr(checkpoints, "opened", lambda *_: (_ for _ in ()).throw(FileNotFoundError(errno.ENOENT, "gone")))
    with pytest.raises(BackupError) as told:
        make(tmp_path, "Pong", name="b2")
    assert str(told.value) == f"Pong: none of its checkpoints can be copied; ckpt-100.{TOKEN}: it was pruned"


def test_it_says_how_far_it_is_and_stops_when_the_daemon_ends(tmp_path, pong):
    task = Task()
    make(tmp_path, "Pong", task=task)
    assert (task.program, task.done_bytes, task.total_bytes) == ("Pong", 1011, 1011)
    over = threading.Event()
    over.set()
    with pytest.raises(Interrupted):
        make(tmp_path, "Pong", name="b2", task=Task(over))
    assert backups.survey(tmp_path / "backups")[0].name == "b1"
    assert make(tmp_path, "Pong", name="b2").steps == {"Pong": 200}, "the next daemon begins anew"
    assert {item.name for item in (tmp_path / "backups").iterdir()} == {"b1", "b2"}


# --- looking -----------------------------------------------------------------------------------------------------------------


def test_damage_is_found_and_named(tmp_path, pong):
    info = make(tmp_path, "Pong")
    inside = info.path / "programs" / "Pong"
    flip(inside / "results.csv")
    assert backups.verify(info) == "Pong, results.csv: it does not match its digest"
    assert backups.verify(info, ["Qbert"]) == "", "what is not asked for is not read"
    (inside / "results.csv").unlink()
    assert backups.verify(info) == "Pong, results.csv: No such file or directory"
    flip(inside / f"ckpt-200.{TOKEN}" / "tensors.safetensors")
    assert backups.verify(info) == f"Pong, ckpt-200.{TOKEN}: tensors.safetensors does not match its digest"
    text = json.loads((info.path / "backup.json").read_text())
    (info.path / "backup.json").write_text(json.dumps({**text, "label": "another"}))
    (found,) = backups.survey(tmp_path / "backups")
    assert found.error == "its list does not match its own digest"
    assert backups.verify(found) == found.error
    with pytest.raises(BackupError, match=r"^a backup of that name exists, but its list does not match its own digest$"):
        make(tmp_path, "Pong")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "x" * 10, '{"version": 1, "self_digest": 5}', "[" * 100_000])
def test_garbage_in_place_of_a_list_never_raises(tmp_path, text):
    path = tmp_path / "backups" / "b1"
    path.mkdir(parents=True)
    (path / "backup.json").write_text(text)
    assert backups.survey(tmp_path / "backups")[0].error
    (path / "backup.json").unlink()
    assert backups.read(path).error == "backup.json is missing"
    (path / "backup.json").mkdir()
    assert backups.read(path).error.startswith("it cannot be read: ")


INVALID = "its list names an invalid program or checkpoint"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 2}, "it was made by another extralife (version 2)"),
        ({"programs": {"../x": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": None}}}, "its list is damaged"),
        ({"programs": {".x": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": None}}}, INVALID),
        ({"programs": {"P": {"checkpoints": [["../../x", 1, 1]], "results": None}}}, INVALID),
        ({"programs": {"P": {"checkpoints": [["ckpt-1.ff", 1, 1], ["x", 1, 1]], "results": None}}}, INVALID),
        ({"programs": {"P": {"checkpoints": [], "results": None}}}, INVALID),
        ({"programs": {"P": 5}}, "its list is damaged"), ({"programs": []}, "its list is damaged"),
        ({"programs": {"P": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": ["x", 5]}}}, "its list is damaged"),
        ({"programs": {"P": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": []}}}, "its list is damaged"),
        ({"created_wall_s": 10**400}, "its list is damaged"),
    ],
)  # fmt: skip
def test_a_list_that_is_damaged_or_leads_elsewhere_is_not_followed(tmp_path, pong, change, error):
    info = make(tmp_path, "Pong")
    body = {**json.loads((info.path / "backup.json").read_text()), **change}
    del body["self_digest"]
    (info.path / "backup.json").write_text(json.dumps({**body, "self_digest": backups._digest(body)}))
    assert backups.read(info.path).error == error


# --- going back ----------------------------------------------------------------------------------------------------------------


def test_going_back_and_going_forth_again(tmp_path, pong):
    make(tmp_path, "Pong")
    later(pong)
    assert restore(tmp_path) == {"Pong": 200}
    assert steps(tmp_path) == [200]
    assert (pong / "results.csv").read_text() == "then\n"
    kept = backups.find(tmp_path / "backups", "kept")
    assert [step for _, step, _ in kept.programs[0].checkpoints] == [400, 300, 200, 100]
    assert backups.verify(kept) == ""
    commit(pong, 250, OTHER)
    assert restore(tmp_path, "kept", "kept2") == {"Pong": 400}
    assert steps(tmp_path) == [400, 300, 200, 100]
    assert (pong / "results.csv").read_text() == "later\n"
    assert all(checkpoints.verify(info).verified for info in checkpoints.survey(pong))
    assert backups.find(tmp_path / "backups", "kept2").steps == {"Pong": 250}


def test_a_damaged_backup_is_refused_and_nothing_is_touched(tmp_path, pong):
    info = make(tmp_path, "Pong")
    later(pong)
    flip(info.path / "programs" / "Pong" / f"ckpt-200.{TOKEN}" / "state.json")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(BackupError, match=r"state.json does not match its digest"):
        restore(tmp_path)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_damage_in_what_is_there_stays_as_bad_and_makes_room(tmp_path, pong):
    make(tmp_path, "Pong")
    later(pong)
    (pong / "checkpoints" / f"ckpt-400.{TOKEN}" / "manifest.json").write_text("{}")
    flip(pong / "checkpoints" / f"ckpt-200.{TOKEN}" / "state.json")
    assert restore(tmp_path) == {"Pong": 200}
    assert steps(tmp_path) == [200]
    assert checkpoints.newest_good(pong).env_steps == 200
    bad = {path.name for path in (pong / "checkpoints").iterdir()} - {f"ckpt-200.{TOKEN}"}
    assert bad == {f"ckpt-400.{TOKEN}.bad", f"ckpt-200.{TOKEN}.bad"}


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path, pong):
    make(tmp_path, "Pong")
    (pong / "checkpoints").rename(tmp_path / "elsewhere")
    (pong / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupError, match=f"^not a directory of the program's own: {pong / 'checkpoints'}$"):
        restore(tmp_path)
    assert steps(tmp_path) == [200, 100]


def test_an_error_between_two_programs_says_who_got_there(tmp_path, pong, monkeypatch):
    qbert = run_dirs(tmp_path, "Qbert")["Qbert"]
    commit(qbert, 7)
    make(tmp_path, "Pong", "Qbert")
    later(pong)
    commit(qbert, 8)
    sync = backups.sync_directory

    def failing(directory):
        if directory == qbert / "checkpoints":
            raise OSError(errno.EIO, "Input/output error")
        sync(directory)

    monkeypatch.setattr(backups, "sync_directory", failing)
    with pytest.raises(PartlyRolledBack, match=r"^Qbert: Input/output error$") as told:
        restore(tmp_path)
    assert told.value.done == {"Pong": 200}


@pytest.fixture
def in_memory():
    """A directory on tmpfs: fifty stories with some forty syncs each."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DIR) as name:
        yield Path(name)


@pytest.mark.parametrize("how", ["back", "back to what was pruned", "forth"])
def test_killed_at_any_moment_it_is_the_old_or_the_new_and_asked_again_the_new(in_memory, how):
    """SIGKILL before each system call that changes the disk, one after the other, until none is left.

    After weeks of training what the backup has is not there any more: it must be in before what is there is renamed away.
    """
    ends, code = set(), -9
    for at in range(0, 1000, 2):  # each rename is followed by a sync: every second call is every state of the disk
        if code == 0:
            break
        here = in_memory / str(at)
        pong = run_dirs(here, "Pong")["Pong"]
        for step in (100, 200):
            commit(pong, step, size=10)
        make(here, "Pong")
        for step in (300, 400):
            commit(pong, step, size=10)
        name, old, new = "b1", 400, 200
        if how == "back to what was pruned":
            for path in [*pong.glob("checkpoints/ckpt-100.*"), *pong.glob("checkpoints/ckpt-200.*")]:
                shutil.rmtree(path)
        if how == "forth":
            restore(here, kept="forth")
            name, old, new = "forth", 200, 400
        code = killed(lambda here=here, name=name: restore(here, name), at)
        good = checkpoints.newest_good(pong)
        newest = None if good is None else good.env_steps
        assert newest in {old, new}, f"killed before call {at}, a worker would find step {newest}"
        ends.add((code, newest))
        info = backups.find(here / "backups", name)
        keep = lambda here=here: make(here, "Pong", name="kept", every=True)  # noqa: E731
        assert backups.restore(info, run_dirs(here, "Pong"), keep, Task()) == {"Pong": new}
        assert checkpoints.newest_good(pong).env_steps == new
        assert backups.find(here / "backups", "kept").steps == {"Pong": old}, "what was there is kept, whenever it died"
        assert not list(here.rglob("*.tmp"))
    assert ends == {(-9, old), (-9, new), (0, new)}, (
        "the calls at which it was killed lie on both sides of the one that counts"
    )


# --- removing ------------------------------------------------------------------------------------------------------------------


def test_a_removed_backup_leaves_the_checkpoint_where_it_was(tmp_path, pong):
    make(tmp_path, "Pong")
    backups.remove(tmp_path / "backups", "b1")
    assert list((tmp_path / "backups").iterdir()) == []
    assert checkpoints.newest_good(pong).env_steps == 200
