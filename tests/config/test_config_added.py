"""Programs that were added beside the configuration file: those of the file win, and a bad one costs only itself."""

import os
from pathlib import Path

import pytest
from config_kit import Place

from supervisor.config import added

PONG = "[program.Pong]\n"


def add(place: Place, name: str, text: str) -> str:
    path = place.directory / "state" / "added" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_of_two_with_the_same_name_the_one_in_the_file_wins(place):
    path = add(place, "Pong", "[program.Pong]\npriority = 1\n")
    loaded = place.load(PONG)
    assert [spec.priority for spec in loaded.settings.programs] == [place.program("Pong", PONG).priority]
    assert loaded.warnings == (
        f"{path}: left out, because {place.file} has a program of that name; `extralifectl remove Pong`",
    )


def test_a_file_that_cannot_be_read_costs_its_own_program(place):
    wrong = add(place, "Asterix", "[program.Breakout]\n")
    large = add(place, "Breakout", "[program.Breakout]\n" + "#" * (1 << 18))
    add(place, "Qbert", "[program.Qbert]\n")
    loaded = place.load(PONG)
    assert [spec.name for spec in loaded.settings.programs] == ["Pong", "Qbert"]
    assert loaded.warnings == (
        f"{wrong}: left out: it is not the section [program.Asterix]; add the program again with `extralifectl run`",
        f"{large}: left out: it is too large for a section; add the program again with `extralifectl run`",
    )


def test_the_added_sections_follow_the_text_of_the_file(place):
    path = add(place, "Qbert", "[program.Qbert]\nlr = 1e-4\n\n\n")
    add(place, "Enduro", "[program.Enduro]\n\n")
    (place.directory / "state" / "added" / "Breakout.txt").write_text("[program.Breakout]\n")
    loaded = place.load(PONG)
    assert loaded.given.text == "[program.Pong]\n\n[program.Enduro]\n\n[program.Qbert]\nlr = 1e-4\n\n\n"
    assert (str(loaded.origins["program.Qbert.lr"]), loaded.warnings) == (path, ())
    assert added.path_of(loaded.settings.paths.state_dir, "Qbert") == Path(path)


NOT_IT = "it is not the section [program.Asterix]"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", NOT_IT),
        (b"program = 3\n", NOT_IT),
        (b"[program]\n", NOT_IT),
        (b"[program.Asterix]\n[program.Qbert]\n", NOT_IT),
        (b"[program.Asterix]\n[level]\nslots = 1\n", NOT_IT),
        (b"[program.Asterix", "Expected ']' at the end of a table declaration (at end of document)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_anything_but_one_section_of_that_name_is_left_out(place, text, why):
    path = Path(add(place, "Asterix", ""))
    path.write_bytes(text)
    loaded = place.load(PONG)
    assert (loaded.given.text, [spec.name for spec in loaded.settings.programs]) == (PONG, ["Pong"])
    assert loaded.warnings == (f"{path}: left out: {why}; add the program again with `extralifectl run`",)


def test_neither_a_link_nor_a_fifo_is_followed_or_waited_for(place):
    path = Path(add(place, "Asterix", ""))
    path.unlink()
    path.symlink_to(add(place, "Qbert", "[program.Asterix]\n"))
    fifo = path.with_name("Breakout.toml")
    os.mkfifo(fifo)
    told = [warning.partition(": left out: ")[2].partition(";")[0] for warning in place.load(PONG).warnings]
    assert told == [
        f"[Errno 40] Too many levels of symbolic links: '{path}'",
        f"[Errno 22] a FIFO, not a regular file: '{fifo}'",
        "it is not the section [program.Qbert]",
    ]
