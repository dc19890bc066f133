"""[notice]: the sources that announce the end of this box."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_kit import Place

from supervisor.policy.upkeep.notices import NoticeSettings

HEAD = "[program.Pong]\n[notice]\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_the_section_it_is_the_default(place: Place) -> None:
    assert place.settings("[program.Pong]\n").notice == NoticeSettings()


def test_a_file_is_found_beside_the_configuration(place: Place) -> None:
    loaded = place.load(f'{HEAD}file = "end"\ncommand = "sleep 1"\nendpoint = "http://h:80"\n')
    assert loaded.settings.notice == NoticeSettings(file=f"{place.directory}/end", command="sleep 1", endpoint="http://h:80")
    assert loaded.warnings == ()


@pytest.mark.parametrize("endpoint", ["http://h", "http://127.0.0.1:1", "http://[::1]:65535", "http://h/x"])
def test_an_endpoint(place: Place, endpoint: str) -> None:
    assert place.settings(f'{HEAD}endpoint = "{endpoint}"\n').notice.endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "", "h", "https://h", "http://", "http://:80", "http://h:0", "http://h:65536", "http://h:x", "http://me@h", "http://h?x",
        "http://h#x", "http://é", "http://h /", "http://[::1",
    ],
)  # fmt: skip
def test_what_is_no_endpoint(place: Place, endpoint: str) -> None:
    assert place.errors(f'{HEAD}endpoint = "{endpoint}"\n') == [
        f"FILE, line 3: notice.endpoint must be http://HOST or http://HOST:PORT, not {endpoint!r}"
    ]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("a 'b", 'notice.command, "a \'b", cannot be split into words (No closing quotation); no shell reads it'),
        (" ", 'notice.command names no program; write it such as "/usr/local/bin/is-this-the-end --short"'),
    ],
)
def test_what_is_no_command(place: Place, command: str, told: str) -> None:
    assert place.errors(f'{HEAD}command = "{command}"\n') == [f"FILE, line 3: {told}"]


def test_a_command_that_may_be_installed_later_is_a_warning(place: Place) -> None:
    assert place.load(f'{HEAD}command = "no-such-hook --short"\n').warnings == (
        f"{place.file}, line 3: notice.command: 'no-such-hook' is not found, or not executable (yet)",
    )
