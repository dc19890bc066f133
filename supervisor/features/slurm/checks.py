"""Checks of `doctor` on `[launcher] kind = "slurm"`: the first questions of a cluster's support. They submit no job."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation, output_of, unknown_finding
from supervisor.features.slurm.adapters import report
from supervisor.features.slurm.adapters.client import Done, Slurm, Unknown
from supervisor.features.slurm.adapters.launcher import mark_of, remote_paths
from supervisor.features.slurm.adapters.script import Tag, Terms, batch_script
from supervisor.features.slurm.rules.jobs import Partition
from supervisor.features.slurm.settings import JobResources, LauncherSettings
from supervisor.filesystems import kind_of, shared
from supervisor.formats import span
from supervisor.model.settings import Paths, Settings

_OLDEST: Final = (20, 11)  # the first version whose `squeue -O` prints fields of any width
_ASK_S: Final = 20.0
_SLOW_S: Final = 1.0  # limit for writing, syncing and renaming one small file
_CLOCKS_S: Final = 5.0
_CONDA_MODULE: Final = re.compile(
    r"^\s*(?:module|ml)\b.*\b(?:ana|mini|micro)?(?:conda|mamba|forge)", re.IGNORECASE | re.MULTILINE
)
_ACTIVATES: Final = re.compile(r"^\s*(?:conda|mamba|micromamba) activate\b", re.MULTILINE)
_HOOKED: Final = re.compile(r"profile\.d/(?:conda|mamba)\.sh|shell\.(?:bash|posix) hook|shell hook|/bin/activate\b")
_QUOTA: Final = re.compile(r"^\s*(\S*)\s+([0-9]{1,18})(\*?)\s+([0-9]{1,18})\s+([0-9]{1,18})\s", re.MULTILINE)


def cluster(installation: Installation) -> Iterator[Finding]:
    """Slurm answers, and would accept a job with this configuration."""
    rules = _rules(installation)
    if rules is None:
        return
    slurm = Slurm(timeout_s=_ASK_S)
    version = slurm.version()
    if isinstance(version, Unknown):
        level = "bad" if version.why == "missing" else "unknown"
        yield Finding("slurm", level, text.printable(version.words), "run doctor where sbatch works: on a login node")
        return
    if version < _OLDEST:
        yield Finding("slurm", "bad", f"Slurm {_dotted(version)} is older than {_dotted(_OLDEST)}: its jobs cannot be read")
        return
    partitions = slurm.partitions()
    if isinstance(partitions, Unknown):
        what = f"the controller does not answer: {text.printable(partitions.words)}"
        yield Finding("slurm", "unknown", what, "try again later; trainings that run are not touched meanwhile")
        return
    yield Finding("slurm", "ok", f"Slurm {_dotted(version)} answers")
    for asked in dict.fromkeys(rung.level.of(JobResources).over(rules) for rung in installation.settings.rungs):
        yield from _partition(asked, partitions)
        yield _taken(slurm, asked, installation.settings)


def _rules(installation: Installation) -> LauncherSettings | None:
    rules = installation.settings.of(LauncherSettings)
    return rules if rules.remote else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:02d}"


def _partition(rules: LauncherSettings, found: list[Partition]) -> Iterator[Finding]:
    by_name = {each.name: each for each in found}
    asked = rules.partition.split(",") if rules.partition else [each.name for each in found if each.default]
    if not asked:
        what = "no partition is set, and this cluster has no default one"
        yield Finding("partition", "bad", what, f"set [launcher] partition: {', '.join(sorted(by_name))}")
    for name in asked:
        if name not in by_name:
            yield Finding("partition", "bad", f"there is no partition {name}", f"it has {', '.join(sorted(by_name))}")
            continue
        partition = by_name[name]
        most_s = partition.time_limit_s
        if partition.up is False:
            yield Finding(
                "partition", "warn", f"partition {name} is down: jobs wait until it is up", "`sinfo` says since when"
            )
        elif most_s is not None and rules.time_limit_s > most_s:
            what = f"a time limit of {text.duration(rules.time_limit_s)}; partition {name} allows {text.duration(most_s)}"
            yield Finding(
                "partition", "bad", f"{what}: such jobs never start", f"set [launcher] time_limit_s = {most_s:.0f}"
            )
        else:
            allowed = "any time limit" if most_s is None else f"jobs of up to {text.duration(most_s)}"
            yield Finding("partition", "ok", f"{name} allows {allowed}")


def _taken(slurm: Slurm, rules: LauncherSettings, settings: Settings) -> Finding:
    """Slurm's own check of partition, account, quality of service and resources together: `sbatch --test-only`."""
    tag = Tag(mark_of(settings.paths.state_dir), "doctor", 1, "0" * 32)
    answer = slurm.would_take(batch_script(Terms(rules), tag, command=("true",), output="/dev/null"))
    if isinstance(answer, Done):
        return Finding("job", "ok", "Slurm would take a job of this partition, account, quality of service and size")
    if isinstance(answer, Unknown):
        return Finding("job", "unknown", f"Slurm did not say whether it would take a job: {text.printable(answer.words)}")
    what = f"Slurm refuses such a job: {text.printable(answer.words)}"
    return Finding(
        "job", "bad", what, _may_use() or "set [launcher] partition, account, qos and gpus as your cluster's guide says"
    )


def _may_use() -> str:
    """Accounts, partitions and qos that this user may use, from Slurm's accounting; empty without accounting."""
    output = output_of("sacctmgr", "-n", "-P", "show", "assoc", f"user={getpass.getuser()}", "format=account,partition,qos")
    rows = [line.split("|") for line in output.splitlines() if line.count("|") == 2]
    partitions = [
        f"account {account}" + (f", partition {partition}" if partition else "") + (f", qos {qos}" if qos else "")
        for account, partition, qos in rows
    ]
    return f"you may use: {'; '.join(text.printable(each) for each in partitions[:8])}" if partitions else ""


