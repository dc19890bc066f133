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


@pytest.mark.parametrize(
    ("names", "instead"),
    [
        (("autorestart", "auto_restart", "Autorestart", "auto-restart"), "set restart"),
        pytest.param(("partition", "gres"), "is a key of [launcher]", marks=pytest.mark.needs("slurm")),
        (("loglevel", "log_level"), "is a key of [daemon]"),
        (("save_dir",), "set checkpoint_glob"),
        (("timeout", "timeout_s"), "set stall_timeout_s"),
        (("heartbeat",), 'set progress = "beat"'),
        (("regex",), "set log_regex"),
        (("volumes",), "docker run -v"),
        (("service",), 'kind = "service"'),
        (("job", "worker"), "[program.NAME]"),
        (("group",), "set group"),
        (("env",), "set env"),
        (("defaults",), "[training] has defaults"),
    ],
)
def test_each_spelling_leads_to_a_name_of_ours_or_to_where_this_is_set(names: tuple[str, ...], instead: str) -> None:
    assert not [name for name in names if instead not in foreign_names.hint(name, KEYS)]
