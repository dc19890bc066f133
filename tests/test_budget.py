"""The project does not grow: its size by rooms, in lines, files and words, stays within `budget.toml`.

`.venv/bin/python tests/test_budget.py` prints the table, and writes the numbers that fell.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ROOT / "tests/budget.toml"
SLACK = 0.01  # A limit further above the tree than this is lowered: room that was won is not spent later.
ROOMS = ("policy", "model", "deciding", "reports", "config", "adapters", "api", "ctl", "features")
# What one person has to know, and what features and kernel know of each other. These two only fall, whatever else falls.
KERNEL = (
    *(
        f"supervisor/{each}/"
        for each in ("model", "deciding", "policy/worker", "shell", "adapters/process", "adapters/journal")
    ),
)
CONTRACT = ("discovery.py", "deciding/feature.py", "adapters/parts.py", "reports/added.py", "api/added.py")
RECORDED = ("tests/outside/recorded/", "tests/outside/old_night.jsonl.xz", "tests/outside/first_wave/")


def sizes() -> dict[str, int]:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60
    ).stdout.decode()
    files = [name for name in tracked.split("\0") if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]

    def lines(*names: str) -> int:
        return sum((ROOT / name).read_bytes().count(b"\n") for name in names)

    def python(*folders: str) -> list[str]:
        return [name for name in files if name.startswith(folders) and name.endswith(".py")]

    rooms = {f"supervisor/{room}": lines(*python(f"supervisor/{room}/")) for room in ROOMS}
    recorded = [name for name in files if name.startswith(RECORDED)]
    docs = [name for name in files if re.fullmatch(r"docs/(adr/)?[^/]+\.md", name)]
    leaves = [name for name in python("supervisor/") if name.count("/") == 1]
    return {
        "kernel": lines(*python(*KERNEL), *leaves),
        "contract of a feature": lines(*(f"supervisor/{name}" for name in CONTRACT)),
        **rooms,
        "supervisor, other files": lines(*python("supervisor/")) - sum(rooms.values()),
        "workers and client": lines(*python("workers/", "client/")),
        "tests": lines(*python("tests/")),
        "recorded lines of tests": lines(*recorded),
        "recorded files of tests": len(recorded),
        "words of docs": sum(len((ROOT / name).read_text().split()) for name in docs),
        "pages of docs": len([name for name in docs if "/adr/" not in name]),
        "decisions (ADRs)": len([name for name in docs if "/adr/" in name]),
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git's list of files")
def test_nothing_grows_beyond_its_budget() -> None:
    budget = tomllib.loads(BUDGET.read_text())
    found = sizes()
    assert list(found) == list(budget["now"]) == list(budget["goal"])
    over = [
        f"{name}: {size}, {size - budget['now'][name]} too many"
        for name, size in found.items()
        if size > budget["now"][name]
    ]
    assert not over, "remove as much elsewhere in the same room, or make room in another and move the limit: " + "; ".join(
        over
    )
    loose = [name for name, size in found.items() if budget["now"][name] > max(size * (1 + SLACK), size + 10)]
    assert not loose, f"limits above the tree, lower them with `.venv/bin/python tests/test_budget.py`: {', '.join(loose)}"


def main() -> None:
    budget, text = tomllib.loads(BUDGET.read_text()), BUDGET.read_text()
    for name, size in sizes().items():
        limit = budget["now"][name]
        print(f"{name:<28} {size:>8,} of {limit:>8,}, goal {budget['goal'][name]:>7,}")
        if size < limit or "--all" in sys.argv:
            text = text.replace(
                f'"{name}" = {limit:_}\n' if f'"{name}" = {limit:_}\n' in text else f'"{name}" = {limit}\n',
                f'"{name}" = {size:_}\n', 1,
            )  # fmt: skip
    BUDGET.write_text(text)


if __name__ == "__main__":
    main()
