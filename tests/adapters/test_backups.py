"""Backups on real files: verified, whole or not at all, and the way back leaves the old or the new whatever dies in it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints_kit import OTHER, TOKEN, commit
from copies_kit import Box
from killing import killed
from leaks import open_files
from test_own_checkpoints import plain
from test_whole_files import saved, trainer
from tools import MEMORY_DIR

from supervisor.adapters.copies import own
from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.store import BackupError, PartlyRolledBack
from supervisor.adapters.copies.thread import Interrupted, Task
from supervisor.adapters.process import checkpoints

CKPT_100, CKPT_200, CKPT_300 = (f"ckpt-{step}.{TOKEN}" for step in (100, 200, 300))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # a link leads to the backup too
    path.write_bytes(data)


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


def steps(box: Box, name: str = "Pong") -> list[int]:
    return [info.env_steps for info in checkpoints.survey(box.run_dir(name))]


@pytest.fixture
def pong(box: Box) -> Path:
    """Two checkpoints and results."""
    run_dir = box.commit("Pong", 100, 200)
    (run_dir / "results.csv").write_text("then\n")
    return run_dir


def later(pong: Path) -> None:
    """It trains on: another two checkpoints, another result."""
    for step in (300, 400):
        commit(pong, step)
    (pong / "results.csv").write_text("later\n")


# --- making ----------------------------------------------------------------------------------------------------------------


def test_a_backup_has_the_newest_checkpoint_of_each_and_says_so(box, pong):
    qbert = box.run_dir("Qbert")
    commit(qbert, 7, OTHER)
    (qbert / "results.csv").symlink_to("/etc/hostname")
    zaxxon = box.commit("Zaxxon", 7)
    (zaxxon / "results.csv").touch()
    os.truncate(zaxxon / "results.csv", 17 << 20)
    info = box.make("Pong", "Qbert", "Zaxxon", "Never")
    assert info.steps == {"Pong": 200, "Qbert": 7, "Zaxxon": 7}
    assert [each.results is None for each in info.programs] == [False, True, True], "no link is followed, nor too much kept"
    assert info.method in {own.LINK, own.REFLINK}
    (found,) = backups.survey(box.root)
    assert found == info
    assert backups.verify(found) == ""
    kept = box.root / "b1" / "programs" / "Pong"
    assert (kept / "results.csv").read_text() == "then\n"
    assert {item.name for item in kept.iterdir()} == {f"ckpt-200.{TOKEN}", "results.csv"}
    assert box.make("Pong") == info, "asked again after a crash, it is there already"


def test_a_flipped_bit_in_the_newest_makes_it_the_one_before(box, pong):
    flip(pong / "checkpoints" / f"ckpt-200.{TOKEN}" / "tensors.safetensors")
    assert box.make("Pong").steps == {"Pong": 100}
    flip(pong / "checkpoints" / f"ckpt-100.{TOKEN}" / "state.json")
    with pytest.raises(BackupError, match=r"Pong: none of its checkpoints can be copied; ckpt-200.*does not match"):
        box.make("Pong", name="b2")
    assert sorted(item.name for item in box.root.iterdir()) == ["b1"]


def test_what_is_pruned_while_it_is_copied_is_copied_all_the_same_or_the_next_one_taken(box, pong, monkeypatch):
    opened, pruned = checkpoints.opened, []

    def and_prune(path, name):
        if name != "manifest.json" and not pruned:
            pruned.append(path)
            checkpoints.set_aside(path)
        return opened(path, name)

    monkeypatch.setattr(checkpoints, "opened", and_prune)
    assert box.make("Pong").steps == {"Pong": 100}
    monkeypatch.setattr(checkpoints, "opened", lambda *_: (_ for _ in ()).throw(FileNotFoundError(errno.ENOENT, "gone")))
    with pytest.raises(BackupError) as told:
        box.make("Pong", name="b2")
    assert str(told.value) == f"Pong: none of its checkpoints can be copied; ckpt-100.{TOKEN}: it was pruned"


def test_it_says_how_far_it_is_and_stops_when_the_daemon_ends(box, pong):
    task = Task()
    box.make("Pong", task=task)
    assert (task.program, task.done_bytes, task.total_bytes) == ("Pong", 1011, 1011)
    over = threading.Event()
    over.set()
    with pytest.raises(Interrupted):
        box.make("Pong", name="b2", task=Task(over))
    (made,) = backups.survey(box.root)
    with pytest.raises(Interrupted):
        backups.verify(made, (), Task(over))
    (box.root / "old.tmp" / "programs").mkdir(parents=True)
    assert box.make("Pong", name="b2").steps == {"Pong": 200}, "the next daemon begins anew"
    assert {item.name for item in box.root.iterdir()} == {"b1", "b2"}


# --- looking -----------------------------------------------------------------------------------------------------------------


def test_damage_is_found_and_named(box, pong):
    info = box.make("Pong")
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
    (found,) = backups.survey(box.root)
    assert found.error == "its list does not match its own digest"
    assert backups.verify(found) == found.error
    with pytest.raises(BackupError, match=r"^a backup of that name exists, but its list does not match its own digest$"):
        box.make("Pong")


def listed(**entry: object) -> dict[str, object]:
    return {"programs": {"P": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": None} | entry}}


def own_list(path: object = "1.pt", *files: object) -> dict[str, object]:
    return listed(own={"path": path, "step": 1, "files": files or (["", 1, "", 0],)})


DAMAGED, INVALID = "its list is damaged", "its list names an invalid program or checkpoint"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 2}, "it was made by another extralife (version 2)"),
        ({"programs": {"../x": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": None}}}, DAMAGED),
        ({"programs": {".x": {"checkpoints": [["ckpt-1.ff", 1, 1]], "results": None}}}, INVALID),
        (listed(checkpoints=[["../../x", 1, 1]]), INVALID), (listed(checkpoints=[["ckpt-1.ff", 1, 1], ["x", 1, 1]]), INVALID),
        (listed(checkpoints=[]), INVALID), (listed(results=["x", 5]), DAMAGED), (listed(results=[]), DAMAGED),
        ({"programs": {"P": 5}}, DAMAGED), ({"programs": []}, DAMAGED), ({"created_wall_s": 10**400}, DAMAGED),
        (own_list(), ""), (own_list("../out.pt"), DAMAGED), (own_list("/etc/passwd"), DAMAGED), (own_list("a/../../b"), DAMAGED),
        (own_list(""), DAMAGED), (own_list(7), DAMAGED), (own_list("1.pt", ["../../x", 1, "", 0]), DAMAGED),
        (own_list("1.pt", ["/etc/passwd", 1, "", 0]), DAMAGED), (own_list("1.pt", ["a"]), DAMAGED), (listed(own={"path": "1.pt", "step": 1, "files": []}), DAMAGED),
        (own_list("1.pt", ["", 1, "", 0], ["a", 1, "", 0]), DAMAGED),
    ],
)  # fmt: skip
def test_a_list_that_is_damaged_or_leads_elsewhere_is_not_followed(box, pong, change, error):
    """The backup's list was changed by somebody who gave it the right digest."""
    path = box.make("Pong").path
    body = json.loads((path / "backup.json").read_text()) | change
    del body["self_digest"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body["self_digest"] = hashlib.blake2b(text, digest_size=32).hexdigest()
    (path / "backup.json").write_text(json.dumps(body))
    assert backups.read(path).error == error
    with pytest.raises(BackupError, match=re.escape(error) or "^P, ckpt-1.ff: "):
        box.back("P")


# --- going back ----------------------------------------------------------------------------------------------------------------


def test_going_back_and_going_forth_again(box, pong):
    box.make("Pong")
    later(pong)
    assert box.back() == {"Pong": 200}
    assert steps(box) == [200]
    assert (pong / "results.csv").read_text() == "then\n"
    kept = backups.find(box.root, "kept")
    assert [step for _, step, _ in kept.programs[0].checkpoints] == [400, 300, 200, 100]
    assert backups.verify(kept) == ""
    commit(pong, 250, OTHER)
    assert box.back("Pong", name="kept", kept="kept2") == {"Pong": 400}
    assert steps(box) == [400, 300, 200, 100]
    assert (pong / "results.csv").read_text() == "later\n"
    assert all(checkpoints.verify(info).verified for info in checkpoints.survey(pong))
    assert backups.find(box.root, "kept2").steps == {"Pong": 250}


def test_a_backup_with_a_damaged_checkpoint_of_a_worker_is_refused_and_nothing_is_touched(box, pong):
    info = box.make("Pong")
    later(pong)
    flip(info.path / "programs" / f"Pong/ckpt-200.{TOKEN}/state.json")
    before, open_before = sorted(str(path) for path in box.directory.rglob("*")), open_files()
    with pytest.raises(BackupError, match="does not match its digest"):
        box.back()
    assert sorted(str(path) for path in box.directory.rglob("*")) == before
    assert open_files() <= open_before


def test_damage_in_what_is_there_stays_as_bad_and_makes_room(box, pong):
    box.make("Pong")
    later(pong)
    (pong / "checkpoints" / f"ckpt-400.{TOKEN}" / "manifest.json").write_text("{}")
    flip(pong / "checkpoints" / f"ckpt-200.{TOKEN}" / "state.json")
    assert box.back() == {"Pong": 200}
    assert steps(box) == [200]
    assert checkpoints.newest_good(pong).env_steps == 200
    bad = {path.name for path in (pong / "checkpoints").iterdir()} - {f"ckpt-200.{TOKEN}"}
    assert bad == {f"ckpt-400.{TOKEN}.bad", f"ckpt-200.{TOKEN}.bad"}


def test_a_link_in_place_of_the_directory_is_not_followed(box, pong):
    box.make("Pong")
    (pong / "checkpoints").rename(box.directory / "elsewhere")
    (pong / "checkpoints").symlink_to(box.directory / "elsewhere")
    with pytest.raises(BackupError, match=f"^not a directory of the program's own: {pong / 'checkpoints'}$"):
        box.back()
    assert steps(box) == [200, 100]


def test_an_error_between_two_programs_says_who_got_there(box, pong, monkeypatch):
    qbert = box.run_dir("Qbert")
    commit(qbert, 7)
    box.make("Pong", "Qbert")
    later(pong)
    commit(qbert, 8)
    sync = backups.sync_directory

    def failing(directory):
        if directory == qbert / "checkpoints":
            raise OSError(errno.EIO, "Input/output error")
        sync(directory)

    monkeypatch.setattr(backups, "sync_directory", failing)
    with pytest.raises(PartlyRolledBack, match=r"^Qbert: Input/output error$") as told:
        box.back()
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
        box = Box(in_memory / str(at))
        pong = box.commit("Pong", 100, 200, size=10)
        box.make("Pong")
        box.commit("Pong", 300, 400, size=10)
        name, old, new = "b1", 400, 200
        if how == "back to what was pruned":
            for path in [*pong.glob("checkpoints/ckpt-100.*"), *pong.glob("checkpoints/ckpt-200.*")]:
                shutil.rmtree(path)
        if how == "forth":
            box.back(kept="forth")
            name, old, new = "forth", 200, 400
        code = killed(lambda box=box, name=name: box.back(name=name), at)
        good = checkpoints.newest_good(pong)
        newest = None if good is None else good.env_steps
        assert newest in {old, new}, f"killed before call {at}, a worker would find step {newest}"
        ends.add((code, newest))
        assert box.back(name=name) == {"Pong": new}
        assert checkpoints.newest_good(pong).env_steps == new
        assert backups.find(box.root, "kept").steps == {"Pong": old}, "what was there is kept, whenever it died"
        assert not list(box.directory.rglob("*.tmp"))
    assert ends == {(-9, old), (-9, new), (0, new)}, (
        "the calls at which it was killed lie on both sides of the one that counts"
    )


# --- removing ------------------------------------------------------------------------------------------------------------------


def test_a_removed_backup_leaves_the_checkpoint_where_it_was(box, pong):
    box.make("Pong")
    backups.remove(box.root, "b1")
    assert list(box.root.iterdir()) == []
    assert checkpoints.newest_good(pong).env_steps == 200


def modes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): oct(path.stat().st_mode & 0o777) for path in [directory, *directory.rglob("*")]
    }


