"""Node names in Slurm's notation, `a[01-03,7],b`.

Worked example: `expand("a[01-03,7],b")` is `("a01", "a02", "a03", "a7", "b")`. The width of a number is part of the name:
`a7` and `a07` are two nodes. A name may have several ranges, `rack[1-2]n[3-4]`: the last one varies fastest.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final

MOST: Final = 65_536
"""Slurm's own limit of a hostlist. A longer list is a damaged or hostile answer, which must not fill the memory."""

_PARTS: Final = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class BadNodes(ValueError):
    """The text is no list of node names; the message gives the reason."""


def expand(text: str) -> tuple[str, ...]:
    """All names in their order, each once. Empty text, `(null)`, `N/A` and `None assigned` mean no nodes."""
    if text.strip() in {"", "(null)", "None assigned", "N/A"}:
        return ()
    found: dict[str, None] = {}
    for word in _words(text):
        choices = [_choices(part) for part in _parts(word)]
        count = 1
        for each in choices:
            count *= len(each)
        if count + len(found) > MOST:
            raise BadNodes(f"{text[:60]!r} names more than {MOST} nodes")
        found.update(dict.fromkeys("".join(each) for each in product(*choices)))
    return tuple(found)


def _words(text: str) -> list[str]:
    """The text, split at the commas outside of brackets."""
    words, depth, begin = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in {0, 1}:
            raise BadNodes(f"{text[:60]!r} has brackets that do not match")
        if char == "," and not depth:
            words.append(text[begin:index])
            begin = index + 1
    if depth:
        raise BadNodes(f"{text[:60]!r} has brackets that do not match")
    return [*words, text[begin:]]


def _parts(word: str) -> list[str]:
    parts = _PARTS.findall(word)
    if not parts or "".join(parts) != word:
        raise BadNodes(f"{word[:60]!r} is no name of a node")
    return parts


def _choices(part: str) -> list[str]:
    if not part.startswith("["):
        return [part]
    found: list[str] = []
    for each in part[1:-1].split(","):
        first, dash, last = each.partition("-")
        last = last if dash else first
        if not (_NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and int(first) <= int(last)):
            raise BadNodes(f"{part[:60]!r} is no range of numbers")
        if int(last) - int(first) + len(found) >= MOST:
            raise BadNodes(f"{part[:60]!r} names more than {MOST} nodes")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found
