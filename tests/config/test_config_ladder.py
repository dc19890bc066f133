"""The ladder: [levels.NAME] and [load], checked whole, and every program as it is started at every level."""

import pytest
from config_kit import flags_of

from supervisor import config
from supervisor.config import cores, ladder
from supervisor.config.cores import usable_memory_mb
from supervisor.model.settings import Level

LADDER = """
[levels.light]
slots = 1
num_envs = 8
batch_size = 64
[levels.wide]
slots = 2
[levels.heavy]
slots = 2
num_envs = 16
batch_size = 128
threads = 3
[program.Pong]
[program.Breakout]
"""
CLIMB = '[load]\nmode = "climb"\n'
EIGHT_GAMES = "".join(
    f"[program.{game}]\n" for game in "Pong Breakout Qbert Seaquest Enduro Freeway Asteroids Alien".split()
)


def shapes(settings):
    return [(rung.level.name, rung.level.shape) for rung in settings.ladder]


def test_a_level_takes_over_what_the_one_before_says(place):
    settings = place.settings(LADDER)
    assert shapes(settings) == [("light", "1 x 8, batch 64"), ("wide", "2 x 8, batch 64"), ("heavy", "2 x 16, batch 128")]
    assert settings.climbs
    assert settings.level.name == settings.start == "light"
    assert "climbs 3 levels up to heavy" in config.summary(settings)


def test_every_program_is_made_for_every_level(place):
    settings = place.settings(LADDER)
    by_level = {rung.level.name: {spec.name: flags_of(spec) for spec in rung.programs} for rung in settings.ladder}
    assert by_level["light"]["Pong"]["--num-envs"] == "8"
    assert by_level["heavy"]["Pong"]["--num-envs"] == "16"
    assert by_level["heavy"]["Pong"]["--threads"] == "3"
    light, wide, heavy = (settings.at(name).programs[1] for name in ("light", "wide", "heavy"))
    assert light.digest == wide.digest != heavy.digest, "a level with more slots touches nothing that runs"
    assert light.own_digest == heavy.own_digest
    assert settings.at("nowhere") is settings
    assert settings.at("light") is settings


def test_without_levels_climbing_takes_the_built_in_ladder(place, monkeypatch):
    monkeypatch.setattr(ladder, "usable_cores", lambda: 4)
    settings = place.settings(CLIMB + EIGHT_GAMES)
    assert [rung.level.name for rung in settings.ladder] == ["light", "3x32", "medium", "5x64", "6x128", "heavy"]
    assert [bool(rung.veto) for rung in settings.ladder] == [False] * 3 + [True] * 3
    assert settings.ladder[-1].veto == "8 programs at once on 4 cores"
    monkeypatch.setattr(ladder, "usable_cores", lambda: 1)
    vetoes = [rung.veto for rung in place.settings(CLIMB + EIGHT_GAMES).ladder[:3]]
    assert vetoes == ["", "3 programs at once on 1 core", "4 programs at once on 1 core"]


@pytest.mark.parametrize(
    ("programs", "names"),
    [
        ("[program.Pong]\n", ["light", "medium", "6x128", "heavy"]),
        ("[program.Pong]\n[program.Qbert]\n", ["light", "medium", "6x128", "heavy"]),
        ("[program.Pong]\nseeds = [1, 2, 3]\n", ["light", "3x32", "medium", "6x128", "heavy"]),
        ('[program.a]\ncommand = ["true"]\n[program.b]\ncommand = ["true"]\n', ["light"]),
        ("[program.Pong]\nnum_envs = 8\nbatch_size = 64\n[program.Qbert]\nnum_envs = 8\nbatch_size = 64\n", ["light"]),
    ],
)
def test_a_built_in_level_that_is_no_heavier_for_these_programs_is_left_out(place, programs, names):
    loaded = place.load(CLIMB + programs)
    assert [rung.level.name for rung in loaded.settings.ladder] == names
    climbs = f"climbs {len(names)} levels up to {names[-1]}" if len(names) > 1 else "there is no level to climb to"
    assert config.summary(loaded.settings).endswith(f", level light: 2 slots x 32 environments, batch 512; {climbs}")
    assert {key.split(".")[1] for key in loaded.values if key.startswith(("levels.", 'levels."'))} == set(names)
    given = "[levels.a]\nslots = 1\n[levels.b]\nslots = 2\n[levels.c]\nslots = 3\n[program.Pong]\n"
    assert len(place.settings(given).ladder) == 3, "a ladder of the file stays whole"


def test_one_fixed_level_is_as_it_was(place):
    loaded = place.load("[level]\nslots = 3\n[program.Pong]\n")
    assert loaded.settings.ladder == ()
    assert not loaded.settings.climbs
    assert loaded.settings.start == "light"
    assert loaded.values["load.mode"] == "fixed"
    assert str(loaded.origins["load.mode"]) == "without [levels]"


def test_a_level_that_needs_more_memory_than_there_is_is_out_of_reach(place):
    settings = place.settings(LADDER.replace("threads = 3", "memory_mb = 90_000_000"))
    assert settings.ladder[-1].veto.startswith("2 x 90,000,000 MB of memory are more than the ")
    loaded = place.load("[level]\nslots = 2\nmemory_mb = 90_000_000\n[program.Pong]\n")
    assert loaded.warnings == (f"{place.file}, line 3: level.memory_mb: {ladder.memory_short(loaded.settings.level)}",)


