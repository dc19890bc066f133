"""Puts the checkpoints that scripts wrote themselves back into place on a box that goes on from a copy off another box.

Only the configuration says where these checkpoints belong. So the restore keeps them as a backup, and notes its name in
`offsite/put-back/PROGRAM`. The program's next start waits until they are in place. Until then each copy off this box takes
them from the backup: otherwise a second lost box would lose them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from supervisor import files
from supervisor.adapters.copies import own, store
from supervisor.adapters.copies.own import Waiting
from supervisor.adapters.durable import sync_directory
from supervisor.adapters.process.own_checkpoints import Place, Unanswered
from supervisor.as_user import acting_as
from supervisor.model.settings import Paths
from workers.contract import checked_name

FOLDER: Final = "put-back"
_MOST_BYTES: Final = 4096

log = structlog.get_logger()


def note(offsite_dir: Path, backup: str, programs: Iterable[str]) -> None:
    """Note that the next start of each program waits for its checkpoints in this backup."""
    folder = offsite_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    for program in programs:
        (folder / checked_name(program)).write_text(backup, encoding="utf-8")
    sync_directory(folder)


def waiting(paths: Paths, program: str) -> Waiting | None:
    """The checkpoint that is to be put back; None: there is none. Raises BackupError, OSError."""
    try:
        name = files.read(Path(paths.offsite, FOLDER, program), _MOST_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    info = store.find(Path(paths.backups), name, (program,))
    saved = next((each.own for each in info.programs if each.program == program), None)
    if saved is None:
        raise store.BackupError(info.error or f"backup {name} has no checkpoint that {program} wrote itself")
    return Waiting(info.path / store.PROGRAMS_DIR / program, saved)


def put_back(paths: Paths, program: str, place: Place) -> None:
    """Put a program's checkpoint into place before its start, unless a newer one is there. Raises OSError."""
    try:
        found = waiting(paths, program)
        if found is None:
            return
        with acting_as(place.user):
            if place.directory != paths.run_dir(program) and not Path(place.directory).is_dir():
                raise FileNotFoundError(f"{place.directory} does not exist")
        if not own.has_newer(place, found.saved):
            own.stage(found.directory, found.saved, place, lambda _: None)
            own.exchange(found.saved, place)
            log.info("checkpoint_put_back", program=program, path=f"{place.base}/{found.saved.path}", step=found.saved.step)
    except (store.BackupError, Unanswered, ValueError) as error:
        raise OSError(str(error)) from error
    done = Path(paths.offsite, FOLDER, program)
    done.unlink()
    sync_directory(done.parent)
