"""What an update touches: only what a change touches."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from config_kit import Place
from tools import MEMORY_DIR

from supervisor import config
from supervisor.config import Changes

SLURM = pytest.mark.needs("slurm")
BASE = """
[level]
slots = 2
[program.Pong]
[program.Qbert]
lr = 1e-4
[program.x]
command = "sleep 1"
env = { A = "1" }
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("", "", Changes()),
        ("[level]", "# a comment\n[level]", Changes()),
        ("[program.Qbert]\nlr = 1e-4", "", Changes(removed=("Qbert",))),
        ("[program.Pong]", "[program.Pong]\n[program.Catch]", Changes(added=("Catch",))),
        ("lr = 1e-4", "lr = 2e-4", Changes(changed=("Qbert",))),
        ("lr = 1e-4", "lr = 1e-4\nseed = 1", Changes()),  # the default, written down
        ("lr = 1e-4", "lr = 1e-4\npriority = 7\nstop_grace_s = 3", Changes(live=("Qbert",))),
        ("sleep 1", "sleep 2", Changes(changed=("x",))),
        ('A = "1"', 'A = "2"', Changes(changed=("x",))),
        ('"sleep 1"', '["sleep", "1"]', Changes()),
        ('"sleep 1"', '"sleep 1"\ndone_codes = [0, 9]', Changes(live=("x",))),
        ('"sleep 1"', '"sleep 1"\nprogress = "none"', Changes(changed=("x",))),
        ("slots = 2", "slots = 2\nnum_envs = 16", Changes(changed=("Pong", "Qbert"), settings=("level.num_envs",))),
        ("slots = 2", "slots = 2\n[stall]\nfloor_s = 60", Changes(settings=("stall.floor_s",))),
        ("slots = 2", "slots = 2\n[daemon]\nlog_backups = 1", Changes(settings=("daemon.log_backups",))),
        ("slots = 2", "slots = 2\n[daemon]\nlog_level = 'debug'", Changes(restart=("daemon.log_level",))),
        ("x]", "y]", Changes(added=("y",), removed=("x",))),
        (
            "slots = 2",
            "slots = 2\n[cgroups]\nuse = false\nparent = '/x'\npids_max = 99\n[gate]\npoll_s = 9",
            Changes(settings=("gate.poll_s", "cgroups.pids_max"), restart=("cgroups.use", "cgroups.parent")),
        ),
        (
            "[program.Pong]\n[program.Qbert]",
            "[program.Breakout]\n[program.Alien]\n[program.Pong]\n[program.Qbert]",
            Changes(added=("Alien", "Breakout")),
        ),
    ],
)
def test_only_what_changed(place: Place, old: str, new: str, changes: Changes) -> None:
    before, after = place.settings(BASE), place.settings(BASE.replace(old, new, 1) if old else BASE)
    assert config.diff(before, after) == changes


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("[level]", "# a comment\n[level]", ()),
        ("lr = 1e-4", "", (("program.Qbert.lr", "0.0001 -> default"),)),
        ("lr = 1e-4", "lr = 2e-4\npriority = 7", (("program.Qbert.lr", "0.0001 -> 0.0002"), ("program.Qbert.priority", "100 -> 7"))),
        ('"sleep 1"', '"sleep 1 --lr 2"', (("program.x.command", "with --lr 2"),)),
        ('"sleep 1"', '"sleep"', (("program.x.command", "without 1"),)),
        ('"sleep 1"', '"sleep 2"', (("program.x.command", "sleep 1 -> 2"),)),
        ('A = "1"', 'A = "2", API_TOKEN = "x"', (("program.x.env.API_TOKEN", "default -> ***"), ("program.x.env.A", "1 -> 2"))),
        ("[program.x]", "[cost]\nusd_per_hour = 2.0\n[program.x]", (("cost.usd_per_hour", "default -> 2.0"),)),
    ],
)  # fmt: skip
def test_the_old_and_the_new_value_of_each_setting(place: Place, old: str, new: str, changes: tuple[str, ...]) -> None:
    before, after = place.load(BASE), place.load(BASE.replace(old, new, 1))
    assert config.differences(before, after) == tuple(sorted(changes))


