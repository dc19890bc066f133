"""Checks whether a file or a directory that a script saved is whole, if its format shows it. Nothing is ever unpickled.

| format | whole if |
|---|---|
| zip (torch.save, Lightning, Stable-Baselines3, numpy) | its central directory is whole, and each entry lies where it says |
| safetensors | its header can be read, and the file is as long as the header says |
| JSON, and JSON lines | it can be parsed |
| directory of the Hugging Face Trainer | trainer_state.json and the weights are whole, and no shard is missing |
| directory of extralife's client | its manifest is whole, and every file of it is there in its size |
| any other directory | every file in it of a known format is whole |

Any other format is unknown (`policy/worker/newest_whole.py`), and an empty file beside others may be a mark, such as `DONE`.
No file is read completely: a checkpoint of 10 GB takes a few reads. A cut anywhere in a zip is found, no flipped byte.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import signal
import stat
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from supervisor.adapters import durable
from supervisor.adapters.process import checkpoints
from supervisor.files import held, open_regular
from supervisor.records import Record
from workers.contract import MANIFEST_FILE, parse_checkpoint_name

UNKNOWN: Final = None
_ZIP_HEAD: Final = b"PK\x03\x04"
_LOCAL_BYTES: Final = 30  # of an entry's own header, without its name
_MOST_DIRECTORY_BYTES: Final = 64 << 20
_MOST_JSON_BYTES: Final = 16 << 20
_MOST_FILES: Final = 10_000
_MOST_DEEP: Final = 8
_NEVER_ZEROS: Final = (".pt", ".pth", ".zip", ".npz", ".safetensors")  # a raw array in a .bin or .ckpt may begin with 0.0
_SAVED_BY_TORCH: Final = (*_NEVER_ZEROS, ".ckpt", ".bin")
_HEAD_BYTES: Final = 8
TRAINER_STATE: Final = "trainer_state.json"
_SHARDS: Final = re.compile(r"[^/]+\.(safetensors|bin)\.index\.json")
_WEIGHTS: Final = re.compile(r"(?!training_args\.bin$)[^/]+\.(safetensors|bin)")


class File(Record):
    """One file of a checkpoint, as `stat` shows it. `path` is relative to the checkpoint; empty: the checkpoint itself."""

    path: str
    size_bytes: int
    written_ns: int
    inode: int


class TooMany(Exception):
    """The checkpoint has more files than a real one would."""


def files_of(path: str, went_on: Callable[[], None]) -> tuple[File, ...]:
    """The regular files of a checkpoint, sorted. Links are left out and not followed. Raises OSError, TooMany."""
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode):
        return (File("", found.st_size, found.st_mtime_ns, found.st_ino),)
    out: list[File] = []
    _collect(path, "", out, went_on, 0)
    return tuple(sorted(out, key=lambda each: each.path))


def _collect(directory: str, below: str, out: list[File], went_on: Callable[[], None], depth: int) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            went_on()
            if entry.is_dir(follow_symlinks=False) and depth < _MOST_DEEP:
                _collect(entry.path, f"{below}{entry.name}/", out, went_on, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                out.append(File(f"{below}{entry.name}", found.st_size, found.st_mtime_ns, found.st_ino))
                if len(out) > _MOST_FILES:
                    raise TooMany(f"it has more than {_MOST_FILES:,} files")


def are_closed(path: str, files: tuple[File, ...]) -> bool:
    """Whether they are as they were seen, and no process of this machine has one open for writing: then it gets no lease."""
    try:
        for each in files:
            with held(open_regular(f"{path}/{each.path}" if each.path else path)) as fd:
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # comes if it is opened meanwhile; SIGIO would end the daemon
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return files_of(path, lambda: None) == files
    except (OSError, TooMany):  # also of a file system without leases, or of another user's file
        return False


def defect(path: str, files: Iterable[File], needs: str = "") -> str | None:
    """The defect of a checkpoint, as a clause; empty: it is whole; None: its format does not show it. Raises OSError.

    `needs` is a file that it must have because the configuration reads the step from there.
    """
    files = tuple(files)
    if len(files) == 1 and not files[0].path:
        return file_defect(path, Path(path).name)
    by_path = {each.path: each for each in files}
    if needs and needs not in by_path:
        return f"it has no {needs}"
    if MANIFEST_FILE in by_path and parse_checkpoint_name(Path(path).name) is not None:
        return _manifest_defect(path, by_path)
    known = 0
    for each in files:
        shows = each.size_bytes or each.path.endswith((*_SAVED_BY_TORCH, ".json"))
        wrong = file_defect(f"{path}/{each.path}", each.path) if shows else UNKNOWN
        if wrong:
            return f"{each.path}: {wrong}"
        known += wrong is not UNKNOWN
    if TRAINER_STATE in by_path:
        return _trainer_defect(path, by_path)
    return "" if known and known == len(files) else UNKNOWN


def _manifest_defect(path: str, by_path: dict[str, File]) -> str:
    """The defect of a checkpoint that the client saved by itself: it gets its name when all of it is on the disk."""
    try:
        manifest = checkpoints.manifest_of(Path(path))
    except checkpoints.Damaged as error:
        return str(error)
    for name, (size, _) in manifest.files.items():
        found = by_path.get(name)
        if found is None:
            return f"it has no {name}"
        if found.size_bytes != size:
            return f"{name} has {found.size_bytes:,} bytes, and its manifest says {size:,}"
    return ""


def _trainer_defect(path: str, by_path: dict[str, File]) -> str | None:
    """The defect of a directory in which each file is whole: the Trainer writes its state after the weights."""
    for name in by_path:
        if _SHARDS.fullmatch(name):
            index = None
            with contextlib.suppress(ValueError):
                index = durable.read_json(f"{path}/{name}")
            shards = index.get("weight_map") if isinstance(index, dict) else None
            names = {each for each in shards.values() if isinstance(each, str)} if isinstance(shards, dict) else set()
            if missing := names - by_path.keys():
                return f"{min(missing)} is missing"
    return "" if any(_WEIGHTS.fullmatch(name) for name in by_path) else UNKNOWN


def file_defect(path: str, name: str) -> str | None:
    """Like `defect`, for one file."""
    with held(open_regular(path)) as fd:
        size = os.fstat(fd).st_size
        head = os.pread(fd, _HEAD_BYTES, 0)
        if not size:
            return "it is empty"
        if name.endswith(_NEVER_ZEROS) and not head.strip(b"\0"):
            return "it begins with zeros"
        if name.endswith(".safetensors"):
            return _safetensors_defect(fd, size)
        if head.startswith(_ZIP_HEAD):
            return _zip_defect(fd)
        if name.endswith(_SAVED_BY_TORCH) and _ZIP_HEAD.startswith(head):
            return f"it has only {size} bytes"
        return _json_defect(fd, size) if name.endswith(".json") else UNKNOWN


def _json_defect(fd: int, size: int) -> str | None:
    if size > _MOST_JSON_BYTES:
        return UNKNOWN
    body = os.pread(fd, size, 0)
    for pieces in ([body], body.splitlines()):
        with contextlib.suppress(ValueError):
            for piece in pieces:
                durable.json_of(piece)
            return ""
    return "it is no JSON"


def _safetensors_defect(fd: int, size: int) -> str | None:
    if size < _HEAD_BYTES:
        return f"it has only {size} bytes"
    length = int.from_bytes(os.pread(fd, _HEAD_BYTES, 0), "little")
    if length > size - _HEAD_BYTES:
        return f"it has {size:,} bytes, and its header alone {length:,}"
    if length > _MOST_JSON_BYTES:
        return UNKNOWN
    try:
        header = durable.json_of(os.pread(fd, length, _HEAD_BYTES))
        tensors = [value for key, value in header.items() if key != "__metadata__"]
        end = max((int(each["data_offsets"][1]) for each in tensors), default=0)
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return "its header cannot be read"
    expected = _HEAD_BYTES + length + end
    return "" if expected == size else f"it has {size:,} bytes, expected {expected:,}"


class _Bounded(io.FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise ValueError(f"its list of entries has {size:,} bytes")
        return super().read(size) or b""


def _zip_defect(fd: int) -> str:
    """Python's own reader finds the list of entries at the end, and opens each entry without reading its content."""
    with _Bounded(os.dup(fd)) as file:
        if not zipfile.is_zipfile(file):
            return "its end is missing"
        try:
            with zipfile.ZipFile(file) as archive:
                entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
                if not entries or entries[0].header_offset != 0:
                    return "its list of entries is not where it says"
                ends = [*(entry.header_offset for entry in entries[1:]), archive.start_dir]
                for entry, end in zip(entries, ends, strict=True):
                    archive.open(entry).close()
                    if entry.header_offset + _LOCAL_BYTES + len(entry.orig_filename) + entry.compress_size > end:
                        return f"its entry {entry.filename!r:.80} is cut"
        except (NotImplementedError, RuntimeError):  # compressed or encrypted in a way that Python cannot read
            return ""
        except (zipfile.BadZipFile, ValueError, OverflowError, EOFError, struct.error) as error:
            return f"it is no whole zip: {error}"
    return ""