def setup(installation: Installation) -> Iterator[Finding]:
    """Conda is initialised directly: a batch script reads no .bashrc, and a module's conda changes with the module."""
    rules = _rules(installation)
    if rules is None:
        return
    directly = "source ~/miniconda3/etc/profile.d/conda.sh, then conda activate NAME"
    if _ACTIVATES.search(rules.setup) and not _HOOKED.search(rules.setup) and not _CONDA_MODULE.search(rules.setup):
        what = "[launcher] setup activates an environment that nothing has initialised: a job reads no .bashrc"
        yield Finding("setup", "bad", what, directly)
    elif _CONDA_MODULE.search(rules.setup):
        what = (
            "[launcher] setup takes conda from a module: another default of the module is another Python under old packages"
        )
        yield Finding("setup", "warn", what, f"install conda in a directory of your own: {directly}")


def shared_files(installation: Installation) -> Iterator[Finding]:
    """Nodes and this host share one state directory, and its file system supports the operations that the daemon needs."""
    rules = _rules(installation)
    if rules is None:
        return
    state = Path(installation.settings.paths.state_dir)
    if not state.is_dir():
        return  # the check `directories` reports this
    kind = kind_of(state, installation.root)
    if kind and not shared(kind):
        what = f"{state} lies on {kind}, which other hosts do not see: jobs on nodes would find nothing there"
        yield Finding(
            "shared files", "warn", what, "choose a state_dir in your home or scratch directory, unless this is one machine"
        )
    try:
        took_s, ahead_s = _tried(state)
    except OSError as error:
        if isinstance(error, PermissionError):
            yield unknown_finding("shared files", error)
            return
        what = f"in {state}, {error.strerror or error}: the daemon needs fsync, rename, hard links and locks there"
        yield Finding("shared files", "bad", what, "choose another file system; `lfs` and `df -T` name what yours is")
        return
    if took_s > _SLOW_S:
        what = f"a small file takes {span(took_s)} to be written in {state}"
        yield Finding("shared files", "warn", what, "checkpoints take longer too: make signal_lead_s longer, or use scratch")
    else:
        yield Finding("shared files", "ok", f"{state}: fsync, rename, links and locks work, {span(took_s)} a file")
    yield from _clocks(installation.settings.paths, ahead_s)


def _tried(state: Path) -> tuple[float, float]:
    """(seconds to write one small durable file, seconds that this host's clock is ahead of the file server's clock)."""
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=state) as name:
        aside, placed = Path(name, "aside"), Path(name, "placed")
        placed.write_bytes(b"before\n")
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        with aside.open("wb") as file:
            file.write(b"after\n")
            file.flush()
            os.fsync(file.fileno())
        wall_s = time.clock_gettime(time.CLOCK_REALTIME)
        ahead_s = wall_s - aside.stat().st_mtime
        aside.rename(placed)
        took_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
        if placed.read_bytes() != b"after\n":
            raise OSError(0, "a renamed file has its old content")
        Path(name, "link").hardlink_to(placed)
        with placed.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return took_s, ahead_s


def _clocks(paths: Paths, ahead_s: float) -> Iterator[Finding]:
    """Compare this host's clock, and the clocks of nodes with reports, with the clock that stamps shared files."""
    off = {_off("this host", ahead_s)} if abs(ahead_s) > _CLOCKS_S else set()
    seen = 0
    for path in Path(remote_paths(paths).runtime_dir, "beats").glob("*.beat"):
        with contextlib.suppress(OSError):
            node = report.of_file(str(path))
            if node is not None:
                seen += 1
                node_s = node.wall_s - path.stat().st_mtime
                off |= {_off(f"node {text.printable(node.node)}", node_s)} if abs(node_s) > _CLOCKS_S else set()
    if off:
        what = f"clocks differ from the file server's: {', '.join(sorted(off))}"
        yield Finding(
            "clocks", "warn", what,
            "times in history are wrong by this much; decisions are not affected; tell the cluster's support",
        )  # fmt: skip
    else:
        nodes = f"this host and {seen} reports of nodes" if seen else "this host"
        yield Finding("clocks", "ok", f"{nodes}: within {span(_CLOCKS_S)} of the file server")


def _off(whose: str, ahead_s: float) -> str:
    return f"{whose}, {span(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}"


def quota(installation: Installation) -> Iterator[Finding]:
    """Space that this user's quota leaves for checkpoints, as far as the file system reports it."""
    if _rules(installation) is None or not Path(installation.settings.paths.state_dir).is_dir():
        return
    state = installation.settings.paths.state_dir
    if kind_of(Path(state), installation.root) == "lustre":
        output = output_of("lfs", "quota", "-q", "-u", getpass.getuser(), state)
    else:
        output = output_of("quota", "-w", "-p")
    rows = [(name, int(used), bool(over), int(soft) or int(hard)) for name, used, over, soft, hard in _QUOTA.findall(output)]
    limited = [(name, used, over, limit) for name, used, over, limit in rows if limit]
    if not limited:
        what = "no quota is known of the file system of the state directory"
        yield Finding("quota", "unknown", what, "the cluster's own command may say it, `myquota` for example")
    for name, used, over, limit in limited:
        room = f"{text.printable(name)}: {used >> 20} of {limit >> 20} GiB used"
        if over or used > 0.95 * limit:
            yield Finding(
                "quota", "bad", f"{room}: no checkpoint can be saved soon", "remove files, or move state_dir to scratch"
            )
        else:
            yield Finding("quota", "ok" if used < 0.8 * limit else "warn", room)
