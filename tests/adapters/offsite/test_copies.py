"""One contract for each copy of a script's checkpoints: backups, kept copies, and copies off the box in a cheap repository.

That a directory of another user is touched only as that user is held for the same three in test_another_users_links.py.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoints_kit import commit
from killing import killed
from test_offsite_files import CHOSEN, Tree, database
from test_own_checkpoints import plain, spec
from test_whole_files import saved
from tools import MEMORY_DIR

from supervisor.adapters.copies import own, store
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.copies.put_back import put_back
from supervisor.adapters.copies.store import BackupError, NothingToBackUp
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.process.checkpoints import newest_good
from supervisor.adapters.process.own_checkpoints import Budget, Place, Scanner, place_of
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters import restoring, staging
from supervisor.features.offsite.adapters.restoring import NotRestored
from supervisor.model.settings import Paths

REFUSALS = OSError, ValueError, BackupError, NotRestored
TORN = b"PK\x03\x04 begun"


class Copies:
    """A script whose checkpoints are `out/*/step=*` of its directory, and one way to copy them."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.work = directory, directory / "work"
        self.at = self.work / "out" / "a"
        self.at.mkdir(parents=True)
        self.paths = Paths(str(directory / "state"), str(directory / "run"))
        self.run_dir = Path(self.paths.run_dir("mine"))
        self.run_dir.mkdir(parents=True)
        self.place = self.place_for(self.run_dir)

    def place_for(self, run_dir: Path) -> Place:
        place = place_of(spec(self.work, "out/*/step=*"), str(run_dir))
        assert place is not None
        return place

    def take(self) -> None:
        """Make a copy. Raises one of REFUSALS."""
        raise NotImplementedError

    def newest(self) -> Path | None:
        """The directory of the newest copy that counts."""
        raise NotImplementedError

    def back(self) -> None:
        """Put the newest copy back. Raises one of REFUSALS."""
        raise NotImplementedError

    def files(self) -> dict[str, bytes]:
        """What the newest copy contains of the script."""
        newest = self.newest()
        return {} if newest is None else contents(newest / own.FILES)


class Backups(Copies):
    def take(self, name: str = "", **more: bool) -> None:
        store.make(
            Path(self.paths.backups), name or str(time.time_ns()), {"mine": self.run_dir}, label="", cause="operator",
            wall_s=time.time(), task=Task(), places={"mine": self.place}, **more,
        )  # fmt: skip

    def _whole(self) -> Iterator[store.BackupInfo]:
        return (info for info in store.survey(Path(self.paths.backups)) if not info.error and info.name != "before")

    def newest(self) -> Path | None:
        return next((info.path / "programs" / "mine" for info in self._whole()), None)

    def back(self) -> None:
        def keep() -> store.BackupInfo | None:
            try:
                self.take("before", every=True)
            except NothingToBackUp:
                return None
            return store.find(Path(self.paths.backups), "before")

        store.restore(next(self._whole()), {"mine": self.run_dir}, keep, Task(), {"mine": self.place})


class Kept(Copies):
    def take(self) -> None:
        scanner = Scanner()
        newest = scanner.scan(self.place, Budget(), now_wall_s=time.time(), life=None).choice.newest
        if newest is None:
            raise FileNotFoundError(self.place.base)
        assert not KeptCopies().keep(self.place, newest, scanner.known[newest.path].files, replaced=False)

    def newest(self) -> Path | None:
        kept = KeptCopies().of(self.place)
        return None if kept is None else Path(kept.place.removesuffix(own.FILES))

    def back(self) -> None:
        KeptCopies().put_back(self.place)


