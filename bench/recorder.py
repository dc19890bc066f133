"""The size of the recorder's file, and the cost of its largest queries: 20 programs that have run for 30 days.

It measures the same for 20 scripts that report steps, returns, losses and the maximum number of custom figures, and for 8
GPUs.

Usage: .venv/bin/python bench/recorder.py [--programs 20] [--rounds 9]. Every tier is filled over its whole retention time
with numbers that do not repeat. A worker reports all figures except those that its algorithm does not have. Each program
begins a new attempt every six hours, and one row in seven belongs to a checkpoint being saved. The newest day ends in ten
seconds, so that the unfinished period of every tier is as long as possible: a reader folds it from the finer tiers.

A query is a page of the API (`reports/pages.py`), made and encoded as by the server. Each query runs for every window of
WINDOWS_S; the table shows the slowest window. For `recorded`, which `export` reads page by page, one page is a query. Times
are CPU times of the page and of its JSON (minimum, median and maximum of the rounds), so a busy box does not matter. It
also measures the commit of one moment's rows, and the reading of a worker's event files with 300,000 scalars. Prints a
table and writes bench/results/recorder.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.proto.summary_pb2 import Summary  # noqa: E402
from tensorboardX.record_writer import RecordWriter  # noqa: E402

from supervisor.api.encoding import encoded  # noqa: E402
from supervisor.features.recorder.adapters import events  # noqa: E402
from supervisor.features.recorder.adapters.store import RecordedFiles, Recording, fill  # noqa: E402
from supervisor.features.recorder.page import MOST_SERIES, first_and_newest  # noqa: E402
from supervisor.features.recorder.rules.recording import (  # noqa: E402
    FIGURES_OF_ITS_OWN,
    GPUS,
    HOST,
    MOST_OF_ITS_OWN,
    PROGRAMS,
    Row,
    Sheet,
    as_places,
    tag_of,
)  # fmt: skip
from supervisor.features.recorder.rules.resolution import TIERS, Tier, bucket_of  # noqa: E402
from supervisor.policy.box.readings import Spread  # noqa: E402
from supervisor.reports.ledger import Ledger  # noqa: E402
from supervisor.reports.pages import pages  # noqa: E402

HOUR_S, DAY_S = 3600.0, 86_400.0
END_S = 30 * DAY_S - 10.0  # ten seconds before the end of a day
ATTEMPT_S = 6 * HOUR_S
WALL_S = 1.8e9
TARGET_BYTES, TARGET_MS = 64 << 20, 600.0  # of a first answer: later ones have only new points
# Each window is a fifth longer than the previous one: this covers any tiers and any limit of an answer's size.
WINDOWS_S = [600.0 * 1.2**power for power in range(46) if 600.0 * 1.2**power < END_S] + [END_S]
# Figures that the usual algorithm does not report, and what only rows of several attempts have.
_UNKNOWN = {"entropy", "entropy_share", "test_return", "first_attempt", "first_steps", "resumed_within", "lost_steps"}


# --- recorded data -------------------------------------------------------------------------------------------------------


def values(sheet: Sheet, at_s: float, place: int, *, folded: bool) -> dict[str, float | Spread]:
    found: dict[str, float | Spread] = {}
    for series in sheet.series:
        if series.name in _UNKNOWN:
            continue
        mean = float(int(at_s * 1000 + place)) if series.counted else random.random() * 100
        mean = float(int(4e9 + mean * 1e6)) if series.unit == "bytes" else mean
        found[series.name] = Spread(mean * 0.9, mean, mean * 1.1) if folded and series.ends else mean
    return found


def moments(tier: Tier) -> Iterator[float]:
    """The times of a tier's rows: over its whole retention time, up to the last complete period."""
    until_s = bucket_of(END_S, tier.period_s)
    begun_s = max(0.0, bucket_of(END_S - tier.keep_s, tier.period_s) + tier.period_s)
    return (begun_s + number * tier.period_s for number in range(int((until_s - begun_s) / tier.period_s)))


