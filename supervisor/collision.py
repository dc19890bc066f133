"""Detects PyPI's `supervisor` in the same environment: its package and its two commands have the same names as extralife's.

pip writes both packages into one directory, and the commands of the last installed package remain. `superlance` installs
`supervisor` as a dependency. Nothing breaks at once: of all files, only `__init__.py` has the same name in both. But
`supervisorctl` is now another program, and `pip uninstall supervisor` removes the commands of both. So a warning explains
this and the remedy. Debian's `supervisor` is in a separate directory, which a virtual environment does not share.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Final

_OURS: Final = ("supervisor.__main__", "supervisor.ctl", "workers.commands")


def sentence() -> str:
    """The problem and the remedy; empty if only extralife is installed here."""
    try:
        theirs = metadata.distribution("supervisor")
    except metadata.PackageNotFoundError:
        return ""
    package = Path(str(theirs.locate_file("supervisor")))
    if not package.resolve().is_relative_to(Path(sys.prefix).resolve()) and not _same(package, Path(__file__).parent):
        return ""
    hidden = [name for name in ("supervisord", "supervisorctl") if _is_another(Path(sys.prefix, "bin", name))]
    consequence = f"{' and '.join(hidden)} {'is' if len(hidden) == 1 else 'are'} its own now"
    if not hidden:
        consequence = "their packages have one name"
    return (
        f"Supervisor {theirs.version} is installed in extralife's environment {sys.prefix}, and {consequence}: "
        "use extralife and extralifectl, and give Supervisor (and superlance) an environment of its own: "
        "pip uninstall supervisor superlance, then pip install --force-reinstall --no-deps extralife"
    )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_another(script: Path) -> bool:
    try:
        text = script.read_text(errors="replace", encoding="utf-8")
    except OSError:
        return False
    return not any(mark in text for mark in _OURS)
