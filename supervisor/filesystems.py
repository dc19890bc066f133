"""The kind of file system below a path, and whether a state directory is safe there. The daemon and `doctor` report it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MEMORY: Final = frozenset({"tmpfs", "ramfs"})
# Another machine, or the host of a virtual machine, stores the files.
_SHARED: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2",
        "gfs2", "orangefs", "pvfs2", "coda", "fuse",
    }
)  # fmt: skip
# These keep no owners or modes, and a power cut can damage a rename.
_SIMPLE: Final = frozenset({"vfat", "msdos", "exfat", "ntfs", "ntfs3", "hfs", "hfsplus", "fuseblk"})
_LAYERS: Final = frozenset({"overlay", "aufs"})
_COPY_ON_WRITE: Final = frozenset({"btrfs", "zfs", "bcachefs", "f2fs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # proc_mounts(5): space, tab, line feed and backslash in the path of a mount


def kind_of(path: Path, root: str = "") -> str:
    """The kernel's name of the file system; empty if unknown. `root` is the directory of /proc; tests use another one."""
    best, kind = -1, ""
    real = str(path.resolve())
    try:
        mounts = Path(f"{root}/proc/self/mounts").read_text(errors="replace", encoding="utf-8")
    except OSError:
        return ""
    for line in mounts.splitlines():
        at = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[1])
        if (real + "/").startswith(at.rstrip("/") + "/") and len(at) >= best:
            best, kind = len(at), line.split()[2]
    return kind


def shared(kind: str) -> bool:
    """Whether other machines may see the same files."""
    return kind in _SHARED or kind.startswith("fuse.")


def unsafe(kind: str, *, cluster: bool = False) -> str:
    """Why no state should be there, as a clause; empty if it is safe. `cluster`: a cluster's jobs must see the files too."""
    if kind in MEMORY:
        return f"is in memory ({kind}): a reboot deletes it"
    if shared(kind) and not cluster:
        return (
            f"lies on {kind}: where another machine holds the files, neither the lock against a second daemon nor the "
            "journal can be relied on"
        )
    if kind in _SIMPLE:
        return f"lies on {kind}: it keeps no owners and modes, and a power cut can take what was written and renamed"
    return ""


def copies_on_write(kind: str) -> bool:
    """Whether writing again what a file has already needs room."""
    return kind in _COPY_ON_WRITE


def layered(kind: str) -> bool:
    """Whether it is probably the upper layer of a container, which is deleted with the container."""
    return kind in _LAYERS