def rows(tier: Tier, names: list[str]) -> Iterator[Row]:
    for number, at_s in enumerate(moments(tier)):
        phase = "saving" if number % 7 == 0 else "training"
        for place, name in enumerate(names):
            token = f"{int(at_s // ATTEMPT_S):016x}{place:016x}"
            row_values = values(PROGRAMS, at_s, place, folded=tier is not TIERS[0])
            yield Row(at_s, WALL_S + at_s, (name, token), ("RUNNING", phase, "heavy"), row_values)


def rows_of_scripts(tier: Tier, names: list[str]) -> Iterator[tuple[Row, Row]]:
    """Rows of scripts: a few known figures, and the maximum number of custom ones."""
    for row in rows(tier, names):
        known = {name: row.values[name] for name in ("mean_return", "loss", "env_steps", "steps_per_s", "memory_bytes")}
        own = {name: random.random() for name in OWN}
        own_row = as_places(row.at_s, row.wall_s, *row.keys, row.values["env_steps"], own)
        yield row._replace(values=known), own_row


OWN = [f"train/figure_{number:02}" for number in range(MOST_OF_ITS_OWN)]


def rows_of_gpus(tier: Tier) -> Iterator[Row]:
    """Rows of eight GPUs, each in total and by three phases of its workers."""
    folded = tier is not TIERS[0]
    for at_s in moments(tier):
        for gpu in range(8):
            for phase in ("", "acting", "learning", "saving"):
                yield Row(at_s, WALL_S + at_s, (f"GPU-{gpu}", phase), ("",), values(GPUS, at_s, gpu, folded=folded))


def rows_of_host(tier: Tier) -> Iterator[Row]:
    for at_s in moments(tier):
        yield Row(at_s, WALL_S + at_s, (), ("heavy",), values(HOST, at_s, 0, folded=tier is not TIERS[0]))


def recorded(path: Path, *sheets: tuple[Sheet, Callable[[Tier], Iterable[Row]]]) -> int:
    """Fill a recording; returns its size in bytes."""
    recording = Recording(path, now_s=END_S)
    for sheet, rows_of in sheets:
        for tier in TIERS:
            fill(recording, sheet, tier, iter(rows_of(tier)))
    size_bytes = recording.size_bytes
    recording.close()
    return size_bytes


def committed(path: Path, names: list[str], rounds: int) -> list[float]:
    """Milliseconds of CPU to commit the rows of one moment, per round."""
    recording = Recording(path, now_s=END_S)
    moment = [
        Row(END_S, WALL_S, (name, "t"), ("RUNNING", "training", "heavy"), values(PROGRAMS, 0.0, 0, folded=False))
        for name in names
    ]
    took_ms = [timed(lambda: recording.add({"programs": moment}))[0] for _ in range(rounds)]
    recording.close()
    return took_ms


# --- queries -------------------------------------------------------------------------------------------------------------


