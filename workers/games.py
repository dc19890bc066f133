"""envpool with the games that workers train, and without its other families of environments.

`import envpool` imports the registrations of 17 families (MuJoCo, Jumanji with matplotlib, ...): 0.63-0.75 s of CPU at
each start of a worker. Registering two families takes 0.15 s (1.2.5, measured). The registrations are listed in one
module, `envpool.entry`, which the package imports first. An empty module in its place prevents them.
A version of envpool with another structure is imported completely.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any, Final

_LIST: Final = "envpool.entry"
_FAMILIES: Final = ("envpool.atari.registration", "envpool.toy_text.registration")


@functools.cache
def envpool() -> Any:
    """The package. Raises ImportError, as `import envpool` does."""
    if "envpool" in sys.modules or _LIST in sys.modules:
        return importlib.import_module("envpool")
    sys.modules[_LIST] = ModuleType(_LIST)
    try:
        return _registered()
    except ImportError:
        _forget()
        return importlib.import_module("envpool")
    finally:
        sys.modules.pop(_LIST, None)  # a later import gets the real module


def _registered() -> ModuleType:
    package = importlib.import_module("envpool")
    for family in _FAMILIES:
        importlib.import_module(family)
    return package


def _forget() -> None:
    """Remove all modules of an import that failed half-way."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "envpool"]:
        del sys.modules[name]
