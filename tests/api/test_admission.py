"""What stands before every route: host names, origins, content types and the password. Each answer as a whole."""

import asyncio
import base64
import json

import pytest
from starlette.datastructures import Headers

from supervisor.api.door import PasswordCheck
from supervisor.api.rest import REST_KEY
from supervisor.api.same_site import objection, same_site
from supervisor.formats import span
from supervisor.model.settings import HttpSettings

NAMES = {"", "localhost", "127.0.0.1", "[::1]", "proxy.example"}
JSON = ("content-type", "application/json")
HOST = (403, "the daemon does not serve this host name: use localhost, or add the name to daemon.host_names")
SITE = (403, "requests from pages of other sites are refused")
ORIGIN = (403, "requests from pages of other origins are refused")
NO_JSON, NO_XML = (415, "the content type must be application/json"), (415, "the content type must be text/xml")
NAVIGATES = (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"))


def header_list(*given):
    return [(name.encode(), value.encode("latin-1")) for name, value in given]


@pytest.mark.parametrize(
    ("method", "path", "given", "answer"),
    [
        ("GET", "/", [], None),
        ("GET", "/", [("host", " LocalHost:80 ")], None),
        ("GET", "/", [("host", "")], None),  # the stock client's `tail -f`
        ("GET", "/", [("host", "[x")], HOST),  # never closed: it is not the empty name of a client without Host
        ("GET", "/", [("host", "localhost.evil.example:9001")], HOST),
        ("GET", "/", [("host", "[::1]")], None),
        ("GET", "/", [("host", "[::1]:9001")], None),
        ("GET", "/", [("host", "[::2]:9001")], HOST),
        ("GET", "/", [("host", "PROXY.example:443")], None),
        ("GET", "/", [("host", "203.0.113.9")], HOST),
        ("GET", "/", [("host", "localhost"), ("host", "localhost")], HOST),
        ("HEAD", "/", [("host", "localhost")], None),
        ("GET", "/", [("sec-fetch-site", "none")], None),
        ("GET", "/", [("sec-fetch-site", "same-origin")], None),
        ("GET", "/", [("sec-fetch-site", "same-site")], SITE),
        ("GET", "/", [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")], SITE),
        ("GET", "/", [("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")], SITE),
        ("GET", "/", [*NAVIGATES], None),
        ("HEAD", "/", [*NAVIGATES, ("sec-fetch-dest", "document")], None),
        ("GET", "/", [*NAVIGATES, ("sec-fetch-dest", "iframe")], SITE),
        ("POST", "/", [*NAVIGATES, JSON], SITE),
        ("POST", "/", [("sec-fetch-site", "same-origin"), JSON], None),
        ("GET", "/", [("host", "localhost"), ("origin", "http://other")], None),
        ("POST", "/", [("host", "localhost:1"), ("origin", "HTTP://LocalHost:1"), JSON], None),
        ("POST", "/", [("host", "LocalHost:1"), ("origin", "http://localhost:1"), JSON], None),
        ("POST", "/", [("host", "localhost:1"), ("origin", "http://localhost"), JSON], ORIGIN),
        ("POST", "/", [("host", "localhost"), ("origin", "localhost"), JSON], ORIGIN),
        ("POST", "/", [("host", "localhost"), *[("origin", "http://localhost")] * 2, JSON], ORIGIN),
        ("POST", "/", [("origin", "http://localhost"), JSON], ORIGIN),
        ("POST", "/", [], NO_JSON),
        ("POST", "/", [("content-type", "Application/JSON ;charset=utf-8")], None),
        ("POST", "/", [("content-type", "text/plain;application/json")], NO_JSON),
        ("PUT", "/", [("content-type", "text/xml")], NO_JSON),
        ("POST", "/RPC2", [("content-type", "text/xml")], None),
        ("POST", "/RPC2/", [("content-type", "application/xml")], None),
        ("POST", "/RPC2", [JSON], NO_XML),
        ("POST", "/RPC2/", [], NO_XML),
        ("POST", "/rpc2", [("content-type", "text/xml")], NO_JSON),
        ("OPTIONS", "/", [("host", "localhost")], NO_JSON),
    ],
)
def test_which_requests_are_served(method, path, given, answer):
    assert objection(method, path, Headers(raw=header_list(*given)), NAMES) == answer


@pytest.mark.parametrize(
    ("host", "served"),
    [("203.0.113.9", True), ("203.0.113.9:80", True), ("[2001:db8::1]:80", True), ("evil.example", False), ("203.0.113", False)],
)  # fmt: skip
def test_over_tcp_any_address_is_a_host_and_no_other_name(host, served):
    headers = Headers(raw=header_list(("host", host)))
    assert objection("GET", "/", headers, NAMES, any_address=True) == (None if served else HOST)
    assert objection("GET", "/", headers, NAMES) == HOST


class App:
    """Counts the requests that reach it, and keeps what was sent instead."""

    def __init__(self):
        self.served = []
        self.sent = []

    async def __call__(self, scope, receive, send):
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "served"})
        self.served.append(scope)

    def ask(self, wrapped, **scope):
        """The scope of one request, as it was left."""

        async def receive():
            return {"type": "http.disconnect"}

        async def send(message):
            self.sent.append(message)

        self.sent.clear()
        asyncio.run(wrapped(scope, receive, send))
        return scope


def refusal(status, sentence, *more):
    body = json.dumps({"error": sentence}, separators=(",", ":")).encode()
    fields = [*more, (b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    return [
        {"type": "http.response.start", "status": status, "headers": fields},
        {"type": "http.response.body", "body": body},
    ]


SERVED = [{"type": "served"}]


def test_a_refused_request_is_answered_whole_and_goes_no_further():
    app = App()
    checked = same_site(app, ["Tunnel.Example"])

    def ask(host, kind="http", **more):
        app.ask(checked, type=kind, method="GET", path="/", headers=header_list(("host", host)), **more)
        return app.sent

    assert ask("evil.example") == refusal(*HOST)
    assert ask("203.0.113.9") == refusal(*HOST)
    assert app.served == []
    assert ask("tunnel.example:80") == ask("localhost") == SERVED
    assert ask("203.0.113.9", **{"extralife.address": "198.51.100.2"}) == SERVED, "over TCP"
    assert ask("evil.example", kind="lifespan") == SERVED, "no request"


# --- the password ----------------------------------------------------------------------------------------------------------


SETTINGS = HttpSettings("127.0.0.1:1", "me", "/secret", "127.0.0.1", 1, "wörd")
CHALLENGE = (b"www-authenticate", b'Basic realm="extralife", charset="UTF-8"')
UNAUTHORISED = refusal(401, "this port needs the user and the password of [http]", CHALLENGE)


def too_many(address, wait_s):
    sentence = f"too many wrong passwords from {address}: wait {span(wait_s)}"
    return refusal(429, sentence, (b"retry-after", b"%d" % wait_s))


def basic(text):
    return b"Basic " + base64.b64encode(text)


RIGHT = basic("me:wörd".encode())


class Door:
    """An application behind a password, at times of one's choice."""

    def __init__(self, settings=SETTINGS):
        self.now_s, self.app = 1000.0, App()
        self.passwords = PasswordCheck(lambda: self.now_s)
        self.passwords.use_password(settings)
        self.wrapped = self.passwords.wrap(self.app)
        self.scope = {}

    def knock(self, *given, address="203.0.113.7"):
        headers = [(b"authorization", each) for each in given]
        self.scope = self.app.ask(self.wrapped, type="http", headers=headers, **{"extralife.address": address})
        return [*self.app.sent]


@pytest.mark.parametrize(
    ("given", "lets_in"),
    [
        (RIGHT, True), (b"  bAsIc   " + RIGHT[6:] + b"  ", True), ("Bearer wörd".encode(), True),
        ("bEARER   wörd ".encode(), True), ("Bearer me:wörd".encode(), False), (b"Basic", False), (b"", False),
        ("Basic wörd".encode(), False), (b"Basic *" + RIGHT[6:], False), (basic(b"me:"), False), (basic("you:wörd".encode()), False),
        (b"Digest " + RIGHT[6:], False), (RIGHT[6:], False), ("Bearer w\N{LATIN SMALL LETTER O WITH DIAERESIS}rd2".encode(), False),
    ],
)  # fmt: skip
def test_the_right_password_lets_in_and_all_others_get_one_answer(given, lets_in):
    door_ = Door()
    told = door_.knock(given)
    assert told == (SERVED if lets_in else UNAUTHORISED)
    assert door_.scope.get("extralife.by") == ("me at 203.0.113.7" if lets_in else None)
    assert door_.scope.get(REST_KEY) == (None if lets_in else 0.3)


def test_an_empty_password_lets_nobody_in_and_the_newest_one_counts():
    door_ = Door()
    door_.passwords.use_password(HttpSettings("127.0.0.1:1", "me", "/secret", "127.0.0.1", 1, ""))
    assert door_.knock(RIGHT) == door_.knock(basic(b"me:")) == door_.knock(b"Bearer ") == UNAUTHORISED
    door_.passwords.use_password(HttpSettings("127.0.0.1:1", "you", "/secret", "127.0.0.1", 1, "new"))
    assert door_.knock(RIGHT) == UNAUTHORISED
    assert door_.knock(basic(b"you:new")) == SERVED
    assert door_.scope["extralife.by"] == "you at 203.0.113.7"


def test_ten_guesses_and_then_one_every_six_seconds():
    door_, wrong = Door(), b"Bearer wrong"
    assert [door_.knock(wrong) for _ in range(10)] == [UNAUTHORISED] * 10
    assert door_.knock(RIGHT) == door_.knock(wrong) == too_many("203.0.113.7", 7)
    door_.now_s += 5.75
    assert door_.knock(RIGHT) == too_many("203.0.113.7", 1)
    assert (door_.scope[REST_KEY], door_.knock()) == (0.3, UNAUTHORISED)
    door_.now_s += 0.25
    assert door_.knock(RIGHT) == SERVED
    assert door_.knock(wrong, RIGHT) == UNAUTHORISED, "two passwords are one wrong guess"
    assert door_.knock(RIGHT) == too_many("203.0.113.7", 7)
    door_.now_s += 60.0
    assert [door_.knock(wrong) for _ in range(11)] == [UNAUTHORISED] * 10 + [too_many("203.0.113.7", 7)], "all are forgotten"


def test_a_network_of_one_client_is_one_address():
    door_, wrong = Door(), b"Bearer wrong"
    for number in range(10):
        assert door_.knock(wrong, address=f"2001:db8:0:1:{number:x}::1") == UNAUTHORISED
    assert door_.knock(RIGHT, address="2001:db8:0:1::ffff") == too_many("2001:db8:0:1::ffff", 7)
    assert door_.knock(RIGHT, address="2001:db8:0:2::1") == SERVED
    for _ in range(10):
        door_.knock(wrong, address="an unknown address")
    assert door_.knock(RIGHT, address="an unknown address") == too_many("an unknown address", 7)
    assert door_.knock(RIGHT, address="198.51.100.2") == door_.knock(RIGHT, address="203.0.113.6") == SERVED
