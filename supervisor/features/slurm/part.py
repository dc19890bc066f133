"""The launcher of jobs, and what reads their files."""

from __future__ import annotations

from supervisor.adapters.figures.thread import FigureReader
from supervisor.adapters.parts import Part, World
from supervisor.adapters.process.processes import ProgramAdapters
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.model.settings import Settings
from supervisor.ports import NewestOwn


def part(world: World) -> Part:
    def launches(settings: Settings, newest_own: NewestOwn, figures: FigureReader) -> ProgramAdapters | None:
        if not settings.of(LauncherSettings).remote:
            return None
        from supervisor.features.slurm.adapters.client import Slurm
        from supervisor.features.slurm.adapters.launcher import SlurmLauncher, remote_paths
        from supervisor.features.slurm.adapters.probes import SlurmEvidence, SlurmProbes
        from supervisor.features.slurm.adapters.report import SlurmControls

        there = remote_paths(world.paths)
        launcher = SlurmLauncher(there, rules, Slurm(), world.inbox, world.clock, figures.last)
        probes = SlurmProbes(there, world.clock, launcher.begun, newest_own, figures, launcher.suspended)
        evidence = SlurmEvidence(there, launcher.number, world.inbox, world.clock)
        return ProgramAdapters(there, launcher, probes, SlurmControls(there, world.clock), evidence.take)

    def rules() -> LauncherSettings:
        return world.settings().of(LauncherSettings)

    return Part(launches=launches)
