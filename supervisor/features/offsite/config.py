"""[offsite]: the repository for copies, and the files with its secrets. No message and no page shows a secret.

`adapters/restic.py` reads the password and the backend's credentials when it starts restic. This module only checks
that we can read them, and that no other user can. At the daemon's own start such a mistake is a warning: a password file on
a disk that is not mounted must not keep the trainings from starting.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from supervisor.config import secrets
from supervisor.config.validation import Section, Validation, shown
from supervisor.features.offsite.settings import OffsiteSettings
from workers.options import nearest

BACKENDS: Final = ("local", "sftp", "rest", "s3", "swift", "b2", "azure", "gs", "rclone")
LEAST: Final = (0, 14)  # of restic: the oldest version with which the tests run
_VERSION_S: Final = 5.0
_SECRET: Final = re.compile(r"(//[^/@\s:]*:)[^/@\s]*(@)")
_LINE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_OURS: Final = re.compile(r"RESTIC_(PASSWORD|REPOSITORY|CACHE).*|LD_.*|PATH|HOME")

SECTION: Final = "offsite"


def masked(repository: str) -> str:
    """A repository without the password in its URL: `rest:https://me:***@host/`."""
    return _SECRET.sub(r"\1***\2", repository)


def unfit() -> str:
    """Why the restic of this box makes no copies, with the remedy; empty if it does, or if it does not say its version."""
    import subprocess

    try:
        answer = subprocess.run(
            ("restic", "version"), capture_output=True, encoding="utf-8", errors="replace", timeout=_VERSION_S, check=False
        ).stdout
    except FileNotFoundError:
        return "restic is not installed: apt-get install restic"
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.match(r"restic (\d+)\.(\d+)", answer)
    if found is None or (int(found[1]), int(found[2])) >= LEAST:
        return ""
    least = ".".join(map(str, LEAST))
    return f"restic {found[1]}.{found[2]} is too old: install {least} or newer (`restic self-update`, or restic.net)"


def complete(validation: Validation, made: OffsiteSettings, _: object) -> OffsiteSettings:
    """[offsite] and the files that it names, checked."""
    if not made.on:
        return made
    section = validation.section("offsite")
    section.note("repository", masked(made.repository))
    where = made.repository
    scheme, colon, rest = where.partition(":")
    if not where.isprintable() or where != where.strip():
        section.refuse("repository", "has spaces at its ends or characters that cannot be printed; remove them")
    elif not where.startswith("/") and (not colon or scheme not in BACKENDS):
        hint = nearest(scheme, BACKENDS) if colon else ""
        hint = hint or f"; it must be an absolute path, or begin with one of {', '.join(f'{each}:' for each in BACKENDS)}"
        section.refuse("repository", f", {shown(masked(where))}, is no repository of restic{hint}")
    elif not rest and not where.startswith("/"):
        section.refuse("repository", f", {shown(where)}, names no place; docs/offsite.md has examples")
    if made.sftp_command and scheme != "sftp":
        section.refuse("sftp_command", "is of no use without an sftp: repository")
    if not made.password_file:
        validation.error(section.at(), "offsite.password_file is missing; name the file with the repository's password")
    if not any((made.keep_last, made.keep_hourly, made.keep_daily, made.keep_weekly, made.keep_monthly)):
        validation.error(section.at(), "offsite.keep_* are all 0, so no copy would stay; set one of them to 1 or more")
    if why := unfit():
        validation.warn(section.at(), f"{why}; until then nothing is copied off this box")
    for each in made.also:
        if not each.startswith("/") or ".." in each.split("/") or not each.strip("/"):
            section.refuse("also", f", {shown(each)}, is no absolute path of a directory")
    given = {key: getattr(made, key) for key in ("password_file", "env_file")}
    files = {key: secrets.beside(validation, path) if path else "" for key, path in given.items()}
    if validation.look:
        _check_files(section, files)
    return replace(made, password_file=files["password_file"], env_file=files["env_file"])


def _check_files(section: Section, files: dict[str, str]) -> None:
    problems, gently = list[str](), section.validation.starting
    if path := files["password_file"]:
        password = secrets.text(problems.append, path, "the repository's password")
        if not password.strip() and not problems:
            problems.append(f"{path} is empty; write the repository's password into it")
    for what in problems:
        section.reporter("password_file", gently=gently)(what)
    if path := files["env_file"]:
        report = section.reporter("env_file", gently=gently)
        for number, line in secrets.lines_in(secrets.text(report, path, "one NAME=VALUE per line")):
            name = line.partition("=")[0]
            if not _LINE.fullmatch(line):
                report(f"line {number} of {path} is not NAME=VALUE (not shown)")
            elif _OURS.fullmatch(name):
                report(f"line {number} of {path} sets {name}, which extralife sets; remove it")
