"""A request that cannot be served."""

from __future__ import annotations


class RequestRefused(Exception):
    """A refused request. Its sender gets the sentence, with an HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
