"""Checks of `doctor` on `[offsite]`: one small file is copied into the repository, restored and removed."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation, daemon_user
from supervisor.features.offsite.adapters import restoring
from supervisor.features.offsite.adapters.restic import COPY_TAG, Restic, ResticError
from supervisor.features.offsite.config import unfit
from supervisor.features.offsite.settings import OffsiteSettings

_TRY_S: Final = 60.0


def copies(installation: Installation) -> Iterator[Finding]:
    """The daemon's user can copy a file into the repository and restore it."""
    rules = installation.settings.of(OffsiteSettings)
    if not rules.on:
        what = "nothing is copied off this box: its trainings are lost with it"
        yield Finding("copies", "warn", what, "set [offsite] repository (docs/offsite.md)")
    elif why := unfit():
        what, _, remedy = why.partition(": ")
        yield Finding("copies", "bad", f"{what}: nothing is copied off this box", remedy)
    elif _is_hidden(rules.password_file):
        yield Finding("copies", "unknown", f"{rules.password_file} cannot be read by this user", "run doctor as root")
    else:
        yield _tried(rules, installation.settings.paths.state_dir)


def _is_hidden(path: str) -> bool:
    """Whether the file exists, or may exist, and this user may not read it."""
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False  # restic then says what is wrong
    return not os.access(path, os.R_OK)


def _tried(rules: OffsiteSettings, state_dir: str) -> Finding:
    # The daemon could not read files that root writes into a repository on this box.
    user = None
    if os.geteuid() == 0 and (uid := daemon_user(state_dir)):
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(uid)
    with tempfile.TemporaryDirectory(prefix="extralife-doctor-") as name:
        directory = Path(name)
        restic = Restic(rules, directory / "cache", user=user, limit_s=_TRY_S)
        (directory / "probe").mkdir()
        if user is not None:
            for each in (directory, directory / "probe"):
                os.chown(each, user.pw_uid, user.pw_gid)
        wrong = restoring.try_out(restic, directory / "probe", box=socket.gethostname())
        if wrong:
            do = "supervisorctl offsite init makes a repository; docs/offsite.md has examples of each backend"
            return Finding("copies", "bad", text.printable(wrong), do)
        return Finding("copies", "ok", f"a file went into the repository and came back; {_newest(restic)}")


def _newest(restic: Restic) -> str:
    try:
        found = [each for each in restic.snapshots() if COPY_TAG in each.tags]
    except ResticError as error:
        return text.printable(str(error))
    if not found:
        return "it has no copy yet"
    copies = "1 copy" if len(found) == 1 else f"{len(found)} copies"
    return f"{copies}, the newest {text.duration(text.wall_s() - found[-1].wall_s)} old"
