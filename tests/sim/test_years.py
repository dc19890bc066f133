"""The table of years: what was told is not told again, and the sum is the table's."""

import json
import subprocess
import sys
from pathlib import Path

YEARS = Path(__file__).with_name("years.py")


def test_a_table_is_gone_on_with_and_summed_up(tmp_path):
    table = tmp_path / "years.jsonl"
    row = {"programs": 1, "days": 365.0, "facts": 9, "turns": 8, "looks_left_out": 7, "cpu_s": 1.5, "kinds": {"Exited": 2}}
    rows = [
        {**row, "seed": 1, "faults": 2000, "finding": None, "struck": {"crash": 2000}},
        {**row, "seed": 2, "faults": 3, "finding": "time never goes back: a turn at 1", "struck": {"stall": 3}},
    ]
    table.write_text("".join(json.dumps(each) + "\n" for each in rows))
    command = [sys.executable, str(YEARS), "--years", "2", "--table", str(table)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("2.0 simulated years, 2,003 faults, 1 finding")
    assert "FOUND  seed 2: time never goes back" in ended.stdout
    assert "soak.py --box mixed --first 2 --seeds 1 --programs 1 --days 365" in ended.stdout
    assert len(table.read_text().splitlines()) == 2
