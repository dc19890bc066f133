"""extralifectl: `python -m supervisor.ctl`, or the installed script."""

from __future__ import annotations

import sys

from supervisor import utf8
from supervisor.ctl.outcome import INTERRUPTED


def main() -> int:
    """The installed script's entry point."""
    try:
        utf8.settle()
        from supervisor.ctl import main  # Ctrl-C may come during the imports, too

        return main.main(sys.argv[1:])
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
