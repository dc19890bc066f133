"""What a shell would read in a command that no shell reads: which words, and which of them are operators."""

from __future__ import annotations

import pytest

from supervisor.config.shell_syntax import in_text, runs_shell


@pytest.mark.parametrize(
    ("text", "operators", "replaced"),
    [
        ("t a | b", ["|"], []),
        ("t && u || v & w ; x ;; y", ["&&", "||", "&", ";", ";;"], []),
        ("t 2>&1 >log >>log <in 2>err &>all (u)", ["2>&1", ">log", ">>log", "2>err", "&>all"], []),
        ("t > log < in", [">", "<"], []),
        ("t; u", ["t;"], []),
        ("t $HOME ${HOME} $(date) `date` $5 $", [], ["$HOME", "${HOME}", "$(date)", "`date`"]),
        ("t ~ ~/x --data=~/x a~b *.pt ?", [], ["~", "~/x", "--data=~/x", "*.pt", "?"]),
        ("t '|' \"|\" \\| '$HOME' \\$HOME", [], []),
        ('t "$HOME/x y" "`date`" "*.pt" "~/x"', [], ["$HOME/xy", "`date`"]),
        ("t 'a '$HOME\"b\"", [], ["$HOMEb"]),
        ("t \"it's $HOME\" '\"' $A", [], ["its$HOME", "$A"]),
        ("t 'a\\' | b", ["|"], []),
        ('t "a\\" | b"', [], []),
    ],
)
def test_a_command_that_is_one_string(text: str, operators: list[str], replaced: list[str]) -> None:
    assert in_text(text) == (operators, replaced)


@pytest.mark.parametrize(
    ("words", "is_shell"),
    [
        ("bash -c x", True),
        ("/bin/sh -ec x", True),
        ("zsh -o pipefail -c x", True),
        ("bash -o a -o -c", False),
        ("bash script.sh c", False),
        ("bash --rcfile x", False),
        ("python -c x", False),
        ("bash", False),
        ("", False),
    ],
)
def test_a_shell_that_reads_one_of_its_words(words: str, is_shell: bool) -> None:
    assert runs_shell(words.split()) is is_shell
