"""reboot_alerts.log: one line for each host reboot, made for `tail -f` and grep.

    2026-11-21T05:01:44+00:00 REBOOT n=3 cause=unclean kind=panic up=0:18:12 down=0:00:41 level=light
    programs=Breakout,Pong lost=Breakout:>=1200/14s/3.1%,Pong:? resuming=Breakout,Pong
    evidence="the boot id changed; Kernel panic - not syncing: Fatal exception"                         (on one line)

If the recorded reboots show a pattern (`policy/box/reboot_pattern.py`), `pattern="4 in 1h 10m, ..."` follows at the end.

Lost work is counted up to the last sign of life: `>=1200` steps. For a program of your own it is `~1200`, because only its
newest checkpoint up to that time is known. An unknown value is `?`, never 0. The time of a line is also `?` while the clock
of the box is not set; once it is, a line `REBOOT n=3 clock=set at=... down=...` follows. `MOVED` instead of `REBOOT` means
that the disk is now in another box. Control characters are escaped, so that no line can control a terminal.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
from pathlib import Path

from supervisor import files, wall_clock
from supervisor.adapters.durable import sync_directory
from supervisor.model.commands import AlertClock, AlertReboot
from supervisor.model.facts import JournalSalvaged
from supervisor.policy.worker.loss import Loss
from supervisor.printable import printable


def reboot_line(alert: AlertReboot, wall_s: float) -> str:
    """The line, without its newline. `wall_s` is the time of writing."""
    fact = alert.reboot
    lost = ",".join(f"{name}:{_cost(loss)}" for name, loss in sorted(alert.losses.items()))
    fields = {
        "n": str(alert.number),
        "cause": fact.cause,
        "kind": fact.end or "?",
        "up": span(fact.up_s),
        "down": span(fact.down_s),
        "level": fact.level or "?",
        "programs": ",".join(fact.programs) or "none",
        "lost": lost or "none",
        "resuming": ",".join(alert.resuming) or "none",
        "evidence": '"' + "; ".join((fact.evidence, *fact.last_words[:1])).replace('"', "'") + '"',
    }
    if alert.pattern:
        fields["pattern"] = f'"{alert.pattern}"'
    moved = fact.cause == "moved" or alert.number == 0  # 0: this is another box, without a recorded reboot yet
    if moved:
        del fields["n"]
    word = "MOVED" if moved else "REBOOT"
    return printable(f"{_when(wall_s)} {word} " + " ".join(f"{key}={value}" for key, value in fields.items()))


def clock_line(alert: AlertClock, wall_s: float) -> str:
    """The line that corrects the time of an earlier line, without its newline."""
    return f"{_when(wall_s)} REBOOT n={alert.number} clock=set at={_when(alert.reboot_wall_s)} down={span(alert.down_s)}"


def _when(wall_s: float) -> str:
    """A time of day; `?` while the clock is not set."""
    if not wall_clock.is_set(wall_s):
        return "?"
    return dt.datetime.fromtimestamp(wall_s, tz=dt.UTC).astimezone().isoformat(timespec="seconds")


def journal_line(fact: JournalSalvaged, wall_s: float) -> str:
    """The line for a journal that was damaged, without its newline."""
    lost, quoted = "?" if fact.lost is None else fact.lost, fact.error.replace('"', "'")
    what = f'kept={fact.kept} lost={lost} file={fact.kept_as or "none"} error="{quoted}"'
    return printable(f"{_when(wall_s)} JOURNAL damaged {what}")


def config_line(errors: tuple[str, ...], in_use: str, wall_s: float) -> str:
    """The line for a start with the last good configuration, without its newline."""
    quoted = "; ".join(errors).replace('"', "'")
    return printable(f'{_when(wall_s)} CONFIG refused in_use="{in_use}" error="{quoted}"')


def service_line(starts: int, within_s: float, wall_s: float) -> str:
    """The line for a daemon that ends repeatedly, without its newline."""
    return (
        f'{_when(wall_s)} DAEMON ends again and again starts={starts} within={span(within_s)} why="journalctl -u extralife"'
    )


def _cost(loss: Loss) -> str:
    """`>=1200/14s/3.1%`: steps, the time to compute them, and their share of the attempt. Unknown parts are omitted."""
    if loss.steps is None:
        return "?"
    parts = [f"{loss.bound}{loss.steps}"]
    parts += [f"{loss.seconds:.0f}s"] if loss.seconds is not None else []
    parts += [f"{100 * loss.share:.1f}%"] if loss.share is not None else []
    return "/".join(parts)


def span(seconds: float | None) -> str:
    """H:MM:SS; `?` for unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def append(path: Path, line: str) -> str | None:
    """Append one durable line. Returns an error sentence instead of raising: an alert must never stop the resume.

    The file is opened for each line, so a rotated or removed file is created again. If the last line is torn, a newline
    is written first.
    """
    try:
        with files.held(files.open_own(path, os.O_RDWR | os.O_APPEND, 0o640)) as fd:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            data = (("\n" if torn else "") + line + "\n").encode("utf-8", "replace")
            if os.write(fd, data) != len(data):  # a torn line: the next call starts with the missing newline
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(fd)
        if size == 0:
            sync_directory(path.parent)
    except OSError as error:
        reason = error.strerror or error
        return f"cannot write the alert to {path}: {reason}; reboots are also in extralife's journal: `extralifectl reboots`"
    return None
