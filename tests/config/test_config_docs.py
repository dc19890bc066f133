"""docs/config.md is made from the fields that declare the keys, as the checks are."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from config_page import page

from supervisor.config.scripts import OWN_KEYS
from supervisor.config.tables import settings_of
from supervisor.keys import declared
from supervisor.model.settings import SECTIONS
from workers.options import EXTRA_GAMES, GAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), ".venv/bin/python bench/config_page.py"


def test_every_name_in_the_words_around_the_tables_is_told() -> None:
    from supervisor.features.slurm.config import RESOURCES

    text = " ".join(PAGE.read_text().split())
    assert (
        f"The {len(GAMES)} Atari games have envpool's names: {', '.join(GAMES)}. {', '.join(EXTRA_GAMES)} is a toy" in text
    )
    for names in (RESOURCES, OWN_KEYS):
        assert ", ".join(f"`{name}`" for name in names) in text


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_on_the_page_and_its_default_is_valid(section: str) -> None:
    settings = settings_of(SECTIONS[section])
    assert settings
    for name, setting in settings.items():
        assert f"| `{name}` |" in PAGE.read_text()
        if setting.default is not None and not setting.complex:
            setting.check(setting.default)


def test_a_field_of_a_section_is_a_key_unless_it_is_computed() -> None:
    others = {
        f"{section}.{field.name}"
        for section, cls in SECTIONS.items()
        for field in fields(cls)
        if field.name not in declared(cls)
    }
    assert others - {"level.launcher"} == {"http.host", "http.port", "http.password", "load.names"}


def test_every_block_of_toml_is_toml() -> None:
    blocks = PAGE.read_text().split("```toml\n")[1:]
    assert blocks
    for block in blocks:
        assert tomllib.loads(block.split("```")[0])
