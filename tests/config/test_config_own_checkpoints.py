"""The keys of a command about checkpoints that it writes itself."""

from __future__ import annotations

import pytest
from config_kit import Place

HEAD = '[program.mine]\ncommand = ["true"]\n'


def test_all_of_them(place: Place) -> None:
    text = (
        f"{HEAD}checkpoint_glob = 'runs/**/*.ckpt'\ncheckpoint_step = 'step=(\\d+)'\n"
        "checkpoint_check = 'python check.py --fast'\ncheckpoint_check_timeout_s = 5\n"
    )
    spec = place.program("mine", text)
    assert (spec.checkpoint_glob, spec.checkpoint_step) == ("runs/**/*.ckpt", r"step=(\d+)")
    assert (spec.checkpoint_check, spec.checkpoint_check_timeout_s) == (("python", "check.py", "--fast"), 5.0)
    assert spec.digest == place.program("mine", HEAD).digest, "it is looked at otherwise, and runs as it did"


def test_the_borders_of_what_is_allowed(place: Place) -> None:
    glob = "a/" * 15 + "*.pt"
    keys = f"checkpoint_glob = '{glob}'\ncheckpoint_check = 'a'\n"
    for given in (31_622_400, 31_622_400.0, 0.001):
        spec = place.program("mine", f"{HEAD}{keys}checkpoint_check_timeout_s = {given}\n")
        assert (spec.checkpoint_glob, spec.checkpoint_check_timeout_s) == (glob, float(given))
    wrong = {"31_622_401": "at most 3.16224e+07, not 31622401.0", "-1": "at least 0, not -1.0", "'5'": "a number, not '5'"}
    for given, said in wrong.items():
        (error,) = place.errors(f"{HEAD}{keys}checkpoint_check_timeout_s = {given}\n")
        assert error == f"FILE, line 5: program.mine.checkpoint_check_timeout_s must be {said}"


def test_each_key_that_has_no_effect_is_a_mistake_of_its_own(place: Place) -> None:
    keys = {"checkpoint_step": "'s=(x)'", "checkpoint_check": "'a'", "checkpoint_check_timeout_s": "5"}
    text = "".join(f"{key} = {value}\n" for key, value in keys.items())
    alone = 'has no effect without checkpoint_glob; set it such as "checkpoints/*.pt", or remove this'
    assert place.errors(HEAD + text) == [
        f"FILE, line {line}: program.mine.{key}: {alone}" for line, key in enumerate(keys, 3)
    ]
    service = "a service has no checkpoints; remove it, or the kind"
    assert place.errors(f"{HEAD}kind = 'service'\ncheckpoint_glob = 'a'\n{text}") == [
        f"FILE, line {line}: program.mine.{key}: {service}" for line, key in enumerate(["checkpoint_glob", *keys], 4)
    ]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("checkpoint_glob = ''", 'checkpoint_glob needs a pattern such as "checkpoints/*.pt"'),
        ("checkpoint_glob = 7", "checkpoint_glob must be a string, not 7"),
        ('checkpoint_glob = "a\\u0000"', "checkpoint_glob must not hold a NUL character"),
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
        (f"checkpoint_glob = '{'a/' * 17}b'", "checkpoint_glob has 18 directories, at most 16 are looked through"),
        (
            "checkpoint_glob = 'a'\ncheckpoint_step = 'x'",
            "checkpoint_step has no group for the number; write it in parentheses, such as step=(\\d+)",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_step = '(x+)+'",
            "checkpoint_step repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check_timeout_s = 5",
            "checkpoint_check_timeout_s has no effect without checkpoint_check; set that, or remove this",
        ),
        (
            "checkpoint_glob = 'a'\ncheckpoint_check = 'a'\ncheckpoint_check_timeout_s = 0",
            "checkpoint_check_timeout_s must be more than 0",
        ),
    ],
)
def test_mistakes(place: Place, lines: str, sentence: str) -> None:
    (error,) = place.errors(HEAD + lines)
    assert error.partition(": ")[2] == f"program.mine.{sentence}"
    assert error.startswith(f"FILE, line {3 + lines.count(chr(10))}: "), "the last line is the mistake"
