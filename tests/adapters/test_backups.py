"""Backups on real files: verified, whole or not at all, and the way back leaves the old or the new whatever dies in it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints_kit import OTHER, TOKEN, commit
from killing import killed
from leaks import open_files
from scripts_kit import ScriptsBox
from test_own_checkpoints import plain
from test_whole_files import saved, trainer
from tools import MEMORY_DIR

from supervisor.adapters.copies import own
from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.own import CopiedFile
from supervisor.adapters.copies.store import BackupError, BackupInfo, Interrupted, NothingToBackUp, PartlyRolledBack, Task
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


# --- in a box with programs and scripts ------------------------------------------------------------------------------------

CKPT_100, CKPT_200, CKPT_300 = (f"ckpt-{step}.{TOKEN}" for step in (100, 200, 300))
BYTES = 1011  # of a checkpoint of `commit`


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class Box(ScriptsBox):
    """Programs with checkpoints, and scripts with checkpoints of their own."""

    def commits(self, name: str, *steps: int, **more: int) -> Path:
        run_dir = self.run_dirs(name)[name]
        for step in steps:
            commit(run_dir, step, **more)
        return run_dir


@pytest.fixture
def box(tmp_path: Path, no_umask: None) -> Box:
    return Box(tmp_path)


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that can neither clone nor link."""

    def no(*_args: object, **_more: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("fcntl.ioctl", no)
    monkeypatch.setattr(os, "link", no)


def modes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): oct(path.stat().st_mode & 0o777) for path in [directory, *directory.rglob("*")]
    }


def refused(call: Callable[[], object]) -> str:
    with pytest.raises((BackupError, PartlyRolledBack)) as told:
        call()
    return str(told.value)


def rewritten(info: BackupInfo, change: Callable[[dict], object]) -> BackupInfo:
    """The backup whose list somebody has changed, with the right digest."""
    body = json.loads((info.path / "backup.json").read_text())
    del body["self_digest"]
    change(body)
    body["self_digest"] = digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    (info.path / "backup.json").write_text(json.dumps(body))
    return backups.read(info.path)


# --- making ----------------------------------------------------------------------------------------------------------------


def test_the_list_of_a_backup(box: Box, copying: None) -> None:
    run_dir = box.commits("Pong", 200)
    (run_dir / "results.csv").write_text("then\n")
    work = box.script("mine")
    written = saved(work / "7.pt")
    empty = box.run_dirs("torn")["torn"] / "checkpoints" / CKPT_100
    empty.mkdir(parents=True)
    info = box.make("Pong", "mine", "torn", "Never")
    copied = CopiedFile("", written.stat().st_size, digest(written.read_bytes()), written.stat().st_mtime_ns)
    missed = {"torn": f"none of its checkpoints is complete; {CKPT_100}: manifest.json is missing"}
    assert info == backups.read(box.root / "b1")
    body = json.loads((info.path / "backup.json").read_text())
    assert body.pop("self_digest") == digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    assert body == {
        "version": 1, "label": "Before Friday", "cause": "operator", "created_wall_s": 1.5e9, "method": "copy",
        "programs": {
            "Pong": {"checkpoints": [[CKPT_200, 200, BYTES]], "results": [5, digest(b"then\n")]},
            "mine": {
                "checkpoints": [], "results": None,
                "own": {"path": "7.pt", "step": 7, "files": [["", copied.size_bytes, copied.digest, copied.written_ns]]},
            },
        },
        "missed": missed,
    }  # fmt: skip
    assert modes(box.root).items() >= {".": "0o700", f"b1/programs/Pong/{CKPT_200}/state.json": "0o644"}.items()


