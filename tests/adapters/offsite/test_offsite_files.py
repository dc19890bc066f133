"""The files of a copy, one by one: what is collected and how, and where each is put when the copy comes back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoints_kit import TOKEN
from copies_kit import Box
from structlog.testing import capture_logs
from test_offsite_leases import Repository, of_lease
from test_own_checkpoints import plain, spec

from supervisor.adapters.copies.put_back import put_back
from supervisor.adapters.copies.thread import Interrupted, Task
from supervisor.adapters.process.own_checkpoints import Place, place_of
from supervisor.features.offsite.adapters import hardware, restoring, staging
from supervisor.features.offsite.adapters.restic import ResticSnapshot
from supervisor.features.offsite.adapters.restoring import NotRestored, Restored
from supervisor.features.offsite.messages import Origin
from supervisor.model.settings import Paths

WALL_S = 1_800_000_000.5
CKPT = f"ckpt-100.{TOKEN}"
OF_CKPT = {f"{CKPT}/{name}" for name in ("manifest.json", "state.json", "tensors.safetensors")}


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def database(path: Path, word: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE fact (word)")
        db.execute("INSERT INTO fact VALUES (?)", (word,))
        db.commit()


def words(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return [word for (word,) in db.execute("SELECT word FROM fact")]


class FullBox(Box):
    """A state directory with everything that one can have."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, Pong=100)
        self.pong = self.run_dir("Pong")
        (self.pong / "results.csv").write_text("results")
        database(Path(self.paths.journal), "fact")
        database(Path(self.paths.recording), "curve")
        for name in ("mine/deep/model.pt", "events.1", "replay/rows", "replay/more/rows", "attempts/1/exit.json", "lock", "fence",
                     "backups/x", "stdout.log", "stdout.log.1", "stderr.log", "mine/stdout.log", "mine/half.tmp", "mine/x.bad",
                     f"mine/ckpt-5.{TOKEN}/x"):  # fmt: skip
            (self.pong / name).parent.mkdir(parents=True, exist_ok=True)
            (self.pong / name).write_text(name)
        (self.pong / "mine" / "away").symlink_to("/etc/hostname")
        (self.pong / "replay" / "away").symlink_to("/etc/hostname")
        (self.state / "journal-archive").mkdir()
        (self.state / "journal-archive" / "1.gz").write_text("older")
        (self.state / "alive").write_text("alive")
        (self.state / "reboot_alerts.log").write_text("alerts")
        (directory / "extralife.toml").write_text("[program.Pong]\n")

    def collect(self, *programs: str, with_replay: bool = False, task: Task | None = None) -> staging.Collected:
        return staging.collect(
            self.paths, programs or ("Pong", "Never"), {"box": "ada", "generation": 4}, wall_s=WALL_S, with_replay=with_replay,
            task=task or Task(), places=self.places,
        )  # fmt: skip


@pytest.fixture
def box(tmp_path: Path, no_umask: None) -> FullBox:
    return FullBox(tmp_path)


ALL = {
    "copy.json", "backup.json", "journal.sqlite", "recording.sqlite", "journal-archive/1.gz", "alive", "reboot_alerts.log",
    "config/extralife.toml", "programs/Pong/results.csv", "files/Pong/mine/deep/model.pt", "files/Pong/events.1",
    "files/Pong/mine/stdout.log", *(f"programs/Pong/{name}" for name in OF_CKPT),
}  # fmt: skip


# --- collecting ----------------------------------------------------------------------------------------------------------


def test_each_file_of_a_copy(box: FullBox) -> None:
    task = Task()
    with contextlib.closing(sqlite3.connect(box.paths.journal)) as live:
        live.execute("INSERT INTO fact VALUES ('not committed')")
        found = box.collect(task=task)
    assert (task.done_bytes, task.total_bytes) == (1011, 1011), "of checkpoints"
    directory = box.state / "offsite" / "work" / "copy"
    assert found == staging.Collected(directory, {"Pong": 100}, {})
    assert files(directory) == ALL
    about = {"version": 1, "wall_s": WALL_S, "programs": {"Pong": 100}, "missed": {}, "box": "ada", "generation": 4}
    assert (directory / "copy.json").read_text() == json.dumps(about, indent=1, sort_keys=True), "people read it too"
    assert (words(directory / "journal.sqlite"), words(directory / "recording.sqlite")) == (["fact"], ["curve"])
    texts = {"journal-archive/1.gz": "older", "alive": "alive", "reboot_alerts.log": "alerts",
             "config/extralife.toml": "[program.Pong]\n", "files/Pong/mine/deep/model.pt": "mine/deep/model.pt"}  # fmt: skip
    assert {name: (directory / name).read_text() for name in texts} == texts
    for name, source in (
        ("files/Pong/events.1", box.pong / "events.1"),
        ("journal-archive/1.gz", box.state / "journal-archive/1.gz"),
    ):
        assert (directory / name).samefile(source), "it takes no space"
    assert files(directory.parent) == {f"copy/{name}" for name in ALL}
    modes = {name: mode(directory / name) for name in ("journal.sqlite", "recording.sqlite", "copy.json", "alive")}
    assert modes == dict.fromkeys(modes, "0o600")
    assert (mode(directory.parent), mode(directory / "journal-archive")) == ("0o700", "0o700")
    assert (mode(directory / "files/Pong"), mode(directory / "files/Pong/mine/deep")) == ("0o755", "0o755")
    info = restoring._verified(directory)
    assert info is not None
    assert (info.cause, info.label, info.created_wall_s) == ("offsite", "", WALL_S)
    staging.clear(box.paths)
    assert list(directory.parent.iterdir()) == []
    staging.clear(box.paths)


