"""Placeholders: every rule of the table, and that no text is ever lost or read as anything else."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.script.placeholders import (
    NAMES,
    OF_LEVEL,
    Template,
    escaped,
    fill,
    fill_environment,
    fill_words,
    for_attempt,
    pieces,
    uses,
    variable,
)
from workers import contract

VALUES = {
    "num_envs": "32", "batch_size": "512", "threads": "4", "level": "light", "seed": "7", "game": "Pong", "name": "Pong-s7",
    "run_dir": "/s/programs/Pong-s7", "gpu": "0", "resume": "/s/my ckpt/9;x",
}  # fmt: skip
FRESH = VALUES | {"resume": ""}

FILLED = [
    ("plain", "plain"),
    ("{num_envs}", "32"),
    ("--n={num_envs},{batch_size}", "--n=32,512"),
    ("{{seed}}", "{seed}"),
    ("{{{seed}}}", "{7}"),
    ('{{"lr": {{"a": {seed}}}}}', '{"lr": {"a": 7}}'),
    ("${HOME}/{name}", "${HOME}/Pong-s7"),
    ("${x:-1}${#x}${x[@]}", "${x:-1}${#x}${x[@]}"),
    ("${{seed}}", "${seed}"),
    ("$HOME $$ $1", "$HOME $$ $1"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "wanted"), FILLED)
def test_a_text_is_filled_in(text, wanted):
    assert fill(text, VALUES) == wanted


WRONG = {
    "{num_env}": "{num_env} is no placeholder; did you mean {num_envs}? {{ and }} are braces that stay",
    "{NUM_ENVS}": "{NUM_ENVS} is no placeholder; did you mean {num_envs}? {{ and }} are braces that stay",
    "{zzz}": f"{{zzz}} is no placeholder; there are {', '.join(NAMES)}; {{{{ and }}}} are braces that stay",
    "{a{seed}}": "placeholders cannot be nested in '{a{seed}}'; {{ and }} are braces that stay",
    "x {seed": "{ alone is no placeholder in 'x {seed'; {{ and }} are braces that stay",
    "seed}": "} alone is no placeholder in 'seed}'; {{ and }} are braces that stay",
    "{}": "{ alone is no placeholder in '{}'; {{ and }} are braces that stay",
    "{print $1}": "{ alone is no placeholder in '{print $1}'; {{ and }} are braces that stay",
    "{seed:3d}": "{ alone is no placeholder in '{seed:3d}'; {{ and }} are braces that stay",
    "${seed}": "${seed} is the shell's, which has no such variable; write {seed} without the $",
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.items())
def test_what_is_no_placeholder_is_refused(text, sentence):
    with pytest.raises(ValueError, match=r"placeholder|shell") as refused:
        pieces(text)
    assert str(refused.value) == sentence


TRAIN = ("train.py", "--num-envs", "{num_envs}")
COMMANDS = [
    (TRAIN, (), VALUES, ("train.py", "--num-envs", "32")),
    ((*TRAIN, "--resume={resume}"), (), VALUES, ("train.py", "--num-envs", "32", "--resume=/s/my ckpt/9;x")),
    ((*TRAIN, "--resume={resume}"), (), FRESH, ("train.py", "--num-envs", "32")),
    ((*TRAIN, "--resume", "{resume}", "-v"), ((3, 5),), FRESH, ("train.py", "--num-envs", "32", "-v")),
    (("a", "--resume", "{resume}", "-v"), ((1, 3),), VALUES, ("a", "--resume", "/s/my ckpt/9;x", "-v")),
    (("a", "-x", "{seed}", "-r", "{resume}"), ((1, 3), (3, 5)), FRESH, ("a", "-x", "7")),
    (("a", "", "b"), (), FRESH, ("a", "", "b")),  # a word that is meant to be empty stays
]


@pytest.mark.parametrize(("words", "groups", "values", "wanted"), COMMANDS)
def test_a_command_is_filled_in(words, groups, values, wanted):
    assert fill_words(words, Template(groups=groups), values) == wanted


def test_a_shell_never_reads_a_value_as_syntax():
    line = 'echo {name} "{resume}" {level}'
    words = fill_words(("/bin/sh", "-c", line), Template(shell=True), VALUES)
    assert words == ("/bin/sh", "-c", 'echo Pong-s7 "${EXTRALIFE_RESUME}" light')
    environment = dict(fill_environment((), VALUES | {"resume": "$(echo pwned) `id` a'b\"c"}))
    words = fill_words(("/bin/sh", "-c", line), Template(shell=True), VALUES | {"resume": "$(echo pwned) `id` a'b\"c"})
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "Pong-s7 $(echo pwned) `id` a'b\"c light\n"
    assert fill_words(("sh", "-c", "x {resume}"), Template(shell=True), FRESH) == ("sh", "-c", "x ")


def test_the_environment_holds_every_value_beside_its_own():
    found = dict(fill_environment((("WANDB_NAME", "{name}-{level}"), ("JSON", "{{}}")), VALUES))
    assert (found.pop("WANDB_NAME"), found.pop("JSON")) == ("Pong-s7-light", "{}")
    assert found == {variable(name): value for name, value in VALUES.items()}
    assert set(found) == set(contract.PLACEHOLDER_ENV), "the contract names the same variables"


def test_what_a_text_uses():
    assert uses(["{seed} {num_envs}", "${HOME} {{gpu}}", "{seed}"]) == {"seed", "num_envs"}
    assert set(OF_LEVEL) < set(NAMES)


CONFIGURED = Template((("batch_size", "512"), ("gpu", "0"), ("seed", "1")), ((1, 2),), shell=True)


@pytest.mark.parametrize(
    ("batch_size", "rollbacks", "resume", "changed"),
    [
        (None, 0, None, {}),
        (256, 0, None, {"batch_size": "256"}),
        (1024, 0, None, {}),  # lowered at a level that the file has changed since
        (None, 2, None, {"seed": str(contract.seed_after(1, 2))}),
        (None, 0, "", {"resume": ""}),
        (64, 1, "/c/9", {"batch_size": "64", "seed": str(contract.seed_after(1, 1)), "resume": "/c/9"}),
    ],
)
def test_an_attempt_has_values_of_its_own(batch_size, rollbacks, resume, changed):
    made = for_attempt(CONFIGURED, batch_size=batch_size, rollbacks=rollbacks, resume=resume)
    assert dict(made.values) == dict(CONFIGURED.values) | changed
    assert (made.groups, made.shell) == (CONFIGURED.groups, True)


def test_an_attempt_gets_no_value_that_its_program_does_not_use():
    assert for_attempt(Template(), batch_size=64, rollbacks=3, resume=None) == Template()


TEXTS = st.text(alphabet=st.sampled_from("{}$ab_{}seed num_envs'\"\\\n é"), max_size=40)


@given(TEXTS)
def test_an_escaped_text_arrives_as_it_is(text):
    assert fill(escaped(text), {}) == text


@given(TEXTS)
def test_any_text_is_filled_in_or_refused_in_one_sentence(text):
    found, told = (), ""
    try:
        found = pieces(text)
    except ValueError as error:
        told = str(error)
    if told:
        assert len(told) < 300
        assert "\n" not in told
        return
    assert all(name in ("", *NAMES) for _, name in found)
    filled = fill(text, VALUES)
    assert "{" in text or "}" in text or filled == text
    assert filled == "".join(literal + VALUES.get(name, "") for literal, name in found)


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_a_value_of_any_kind_is_one_word_of_a_shell_in_quotation_marks(value):
    words = fill_words(("sh", "-c", 'x "{resume}"'), Template(shell=True), {"resume": value})
    last = shlex.split(words[-1])
    assert last == ["x", "${EXTRALIFE_RESUME}"] or last == ["x", value]