@pytest.mark.parametrize("shared", [True, False])
def test_files_of_some_megabytes_are_copied_verified_and_restored_whole(
    box: Box, shared: bool, request: pytest.FixtureRequest
) -> None:
    if not shared:
        request.getfixturevalue("copying")
    run_dir = box.commits("Pong", 100, size=2_500_000)
    work = box.script("hf", "checkpoint-*", "trainer_state.json:global_step")
    trainer(work, 500)
    (work / "checkpoint-500" / "shards").mkdir()
    (work / "checkpoint-500" / "shards" / "more.bin").write_bytes(os.urandom(2_500_000))
    before = {path: path.read_bytes() for path in (work / "checkpoint-500").rglob("*") if path.is_file()}
    whole = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    task = Task()
    info = box.make("Pong", "hf", task=task)
    assert task.done_bytes == 2_500_011 + sum(map(len, before.values())) == info.size_bytes
    shutil.rmtree(work)
    shutil.rmtree(run_dir)
    task = Task()
    assert backups.restore(info, box.run_dirs("Pong", "hf"), lambda: None, task, box.places) == {"Pong": 100, "hf": 500}
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == whole
    assert task.done_bytes == 2 * info.size_bytes, "read once to verify it, and once to copy it"
    assert {mode for name, mode in modes(work).items() if (work / name).is_file()} == {"0o644"}


def test_each_program_that_cannot_be_copied_is_named_with_its_reason(box: Box) -> None:
    for name in ("Pong", "Qbert"):
        (box.run_dirs(name)[name] / "checkpoints" / CKPT_100).mkdir(parents=True)
    why = f"none of its checkpoints is complete; {CKPT_100}: manifest.json is missing"
    assert refused(lambda: box.make("Pong", "Qbert", "Never")) == f"Pong: {why}; Qbert: {why}"
    box.commits("Zaxxon", 7)
    info = box.make("Pong", "Zaxxon", "..")
    assert info.missed == {"Pong": why, "..": "'..' is not a valid name of a file below its directory"}
    assert info.steps == {"Zaxxon": 7}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "the disk is full: make room, or lower [backup] keep"),
        (errno.EDQUOT, "the disk is full: make room, or lower [backup] keep"),
        (errno.EROFS, "Read-only file system: /there"), (errno.EIO, None),
    ],
)  # fmt: skip
def test_which_errors_of_the_disk_fail_the_whole_backup(
    box: Box, monkeypatch: pytest.MonkeyPatch, code: int, told: str | None
) -> None:
    box.commits("Pong", 100)
    box.commits("Qbert", 7)
    opened = checkpoints.opened

    def refuses(path: Path, name: str) -> int:
        if "Pong" in path.parts and name != "manifest.json":
            raise OSError(code, os.strerror(code), "/there")
        return opened(path, name)

    monkeypatch.setattr(checkpoints, "opened", refuses)
    if told is not None:
        assert refused(lambda: box.make("Pong", "Qbert")) == told
        assert list(box.root.iterdir()) == []
        return
    info = box.make("Pong", "Qbert")
    assert info.steps == {"Qbert": 7}
    assert info.missed == {"Pong": f"none of its checkpoints can be copied; {CKPT_100}: Input/output error: /there"}


def test_results_that_are_too_large_or_no_file_are_left_out(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "_MOST_RESULTS_BYTES", 5)
    results = box.commits("Pong", 100) / "results.csv"
    results.write_bytes(b"12345")
    info = box.make("Pong")
    assert info.programs[0].results == (5, digest(b"12345"))
    results.write_bytes(b"123456")
    assert box.make("Pong", name="b2").programs[0].results is None
    results.unlink()
    results.symlink_to("/etc/hostname")
    assert box.make("Pong", name="b3").programs[0].results is None
    (info.path / "programs/Pong/results.csv").write_bytes(b"123456")
    assert backups.verify(info) == "Pong, results.csv: it does not match its digest"


