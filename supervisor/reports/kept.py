"""Pieces of the folds over the journal that are over: slices, marks, incidents, spans. They leave the memory for a file.

A fold hands out its finished items in chunks (`chunked`). Later it asks for those that a window needs, or takes the newest
ones back because a later fact changes them. `adapters/journal/summaries.py` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

_CHUNK: Final = 100


class Chunk(NamedTuple):
    """Items in their order, as JSON values. The chunks of an owner are numbered from 0."""

    kind: str
    owner: str
    number: int
    from_s: float  # the earliest moment of any item
    to_s: float  # and the latest
    items: list[Any]


Span = tuple[float, float, Any]  # from, to, item


def chunked(kind: str, owner: str, first: int, items: Sequence[Span]) -> Iterator[Chunk]:
    """The items as chunks; the first one gets the number `first`."""
    for number, place in enumerate(range(0, len(items), _CHUNK), first):
        part = items[place : place + _CHUNK]
        begin_s, end_s = min(each[0] for each in part), max(each[1] for each in part)
        yield Chunk(kind, owner, number, begin_s, end_s, [each[2] for each in part])


class Kept(Protocol):
    """Where the chunks are. Only chunks with a number below `below` count: the others were taken back."""

    def overlapping(self, kind: str, owner: str, since_s: float, until_s: float, below: int) -> Iterable[Chunk]:
        """The chunks with any moment in the window, in their order, each read when it is wanted."""

    def beside(self, kind: str, owner: str, at_s: float, below: int) -> list[Chunk]:
        """The last chunk that ends at this moment or before it, and the first one that ends after it."""

    def newest(self, kind: str, owner: str, below: int) -> Chunk:
        """The chunk with the number `below` - 1."""
