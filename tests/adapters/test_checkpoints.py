"""The daemon's look at checkpoints: right about good ones, unmoved by garbage."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints_kit import OTHER, TOKEN, commit
from leaks import open_files
from tools import ROOT

from supervisor.adapters.process.checkpoints import (
    CheckpointInfo,
    look,
    newest_good,
    quarantine,
    roll_back,
    set_aside,
    survey,
    verify,
)


def test_survey_lists_newest_first(tmp_path: Path) -> None:
    assert survey(tmp_path) == []
    commit(tmp_path, 9, created_wall_s=5.0)
    commit(tmp_path, 100, created_wall_s=6.0)
    commit(tmp_path, 100, OTHER, created_wall_s=7.0)
    for name in ("ckpt-500.ff.tmp", "ckpt-500.ff.bad", "ckpt-500", "notes", "ckpt-0500.ff", "ckpt-5.FF"):
        (tmp_path / "checkpoints" / name).mkdir()
    found = survey(tmp_path)
    assert [(info.env_steps, info.token) for info in found] == [(100, OTHER), (100, TOKEN), (9, TOKEN)]
    assert [(info.created_wall_s, info.size_bytes, info.verified, info.error) for info in found] == [
        (wall_s, 1011, None, None) for wall_s in (7.0, 6.0, 5.0)
    ]


def test_newest_good_passes_over_damage(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    second, third = commit(tmp_path, 2), commit(tmp_path, 3)
    good = newest_good(tmp_path)
    assert good is not None
    assert (good.env_steps, good.verified) == (3, True)
    data = bytearray((third / "tensors.safetensors").read_bytes())
    data[500] ^= 1
    (third / "tensors.safetensors").write_bytes(data)
    (second / "manifest.json").write_text("{}")
    found = survey(tmp_path)
    assert [info.verified for info in found] == [None, False, None]
    assert verify(found[0]).error == "tensors.safetensors does not match its digest"
    assert "not a checkpoint manifest" in (found[1].error or "")
    good = newest_good(tmp_path)
    assert good is not None
    assert good.env_steps == 1
    shutil.rmtree(good.path)
    assert newest_good(tmp_path) is None


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: None, "state.json is missing"), (Path.mkdir, "state.json is not a file"),
        (os.mkfifo, "state.json is not a file"),
        (lambda path: path.write_bytes(b"x" * 10), "state.json has only 10 bytes, expected 11"),
        (lambda path: path.write_bytes(b"x" * 12), "state.json has more 12 bytes, expected 11"),
    ],
)  # fmt: skip
def test_verify_names_the_damage(tmp_path: Path, damage: Callable[[Path], object], error: str) -> None:
    path = commit(tmp_path, 1) / "state.json"
    path.unlink()
    damage(path)
    checked = verify(survey(tmp_path)[0])
    assert (checked.verified, checked.error) == (False, error)


@pytest.mark.parametrize("unreadable", ["state.json", "manifest.json"])
def test_an_unreadable_checkpoint_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str) -> None:
    commit(tmp_path, 1)
    path = commit(tmp_path, 2)
    original, before = os.read, open_files()

    def failing(fd: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(path / unreadable)):
            raise OSError(errno.EIO, "Input/output error")
        return original(fd, size)

    monkeypatch.setattr(os, "read", failing)
    found = survey(tmp_path)[0]
    for each in (verify(found), *([found] if unreadable == "manifest.json" else [])):
        assert (each.verified, each.error) == (None, "can't be read: [Errno 5] Input/output error")
    good = newest_good(tmp_path)
    assert good is not None
    assert good.env_steps == 1
    assert open_files() <= before


# --- setting aside -----------------------------------------------------------------------------------------------------


def test_quarantine_takes_the_step_that_kills(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        commit(tmp_path, step)
    aside = quarantine(tmp_path, 3)
    assert aside == tmp_path / "checkpoints" / f"ckpt-3.{TOKEN}.bad"
    assert aside.is_dir()
    assert [info.env_steps for info in survey(tmp_path)] == [2, 1]
    assert quarantine(tmp_path / "nowhere", 3) is None
    # Asked again after the daemon died in between: the innocent one before it stays.
    assert quarantine(tmp_path, 3) is None
    assert [info.env_steps for info in survey(tmp_path)] == [2, 1]
    # The same step by another attempt gets a name of its own.
    commit(tmp_path, 3)
    assert quarantine(tmp_path, 3) == tmp_path / "checkpoints" / f"ckpt-3.{TOKEN}.2.bad"


@pytest.mark.parametrize("there", [lambda path: path.symlink_to(path.name), lambda path: path.write_text("")])
def test_a_directory_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, there: Callable[[Path], object]) -> None:
    there(tmp_path / "checkpoints")
    for ask in (survey, newest_good, lambda path: quarantine(path, 5), lambda path: roll_back(path, 5)):
        with pytest.raises(OSError, match="checkpoints"):
            ask(tmp_path)


def test_what_takes_too_long_to_read_is_unknown_and_an_older_one_is_no_answer(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    assert newest_good(tmp_path, until_s=time.monotonic() - 1.0) is None
    late = verify(survey(tmp_path)[0], time.monotonic() - 1.0)
    assert late.verified is None
    assert late.error is not None
    assert "timed out" in late.error
    good = newest_good(tmp_path, until_s=time.monotonic() + 600.0)
    assert good is not None
    assert good.env_steps == 2


def test_what_the_worker_writes_the_daemon_verifies(tmp_path: Path) -> None:
    """Both sides of the contract on one real checkpoint."""
    script = """
