"""The keys of a command about checkpoints that it writes itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_kit import Place

from supervisor import config

HEAD = '[program.mine]\ncommand = ["true"]\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_of_them(place: Place) -> None:
    text = (
        f"{HEAD}checkpoint_glob = 'runs/**/*.ckpt'\ncheckpoint_step = 'step=(\\d+)'\n"
        "checkpoint_check = 'python check.py --fast'\ncheckpoint_check_timeout_s = 5\n"
    )
    spec = place.program("mine", text)
    assert (spec.checkpoint_glob, spec.checkpoint_step) == ("runs/**/*.ckpt", r"step=(\d+)")
    assert (spec.checkpoint_check, spec.checkpoint_check_timeout_s) == (("python", "check.py", "--fast"), 5.0)
    assert spec.digest == place.program("mine", HEAD).digest, "it is looked at otherwise, and runs as it did"


@pytest.mark.parametrize("glob", ["*.pt", "/data/*.pt", "a/**/b", "./ckpt", "checkpoint-*"])
def test_patterns(place: Place, glob: str) -> None:
    spec = place.program("mine", f"{HEAD}checkpoint_glob = '{glob}'\ncheckpoint_check = ['a', 'b']\n")
    assert (spec.checkpoint_glob, spec.checkpoint_check) == (glob, ("a", "b"))
    assert spec.checkpoint_check_timeout_s == 60.0


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("checkpoint_glob = ''", 'checkpoint_glob needs a pattern such as "checkpoints/*.pt"'),
        ("checkpoint_glob = './/'", 'checkpoint_glob needs a pattern such as "checkpoints/*.pt"'),
        ("checkpoint_glob = 7", "checkpoint_glob must be a string without NUL, not 7"),
        ('checkpoint_glob = "a\\u0000"', "checkpoint_glob must be a string without NUL, not 'a\\x00'"),
        (
            "checkpoint_glob = '../*.pt'",
            "checkpoint_glob must not hold \"..\", as '../*.pt' does; begin it with / to name another directory",
        ),
        (
            "checkpoint_glob = '~/a/*.pt'",
            "checkpoint_glob is relative to the directory, and ~ is an ordinary name there; write the path in '~/a/*.pt' out",
        ),
        (
            "checkpoint_glob = 'runs/**'",
            'checkpoint_glob may hold ** once, as a directory of its own and not at the end, such as "runs/**/*.ckpt"',
        ),
        (
            "checkpoint_glob = 'a/**/b/**/c'",
            'checkpoint_glob may hold ** once, as a directory of its own and not at the end, such as "runs/**/*.ckpt"',
        ),
        (
            "checkpoint_glob = 'a/b**/c'",
            'checkpoint_glob may hold ** once, as a directory of its own and not at the end, such as "runs/**/*.ckpt"',
        ),
        (f"checkpoint_glob = '{'a/' * 17}b'", "checkpoint_glob has 18 directories, at most 16 are looked through"),
        (
            "checkpoint_step = '(x)'",
            'checkpoint_step: has no effect without checkpoint_glob; set it such as "checkpoints/*.pt", or remove this',
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_step = 'x'",
            "checkpoint_step has no group for the number; write it in parentheses, such as step=(\\d+)",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_step = '(x+)+'",
            "checkpoint_step repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)",
        ),
        ("checkpoint_glob = 'a'\ncheckpoint_step = 7", "checkpoint_step must be a string without NUL, not 7"),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = 7",
            'checkpoint_check must be a string or a list of strings, such as ["python", "check.py"], not 7',
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = []",
            'checkpoint_check names no program; write it such as ["python", "check.py"]: the path is added at its end',
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = [7]",
            'checkpoint_check must be a string or a list of strings, such as ["python", "check.py"], not [7]',
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = 'a \"'",
            "checkpoint_check cannot be split into words: No closing quotation; close the quotation or give a list of strings",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check_timeout_s = 5",
            "checkpoint_check_timeout_s has no effect without checkpoint_check; set that, or remove this",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = 'a'\ncheckpoint_check_timeout_s = 0",
            "checkpoint_check_timeout_s must be a number of seconds, more than 0, not 0",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = 'a'\ncheckpoint_check_timeout_s = true",
            "checkpoint_check_timeout_s must be a number of seconds, more than 0, not True",
        ),
        ("kind = 'service'\ncheckpoint_glob = 'a'", "checkpoint_glob: a service has no checkpoints; remove it, or the kind"),
        ("checkpoint_globs = 'a'", "checkpoint_globs is not a setting; did you mean checkpoint_glob?"),
    ],
)
def test_mistakes(place: Place, lines: str, sentence: str) -> None:
    (error,) = place.errors(HEAD + lines)
    assert error.partition(": ")[2] == f"program.mine.{sentence}"
    assert error.startswith(f"FILE, line {3 + lines.count(chr(10))}: "), "the last line is the mistake"


def test_a_built_in_game_has_its_own(place: Place) -> None:
    (error,) = place.errors("[program.Pong]\ncheckpoint_glob = 'a'")
    assert error == (
        "FILE, line 2: program.Pong.checkpoint_glob is for a program with a command; set command, or remove checkpoint_glob"
    )


def test_config_shows_where_each_came_from(place: Place) -> None:
    loaded = place.load(f"{HEAD}checkpoint_glob = '*.pt'\n")
    assert loaded.values["program.mine.checkpoint_glob"] == "*.pt"
    assert str(loaded.origins["program.mine.checkpoint_glob"]).endswith("extralife.toml:3")
    assert loaded.values["program.mine.checkpoint_step"] == ""
    assert str(loaded.origins["program.mine.checkpoint_step"]) == "default"


def test_config_shows_them_by_program_each_with_its_place(place: Place) -> None:
    loaded = place.load('[program.x]\ncommand = "sleep 1"\ncheckpoint_glob = "*.pt"\n')
    shown = {key: (value, str(origin)) for key, value, origin in config.explain(loaded) if ".checkpoint_" in key}
    assert shown["program.x.checkpoint_glob"] == ("*.pt", f"{place.file}:3")
    assert {key.rpartition(".")[0] for key in shown} == {"program.x"}
