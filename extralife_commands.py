"""The installed commands: extralife's own package is imported even where PyPI's `supervisor` hides it.

Both packages are called `supervisor`. This module has a name of its own and lies beside ours, so the directory that it was
imported from is the one to look into first.
"""

from __future__ import annotations

import os
import sys


def daemon() -> int:
    """`supervisord`, `extralife`."""
    _ours_first()
    from supervisor.__main__ import main

    return main()


def client() -> int:
    """`supervisorctl`, `extralifectl`."""
    _ours_first()
    from supervisor.ctl.__main__ import main

    return main()


def _ours_first() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib takes 10 ms to import
    if here not in sys.path or sys.path.index(here) > 0:
        sys.path.insert(0, here)
