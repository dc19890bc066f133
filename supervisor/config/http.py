"""[http]: a TCP port beside the control socket. It always needs a password, which is in a separate file."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Final

from supervisor.config import secrets
from supervisor.config.validation import Section, Validation
from supervisor.model.settings import HttpSettings

_LEAST_LENGTH: Final = 12  # nobody guesses 12 random characters at ten guesses a minute for each address


def complete(validation: Validation, made: HttpSettings, _: object) -> HttpSettings:
    """[http], checked, with the password of its file."""
    if made.password_file:
        made = replace(made, password_file=secrets.beside(validation, made.password_file))
    if not made.listen:
        return made
    section = validation.section("http")
    if (address := _address(made.listen)) is None:
        section.refuse("listen", f'must be ADDRESS:PORT such as "127.0.0.1:9001", not {made.listen!r:.60}')
        return made
    if not made.password_file:
        section.refuse("listen", "needs http.password_file: without a password everybody could stop the programs")
        return made
    if ":" in made.user or not made.user.isprintable() or not made.user:
        section.refuse("user", "must be a name without a colon")
    if not ipaddress.ip_address(address[0]).is_loopback:
        why = f"{made.listen} is not encrypted, and the password crosses the network with every request"
        section.warn("listen", f"{why}: listen on 127.0.0.1 behind a proxy with TLS, or use ssh -L")
    password = _password(section, made.password_file) if validation.look else ""
    return replace(made, host=address[0], port=address[1], password=password)


def _password(section: Section, path: str) -> str:
    """The password; empty if it cannot be used. A kept configuration has no copy of the file: then there is no port."""
    wrong: list[str] = []
    password = secrets.text(wrong.append, path, "one password").strip("\r\n")
    if not wrong and (len(password) < _LEAST_LENGTH or not password.isprintable()):
        what = f"{path} must hold one line of at least {_LEAST_LENGTH} characters"
        wrong.append(f"{what}; make one: head -c 18 /dev/urandom | base64 > {path}")
    for message in wrong:
        section.reporter("password_file", gently=section.validation.source.is_kept)(message)
    return "" if wrong else password


def _address(listen: str) -> tuple[str, int] | None:
    """(IP address, port) of `127.0.0.1:9001` or `[::1]:9001`."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or not 0 < int(port) < 65536:
        return None
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return (str(address), int(port)) if (address.version == 6) == (bare != host) else None
