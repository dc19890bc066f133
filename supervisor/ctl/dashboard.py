"""`dashboard`: access to the dashboard, from this box and from a laptop."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import socket
import sys

from supervisor.adapters.tcp_owner import owner
from supervisor.ctl import text
from supervisor.ctl.client import DaemonRefused
from supervisor.ctl.forwarder import Forwarder
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_int, parse_options

_LAPTOP_PORT = 8700


def dashboard(session: Session, args: list[str]) -> int:
    """`dashboard [--port N]`.

    Serve the dashboard on a port of this box that only you can use, until Ctrl-C. Prints its address, which is
    good once, and the ssh line for a laptop.
    """
    names, options = parse_options(args, valued=("--port",))
    if names:
        raise Failed("Error: dashboard takes no names", USAGE)
    port = parse_int(options.get("--port", "0"), "--port")
    if session.client.url.startswith(("http://", "https://")):  # there is no socket that a port could lead to
        raise Failed(f"Error: this daemon is served over TCP already: open {session.client.url} in a browser")
    try:
        session.client.read("/healthz")
    except DaemonRefused as unwell:
        session.warn(str(unwell))  # the dashboard shows it too
    with _listening(port) as sock:
        return _serve(session, sock)


def _listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(64)
    except (OSError, OverflowError) as error:
        sock.close()
        why = error.strerror if isinstance(error, OSError) else "there are no such ports"
        raise Failed(f"Error: port {port} of 127.0.0.1 cannot be used: {why}; choose another with --port") from None
    return sock


def _serve(session: Session, sock: socket.socket) -> int:
    try:
        owner(sock.getsockname(), sock.getsockname())
    except OSError as error:
        raise Failed(
            f"Error: {error.filename} cannot be read, so nobody could tell whose connection it is; use from a laptop:\n"
            f"  {_ssh_line(session.client.path)}"
        ) from None
    forwarder = Forwarder(session.client.path, sock)
    try:
        session.say(forwarder.address)
        session.say(f"  The address is good once, for a browser of {_user()} on this box. Ctrl-C ends it.\n")
        session.say(f"From a laptop, with the address that you use for ssh:\n  {_ssh_line(session.client.path)}")
        session.say(f"  then open http://localhost:{_LAPTOP_PORT}")
        sys.stdout.flush()
        asyncio.run(forwarder.serve(lambda: text.pause_while_read(0.0)))
    except KeyboardInterrupt:
        session.say()
    return OK


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _ssh_line(path: str) -> str:
    """The command for an ssh tunnel to the control socket. It opens a port on the laptop only."""
    return f"ssh -L {_LAPTOP_PORT}:{shlex.quote(path)} {_user()}@{socket.gethostname()}"