def test_more_slots_restart_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that follow from them are taken at the next start."""
    monkeypatch.setattr("supervisor.config.loading.usable_cores", lambda: 12)
    found = config.diff(place.settings(BASE), place.settings(BASE.replace("slots = 2", "slots = 3")))
    assert found == Changes(live=("Pong", "Qbert", "x"), settings=("level.slots",))
    found = config.diff(place.settings(BASE), place.settings(BASE.replace("slots = 2", "slots = 2\nthreads = 5")))
    assert found.changed == ("Pong", "Qbert"), "asked for in so many words, they are part of what runs"


def test_an_upgrade_restarts_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another interpreter and an option that is new: what the running workers do is the same."""
    from workers.options import OPTIONS, Option

    before = place.settings(BASE)
    monkeypatch.setattr(sys, "executable", "/opt/extralife-2/.venv/bin/python")
    monkeypatch.setitem(OPTIONS, "novelty", Option("novelty", float, 0.0, "new"))
    after = place.settings(BASE)
    assert before.programs[0].argv != after.programs[0].argv
    assert config.diff(before, after) == Changes(live=("Pong", "Qbert"))


def test_what_a_running_daemon_takes_of_a_new_configuration(place: Place) -> None:
    running = place.settings(BASE)
    text = BASE.replace(
        "slots = 2",
        "slots = 1\n[cgroups]\nuse = false\nparent = '/x'\npids_max = 99\n[daemon]\nlog_backups = 0\nlog_max_bytes = 5000\n"
        "log_level = 'debug'\n[stall]\nfloor_s = 60",
    )
    new = place.settings(text, runtime_dir=f"{MEMORY_DIR}/xl-other")
    assert config.diff(running, new).restart == ("daemon.runtime_dir", "daemon.log_level", "cgroups.use", "cgroups.parent")
    assert config.applicable(running, new) == replace(
        new, paths=running.paths, daemon=replace(running.daemon, log_backups=0, log_max_bytes=5000),
        cgroups=replace(running.cgroups, pids_max=99),
    )  # fmt: skip


@pytest.mark.parametrize("swap", [False, True])
@SLURM
def test_a_running_daemon_keeps_the_kind_of_its_launcher(place: Place, *, swap: bool) -> None:
    """With processes it would take itself for a cluster's, and leave them behind at SIGTERM; with jobs it would end them."""
    texts = [BASE, BASE.replace("slots = 2", 'slots = 2\n[launcher]\nkind = "slurm"\ncpus = 8')]
    running, new = (place.settings(text) for text in (reversed(texts) if swap else texts))
    found = config.diff(running, new)
    assert found.restart == ("launcher.kind", "launcher.cpus")
    assert not [key for key in found.settings if key.startswith("launcher.")]
    taken = config.applicable(running, new)
    assert taken.launcher == running.launcher
    more = replace(running, launcher=replace(running.launcher, cpus=5))
    assert config.applicable(running, more).launcher.cpus == 5
    assert config.diff(running, more).settings == ("launcher.cpus",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[program.Catch]\n", "config OK: 1 program, level light: 2 slots x 32 environments, batch 512"),
        (
            "[level]\nname = 'tiny'\nslots = 1\nnum_envs = 1\nbatch_size = 8\n[program.Catch]\n[program.Pong]\n",
            "config OK: 2 programs, level tiny: 1 slot x 1 environment, batch 8",
        ),
        (
            "[load]\nmode = 'fixed'\n[levels.a]\n[levels.b]\nslots = 3\n[program.Pong]\n",
            "config OK: 1 program, level a: 2 slots x 32 environments, batch 512",
        ),
        (
            "[levels.a]\n[levels.b]\nslots = 3\n[program.Pong]\n",
            "config OK: 1 program, level a: 2 slots x 32 environments, batch 512; climbs 2 levels up to b",
        ),
        (
            "[levels.a]\n[program.Pong]\n",
            "config OK: 1 program, level a: 2 slots x 32 environments, batch 512; there is no level to climb to",
        ),
    ],
)
def test_summary(place: Place, text: str, line: str) -> None:
    assert config.summary(place.settings(text)) == line


CLUSTER = '[launcher]\nkind = "slurm"\n[levels.light]\n[levels.light.launcher]\ncpus = 2\n'


