"""`metrics`: the metrics that Prometheus scrapes, for a textfile collector or for a human reader."""

from __future__ import annotations

from supervisor.ctl import files, text
from supervisor.ctl.client import Unreachable
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options


def metrics(session: Session, args: list[str]) -> int:
    """`metrics [-o FILE]`.

    All metrics in Prometheus' text format. With -o as a whole file, for node_exporter's textfile collector.
    While the daemon is dead, extralife_up is 0, and the rest is what the journal says.
    """
    names, options = parse_options(args, valued=("-o",))
    if names:
        raise Failed("Error: metrics takes no names", USAGE)
    try:
        output = session.client.read("/metrics")[1].decode()
    except Unreachable as gone:
        output = session.dead_daemon(gone).metrics()
    files.write(options.get("-o", "-"), [text.printable(output, lines=True)])
    return OK
