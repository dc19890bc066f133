"""`results`: how good the runs are in their newest tests, over seeds and games; for people, as CSV, as JSON."""

from __future__ import annotations

import csv
import io
from typing import Any

from supervisor.ctl import files, text
from supervisor.ctl.outcome import OK, Failed
from supervisor.ctl.session import Session, parse_options

# Columns of the CSV file. The rows of a game leave the last three empty; the rows called ALL cover all games.
COLUMNS = (
    "game", "algo", "resolution", "seeds", "env_steps_min", "env_steps_max", "hours_trained", "test_games", "return_mean",
    "return_std", "return_min", "return_max", "hns_mean", "hns_min", "hns_max", "hns_iqm", "hns_iqm_low", "hns_iqm_high",
)  # fmt: skip
_TITLES = ("GAME", "ALGO", "PIXELS", "SEEDS", "STEPS", "GAMES", "RETURN", "STD", "MIN", "MAX", "HNS")


def results(session: Session, args: list[str]) -> int:
    """`results [--csv FILE] [--json]`.

    The newest test of every run, over seeds and games; --csv e1_results.csv writes a table.
    """
    names, options = parse_options(args, "--json", valued=("--csv",))
    if names:
        raise Failed(f"Error: results takes no names, not {text.printable(names[0])!r}; it compares all runs")
    file = options.get("--csv")
    session.warn_if_dead(to_stdout="--json" not in options and file != "-")
    found = session.page("results")
    if file is not None:
        files.write(file, [as_csv(found)])
        if file != "-":
            games, overall = len(found["rows"]), len(found["overall"])
            session.say(f"{text.printable(file)}: {games} rows of games, {overall} over all games")
        return OK
    session.show(found, page, options)
    return OK


def page(found: dict[str, Any]) -> list[str]:
    """The table, then the figure over games; one sentence if there are no results yet."""
    if not found["rows"]:
        return ["no run has played test games yet (num_test_episodes says how many; test_period how often while it trains)"]
    rows = [_TITLES, *(_cells(row) for row in found["rows"])]
    leave = ("PIXELS", "GAMES", "STD", "MIN", "MAX", "STEPS", "ALGO")
    return [
        *text.table(rows, range(2, len(_TITLES)), leave, text.columns()),
        "",
        *(_overall(row) for row in found["overall"]),
    ]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    least, most = row["env_steps_min"], row["env_steps_max"]
    return (
        text.printable(row["game"]), text.printable(row["algo"] or text.UNKNOWN),
        text.UNKNOWN if row["resolution"] is None else str(row["resolution"]), str(row["seeds"]),
        f"{least:,}" if least == most else f"{least:,}..{most:,}", f"{row['test_games']:,}",
        *(_number(row[f"return_{what}"]) for what in ("mean", "std", "min", "max")), _number(row["hns_mean"]),
    )  # fmt: skip


def _number(value: float | None) -> str:
    return text.UNKNOWN if value is None else f"{value:,.2f}"


def _overall(row: dict[str, Any]) -> str:
    low, high = row["hns_iqm_low"], row["hns_iqm_high"]
    between = "one seed per game, so no interval" if low is None else f"95 % interval {low:.3f} to {high:.3f}"
    pixels = "" if row["resolution"] is None else f" at {row['resolution']} pixels"
    return (
        f"{text.printable(row['algo'] or 'unknown algorithm')}{pixels}: interquartile mean of the human-normalised scores "
        f"{row['hns_iqm']:.3f} ({between}; {text.count(row['runs'], 'run')} of {text.count(row['games'], 'game')})"
    )


def as_csv(found: dict[str, Any]) -> str:
    """One row per game, then one called ALL for each algorithm and resolution. An unknown value is empty."""
    out = io.StringIO(newline="")
    rows = csv.DictWriter(out, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    for row in [*found["rows"], *({**row, "game": "ALL", "seeds": row["runs"]} for row in found["overall"])]:
        rows.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
    return out.getvalue()
