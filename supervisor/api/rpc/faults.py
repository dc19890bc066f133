"""A refused XML-RPC call. Clients and plugins act on the code, and show the text, which begins with the code's name."""

from __future__ import annotations

from typing import Final

from supervisor.model import codes


class Fault(Exception):
    """A refused call. Its text is `NAME: detail`."""

    def __init__(self, code: int, detail: str = "") -> None:
        name = codes.NAMES[code]
        super().__init__(f"{name}: {detail}" if detail else name)
        self.code: Final = code
        self.text: Final = str(self)
