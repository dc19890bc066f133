"""Decides from outside whether the daemon is healthy after an upgrade. Standard library only; upgrade.sh calls it.

    health.py look SOCKET                                        print the running state as JSON; exit status 1: no answer
    health.py same SOCKET BEFORE                                 0: the daemon is still the image that reported BEFORE
    health.py judge SOCKET BEFORE RELEASE READY_S HEALTHY_S      0: healthy; else print the reason in one sentence
    health.py keep-journal JOURNAL COPY                          copy a journal while it is being written
    health.py put-back JOURNAL COPY                              make the next daemon start with that copy as its journal

It must work with any version, older or newer, so it imports none of them and only asks the control socket. A daemon is
healthy when it runs the wanted release, answers all the time, can write its journal, is not restarted, and has every worker
that ran before: with the same pid, not behind its earlier step, and making progress.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

UNIT: Final = "extralife.service"
_ANSWER_S: Final = 10.0  # an overloaded daemon answers late; without an answer by then it is hanging
_EVERY_S: Final = 0.25
_MOST_ENDS: Final = 2  # after this many failed starts before its first answer, the daemon is not healthy
_LONG_S: Final = 20.0  # a worker that trained before makes progress within this time
_MOVING: Final = ("steps", "updates", "frames")

Json = dict[str, Any]


class Unwell(Exception):
    """The daemon is not healthy; the message is the reason in one sentence."""


class _Control(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, timeout_s: float = _ANSWER_S) -> Json | None:
    """The daemon's report about itself and its programs; None: no answer."""
    try:
        with contextlib.closing(_Control(path, timeout_s)) as control:
            control.request("GET", "/api/v1/status")
            answer = control.getresponse()
            found = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    fits = answer.status == http.client.OK and isinstance(found, dict) and isinstance(found.get("daemon"), dict)
    return found if fits else None


def running(status: Json) -> dict[str, Json]:
    """The programs with a worker that is not about to leave."""
    return {each["name"]: each for each in status["programs"] if each.get("pid") and each.get("phase") != "STOPPING"}


def same_image(status: Json, before: Json) -> bool:
    return bool(before) and status["daemon"].get("started_wall_s") == before["daemon"].get("started_wall_s")


def judge(path: str, before: Json, release: str, ready_s: float, healthy_s: float) -> None:
    """Raises Unwell. `before` is the earlier report of `look`, or empty if nothing is known of earlier workers."""
    first = _wait_for_it(path, before, release, ready_s)
    workers = running(before) if before else {}
    until_s = time.monotonic() + healthy_s
    status = first
    while True:
        check(first, status, before)
        for name, worker in workers.items():
            check_worker(name, worker, status)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        time.sleep(min(_EVERY_S, left_s))
        answer = ask(path)
        if answer is None:
            raise Unwell(f"the daemon has stopped answering: no answer within {_ANSWER_S:.0f} s")
        status = answer
    for name, worker in workers.items():
        check_progress(name, worker, status, healthy_s)


def _wait_for_it(path: str, before: Json, release: str, ready_s: float) -> Json:
    """The first answer of the new daemon."""
    ends, until_s = _ends(), time.monotonic() + ready_s
    while True:
        left_s = until_s - time.monotonic()
        status = ask(path, max(0.1, min(_ANSWER_S, left_s)))
        if status is not None and not same_image(status, before):
            runs = status["daemon"].get("release")  # older versions lack this field; they were started through `current`
            if runs not in {None, release, os.path.realpath(release)}:
                raise Unwell(f"the daemon runs {runs}, not {release}")
            return status
        if _ends() - ends >= _MOST_ENDS:
            raise Unwell(f"the daemon ends again and again before it answers; see journalctl -u {UNIT}")
        if left_s <= 0:
            what = "the daemon does not answer" if status is None else "the daemon has not replaced itself"
            raise Unwell(f"{what} after {ready_s:g} s; see journalctl -u {UNIT}")
        time.sleep(_EVERY_S)


def _ends() -> int:
    """How often systemd has restarted the daemon."""
    shown = subprocess.run(
        ["systemctl", "show", "--property", "NRestarts", "--value", UNIT],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    ).stdout.strip()
    return int(shown) if shown.isdigit() else 0


