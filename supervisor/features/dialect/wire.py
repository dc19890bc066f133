"""XML-RPC bodies: from bytes to (method, params), and from a value to bytes. No I/O, no state.

The parser is the standard library's (expat and `xmlrpc.client.Unmarshaller`) with restrictions: no DTD, so no entities
that expand a kilobyte into gigabytes, and limited nesting. The caller limits the size of the body. Every mistake in a
body raises the same error, `Malformed`.

A response may contain a worker's last output. XML 1.0 cannot express most control characters: Supervisor sends them
unchanged, and its client fails with `not well-formed`. A terminal would execute the others. So all of them are replaced by
visible characters.
"""

from __future__ import annotations

import xmlrpc.client
from typing import Any, Final
from xml.parsers import expat

from supervisor.model import codes

MOST_DEPTH: Final = 64  # nested elements; a value in an array in a struct in a call has nine levels
_MOST_NAME: Final = 200

_PICTURES: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_UNWRITABLE: Final = _PICTURES | {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), 0xFFFE, 0xFFFF], 0xFFFD)


class Fault(Exception):
    """A refused call. Clients and plugins act on the code, and show the text: `NAME: detail`."""

    def __init__(self, code: int, detail: str = "") -> None:
        name = codes.NAMES[code]
        super().__init__(f"{name}: {detail}" if detail else name)
        self.code: Final = code
        self.text: Final = str(self)


class Malformed(Exception):
    """The body is not an XML-RPC call; the message gives the reason."""


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
    ) as error:  # fmt: skip  # the reader expects valid input: otherwise it raises whatever fails first
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
    """The response for a value. XML-RPC has no None, so `value` must not contain it."""
    return _document((_writable(value),))


def refusal(fault: Fault) -> bytes:
    return _document(xmlrpc.client.Fault(fault.code, readable(fault.text)))


def _document(value: Any) -> bytes:
    return xmlrpc.client.dumps(value, methodresponse=True, encoding="utf-8").encode("utf-8", "replace")


def readable(text: str) -> str:
    """`text` with visible control characters: XML can carry it, no terminal executes it. Example: ESC [31m becomes ␛[31m."""
    if text.isascii() and text.isprintable():  # nearly all texts; the lines below take ten times as long
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
