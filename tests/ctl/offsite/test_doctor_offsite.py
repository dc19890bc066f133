"""`doctor` on copies off the box, with a real repository."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cheap_restic import make_cheap

from supervisor.ctl.checks import Installation
from supervisor.features.offsite import checks as checks_offsite
from supervisor.features.offsite.adapters.restic import Restic
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.settings import Paths, Settings


def look(tmp_path, rules):
    (found,) = checks_offsite.copies(Installation(Settings(Paths(str(tmp_path), str(tmp_path)), offsite=rules)))
    return found.level, found.what, found.do


def test_nothing_is_copied(tmp_path, monkeypatch):
    assert look(tmp_path, OffsiteSettings())[:2] == (
        "warn",
        "nothing is copied off this box: its trainings are lost with it",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(tmp_path, OffsiteSettings(repository="/x"))[0::2] == ("bad", "apt-get install restic")


@pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")
def test_a_file_goes_there_and_back(tmp_path):
    (tmp_path / "password").write_text("x y z\n")
    rules = OffsiteSettings(repository=str(tmp_path / "repo"), password_file=str(tmp_path / "password"))
    level, what, do = look(tmp_path, rules)
    assert (level, "unable to open config file" in what) == ("bad", True)
    assert do.startswith("extralifectl offsite init")
    Restic(rules, tmp_path / "cache").init()
    make_cheap(tmp_path / "repo", "x y z")
    assert look(tmp_path, rules)[:2] == ("ok", "a file went into the repository and came back; it has no copy yet")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    Restic(rules, tmp_path / "cache").copy(Path(tmp_path / "data"), host="ada", tags=("extralife",))
    assert "1 copy, the newest" in look(tmp_path, rules)[1]
    assert look(tmp_path, replace(rules, password_file=str(tmp_path / "none")))[0] == "bad"
