from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from api_fixtures import api, backend, shared, socket_path  # noqa: F401
