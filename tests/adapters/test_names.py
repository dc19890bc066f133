"""Names that come from files: one check for every reader, and one program's odd names cost nobody else anything."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from checkpoints_kit import TOKEN, commit
from copies_kit import Box
from hypothesis import example, given
from hypothesis import strategies as st
from test_backups import steps

from supervisor.adapters import state_files
from supervisor.adapters.copies import store as backups
from supervisor.adapters.process import checkpoints
from supervisor.reports.results_view import results_view
from workers import results
from workers.contract import Manifest, checked_name, checked_path, open_below

ODD = ["../../../x", "/etc/hostname", "a\0b", "..", ".", "", "a//b", "a/../../b", "x" * 300, "\ud800", "/".join("a" * 40)]
hostile = st.text(st.sampled_from("./\0a\ud800\udcff\n~ "), max_size=12) | st.text(max_size=300)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@given(hostile)
@example("a/../b")
@example("../x")
@example("\udcff")
def test_what_is_let_through_lies_below_its_directory_and_can_be_opened(tmp_path_factory, name):
    base = tmp_path_factory.getbasetemp() / "below"
    base.mkdir(exist_ok=True)
    for check in (checked_name, checked_path):
        try:
            path = base / check(name)
        except ValueError:
            continue
        assert os.path.normpath(path) == str(path), "nothing is left to be resolved"
        assert path != base
        assert base in path.parents
        assert not path.exists(), "a name that the kernel takes"
    with pytest.raises((ValueError, OSError)):
        open_below(base, name)


def test_no_link_is_followed_at_any_depth(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("secret")
    base = tmp_path / "base"
    (base / "in" / "deep").mkdir(parents=True)
    (base / "in" / "deep" / "file").write_text("ours")
    (base / "away").symlink_to(tmp_path / "out")
    (base / "in" / "link").symlink_to("deep/file")
    with os.fdopen(open_below(base, "in/deep/file")) as file:
        assert file.read() == "ours"
    for name in ("away/file", "in/link"):
        with pytest.raises(OSError, match=r"Too many levels|Not a directory") as refused:
            open_below(base, name)
        assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR)
    os.mkfifo(base / "fifo")
    for name in ("fifo", "in"):
        with pytest.raises(OSError, match="not a regular file"):
            open_below(base, name)
    for name in ("away/file", "none/x", "fifo"):
        with pytest.raises(OSError, match=r"."):
            open_below(base, name)
    left = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # one of another thread, closed meanwhile
            left.append(os.readlink(f"/proc/self/fd/{each}"))
    assert not [path for path in left if path.startswith(str(tmp_path))], "no descriptor is left open"


# --- checkpoints ---------------------------------------------------------------------------------------------------------


def listing(path: Path, files: dict[str, bytes]) -> None:
    """Have a checkpoint's manifest list these, with right sizes and digests."""
    manifest = Manifest.from_json((path / "manifest.json").read_text())
    listed = {name: (len(data), hashlib.blake2b(data, digest_size=32).hexdigest()) for name, data in files.items()}
    (path / "manifest.json").write_text(dataclasses.replace(manifest, files=listed).to_json())


def with_shards(run_dir: Path, step: int) -> Path:
    """A checkpoint as a program of one's own may write it."""
    path = commit(run_dir, step)
    shards = {f"shards/rank-{rank}/model.pt": b"shard %d" % rank for rank in range(100)}
    for name, data in shards.items():
        (path / name).parent.mkdir(parents=True)
        (path / name).write_bytes(data)
    listing(path, shards)
    return path


@pytest.mark.parametrize("name", [*ODD, "manifest.json"])
def test_a_manifest_with_an_odd_name_is_damage(tmp_path, name):
    path = commit(tmp_path, 1)
    listing(path, {name: b"x"})
    (info,) = checkpoints.survey(tmp_path)
    assert info.verified is False
    assert checkpoints.verify(info).verified is False


