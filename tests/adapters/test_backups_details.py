"""Backups on real files: the list, what is missed and refused, and what a rollback leaves beside what it puts back."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints_kit import TOKEN, commit
from leaks import open_files
from scripts_kit import ScriptsBox
from test_own_checkpoints import plain
from test_whole_files import saved, trainer

from supervisor.adapters.copies import own, store
from supervisor.adapters.copies.own import CopiedFile
from supervisor.adapters.copies.store import (
    BackupError,
    BackupInfo,
    Interrupted,
    NothingToBackUp,
    PartlyRolledBack,
    Task,
)
from supervisor.adapters.process import checkpoints

CKPT_100, CKPT_200, CKPT_300 = (f"ckpt-{step}.{TOKEN}" for step in (100, 200, 300))
BYTES = 1011  # of a checkpoint of `commit`


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class Box(ScriptsBox):
    """Programs with checkpoints, and scripts with checkpoints of their own."""

    def run_dirs(self, *names: str) -> dict[str, Path]:
        return {name: self.directory / "state" / "programs" / name for name in names}

    def commits(self, name: str, *steps: int, **more: int) -> Path:
        run_dir = self.run_dirs(name)[name]
        for step in steps:
            commit(run_dir, step, **more)
        return run_dir

    def make(self, *names: str, name: str = "b1", task: Task | None = None, every: bool = False) -> BackupInfo:
        return store.make(
            self.root, name, self.run_dirs(*names), label="Before Friday", cause="operator", wall_s=1.5e9,
            task=task or Task(), every=every, places=self.places,
        )  # fmt: skip

    def back(self, *names: str, name: str = "b1", task: Task | None = None) -> dict[str, int | None]:
        return store.restore(
            store.find(self.root, name), self.run_dirs(*names), lambda: self.make(*names, name="kept", every=True), task or Task(),
            self.places,
        )  # fmt: skip


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
    return store.read(info.path)


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
    assert info == store.read(box.root / "b1")
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
    assert store.restore(info, box.run_dirs("Pong", "hf"), lambda: None, task, box.places) == {"Pong": 100, "hf": 500}
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
    monkeypatch.setattr(store, "_MOST_RESULTS_BYTES", 5)
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
    assert store.verify(info) == "Pong, results.csv: it does not match its digest"


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
    assert store.verify(info) == ""
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
        store.verify(info, (), task)


def test_backups_are_listed_by_their_time_then_by_their_name(box: Box) -> None:
    box.commits("Pong", 100)
    for name, wall_s in (("b", 5.0), ("c", 7.0), ("a", 7.0)):
        rewritten(box.make("Pong", name=name), lambda body, wall_s=wall_s: body.update(created_wall_s=wall_s))
    (box.root / "d").mkdir()
    (box.root / "e.tmp").mkdir()
    assert [(info.name, info.error) for info in store.survey(box.root)] == [
        ("c", ""), ("a", ""), ("b", ""), ("d", "backup.json is missing"),
    ]  # fmt: skip
    assert store.survey(box.root / "nowhere") == []


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
    assert store.find(box.root, "kept").steps == {"Pong": 300}


def test_results_that_came_later_go_with_their_checkpoints(box: Box) -> None:
    run_dir = box.commits("Pong", 200)
    box.make("Pong")
    (run_dir / "results.csv").write_text("later\n")
    box.back("Pong")
    assert not (run_dir / "results.csv").exists()
    assert (box.root / "kept/programs/Pong/results.csv").read_text() == "later\n"
    assert store.restore(store.find(box.root, "b1"), box.run_dirs("Pong"), lambda: None, Task()) == {"Pong": 200}


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


def test_a_disk_that_gets_full_in_a_rollback_is_not_left_fuller(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dirs = [box.commits("Pong", 100), box.commits("Qbert", 100)]
    box.make("Pong", "Qbert")
    for run_dir in run_dirs:
        shutil.rmtree(run_dir / "checkpoints" / CKPT_100)
        commit(run_dir, 300)
    before = {path for run_dir in run_dirs for path in run_dir.rglob("*")}
    real = store.durable.create

    def full(path: Path, data: bytes, mode: int) -> None:
        if "Qbert" in path.parts and f"{CKPT_100}.tmp" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, mode)

    monkeypatch.setattr(store.durable, "create", full)
    assert refused(lambda: box.back("Pong", "Qbert")) == "the disk is full: make room, or lower [backup] keep"
    assert {path for run_dir in run_dirs for path in run_dir.rglob("*")} == before


# --- what scripts write themselves -------------------------------------------------------------------------------------------


def test_a_file_that_was_written_just_now_may_still_be_written(box: Box) -> None:
    work = box.script("odd", "*", "")
    plain(work / "now", 0.0)
    assert refused(lambda: box.make("odd")) == (
        "odd: its own checkpoints cannot be copied; now: it may be cut: it was being written, and its format does not tell"
    )
    plain(work / "before")
    assert box.make("odd").programs[0].own.path == "before"


def test_a_directory_comes_back_file_by_file_with_their_times(box: Box) -> None:
    work = box.script("hf", "**/checkpoint-*", "trainer_state.json:global_step")
    trainer(work / "a", 500)
    os.utime(work / "a" / "checkpoint-500" / "trainer_state.json", ns=(10**18 + 5, 10**18 + 7))
    files = {path.name: path.stat().st_mtime_ns for path in (work / "a" / "checkpoint-500").iterdir()}
    info = box.make("hf")
    kept = info.path / "programs/hf/own/files"
    assert {path.name: path.stat().st_mtime_ns for path in kept.iterdir()} == files
    trainer(work / "a", 500 + 1)
    shutil.rmtree(work / "a" / "checkpoint-500")
    (work / "a" / ".checkpoint-500.tmp").mkdir()  # of a daemon that was killed
    (work / "a" / ".checkpoint-500.tmp" / "left").touch()
    box.back("hf")
    assert {path.name: path.stat().st_mtime_ns for path in (work / "a" / "checkpoint-500").iterdir()} == files
    assert {path.name for path in (work / "a").iterdir()} == {"checkpoint-500", ".checkpoint-501.bad"}


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
    assert store.restore(store.find(box.root, "b1"), box.run_dirs("mine"), lambda: None, Task(), box.places) == {"mine": 1}
    assert {path.name for path in work.iterdir()} == {"1.pt", "kept"}
    assert (work / "kept" / "x").exists()


def test_a_script_that_has_no_checkpoint_yet_has_nothing_to_back_up(box: Box) -> None:
    box.script("mine")
    with pytest.raises(NothingToBackUp, match=r"^none of the programs has a complete checkpoint yet$"):
        box.make("mine")
    box.commits("Pong", 1)
    info = box.make("mine", "Pong")
    assert (info.steps, info.missed) == ({"Pong": 1}, {})
