"""XML-RPC bodies: from bytes to (method, params), and from a value to bytes. No I/O, no state.

The parser is the standard library's (expat and `xmlrpc.client.Unmarshaller`) with less freedom: no DTD, so no entities
that grow a kilobyte into gigabytes, and bounded nesting. The body's size is bounded by whoever reads it. Whatever is
wrong with a body, the one error is `Malformed`.

What goes out may hold a worker's last words. XML 1.0 has no way to write most control characters (Supervisor sends them
as they are, and its client dies of `not well-formed`), and a terminal would obey the others: they become visible ones.
"""

from __future__ import annotations

import xmlrpc.client
from typing import Any, Final
from xml.parsers import expat

from supervisor.api.rpc.faults import Fault

MOST_DEPTH: Final = 64  # of elements; a value in an array in a struct in a call is nine deep
_MOST_NAME: Final = 200

_PICTURES: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_UNWRITABLE: Final = _PICTURES | {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), 0xFFFE, 0xFFFF], 0xFFFD)


class Malformed(Exception):
    """The body is no XML-RPC call; the text says why."""


def parse(body: bytes) -> tuple[str, tuple[Any, ...]]:
    """The method's name and its parameters. Raises Malformed, and nothing else.

    Values are None, bool, int, float, Decimal, str, bytes, datetime, and lists and dicts of these. A call without
    `<params>` has none.
    """
    reader = xmlrpc.client.Unmarshaller(use_builtin_types=True)
    try:
        _feed(body, reader)
        params, name = reader.close(), reader.getmethodname()
    except Malformed:
        raise
    except (
        xmlrpc.client.Error, expat.ExpatError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError
    ) as error:  # fmt: skip  # the reader trusts its sender: it meets a strange document with whatever goes wrong first
        raise Malformed(f"this is no XML-RPC call: {type(error).__name__}: {error}") from None
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME:
        raise Malformed("this is no XML-RPC call: it names no method")
    return name, tuple(params)


def _feed(body: bytes, reader: xmlrpc.client.Unmarshaller) -> None:
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_DEPTH:
            raise Malformed(f"its elements are more than {MOST_DEPTH} deep")
        reader.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        reader.end(tag)

    def refuse(*_: object) -> None:
        raise Malformed("a document type is declared; XML-RPC has none")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, reader.data
    reader.xml(None, None)  # type: ignore[arg-type]  # expat gives text already: there is nothing to decode
    parser.Parse(body, True)


def answer(value: object) -> bytes:
    """The response that carries a value. None is not in XML-RPC: the caller has none to send."""
    return _document((_writable(value),))


def refusal(fault: Fault) -> bytes:
    """The response that carries a fault."""
    return _document(xmlrpc.client.Fault(fault.code, readable(fault.text)))


def _document(value: Any) -> bytes:
    return xmlrpc.client.dumps(value, methodresponse=True, encoding="utf-8").encode("utf-8", "replace")


def readable(text: str) -> str:
    """Text that XML can carry and a terminal does not obey. Example: ESC [31m is shown as ␛[31m."""
    if text.isascii() and text.isprintable():  # nearly all of them; the rest takes ten times as long
        return text
    return text.encode("utf-8", "replace").decode().translate(_UNWRITABLE)


def _writable(value: object) -> object:
    match value:
        case bool() | float():
            return value
        case int():
            return max(xmlrpc.client.MININT, min(xmlrpc.client.MAXINT, int(value)))
        case str():
            return readable(value)
        case dict():
            return {readable(str(key)): _writable(item) for key, item in value.items()}
        case list() | tuple():
            return [_writable(item) for item in value]
        case _:
            raise TypeError(f"XML-RPC cannot carry {value!r}")
