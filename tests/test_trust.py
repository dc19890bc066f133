"""Which directories another user could change: real directories, owners, modes and links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor import trust

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that nobody else may change, below one of the test's own."""
    place = tmp_path / "above" / "run"
    place.mkdir(parents=True, mode=0o755)
    assert trust.why_untrusted(place) == ""
    yield place
    for each in (place, place.parent):
        each.chmod(0o755)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_one_that_every_user_may_write_to(place: Path, mode: int) -> None:
    place.chmod(mode)
    assert trust.why_untrusted(place) == f"every user may write to {place} (mode {mode:04o})"


def test_one_that_a_group_may_write_to(place: Path) -> None:
    place.chmod(0o770)
    if os.geteuid() == 0:
        os.chown(place, -1, 12345)
        assert trust.why_untrusted(place) == f"the group 12345 may write to {place} (mode 0770)"
        os.chown(place, -1, 0)
    assert trust.why_untrusted(place) == "", "a group of our own has nobody else in it"


def test_a_parent_counts_and_a_sticky_one_does_not(place: Path) -> None:
    place.parent.chmod(0o777)
    assert trust.why_untrusted(place) == f"every user may write to {place.parent} (mode 0777)"
    assert trust.why_untrusted(place / "not" / "there") == f"every user may write to {place.parent} (mode 0777)"
    place.parent.chmod(0o1777)
    assert trust.why_untrusted(place) == ""
    assert trust.why_untrusted(place.parent / "not-there") == "", "as below /dev/shm"


def test_the_way_of_a_link_counts(place: Path, tmp_path: Path) -> None:
    goal = tmp_path / "elsewhere" / "run"
    goal.mkdir(parents=True)
    (place / "link").symlink_to("../../elsewhere/run")
    assert trust.why_untrusted(place / "link") == ""
    goal.parent.chmod(0o777)
    assert trust.why_untrusted(place / "link") == f"every user may write to {goal.parent} (mode 0777)"
    goal.parent.chmod(0o755)
    goal.chmod(0o777)
    assert trust.why_untrusted(place / "link") == f"every user may write to {goal} (mode 0777)"
    (place / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        trust.why_untrusted(place / "round")


@root
def test_an_owner_on_the_way_counts(place: Path) -> None:
    os.chown(place.parent, NOBODY, -1)
    assert trust.why_untrusted(place) == f"{place.parent} belongs to nobody, who can change its files"
    assert trust.why_untrusted(place, NOBODY) == "", "for that user it is safe"
    os.chown(place.parent, 0, -1)
    os.chown(place, 12345, -1)
    assert trust.why_untrusted(place).startswith(f"{place} belongs to user 12345")


@root
def test_a_link_of_another_user_in_a_sticky_directory(place: Path) -> None:
    place.chmod(0o1777)
    (place / "mine").mkdir()
    (place / "link").symlink_to("mine")
    assert trust.why_untrusted(place / "link") == ""
    os.chown(place / "link", NOBODY, -1, follow_symlinks=False)
    assert trust.why_untrusted(place / "link").startswith(f"{place / 'link'} belongs to nobody")


@root
def test_what_another_user_has_left_in_it(place: Path) -> None:
    (place / "beats").mkdir()
    os.chown(place / "beats", NOBODY, -1)
    assert trust.why_untrusted(place) == f"{place / 'beats'} belongs to nobody; remove it"
    os.chown(place / "beats", 0, -1)
    (place / "beats").chmod(0o777)
    assert trust.why_untrusted(place) == f"every user may write to {place / 'beats'} (mode 0777)"


def test_in_a_user_namespace_the_owner_of_the_root_is_trusted(place: Path) -> None:
    code = f"from supervisor import trust; print(repr(trust.why_untrusted({str(place)!r})))"
    done = subprocess.run(
        ["unshare", "--user", "--map-user=1234", sys.executable, "-c", code], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip("this machine allows no user namespaces")
    assert done.stdout == "''\n", done.stderr
