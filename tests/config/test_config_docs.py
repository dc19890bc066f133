"""docs/config.md is made from the tables that the checks read, and every key in them has a meaning."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from supervisor.config import docs, tables
from supervisor.model.settings import SECTIONS
from workers.options import OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == docs.page(), "python -m supervisor.config.docs > docs/config.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_has_a_meaning(section: str) -> None:
    keys = tables.section_keys(section)
    assert keys
    for name, key in keys.items():
        assert f"| `{name}` |" in PAGE.read_text()
        if key.option.default is not None:
            key.check(key.option.default, name)


def test_every_option_is_told() -> None:
    told = PAGE.read_text()
    assert all(f"| `{name}` |" in told for name in OPTIONS)


def test_every_block_of_toml_is_toml() -> None:
    blocks = PAGE.read_text().split("```toml\n")[1:]
    assert blocks
    for block in blocks:
        assert tomllib.loads(block.split("```")[0])
