"""Decides whether one file can match two patterns. Programs with such patterns would resume from each other's checkpoints.

Example: `/srv/Pong-*.pt` and `/srv/Pong-s4-*.pt` meet, in `/srv/Pong-s4-100.pt`. `/srv/*.pt` and `/srv/*.ckpt` do not.
`a-*.pt` and `*-b.pt` meet in a file that may never be written, so callers warn and do not refuse. A class such as `[0-9]`
counts as any character.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

_TOKENS = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
_WILD = re.compile(r"[*?\[]")
_ANY = "\0"
_DEPTHS = ("", f"/{_ANY}/{_ANY}{_ANY}")


def may_meet(one: str, other: str) -> bool:
    """Whether one file can match both patterns. They are absolute and normal, with `*`, `?`, `[...]`, and `**` as a part."""
    fixed, begins = (_WILD.split(pattern, maxsplit=1)[0] for pattern in (one, other))  # before the first wildcard
    if not (fixed.startswith(begins) or begins.startswith(fixed)):
        return False  # nearly all pairs of 500 programs end here
    return _paths_meet(tuple(one.split("/")), tuple(other.split("/")))


def includes(one: str, other: str) -> bool:
    """Whether each file that matches the other pattern surely matches this one, as with `**/*.pt` and `b/step-*.pt`.

    A wildcard of the other is tried as a name that nobody chooses, and `**` as no directory and as two.
    """

    def tried(token: re.Match[str]) -> str:
        return _ANY if _WILD.match(token[0]) else token[0]

    names = [_TOKENS.sub(tried, other.replace("/**", directories)) for directories in _DEPTHS]
    return one == other or ("[" not in one and all(may_meet(one, name) for name in names))


def _paths_meet(one: Sequence[str], other: Sequence[str]) -> bool:
    if not one or not other:
        return all(part == "**" for part in (*one, *other))
    if one[0] == "**":
        return _paths_meet(one[1:], other) or _paths_meet(one, other[1:])
    if other[0] == "**":
        return _paths_meet(other, one)
    return _parts_meet(one[0], other[0]) and _paths_meet(one[1:], other[1:])


@functools.lru_cache(maxsize=1024)
def _parts_meet(one: str, other: str) -> bool:
    if not _WILD.search(one + other):
        return one == other
    ours, theirs = _TOKENS.findall(one), _TOKENS.findall(other)
    # meets[j]: whether the rest of ours, from the current token on, meets theirs from token j on.
    meets = [all(each == "*" for each in theirs[at:]) for at in range(len(theirs) + 1)]
    for mine in reversed(ours):
        below, meets = meets, [False] * (len(theirs) + 1)
        meets[-1] = mine == "*" and below[-1]
        for at in range(len(theirs) - 1, -1, -1):
            if "*" in (mine, theirs[at]):
                meets[at] = below[at] or meets[at + 1]
            else:
                same = mine == theirs[at] or "?" in (mine, theirs[at]) or len(mine) > 1 or len(theirs[at]) > 1
                meets[at] = below[at + 1] and same
    return meets[0]