def test_a_checkpoint_with_sub_directories_is_backed_up_and_brought_back(box):
    pong = box.run_dir("Pong")
    with_shards(pong, 100)
    info = box.make("Pong")
    assert backups.verify(info) == ""
    commit(pong, 200)
    assert box.back() == {"Pong": 100}
    assert steps(box) == [100]
    newest = checkpoints.newest_good(pong)
    assert newest is not None
    assert (newest.path / "shards" / "rank-7" / "model.pt").read_bytes() == b"shard 7"
    shard = box.root / "b1" / "programs" / "Pong" / f"ckpt-100.{TOKEN}" / "shards" / "rank-7" / "model.pt"
    shard.unlink()
    shard.write_bytes(b"shard 8")
    assert "rank-7/model.pt does not match its digest" in backups.verify(info)


# --- one program's oddity ------------------------------------------------------------------------------------------------

TEN = [f"game{number}" for number in range(10)]


def odd_manifest(run_dir):
    listing(commit(run_dir, 1), {"../../../../escaped": b"x"})


def absolute(run_dir):
    listing(commit(run_dir, 1), {"/etc/hostname": b"x"})


def nul(run_dir):
    listing(commit(run_dir, 1), {"a\0b": b"x"})


def link_out(run_dir):
    path = commit(run_dir, 1)
    (run_dir / "secret").write_text("secret")
    (path / "sub").symlink_to(run_dir)
    listing(path, {"sub/secret": b"secret"})


def no_directory(run_dir):
    run_dir.mkdir(parents=True)
    (run_dir / "checkpoints").write_text("")


def a_file_too_long_for_a_path(run_dir):
    listing(commit(run_dir, 1), {"/".join(["x" * 255] * 16): b"x"})


@pytest.mark.parametrize("odd", [odd_manifest, absolute, nul, link_out, no_directory, a_file_too_long_for_a_path])
def test_nine_of_ten_are_backed_up_and_the_tenth_is_named(box, tmp_path, odd):
    dirs = box.run_dirs(*TEN)
    for name in TEN[:3] + TEN[4:]:
        commit(dirs[name], 5)
    odd(dirs[TEN[3]])
    before = {path for path in tmp_path.rglob("*") if box.root not in path.parents}
    info = box.make(*TEN)
    assert info.steps == dict.fromkeys(TEN[:3] + TEN[4:], 5)
    assert list(info.missed) == [TEN[3]]
    assert info.missed[TEN[3]]
    assert backups.read(info.path) == info, "its list says so too"
    assert backups.verify(info) == ""
    after = {path for path in tmp_path.rglob("*") if box.root not in path.parents}
    assert after - before == {box.root}, "nothing was written anywhere else"
    assert not list(box.root.glob("*.tmp"))
    assert not (info.path / "programs" / TEN[3]).exists()
    for name in TEN[4:6]:
        commit(dirs[name], 9)
    chosen = backups.find(box.root, "b1", TEN[4:6])
    keep = lambda: box.make(*TEN, name="kept", every=True)  # noqa: E731
    assert backups.restore(chosen, box.run_dirs(*TEN[4:6]), keep, backups.Task()) == dict.fromkeys(TEN[4:6], 5)


def test_going_back_keeps_what_the_backup_of_before_could_not_take(box, monkeypatch):
    """The disk refuses to read the newest checkpoint: unknown, not bad. It exists nowhere else, so it is not removed."""
    pong = box.run_dir("Pong")
    commit(pong, 100)
    box.make("Pong")
    newest = commit(pong, 200)
    original = backups.checkpoints.opened

    def failing(path, name):
        if path == newest and name == "state.json":
            raise OSError(errno.EIO, "Input/output error")
        return original(path, name)

    monkeypatch.setattr(checkpoints, "opened", failing)
    assert box.back() == {"Pong": 100}
    assert steps(box) == [100]
    assert (pong / "checkpoints" / f"{newest.name}.bad" / "state.json").exists()


@pytest.mark.parametrize("score", ["1e308", "-1e200", "nan", "inf"])
def test_the_page_of_results_shows_the_others(tmp_path, score):
    titles = ",".join(results.COLUMNS)
    for name, value in (("Odd", score), ("Odder", score), ("Pong", "5")):
        (tmp_path / name).mkdir()
        rows = [f"{name},Pong,dqn,{seed},84,100,400,1,{seed},{value},5,," for seed in range(4)]
        (tmp_path / name / "results.csv").write_text("\n".join([titles, *rows, ""]))
    page = results_view(state_files.newest_results(tmp_path))
    assert [run["program"] for run in page["runs"]] == ["Pong"]
    json.dumps(page, allow_nan=False)