def test_what_a_killed_daemon_left_is_removed_by_the_next_backup(box: Box) -> None:
    box.commits("Pong", 100)
    (box.root / "old.tmp" / "programs").mkdir(parents=True)
    (box.root / "b1.tmp" / "programs").mkdir(parents=True)
    (box.root / "b1.tmp" / "backup.json").touch()
    box.make("Pong")
    assert [path.name for path in box.root.iterdir()] == ["b1"]


def test_no_descriptor_stays_open(box: Box, copying: None) -> None:
    box.commits("Pong", 100)
    saved(box.script("mine") / "1.pt")
    before = open_files()
    info = box.make("Pong", "mine")
    assert backups.verify(info) == ""
    box.back("Pong", "mine")
    assert open_files() <= before
    (info.path / "programs/mine/own/files/checkpoint").write_bytes(b"x")
    told = refused(lambda: box.back("Pong", "mine"))
    assert told == "mine, 1.pt, checkpoint: it does not match its digest"
    assert open_files() <= before


# --- looking -----------------------------------------------------------------------------------------------------------------


def test_verifying_stops_when_the_daemon_ends(box: Box) -> None:
    box.commits("Pong", 100)
    task = Task()
    task.over.set()
    info = box.make("Pong")
    with pytest.raises(Interrupted):
        backups.verify(info, (), task)


def test_backups_are_listed_by_their_time_then_by_their_name(box: Box) -> None:
    box.commits("Pong", 100)
    for name, wall_s in (("b", 5.0), ("c", 7.0), ("a", 7.0)):
        rewritten(box.make("Pong", name=name), lambda body, wall_s=wall_s: body.update(created_wall_s=wall_s))
    (box.root / "d").mkdir()
    (box.root / "e.tmp").mkdir()
    assert [(info.name, info.error) for info in backups.survey(box.root)] == [
        ("c", ""), ("a", ""), ("b", ""), ("d", "backup.json is missing"),
    ]  # fmt: skip
    assert backups.survey(box.root / "nowhere") == []


# --- going back ----------------------------------------------------------------------------------------------------------------


def test_a_rollback_leaves_the_wanted_files_and_nothing_beside_them(box: Box) -> None:
    run_dir = box.commits("Pong", 200)
    (run_dir / "results.csv").write_text("then\n")
    box.make("Pong")
    box.commits("Pong", 300)
    shutil.rmtree(run_dir / "checkpoints" / CKPT_200)
    (run_dir / "results.csv").write_text("later\n")
    (run_dir / "results.csv.tmp").touch()  # of a daemon that was killed, as the next two
    (run_dir / "checkpoints" / f"{CKPT_200}.tmp").mkdir()
    (run_dir / "checkpoints" / f"{CKPT_300}.tmp").mkdir()
    (run_dir / "checkpoints" / "mine.tmp").mkdir()  # of somebody else
    assert box.back("Pong") == {"Pong": 200}
    assert {str(path.relative_to(run_dir)) for path in run_dir.rglob("*")} == {
        "results.csv", "checkpoints", "checkpoints/mine.tmp", f"checkpoints/{CKPT_200}",
        *(f"checkpoints/{CKPT_200}/{name}" for name in ("manifest.json", "state.json", "tensors.safetensors")),
    }  # fmt: skip
    assert (run_dir / "results.csv").read_text() == "then\n"
    assert oct((run_dir / "results.csv").stat().st_mode & 0o777) == "0o644"
    assert backups.find(box.root, "kept").steps == {"Pong": 300}


def test_results_that_came_later_go_with_their_checkpoints(box: Box) -> None:
    run_dir = box.commits("Pong", 200)
    box.make("Pong")
    (run_dir / "results.csv").write_text("later\n")
    box.back("Pong")
    assert not (run_dir / "results.csv").exists()
    assert (box.root / "kept/programs/Pong/results.csv").read_text() == "later\n"
    assert backups.restore(backups.find(box.root, "b1"), box.run_dirs("Pong"), lambda: None, Task()) == {"Pong": 200}


