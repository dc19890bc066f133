"""Files, their names and the output of tools are UTF-8, whatever the locale.

In a locale such as C or ISO-8859-1, Python may give file names another encoding: a path of the configuration with an umlaut
then cannot be written, or leads to another file. So a command begins again there, in Python's UTF-8 mode. A flag and no
variable chooses it, because programs inherit variables. Text files name their encoding in any case: a linter's rule and
`tests/test_encodings.py` see to it.
"""

from __future__ import annotations

import os
import sys


def settle() -> None:
    """Begin this command again in UTF-8 mode, if it must. Call it before anything is opened. The pid stays the same.

    A character that standard output cannot encode, as with PYTHONIOENCODING=ascii, is escaped.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-Xutf8=1", *sys.orig_argv[1:]])  # noqa: S606  no shell, on purpose
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