import sys
from pathlib import Path
import torch
from workers.checkpoint import Checkpointer
from workers.contract import Client
saver = Checkpointer(Path(sys.argv[1]), Client({}), {"game": "Pong"})
assert saver.save(7, {"w": torch.arange(10.0)}, {"x": 1}, mean_return=None, stall_s=0.0) and saver.wait() and not saver.failure
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=ROOT)
    good = newest_good(tmp_path)
    assert good is not None
    assert (good.env_steps, good.verified, good.token) == (7, True, "0" * 32)


@pytest.mark.fault("nan")
def test_a_roll_back_sets_aside_what_is_newer_and_deletes_nothing(tmp_path: Path) -> None:
    paths = {step: commit(tmp_path, step) for step in (10, 20, 30, 40)}
    aside = roll_back(tmp_path, 30)
    assert sorted(path.name for path in aside) == sorted(f"{paths[step].name}.bad" for step in (30, 40))
    assert all((path / "manifest.json").is_file() for path in aside)
    assert [info.env_steps for info in survey(tmp_path)] == [20, 10]
    assert roll_back(tmp_path, 30) == []


@pytest.mark.fault("nan")
def test_a_roll_back_leaves_the_last_one_that_looks_whole(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        commit(tmp_path, step)
    (commit(tmp_path, 5) / "manifest.json").write_text("{}")
    (tmp_path / "checkpoints" / f"ckpt-30.{TOKEN}" / "manifest.json").write_text("{}")
    aside = roll_back(tmp_path, 10)
    assert [path.name for path in aside] == [f"ckpt-{step}.{TOKEN}.bad" for step in (30, 20)]
    assert [info.env_steps for info in survey(tmp_path) if info.verified is not False] == [10]
    assert roll_back(tmp_path, 10) == []
    assert roll_back(tmp_path / "nowhere", 10) == []


def socket_at(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


@pytest.mark.parametrize(
    ("inside", "make", "error"),
    [
        (False, Path.touch, "it is not a directory"), (False, os.mkfifo, "it is not a directory"),
        (False, lambda path: path.symlink_to(path.parents[1]), "it is a link"),
        (False, lambda path: path.symlink_to("nowhere"), "it is a link"),
        (False, lambda path: path.symlink_to(path.name), "it is a link"), (False, Path.mkdir, "manifest.json is missing"),
        (True, lambda path: path.symlink_to("/dev/zero"), "manifest.json is a link"),
        (True, Path.mkdir, "manifest.json is not a file"), (True, socket_at, "manifest.json is not a file"),
        (True, os.mkfifo, "manifest.json is not a file"),
    ],
)  # fmt: skip
def test_what_lies_in_place_of_a_checkpoint_is_named(
    tmp_path: Path, inside: bool, make: Callable[[Path], object], error: str
) -> None:
    path, before = tmp_path / "checkpoints" / f"ckpt-5.{TOKEN}", open_files()
    (path if inside else path.parent).mkdir(parents=True)
    make(path / "manifest.json" if inside else path)
    assert look(path) == CheckpointInfo(path, 5, TOKEN, None, None, verified=False, error=error)
    assert newest_good(tmp_path) is None
    assert open_files() <= before


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    path, before = commit(tmp_path / "a", 5), open_files()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoints").symlink_to(path.parent)
    with pytest.raises(NotADirectoryError):
        set_aside(tmp_path / "b" / "checkpoints" / path.name)
    assert path.is_dir()
    for name in (f"{path.name}.bad", f"{path.name}.2.bad"):
        (path.parent / name).symlink_to("nowhere")
    assert set_aside(path) == path.parent / f"{path.name}.3.bad"
    assert sorted(each.name for each in path.parent.iterdir()) == [
        f"{path.name}{end}" for end in (".2.bad", ".3.bad", ".bad")
    ]
    assert open_files() <= before
