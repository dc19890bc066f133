"""A program's name becomes a directory, a socket and a word on terminals: what could be taken for something else is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from config_kit import Place, plain_id

REFUSED = [
    "", ".", "..", "../x", "a/b", "/etc", "a\\b", "-x", "--help", ".hidden", "a b", "a\tb", "a\nb", "a\0b", "Pong:*", "Pong:Pong", "group:", "*",
    "P\u03bfng", "\u0420ong", "\uff30ong", "Pong\u200b", "\u202egnoP", "\x1b[2J", "\x9b31m", "é", "x" * 65, "x" * 5000, "a,b", "a=b", "$HOME", "`id`", "a;b", "%41", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED, ids=lambda name: plain_id(ascii(name)))
def test_a_name_that_could_mislead_refuses_the_whole_file(tmp_path: Path, name: str) -> None:
    key = json.dumps(name).replace("\x7f", "\\u007f")
    errors = Place(tmp_path).errors(f'[program.Pong]\n[program.{key}]\ncommand = "sleep 1"\n')
    assert len(errors) == 1
    assert errors[0].endswith(": a program's name is 1 to 64 letters, digits, _ . -, not beginning with . or -")
    assert errors[0].startswith("FILE, line 2: ")
    assert errors[0].isprintable()
    assert len(errors[0]) < 400


@pytest.mark.parametrize("name", ["a", "_x", "9", "Pong-2.best", "x" * 64, "a..b"])
def test_ordinary_names_are_taken(tmp_path: Path, name: str) -> None:
    assert Place(tmp_path).errors(f'[program.{json.dumps(name)}]\ncommand = "sleep 1"\n') == []


def test_all_is_everybody(tmp_path: Path) -> None:
    assert Place(tmp_path).errors('[program.all]\ncommand = "sleep 1"\n') == [
        "FILE, line 1: program.all: `all` means every program; choose another name"
    ]
