"""`manual`: the two man pages, made from the output of `--help`, so that they always describe this version."""

from __future__ import annotations

import sys

from supervisor.ctl import actions
from supervisor.ctl.outcome import OK, USAGE, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.ctl.session import Session

_EXITS = (
    ("0", "done; for status: every program shown runs, or will run by itself"),
    ("1", "refused, no such process, wrong arguments"),
    ("2", "unknown option"),
    ("3", "status: a program is down for good, or restarts only slowly after many deaths"),
    ("4", "status: the daemon is dead, or a name is unknown"),
    ("7", "no daemon answers; start: the process ended at once"),
)
_FILES = (
    ("/etc/extralife/extralife.toml", "configuration of an installed service"),
    ("/run/extralife/supervisor.sock", "control socket of an installed service"),
    ("/var/lib/extralife", "journal, checkpoints and logs of an installed service"),
)


def manual(session: Session, args: list[str]) -> int:
    """`manual [supervisorctl|supervisord]`.

    Print a man page, for example: supervisorctl manual > supervisorctl.1; deploy/install.sh installs both.
    """
    pages = {"supervisorctl": _client, "supervisord": _daemon}
    name = args[0] if args else "supervisorctl"
    if len(args) > 1 or name not in pages:
        raise Failed(f"Error: manual takes {' or '.join(pages)}", USAGE)
    session.say("\n".join(pages[name]()))
    return OK


def _client() -> list[str]:
    out = _head("SUPERVISORCTL", 1, "supervisorctl, extralifectl", "talk to extralife's daemon")
    out += [".SH SYNOPSIS", ".B supervisorctl", "[options] [action [arguments]]", ".SH DESCRIPTION"]
    first, _, rest = actions.USAGE.partition("\n\n")[2].partition("\n\n")
    out += [_plain(first.replace("\n", " ")), ".SH OPTIONS", *_listed(rest.partition("\n\n")[0]), ".SH ACTIONS"]
    for name in actions.names():
        usage, *about = (actions.description(name) or name).split("\n")
        out += [".TP", f".B {_plain(usage)}", _plain(" ".join(line.strip() for line in about)) or r"\&"]
    out += [".SH EXIT STATUS"]
    for code, meaning in _EXITS:
        out += [".TP", f".B {code}", _plain(meaning)]
    return [*out, *_tail("supervisord", 8)]


def _daemon() -> list[str]:
    import subprocess

    output = subprocess.run(
        [sys.executable, "-m", "supervisor", "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "200"}
    ).stdout
    _, about, options = output.split("\n\n", 2)
    out = _head("SUPERVISORD", 8, "supervisord, extralife", "extralife's daemon")
    out += [".SH SYNOPSIS", ".B supervisord", "[options]", ".SH DESCRIPTION", _plain(about)]
    out += [".SH OPTIONS", *_listed(options.partition("\n")[2])]
    return [*out, *_tail("supervisorctl", 1)]


def _head(title: str, section: int, names: str, about: str) -> list[str]:
    return [f'.TH {title} {section} "" extralife', ".SH NAME", rf"{names} \- {about}"]


def _listed(lines: str) -> list[str]:
    """Lines of `  -x, --long VALUE  meaning` as a list with hanging indents."""
    out: list[str] = []
    for line in lines.split("\n"):
        option, _, meaning = line.strip().partition("  ")
        if option.startswith("-"):
            out += [".TP", f".B {_plain(option)}", _plain(meaning.strip()) or r"\&"]
        elif option:  # the meaning of a long option, on the next line
            out[-1] = _plain(line.strip())
    return out


def _tail(other: str, section: int) -> list[str]:
    out = [".SH FILES"]
    for path, meaning in _FILES:
        out += [".TP", f".I {_plain(path)}", _plain(meaning)]
    return [*out, ".SH SEE ALSO", f".BR {other} ({section})"]


def _plain(text: str) -> str:
    r"""Escape what troff would interpret: `\` anywhere, `.` and `'` at the beginning. An escaped `-` can be searched for."""
    safe = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{safe}" if safe[:1] in {".", "'"} else safe
