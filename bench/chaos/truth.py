"""Ground truth: processes from /proc, checkpoints from their own files, steps from the worker's own beat record.

Nothing here queries the daemon. Checkpoints are verified by digest, with `workers.contract` for the manifest and hashlib
for the files; torch is not imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.world import SCRIPT, World
from workers import contract, daemon_side

_YOUNG_S = 5.0  # seconds; a younger process may still replace its image and environment by an exec


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    ticks: int
    parent: int
    state: str
    program: str
    token: str  # empty: a shim
    attempt: int = 0

    @property
    def shim(self) -> bool:
        return not self.token


@dataclass(frozen=True, slots=True)
class Program:
    """The state of one program at one moment."""

    processes: tuple[Process, ...]
    shims: tuple[Process, ...]
    fence: str
    beat: contract.Beat | None
    whole: tuple[int, ...] = ()  # steps of the whole checkpoints, newest first
    damaged: tuple[int, ...] = ()
    own_steps: int | None = None  # of a script, as it counts them itself

    @property
    def mains(self) -> tuple[Process, ...]:
        """Workers whose parent is a shim."""
        shims = {shim.pid for shim in self.shims}
        return tuple(each for each in self.processes if each.parent in shims)

    @property
    def tokens(self) -> set[str]:
        return {each.token for each in self.processes}

    @property
    def steps(self) -> int | None:
        return self.own_steps if self.beat is None else self.beat.env_steps


@dataclass(slots=True)
class _Verdict:
    key: tuple[Any, ...]
    whole: bool


@dataclass(slots=True)
class Truth:
    """Reads the state of the world. Only one thread at a time may use it."""

    world: World
    _known: dict[tuple[int, int], tuple[str, str, int] | None] = field(default_factory=dict)
    _verdicts: dict[Path, _Verdict] = field(default_factory=dict)

    def look(self) -> dict[str, Program]:
        processes = list(self.processes())
        return {
            name: self._program(name, [each for each in processes if each.program == name])
            for name in (*self.world.programs, SCRIPT)
        }

    def _program(self, name: str, processes: list[Process]) -> Program:
        workers = tuple(each for each in processes if not each.shim)
        shims = tuple(each for each in processes if each.shim)
        if name == SCRIPT:
            return Program(workers, shims, "", None, own_steps=self.script_figure("steps") if workers else None)
        return Program(workers, shims, self.fence(name), self._beat(name, workers), *self.checkpoints(name))

    def script_figure(self, name: str) -> int | None:
        """A figure that the script has written beside its checkpoint; None: not yet."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.world.orders / name).read_text())
        return None

    # processes

    def processes(self) -> Iterable[Process]:
        """Every live process that belongs to an attempt, and every shim."""
        gone = set(self._known)
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                key = int(entry), int(stat[19])
                gone.discard(key)
                if stat[0] in "ZX":
                    continue
                of = self._belongs(key)
                if of is not None:
                    yield Process(key[0], key[1], int(stat[1]), stat[0], *of)
        for key in gone:
            del self._known[key]

    def _belongs(self, key: tuple[int, int]) -> tuple[str, str, int] | None:
        """(program, token, attempt) of a process of this box; an empty token: a shim."""
        if key in self._known:
            return self._known[key]
        line = Path(f"/proc/{key[0]}/cmdline").read_bytes().split(b"\0")
        shim = next((i for i, arg in enumerate(line) if arg.startswith(b"/proc/self/fd/")), None)
        found = None
        if shim is not None:  # CODE PROGRAM ATTEMPT RUN_DIRECTORY
            if len(line) > shim + 3 and line[shim + 3].startswith(f"{self.world.state}/programs/".encode()):
                found = line[shim + 1].decode(), "", int(line[shim + 2])
        else:
            env = dict(
                each.split(b"=", 1) for each in Path(f"/proc/{key[0]}/environ").read_bytes().split(b"\0") if b"=" in each
            )
            if env.get(b"EXTRALIFE_RUN_DIR", b"").startswith(str(self.world.directory).encode()):
                token = env.get(b"EXTRALIFE_TOKEN", b"?").decode()
                found = env[b"EXTRALIFE_PROGRAM"].decode(), token, int(env[b"EXTRALIFE_ATTEMPT"])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - key[1] / os.sysconf("SC_CLK_TCK")
        if age_s > _YOUNG_S or (
            found is not None and found[1]
        ):  # a shim's child looks like a shim until it executes the worker
            self._known[key] = found
        return found

    # files

    def fence(self, program: str) -> str:
        with contextlib.suppress(OSError):
            return (self.world.run_dir(program) / contract.FENCE_FILE).read_text().strip()
        return ""

    def _beat(self, program: str, workers: tuple[Process, ...]) -> contract.Beat | None:
        """The beat of the live worker; None without one, or when its record cannot be read."""
        for attempt in sorted({each.attempt for each in workers}, reverse=True):
            beat = daemon_side.read_beat(self.world.runtime / "beats" / f"{program}.{attempt}.beat")
            if beat is not None and beat.token in {each.token for each in workers}:
                return beat
        return None

    def checkpoints(self, program: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(steps of the whole checkpoints, steps of the damaged ones), newest first."""
        where = self.world.run_dir(program) / contract.CHECKPOINTS_DIR
        whole, damaged = [], []
        names = []
        with contextlib.suppress(OSError):
            names = os.listdir(where)
        for name in names:
            parsed = contract.parse_checkpoint_name(name)
            if parsed is None:
                continue
            verdict = self._verify(where / name)
            if verdict is not None:
                (whole if verdict else damaged).append(parsed[0])
        return tuple(sorted(whole, reverse=True)), tuple(sorted(damaged, reverse=True))

    def _verify(self, path: Path) -> bool | None:
        """Whether a checkpoint is whole; None: it was pruned or renamed meanwhile.

        Digests are computed again only when a file has changed.
        """
        try:
            stats = {each.name: each.stat() for each in path.iterdir()}
        except OSError:
            return None
        key = tuple(sorted((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in stats.items()))
        known = self._verdicts.get(path)
        if known is not None and known.key == key:
            return known.whole
        whole = _whole(path)
        if not path.is_dir():
            self._verdicts.pop(path, None)
            return None
        self._verdicts[path] = _Verdict(key, whole)
        return whole

    def newest(self, program: str) -> Path | None:
        """The newest committed checkpoint, whole or not."""
        where = self.world.run_dir(program) / contract.CHECKPOINTS_DIR
        with contextlib.suppress(OSError):
            found = [(parsed[0], path) for path in where.iterdir() if (parsed := contract.parse_checkpoint_name(path.name))]
            return max(found)[1] if found else None
        return None


def _whole(path: Path) -> bool:
    try:
        manifest = contract.Manifest.from_json((path / contract.MANIFEST_FILE).read_bytes())
        for name, (size, digest) in manifest.files.items():
            data = (path / name).read_bytes()
            if len(data) != size or hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
                return False
    except (OSError, ValueError):
        return False
    return bool(manifest.files)


def daemon_figures(pid: int) -> dict[str, int] | None:
    """Resident bytes, descriptors and threads of a process."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
        return {
            "rss_kib": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        }  # fmt: skip
    except (OSError, KeyError, ValueError):
        return None
