"""Exit codes of `supervisord`, the only list of them.

Those of `extralifectl` are in `ctl/outcome.py`, those of a worker in `workers/contract.py`.
"""

from __future__ import annotations

from typing import Final

STOPPED: Final = 0  # an orderly end
REFUSED: Final = 1  # it cannot start or continue: another daemon, a full disk, a journal that cannot be written
BAD_CONFIG: Final = 2
SHUT_DOWN: Final = 100  # the operator's `shutdown`: extralife.service has RestartPreventExitStatus= for it
ENV_KEPT: Final = "EXTRALIFE_KEPT"  # set where a script starts the daemon again as systemd would (deploy/container)