def refused(call: Callable[[], object]) -> str:
    with pytest.raises((BackupError, PartlyRolledBack)) as told:
        call()
    return str(told.value)


@pytest.mark.parametrize("shared", [True, False])
def test_files_of_some_megabytes_are_copied_verified_and_restored_whole(
    box: Box, shared: bool, request: pytest.FixtureRequest
) -> None:
    if not shared:
        request.getfixturevalue("copying")
    run_dir = box.commit("Pong", 100, size=2_500_000)
    work = box.script("hf", "**/checkpoint-*", "trainer_state.json:global_step")
    inside = trainer(work / "a" / "b", 500)
    (inside / "shards").mkdir()
    (inside / "shards" / "more.bin").write_bytes(os.urandom(2_500_000))
    before = {path: path.read_bytes() for path in inside.rglob("*") if path.is_file()}
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
        (box.run_dir(name) / "checkpoints" / CKPT_100).mkdir(parents=True)
    why = f"none of its checkpoints is complete; {CKPT_100}: manifest.json is missing"
    assert refused(lambda: box.make("Pong", "Qbert", "Never")) == f"Pong: {why}; Qbert: {why}"
    box.commit("Zaxxon", 7)
    info = box.make("Pong", "Zaxxon", "..")
    assert info.missed == {"Pong": why, "..": "'..' is not a valid name of a file below its directory"}
    assert info.steps == {"Zaxxon": 7}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "the disk is full: make room, or lower [backup] keep"), (errno.EROFS, "Read-only file system: /there"),
        (errno.EIO, ""),
    ],
)  # fmt: skip
def test_a_full_disk_fails_the_whole_backup_and_a_bad_file_only_its_program(
    box: Box, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    box.commit("Pong", 100)
    box.commit("Qbert", 7)
    opened = checkpoints.opened

    def refuses(path: Path, name: str) -> int:
        if "Pong" in path.parts and name != "manifest.json":
            raise OSError(code, os.strerror(code), "/there")
        return opened(path, name)

    monkeypatch.setattr(checkpoints, "opened", refuses)
    if told:
        assert refused(lambda: box.make("Pong", "Qbert")) == told
        assert list(box.root.iterdir()) == []
    else:
        info = box.make("Pong", "Qbert")
        assert (info.steps, [*info.missed]) == ({"Qbert": 7}, ["Pong"])


# --- looking -----------------------------------------------------------------------------------------------------------------


def test_backups_are_listed_by_their_time_then_by_their_name(box: Box) -> None:
    box.commit("Pong", 100)
    for name, wall_s in (("b", 5.0), ("c", 7.0), ("a", 7.0)):
        box.make("Pong", name=name, wall_s=wall_s)
    (box.root / "d").mkdir()
    (box.root / "e.tmp").mkdir()
    assert [(info.name, info.error) for info in backups.survey(box.root)] == [
        ("c", ""), ("a", ""), ("b", ""), ("d", "backup.json is missing"),
    ]  # fmt: skip
    assert backups.survey(box.root / "nowhere") == []


# --- going back ----------------------------------------------------------------------------------------------------------------


def test_a_rollback_leaves_the_wanted_files_and_nothing_beside_them(box: Box) -> None:
    run_dir = box.commit("Pong", 200)
    (run_dir / "results.csv").write_text("then\n")
    box.make("Pong")
    box.commit("Pong", 300)
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
    results = box.commit("Pong", 200) / "results.csv"
    box.make("Pong")
    results.write_text("later\n")
    box.back("Pong")
    assert not results.exists()
    assert (box.root / "kept/programs/Pong/results.csv").read_text() == "later\n"


# --- what scripts write themselves -------------------------------------------------------------------------------------------


def test_a_file_that_was_written_just_now_may_still_be_written(box: Box) -> None:
    work = box.script("odd", "*", "")
    with plain(work / "now", 0.0).open("ab"):
        assert refused(lambda: box.make("odd")).startswith("odd: its own checkpoints cannot be copied; now: it may be cut")
    plain(work / "now", 0.0)
    assert box.make("odd").programs[0].own.path == "now", "it is looked at again half a second later"


# --- what scripts write themselves: any layout, and nothing of a script is removed --------------------------------------------


def names(work: Path) -> set[str]:
    return {str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()}


def test_a_rollback_sets_aside_what_a_script_saved_later_and_keeps_its_newest_one_as_a_backup(box: Box) -> None:
    work = box.script("mine", "*.pt", r"step=(\d+)")
    size = saved(work / "step=200.pt").stat().st_size
    info = box.make()
    (only,) = info.programs
    assert (only.program, only.env_steps, only.checkpoints, info.missed) == ("mine", 200, (), {})
    assert info.size_bytes == size
    for step in (300, 400):
        saved(work / f"step={step}.pt")
    assert box.back() == {"mine": 200}
    assert names(work) == {"step=200.pt", ".step=300.pt.bad", ".step=400.pt.bad"}
    assert [each.env_steps for each in backups.read(box.root / "kept").programs] == [400]


def test_a_file_that_changes_while_it_is_copied_is_copied_again(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    saved(work / "2.pt")
    real, left = own.copy_file, ["change", "vanish"]

    def copy(*args: object, **more: object) -> object:
        done = real(*args, **more)  # type: ignore[arg-type]
        what = left.pop(0) if left else ""
        if what == "change":
            saved(work / "2.pt", 500)
        elif what == "vanish":
            (work / "2.pt").unlink()
        return done

    monkeypatch.setattr(own, "copy_file", copy)
    assert box.make().steps == {"mine": 1}
    assert backups.verify(backups.read(box.root / "b1")) == ""


def test_without_the_setting_nobody_knows_where_it_belongs(box: Box) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    box.make()
    box.places.clear()
    with pytest.raises(
        BackupError, match=r"^mine must have a checkpoint_glob again, which says where its checkpoints were$"
    ):
        box.back("mine")
    assert not (box.root / "kept").exists()


def test_a_copy_on_another_box_keeps_them_as_a_backup(box: Box) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    commit(box.run_dir("ours"), 70)
    info = box.make("mine", "ours", name="copy")
    made = backups.only_own(info, box.root, "copy-7")
    assert made is not None
    kept = backups.read(box.root / "copy-7")
    assert (kept, kept.label, kept.missed) == (made, "from the copy", {})
    assert [(each.program, each.checkpoints, each.results) for each in kept.programs] == [("mine", (), None)]
    again = box.make("mine", "ours", name="again")  # a take-over that stopped halfway is repeated
    assert backups.only_own(again, box.root, "copy-7") is not None
    (work / "1.pt").unlink()
    assert box.back("mine", name="copy-7") == {"mine": 1}
    assert names(work) == {"1.pt"}
    commit(box.run_dir("other"), 70)
    bare = box.make("other", name="bare")
    assert backups.only_own(bare, box.root, "none") is None
    assert os.listdir(box.root / "copy" / "programs" / "mine") == []