class Recorded:
    """The part of `reports.sources.Sources` that the recorder's pages use."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.state, self.memory = SimpleNamespace(programs=dict.fromkeys(names)), SimpleNamespace(watches={})
        self._files = RecordedFiles(SimpleNamespace(recording=path, run_dir=path.with_name))  # type: ignore[arg-type]

    def closed(self) -> tuple[Ledger, float]:
        return Ledger(first_s=0.0, at_s=END_S), WALL_S + END_S

    def of(self, _: type) -> RecordedFiles:
        return self._files


class Question(NamedTuple):
    title: str
    sources: Recorded
    page: str
    query: dict[str, str]
    by_window: bool = True


class Answer(NamedTuple):
    page_ms: list[float]
    json_ms: list[float]
    window_s: float
    points: int
    numbers: int
    size_bytes: int


def most(names: list[str]) -> str:
    """The maximum number of series in one answer; series with minimum and maximum come first."""
    series = sorted(PROGRAMS.series, key=lambda each: (not each.ends, each.counted))
    return ",".join([*names, *(each.name for each in series)][:MOST_SERIES])


def questions(workers: Recorded, scripts: Recorded, gpus: Recorded, name: str) -> Iterator[Question]:
    every, dashboard, own = most([]), "mean_return,steps_per_s,loss", ",".join(OWN)
    asked_for = [
        ("1 curve", "mean_return", workers),
        ("the dashboard's 3 curves", dashboard, workers),
        (f"{MOST_SERIES} curves", every, workers),
        ("1 figure of their own", OWN[-1], scripts),
        ("the dashboard's 3, 1 of their own", f"mean_return,steps_per_s,{OWN[-1]}", scripts),
        (f"{len(OWN)} figures of their own", own, scripts),
        (f"{MOST_SERIES} curves, {len(OWN)} of their own", most(OWN), scripts),
    ]
    for label, series, sources in asked_for:
        asked = {"series": series, "points": "2000"}
        yield Question(f"curves: {label}, all programs", sources, "curves", asked)
        yield Question(f"curves: {label}, 1 program", sources, "curves", {**asked, "subjects": name})
    for sheet in (HOST, GPUS):
        series = ",".join(each.name for each in sheet.series)
        yield Question(
            f"curves: all of {sheet.name}", gpus, "curves", {"sheet": sheet.name, "series": series, "points": "2000"}
        )
    yield Question("report: first and newest returns", workers, "report", {})
    for sheet, sources in (("programs", workers), ("figures", scripts), ("gpus", gpus)):
        for period in (f"{tier.period_s:.0f}" for tier in TIERS):
            asked = {"sheet": sheet, "period_s": period, "limit": "10000"}
            yield Question(f"recorded: a page of {sheet}, {period} s", sources, "recorded", asked, by_window=False)
            if period == "10":
                asked = {**asked, "after": str(END_S - HOUR_S)}
                yield Question(f"recorded: a later page of {sheet}, {period} s", sources, "recorded", asked, by_window=False)


def answer(question: Question, window_s: float) -> Any:
    query = {**question.query, "since": f"{window_s}s"} if question.by_window else question.query
    if question.page == "report":  # only the part that reads the recorder
        return first_and_newest(question.sources, END_S - window_s, END_S)  # type: ignore[arg-type]
    return pages()[question.page].of(question.sources, query)  # type: ignore[arg-type]


def longest(question: Question, rounds: int) -> Answer:
    """The measurements for the slowest window."""
    windows = WINDOWS_S if question.by_window else [END_S]
    window_s = max(windows, key=lambda window_s: min(timed(lambda: answer(question, window_s))[0] for _ in range(2)))
    page_ms, json_ms = [], []
    for _ in range(rounds):
        spent_ms, page = timed(lambda: answer(question, window_s))
        page_ms.append(spent_ms)
        spent_ms, text = timed(lambda page=page: encoded(page))
        json_ms.append(spent_ms)
    lists = [each["at_s"] for each in page["subjects"]] if question.page == "curves" else [page.get("rows", page)]
    return Answer(page_ms, json_ms, window_s, sum(map(len, lists)), numbers(page), len(text))


def numbers(page: Any) -> int:
    """The number of values of any kind in an answer."""
    if isinstance(page, dict | list | tuple):
        return sum(map(numbers, page.values() if isinstance(page, dict) else page))
    return 1


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.process_time()
    found = work()
    return 1e3 * (time.process_time() - began_s), found


# --- event files ---------------------------------------------------------------------------------------------------------


def drawn(directory: Path) -> None:
    """15,000 points of 20 scalars, in files of 4 MB."""
    (directory / "tensorboard").mkdir()
    tags = [tag_of("mean_return"), tag_of("loss"), *(f"learn/x{number}" for number in range(18))]
    for file in range(3):
        writer = RecordWriter(str(directory / "tensorboard" / f"events.out.tfevents.{file + 1:010d}.extralife"))
        begun = Event(wall_time=1.8e9, step=file * 5000 + 1, session_log=SessionLog(status=SessionLog.START))
        writer.write(begun.SerializeToString())
        for step in range(file * 5000, file * 5000 + 5000):
            points = Summary(value=[Summary.Value(tag=tag, simple_value=step / 3) for tag in tags])
            writer.write(Event(wall_time=1.8e9 + 30 * step, step=step, summary=points).SerializeToString())
        writer.close()


def files_read(directory: Path, names: tuple[str, ...]) -> int:
    events._records.cache_clear()
    return sum(1 for _ in events.read(directory, names, 0.0, 1e12))


# --- the table -----------------------------------------------------------------------------------------------------------


def three(spent_ms: list[float]) -> str:
    return f"{min(spent_ms):6.1f} {statistics.median(spent_ms):6.1f} {max(spent_ms):6.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--where", type=Path, help="where the files are made, and read again the next time; else in a new directory"
    )
    given = parser.parse_args()
    random.seed(1)
    gc.freeze()  # as the daemon does once its code is loaded: then a collection scans only the objects of queries
    names = [f"Game{number:02}" for number in range(given.programs)]
    found: dict[str, Any] = {"programs": given.programs, "target_bytes": TARGET_BYTES, "target_ms": TARGET_MS}
    with tempfile.TemporaryDirectory() as made:
        where = given.where or Path(made)
        where.mkdir(exist_ok=True)
        of = {
            "workers": [(PROGRAMS, lambda tier: rows(tier, names))],
            "scripts": [
                (PROGRAMS, lambda tier: (row for row, _ in rows_of_scripts(tier, names))),
                (FIGURES_OF_ITS_OWN, lambda tier: (row for _, row in rows_of_scripts(tier, names))),
            ],
            "gpus": [(GPUS, rows_of_gpus), (HOST, rows_of_host)],
        }  # fmt: skip
        paths = {kind: where / f"{kind}.sqlite" for kind in of}
        for kind, sheets in of.items():
            size_bytes = paths[kind].stat().st_size if paths[kind].exists() else recorded(paths[kind], *sheets)
            found[f"{kind}_bytes"] = size_bytes
            print(
                f"{platform.machine()}, 30 days of {kind}: {size_bytes / 2**20:.1f} MiB of {TARGET_BYTES >> 20}", flush=True
            )
        titles = f"{'page, ms':>20}  {'as JSON, ms':>20}   window  points numbers     kB"
        print(f"{'CPU, least, median, most of rounds':<54} {titles}")
        found["took_ms"] = {}
        for question in questions(*(Recorded(path, names) for path in paths.values()), names[0]):
            took = longest(question, given.rounds)
            found["took_ms"][question.title] = took._asdict()
            print(
                f"{question.title:<54} {three(took.page_ms)}  {three(took.json_ms)} {took.window_s / HOUR_S:7.1f}h "
                f"{took.points:7,} {took.numbers:7,} {took.size_bytes / 1e3:6.0f}", flush=True
            )  # fmt: skip
        drawn(Path(made))
        for curves in (("mean_return",), ("mean_return", "loss")):
            title = f"event files: {len(curves)} of 20 curves of 300,000 scalars"
            spent_ms = [timed(lambda curves=curves: files_read(Path(made), curves))[0] for _ in range(given.rounds)]
            found["took_ms"][title] = {"page_ms": spent_ms}
            print(f"{title:<54} {three(spent_ms)}")
        spent_ms = committed(Path(made) / "commit.sqlite", names, given.rounds)
        found["commit_ms"] = spent_ms
        print(f"{f'commit of one moment, {len(names)} rows':<54} {three(spent_ms)}")
    worst = max((max(map(sum, zip(took["page_ms"], took.get("json_ms", took["page_ms"]), strict=True))), title)
                for title, took in found["took_ms"].items() if "json_ms" in took)  # fmt: skip
    print(f"the longest with its JSON: {worst[0]:.1f} ms of {TARGET_MS:.0f}: {worst[1]}")
    out = ROOT / "bench" / "results" / "recorder.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
