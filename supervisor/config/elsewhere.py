"""Finds a command whose work, files or processes are not this machine's: `ssh`, `docker exec`, `s3://`.

extralife signals the processes that it has started, and looks at files on this machine. So a stop of `ssh HOST train` ends
the client alone, and the pattern `s3://bucket/*.pt` finds nothing. Each such command gets one warning: what it means, and
what to write. Of a shell's text only the parts count that run a training, and the last one: `ssh db true; python
train.py` is fine. A store in an option for data is fine too, and so is any store if `checkpoint_glob` names a directory.
"""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import Final

from supervisor import discovery
from supervisor.config.background import RUNS, commands_of
from supervisor.config.shell_syntax import runs_shell

_OPTIONS: Final = r"(-\S+ ([^-]\S* )?)*?"
_PREFIX: Final = re.compile(
    r".*=.*|-.*|[\d.]+[smhd]?|do|then|else|\{|(.*/)?(env|exec|nice|ionice|nohup|time|timeout|stdbuf)"
)
_ROWS: Final = {  # beginning of a command, each word with a space -> what it means, and what to do
    rf"((docker|podman|nerdctl|kubectl|oc) {_OPTIONS}(container )?|(docker|podman)[ -]compose (.* )?)exec ": (
        "a stop ends only this client, and the process in the container goes on beside the next attempt; "
        "write docker run, or run extralife in the container"
    ),
    r"(docker|podman)[ -]compose (.* )?up ": (
        "a stop leaves its containers 10 s to save, and their checkpoints are in the containers; "
        "set stop_grace_period in its file, and mount the checkpoints' directory from this machine"
    ),
    r"ssh (?!(-\S+ )*-[A-Za-z]*N)": (  # a tunnel runs nothing there
        "a stop ends only this client, and the training on the other machine may go on, with its checkpoints there; "
        "run extralife on that machine"
    ),
}
_OF_FEATURES: Final = dict(discovery.entries("settings", "ELSEWHERE"))  # while programs run on this machine
_STORE: Final = re.compile(
    r"(?:([\w.-]+)=)?[\"']?((?:s3a?|gs|gcs|abfss?|azure|az|wasbs?|adl|hdfs|r2|oss|cos|swift|b2)://\S*)"
)
_READS: Final = re.compile(r"data|input|train[-_]?set|corpus|tokeni|config|pretrain|teacher|vocab|shards|urls?$|index|eval")
_COPIES: Final = ("aws", "gsutil", "gcloud", "rclone", "s5cmd", "s3cmd", "azcopy", "mc", "curl", "wget", "hdfs", "fsspec")


def warning(command: object, *, saves: bool, remote: bool) -> str:
    """The warning about a command; empty: nothing is known. `saves`: its checkpoints on this machine are named.

    Example: `ssh gpu1 python train.py` is answered with "run extralife on that machine".
    """
    parts = commands_of(command)
    for at, part in enumerate(parts):
        if at < len(parts) - 1 and not RUNS.search(f"{' '.join(part)} "):
            continue
        words = list(dropwhile(_PREFIX.fullmatch, part))
        if runs_shell(words):
            text = next(words[n + 1 :] for n, word in enumerate(words) if re.match("-[^-]*c", word))
            if inner := warning("".join(text[:1]), saves=saves, remote=remote):
                return inner
            continue
        name = words[0].rpartition("/")[2] if words else ""
        line = "".join(f"{word} " for word in (name, *words[1:]))
        for row, what in (_ROWS if remote else _ROWS | _OF_FEATURES).items():
            if re.match(row, line):
                return f"{name}: {what}"
        if not saves and name not in _COPIES and (store := _store(words)):
            return (
                f"if it saves to {store}, that is no file of this machine: extralife sees no checkpoint's age, step or "
                "damage; save to a directory here, name it in checkpoint_glob, and copy from there"
            )
    return ""


def _store(words: list[str]) -> str:
    """The first address of a store that a command may write to."""
    for at, word in enumerate(words):
        found = _STORE.match(word.lstrip("-"))
        option = (found[1] or (words[at - 1].lstrip("-") if at and words[at - 1].startswith("-") else "")) if found else ""
        if found and not _READS.search(option.lower()):
            return found[2].strip("\"',)")
    return ""


def is_store(pattern: str) -> bool:
    """Whether a pattern of files is the address of a store."""
    return bool(re.match(r"[a-z][a-z0-9+.-]+://", pattern))
