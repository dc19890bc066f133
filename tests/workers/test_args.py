"""The command line: one table, flags over environment over defaults, every mistake told at once."""

import os
import subprocess
import sys

import pytest
from tools import ROOT

from workers.args import BadArguments, make, parse
from workers.contract import EXIT_CONFIG
from workers.options import GAMES, OPTIONS


def mistakes(*argv, **environ):
    with pytest.raises(BadArguments) as caught:
        parse(argv, environ)
    return caught.value.errors


def test_every_option_can_be_set_by_flag_and_by_environment():
    texts = {int: "64", float: "0.25", bool: None, str: None}
    special = {"game": "Qbert", "algo": "dqn", "network": "small", "device": "cpu", "dtype": "bf16", "lr_scheduler": "cosine",
               "replay_size": "4096", "n_step": "5", "preset": "fast"}  # fmt: skip
    for option in OPTIONS.values():
        text = special.get(option.name) or texts[option.kind] or str(not option.default)
        by_flag = parse(["--program", "Pong", option.flag, text], {})
        by_environment = parse(["--program", "Pong"], {option.env_name: text})
        assert by_flag == by_environment
        assert getattr(by_flag, option.name) == option.parse(text)
        assert by_flag != parse(["--program", "Pong"], {}) or option.name == "algo"


def test_flags_win_over_the_environment_and_that_over_defaults():
    environ = {"RL_BATCH_SIZE": "64", "RL_GAMMA": "0.9", "EXTRALIFE_PROGRAM": "Breakout"}
    args = parse(["--batch-size=128"], environ)
    assert (args.game, args.batch_size, args.gamma, args.seed) == ("Breakout", 128, 0.9, 1)


def test_the_learning_rate_follows_the_batch_unless_given():
    assert make("Pong", batch_size=32).lr == 6.25e-5
    assert make("Pong", batch_size=128).lr == pytest.approx(1.25e-4)
    assert make("Pong", batch_size=4096).lr == 3e-4
    assert make("Pong", batch_size=4096, lr=0.01).lr == 0.01
    assert make("Pong", lr=0.0).lr == 0.0


def test_all_mistakes_come_at_once_each_with_a_sentence():
    errors = mistakes("--program", "pong2", "--num-envs", "many", "--lr", "7", "--batchsize", "32", "--batch-size", "100",
                      RL_GAMA="0.9", RL_SEED="-1")  # fmt: skip
    assert errors == (
        "--batchsize is not a flag; did you mean --batch-size?",
        "'32' is not expected here: every setting is a flag, such as --num-envs 32",
        "environment variable RL_GAMA is not a setting; did you mean RL_GAMMA?",
        "environment variable RL_SEED: seed must be at least 0, not -1",
        "--num-envs: num_envs must be a whole number, not 'many'",
        "--lr: lr must be at most 1, not 7.0",
        f"'pong2' is not one of the {len(GAMES)} Atari games; did you mean Pong?",
        "batch_size 100 does not divide by 8; the nearest that do are 96 and 104",
    )


def worker(*argv):
    command = [sys.executable, "-m", "workers", *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_a_mistake_costs_no_import_and_says_so_with_the_code_of_a_config_error():
    done = worker("--program", "Pongg", "--num-envs", "0")
    assert done.returncode == EXIT_CONFIG
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "workers: --num-envs: num_envs must be at least 1, not 0",
        f"workers: 'Pongg' is not one of the {len(GAMES)} Atari games; did you mean Pong?",
    ]
    loaded = "import sys; sys.argv[1:] = ['--bad']; import workers.__main__ as m; m.main(); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    assert "workers.args" in modules.stdout.split()
    assert not {"torch", "numpy", "envpool"} & set(modules.stdout.split())


def test_help_lists_every_setting_with_its_default():
    done = worker("--help")
    assert done.returncode == os.EX_OK
    text = " ".join(done.stdout.split())
    for option in OPTIONS.values():
        assert f" {option.flag} " in text
    for default in ("8.0", "0.99", "1000000", "by the batch", "no limit", "true", "32", "512"):
        assert f"(default: {default})" in text


@pytest.mark.parametrize(
    ("argv", "most", "wanted"),
    [
        ("--batch-size 512", "256", 256),
        ("--batch-size 128", "256", 128),  # it is a limit, not an order
        ("--algo ppo --num-envs 8 --n-steps 96 --batch-size 384", "192", 192),
        ("--algo ppo --num-envs 8 --n-steps 120 --batch-size 320", "160", 160),
        ("--algo pqn --num-envs 12 --n-steps 20 --batch-size 120", "56", 48),  # 56 does not divide 240
    ],
)
def test_a_batch_lowered_by_the_supervisor_still_fits(argv, most, wanted):
    assert parse(f"--program Pong {argv}".split(), {"EXTRALIFE_BATCH_SIZE": most}).batch_size == wanted


@pytest.mark.fault("memory-error")
@pytest.mark.parametrize(("most", "batch"), [("256", 256), ("512", 512), ("1024", 512), ("", 512), ("much", 512)])
def test_the_supervisor_may_ask_for_a_smaller_batch_and_never_for_a_larger(most, batch):
    made = parse(["--program", "Pong", "--batch-size", "512"], {"EXTRALIFE_BATCH_SIZE": most})
    assert made.batch_size == batch


@pytest.mark.fault("nan")
def test_each_roll_back_draws_other_chance_and_always_the_same():
    seeds = [parse(["--program", "Pong"], {"EXTRALIFE_ROLLBACKS": str(number)}).seed for number in (0, 1, 2, 1)]
    assert seeds[0] == 1
    assert len(set(seeds)) == 3
    assert seeds[1] == seeds[3]
    assert all(0 <= seed < 2**31 for seed in seeds)
