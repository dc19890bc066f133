"""Who may go on: each claim on a repository, by the lease in a box's file and those in the repository."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from supervisor.features.offsite.adapters import hardware
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import Restic, ResticSnapshot
from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.settings import OffsiteSettings

PLACE = OffsiteSettings(repository="/r").place
HERE = ("ada", 5.0)  # its name, and its clock


def of_lease(token: str, generation: int, box: str = "bob", wall_s: float = 3.0, id_: str = "l") -> ResticSnapshot:
    return ResticSnapshot(id_, wall_s, box, ("extralife-lease", f"token={token}", f"generation={generation}"))


def copied(id_: str, wall_s: float = 4.0) -> ResticSnapshot:
    return ResticSnapshot(id_, wall_s, "bob", ("extralife", "generation=1"))


class Repository(Restic):
    """Keeps the leases that are written into it; `meanwhile` are another box's, which come with ours."""

    def __init__(self, *snapshots: ResticSnapshot, meanwhile: Iterable[ResticSnapshot] = (), loses: bool = False) -> None:
        super().__init__(OffsiteSettings(repository="/r"), Path("/none/cache"))
        self.kept, self.meanwhile, self.loses, self.looks = list(snapshots), meanwhile, loses, 0

    def snapshots(self) -> list[ResticSnapshot]:
        self.looks += 1
        return list(self.kept)

    def write_lease(self, lease: Lease) -> None:
        if not self.loses:
            self.kept.append(of_lease(lease.token, lease.generation, lease.box, lease.since_s, f"l{len(self.kept)}"))
        self.kept += self.meanwhile


def body(directory: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / "lease.json").read_text())
    return found


# --- the file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"token": 5, "generation": "4", "box": 6, "since_s": "7", "place": 8}', Lease("5", 4, "6", 7.0, place="8")),
        ('{"token": "t", "generation": 4, "box": "b", "since_s": 7}', None), ("[]", None), ("{", None), ("", None),
        ('{"token": "t", "generation": "x", "box": "b", "since_s": 7, "place": "p"}', None),
        ('{"token": "t", "generation": null, "box": "b", "since_s": 7, "place": "p"}', None),
    ],
)  # fmt: skip
def test_what_is_read_from_the_file_of_a_lease(tmp_path: Path, text: str, found: Lease | None) -> None:
    assert leases.read(tmp_path) is None
    (tmp_path / "lease.json").write_text(text)
    assert leases.read(tmp_path) == found


def test_the_file_of_a_lease_is_replaced(tmp_path: Path) -> None:
    leases.write(tmp_path / "a" / "offsite", Lease("old", 1, "ada"))
    (tmp_path / "a" / "offsite" / "lease.json.new").write_text("of a daemon that was killed")
    leases.write(tmp_path / "a" / "offsite", Lease("new", 2, "ada", 5.0, "x", "p"))
    assert body(tmp_path / "a" / "offsite") == {
        "token": "new", "generation": 2, "box": "ada", "since_s": 5.0, "place": "p",
    }  # fmt: skip
    assert [path.name for path in (tmp_path / "a" / "offsite").iterdir()] == ["lease.json"]


def test_the_lease_that_counts_is_of_the_highest_generation() -> None:
    assert leases.in_repository(Repository(copied("c"))) is None
    found = leases.in_repository(Repository(of_lease("a", 2), of_lease("b", 3, wall_s=1.0, id_="x"), copied("c", 9.0)))
    assert found == Lease("b", 3, "bob", 1.0, "x", PLACE)


# --- a claim -------------------------------------------------------------------------------------------------------------


def test_the_first_box_writes_its_lease_to_its_file_and_into_the_repository(tmp_path: Path) -> None:
    repository = Repository(copied("c"))
    claim, lease = leases.claim(repository, tmp_path, None, *HERE)
    token = body(tmp_path)["token"]
    assert (claim, lease) == (Claim.HELD, Lease(str(token), 1, "ada", 5.0, "l1", PLACE))
    assert len(lease.token) == 32
    assert body(tmp_path) == {
        "token": token, "generation": 1, "box": "ada", "since_s": 5.0, "place": PLACE,
    }  # fmt: skip
    assert leases.claim(repository, tmp_path, None, *HERE) == (Claim.HELD, lease)
    assert len(repository.kept) == 2, "it is written once"


