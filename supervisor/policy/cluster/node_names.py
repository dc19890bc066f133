"""Node names in Slurm's notation, `a[01-03,7],b`: the only module that expands and compresses them.

Worked example: `expand("a[01-03,7],b")` is `("a01", "a02", "a03", "a7", "b")`, and
`compress(("b", "a7", "a03", "a02", "a01"))` is `a[01-03,7],b` again. The width of a number is part of the name: `a7` and
`a07` are two nodes. A name may have several ranges, `rack[1-2]n[3-4]`: the last one varies fastest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from typing import Final

MOST: Final = 65_536
"""Slurm's own limit of a hostlist. A longer list is a damaged or hostile answer, which must not fill the memory."""

_PARTS: Final = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_NUMBERED: Final = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


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


def compress(names: Iterable[str]) -> str:
    """The shortest list that Slurm can read: names that differ only in their last number share one bracket."""
    groups: dict[tuple[str, int], set[int]] = {}
    plain: set[str] = set()
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.add(name)
            continue
        prefix, digits = match.groups()
        # 7 has no leading zero: it can share a range with 6 and 10. 07 can share one only with numbers of two digits.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        groups.setdefault((prefix, width), set()).add(int(digits))
    _join_wide(groups)
    brackets: dict[str, list[str]] = {}
    for (prefix, width), numbers in sorted(groups.items(), key=lambda each: (each[0][0], -each[0][1])):
        brackets.setdefault(prefix, []).extend(_ranges(sorted(numbers), width))
    words = [
        prefix + (f"[{','.join(each)}]" if len(each) > 1 or "-" in each[0] else each[0]) for prefix, each in brackets.items()
    ]
    return ",".join(sorted([*words, *plain]))


def _join_wide(groups: dict[tuple[str, int], set[int]]) -> None:
    """Move numbers without a leading zero to a group of the same width: `a10` then belongs to `a[08-12]`."""
    for prefix, width in [key for key in groups if key[1]]:
        free = groups.get((prefix, 0), set())
        wide = {each for each in free if len(str(each)) == width}
        groups[prefix, width] |= wide
        free -= wide
        if not free:
            groups.pop((prefix, 0), None)


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


def _ranges(numbers: list[int], width: int) -> list[str]:
    found: list[str] = []
    begin = 0
    for index, number in enumerate(numbers):
        if index + 1 < len(numbers) and numbers[index + 1] == number + 1:
            continue
        first, last = f"{numbers[begin]:0{width}d}", f"{number:0{width}d}"
        found.append(first if begin == index else f"{first}-{last}")
        begin = index + 1
    return found
