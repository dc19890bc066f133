"""The code of a user's own programs: small directories that copies have too, and code that the next box lacks.

`[offsite] also` names directories. Each copy has them with their links and modes, without `__pycache__`. A restore puts them
at the same path, unless something is there already: the image's or template's own code wins.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from supervisor.as_user import acting_as
from supervisor.model.settings import Paths, ProgramSpec, Settings

ALSO: Final = "also"
_MOST_MB, _MOST_FILES = 100, 10_000
_LEFT_OUT: Final = "__pycache__"
_RUNS_SCRIPTS: Final = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|(?:ba)?sh)")
_SCRIPT: Final = re.compile(r"[^-{][^{]*\.(?:py|sh)")


def refusal(path: str) -> str:
    """Why no copy has this directory, as a clause; empty: copies have it. Raises OSError."""
    size, count = 0, 0
    for folder, names, found in os.walk(path, onerror=_raise):
        names[:] = [each for each in names if each != _LEFT_OUT]
        owner = os.stat(folder).st_uid  # noqa: PTH116
        if os.geteuid() == 0 != owner:
            return f"{folder} belongs to user id {owner}, who could put links to foreign files there: give it to root"
        count += len(names) + len(found)
        size += sum(os.lstat(os.path.join(folder, each)).st_size for each in found)  # noqa: PTH118
        if size > _MOST_MB * 1_000_000 or count > _MOST_FILES:
            most = f"{_MOST_MB} MB or {_MOST_FILES:,} files"
            return f"it has more than {most}: name a smaller directory in [offsite] also, or let the template fetch it"
    return ""


def _raise(error: OSError) -> None:
    raise error


def collect(paths: Iterable[str], target: Path) -> dict[str, str]:
    """Link or copy these directories below `target`, by number. Returns those that the copy lacks, with the reason."""
    missed = {}
    for number, path in enumerate(paths):
        try:
            if why := refusal(path):
                missed[path] = why
            else:
                shutil.copytree(path, target / str(number), symlinks=True, ignore=_unfit, copy_function=_link)
        except (OSError, shutil.Error) as error:  # an error of the copy's own disk fails the copy elsewhere too
            missed[path] = getattr(error, "strerror", None) or "some of its files cannot be read"
    return missed


def _unfit(folder: str, names: list[str]) -> set[str]:
    modes = {each: os.lstat(os.path.join(folder, each)).st_mode for each in names}  # noqa: PTH118
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return {each for each, mode in modes.items() if each == _LEFT_OUT or not any(kind(mode) for kind in kinds)}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def put(paths: Iterable[object], source: Path, say: Callable[[str], object]) -> None:
    """Put the directories of a copy at their paths, and say what became of each."""
    for number, path in enumerate(map(str, paths)):
        target, made = Path(path), source / str(number)
        if not made.is_dir() or not target.is_absolute() or ".." in target.parts:
            continue
        try:
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                say(f"{path} is there already and stays as it is")
                continue
            aside = target.with_name(f".{target.name}.restoring")
            shutil.rmtree(aside, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made, aside, symlinks=True)
            aside.rename(target)
            say(f"put the copied {path} into place")
        except (OSError, shutil.Error) as error:
            why = getattr(error, "strerror", None) or "some of its files cannot be written"
            say(f"{path} cannot be put into place ({why}): put it there by the image or the template")


def missing(settings: Settings, paths: Paths) -> dict[str, str]:
    """By program: its directory or script that this box lacks, in one sentence."""
    specs = () if settings.remote else (each for each in settings.programs if not each.builtin)
    return {each.name: why for each in specs if (why := _missing(each, paths.run_dir(each.name)))}


def _missing(spec: ProgramSpec, run_dir: str) -> str:
    script, folder = _script(spec.argv), spec.directory or run_dir
    try:
        with acting_as(spec.user):
            if spec.directory and not Path(folder).is_dir():
                what = f"its directory {folder} is missing on this box"
            elif script and not Path(folder, script).exists():
                what = f"its script {script} is missing in {folder} on this box"
            else:
                return ""
    except OSError:
        return ""  # not known
    how = "by the image, by `git clone` in the template, or by [offsite] also on the box that is copied"
    return f"{spec.name} waits: {what}; put it there ({how}), and it starts by itself"


def _script(argv: tuple[str, ...]) -> str:
    """The file that this command needs; empty: none is known."""
    program, *words = argv
    if not _RUNS_SCRIPTS.fullmatch(program):
        return program if program.startswith("/") and "{" not in program else ""
    for word in words:
        if re.fullmatch(r"-\w*[mc]", word):  # also `bash -lc TEXT`
            return ""
        if _SCRIPT.fullmatch(word):
            return word
    return ""