@pytest.mark.parametrize(
    ("known", "claim"),
    [
        (None, Claim.FOREIGN), (Lease("t", 2, "ada", place=PLACE), Claim.HELD), (Lease("x", 1, "ada", place=PLACE), Claim.LOST),
        (Lease("t", 2, "ada", place="another"), Claim.FOREIGN), (Lease("x", 2, "ada", place=PLACE), Claim.LOST),
        (Lease("x", 0, "ada", place=PLACE), Claim.LOST),  # who has only looked at a copy
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["file", "journal", "both"])
def test_the_claim_of_a_box_by_the_lease_that_it_has(tmp_path: Path, known: Lease | None, claim: Claim, where: str) -> None:
    if known is not None and where != "journal":
        leases.write(tmp_path, known)
    journal = None if where == "file" else Lease("other", 9, "ada", place=PLACE) if where == "both" and known else known
    repository = Repository(of_lease("t", 2))
    assert leases.claim(repository, tmp_path, journal, *HERE) == (claim, Lease("t", 2, "bob", 3.0, "l", PLACE))
    assert len(repository.kept) == 1
    assert (tmp_path / "lease.json").exists() is (known is not None and where != "journal")


def test_a_lease_that_a_crash_kept_from_the_repository_is_written_again_as_it_is(tmp_path: Path) -> None:
    leases.write(tmp_path, Lease("mine", 3, "old name", 2.0, place=PLACE))
    repository = Repository(of_lease("t", 2))
    assert leases.claim(repository, tmp_path, None, *HERE) == (Claim.HELD, Lease("mine", 3, "old name", 2.0, "l1", PLACE))
    assert body(tmp_path) == {
        "token": "mine", "generation": 3, "box": "old name", "since_s": 2.0, "place": PLACE,
    }  # fmt: skip


def test_of_two_first_boxes_both_find_the_same_one(tmp_path: Path) -> None:
    repository = Repository(meanwhile=[of_lease("other", 1, "bob", 9.0, "x")])
    assert leases.claim(repository, tmp_path, None, *HERE) == (Claim.LOST, Lease("other", 1, "bob", 9.0, "x", PLACE))


def test_a_repository_that_does_not_show_what_was_written_is_claimed_with_our_own(tmp_path: Path) -> None:
    claim, lease = leases.claim(Repository(loses=True), tmp_path, None, *HERE)
    assert (claim, lease) == (Claim.WRITE, leases.read(tmp_path))


# --- other hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "known", "goes_on"),
    [((), "", True), ((), "a", True), (("a",), "a", True), (("a", "b"), "b", True), (("a", "b"), "a", False), (("a",), "", False)],
)  # fmt: skip
def test_a_disk_on_other_hardware_goes_on_if_it_knows_the_newest_copy(
    tmp_path: Path, copies: tuple[str, ...], known: str, goes_on: bool
) -> None:
    leases.write(tmp_path, Lease("mine", 4, "ada", place=PLACE))
    repository = Repository(of_lease("mine", 4, "ada"), *map(copied, copies), of_lease("old", 1, "eve", id_="o"))
    recorded = leases.read(tmp_path)
    claim, lease = leases.claim(repository, tmp_path, recorded, "clone", 8.0, moved_with=known)
    if not goes_on:
        assert (claim, lease) == (Claim.LOST, Lease("mine", 4, "ada", 3.0, "l", PLACE))
        assert body(tmp_path)["token"] == "mine"
        return
    assert claim is Claim.HELD
    assert lease == Lease(str(body(tmp_path)["token"]), 5, "clone", 8.0, lease.id, PLACE)
    assert lease.token != "mine"


@pytest.mark.parametrize("recorded", [None, Lease("of the lost box", 3, "eve", place=PLACE)])
def test_a_box_that_has_just_restored_the_newest_copy_on_other_hardware_holds_the_lease(
    tmp_path: Path, recorded: Lease | None
) -> None:
    """The journal of a copy cannot name that copy."""
    leases.write(tmp_path, Lease("mine", 4, "ada", place=PLACE))
    repository = Repository(of_lease("mine", 4, "ada"), copied("a"), copied("b"))
    claim, lease = leases.claim(repository, tmp_path, recorded, "ada", 8.0, moved_with="a")
    assert (claim, lease.token) == (Claim.HELD, "mine")