def test_a_replay_is_part_of_a_copy_if_it_is_wanted(box: FullBox) -> None:
    directory = box.collect(with_replay=True).directory
    assert files(directory) == ALL | {"replay/Pong/rows"}
    assert (mode(directory / "replay/Pong"), (directory / "replay/Pong/rows").read_text()) == ("0o700", "replay/rows")


def test_what_a_box_does_not_have_is_not_in_its_copy(box: FullBox) -> None:
    for path in (box.state / "recording.sqlite", box.state / "alive", box.state / "reboot_alerts.log"):
        path.unlink()
    shutil.rmtree(box.state / "journal-archive")
    Path(str(box.paths.config_file)).unlink()
    left = {"recording.sqlite", "alive", "reboot_alerts.log", "journal-archive/1.gz", "config/extralife.toml"}
    assert files(box.collect().directory) == ALL - left
    box.paths = Paths(box.paths.state_dir, box.paths.runtime_dir)
    assert not (box.collect().directory / "config").exists()


def test_a_config_file_may_be_a_link_as_in_a_directory_of_settings(box: FullBox, tmp_path: Path) -> None:
    config = Path(str(box.paths.config_file))
    config.rename(tmp_path / "kept elsewhere.toml")
    config.symlink_to("kept elsewhere.toml")
    directory = box.collect().directory
    assert (directory / "config/extralife.toml").read_text() == "[program.Pong]\n"
    assert not (directory / "config/extralife.toml").is_symlink()


def test_curves_that_cannot_be_read_cost_no_training_and_a_journal_does(box: FullBox) -> None:
    Path(box.paths.recording).write_bytes(b"x" * 5000)
    assert files(box.collect().directory) - {"recording.sqlite"} == ALL - {"recording.sqlite"}
    Path(box.paths.journal).write_bytes(b"x" * 5000)
    with pytest.raises(sqlite3.DatabaseError):
        box.collect()


def test_without_a_checkpoint_the_rest_is_copied(box: FullBox) -> None:
    shutil.rmtree(box.pong / "checkpoints")
    found = box.collect()
    assert (found.steps, found.missed) == ({}, {})
    assert files(found.directory) == {name for name in ALL if not name.startswith(("programs/", "backup.json"))}
    assert mode(found.directory) == "0o700"


def test_checkpoints_that_cannot_be_copied_are_told(box: FullBox) -> None:
    (box.pong / "checkpoints" / CKPT / "state.json").unlink()
    why = f"none of its checkpoints can be copied; {CKPT}: state.json is missing"
    found = box.collect()
    assert (found.steps, found.missed) == ({}, {"every program": f"Pong: {why}"})
    assert json.loads((found.directory / "copy.json").read_text())["missed"] == found.missed
    box.commit("Qbert", 7)
    found = box.collect("Pong", "Qbert")
    assert (found.steps, found.missed) == ({"Qbert": 7}, {"Pong": why})


def test_what_cannot_be_linked_is_copied(box: FullBox, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_args: object, **_more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no)
    directory = box.collect(with_replay=True).directory
    assert files(directory) == ALL | {"replay/Pong/rows"}
    assert (directory / "files/Pong/events.1").read_text() == "events.1"
    assert not (directory / "files/Pong/events.1").samefile(box.pong / "events.1")


