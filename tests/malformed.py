"""Requests as no client should send them: bytes for a raw socket, the same ones for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

JSON_BODIES = [
    b"{", b"[]", b"null", b"NaN", b"Infinity", b'{"verb": NaN}', b'{"verb": "stop", "timeout_s": Infinity}',
    b'{"verb": "stop", "timeout_s": -1}', b'{"verb": "stop", "timeout_s": 1e999}', b'{"verb": "stop", "names": "Pong"}',
    b'{"verb": "stop", "names": [null]}', b'{"verb": ["stop"]}', b'{"verb": "stop", "verb": "start"}',
    b'{"verb": "explode"}', b'{"verb": "stop", "evil": 1}', b'{"verb": "stop", "wait": "maybe"}', b"\xff\xfe{\x00}\x00",
    b'{"verb": "\xc3("}', b'{"verb": "\\ud800"}', b'{"names": [' + b"9" * 5000 + b"]}", b"[" * 30_000, b'{"a":' * 10_000,
    b"\xef\xbb\xbf{}x", b'{"verb": "signal", "signal": 99, "names": 5}', b"{}{}", b'{"verb": 1e400}',
]  # fmt: skip
ENTITIES = "".join(f'<!ENTITY e{n} "{(f"&e{n - 1};" if n else "ha") * 10}">' for n in range(10))
XML_BODIES = [
    b"<?xml version='1.0'?><!DOCTYPE x [" + ENTITIES.encode() + b"]><methodCall><methodName>&e9;</methodName></methodCall>",
    b"<!DOCTYPE x [<!ENTITY f SYSTEM 'file:///etc/passwd'>]><methodCall><methodName>&f;</methodName></methodCall>",
    b"<!DOCTYPE x SYSTEM 'http://127.0.0.1:9/x.dtd'><methodCall/>",
    b"<methodCall><methodName>supervisor.getState</methodName><params>" + b"<param><value><i4>1</i4></value></param>" * 500,
    b"<methodCall>" * 5000, b"<" * 10_000, b"<methodCall><methodName>\x00</methodName></methodCall>", b"\xff\xfe<\x00",
    b"<methodCall><methodName>system.multicall</methodName></methodCall>", b"not xml at all",
]  # fmt: skip
HEADS = [
    b"", b"\r\n", b"\n\n\n", b"\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET  / HTTP/1.1\r\n\r\n", b"G\xc3\xa9T / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \x00\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\x80: y\r\n\r\n",
    b"GET /%zz%00%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"DELETE /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /api/v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
    b"GET /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", b"A" * 200_000,
    b"GET /api/v1/programs/%F0%28%8C%28 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /api/v1/programs/../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/logs/%2e%2e%2f%2e%2e%2fetc%2fpasswd/stdout HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/facts?limit=" + b"9" * 6000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /api/v1/facts?after=NaN HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/facts?limit=0x10 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /api/v1/mainlog?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/mainlog?tail=1e3 HTTP/1.1\r\nHost: localhost\r\n\r\n",
]  # fmt: skip
LENGTHS = [
    b"-1", b"1e3", b"0x10", b"99999999999999999999999", b"5, 6", b"", b" ", b"\xd9\xa3", b"3\r\nContent-Length: 4", b"7",
]  # fmt: skip
CHUNKS = [
    b"zz\r\n", b"-5\r\nhello\r\n", b"ffffffffffffffffffff\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5;" + b"x" * 70_000 + b"\r\n", b"5\nhello\n0\n\n",
    b"1\r\n{\r\n" * 50, b"0\r\nTrailer: \x00\r\n\r\n",
]  # fmt: skip


def request(target: bytes, body: bytes, headers: bytes = b"") -> bytes:
    kind = b"text/xml" if target.startswith(b"/RPC2") else b"application/json"
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
    return head % (target, kind, headers, len(body)) + body


def malformed(count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` broken requests: each known trick, and then these again with random damage."""
    chance = random.Random(seed)
    known = [*HEADS]
    known += [request(page, body) for body in JSON_BODIES for page in (b"/api/v1/ask", b"/api/v1/update", b"/api/v1/reread")]
    known += [request(b"/RPC2", body, b"Content-Type: text/xml\r\n") for body in XML_BODIES]
    ask = b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    known += [ask + b"Content-Length: " + size + b"\r\n\r\n{}" for size in LENGTHS]
    chunked = ask + b"Transfer-Encoding: chunked\r\n"
    known += [chunked + b"\r\n" + chunk for chunk in CHUNKS]
    known += [chunked + b"Content-Length: 3\r\n\r\n" + chunk for chunk in CHUNKS]
    known += [b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200, HEADS[6] + HEADS[11]]
    asked = request(b"/api/v1/ask", json.dumps({"verb": "stop", "names": []}).encode())
    for number in range(count):
        if number < len(known):
            yield known[number]
            continue
        yield damaged(chance.choice([*known, asked]), chance)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut, doubled, overwritten or stretched at a random place."""
    at = chance.randrange(len(data) + 1)
    match chance.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data
        case 2:
            return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at + 1 :]
        case 3:
            more = chance.choice([b"\r\n", b"\0", b"\n", b"\x80", b" ", b":", b"%"])
            return data[:at] + more * chance.randrange(1, 50) + data[at:]
        case _:
            return chance.randbytes(chance.randrange(1, 400))
