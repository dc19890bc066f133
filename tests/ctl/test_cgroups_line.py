"""A limit of memory that nobody is held to is told in a line; without such a limit there is nothing to tell."""

from dataclasses import replace

import pytest

from supervisor.ctl import story
from supervisor.model.settings import Level, Paths, Settings
from supervisor.policy.worker.confinement import CgroupSettings
from supervisor.shell.backend import _unmet

SETTINGS = Settings(Paths("/s", "/r"), level=Level(name="heavy", memory_mb=6000))
OFF = {"on": False, "why": "there is no cgroup v2 here", "controllers": []}


@pytest.mark.parametrize(
    ("settings", "view", "said"),
    [
        (SETTINGS, OFF, "no worker is held to the 6,000 MB of level heavy: there is no cgroup v2 here"),
        (SETTINGS, OFF | {"why": "", "controllers": ["cpu"]}, "its cgroups have no memory controller"),
        (SETTINGS, OFF | {"controllers": ["cpu", "memory"]}, ""),
        (replace(SETTINGS, level=Level()), OFF, ""),
        (replace(SETTINGS, cgroups=CgroupSettings(use=False)), OFF, ""),
    ],
)
def test_unmet(settings, view, said):
    told = _unmet(settings, view)
    assert told.endswith(said)
    assert bool(told) is bool(said)


@pytest.mark.parametrize(
    ("cause", "kind", "shown"),
    [("unclean", "panic", "unclean (panic)"), ("orderly", "orderly", "orderly"), ("unclean", "", "unclean")],
)
def test_what_a_reboot_is_called(cause, kind, shown):
    assert story._cause({"cause": cause, "end": kind}) == shown
    assert story._cause({"cause": cause}) == cause, "an older record has no kind"
