"""[notice]: the sources that announce the end of this box."""

from __future__ import annotations

import pytest
from config_kit import Place

from supervisor.features.notices.settings import NoticeSettings

HEAD = "[program.Pong]\n[notice]\n"


def test_a_file_is_found_beside_the_configuration(place: Place) -> None:
    loaded = place.load(f'{HEAD}file = "end"\ncommand = "sleep 1"\n')
    assert loaded.settings.notice == NoticeSettings(file=f"{place.directory}/end", command="sleep 1")
    assert loaded.warnings == ()


@pytest.mark.parametrize("line", ['provider = "aws"', 'endpoint = "http://h"'])
def test_a_key_that_has_gone_is_refused_with_what_takes_its_place(place: Place, line: str) -> None:
    (told,) = place.errors(f"{HEAD}{line}\n")
    program = "set notice.command to the provider's program in deploy/notices/ (docs/offsite.md)"
    assert told == f"FILE, line 3: notice.{line.partition(' ')[0]} is not a setting any more; {program}"
    training, told = place.errors("[training]\ncompile = true\n[program.Pong]\ncompile = true\n")
    assert training.endswith("training.compile is not a setting any more; " + told.partition("; ")[2])
    assert told.endswith("program.Pong.compile is not a setting; remove it: cuda_graphs, which is on, does more for a GPU")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("a 'b", 'notice.command, "a \'b", cannot be split into words (No closing quotation); no shell reads it'),
        (" ", 'notice.command names no program; write it such as "/usr/local/bin/is-this-the-end --short"'),
    ],
)
def test_what_is_no_command(place: Place, command: str, told: str) -> None:
    assert place.errors(f'{HEAD}command = "{command}"\n') == [f"FILE, line 3: {told}"]
