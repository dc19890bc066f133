"""The cost of a long record: journals of a day, a month and a year of ten programs, and of a month of 100, side by side.

    python bench/years.py                                  # all four; an hour of one core
    python bench/years.py --records day month --keep DIR   # keeps the journals, and uses those of the last hours again
    python bench/years.py --records day --parts kills      # only the start and the kills; five minutes

The simulator (docs/testing.md) plays four days of each box: programs crash and stall, the host reboots, the daemon is
killed. One of these days is repeated with later times, more steps and other attempts, because playing a year takes 15
minutes. The facts go into a real journal, whose last fact is as old as this moment. Then a real daemon with trivial workers
starts on a copy, and answers. Each page is asked three times, of the last 12 hours and of all. The first answer stands
beside the median of the others, because a later one may come from what the first has kept.

CPU is that of the whole process by the kernel's clock, so that a busy machine matters little; wall time is beside it. A
dashboard is a client that asks for what an open page asks for, as often (`dashboard/app.js`). Kill-to-replacement is the
time from SIGKILL of a worker until its replacement runs, by the replacement's own clock, in pairs: without a dashboard, then
with two. They are open; or renew all pages at the moment of the kill, as after a change of a program's phase; or never
pause. The ratio is the median of the pairs' ratios. "Beside a long page": a page of 12 hours is asked again and again while
another client waits for one of all. "Start again" is the
second start on the same directory: the first one makes what a journal of an older release lacks. Prints tables and writes
bench/results/years.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests" / "sim")]

from boxes import DAY_S, YEAR  # noqa: E402
from footprint import cpu_s, memory_mib  # noqa: E402
from sides import Ours, end, table, wait_for, write_json  # noqa: E402
from world import World  # noqa: E402

from supervisor.adapters.journal import schema  # noqa: E402
from supervisor.model.codec import as_text, encode  # noqa: E402
from supervisor.model.facts import Snapshot, Stamped  # noqa: E402
from supervisor.model.fold import fold, fold_all  # noqa: E402
from supervisor.model.lifecycle import Phase  # noqa: E402
from supervisor.model.settings import JournalSettings  # noqa: E402
from supervisor.model.state import State  # noqa: E402
from supervisor.records import replace  # noqa: E402

RECORDS = {"day": (1, 10), "month": (37, 10), "year": (365, 10), "month of 100": (37, 100)}  # days, programs
ODDS = replace(
    YEAR, crash_s=2 * 3600.0, clock_s=None, finish_s=None, operator_s=None, poison=0.0
)  # 2,700 facts a day of ten
LOOK_S = 300.0  # between two looks at a quiet program
PLAYED_DAYS = 4.0  # of a longer record; then one of these days is repeated
JOURNAL_TIMES = {"last_sign_s", "until_s", "from_s", "saved_at_s", "ended_at_s", "checkpoint_at_s", "leave_at_s", "as_of_s"}
STEPS = {"step", "from_step", "fine_step", "checkpoint_step"}
FRESH_S = 3 * 3600.0
WINDOWS = ("43200s", "all")
ROUNDS = 3
MOST_BESIDE = 20  # pages of 12 hours that are asked while a long one is made
KILLS = 15  # pairs, in each way
SHARES = 2  # pairs of times, without and with a dashboard
IDLE_S = 120.0  # each of a dashboard's pages but the slowest comes at least twice
OPENED_S = 2.0  # from opening a dashboard until a kill: it has its first pages
POLL_S = 0.02
NEWEST = ("facts", {"limit": "-50"})
SUBJECTS = 72  # the most whose curves a dashboard draws
CURVES = {"series": "mean_return,steps_per_s", "points": "1000"}
PAGES: dict[str, dict[str, str]] = {
    "curves": CURVES, "report": {}, "incidents": {"limit": "1", "chars": "0"}, "timeline": {}, "cost": {}, "days": {},
    "accounts": {},
}  # fmt: skip
EVERY_S = {  # of an open dashboard
    "curves": 60, "report": 30, "level": 30, "incidents": 30, "timeline": 30, "cost": 60, "days": 300
}  # fmt: skip
COMMANDS = {"history": ["history"], "explain": ["explain", "P0"], "report": ["report"]}


# --- the journals ------------------------------------------------------------------------------------------------------


def written(path: Path, days: float, programs: int) -> int:
    """Play a box for some days, then repeat one of these days with other times, steps and tokens. The journal ends now."""
    played = _played(min(days, PLAYED_DAYS), programs)
    first, end = _seams(played) if days > PLAYED_DAYS else (len(played), len(played))
    period_s = played[end - 1].at_s - played[first - 1].at_s if end > first else 0.0
    times = int((days * DAY_S - played[end - 1].at_s) // period_s) if period_s else 0
    last_s = played[end - 1].at_s + times * period_s
    ahead_s = time.time() - last_s - (played[0].wall_s - played[0].at_s)
    begun, ended = (fold_all(played[:number]) if times else State() for number in (first, end))
    both = {name: (begun.programs[name], program) for name, program in ended.programs.items()}
    both = {name: pair for name, pair in both.items() if all(map(_runs, pair))}  # others have facts in the first days only
    offsets = {name: _differences(*pair) for name, pair in both.items()}
    tokens = {name: program.attempt.token for name, (_, program) in both.items() if program.attempt}
    old = {program.attempt.token: name for name, (program, _) in both.items() if program.attempt}
    state, seq = State(), 0
    schema.build(path, [])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number in range(times + 1):
            names = {token: _renamed(tokens[name], number - 1) for token, name in old.items()} if number else {}
            rows = []
            for each in played[first:end] if number else played[:end]:
                fact = each.fact
                if number and getattr(fact, "program", "") not in {"", *both}:
                    continue
                seq += 1
                if not isinstance(fact, Snapshot):
                    fact = _moved(fact, number, number * period_s, ahead_s + number * period_s, offsets, names)
                else:
                    fact = replace(fact, state=as_text(state))
                at_s, wall_s = each.at_s + number * period_s, each.wall_s + number * period_s + ahead_s
                boot = f"{each.boot_id}-{number}"
                stamped = Stamped(seq, at_s, wall_s, boot, fact)
                state = fold(state, stamped)
                rows.append(row_of(stamped))
            with schema.transaction(db):
                db.executemany(schema.INSERT, rows)
    return seq


def _played(days: float, programs: int) -> list[Stamped]:
    world = World(
        1, programs=programs, slots=programs, odds=ODDS, look_s=LOOK_S, lively_s=15.0, upkeep=True,
        journal=JournalSettings(keep_days=int(days) + 1),
    )  # fmt: skip
    world.core.wall_offset_s = time.time() - days * DAY_S
    world.begin()
    world.run(days * DAY_S)
    return list(world.core.journal)


def _seams(played: list[Stamped]) -> tuple[int, int]:
    """The facts of the day that is repeated. At its ends most programs run, so that one end fits the other."""
    state, idle = State(), [0]
    for each in played:
        state = fold(state, each)
        idle.append(sum(not _runs(own) for own in state.programs.values()))
    calm = sorted(range(1, len(played)), key=lambda at: (played[at - 1].at_s == played[at].at_s, idle[at]))
    first = next(at for at in calm if DAY_S <= played[at].at_s < 1.5 * DAY_S)
    return first, next(at for at in calm if played[at].at_s >= played[first].at_s + DAY_S)


def _runs(program: Any) -> bool:
    return program.phase is Phase.RUNNING and program.attempt is not None


def _differences(begun: Any, ended: Any) -> tuple[int, int]:
    return ended.steps - begun.steps, ended.attempt.number - begun.attempt.number


def _renamed(token: str, number: int) -> str:
    return token if number == 0 else hashlib.md5(f"{token}{number}".encode(), usedforsecurity=False).hexdigest()


def _moved(fact: Any, number: int, later_s: float, ahead_s: float, offsets: Any, names: dict[str, str]) -> Any:
    """The fact of another day: later, with more steps, and of another attempt."""
    steps, attempts = offsets.get(getattr(fact, "program", ""), (0, 0))
    changed: dict[str, Any] = {}
    for key in fact.__match_args__:
        value = getattr(fact, key)
        if value is None:
            continue
        if key in JOURNAL_TIMES:
            changed[key] = value + later_s
        elif key.endswith("_wall_s"):
            changed[key] = value + ahead_s
        elif key in STEPS:
            changed[key] = value + number * steps
        elif key == "steps" and isinstance(value, dict):
            changed[key] = {name: step and step + number * offsets.get(name, (0, 0))[0] for name, step in value.items()}
        elif key == "steps":
            changed[key] = value + number * steps
        elif key == "attempt":
            changed[key] = value + number * attempts
        elif key == "token":
            changed[key] = names.get(value) or _renamed(value, number)
    return replace(fact, **changed)


def row_of(stamped: Stamped) -> schema.Row:
    row = (stamped.seq, stamped.at_s + 0.0, stamped.wall_s + 0.0, stamped.boot_id, *encode(stamped.fact), 0)
    return *row[:7], schema.crc_of(row)


def journal(kept: Path, record: str) -> Path:
    """The journal of a record; one of the last hours is used again."""
    path = kept / f"{record.replace(' ', '-')}.sqlite"
    if not path.exists() or time.time() - path.stat().st_mtime > FRESH_S:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        aside = path.with_suffix(".new")
        began_s = time.process_time()
        count = written(aside, *RECORDS[record])
        aside.replace(path)
        print(f"{record}: {count:,} facts, written in {time.process_time() - began_s:.0f} s of CPU", flush=True)
    return path


# --- a daemon on a copy ------------------------------------------------------------------------------------------------


class Years(Ours):
    """A daemon of trivial workers on a copy of a journal. Each worker records when it began."""

    tables = (
        "[journal]\nkeep_days = 36_500\nmax_mb = 1_000_000\n"
        "[restart]\nbase_delay_s = 0.001\nmax_delay_s = 0.001\nwindow_deaths = 64"  # each kill is healed at once
    )


def unix(path: Path) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost", timeout=300)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(300)
    connection.sock.connect(str(path))
    return connection


def fetched(box: Years, name: str, query: dict[str, str]) -> bytes:
    with contextlib.closing(unix(box.runtime / "supervisor.sock")) as connection:
        return answered(connection, name, query)


def query_of(box: Years, name: str, window: str) -> dict[str, str]:
    subjects = {"subjects": ",".join([*box.programs][:SUBJECTS])} if name == "curves" else {}
    return {**PAGES.get(name, {}), **subjects, "since": window}


def answered(connection: http.client.HTTPConnection, name: str, query: dict[str, str]) -> bytes:
    connection.request("GET", f"/api/v1/{name}?{urlencode(query)}", headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{name} {query}: {answer.status} {body[:200]!r}")
    return gzip.decompress(body) if answer.getheader("content-encoding") == "gzip" else body


def serves(box: Years) -> bool:
    if box.daemon.poll() is not None:
        raise SystemExit("the daemon has ended; its configuration may be refused")
    with contextlib.suppress(OSError, RuntimeError):
        return bool(fetched(box, "level", {}))
    return False


@contextlib.contextmanager
def daemon(source: Path, programs: int, figures: dict[str, Any]) -> Iterator[tuple[Years, dict[str, Path]]]:
    """A daemon on a copy of the journal, from its start to its end; CPU and memory of the start."""
    tag = f"years{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="xly-") as name:
        where = Path(name)
        (where / "state").mkdir(mode=0o700)
        shutil.copyfile(source, where / "state" / "journal.sqlite")
        marks = {f"P{n}": where / f"began-{n}" for n in range(programs)}
        run = "echo $EPOCHREALTIME $$ > {0}.new; mv {0}.new {0}; exec sleep 86400 # {1}"
        began_s = time.perf_counter()
        box = Years({each: ["bash", "-c", run.format(mark, tag)] for each, mark in marks.items()}, where)
        try:
            wait_for(lambda: serves(box), 600, POLL_S)
            figures["start CPU s"] = cpu_s(box.daemon.pid)
            figures["start wall s"] = time.perf_counter() - began_s
            figures["start RSS MiB"] = memory_mib(box.daemon.pid)["rss"]
            yield box, marks
        finally:
            box.close()
            end(tag)


def asked(box: Years, call: Callable[[], object]) -> tuple[float, float]:
    """(CPU of the daemon, wall) in ms of one answer."""
    began_s, spent_s = time.perf_counter(), cpu_s(box.daemon.pid)
    call()
    return (cpu_s(box.daemon.pid) - spent_s) * 1e3, (time.perf_counter() - began_s) * 1e3


def page_costs(box: Years, _marks: dict[str, Path], figures: dict[str, Any]) -> None:
    asks = [(f"{name} {window}", name, query_of(box, name, window)) for window in WINDOWS for name in PAGES]
    for title, name, query in [*asks, ("facts newest 50", *NEWEST)]:
        if "summaries made, CPU s" not in figures:  # all pages of windows wait for them
            wait_for((box.directory / "state" / "summaries.json").exists, 3600, POLL_S)
            figures["summaries made, CPU s"] = cpu_s(box.daemon.pid) - figures["start CPU s"]
        found = [asked(box, lambda name=name, query=query: fetched(box, name, query)) for _ in range(ROUNDS)]
        figures[f"{title} CPU ms"] = f"{found[0][0]:.0f}, {statistics.median(cpu for cpu, _ in found[1:]):.0f}"
        figures[f"{title} wall ms"] = f"{found[0][1]:.0f}, {statistics.median(wall for _, wall in found[1:]):.0f}"


def beside_a_long_page(box: Years, _marks: dict[str, Path], figures: dict[str, Any]) -> None:
    """Pages of 12 hours, first alone, then while a page of all is being made. No earlier answer has the same window."""
    short, far = ("report", query_of(box, "report", WINDOWS[0])), query_of(box, "report", f"{10**9 + time.time():.0f}s")
    alone = [asked(box, lambda: fetched(box, *short))[1] for _ in range(MOST_BESIDE)]
    long = threading.Thread(target=fetched, args=(box, "report", far))
    began_s, beside = time.monotonic(), []
    long.start()
    while long.is_alive() and len(beside) < MOST_BESIDE:
        beside.append(asked(box, lambda: fetched(box, *short))[1])
        time.sleep(0.1)  # a reader looks at a page before the next one
    long.join()
    figures["the long page, wall s"] = time.monotonic() - began_s
    figures["report 12 h alone, wall ms"] = statistics.median(alone)
    figures["report 12 h beside it, median; most"] = f"{statistics.median(beside):.0f}; {max(beside):.0f}"


def command_costs(box: Years, _marks: dict[str, Path], figures: dict[str, Any]) -> None:
    """Client and daemon together, as a person waits for them."""
    for title, words in COMMANDS.items():
        spent_s, began_s = cpu_s(box.daemon.pid), time.perf_counter()
        client = subprocess.Popen(box.client(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        used_s = usage.ru_utime + usage.ru_stime + cpu_s(box.daemon.pid) - spent_s
        figures[f"extralifectl {title} CPU s"] = used_s
        figures[f"extralifectl {title} wall s"] = time.perf_counter() - began_s


# --- dashboards --------------------------------------------------------------------------------------------------------


class Dashboard:
    """An open dashboard of the last 12 hours: its stream, and its pages, two at a time, over connections that stay open.

    `eager` asks again at once, which no dashboard does: the worst case. The clients run at the lowest priority, because a
    browser runs on another machine.
    """

    def __init__(self, box: Years, *, eager: bool = False) -> None:
        self.box, self.eager, self.over, self.after = box, eager, False, ""
        self.due_s, self.changed = dict.fromkeys(EVERY_S, 0.0), threading.Condition()
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(2)]
        self.threads.append(threading.Thread(target=self.follow, daemon=True))
        for thread in self.threads:
            thread.start()

    def renew(self) -> None:
        """What a dashboard asks for after a change of a program's phase."""
        with self.changed:
            self.due_s |= dict.fromkeys(("report", "level", "cost", "incidents", "timeline"), 0.0)
            self.changed.notify_all()

    def follow(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        connection = unix(self.box.runtime / "supervisor.sock")
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.sock.settimeout(1.0)
            connection.request("GET", "/api/v1/stream", headers={"accept-encoding": "gzip"})
            while not self.over:
                with contextlib.suppress(TimeoutError):
                    connection.sock.recv(65536)

    def next(self) -> str:
        """The page that is due, once one is; empty at the end."""
        with self.changed:
            while not self.over:
                name = min(self.due_s, key=self.due_s.__getitem__)
                if self.due_s[name] <= time.monotonic():
                    self.due_s[name] = float("inf")
                    return name
                self.changed.wait(min(1.0, self.due_s[name] - time.monotonic()))
            return ""

    def ask(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with contextlib.closing(unix(self.box.runtime / "supervisor.sock")) as connection:
            while name := self.next():
                query = query_of(self.box, name, WINDOWS[0]) | (
                    {"after": self.after} if name == "curves" and self.after else {}
                )
                with contextlib.suppress(OSError, RuntimeError):  # the daemon may be busy, or end
                    body = answered(connection, name, query)
                    if name == "curves":  # of these, only new points are asked for
                        self.after = str(json.loads(body)["until_s"])
                with self.changed:
                    self.due_s[name] = time.monotonic() + (0.0 if self.eager else EVERY_S[name])

    def close(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(60)


def shares_of_a_core(box: Years, _marks: dict[str, Path], figures: dict[str, Any]) -> None:
    """Without and with a dashboard in turns, because a later minute may differ from an earlier one."""
    found: dict[str, list[float]] = {"idle": [], "one dashboard": []}
    for _ in range(SHARES):
        for title, count in zip(found, (0, 1), strict=True):
            open_now = [Dashboard(box) for _ in range(count)]
            time.sleep(3.0)  # the first pages of a dashboard that was just opened are no part of the long run
            spent_s, began_s = cpu_s(box.daemon.pid), time.monotonic()
            time.sleep(IDLE_S)
            found[title].append((cpu_s(box.daemon.pid) - spent_s) / (time.monotonic() - began_s) * 100)
            for each in open_now:
                each.close()
    for title, each in found.items():
        figures[f"{title} % of a core"] = f"{statistics.mean(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def began(mark: Path) -> tuple[float, int] | None:
    with contextlib.suppress(OSError, ValueError):
        at_s, pid = mark.read_text().split()
        return float(at_s), int(pid)
    return None


def replacement_ms(mark: Path) -> float:
    found = began(mark)
    assert found is not None
    killed_s = time.time()
    os.kill(found[1], signal.SIGKILL)
    again = wait_for(lambda: (new := began(mark)) and new[1] != found[1] and new, 60, POLL_S / 10)
    return (again[0] - killed_s) * 1e3


def kills(box: Years, marks: dict[str, Path], figures: dict[str, Any]) -> None:
    """Kill workers in pairs: without a dashboard, then with two. These are open, or renew their pages, or never pause."""
    wait_for(lambda: all(began(mark) for mark in marks.values()), 120, 0.2)
    waiting = list(marks.values())
    for way in ("open", "renewing", "without pauses"):
        pairs = []
        for _ in range(KILLS):  # a kill and its neighbour, because the machine's speed drifts
            pair = []
            for count in (0, 2):
                open_now = [Dashboard(box, eager=way == "without pauses") for _ in range(count)]
                time.sleep(OPENED_S)
                for each in open_now if way == "renewing" else ():
                    each.renew()
                waiting.append(waiting.pop(0))
                pair.append(replacement_ms(waiting[-1]))
                for each in open_now:
                    each.close()
            pairs.append(pair)
        alone_ms, beside_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(beside / alone for alone, beside in pairs)
        figures[f"kill, alone; two {way}, ms"] = f"{alone_ms:.0f}; {beside_ms:.0f} ({ratio:.2f})"


def start_again(box: Years, _marks: dict[str, Path], figures: dict[str, Any]) -> None:
    figures["RSS MiB at the end"] = memory_mib(box.daemon.pid)["rss"]
    box.daemon.terminate()
    box.daemon.wait(60)
    box.start()
    wait_for(lambda: serves(box), 600, POLL_S)
    figures["start again CPU s"] = cpu_s(box.daemon.pid)
    figures["start again RSS MiB"] = memory_mib(box.daemon.pid)["rss"]


PARTS = {
    "pages": page_costs, "beside": beside_a_long_page, "commands": command_costs, "kills": kills, "shares": shares_of_a_core,
    "again": start_again,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", nargs="+", choices=RECORDS, default=list(RECORDS))
    parser.add_argument("--keep", type=Path, help="directory of the journals (default: a temporary one)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        kept = given.keep or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        for record in given.records:
            source = journal(kept, record)
            figures = found[record] = {"MiB": source.stat().st_size / 2**20}
            with daemon(source, RECORDS[record][1], figures) as (box, marks):
                for part in given.parts:
                    PARTS[part](box, marks, figures)
            print(f"\n{table({record: figures})}", flush=True)
    if found:
        print("\n" + table(found))
        write_json("years", {"cores": os.cpu_count(), "load": os.getloadavg()[0], "records": found})


if __name__ == "__main__":
    main()