def test_the_lease_file_of_an_earlier_release_is_read_as_it_is(tmp_path: Path) -> None:
    leases.write(tmp_path, Lease("mine", 4, "ada", 2.0, place=PLACE))
    (tmp_path / "lease.json").write_text(json.dumps({**body(tmp_path), "hardware": {"product": "2"}}))
    repository = Repository(of_lease("mine", 4, "ada"), copied("of another"))
    assert leases.claim(repository, tmp_path, None, *HERE) == (Claim.HELD, Lease("mine", 4, "ada", 3.0, "l", PLACE))


# --- taking over -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "generation"), [(None, None, 1), (None, 4, 5), (7, 4, 8), (2, 4, 5), (0, None, 1), (4, 4, 5)]
)
def test_who_takes_over_has_a_higher_generation_than_all(
    tmp_path: Path, mine: int | None, theirs: int | None, generation: int
) -> None:
    if mine is not None:
        leases.write(tmp_path, Lease("mine", mine, "ada", place="of another repository"))
    repository = Repository(*([] if theirs is None else [of_lease("t", theirs)]))
    claim, lease = leases.take_over(repository, tmp_path, *HERE)
    token = str(body(tmp_path)["token"])
    assert (claim, lease) == (Claim.HELD, Lease(token, generation, "ada", 5.0, lease.id, PLACE))
    assert token not in {"mine", "t"}
    assert body(tmp_path) == {
        "token": token, "generation": generation, "box": "ada", "since_s": 5.0, "place": PLACE,
    }  # fmt: skip
    assert repository.looks == 2


def test_who_takes_over_by_an_earlier_look_finds_what_came_after_it(tmp_path: Path) -> None:
    repository = Repository(of_lease("t", 2), of_lease("later", 3, "eve", id_="x"))
    claim, lease = leases.take_over(repository, tmp_path, *HERE, [of_lease("t", 1)])
    assert (claim, lease) == (Claim.LOST, Lease("later", 3, "eve", 3.0, "x", PLACE))
    assert body(tmp_path)["generation"] == 2
    assert repository.looks == 1
    assert leases.take_over(Repository(), tmp_path / "new", *HERE, [])[1].generation == 1


# --- what a box has less -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"cores": 2}, {"cores": 2}, []), ({"cores": 3}, {"cores": 2}, ["2 cores instead of 3"]), ({"cores": "8"}, {"cores": 2}, []),
        ({"memory_gib": 10}, {"memory_gib": 9.0}, []), ({"memory_gib": 10}, {"memory_gib": 8.9}, ["8.9 GiB of memory instead of 10"]),
        ({"memory_gib": 10.5}, {"memory_gib": None}, []), ({"gpus": ["A", "B"]}, {"gpus": []}, ["no GPU instead of A, B"]),
        ({"gpus": "A"}, {"gpus": []}, []), ({"gpus": []}, {"gpus": ["A"]}, []),
        ({"gpus": ["A"]}, {"gpus": ["B", "C"]}, ["B, C instead of A"]), ({"gpus": ["A", "A"]}, {"gpus": ["A"]}, ["A instead of A, A"]),
        ({"gpus": ["A", "B"]}, {"gpus": ["B", "A"]}, []),
    ],
)  # fmt: skip
def test_what_a_box_has_less_than_the_earlier_one(
    before: dict[str, object], now: dict[str, object], told: list[str]
) -> None:
    assert hardware.missing(before, {"cores": 99, "memory_gib": 99.0, "gpus": []} | now) == told


def test_the_gpus_of_a_box_are_those_of_the_driver_s_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bus, model in (("0000:02", "Tesla T4"), ("0000:01", "NVIDIA A100: PCIe")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_bytes(f"IRQ:\t5\nModel: \t {model} \nGPU UUID: Model\xff\n".encode("latin-1"))
    monkeypatch.setattr(hardware, "Path", lambda path: tmp_path / path.lstrip("/"))
    monkeypatch.setattr(hardware, "usable_cores", lambda: 3)
    monkeypatch.setattr(hardware, "usable_memory_mb", lambda: 17_685)
    assert hardware.here() == {"cores": 3, "memory_gib": 16.5, "gpus": ["NVIDIA A100: PCIe", "Tesla T4"]}
    monkeypatch.setattr(hardware, "usable_memory_mb", lambda: None)
    assert hardware.here()["memory_gib"] is None