def test_what_a_failed_rollback_has_copied_is_removed_again(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = box.commits("Pong", 100)
    work = box.script("mine")
    saved(work / "1.pt")
    saved(box.script("also") / "1.pt")
    box.make("Pong", "mine", "also")
    shutil.rmtree(run_dir / "checkpoints" / CKPT_100)
    box.commits("Pong", 300)
    saved(work / "1.pt", 500)
    (box.directory / "also" / "1.pt").unlink()
    before = {path for path in box.directory.rglob("*") if box.root not in path.parents}
    real, chmod = Path.chmod, []

    def refuses(path: Path, mode: int) -> None:
        chmod.append(mode)
        if len(chmod) == 2:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), "/there")
        real(path, mode)

    monkeypatch.setattr(Path, "chmod", refuses)
    assert refused(lambda: box.back("Pong", "mine", "also")) == "Operation not permitted: /there"
    assert {path for path in box.directory.rglob("*") if box.root not in path.parents} == before


# --- what scripts write themselves -------------------------------------------------------------------------------------------


def test_a_file_that_was_written_just_now_may_still_be_written(box: Box) -> None:
    work = box.script("odd", "*", "")
    plain(work / "now", 0.0)
    assert refused(lambda: box.make("odd")) == (
        "odd: its own checkpoints cannot be copied; now: it may be cut: it was being written, and its format does not tell"
    )
    plain(work / "before")
    assert box.make("odd").programs[0].own.path == "before"


@pytest.mark.parametrize("change", ["none", "another file", "another content", "a missing file"])
def test_what_is_in_place_already_is_not_copied_again(box: Box, change: str) -> None:
    work = box.script("hf", "checkpoint-*", "trainer_state.json:global_step")
    trainer(work, 500)
    directory = work / "checkpoint-500"
    box.make("hf")
    before = directory.stat().st_ino
    if change == "another file":
        (directory / "more.json").write_text("{}")
    elif change == "another content":
        (directory / "trainer_state.json").write_text('{"global_step": 500, "x": 1}')
    elif change == "a missing file":
        next(path for path in directory.iterdir() if path.name != "trainer_state.json").unlink()
    box.back("hf")
    assert (directory.stat().st_ino == before) is (change == "none")
    assert (work / ".checkpoint-500.bad").exists() is (change != "none")


def test_a_copy_that_differs_from_the_backup_is_not_put_into_place(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk changes it between verifying and copying."""
    work = box.script("mine")
    saved(work / "1.pt")
    box.make("mine")
    saved(work / "1.pt", 500)
    monkeypatch.setattr(own, "first_defect", lambda *_: "")
    file = box.root / "b1/programs/mine/own/files/checkpoint"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    before = open_files()
    assert refused(lambda: box.back("mine")) == "1.pt: the copy does not match the backup"
    assert open_files() <= before
    assert {path.name for path in work.iterdir()} == {"1.pt"}


def test_a_link_is_no_part_of_a_copy_and_a_staged_one_is_removed_as_a_link(box: Box) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    box.make("mine")
    (work / "1.pt").unlink()
    (work / "kept").mkdir()
    (work / "kept" / "x").touch()
    (work / ".1.pt.tmp").symlink_to(work / "kept")
    assert backups.restore(backups.find(box.root, "b1"), box.run_dirs("mine"), lambda: None, Task(), box.places) == {
        "mine": 1
    }
    assert {path.name for path in work.iterdir()} == {"1.pt", "kept"}
    assert (work / "kept" / "x").exists()


def test_a_script_that_has_no_checkpoint_yet_has_nothing_to_back_up(box: Box) -> None:
    box.script("mine")
    with pytest.raises(NothingToBackUp, match=r"^none of the programs has a complete checkpoint yet$"):
        box.make("mine")
    box.commits("Pong", 1)
    info = box.make("mine", "Pong")
    assert (info.steps, info.missed) == ({"Pong": 1}, {})
