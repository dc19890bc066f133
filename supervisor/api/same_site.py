"""Keeps pages of other sites from acting through a browser that reaches the control socket: one check before every route.

The control socket is not a TCP port, and the kernel keeps other users away. But `ssh -L 9001:/path/supervisor.sock box`
forwards a TCP port of the operator's machine to it. From then on, every page in that operator's browser can send requests
to it. A page may send `text/plain`, forms and empty bodies to any address without asking. So each request that changes
something must meet these conditions:

* the content type is JSON (text/xml for XML-RPC). A page of another site must ask before it may send either, and the
  question (a preflight, OPTIONS) is refused here;
* `Origin`, if the browser sends it, equals the host and port of the request;
* `Sec-Fetch-Site`, if the browser sends it, is `same-origin` or `none` (typed by the user). `same-site` is refused: another
  port of localhost is the same site, and may belong to any user.

Reads from other sites are refused too, because some are expensive: verifying a backup reads it from the disk. A link that
the user follows is allowed. A frame is refused: a page may load any number of them, and nobody follows anything.

Every request must have a `Host` that is a name of this machine. A page can make its own name resolve to 127.0.0.1 (DNS
rebinding): it would pass all checks above, and could read logs and settings as well. `daemon.host_names` adds the names of
a proxy. The TCP port of [http] accepts any IP address: a page cannot make an IP address resolve to another machine.

Programs send no `Origin` and no `Sec-Fetch-Site`. Stock clients send text/xml and `Host: localhost`, or an empty `Host`.

Example: `POST /api/v1/ask` with `Origin: http://localhost:8000` and `Host: localhost:9001` is refused with 403.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.api.encoding import answer
from supervisor.api.peer import address_of

_OURS: Final = frozenset({"", "localhost", "127.0.0.1", "[::1]"})
_READS: Final = frozenset({"GET", "HEAD"})
_PLACES: Final = frozenset({None, "document"})  # for which a browser navigates: not a frame, an object, an embedded file
_FETCH_SITES: Final = frozenset({None, "none", "same-origin"})
_XML_PAGES: Final = ("/RPC2",)
_JSON: Final = ("application/json",)
_XML: Final = ("text/xml", "application/xml")


def same_site(app: ASGIApp, host_names: Iterable[str] = ()) -> ASGIApp:
    """`app` behind this check. `host_names`: allowed names besides localhost, such as those of a proxy or a tunnel."""
    names = _OURS | {name.lower() for name in host_names}

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        refused = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refused = objection(scope["method"], scope["path"], headers, names, any_address=address_of(scope) is not None)
        if refused is None:
            await app(scope, receive, send)
            return
        status, sentence = refused
        await answer({"error": sentence}, status)(scope, receive, send)

    return checked


def objection(
    method: str, path: str, headers: Headers, names: Iterable[str], *, any_address: bool = False
) -> tuple[int, str] | None:
    """(HTTP status, reason) of a refused request; None: it is served.

    `any_address`: accept any IP address as Host. No page can make it resolve to another machine.
    """
    hosts = headers.getlist("host")
    host = _name(hosts[0] if hosts else "")
    if len(hosts) > 1 or not (host in names or (any_address and _is_address(host))):
        return 403, "the daemon does not serve this host name: use localhost, or add the name to daemon.host_names"
    reads = method in _READS
    follows = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") in _PLACES
    if headers.get("sec-fetch-site") not in _FETCH_SITES and not (reads and follows):
        return 403, "requests from pages of other sites are refused"
    if reads:
        return None
    origins = headers.getlist("origin")
    if origins and (len(origins) > 1 or origins[0].partition("://")[2].lower() != (hosts[0] if hosts else "").lower()):
        return 403, "requests from pages of other origins are refused"
    wanted = _XML if path.rstrip("/") in _XML_PAGES else _JSON
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in wanted:
        return 415, f"the content type must be {wanted[0]}"
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
