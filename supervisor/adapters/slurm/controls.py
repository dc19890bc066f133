"""Control records of jobs: on the shared file system, from where each node copies its own (`node.py`)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.adapters.process.controls import Controls
from supervisor.model.commands import SetControl


class SlurmControls(Controls):
    """Each record is closed after every write: only then do other hosts see it.

    `leave_by` is a stamp of this host's clock, which means nothing on another one: a job is asked to leave by a signal.
    """

    def write(self, command: SetControl) -> None:
        """Raises OSError when the shared file system cannot be written."""
        with self._guard:
            super().write(replace(command, leave_by_s=None))
            writer = self._writers.pop(command.token, None)
            if writer is not None:
                writer.close()