@pytest.mark.parametrize(
    ("text", "digests"),
    [
        (
            "[level]\nthreads = 2\n[program.it]\ngame = 'Pong'\nlr = 0.5\nenv = { A = 'b' }\n",
            ("53ad0d168727bec7", "a1d3069bbca909ab"),
        ),
        ("[program.it]\ngame = 'Pong'\n", ("3fff46e3e5ce8d67", "e81a910df4b8101b")),
        pytest.param(f"{CLUSTER}[program.it]\ngame = 'Pong'\n", ("27083048deb3126c", "e81a910df4b8101b"), marks=SLURM),
        pytest.param(f"{CLUSTER}[program.it]\ncommand = 'sleep 1'\n", ("b667552c467ff21c", "a5d6f8bc8561bd73"), marks=SLURM),
        ("[program.it]\ncommand = 'sleep {num_envs} {seed} {name}'\nseed = 1\n", ("c3bb0fbbe64d8ec4", "52f595f96ef5a7e3")),
        ("[program.it]\ncommand = ['sleep', ['{resume}', '1']]\ndirectory = '/r/{name}'\n", ("743ae338567e1a89", "")),
        (
            "[program.it]\ncommand = 'sleep 1'\nkind = 'service'\nhealth = { tcp = 'h:1' }\numask = '022'\n",
            ("6bf58f99e46207e3", ""),
        ),
        (
            "[program.it]\ncommand = 'sleep 1'\ngpu = 1\nprogress = 'files'\nprogress_glob = 'a'\nstderr_log = '/x'\n",
            ("2cd824ebb61fd927", ""),
        ),
    ],
    ids=range(8),
)
def test_an_upgrade_computes_the_same_digests(place: Place, text: str, digests: tuple[str, str]) -> None:
    """Other digests would restart every program of this kind after an upgrade, although nothing of it has changed."""
    spec = place.program("it", text)
    assert (spec.digest, spec.own_digest) == digests


def differing(page: dict[str, Any]) -> dict[str, tuple[object, object]]:
    return {row["key"]: (row["value"], row["file"]) for row in page["settings"] if "file" in row}


@pytest.mark.parametrize(
    ("only", "waits", "differs"),
    [
        ((), (), {}),
        ((), ("daemon.log_level",), {"daemon.log_level": ("info", "debug")}),
        (("Qbert",), (), {"program.x.command": (["sleep", "1"], ["sleep", "2"]), "daemon.log_level": ("info", "debug"), 'program."x.y".seed': (1, 2)}),
        (("x",), (), {"program.Qbert.lr": (1e-4, 2e-4), "daemon.log_level": ("info", "debug"), 'program."x.y".seed': (1, 2)}),
        (("[daemon]", "x.y", "x"), (), {"program.Qbert.lr": (1e-4, 2e-4)}),
    ],
)  # fmt: skip
def test_config_shows_what_is_in_force_after_an_update_of_a_part(
    place: Place, only: tuple[str, ...], waits: tuple[str, ...], differs: dict[str, tuple[object, object]]
) -> None:
    base = BASE + '[program."x.y"]\ngame = "Pong"\nseed = 1\n'
    before = place.load(base)
    edited = base.replace("lr = 1e-4", "lr = 2e-4").replace("sleep 1", "sleep 2").replace("seed = 1", "seed = 2")
    after = place.load(edited + "[daemon]\nlog_level = 'debug'\n")
    loaded = config.merged(before, after, only, waits)
    page = config.listed(loaded, config.applicable(before.settings, loaded.settings), lambda: after)
    assert differing(page) == differs
    remedies = {row["key"]: row["remedy"] for row in page["settings"] if "file" in row}
    assert remedies == {key: "reload" if key == "daemon.log_level" else "update" for key in differs}, "what applies it"
    assert config.differences(loaded, after) == tuple(
        each for each in config.differences(before, after) if each[0] in differs
    ), "the next update reports only what is new"


def test_config_shows_programs_that_only_the_file_or_only_the_daemon_has(place: Place) -> None:
    before = place.load(BASE)
    after = place.load(BASE.replace("[program.x]", "[program.z]"))
    shown = differing(config.listed(before, before.settings, lambda: after))
    assert shown["program.x.command"] == (["sleep", "1"], None)
    assert shown["program.z.command"] == (None, ["sleep", "1"])
    others = tuple(spec for spec in before.settings.programs if spec.name != "Qbert")
    without = replace(before.settings, programs=others)
    found = config.listed(before, without, lambda: before)
    assert differing(found)["program.Qbert.lr"] == (None, 1e-4), "a program that an operator removed"


def test_a_file_that_cannot_be_used_is_named_beside_what_is_in_force(place: Place) -> None:
    loaded = place.load(BASE)

    def broken() -> config.Loaded:
        raise config.ConfigError(["line 3: no such key"])

    page = config.listed(loaded, loaded.settings, broken)
    assert page["errors"] == ["line 3: no such key"]
    assert differing(page) == {}
    assert {row["key"]: row["value"] for row in page["settings"]}["program.Qbert.lr"] == 1e-4
