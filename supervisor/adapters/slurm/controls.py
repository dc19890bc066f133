"""Control records of jobs. They lie on the shared file system. Each node copies its own record from there (`node.py`)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.adapters.process.controls import Controls
from supervisor.model.commands import SetControl


class SlurmControls(Controls):
    """Closes each record after every write, because other hosts see the new content only then.

    `leave_by_s` is a stamp of this host's clock and has no meaning on another host, so it is not written. A signal asks a
    job to leave.
    """

    def write(self, command: SetControl) -> None:
        """Raises OSError when the shared file system cannot be written."""
        with self._guard:
            super().write(replace(command, leave_by_s=None))
            writer = self._writers.pop(command.token, None)
            if writer is not None:
                writer.close()
