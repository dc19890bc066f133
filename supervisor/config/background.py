"""Finds a command whose end is not that of its work: `docker run -d`, `sbatch`, `python train.py &`, or a loop in a shell.

extralife would call such a program finished, or start it again beside itself. Of a shell, and of a shell script that the
command names, only the last command counts: `docker run -d IMAGE; docker logs -f NAME` stays. Worked example: `docker run
--gpus all -d IMAGE` is answered with `remove -d`, but in `docker run IMAGE serve -d` the option belongs to IMAGE. A shell
that loops until its training ends well shows no crash, and one that ends with `wait` or `echo` exits with 0 after a crash.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from supervisor.config.shell_syntax import SHELLS, runs_shell
from supervisor.files import read_bounded

_PREFIX: Final = re.compile(
    r".*=.*|-.*|[\d.]+[smhd]?|do|then|else|\{|(.*/)?(env|exec|nice|ionice|nohup|sudo|time|timeout|stdbuf)"
)
_AFTER: Final = ("echo", "disown", "exit", "done", "fi", "}")  # `python train.py & echo $! > pid`
_SCRIPT: Final = re.compile(rb"#!.*[/ ](ba|da|z|k)?sh\b")
_SPLITS: Final = ";&|()<>\n"
_DETACH: Final = r"(-[itPq]*d[itPq]*|--detach(=true)?) "
_PLAIN: Final = (
    r"-[itPq]+ |--(rm|init|interactive|tty|privileged|publish-all|quiet|read-only) |--\S+=\S* "  # no word follows
)
_OPTIONS: Final = r"(-\S+ ([^-]\S* )?)*?"
_ROWS: Final = {  # beginning of a command, each word with a space -> what to do
    rf"(docker|podman|nerdctl) {_OPTIONS}((container|compose) {_OPTIONS})?run "
    rf"((?!{_DETACH})({_PLAIN}|(?!{_PLAIN})-\S+ \S+ ))*{_DETACH}": "remove -d",
    rf"(docker|podman)[ -]compose (.* )?up (.* )?{_DETACH}": "remove -d",
    r"(docker|podman) (container )?start (?!(.* )?(-[ai]+|--attach) )": "add --attach",
    r"sbatch (?!(.* )?(-W|--wait) )": 'write srun in place of sbatch, or leave it to kind = "slurm" in [launcher]',
    r"systemctl (-\S+ )*(start|restart) (?!(.* )?--wait )": "write the command of the unit itself (its ExecStart)",
    r"systemd-run (?!(.* )?(--wait|--scope|--pty|--pipe|--shell|-[tPS]) )": "remove systemd-run, or add --scope",
    r"tmux (.* )?new(-s\S*)? (.* )?-[AdDEPX]*d": "write its command without tmux",
    r"screen (.* )?(-d\w*m|-md|-d -m|-m -d)": "write its command without screen",
    rf"kubectl {_OPTIONS}(apply|create|run (?!(.* )?(-\w*[it]|--attach)))": "let kubectl wait or kubectl logs -f follow",
    r"ssh (-\S+ ([^-]\S* )?)*?-[46AaCgKkNnqTtvXxYy]*f": "remove -f",
    r"pm2 (start|restart) (?!(.* )?--no-daemon )": "write its command without pm2",
    r"setsid (?!(-\S+ )*(-\w*w\w*|--wait) )": "remove setsid",
}


_USER_CHANGERS: Final = frozenset({"sudo", "su", "runuser", "doas", "pkexec", "gosu", "su-exec"})
_USER: Final = "remove it and set user, or let extralife run as that user"
RUNS: Final = re.compile(r"\b(python[\d.]*|torchrun|accelerate|deepspeed) ")
_CAREFUL: Final = re.compile(r"\bset -\w*e|\bexit\b|&&|\|\||\$\?")  # another look at an exit code
_PIPED: Final = re.compile(rf"{RUNS.pattern}[^|]*\|(?!\|)")
_LASTS: Final = re.compile(r"(echo|date|touch|cp|mv|rm)\b")
_KILLS: Final = re.compile(r"\bkill (-\S+ ){0,3}(0|-\$\$)\W")
_CLIENT: Final = re.compile(r"\b(docker|nerdctl) (\S+ ){0,6}?run ")


def in_shell(words: list[str] | tuple[str, ...], directory: str, more: Callable[[str], str] = lambda _: "") -> str:
    """What is wrong in the words of a command without `mistake`, in the text that a shell reads, or the script it names.

    `more`: another check of a script's text.
    """
    at = 1 if len(words) > 1 and words[0].rpartition("/")[2] in SHELLS else 0
    path = Path(directory, words[at])
    script = read_bounded(str(path), 64 * 1024) if path.is_absolute() else b""
    text = script.decode(errors="replace") if at or _SCRIPT.match(script) else ""
    found = mistake(text) or more(text) or hidden(text)
    if found or not runs_shell(words):
        return f"in {words[at]}, {found}" if found else hidden(" ".join(words))
    return hidden(words[-1], "pipefail" in words)


def as_another_user(words: Sequence[str], path: str | None) -> str:
    """A warning of a training that sudo, or another setuid program, starts as another user; empty: none is seen.

    Of a shell's text, only its last command and those that name an interpreter or a launcher count: `sudo mount /data` ends.
    """
    try:
        parts = [each for each in (_parts(words[-1]) if runs_shell(words) else [list(words)]) if each]
    except ValueError:
        return ""
    for part in parts:
        name, changes = "", False
        for word in part:
            name = word.rpartition("/")[2]
            changes = name in _USER_CHANGERS or (name == "setpriv" and any(each.startswith("--reuid") for each in part))
            if changes or not _PREFIX.fullmatch(word):
                changes = changes or (not runs_shell(words) and _is_setuid(word, path))
                break
        if changes and (part is parts[-1] or RUNS.search(" ".join(part))):
            return f"{name} starts it as another user, whose processes extralife may not end unless it runs as root; {_USER}"
    return ""


def _is_setuid(word: str, path: str | None) -> bool:
    """Whether the program of this name takes its owner's rights, and its owner is not this user."""
    found = shutil.which(word, path=path)
    with contextlib.suppress(OSError):
        look = None if found is None else Path(found).stat()
        return look is not None and bool(look.st_mode & stat.S_ISUID) and look.st_uid != os.geteuid()
    return False


