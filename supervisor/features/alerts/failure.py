"""Sends an alert when no daemon runs: `python -m supervisor.features.alerts.failure UNIT CONFIG`.

The service's OnFailure= starts it. It uses the daemon's targets, from the same [alerts] section. This works even if the
rest of that file keeps the daemon from starting. No journal keeps the alert for later, so it makes four attempts within two
and a half minutes and then gives up. The line in reboot_alerts.log is already written when this starts.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from supervisor import config
from supervisor.adapters import last_config
from supervisor.adapters.hooks import Unsure
from supervisor.features.alerts.adapters.delivery import DeliveryResult, deliver_to_all, write_to_systemd_journal
from supervisor.features.alerts.config import alone
from supervisor.features.alerts.rules import wanted
from supervisor.features.alerts.settings import AlertSettings
from supervisor.policy.upkeep.alarm import CRITICAL, Notice
from supervisor.printable import printable

_PAUSES_S: Final = (0.0, 5.0, 30.0, 120.0)


def main(argv: list[str]) -> int:
    """Returns the exit status: 1 if a target has not accepted the alert, or if no usable configuration names the targets."""
    unit, path = argv
    result, status = (os.environ.get(f"MONITOR_{key}", "?") for key in ("SERVICE_RESULT", "EXIT_STATUS"))
    try:
        left = tell(f"{unit} has failed ({result}, status {status}): journalctl -u {unit} says why", path, os.environ)
    except config.ConfigError as error:
        _print_error(f"<3>no alert was sent: {error}")
        return 1
    for tried in left:
        _print_error(f"<3>alert not delivered to {tried.target}: {tried.error}")
    return 1 if left else 0


def tell(
    text: str, path: str | None, environ: Mapping[str, str], *, pauses_s: tuple[float, ...] = _PAUSES_S,
    pause: Callable[[float], None] = time.sleep,
) -> list[DeliveryResult]:  # fmt: skip
    """Send an alert of kind `service` to every target. Returns the last failure of each target that has not accepted it.

    Raises ConfigError if neither the file nor the last good configuration names the targets.
    """
    notice = Notice(uuid.uuid4().hex[:16], "service", CRITICAL, printable(text), time.time())
    try:
        write_to_systemd_journal(notice)
    except (OSError, ValueError) as error:
        _print_error(f"<4>not in systemd's journal: {error}")
    try:
        rules = alone(path, environ)
    except config.ConfigError:
        kept = last_config.find(path, environ, {})
        if kept is None:
            raise
        rules = last_config.load(kept, environ).settings.of(AlertSettings)
    if not wanted(rules, notice.kind, notice.severity):
        return []
    left: list[DeliveryResult] = []
    for pause_s in pauses_s:
        pause(pause_s)
        left = [tried for tried in deliver_to_all(rules, notice) if tried.error]
        rules = rules.only({tried.target for tried in left if not isinstance(tried.error, Unsure)})
        if not rules.targets:
            break
    return left


def _print_error(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
