"""Names of other supervisors lead to settings that exist."""

from __future__ import annotations

import re

import pytest

from supervisor.config import foreign_names
from supervisor.config.tables import TOP, program_settings, settings_of
from supervisor.model.settings import SECTIONS

KEYS = {*program_settings(command=False), *program_settings(command=True)}


@pytest.mark.parametrize(("names", "instead"), foreign_names._INSTEAD.items())
def test_what_is_advised_exists(names: str, instead: str) -> None:
    sections = re.findall(r"\[(\w+)\]", instead)
    assert set(sections) <= set(TOP)
    known = KEYS.union(
        *(settings_of(SECTIONS[each]) for each in sections if each in {"restart", "http"}),
        {"memory_mb", "runtime_dir", "seeds"},
    )
    advised = re.findall(r"(?:^|; |or )set (\w+)(?: and (\w+))?", instead)
    assert {key for pair in advised for key in pair if key} <= known
    assert foreign_names.hint(names.split(maxsplit=1)[0], KEYS) == f"; {instead}"


@pytest.mark.parametrize("name", ["autorestart", "auto_restart", "Autorestart", "auto-restart"])
def test_spelling_does_not_matter(name: str) -> None:
    assert "set restart" in foreign_names.hint(name, KEYS)
