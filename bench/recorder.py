"""How large the recorder's file is, and what a question costs: 20 programs that have run for 30 days.

The same for 20 scripts that report steps, returns, losses and as many figures of their own names as are kept.

Usage: .venv/bin/python bench/recorder.py [--programs 20] [--rounds 9]. Every tier is filled as far back as it is kept (an
hour's rows for 30 days) with numbers that do not repeat: of a worker's figures all but those that its algorithm cannot know.
A question goes through the page's own reader. Also: the commit of one moment's rows, and what the event files of a worker
give that has drawn 300,000 scalars. CPU time, so that a busy box
does not count: least, median and most of the rounds. Prints a table and writes
bench/results/recorder.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.proto.summary_pb2 import Summary  # noqa: E402
from tensorboardX.record_writer import RecordWriter  # noqa: E402

from supervisor.adapters.recorder import events  # noqa: E402
from supervisor.adapters.recorder.store import Recording, RecordingReader, fill  # noqa: E402
from supervisor.model.recording import (  # noqa: E402
    FIGURES_OF_ITS_OWN,
    MOST_OF_ITS_OWN,
    PROGRAMS,
    Row,
    Sheet,
    as_places,
    tag_of,
)  # fmt: skip
from supervisor.policy.box.readings import Spread  # noqa: E402
from supervisor.policy.upkeep.resolution import TIERS, Tier  # noqa: E402
from supervisor.reports.curves import needed  # noqa: E402

DAY_S = 86_400.0
SPAN_S = 30 * DAY_S
TARGET_BYTES, TARGET_MS = 64 << 20, 50.0
_UNKNOWN = {"entropy", "entropy_share", "test_return"}  # of the usual algorithm


def values(at_s: float, place: int, *, folded: bool) -> dict[str, float | Spread]:
    found: dict[str, float | Spread] = {}
    for series in PROGRAMS.series:
        if series.name in _UNKNOWN:
            continue
        mean = float(int(at_s * 1000 + place)) if series.counted else random.random() * 100
        mean = float(int(4e9 + mean * 1e6)) if series.unit == "bytes" else mean
        found[series.name] = Spread(mean * 0.9, mean, mean * 1.1) if folded and series.ends else mean
    return found


def rows(tier: Tier, names: list[str]) -> Iterator[Row]:
    count = int(min(tier.keep_s, SPAN_S) / tier.period_s)
    for number in range(count):
        at_s = SPAN_S - (count - number) * tier.period_s
        for place, name in enumerate(names):
            told = values(at_s, place, folded=tier is not TIERS[0])
            yield Row(at_s, 1.8e9 + at_s, (name, f"{place:032x}"), ("RUNNING", "training", "heavy"), told)


def rows_of_scripts(tier: Tier, names: list[str]) -> Iterator[tuple[Row, Row]]:
    """Rows of scripts that know nothing of the recorder: few known figures, and all that are kept of other names."""
    for row in rows(tier, names):
        known = {name: row.values[name] for name in ("mean_return", "loss", "env_steps", "steps_per_s", "memory_bytes")}
        own = {f"train/figure_{number:02}": random.random() for number in range(MOST_OF_ITS_OWN)}
        own_row = as_places(row.at_s, row.wall_s, *row.keys, row.values["env_steps"], own)
        yield row._replace(values=known), own_row


def size_of_scripts(path: Path, names: list[str]) -> int:
    recording = Recording(path, now_s=SPAN_S)
    for tier in TIERS:
        fill(recording, PROGRAMS, tier, (row for row, _ in rows_of_scripts(tier, names)))
        fill(recording, FIGURES_OF_ITS_OWN, tier, (row for _, row in rows_of_scripts(tier, names)))
    size_bytes = recording.size_bytes
    recording.close()
    return size_bytes


def timed(work: Callable[[], int], rounds: int) -> tuple[list[float], int]:
    took_ms, count = [], 0
    for _ in range(rounds):
        began_s = time.process_time()
        count = work()
        took_ms.append(1e3 * (time.process_time() - began_s))
    return took_ms, count


def asked(path: Path, sheet: Sheet, tier: Tier, since_s: float, names: tuple[str, ...]) -> int:
    with RecordingReader(path) as reader:
        return sum(1 for _ in reader.rows(sheet, tier, since_s, SPAN_S, names))


def drawn(directory: Path) -> int:
    """15,000 points of 20 scalars, in files of 4 MB."""
    (directory / "tensorboard").mkdir()
    tags = [tag_of("mean_return"), tag_of("loss"), *(f"learn/x{number}" for number in range(18))]
    for file in range(3):
        writer = RecordWriter(str(directory / "tensorboard" / f"events.out.tfevents.{file + 1:010d}.extralife"))
        begun = Event(wall_time=1.8e9, step=file * 5000 + 1, session_log=SessionLog(status=SessionLog.START))
        writer.write(begun.SerializeToString())
        for step in range(file * 5000, file * 5000 + 5000):
            told = Summary(value=[Summary.Value(tag=tag, simple_value=step / 3) for tag in tags])
            writer.write(Event(wall_time=1.8e9 + 30 * step, step=step, summary=told).SerializeToString())
        writer.close()
    return 300_000


def files_read(directory: Path, names: tuple[str, ...]) -> int:
    events._records.cache_clear()
    return sum(1 for _ in events.read(directory, names, 0.0, 1e12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    random.seed(1)
    names = [f"Game{number:02}" for number in range(given.programs)]
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "recording.sqlite"
        recording = Recording(path, now_s=SPAN_S)
        for tier in TIERS:
            fill(recording, PROGRAMS, tier, rows(tier, names))
        size_bytes = recording.size_bytes
        moment = [
            Row(SPAN_S, 1.8e9, (name, "t"), ("RUNNING", "training", "heavy"), values(0.0, 0, folded=False)) for name in names
        ]
        commit_ms, _ = timed(lambda: recording.add({"programs": moment}) or 0, given.rounds)
        one, six = needed(PROGRAMS, ["mean_return"]), needed(PROGRAMS, ["mean_return", "loss", "steps_per_s", "q_mean"])
        questions = {
            "one curve of all programs, 30 d by the hour": (one, TIERS[3], 0.0, ()),
            "one curve of one program, 14 d by ten minutes": (one, TIERS[2], 0.0, (names[0],)),
            "four curves of one program, 2 d by the minute": (six, TIERS[1], 0.0, (names[0],)),
            "one curve of all programs, 12 h by the minute": (one, TIERS[1], SPAN_S - DAY_S / 2, ()),
            "four curves of one program, 6 h by ten seconds": (six, TIERS[0], 0.0, (names[0],)),
        }
        took = {said: timed(lambda asks=asks: asked(path, *asks), given.rounds) for said, asks in questions.items()}
        recording.close()
        scripts = Path(where) / "scripts.sqlite"
        scripts_bytes = size_of_scripts(scripts, names)
        for said, subjects in (("all scripts", ()), ("one script", (names[0],))):
            asks = FIGURES_OF_ITS_OWN, TIERS[3], 0.0, subjects
            took[f"{MOST_OF_ITS_OWN} figures of other names of {said}, 30 d by the hour"] = timed(
                lambda asks=asks: asked(scripts, *asks), given.rounds
            )
        drawn(Path(where))
        for curves in (("mean_return",), ("mean_return", "loss")):
            took[f"{len(curves)} of 20 curves of 300,000 scalars in event files"] = timed(
                lambda curves=curves: files_read(Path(where), curves), given.rounds
            )
    took["commit of one moment"] = commit_ms, len(names)
    print(f"{platform.machine()}, {given.programs} programs, 30 days: {size_bytes / 2**20:.1f} MiB of {TARGET_BYTES >> 20}")
    print(f"the same of scripts with {MOST_OF_ITS_OWN} figures of other names: {scripts_bytes / 2**20:.1f} MiB")
    for said, (spent_ms, count) in took.items():
        print(f"{said:<58} {min(spent_ms):7.1f} {statistics.median(spent_ms):7.1f} {max(spent_ms):7.1f} ms  {count:6} rows")
    found = {
        "size_bytes": size_bytes, "scripts_bytes": scripts_bytes, "target_bytes": TARGET_BYTES, "target_ms": TARGET_MS,
        "programs": given.programs,
        "took_ms": {said: [min(spent), statistics.median(spent), max(spent)] for said, (spent, _) in took.items()},
    }  # fmt: skip
    out = ROOT / "bench" / "results" / "recorder.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
