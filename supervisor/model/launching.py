"""What the kernel asks of a feature that starts the programs in place of its own launcher of processes."""

from __future__ import annotations

from supervisor.discovery import Extended
from supervisor.records import Record


class Launching(Record):
    """The base of such a feature's section. Its `Part.launches` makes the adapters."""

    @property
    def remote(self) -> bool:
        """Whether it starts the programs, on other hosts."""
        return False

    def asks_gpu(self, spec: Extended) -> str:  # noqa: ARG002
        """The setting that asks for a GPU of this program; empty: none."""
        return ""
