"""The files of a checkpoint, one by one: how they are written, read, judged and removed."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from leaks import open_files

from workers.contract import MANIFEST_FILE, Manifest, checkpoint_name
from workers.store import Damaged, newest_identity, read_file, remove, write_file

TOKEN, BOOT = "ab" * 16, "cd" * 16
MIB = 1 << 20


def made(run_dir: Path, steps: int, created_wall_s: float = 0.0, **identity: object) -> Path:
    """A checkpoint of nothing but its manifest."""
    place = run_dir / "checkpoints" / checkpoint_name(steps, TOKEN)
    place.mkdir(parents=True)
    manifest = Manifest("Pong", TOKEN, 1, BOOT, steps, created_wall_s, identity, {})
    (place / MANIFEST_FILE).write_text(manifest.to_json())
    return place


def test_a_file_is_new_whole_and_known_by_its_digest(tmp_path):
    path, before = tmp_path / "file", open_files()
    pieces = [b"", b"head", memoryview(bytes(range(256)) * (MIB // 128)), b"x" * MIB]
    whole = b"".join(pieces)
    assert write_file(path, pieces) == (len(whole), hashlib.blake2b(whole, digest_size=32).hexdigest())
    assert path.read_bytes() == whole == read_file(tmp_path, "file")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644 & ~_umask()
    with pytest.raises(FileExistsError):
        write_file(path, [b"other"])
    assert path.read_bytes() == whole
    assert open_files() <= before
    assert write_file(tmp_path / "empty", []) == (0, hashlib.blake2b(b"", digest_size=32).hexdigest())


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_what_is_missing_or_no_file_is_damage_and_a_directory_that_is_gone_is_not(tmp_path):
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("x")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "fifo")
    before = open_files()
    for directory, name, told in (
        (tmp_path, "none", "none is missing"), (tmp_path, "link", "link is not a file"), (tmp_path, "fifo", "fifo is not a file"),
        (tmp_path, "sub", "sub is not a file"), (tmp_path / "file", "x", "it is not a directory"),
    ):  # fmt: skip
        with pytest.raises(Damaged, match=f"^{told}$"):
            read_file(directory, name)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "gone", "x")
    assert open_files() <= before


def test_the_newest_identity_is_that_of_the_most_steps_then_of_the_latest(tmp_path):
    assert newest_identity(tmp_path) == {}
    made(tmp_path, 7, created_wall_s=1.0, game="Pong")
    made(tmp_path, 5, created_wall_s=9.0, game="Qbert")
    assert newest_identity(tmp_path) == {"game": "Pong"}
    later = Manifest("Pong", BOOT, 1, BOOT, 7, 2.0, {"game": "Alien"}, {})
    place = tmp_path / "checkpoints" / checkpoint_name(7, BOOT)
    place.mkdir()
    (place / MANIFEST_FILE).write_text(later.to_json())
    assert newest_identity(tmp_path) == {"game": "Alien"}
    damaged = made(tmp_path, 9, game="Enduro")
    (damaged / MANIFEST_FILE).write_text("{")
    (tmp_path / "checkpoints" / f"ckpt-11.{TOKEN}.tmp").mkdir()
    names = sorted(os.listdir(tmp_path / "checkpoints"))
    assert newest_identity(tmp_path) == {"game": "Alien"}
    assert sorted(os.listdir(tmp_path / "checkpoints")) == names, "nothing is set aside"


def test_what_is_removed_is_gone_and_what_a_link_names_stays(tmp_path):
    (tmp_path / "stays").mkdir()
    (tmp_path / "stays" / "file").write_text("x")
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "file").write_text("x")
    (tmp_path / "top" / "link").symlink_to("../stays")
    remove(tmp_path / "top")
    (tmp_path / "link").symlink_to("stays")
    remove(tmp_path / "link")
    (tmp_path / "file").write_text("x")
    remove(tmp_path / "file")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["stays", "stays/file"]
