r"""Text of strangers made safe to print: the one place, for the daemon and for `supervisorctl`. Imports nothing.

A worker's log lines, its status, the text of its exceptions, a configuration's odd names: any of them may hold escape
sequences that move the cursor, set the window's title or the clipboard (OSC 52), line ends that forge another line, or
bidirectional overrides (U+202E) that show a text in another order than it has. Everything that is not printable is
spelled out: ESC becomes the four characters `\x1b`. A terminal obeys none of what is left.

Journal and JSON keep texts exactly as they were, but for each fact's `why`, which is a sentence for people. Where
something is printed, it goes through here. JSON that is printed is ASCII (`\u001b`): exact, and as harmless.
"""

from __future__ import annotations


def printable(text: object, *, lines: bool = False) -> str:
    """`text` on one line of printable characters. With `lines`, line ends and tabs stay as they are."""
    found = str(text)
    if found.isprintable():
        return found
    if lines:
        found = found.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else " " if char in "\n\t\r" else _visible(char)
        for char in found
    )


def _visible(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
