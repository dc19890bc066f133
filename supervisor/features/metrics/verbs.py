"""`metrics`: what Prometheus scrapes, as a file."""

from __future__ import annotations

from supervisor.ctl import files, text
from supervisor.ctl.outcome import OK, USAGE, Failed, Unreachable
from supervisor.ctl.session import Session, parse_options
from supervisor.features.metrics.exposition import TEXT, encoded
from supervisor.features.metrics.families import metrics_view


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
        output = encoded(metrics_view(session.dead_daemon(gone)), TEXT).decode()
    files.write(options.get("-o", "-"), [text.printable(output, lines=True)])
    return OK
