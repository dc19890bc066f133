"""The code of a user's own programs: directories that a copy has too, and what the next box lacks."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from offsite_kit import WALL_S, Box, needs_restic, new_repository

from supervisor.features.offsite.adapters import code, restoring
from supervisor.model.settings import Paths, ProgramSpec, Settings


@pytest.fixture
def scripts(tmp_path):
    made = tmp_path / "my-code"
    (made / "lib" / "__pycache__").mkdir(parents=True)
    (made / "train.py").write_text("print('trains')\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "lib" / "__pycache__" / "a.pyc").touch()
    (made / "newest").symlink_to("train.py")
    os.mkfifo(made / "pipe")
    return made


@needs_restic
def test_a_small_directory_goes_with_the_copy_and_is_at_its_path_on_the_next_box(scripts, tmp_path):
    (tmp_path / "off").mkdir()
    box = Box(tmp_path / "ada", new_repository(tmp_path / "off"))
    try:
        box.rules = replace(box.rules, also=(str(scripts), str(tmp_path / "nowhere")))
        done, _ = box.copies()
        assert done.missed == {str(tmp_path / "nowhere"): "No such file or directory"}
        shutil.rmtree(scripts)
        said = []
        restic = box.restic()
        chosen = restoring.choose(restic.snapshots())
        for name in ("new", "newer"):
            restoring.restore(restic, chosen, tmp_path / name, take_over=True, box="bob", wall_s=WALL_S, say=said.append)
    finally:
        box.close()
    assert sorted(os.listdir(scripts)) == ["lib", "newest", "run.sh", "train.py"]
    assert os.listdir(scripts / "lib") == []
    assert (scripts / "newest").readlink() == Path("train.py")
    assert os.access(scripts / "run.sh", os.X_OK)
    assert [each for each in said if str(scripts) in each] == [
        f"put the copied {scripts} into place", f"{scripts} is there already and stays as it is",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["_MOST_MB", "_MOST_FILES"])
def test_a_large_directory_is_refused_with_the_limit_and_what_to_do(scripts, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(code, limit, 0)
    missed = code.collect([str(scripts)], tmp_path / "copy")
    assert "name a smaller directory in [offsite] also, or let the template fetch it" in missed[str(scripts)]
    assert not (tmp_path / "copy").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's directory needs root")
def test_a_directory_of_another_user_is_refused_to_root(scripts, tmp_path):
    os.chown(scripts / "lib", 65534, 65534)
    assert f"{scripts}/lib belongs to user id 65534" in code.refusal(str(scripts))


def test_a_directory_that_cannot_be_put_into_place_costs_nothing_else(tmp_path):
    (tmp_path / "also" / "0").mkdir(parents=True)
    (tmp_path / "also" / "1").mkdir()
    (tmp_path / "file").touch()
    said = []
    code.put([str(tmp_path / "file" / "below"), str(tmp_path / "made" / "here"), "../up"], tmp_path / "also", said.append)
    assert "cannot be put into place" in said[0]
    assert (tmp_path / "made" / "here").is_dir()
    assert len(said) == 2


@pytest.mark.parametrize(
    ("argv", "directory", "what"),
    [
        (("python3", "-u", "train.py", "--config", "none.py"), "", ""),
        (("python3", "gone.py"), "", "its script gone.py is missing in {folder} on this box"),
        (("/opt/none/bin/train",), "", "its script /opt/none/bin/train is missing in {folder} on this box"),
        (("torchrun", "--nproc-per-node", "2", "gone.py"), "", "its script gone.py is missing in {folder} on this box"),
        (("python3", "train.py"), "/opt/none", "its directory /opt/none is missing on this box"),
        (("python3", "-m", "gone.py"), "", ""),
        (("sh", "-c", "gone.sh"), "", ""),
        (("bash", "-lc", "cd /opt/none && exec python gone.py"), "", ""),
        (("mine", "--out", "gone.py"), "", ""),
        (("python3", "{seed}.py"), "", ""),
    ],
)  # fmt: skip
def test_what_a_program_lacks_on_this_box_is_one_sentence(scripts, tmp_path, argv, directory, what):
    spec = ProgramSpec("mine", argv, "d", directory=directory or str(scripts))
    found = code.missing(
        Settings(Paths(str(tmp_path), str(tmp_path)), programs=(spec,)), Paths(str(tmp_path), str(tmp_path))
    )
    how = "by the image, by `git clone` in the template, or by [offsite] also on the box that is copied"
    sentence = f"mine waits: {what.format(folder=scripts)}; put it there ({how}), and it starts by itself"
    assert found == ({"mine": sentence} if what else {})
