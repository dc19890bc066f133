"""[notice]: the sources that announce the end of this box."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Final

from supervisor.config import secrets
from supervisor.config.tables import check_command
from supervisor.config.validation import Section, Validation, shown
from supervisor.features.notices.settings import NoticeSettings

SECTION: Final = "notice"


def complete(validation: Validation, made: NoticeSettings, _: object) -> NoticeSettings:
    if made.command:
        _check_command(validation.section("notice"), made.command)
    return replace(made, file=secrets.beside(validation, made.file)) if made.file else made


def _check_command(section: Section, command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        section.refuse("command", f", {shown(command)}, cannot be split into words ({error}); no shell reads it")
        return
    check_command(section, words or [""], '"/usr/local/bin/is-this-the-end --short"', section.validation.warn)
