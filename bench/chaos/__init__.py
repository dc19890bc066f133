"""Random faults under two real games, with ground truth from outside the daemon (docs/testing.md)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# This package uses two helpers of the end-to-end tests: a box with separate directories, and a library that steps clocks.
for place in (ROOT / "tests" / "e2e", ROOT / "tests", ROOT):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
