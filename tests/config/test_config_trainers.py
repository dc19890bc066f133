"""What the daemon makes of presets, automatic sizes and seeds: each with its origin, each mistake with its sentence."""

from __future__ import annotations

import pytest
from config_kit import Place, flags_of, plain_id

from supervisor.config.changes import diff

PONG = "[program.Pong]\n"
LEVEL = '[level]\nname = "heavy"\nnum_envs = 24\nbatch_size = 504\n'


def test_a_preset_counts_more_than_the_level_and_less_than_what_is_given(place: Place) -> None:
    text = f'{LEVEL}[training]\nepochs = 4\n{PONG}preset = "heavy"\nn_steps = 512\n'
    loaded = place.load(text, {"RL_TARGET_KL": "0.5"})
    wanted = {
        "algo": ("ppo", "preset heavy"), "num_envs": (32, "preset heavy"), "batch_size": (4096, "preset heavy"),
        "epochs": (4, "FILE:6"), "n_steps": (512, "FILE:9"), "target_kl": (0.5, "environment RL_TARGET_KL"),
    }  # fmt: skip
    for key, (value, origin) in wanted.items():
        name = f"program.Pong.{key}"
        found = str(loaded.origins[name]).replace(str(place.file), "FILE")
        assert (loaded.values[name], found) == (value, origin)
    spec = loaded.settings.program("Pong")
    assert spec is not None
    assert (spec.num_envs, spec.batch_size) == (32, 4096)
    assert flags_of(spec)["--preset"] == "heavy"
    assert {flags_of(spec)[flag] for flag in ("--epochs", "--algo")} == {"4", "ppo"}


@pytest.mark.parametrize(
    ("keys", "environ", "batch", "origin"),
    [
        ('algo = "ppo"\nn_steps = 100\nbatch_size = "auto"\n', {}, 480, "auto, at most 504 (FILE:8)"),
        ('algo = "ppo"\nn_steps = 100\n', {"RL_BATCH_SIZE": "auto"}, 480, "auto, at most 504 (environment RL_BATCH_SIZE)"),
        ('preset = "fast"\nnum_envs = 10\nbatch_size = "auto"\n', {}, 1280, "auto, at most 2048 (FILE:8)"),
        ('batch_size = "auto"\n', {}, 504, "auto, at most 504 (FILE:6)"),
        ('algo = "auto"\n', {}, 504, "FILE:4"),
    ],
)  # fmt: skip
def test_an_automatic_batch(place: Place, keys: str, environ: dict[str, str], batch: int, origin: str) -> None:
    loaded = place.load(LEVEL + PONG + keys, environ)
    assert loaded.values["program.Pong.batch_size"] == batch
    assert str(loaded.origins["program.Pong.batch_size"]).replace(str(place.file), "FILE") == origin
    spec = loaded.settings.program("Pong")
    assert spec is not None
    assert flags_of(spec)["--batch-size"] == str(spec.batch_size) == str(batch)


def test_each_seed_is_a_program_of_its_own(place: Place) -> None:
    loaded = place.load(PONG + 'seeds = [4, 6, 8]\nlr = 1e-4\n[program.mine]\ngame = "Qbert"\nseeds = [0]\n')
    specs = {spec.name: spec for spec in loaded.settings.programs}
    assert list(specs) == ["Pong-s4", "Pong-s6", "Pong-s8", "mine-s0"]
    assert {name: (flags_of(spec)["--seed"], spec.game) for name, spec in specs.items()} == {
        "Pong-s4": ("4", "Pong"), "Pong-s6": ("6", "Pong"), "Pong-s8": ("8", "Pong"), "mine-s0": ("0", "Qbert"),
    }  # fmt: skip
    assert len({spec.digest for spec in specs.values()}) == 4
    assert [spec.group for spec in specs.values()] == ["Pong", "Pong", "Pong", "mine"]
    assert loaded.values["program.Pong.seeds"] == [4, 6, 8]
    assert loaded.origins["program.Pong-s6.seed"].line == loaded.origins["program.Pong.seeds"].line == 2
    assert loaded.origins["program.Pong-s6.lr"].line == 3
    assert loaded.values["program.Pong-s8.lr"] == 1e-4


def test_a_seed_more_or_less_touches_no_other(place: Place) -> None:
    changes = diff(place.settings(PONG + "seeds = [4, 6]\n"), place.settings(PONG + "seeds = [4, 8]\n"))
    assert (changes.added, changes.changed, changes.removed, changes.live) == (("Pong-s8",), (), ("Pong-s6",), ())


def test_a_level_changes_the_whole_digest_and_not_the_programs_own(place: Place) -> None:
    heavy = place.program("Pong", LEVEL + PONG + 'batch_size = "auto"\n')
    light = place.program("Pong", PONG + 'batch_size = "auto"\n')
    assert heavy.digest != light.digest
    assert heavy.own_digest == light.own_digest != ""
    assert place.program("Pong", PONG + "batch_size = 64\n").own_digest != light.own_digest
    assert place.program("Pong", PONG + 'batch_size = "auto"\nlr = 0.1\n').own_digest != light.own_digest


S = "FILE, line 2: program.Pong.seeds"
MISTAKES = {
    "seeds = []\n": f"{S} must be a list of seeds, such as seeds = [4, 6, 8], not []",
    "seeds = [4, -1]\n": f"{S} must hold whole numbers from 0 to 2147483647, such as seeds = [4, 6, 8], not -1",
    "seeds = [4, 6, 4]\n": f"{S} holds 4 twice: two equal trainings give the same result; remove one",
    "seeds = [4]\nseed = 5\n": f"{S} and seed cannot both be given; put that seed into the list",
    "seeds = [4]\n[program.Pong-s4]\ngame = 'Pong'\n": (
        f"{S} makes a program Pong-s4, and there is a section of that name; rename one of the two"
    ),
    f"seeds = {list(range(1001))}\n": f"{S} holds 1001 seeds, but one game may have at most 1000 programs; remove some",
    "preset = 'beest'\n": (
        "FILE, line 2: program.Pong.preset must be one of fast, heavy, beast, not 'beest'; did you mean beast?"
    ),
    "preset = 'beast'\nalgo = 'dqn'\n": (
        "FILE, line 2: preset beast is for ppo, not for dqn; leave out preset or algo"
    ),
    "algo = 'ppo'\nn_steps = 100\nnum_envs = 8\nbatch_size = 240\n": (
        "FILE, line 5: batch_size 240 does not divide the 800 steps of a rollout (8 environments x 100); "
        "the nearest that do are 200 and 400"
    ),
    "fallback_batch = 100\n": "FILE, line 2: fallback_batch 100 does not divide by 8; the nearest that do are 96 and 104",
}  # fmt: skip


@pytest.mark.parametrize(("keys", "sentence"), MISTAKES.items(), ids=lambda text: plain_id(text[:30]))
def test_one_sentence(place: Place, keys: str, sentence: str) -> None:
    assert place.errors(PONG + keys) == [sentence]
