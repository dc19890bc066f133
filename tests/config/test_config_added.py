"""Programs that were added beside the configuration file: those of the file win, and a bad one costs only itself."""

import pytest
from config_kit import Place

PONG = "[program.Pong]\n"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def add(place: Place, name: str, text: str) -> str:
    path = place.directory / "state" / "added" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_an_added_program_joins_those_of_the_file(place):
    add(place, "Qbert", "[program.Qbert]\n")
    loaded = place.load(PONG)
    assert [spec.name for spec in loaded.settings.programs] == ["Pong", "Qbert"]
    assert loaded.warnings == ()


def test_of_two_with_the_same_name_the_one_in_the_file_wins(place):
    path = add(place, "Pong", "[program.Pong]\npriority = 1\n")
    loaded = place.load(PONG)
    assert [spec.priority for spec in loaded.settings.programs] == [place.program("Pong", PONG).priority]
    assert loaded.warnings == (
        f"{path}: left out, because {place.file} has a program of that name; `supervisorctl remove Pong`",
    )


def test_a_file_that_cannot_be_read_costs_its_own_program(place):
    wrong = add(place, "Asterix", "[program.Breakout]\n")
    large = add(place, "Breakout", "[program.Breakout]\n" + "#" * (1 << 18))
    add(place, "Qbert", "[program.Qbert]\n")
    loaded = place.load(PONG)
    assert [spec.name for spec in loaded.settings.programs] == ["Pong", "Qbert"]
    assert loaded.warnings == (
        f"{wrong}: left out: it is not the section [program.Asterix]; add the program again with `supervisorctl run`",
        f"{large}: left out: it is too large for a section; add the program again with `supervisorctl run`",
    )


def test_a_section_may_be_just_as_large_as_the_limit(place):
    section = "[program.Breakout]\n"
    add(place, "Breakout", section + "#" * ((1 << 18) - len(section)))
    loaded = place.load(PONG)
    assert [spec.name for spec in loaded.settings.programs] == ["Breakout", "Pong"]
    assert loaded.warnings == ()
