"""Backups of checkpoints that scripts write themselves, and the way back: any layout, and nothing of a script's is removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from checkpoints_kit import commit
from scripts_kit import ScriptsBox
from test_own_checkpoints import plain
from test_whole_files import saved, trainer

from supervisor.adapters.copies import own, store
from supervisor.adapters.copies.store import BackupError, NothingToBackUp, Task
from supervisor.adapters.process import own_checkpoints
from supervisor.adapters.process.own_checkpoints import Place


@pytest.fixture
def box(tmp_path: Path) -> ScriptsBox:
    return ScriptsBox(tmp_path)


def names(work: Path) -> set[str]:
    return {str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()}


def test_a_backup_has_the_newest_whole_one_and_a_rollback_sets_aside_what_is_newer(box: ScriptsBox) -> None:
    work = box.script("mine", "runs/*.pt", r"step=(\d+)")
    (work / "runs").mkdir()
    for step in (100, 200):
        saved(work / "runs" / f"step={step}.pt")
    (work / "runs" / "step=300.pt").write_bytes(b"PK\x03\x04 torn")
    then = (work / "runs" / "step=200.pt").read_bytes()
    info = box.make()
    (only,) = info.programs
    assert (only.program, only.env_steps, only.checkpoints, info.missed) == ("mine", 200, (), {})
    assert info.method in {"copy", "reflink"}, "a link would change with the file"
    assert info.size_bytes == len(then)
    assert store.verify(store.read(info.path)) == ""
    saved(work / "runs" / "step=200.pt", 999)  # overwritten in place
    saved(work / "runs" / "step=400.pt")
    assert box.back() == {"mine": 200}
    assert (work / "runs" / "step=200.pt").read_bytes() == then
    kept = {f"runs/.step={step}.pt.bad" for step in (200, 300, 400)}
    assert names(work) == {"runs/step=100.pt", "runs/step=200.pt"} | kept
    assert [each.env_steps for each in store.read(box.root / "kept").programs] == [400]
    assert box.back() == {"mine": 200}
    assert names(work) == {"runs/step=100.pt", "runs/step=200.pt"} | kept, "asked again there is nothing to do"


def test_directories_in_any_depth_and_by_time_alone(box: ScriptsBox) -> None:
    work = box.script("hf", "out/**/checkpoint-*", "trainer_state.json:global_step")
    trainer(work / "out" / "a", 500)
    other = box.script("odd", "*", "")
    plain(other / "line\nbreak", 900.0)
    info = box.make()
    assert {each.program: each.env_steps for each in info.programs} == {"hf": 500, "odd": None}
    assert "a/checkpoint-500" in {each.own.path for each in info.programs if each.own}
    written = (other / "line\nbreak").stat().st_mtime_ns
    trainer(work / "out" / "a", 1000)
    plain(other / "newer", 100.0)
    shutil.rmtree(work / "out" / "a" / "checkpoint-500")
    (other / "line\nbreak").unlink()
    assert box.back() == {"hf": 500, "odd": None}
    assert (work / "out" / "a" / ".checkpoint-1000.bad" / "trainer_state.json").exists()
    assert own_checkpoints.Scanner().scan(
        box.places["hf"], own_checkpoints.Budget(), now_wall_s=0.0, running=False
    ).choice.newest.step == 500  # fmt: skip
    assert (other / "line\nbreak").stat().st_mtime_ns == written, "else it would not be the newest but one any more"
    assert names(other) == {"line\nbreak", ".newer.bad"}


def test_directories_that_are_gone_are_made_again(box: ScriptsBox) -> None:
    work = box.script("mine", "**/*.pt")
    (work / "a" / "b").mkdir(parents=True)
    saved(work / "a" / "b" / "1.pt")
    box.make()
    shutil.rmtree(work)
    assert box.back() == {"mine": 1}
    assert names(work) == {"a/b/1.pt"}


def test_one_programs_odd_directory_costs_the_others_nothing(box: ScriptsBox, monkeypatch: pytest.MonkeyPatch) -> None:
    good, torn, empty, full = (box.script(name) for name in ("good", "torn", "empty", "full"))
    saved(good / "1.pt")
    (torn / "1.pt").touch()
    (full / "a.pt").touch()
    (full / "b.pt").touch()
    (empty / "loop.pt").symlink_to(empty)
    commit(box.run_dirs("ours")["ours"], 70)
    real = own_checkpoints._find

    def find(place: Place, budget: own_checkpoints.Budget) -> object:
        budget.entries = 1 if place.base == str(full) else budget.entries
        return real(place, budget)

    monkeypatch.setattr(own_checkpoints, "_find", find)
    info = box.make("good", "torn", "empty", "full", "ours")
    assert {each.program: each.env_steps for each in info.programs} == {"good": 1, "ours": 70}
    assert info.missed == {
        "torn": "its own checkpoints cannot be copied; 1.pt: it is empty",
        "full": "its own checkpoints cannot be copied; its directory has more than 300,000 entries: use a narrower checkpoint_glob",
    }
    with pytest.raises(NothingToBackUp, match="torn: its own checkpoints cannot be copied"):
        box.make("torn", "empty", name="b2")


def test_a_program_with_checkpoints_of_both_kinds(box: ScriptsBox) -> None:
    work = box.script("both")
    saved(work / "1.pt")
    commit(box.run_dirs()["both"], 70)
    (only,) = box.make().programs
    assert (only.env_steps, only.own.step) == (70, 1)
    saved(work / "2.pt")
    commit(box.run_dirs()["both"], 80)
    assert box.back() == {"both": 70}
    assert names(work) == {"1.pt", ".2.pt.bad"}


def test_a_file_that_changes_while_it_is_copied_is_copied_again(box: ScriptsBox, monkeypatch: pytest.MonkeyPatch) -> None:
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
    (only,) = box.make().programs
    assert only.env_steps == 1
    assert store.verify(store.read(box.root / "b1")) == ""
    saved(work / "3.pt")

    def change(*args: object, **more: object) -> object:
        done = real(*args, **more)  # type: ignore[arg-type]
        saved(work / "3.pt", (work / "3.pt").stat().st_size)
        return done

    monkeypatch.setattr(own, "copy_file", change)
    with pytest.raises(NothingToBackUp) as told:
        box.make("mine", name="b2")
    changed = "3.pt changed while it was copied (its files differ from those before the copy)"
    assert str(told.value) == f"mine: its own checkpoints cannot be copied; {changed}"


def test_a_damaged_copy_is_refused_and_nothing_changes(box: ScriptsBox) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    info = box.make()
    file = info.path / "programs" / "mine" / "own" / "files" / "checkpoint"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    saved(work / "2.pt")
    with pytest.raises(BackupError, match=r"mine, 1\.pt, checkpoint: it does not match its digest"):
        box.back()
    file.unlink()
    with pytest.raises(BackupError, match="No such file"):
        box.back()
    assert names(work) == {"1.pt", "2.pt"}


def test_without_the_setting_nobody_knows_where_it_belongs(box: ScriptsBox) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    box.make()
    box.places.clear()
    with pytest.raises(
        BackupError, match=r"^mine must have a checkpoint_glob again, which says where its checkpoints were$"
    ):
        box.back("mine")
    assert not (box.root / "kept").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("path", "../out.pt"), ("path", "/etc/passwd"), ("path", "a/../../b"), ("path", ""), ("path", 7),
        ("files", [["../../x", 1, "", 0]]), ("files", [["/etc/passwd", 1, "", 0]]), ("files", []), ("files", [["a"]]),
        ("files", [["", 1, "", 0], ["a", 1, "", 0]]),
    ],
)  # fmt: skip
def test_a_list_that_leads_out_of_its_directory_is_refused(box: ScriptsBox, key: str, value: object) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    info = box.make()
    file = info.path / "backup.json"
    body = json.loads(file.read_text())
    del body["self_digest"]
    body["programs"]["mine"]["own"][key] = value
    body["self_digest"] = store._digest(body)
    file.write_text(json.dumps(body))
    assert store.read(info.path).error == "its list is damaged"
    if key == "files" and value in ([], [["", 1, "", 0], ["a", 1, "", 0]]):
        with pytest.raises(ValueError, match=r"^its list of files is empty or invalid$"):
            own.OwnSaved.from_json(body["programs"]["mine"]["own"])
    with pytest.raises(BackupError, match=r"^its list is damaged$"):
        box.back()
    assert names(box.directory / "mine") == {"1.pt"}


def test_a_link_in_its_way_is_not_followed(box: ScriptsBox) -> None:
    work = box.script("mine", "*/*.pt")
    (work / "a").mkdir()
    saved(work / "a" / "1.pt")
    box.make()
    shutil.rmtree(work / "a")
    out = box.directory / "out"
    out.mkdir()
    (work / "a").symlink_to(out)
    with pytest.raises(BackupError, match=r"Not a directory|symbolic"):
        store.restore(store.find(box.root, "b1"), box.run_dirs(), lambda: None, Task(), box.places)
    assert list(out.iterdir()) == []


def test_a_copy_on_another_box_keeps_them_as_a_backup(box: ScriptsBox) -> None:
    work = box.script("mine")
    saved(work / "1.pt")
    commit(box.run_dirs("ours")["ours"], 70)
    info = box.make("mine", "ours", name="copy")
    made = store.only_own(info, box.root, "copy-7")
    assert made is not None
    kept = store.read(box.root / "copy-7")
    assert (kept, kept.label, kept.missed) == (made, "from the copy", {})
    assert [(each.program, each.checkpoints, each.results) for each in kept.programs] == [("mine", (), None)]
    (work / "1.pt").unlink()
    assert box.back("mine", name="copy-7") == {"mine": 1}
    assert names(work) == {"1.pt"}
    commit(box.run_dirs("other")["other"], 70)
    bare = box.make("other", name="bare")
    assert store.only_own(bare, box.root, "none") is None
    assert os.listdir(box.root / "copy" / "programs" / "mine") == []
