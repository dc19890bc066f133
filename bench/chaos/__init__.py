"""Random faults under two real games, with ground truth from outside the daemon (docs/chaos.md)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The end-to-end tests have a box with directories of its own, and a library that steps clocks: both are used here.
for place in (ROOT / "tests" / "e2e", ROOT / "tests", ROOT):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