@pytest.mark.parametrize(
    ("slots", "memory_mb", "has_mb", "veto"),
    [
        (2, 500, 1_000, ""),
        (2, 501, 1_000, "2 x 501 MB of memory are more than the 1,000 MB of this box"),
        (3, 334, 1_000, "3 x 334 MB of memory are more than the 1,000 MB of this box"),
        (1, 1_000, 1_000, ""),
        (3, 334, None, ""),
        (3, None, 1_000, ""),
    ],
)
def test_the_memory_of_a_level_is_that_of_all_its_programs(monkeypatch, slots, memory_mb, has_mb, veto):
    monkeypatch.setattr(ladder, "usable_memory_mb", lambda: has_mb)
    level = Level("light", slots=slots, memory_mb=memory_mb)
    assert ladder.memory_short(level) == veto
    assert ladder.veto(level, built_in=False) == veto


def test_how_much_memory_there_is(tmp_path, monkeypatch):
    whole = usable_memory_mb(tmp_path / "none")
    assert whole is not None
    limit = tmp_path / "sys/fs/cgroup/memory.max"
    limit.parent.mkdir(parents=True)
    limit.write_text("max\n")
    assert usable_memory_mb(tmp_path) == whole
    limit.write_text("5000000\n")
    assert usable_memory_mb(tmp_path) == 5
    limit.write_text("1" + "0" * 30)
    assert usable_memory_mb(tmp_path) == whole, "a limit beyond what there is"
    monkeypatch.setattr(cores.os, "sysconf", lambda name: 2_000_000 if "PHYS" in name else 4096)
    assert usable_memory_mb(tmp_path / "none") == 8192
    for pages in (-1, 0):
        monkeypatch.setattr(cores.os, "sysconf", lambda name, pages=pages: pages if "PHYS" in name else 4096)
        assert usable_memory_mb(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[levels.a]\nslots = 3\n[levels.b]\n",
            "FILE, line 3: levels.b is the same load as a before it (3 x 32, batch 512); remove one of the two",
        ),
        (
            f"[levels.{'x' * 33}]\n",
            f"FILE, line 1: levels.{'x' * 33}: a level's name is one word of up to 32 letters, digits, _ . -",
        ),
        (
            "[levels.a]\nx = 3\n",
            "FILE, line 2: levels.a.x is not a setting; a level has slots, num_envs, batch_size, threads, memory_mb",
        ),
        ("[levels]\na = 3\n", "FILE, line 2: levels.a must be a section, [levels.a], not 3"),
        ("[levels]\n", "FILE, line 1: levels holds no level; add sections such as [levels.light], or remove it"),
        (
            "[level]\n[levels.a]\n",
            "FILE, line 1: level: one fixed level makes no sense with [levels]; remove one of the two",
        ),
        (
            '[load]\nmode = "climb"\n[level]\n',
            'FILE, line 3: level: one fixed level makes no sense with mode = "climb" in [load]; remove one of the two',
        ),
        ('[load]\nstart = "lite"\n[levels.light]\n', "FILE, line 2: load.start 'lite' is not a level; did you mean light?"),
        ('[load]\nstart = "zzz"\n[levels.light]\n', "FILE, line 2: load.start 'zzz' is not a level; there are light"),
        ('[load]\nstart = "light"\n', "FILE, line 2: load.start names a level of [levels], and there is none; remove it"),
        (
            "[levels.a]\nnum_envs = 32\nbatch_size = 9\n",
            "FILE, line 3: batch_size 9 does not divide by 8; the nearest that do are 8 and 16",
        ),
        (
            "[load]\ncool_s = 100\ncool_max_s = 10\n",
            "FILE, line 2: load.cool_s, 100, is more than load.cool_max_s, 10; lower the first or raise the second",
        ),
    ],
)
def test_a_ladder_that_is_none_is_refused(place, text, told):
    assert place.errors(text + "[program.Pong]\n") == [told]


def test_all_that_is_wrong_is_reported_at_once(place):
    told = place.errors("[levels.a]\nslots = 3\n[levels.b]\nslots = 1\nnum_envs = 8\nbatch = 3\n[program.Pong]\n")
    order = "and a level is at least as heavy as the one before in every respect; raise it, or move the section"
    assert told == [
        "FILE, line 6: levels.b.batch is not a setting; did you mean batch_size?",
        f"FILE, line 4: levels.b: slots 1 is less than the 3 of a before it, {order}",
        f"FILE, line 5: levels.b: num_envs 8 is less than the 32 of a before it, {order}",
    ]


def test_the_environment_overrides_every_level(place):
    loaded = place.load(LADDER, {"RL_NUM_ENVS": "24"})
    assert {rung.level.num_envs for rung in loaded.settings.ladder} == {24}
    assert loaded.warnings == (
        "environment variable RL_NUM_ENVS: overrides num_envs of every level, so its values in [levels] have no effect",
    )
    told = place.errors(LADDER, slots=3)
    assert told == ["flag --slots: is for a fixed [level], and this file has a ladder; set it in [levels.NAME]"]


def test_an_update_names_the_levels_that_it_changes(place):
    old = place.settings(LADDER)
    new = place.settings(LADDER.replace("threads = 3", "threads = 2").replace("[levels.wide]\nslots = 2", ""))
    assert config.diff(old, new).settings == ("levels.heavy", "levels.wide")
    assert config.diff(old, new).sections == ("[levels]",)
    assert config.diff(old, old).settings == ()
    swapped = (
        LADDER.replace("levels.wide", "levels.x").replace("levels.light", "levels.wide").replace("levels.x", "levels.light")
    )
    assert set(config.diff(old, place.settings(swapped)).settings) == {"levels.light", "levels.wide", "levels.heavy"}
    assert config.diff(old.at("heavy"), old).changed == (), "what runs at heavy is compared with what would run there"
