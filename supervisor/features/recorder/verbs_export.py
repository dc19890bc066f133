"""`export`: the recorder's samples as CSV or Parquet, for a notebook."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain
from typing import Any

from supervisor.ctl import files, text
from supervisor.ctl.accounts import since_query
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.features.recorder.rules.recording import ONE_BY_ONE, SHEETS

_PARQUET = ".parquet"
_ROWS = 5000  # per request


def export(session: Session, args: list[str]) -> int:
    """`export [programs|figures|host|gpus] [--period SECONDS] [--since 1h|2d|TIME|boot] [--out FILE.csv|.parquet]`.

    What was recorded, as a table: a row for each program (or the host, or GPU) and period; figures: a row for each
    figure of a script's own name. SECONDS is 10, 60, 600, 3600, 21600 or 86400. CSV, unless the name ends in .parquet.
    Before the rows of programs stands what workers drew into their TensorBoard files before anything was recorded.
    """
    names, options = parse_options(args, valued=("--period", "--since", "--out"))
    if len(names) > 1:
        raise Failed("Error: export takes one sheet: programs, figures, host or gpus", USAGE)
    file = options.get("--out", "-")
    asked = {
        "sheet": names[0] if names else None, "period_s": options.get("--period"),
        "since": since_query(options.get("--since", "all")),
    }  # fmt: skip
    session.warn_if_dead(to_stdout=False)
    pages = _pages(session, asked)
    columns = next(pages)
    count = _parquet(file, columns, pages) if file.endswith(_PARQUET) else _csv(file, columns, pages)
    if file != "-":
        session.say(f"{text.printable(file)}: {count:,} rows")
    return OK


def _pages(session: Session, asked: dict[str, str | None]) -> Iterator[list[Any]]:
    """The column names, then the rows, some thousand at a time: of each program's event files, then of the recorder."""
    yield session.page("recorded", **asked, limit=1)["columns"]
    if asked["sheet"] in {None, "programs"}:
        for view in session.page("status")["programs"]:
            yield from _rows(session, asked, view["name"])
    yield from _rows(session, asked, None)


def _rows(session: Session, asked: dict[str, str | None], drawn: str | None) -> Iterator[list[Any]]:
    after = None
    while rows := session.page("recorded", **asked, drawn=drawn, after=after, limit=_ROWS)["rows"]:
        yield rows
        after = repr(rows[-1][0])  # at_s


def _csv(file: str, columns: list[str], pages: Iterator[list[Any]]) -> int:
    """Write the rows as CSV and return their number. An unknown value is an empty cell."""
    count = 0

    def pieces() -> Iterator[str]:
        nonlocal count
        for rows in chain([[columns]], pages):
            out = io.StringIO(newline="")
            csv.writer(out, lineterminator="\n").writerows(rows)
            count += len(rows)
            yield out.getvalue()

    files.write(file, pieces())
    return count - 1


def _parquet(file: str, columns: list[str], pages: Iterator[list[Any]]) -> int:
    """Write the rows as Parquet and return their number. An unknown value is null."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Failed(
            "Error: Parquet needs pyarrow: pip install 'extralife[parquet]', or give --out a name that ends in .csv", GENERIC
        ) from None
    words = {name for sheet in (*SHEETS.values(), ONE_BY_ONE) for name in (*sheet.keys, *sheet.words)}
    count = 0
    schema = pa.schema([(name, pa.string() if name in words else pa.float64()) for name in columns])
    with files.aside(file) as path, pq.ParquetWriter(path, schema) as out:
        for rows in pages:
            cells = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
            out.write_table(pa.table(cells, schema=schema))
            count += len(rows)
    return count
