"""XML-RPC bodies: what is parsed, what is refused, what goes out."""

from __future__ import annotations

import datetime as dt
import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.dialect import wire
from supervisor.features.dialect.wire import Fault
from supervisor.model import codes

VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=4))
def test_what_the_standard_library_writes_is_read_back(params: list[object]) -> None:
    body = xmlrpc.client.dumps(tuple(params), "supervisor.x").encode()
    assert wire.parse(body) == ("supervisor.x", tuple(params))


def test_other_encodings_and_types_are_read() -> None:
    text = '<?xml version="1.0" encoding="{}"?><methodCall><methodName>a.b</methodName><params><param><value>{}</value></param></params></methodCall>'
    for encoding in ("utf-8", "utf-16", "iso-8859-1"):
        assert wire.parse(text.format(encoding, "Ärger").encode(encoding)) == ("a.b", ("Ärger",))
    moment = "<dateTime.iso8601>20251121T04:40:00</dateTime.iso8601>"
    assert wire.parse(text.format("utf-8", moment).encode())[1] == (dt.datetime.fromisoformat("2025-11-21T04:40:00"),)
    assert wire.parse(text.format("utf-8", "<nil/>").encode())[1] == (None,)


LAUGHS = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><methodCall><methodName>&b;</methodName></methodCall>'


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"<methodCall>", b"<methodCall/>", b"<x>" * 5000, b"\xff\xfe", b"<methodCall><methodName/></methodCall>",
        LAUGHS,
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><methodCall><methodName>a.b</methodName></methodCall>',
        b"<methodCall><methodName>" + b"x" * 500 + b"</methodName></methodCall>",
        b"<methodCall><methodName>a</methodName><params><param>" + b"<value><array><data>" * 40,
        b"<methodCall><methodName>a</methodName><params><param><value><int>one</int></value></param></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><param><value><boolean>2</boolean></value></param></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><param><value><int>" + b"9" * 5000
        + b"</int></value></param></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><value><struct><member><name>n</name></member></struct></value></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><value><base64>\xc3\xa4</base64></value></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><value><dateTime.iso8601>never</dateTime.iso8601></value></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><value><bigdecimal>x</bigdecimal></value></params></methodCall>",
        b"<methodCall></array></methodCall>", b"<?xml version='1.0' encoding='utf-7'?><methodCall/>",
        b"<?xml version='1.0' encoding='nobody-knows'?><methodCall/>",
        xmlrpc.client.dumps(xmlrpc.client.Fault(1, "x"), methodresponse=True).encode(),
        xmlrpc.client.dumps((1,), methodresponse=True).encode(),
    ],
)  # fmt: skip
def test_whatever_is_wrong_there_is_one_error(body: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.parse(body)


def test_what_goes_out_is_always_xml_that_a_terminal_does_not_obey() -> None:
    text = "red \x1b[31m bell \x07 nul \x00 del \x7f csi \x9b2J half \ud800 tab\tend\n ffff \uffff & < > Ä"
    ((got,), _) = xmlrpc.client.loads(wire.answer(text))
    assert got == "red ␛[31m bell ␇ nul ␀ del ␡ csi \ufffd2J half ? tab\tend\n ffff \ufffd & < > Ä"
    with pytest.raises(xmlrpc.client.Fault) as told:
        xmlrpc.client.loads(wire.refusal(Fault(codes.BAD_NAME, "\x1b]0;title\x07")))
    assert (told.value.faultCode, told.value.faultString) == (10, "BAD_NAME: ␛]0;title␇")


@given(st.text(max_size=50))
def test_every_text_can_be_sent(text: str) -> None:
    ((got,), _) = xmlrpc.client.loads(wire.answer([{"key": text}]))
    assert len(got[0]["key"].replace("\r", "\n")) <= len(text)
