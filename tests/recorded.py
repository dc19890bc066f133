"""What a piece of Python tells the disk, in order, and whether that survives a power cut.

log = recorded.run("from supervisor.adapters import alerts; ...", directory)
assert recorded.complaints(log, directory) == []

The rule that is checked, which is that of POSIX and of nothing kinder: data is on the disk once its file was synced after
its last change, and a name once its directory was. A file or a directory must have all of its data there, and all names in
it, before it is renamed to its final name; when the work is done, that name must be there too.
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
    names: dict[int, str] = {}  # directories with a name that is not
    found = []
    for kind, inode, path in calls:
        if kind == "D":
            data[inode] = path
        elif kind == "N":
            names[inode] = path
        elif kind == "U":  # what is removed may come back: then it is nobody's
            data = {at: known for at, known in data.items() if known != path}
        elif kind == "S":
            data.pop(inode, None)
            names.pop(inode, None)
        else:
            old, _, new = path.partition("\t")
            if not new.endswith(volatile):
                found += [f"{_short(at, directory)} is not synced when {_short(new, directory)} gets its name"
                          for at in [*data.values(), *names.values()] if at == old or at.startswith(old + "/")]  # fmt: skip
            for known in (data, names):
                known.update({i: new + at[len(old) :] for i, at in known.items() if at == old or at.startswith(old + "/")})
    for at in [*data.values(), *names.values()]:
        if os.path.lexists(at) and not any(part.endswith(volatile) for part in at[len(str(directory)) :].split("/")):
            found.append(f"{_short(at, directory)} is not synced at the end")
    return found


def _short(path: str, directory: Path) -> str:
    return path.removeprefix(str(directory)).lstrip("/") or "."