def hidden(text: str, pipefail: bool = False) -> str:
    """What the end of a shell's text does not show, and what to do."""
    parts = [part for each in re.split(r"[;\n]", text) if (part := each.strip())]
    loops, runs, last = "", "", parts[-1] if parts else ""  # loops: the head of a loop that goes on
    for part in parts:
        loops = part if re.match(r"(while|until|for)\b", part) else "" if part.startswith("done") else loops
        if RUNS.search(part):
            runs = loops or part
            if re.match(r"while (true|:|1|!)|until", loops):
                return "its loop starts the training again, so no crash is seen; remove the loop: extralife restarts it"
    if re.fullmatch(r"(.*&)? *wait", last) and "&" in text:
        return "wait ends with 0 although a training has crashed; write one program each, as with seeds"
    if not pipefail and "pipefail" not in text and any(map(_PIPED.search, parts)):
        return "its pipe hides the exit code of the training; begin it with set -o pipefail"
    if runs and not _CAREFUL.search(text):
        if _LASTS.match(last):
            return "its last command hides the exit code of the training; begin it with set -e"
        if last == "done" and runs.startswith("for"):
            return (
                "its loop goes on after a crash, with the exit code of its last run; write one program each, as with seeds"
            )
    if any("EXIT" in line and line.lstrip().startswith("trap ") and _KILLS.search(line) for line in text.splitlines()):
        return "its trap kills the shell, so a finished training looks killed; let the trap be for INT and TERM"
    if "--name" not in text and any(map(_CLIENT.search, parts)):
        make = "write shell = true and docker rm -f NAME; exec docker run --init --name NAME ..."
        return f"if its client is killed, the container works on, and the next start makes a second one; {make}"
    return ""


def commands_of(command: object) -> list[list[str]]:
    """The words of each command in the string or the list of words; none if it is wrong, which is reported elsewhere.

    What only follows the last one, such as `echo $!`, is left out.
    """
    try:
        parts = _parts(command) if isinstance(command, str) else [[each for each in command if isinstance(each, str)]]  # type: ignore[attr-defined]
    except (ValueError, TypeError):
        return []
    while parts and (not parts[-1] or parts[-1][0] in _AFTER):
        parts.pop()
    return parts


def mistake(command: object) -> str:
    """What is wrong with the string or the list of words of a command; empty: nothing is known to be."""
    parts = commands_of(command)
    words = parts[-1] if parts else []
    why = "returns at once, so the program ends while its work goes on unsupervised"
    if words[-1:] == ["&"]:
        return f"with & at its end it {why}; remove the &, and nohup"
    while words and _PREFIX.fullmatch(words[0]):
        words = words[1:]
    if runs_shell(words):
        at = next(at for at, word in enumerate(words) if re.match("-[^-]*c", word))
        return mistake("".join(words[at + 1 : at + 2]))
    name = words[0].rpartition("/")[2] if words else ""
    text = "".join(f"{word} " for word in (name, *words[1:]))
    return next((f"{name} {why}; {instead}" for row, instead in _ROWS.items() if re.match(row, text)), "")


def _parts(text: str) -> list[list[str]]:
    """The commands of a shell's text; one in the background ends with `&`. Raises ValueError for an open quotation."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SPLITS)
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if not set(word) <= set(_SPLITS) or set(word) & set("<>"):
            parts[-1].append(word)
            continue
        if word.strip(";)\n") == "&":
            parts[-1].append("&")
        parts.append([])
    return parts
