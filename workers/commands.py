"""The installed commands. They import extralife's own package even if PyPI's `supervisor` hides it.

Both packages are called `supervisor`. Ours lies beside `workers`, so the directory that `workers` was imported from is
searched first. No worker imports this module.
"""

from __future__ import annotations

import importlib
import os
import sys


def daemon() -> int:
    """`supervisord`, `extralife`."""
    return _run("supervisor.__main__")


def client() -> int:
    """`supervisorctl`, `extralifectl`."""
    return _run("supervisor.ctl.__main__")


def _run(name: str) -> int:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  pathlib takes 10 ms to import
    if here not in sys.path or sys.path.index(here) > 0:
        sys.path.insert(0, here)
    status: int = importlib.import_module(name).main()
    return status
