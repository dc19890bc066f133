r"""Makes untrusted text safe to print. The daemon and `extralifectl` both use only this module for it. Imports nothing.

Untrusted texts are a worker's log lines, its status, the text of its exceptions, or odd names in a configuration. Any of
them may contain escape sequences that move the cursor, set the window's title or the clipboard (OSC 52). They may contain
line ends that forge another line, or bidirectional overrides (U+202E) that change the displayed order. Every character that
is not printable is escaped: ESC becomes the four characters `\x1b`. The result contains no terminal commands.

Journal and JSON keep texts exactly as they were, except for each fact's `why`, which is a sentence for people. All printed
text goes through here. JSON is printed as ASCII (`\u001b`), which is exact and just as safe.
"""

from __future__ import annotations


def printable(text: object, *, lines: bool = False) -> str:
    """`text` on one line of printable characters. With `lines`, line ends and tabs are kept."""
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
