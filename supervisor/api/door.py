"""Checks the password of requests over TCP. The control socket needs none: the kernel identifies its clients.

    Authorization: Basic base64(user:password)     stock clients, xmlrpc libraries, browsers, Prometheus
    Authorization: Bearer password

Any other request is answered 401 before the rest of it is examined. User and password are compared as digests, in constant
time. Each address has ten guesses: a wrong password uses one, and one comes back every six seconds. An address without
guesses is answered 429, even with the right password; otherwise the guessing could go on. Other addresses are not affected.
A request without credentials is not a guess. The table holds 1,024 addresses; an IPv6 network of 64 bits counts as one.

Example: a client at 203.0.113.7 guesses as fast as it can. Ten guesses are answered 401, then one every six seconds. A
client at 198.51.100.2 with the right password is served all the time.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from typing import Final

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.api.encoding import answer
from supervisor.api.peer import BY_KEY, address_of
from supervisor.api.rest import REST_KEY
from supervisor.formats import span
from supervisor.model.settings import HttpSettings

log = structlog.get_logger()

GUESSES: Final = 10
GUESS_S: Final = 6.0
MOST_ADDRESSES: Final = 1024
REST_S: Final = 0.3  # longest wait for the body of a refused request
_REPEAT_S: Final = 60.0
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="extralife", charset="UTF-8"'}


class PasswordCheck:
    """The password of the newest settings, and the recent wrong guesses of each address."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._user = ""
        self._basic = self._bearer = b""  # digests; empty: every request is refused
        self._debts_s: dict[str, float] = {}  # address -> time at which all its wrong guesses are forgotten
        self._logged_s = -_REPEAT_S

    def use_password(self, http: HttpSettings) -> None:
        self._user = http.user
        if http.password:
            self._basic, self._bearer = _digest(f"{http.user}:{http.password}".encode()), _digest(http.password.encode())
        else:
            self._basic = self._bearer = b""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """`app` behind this check: only authorised requests reach it."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            address = address_of(scope)
            refusal = None if address is None else self._refusal(scope, address)
            if refusal is None:
                await app(scope, receive, send)
                return
            scope[REST_KEY] = REST_S
            status, sentence, headers = refusal
            await answer({"error": sentence}, status, headers)(scope, receive, send)

        return guarded

    def _refusal(self, scope: Scope, address: str) -> tuple[int, str, dict[str, str]] | None:
        key, now_s = _guess_key(address), self._clock_s()
        wait_s = self._debts_s.get(key, 0.0) - now_s - (GUESSES - 1) * GUESS_S
        given = Headers(scope=scope).getlist("authorization")
        if given and wait_s > 0:
            whole_s = int(wait_s) + 1
            return 429, f"too many wrong passwords from {address}: wait {span(whole_s)}", {"retry-after": str(whole_s)}
        if len(given) == 1 and self._is_right(given[0]):
            scope[BY_KEY] = f"{self._user} at {address}"
            return None
        if given:
            self._note(key, now_s)
        return 401, "this port needs the user and the password of [http]", _CHALLENGE

    def _is_right(self, given: str) -> bool:
        scheme, _, value = given.strip().partition(" ")
        shown, wanted = b"", self._basic
        if scheme.lower() == "bearer":
            shown, wanted = value.strip().encode("latin-1", "replace"), self._bearer
        elif scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                shown = base64.b64decode(value.strip(), validate=True)
        return hmac.compare_digest(_digest(shown), wanted)

    def _note(self, key: str, now_s: float) -> None:
        if key not in self._debts_s and len(self._debts_s) >= MOST_ADDRESSES:
            self._debts_s = {each: end_s for each, end_s in self._debts_s.items() if end_s > now_s}
            if len(self._debts_s) >= MOST_ADDRESSES:  # still full: drop the address with the fewest guesses
                del self._debts_s[min(self._debts_s, key=self._debts_s.__getitem__)]
        self._debts_s[key] = max(self._debts_s.get(key, 0.0), now_s) + GUESS_S
        if self._debts_s[key] - now_s > (GUESSES - 1) * GUESS_S and now_s - self._logged_s >= _REPEAT_S:
            self._logged_s = now_s
            log.warning("passwords_guessed", address=key)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _guess_key(address: str) -> str:
    """The key under which guesses are counted. One IPv6 client usually has 2^64 addresses, so its network is the key."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address
