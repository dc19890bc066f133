"""The adapters of programs that run as jobs."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.adapters.figures.thread import FigureReader
from supervisor.adapters.process.processes import ProgramAdapters
from supervisor.adapters.slurm.client import Slurm
from supervisor.adapters.slurm.launcher import SlurmLauncher, remote_paths
from supervisor.adapters.slurm.probes import SlurmEvidence, SlurmProbes
from supervisor.adapters.slurm.report import SlurmControls
from supervisor.model.settings import Paths
from supervisor.policy.cluster.launcher import LauncherSettings
from supervisor.ports import Clock, Inbox, NewestOwn


def program_adapters(
    paths: Paths, settings: Callable[[], LauncherSettings], inbox: Inbox, clock: Clock,
    newest_own: NewestOwn, figures: FigureReader,
) -> ProgramAdapters:  # fmt: skip
    there = remote_paths(paths)
    launcher = SlurmLauncher(there, settings, Slurm(), inbox, clock, figures.last)
    probes = SlurmProbes(there, clock, launcher.begun, newest_own, figures, launcher.suspended)
    evidence = SlurmEvidence(there, launcher.number, inbox, clock)
    return ProgramAdapters(there, launcher, probes, SlurmControls(there, clock), evidence.take)
