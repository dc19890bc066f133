"""Finds syntax for a shell in a command that no shell reads: `|`, `2>&1`, `$HOME`, `~/x`, `*.pt`.

In a command that is one string, operators are errors: `python train.py 2>&1 | tee log` would pass `2>&1`, `|`, `tee` and
`log` to the script. Other syntax may be meant literally, so it is a warning, which quotation marks silence. In a list of
words everything may be meant literally: operators are warnings too, and patterns are not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_OPERATOR: Final = re.compile(r"\|\|?&?|&&?|;;?|\(|\)|\d?(>>?|<<?)|\d?>>?&(\d|-)|&>>?.*|\d>>?[^&].*|>>?[^&=].*|.+;")
_EXPANDED: Final = re.compile(r"\$[A-Za-z_{(]|`")
_HOME: Final = re.compile(r"(.*=)?~(/.*)?")
_PATTERN: Final = re.compile(r".*[*?].*")
_QUOTED: Final = "\x01"  # replaces characters that a shell would not interpret


def runs_shell(words: Sequence[str]) -> bool:
    """Whether the command is a shell that reads one of its words, as `bash -c "..."` does."""
    return bool(words) and words[0].rpartition("/")[2] in SHELLS and any(re.match("-[^-]*c", word) for word in words[1:4])


def in_text(text: str) -> tuple[list[str], list[str]]:
    """(operators, words that a shell would expand) in a command that is one string."""
    words = "".join(_readable(text)).split()
    operators = [word for word in words if _OPERATOR.fullmatch(word)]
    expanded = [word for word in words if word not in operators and _replaced(word, patterns=True)]
    return operators, [word.replace(_QUOTED, "") for word in expanded]


def in_words(words: Sequence[str]) -> list[str]:
    """The words of a list that look like syntax for a shell."""
    return [word for word in words if _OPERATOR.fullmatch(word) or _replaced(word, patterns=False)]


def _replaced(word: str, *, patterns: bool) -> bool:
    if any(space in word for space in " \t\n"):
        return False
    found = _EXPANDED.search(word) or _HOME.fullmatch(word) or (patterns and _PATTERN.fullmatch(word))
    return bool(found)


def _readable(text: str) -> Iterator[str]:
    """The text with `_QUOTED` in place of the characters that quotation marks or a backslash hide from a shell."""
    quotation, is_escaped = "", False
    for letter in text:
        if is_escaped:
            is_escaped = False
            yield _QUOTED
        elif letter == "\\" and quotation != "'":
            is_escaped = True
        elif letter == quotation:
            quotation = ""
            yield _QUOTED
        elif quotation:
            yield letter if quotation == '"' and (letter.isalnum() or letter in "$`{(_/.") else _QUOTED
        elif letter in "'\"":
            quotation = letter
            yield _QUOTED
        else:
            yield letter
