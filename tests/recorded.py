"""What a piece of Python tells the disk, in order, and whether that survives a power cut.

log = recorded.run("from supervisor.adapters.host import reboot_log; ...", directory)
assert recorded.complaints(log, directory) == []

The rule that is checked, which is that of POSIX and of nothing kinder: data is on the disk once its file was synced after
its last change, and a name once its directory was. A file or a directory must have all of its data there, and all names in
it, before it is renamed to its final name. That name must be there before another name goes that it is to replace, and
when the work is done.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import compiled

SOURCE = Path(__file__).with_suffix(".c")
ROOT = Path(__file__).resolve().parents[1]

Call = tuple[str, int, str]  # (kind, inode, path), see recorded.c


def run(code: str, directory: Path) -> list[Call]:
    """The calls of one process that concern this directory. The code finds it as `here`."""
    library, _ = compiled(SOURCE, "recorded.so", "-ldl")
    log = directory.with_name(f"{directory.name}.calls")
    log.unlink(missing_ok=True)
    env = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORD_FILE": str(log),
        "PYTHONPATH": str(ROOT),
        "HERE": str(directory),
    }
    head = "import os\nfrom pathlib import Path\nhere = Path(os.environ['HERE'])\n"
    subprocess.run([sys.executable, "-B", "-c", head + code], env=env, cwd=ROOT, check=True, timeout=120)
    calls = []
    for line in log.read_text().splitlines() if log.exists() else ():
        kind, inode, path = line.split(" ", 2)
        if path.startswith(str(directory)):
            calls.append((kind, int(inode), path))
    return calls


def complaints(calls: list[Call], directory: Path, volatile: tuple[str, ...] = (".tmp",)) -> list[str]:
    """What a power cut could lose or tear; empty when nothing. Names that end so are nobody's when the power is back."""
    data: dict[int, str] = {}  # files whose newest data is not on the disk
    names: dict[str, int] = {}  # new names that are not, and the directory of each
    found = []
    for kind, inode, path in calls:
        old, _, new = path.partition("\t")
        if kind == "S":
            data.pop(inode, None)
            names = {name: at for name, at in names.items() if at != inode}
        elif kind == "D":
            data[inode] = path
        elif kind == "N":
            names[path] = inode
        elif kind == "R" and not new.endswith(volatile):
            early = [at for at in (*data.values(), *map(os.path.dirname, names)) if at == old or at.startswith(f"{old}/")]
            found += [f"{_short(at, directory)} is not synced when {_short(new, directory)} gets its name" for at in early]
        if kind in "RU" and not old.endswith(volatile):
            newer = [name for name in names if not _is_volatile(name, directory, volatile)]
            found += [f"{_short(old, directory)} goes before {_short(name, directory)} is there for good" for name in newer]
        if kind in "RU":  # what is removed may come back: then it is nobody's
            data = {at: there for at, known in data.items() if (there := _moved(known, old, new))}
            names = {there: at for name, at in names.items() if (there := _moved(name, old, new))}
    return found + [
        f"{_short(at, directory)} is not synced at the end"
        for at in dict.fromkeys([*data.values(), *map(os.path.dirname, names)])
        if os.path.lexists(at) and not _is_volatile(at, directory, volatile)
    ]


def _short(path: str, directory: Path) -> str:
    return path.removeprefix(str(directory)).lstrip("/") or "."


def _moved(path: str, old: str, new: str) -> str:
    """The path of it after a rename; empty: it was removed."""
    if path != old and not path.startswith(f"{old}/"):
        return path
    return new + path[len(old) :] if new else ""


def _is_volatile(path: str, directory: Path, volatile: tuple[str, ...]) -> bool:
    return any(part.endswith(volatile) for part in _short(path, directory).split("/"))