def test_files_that_may_not_be_read_cost_their_program_nothing_else_and_the_others_nothing(
    box: FullBox, unprivileged: None
) -> None:
    (box.pong / "mine" / "deep").chmod(0)
    (box.pong / "events.1").chmod(0)
    found = box.collect()
    (box.pong / "mine" / "deep").chmod(0o700)
    assert found.missed == {"Pong": "events.1: Permission denied (and 1 more)"}
    assert files(found.directory) == ALL - {"files/Pong/events.1", "files/Pong/mine/deep/model.pt"}
    assert json.loads((found.directory / "copy.json").read_text())["missed"] == found.missed


@pytest.fixture
def unprivileged(box: FullBox, tmp_path: Path) -> Iterator[None]:
    """Root may read all files, so the files and this process become another user's."""
    if os.geteuid() != 0:
        yield
        return
    for path in (tmp_path, *tmp_path.parents):
        if path == Path(tempfile.gettempdir()):
            break
        path.chmod(0o755)
    for path in tmp_path.rglob("*"):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_is_rotated_away_meanwhile_is_left_out(box: FullBox, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def rotates(source: str | Path, target: Path, **more: object) -> None:
        if Path(source).name == "events.1":
            Path(source).unlink()
        link(source, target, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", rotates)
    assert files(box.collect().directory) == ALL - {"files/Pong/events.1"}


@pytest.mark.parametrize("with_replay", [True, False])
def test_collecting_stops_when_the_daemon_ends(box: FullBox, with_replay: bool) -> None:
    shutil.rmtree(box.pong / "checkpoints")
    if not with_replay:
        shutil.rmtree(box.state / "journal-archive")
    task = Task()
    task.over.set()
    with pytest.raises(Interrupted):
        box.collect(task=task, with_replay=with_replay)


# --- the way back ----------------------------------------------------------------------------------------------------------


class Tree(Repository):
    """A repository whose one copy is a directory."""

    def __init__(self, tree: Path, *snapshots: ResticSnapshot, meanwhile: tuple[ResticSnapshot, ...] = ()) -> None:
        super().__init__(*snapshots, meanwhile=meanwhile)
        self.tree, self.read = tree, []  # type: ignore[var-annotated]

    def restore(self, snapshot: str, target: Path, include: str = "") -> None:
        self.read.append((snapshot, mode(target)))
        shutil.copytree(self.tree, target, dirs_exist_ok=True)


CHOSEN = ResticSnapshot("abc", 5.0, "the host", ("extralife", "generation=4"))


@pytest.fixture
def tree(box: FullBox, tmp_path: Path) -> Tree:
    plain(tmp_path / "work" / "step=5.pt")
    place = place_of(spec(tmp_path / "work"), "/nowhere")
    assert place is not None
    box.places = {"mine": place}
    shutil.copytree(box.collect("Pong", "mine", with_replay=True).directory, tmp_path / "tree")
    return Tree(tmp_path / "tree", of_lease("t", 4), CHOSEN)


def restore(tree: Tree, target: Path, *, take_over: bool = False, **more: object) -> Restored:
    return restoring.restore(tree, CHOSEN, target, take_over=take_over, box="bob", wall_s=7.0, **more)  # type: ignore[arg-type]


def about_of(tree: Tree, **changes: object) -> dict[str, object]:
    path = tree.tree / "copy.json"
    body = {key: value for key, value in {**json.loads(path.read_text()), **changes}.items() if value is not None}
    path.write_text(json.dumps(body))
    return body


RESTORED = {
    "journal.sqlite", "recording.sqlite", "journal-archive/1.gz", "alive", "reboot_alerts.log", "restored.toml",
    "offsite/copy.json", "offsite/lease.json", "backups/copy-1800000000/backup.json",
    "backups/copy-1800000000/programs/mine/own/files/checkpoint", "offsite/put-back/mine", "programs/Pong/results.csv",
    "programs/Pong/replay/rows",
    "programs/Pong/mine/deep/model.pt", "programs/Pong/mine/stdout.log", "programs/Pong/events.1",
    *(f"programs/Pong/checkpoints/{name}" for name in OF_CKPT),
}  # fmt: skip


def test_each_file_of_a_restored_directory(tree: Tree, tmp_path: Path) -> None:
    said: list[str] = []
    seen: list[object] = []
    new = tmp_path / "far" / "new"

    def ready(config: Path | None, about: dict[str, object]) -> None:
        seen.append((config, about, files(new) & {"journal.sqlite", "offsite/lease.json", "restored.toml", "alive"}))

    about = about_of(tree)
    made = restore(tree, new, say=said.append, ready=ready)
    assert made == Restored("abc", "ada", WALL_S, {"Pong": 100, "mine": 5}, new / "restored.toml", about, "copy-1800000000")
    assert files(new) == RESTORED
    assert (words(new / "journal.sqlite"), words(new / "recording.sqlite")) == (["fact"], ["curve"])
    assert (new / "restored.toml").read_text() == "[program.Pong]\n"
    assert json.loads((new / "offsite" / "copy.json").read_text()) == about
    assert said == ["reading copy abc of box the host", "verifying it"]
    assert seen == [(new / "restored.toml", about, {"restored.toml", "alive"})], "all but the lease and the journal"
    assert tree.read == [("abc", "0o700")]
    assert [mode(new / name) for name in (".", "offsite", "backups")] == ["0o700"] * 3
    assert (mode(new / "programs/Pong"), mode(new / "programs/Pong/mine/deep")) == ("0o755", "0o755")
    lease = json.loads((new / "offsite" / "lease.json").read_text())
    token = lease.pop("token")
    assert lease == {"generation": 0, "box": "bob", "since_s": 7.0, "place": tree.place}
    assert len(token) == 32
    assert len(tree.kept) == 2, "the box of the copy goes on"
    with pytest.raises(NotRestored) as told:
        restore(tree, new)
    assert str(told.value) == f"{new} holds a journal already; restore into an empty directory"


# --- checkpoints that scripts wrote themselves -----------------------------------------------------------------------------


@pytest.fixture
def regained(tree: Tree, tmp_path: Path) -> tuple[Paths, Place]:
    """A box with a restored state directory, on which the script's directory is empty."""
    new = tmp_path / "new"
    restore(tree, new)
    (tmp_path / "elsewhere").mkdir()
    place = place_of(spec(tmp_path / "elsewhere", "deep/step=*.pt"), str(new / "programs" / "mine"))
    assert place is not None
    return Paths(str(new), str(tmp_path / "run")), place


def test_a_script_s_checkpoint_is_put_back_once(regained: tuple[Paths, Place], tmp_path: Path) -> None:
    paths, place = regained
    put_back(paths, "mine", place)
    path = tmp_path / "elsewhere" / "deep" / "step=5.pt"
    path.unlink()
    put_back(paths, "mine", place)
    put_back(paths, "Pong", place)
    assert not path.exists()


@pytest.mark.parametrize(
    ("there", "age_s", "left"),
    [
        ("step=6.pt", 9, {"step=6.pt"}), ("step=4.pt", 0, {"step=4.pt", "step=5.pt"}),
        ("step=x.pt", 9, {"step=x.pt", "step=5.pt"}), ("step=x.pt", -9, {"step=x.pt"}),
    ],
)  # fmt: skip
def test_what_is_newer_stays_in_its_place(
    regained: tuple[Paths, Place], tmp_path: Path, there: str, age_s: int, left: set[str]
) -> None:
    paths, place = regained
    plain(tmp_path / "elsewhere" / "deep" / there)
    at_s = (tmp_path / "work" / "step=5.pt").stat().st_mtime - age_s
    (tmp_path / "elsewhere" / "deep" / there).write_bytes(b"another one")
    os.utime(tmp_path / "elsewhere" / "deep" / there, (at_s, at_s))
    put_back(paths, "mine", place)
    assert files(tmp_path / "elsewhere" / "deep") == left


def test_until_it_is_put_back_its_note_stays_and_each_copy_has_it(regained: tuple[Paths, Place], tmp_path: Path) -> None:
    paths, place = regained
    (tmp_path / "elsewhere").rmdir()
    with pytest.raises(OSError, match=r"elsewhere does not exist$"):
        put_back(paths, "mine", place)
    about = {"box": "bob", "generation": 5}
    for places in ({}, {"mine": place}):
        copied = staging.collect(
            paths, ("Pong", "mine"), about, wall_s=WALL_S, with_replay=False, task=Task(), places=places
        )
        assert copied.steps == {"Pong": 100, "mine": 5}
        tree = Tree(copied.directory, of_lease("t", 5), CHOSEN)
        assert restore(tree, tmp_path / f"third{len(places)}").own == "copy-1800000000", "each byte is verified"
    kept = Path(paths.backups) / "copy-1800000000" / "programs" / "mine" / "own" / "files" / "checkpoint"
    data = kept.read_bytes()
    kept.unlink()  # the copies are links to it
    kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    copied = staging.collect(paths, ("Pong", "mine"), about, wall_s=WALL_S, with_replay=False, task=Task())
    assert copied.steps == {"Pong": 100}, "a restore of a copy with a damaged file would be refused as a whole"
    assert copied.missed == {"mine": f"its own checkpoints cannot be copied; {kept} does not match its digest"}
    (tmp_path / "elsewhere").mkdir()
    (Path(paths.backups) / "copy-1800000000" / "backup.json").write_text("{}")
    with pytest.raises(OSError, match=r"^its list is damaged$"):
        put_back(paths, "mine", place)
    shutil.rmtree(Path(paths.backups) / "copy-1800000000")
    with pytest.raises(OSError, match=r"^there is no backup 'copy-1800000000'; `extralifectl backups` lists them$"):
        put_back(paths, "mine", place)
    assert staging.collect(paths, ("mine",), about, wall_s=WALL_S, with_replay=False, task=Task()).steps == {}


def test_a_copy_with_little_in_it_comes_back_too(tree: Tree, tmp_path: Path) -> None:
    for name in ("backup.json", "recording.sqlite", "alive", "reboot_alerts.log"):
        (tree.tree / name).unlink()
    for name in ("programs", "files", "replay", "journal-archive", "config"):
        shutil.rmtree(tree.tree / name)
    about = about_of(tree, box=None, wall_s="9")
    seen: list[object] = []
    made = restore(tree, tmp_path / "new", ready=lambda *given: seen.append(given))
    assert made == Restored("abc", "the host", 9.0, {}, None, about, "")
    assert seen == [(None, about)]
    assert files(tmp_path / "new") == {"journal.sqlite", "offsite/copy.json", "offsite/lease.json"}
    assert restore(tree, tmp_path / "other").config is None


def damage_checkpoint(tree: Tree) -> str:
    (tree.tree / "programs" / "Pong" / CKPT / "state.json").unlink()
    return f"the copy is damaged: Pong, {CKPT}: state.json is missing; choose another with --snapshot"


def damage_journal(tree: Tree) -> str:
    (tree.tree / "journal.sqlite").unlink()
    return "the journal in the copy is damaged (unable to open database file); choose another with --snapshot"


def damage_list(tree: Tree) -> str:
    (tree.tree / "copy.json").write_text('{"version": 1, "wall_s": [5]}')
    return "the copy has no list of its contents, or a damaged one; choose another with --snapshot"


def of_a_newer_version(tree: Tree) -> str:
    (tree.tree / "copy.json").write_text('{"version": 2, "wall_s": 5}')
    return "the copy was made by another extralife (version 2)"


@pytest.mark.parametrize("damage", [damage_checkpoint, damage_journal, damage_list, of_a_newer_version])
def test_a_damaged_copy_puts_nothing_into_place(tree: Tree, tmp_path: Path, damage: Callable[[Tree], str]) -> None:
    wrong = damage(tree)
    with pytest.raises(NotRestored) as told:
        restore(tree, tmp_path / "new")
    assert str(told.value) == wrong
    assert {path.name for path in (tmp_path / "new").iterdir()} == {".restoring"}


@pytest.mark.parametrize(
    ("text", "box", "wall_s", "less"),
    [
        ('{"version": 1, "wall_s": 5, "box": "ada", "hardware": {"cores": 8, "gpus": ["A"]}}', "ada", 5,
         ["2 cores instead of 8", "no GPU instead of A"]),
        ('{"version": 1, "wall_s": 5, "hardware": [1]}', None, 5, []),
        ("{", None, None, []),
    ],
)  # fmt: skip
def test_the_first_daemon_on_a_restored_directory_logs_once_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, box: str | None, wall_s: float | None, less: list[str]
) -> None:
    monkeypatch.setattr(hardware, "here", lambda: {"cores": 2, "memory_gib": 4.0, "gpus": []})
    (tmp_path / "offsite").mkdir()
    (tmp_path / "offsite" / "copy.json").write_text(text)
    with capture_logs() as told:
        restoring.log_origin(tmp_path)
        restoring.log_origin(tmp_path)
    assert told == [
        {"event": "goes_on_from_a_copy", "box": box, "copied_wall_s": wall_s, "log_level": "info"},
        *({"event": "this_box_has_less", "has": each, "than_box": box, "log_level": "warning"} for each in less),
    ]
    assert [path.name for path in (tmp_path / "offsite").iterdir()] == ["origin.json"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"version": 1, "wall_s": 5, "box": "ada", "token": "t", "at_s": 7}', Origin("ada", "t", 7.0)),
        ('{"version": 1, "wall_s": 5, "box": "ada", "token": "t"}', Origin("ada", "t", None)),  # of an earlier release
        ("{", None),
    ],
)
def test_the_copy_that_a_box_continues_is_known_for_good(tmp_path: Path, text: str, found: Origin | None) -> None:
    assert restoring.origin(tmp_path) is None
    (tmp_path / "origin.json").write_text(text)
    assert restoring.origin(tmp_path) == found
