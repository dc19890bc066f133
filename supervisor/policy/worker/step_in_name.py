r"""Where the step of a checkpoint is found: in its path, or in a JSON file in it. `checkpoint_step` in the config.

* `trainer_state.json:global_step` names a file in the checkpoint and a key in that file; `state.json:counters.step` names
  a nested key.
* Anything else is a regular expression that is searched in the path: its group `step`, or its first one, is the number.
  The part of the path from the glob's first wildcard on comes first. If nothing matches there, the whole path is searched
  from `/` on, and the match nearest to its end counts, if it is more than the number: a `5` in a directory is no step.

Worked example: `step=(\d+)` in `runs/a/epoch=3-step=1200.ckpt` is 1200; in `runs/a/last.ckpt` it matches nothing, and the
step of that file is unknown. For the glob `/data/step_1200/*.pt` the expression `step_(\d+)` is 1200, too. A match that is
no whole number (`(\w+)` and "final") means unknown too, never 0.

Python's `re` can need longer than the universe lasts for one file name, and blocks the whole daemon meanwhile. So the
configuration refuses an expression that could: one that repeats a part which itself holds a repetition or a choice, as in
`(\d+)+`, and one with more than three open repetitions. Paths are short, so the other expressions take milliseconds.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

from supervisor.records import Record

_IN_FILE: Final = re.compile(r"([^():\\/*+?\[\]]+\.json):([A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*)")
_MOST_CHARS: Final = 200
_MOST_OPEN: Final = 3
_MOST_PATH: Final = 500
_MOST_DIGITS: Final = 18
_REPEATS: Final = frozenset({_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT})
_ONE: Final = frozenset(
    {_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.RANGE, _constants.CATEGORY}
)


class StepRule(Record):
    """Either a file and the keys in it, or a regular expression."""

    file: str = ""
    keys: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def of_path(self, path: str, base: str = "") -> int | None:
        """The step by the expression; None: no match, or one that is no whole number. `base`: the directory of `path`."""
        found = self._last_match(path, 1)
        below = found is not None
        found = found or self._last_match(f"{base}/{path}", _MOST_PATH)
        if found is None:
            return None
        text = found["step"] if "step" in found.re.groupindex else found[1]
        if not below and text == found[0]:
            return None
        return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None

    def _last_match(self, path: str, most: int) -> re.Match[str] | None:
        """The last of the first `most` matches."""
        if self.pattern is None or len(path) > _MOST_PATH:
            return None
        return next(iter(deque(islice(self.pattern.finditer(path), most), maxlen=1)), None)

    def of_json(self, body: object) -> int | None:
        """The step by the keys; None: a key is missing, or the value is no whole number."""
        for key in self.keys:
            body = body.get(key) if isinstance(body, dict) else None
        if isinstance(body, float) and body.is_integer():
            body = int(body)
        return body if type(body) is int and 0 <= body < 10**_MOST_DIGITS else None


def parsed(text: str) -> StepRule:
    """The rule that this setting describes. Raises ValueError with a clause that names the mistake."""
    if not text:
        return StepRule()
    if len(text) > _MOST_CHARS:
        raise ValueError(f"has more than {_MOST_CHARS} characters")
    in_file = _IN_FILE.fullmatch(text)
    if in_file:
        return StepRule(in_file[1], tuple(in_file[2].split(".")))
    try:
        pattern = re.compile(text)
        tree = _parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if not pattern.groups:
        raise ValueError(r"has no group for the number; write it in parentheses, such as step=(\d+)")
    if _is_endless(tree):
        raise ValueError(r"repeats what holds a repetition or a choice, which can take for ever; try step=(\d+)")
    if _open_repeats(tree) > _MOST_OPEN:
        raise ValueError(f"has more than {_MOST_OPEN} open repetitions (such as .*), which can take for ever")
    return StepRule(pattern=pattern)


def _is_endless(tree: Any) -> bool:
    """Whether the expression repeats a part that is more than a sequence of single characters."""
    for kind, given in tree:
        if kind in _REPEATS and given[1] > 1 and not _is_plain(given[2]):
            return True
        if any(_is_endless(inner) for inner in _inside(given)):
            return True
    return False


def _is_plain(tree: Any) -> bool:
    return all(
        kind in _ONE or (kind is _constants.SUBPATTERN and all(_is_plain(inner) for inner in _inside(given)))
        for kind, given in tree
    )


def _open_repeats(tree: Any) -> int:
    found = 0
    for kind, given in tree:
        found += kind in _REPEATS and given[1] > _MOST_CHARS
        found += sum(_open_repeats(inner) for inner in _inside(given))
    return found


def _inside(given: Any) -> list[Any]:
    """The expressions inside an element: a group, a choice or a condition."""
    if isinstance(given, _parser.SubPattern):
        return [given]
    if isinstance(given, tuple | list):
        return [inner for each in given for inner in _inside(each)]
    return []
