"""Supervisor's names for programs: `name`, `name:name`, `group:*`, `group:` and `all`. Standard library only.

Here each program is its own group, so all forms but `all` name one program. A name that is none stays as it was typed:
the answer has to show it.
"""

from __future__ import annotations


def plain(spec: str) -> str:
    """`Pong:Pong`, `Pong:*` and `Pong:` are `Pong`; `Pong:Breakout` is nobody and stays as it is."""
    group, colon, name = spec.partition(":")
    return group if colon and name in {"", "*", group} else spec


def expand(specs: list[str], known: list[str]) -> list[str]:
    """Program names in the order asked, each once; `all` means all that are known, sorted."""
    if "all" in specs:
        return sorted(known)
    return list(dict.fromkeys(plain(spec) for spec in specs))