def check(first: Json, status: Json, before: Json) -> None:
    """The daemon has not been restarted, and can write its journal."""
    if not same_image(status, first):
        raise Unwell(f"the daemon was restarted while it was watched; see journalctl -u {UNIT}")
    error = (status["daemon"].get("journal") or {}).get("error")
    earlier = ((before or {}).get("daemon", {}).get("journal") or {}).get("error")
    if error and not earlier:
        raise Unwell(f"the daemon cannot write its journal: {error}")


def check_worker(name: str, worker: Json, status: Json) -> None:
    """A program that ran before still has its worker, with the same pid."""
    now = next((each for each in status["programs"] if each["name"] == name), None)
    if now is None:
        raise Unwell(f"the daemon does not know {name} any more")
    if now.get("pid") != worker["pid"] and now.get("phase") != "DONE":
        there = f"is {now['pid']}" if now.get("pid") else "is none"
        raise Unwell(f"{name} has lost its worker: it was pid {worker['pid']}, now there {there}")


def check_progress(name: str, worker: Json, status: Json, healthy_s: float) -> None:
    """The worker has lost no steps, the daemon reads its beats, and it makes progress if it did before."""
    now = next(each for each in status["programs"] if each["name"] == name)
    if now.get("phase") == "DONE":
        return
    # Compare only now: before its first sample a daemon shows the step of the last checkpoint, from the journal.
    if None not in {now.get("steps"), worker.get("steps")} and now["steps"] < worker["steps"]:
        raise Unwell(f"{name} went back from step {worker['steps']} to {now['steps']}")
    if worker.get("worker_phase") and not now.get("worker_phase"):
        raise Unwell(f"the daemon gets no beats from {name}, whose worker is pid {worker['pid']}")
    moved = any(now.get(each) != worker.get(each) for each in _MOVING)
    if healthy_s >= _LONG_S and worker.get("steps_per_s") and not moved:
        raise Unwell(f"{name} trained before and has made no progress for {healthy_s:g} s")


# --- the journal -------------------------------------------------------------------------------------------------------


def keep_journal(journal: Path, copy: Path) -> None:
    """A consistent copy of the journal, durable before it gets its name."""
    aside = copy.with_name(f"{copy.name}.new")
    aside.unlink(missing_ok=True)
    os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source, target = sqlite3.connect(f"file:{journal}?mode=ro", uri=True), sqlite3.connect(aside)
    with contextlib.closing(source), contextlib.closing(target):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
    _sync(aside)
    aside.rename(copy)
    _sync(copy.parent)


def put_back(journal: Path, copy: Path) -> None:
    """Put the copy beside the journal, under the name that the next start takes, and keep the present journal aside.

    The daemon finishes a journal that it rebuilt itself in the same way: a power cut at any moment leaves one of the two.
    """
    building = journal.with_name(f"{journal.name}.building")
    building.unlink(missing_ok=True)
    with copy.open("rb") as source, building.open("xb") as target:
        os.fchmod(target.fileno(), 0o600)
        while block := source.read(1 << 20):
            target.write(block)
    with contextlib.closing(sqlite3.connect(building)) as db:
        if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise Unwell(f"{copy} is damaged")
        db.execute("PRAGMA journal_mode = WAL")
    _sync(building)
    for suffix in ("-wal", ""):
        kept = journal.with_name(f"{journal.name}.newer{suffix}")
        kept.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.link(f"{journal}{suffix}", kept)
    building.rename(journal.with_name(f"{journal.name}.rebuilt"))
    _sync(journal.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def main(argv: list[str]) -> int:
    """The exit status; the reason goes to standard output as one sentence."""
    match argv:
        case ["look", path]:
            status = ask(path)
            if status is not None:
                print(json.dumps(status))
            return int(status is None)
        case ["same", path, before]:
            status = ask(path)
            return int(status is None or not same_image(status, json.loads(Path(before).read_text(encoding="utf-8"))))
        case ["judge", path, before, release, ready_s, healthy_s]:
            judge(
                path, json.loads(Path(before).read_text(encoding="utf-8") or "{}"), release, float(ready_s), float(healthy_s)
            )
        case ["keep-journal", journal, copy]:
            keep_journal(Path(journal), Path(copy))
        case ["put-back", journal, copy]:
            put_back(Path(journal), Path(copy))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Unwell, OSError, sqlite3.Error, ValueError, KeyError, TypeError) as wrong:
        print(wrong if isinstance(wrong, Unwell) else f"{type(wrong).__name__}: {wrong}")
        sys.exit(1)