class OffTheBox(Copies):
    """A repository whose copies are directories, and the next box: a state directory that was restored from the newest."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.off = directory / "off"
        self.off.mkdir()
        database(Path(self.paths.journal), "fact")
        commit(Path(self.paths.run_dir("Pong")), 70)

    def take(self) -> None:
        found = staging.collect(
            self.paths, ("mine", "Pong"), {"box": "ada", "generation": 1}, wall_s=time.time(), with_replay=False, task=Task(),
            places={"mine": self.place},
        )  # fmt: skip
        if "mine" not in found.steps:
            raise BackupError(str(found.missed))
        shutil.rmtree(self.off / "sending", ignore_errors=True)
        shutil.copytree(found.directory, self.off / "sending")
        (self.off / "sending").rename(self.off / str(time.time_ns()))

    def _newest(self) -> Path | None:
        return max((path for path in self.off.iterdir() if path.name != "sending"), default=None)

    def newest(self) -> Path | None:
        newest = self._newest()
        return None if newest is None else newest / "programs" / "mine"

    def back(self) -> None:
        newest, there = self._newest(), Paths(str(self.directory / "bob"), str(self.directory / "run"))
        assert newest is not None
        if not Path(there.journal).exists():
            tree = Tree(newest, CHOSEN)
            restoring.restore(tree, CHOSEN, Path(there.state_dir), take_over=False, box="bob", wall_s=7.0)
        assert newest_good(Path(there.run_dir("Pong"))).env_steps == 70  # type: ignore[union-attr]
        assert leases.read(Path(there.offsite)).generation == 0  # type: ignore[union-attr]
        put_back(there, "mine", self.place_for(Path(there.run_dir("mine"))))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(params=[Backups, Kept, OffTheBox])
def copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copies]:
    monkeypatch.setattr(own, "_PAUSE_S", 0.0)
    with tempfile.TemporaryDirectory(dir=MEMORY_DIR) as name:  # hundreds of syncs
        yield request.param(Path(name))


# --- taking ----------------------------------------------------------------------------------------------------------------


def test_a_copy_is_of_the_newest_whole_checkpoint_and_never_of_a_torn_one(copies: Copies) -> None:
    for step in (100, 200):
        saved(copies.at / f"step={step}.pt", step)
    (copies.at / "step=300.pt").write_bytes(TORN)
    whole = (copies.at / "step=200.pt").read_bytes()
    copies.take()
    assert copies.files() == {"checkpoint": whole}
    (copies.at / "step=200.pt").write_bytes(TORN)
    assert copies.files() == {"checkpoint": whole}, "what its script writes over is no link to the copy"


@pytest.mark.parametrize("how", ["the disk is full", "it vanishes", "it changes"])
def test_the_previous_copy_stays_when_a_new_one_fails(copies: Copies, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    whole = saved(copies.at / "step=100.pt").read_bytes()
    copies.take()
    shutil.rmtree(copies.at)
    newer = plain(copies.at / "step=200.pt")
    copy_file: Callable[..., tuple[int, str, str]] = own.copy_file

    def fails(source: int, target: Path, *given: object, **more: bool) -> tuple[int, str, str]:
        if how == "the disk is full":
            target.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        done = copy_file(source, target, *given, **more)
        newer.unlink() if how == "it vanishes" else plain(newer, newer.stat().st_mtime - time.time())
        return done

    with monkeypatch.context() as patch:
        patch.setattr(own, "copy_file", fails)
        with pytest.raises(REFUSALS):
            copies.take()
    assert copies.files() == {"checkpoint": whole}
    newer.unlink(missing_ok=True)
    copies.back()
    assert contents(copies.at) == {"step=100.pt": whole}
    assert not list(copies.directory.rglob("*.tmp")), "a failed copy takes no space"


def test_a_copy_killed_at_any_moment_is_whole_or_none(copies: Copies) -> None:
    """SIGKILL before each second call that changes the disk, until none is left. The copy before stays until then."""
    code, ends, wholes = -9, set(), [b""]
    for at in range(0, 1000, 2):
        if code == 0:
            break
        wholes.append(saved(copies.at / f"step={at}.pt", 300 + at).read_bytes())
        before = copies.files()
        code = killed(copies.take, at)
        found = copies.files()
        assert found in (before, {"checkpoint": wholes[-1]}), f"killed before call {at}"
        ends.add((code, found == before))
    assert {(-9, True), (0, False)} <= ends
    copies.take()
    assert not list(copies.directory.rglob("*.tmp"))


# --- putting back ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["missing", "empty", "occupied"])
def test_a_copy_comes_back_into_a_missing_an_empty_and_an_occupied_directory(copies: Copies, there: str) -> None:
    whole = {name: plain(copies.at / name) for name in ("step=200/w.bin", "step=200/shards/odd\nname", "step=200/state")}
    whole = {name: path.stat() for name, path in whole.items()}
    before = contents(copies.at)
    copies.take()
    shutil.rmtree(copies.work / "out")
    if there != "missing":
        copies.at.mkdir(parents=True)
    if there == "occupied":
        (copies.at / "notes").write_bytes(b"of its user")
        plain(copies.at / "step=100", 9000.0)
        (copies.at / ".step=200.tmp").mkdir()  # of a daemon that was killed
        (copies.at / ".step=200.tmp" / "half").touch()
    occupied = {"notes": b"of its user", "step=100": b"some bytes"} if there == "occupied" else {}
    copies.back()
    assert contents(copies.at) == before | occupied
    assert {name: (copies.at / name).stat().st_mtime_ns for name in whole} == {
        name: stat.st_mtime_ns for name, stat in whole.items()
    }, "else it would not be the newest"


def test_what_a_copy_replaces_is_set_aside(copies: Copies) -> None:
    path = saved(copies.at / "step=100.pt")
    whole = path.read_bytes()
    copies.take()
    path.write_bytes(TORN)
    for _ in range(2):
        copies.back()
        assert contents(copies.at) == {"step=100.pt": whole, ".step=100.pt.bad": TORN}, "asked again it has nothing to do"


@pytest.mark.parametrize("damage", ["a flipped bit", "cut", "removed"])
def test_a_damaged_copy_is_refused_and_nothing_is_touched(copies: Copies, damage: str) -> None:
    path = saved(copies.at / "step=100.pt")
    copies.take()
    newest = copies.newest()
    assert newest is not None
    copy = newest / own.FILES / "checkpoint"
    data = copy.read_bytes()
    copy.unlink()
    if damage != "removed":
        copy.write_bytes(data[:-1] + (b"" if damage == "cut" else bytes([data[-1] ^ 1])))
    path.write_bytes(TORN)
    with pytest.raises(REFUSALS, match=r"digest|No such file|does not match"):
        copies.back()
    assert contents(copies.work) == {"out/a/step=100.pt": TORN}


def test_a_link_in_place_of_the_directory_is_not_followed(copies: Copies) -> None:
    whole = saved(copies.at / "step=100.pt").read_bytes()
    copies.take()
    elsewhere = copies.directory / "elsewhere"
    copies.at.rename(elsewhere)
    (elsewhere / "step=100.pt").rename(elsewhere / "step=200.pt")
    copies.at.symlink_to(elsewhere)
    with pytest.raises(REFUSALS):
        copies.take()
    with pytest.raises(REFUSALS, match=r"Not a directory|symbolic links"):
        copies.back()
    assert contents(elsewhere) == {"step=200.pt": whole}
    assert copies.files() == {"checkpoint": whole}


def test_killed_while_it_puts_back_it_has_lost_nothing_and_the_next_call_ends_it(copies: Copies) -> None:
    whole = saved(copies.at / "step=100.pt").read_bytes()
    copies.take()
    code, ends = -9, set()
    for at in range(0, 1000, 2):
        if code == 0:
            break
        shutil.rmtree(copies.at)
        shutil.rmtree(copies.directory / "bob", ignore_errors=True)
        copies.at.mkdir()
        (copies.at / "step=100.pt").write_bytes(TORN)
        code = killed(copies.back, at)
        found = contents(copies.at)
        assert TORN in (found.get("step=100.pt"), found.get(".step=100.pt.bad")), f"killed before call {at}"
        ends.add((code, found.get("step=100.pt") == whole))
        copies.back()
        assert contents(copies.at) == {"step=100.pt": whole, ".step=100.pt.bad": TORN}
        assert copies.files() == {"checkpoint": whole}
    assert {(-9, False), (0, True)} <= ends
