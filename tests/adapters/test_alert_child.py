"""The process that sends one alert: what fits, what it answers, and how it holds itself back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apprise
import pytest
from apprise.plugins import custom_json

from supervisor.adapters.alerts import child

ROOT = Path(__file__).resolve().parents[2]
REQUEST = {"url": "json://me:hunter2@host", "title": "Pong", "body": "one\ntwo\nend", "severity": "critical", "link": ""}


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Apprise's plugins


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Apprise was asked to send, to a service that takes 15 characters."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(custom_json.NotifyJSON, "body_maxlen", 15)
    monkeypatch.setattr(apprise.Apprise, "notify", lambda _, **notice: asked.append(notice) or True)
    return asked


@pytest.mark.parametrize(("title", "body"), [("Pong", "one\ntwo\nend"), ("Pongs", "one\nend")])
def test_a_text_must_fit_beside_its_title(sent: list[dict[str, Any]], title: str, body: str) -> None:
    assert child.send(REQUEST | {"title": title}) == ""
    assert sent == [{"body": body, "title": title, "notify_type": "failure", "body_format": "text"}]


def test_what_goes_wrong_is_told_without_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = "Apprise does not know this URL: compare it with Apprise's documentation of that service"
    assert child.send(REQUEST | {"url": "x://me:hunter2@host"}) == unknown

    def notify(*_: Any, **__: Any) -> bool:
        raise RuntimeError("hunter2 at host")

    monkeypatch.setattr(apprise.Apprise, "notify", notify)
    assert child.send(REQUEST) == "it failed with RuntimeError: *** at ***"
    monkeypatch.setattr(apprise.Apprise, "notify", lambda *_, **__: False)
    assert child.send(REQUEST) == "the service did not accept the alert"


@pytest.mark.parametrize(
    ("text", "url", "told"),
    [
        ("abcdef abc ab", "x://abc/abcdef/ab", "*** *** ab"),  # the longest first; two characters are no secret
        ("a b c1d", "x://h/a%20b?c1d", "a b ***"),
        ("tok one two", "x://tok:one@two", "*** *** ***"),
        ("tok one two", "x://tok&one=two", "*** *** ***"),
        ("tok one two", "x://tok#one,two", "*** *** ***"),
        ("smtps said no", "smtps://host", "smtps said no"),  # the scheme is none
        ("x" * 301, "x://host", "x" * 300),
    ],
)
def test_every_word_of_a_url_may_be_a_secret(text: str, url: str, told: str) -> None:
    assert child._scrubbed(text, url) == told


def test_a_short_text_is_its_first_and_last_line() -> None:
    assert child.fitting("one\ntwo\nend", 10) == "one\nend"
    assert child.fitting("one\nend", 1) == "one\nend"


MAIN = """
import json, os, signal, sys
from supervisor.adapters.alerts import child
child.send = lambda request: json.dumps([request, os.nice(0), signal.getitimer(signal.ITIMER_REAL)[0]])
sys.exit(child.main())
"""


def test_the_process_is_nice_and_ends_by_itself_if_nobody_ends_it() -> None:
    asked = {"url": "x://", "timeout_s": 1_000.0}
    done = subprocess.run(
        [sys.executable, "-c", MAIN], input=json.dumps(asked), capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    answer, _, rest = done.stdout.partition("\n")
    told = json.loads(answer)
    assert ([*told], rest) == (["error"], "")
    request, nice, left_s = json.loads(told["error"])
    assert (request, nice) == (asked, min(19, os.nice(0) + 5))
    assert 1_000.0 < left_s <= 1_005.0
