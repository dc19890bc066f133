"""The process that sends one alert: what it gives to Apprise, what it answers, and how it holds itself back."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.adapters.alerts import child

ROOT = Path(__file__).resolve().parents[2]
REQUEST = {"url": "x://me:hunter2@host", "title": "Pong", "body": "one\ntwo\nend", "severity": "critical", "link": ""}


class Apprise(list[Any]):
    """Apprise, as far as it is asked; its services take texts of at most these sizes."""

    known = accepted = True
    sizes: tuple[int, ...] = (100, 50)

    def __init__(self, **more: Any) -> None:
        super().__init__(SimpleNamespace(body_maxlen=size) for size in self.sizes)
        self.made, self.urls, self.sent = more, list[Any](), list[Any]()

    def add(self, url: str) -> bool:
        self.urls.append(url)
        return self.known

    def notify(self, **notice: Any) -> bool:
        self.sent.append(notice)
        return self.accepted


@pytest.fixture
def apprise(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class of its own for this test, and in `made` what was made of it."""
    log = logging.getLogger("apprise")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", True)
    made = type("Made", (Apprise,), {})
    module = SimpleNamespace(instances=[], AppriseAsset=lambda **fields: fields, kind=made)

    def make(**more: Any) -> Any:
        module.instances.append(made(**more))
        return module.instances[-1]

    make.instantiate = lambda *_, **__: None  # type: ignore[attr-defined]
    module.Apprise = make
    monkeypatch.setitem(sys.modules, "apprise", module)
    return module


@pytest.mark.parametrize(("severity", "kind"), [("info", "info"), ("warning", "warning"), ("critical", "failure")])
def test_all_that_apprise_is_given(apprise: Any, severity: str, kind: str) -> None:
    assert child.send(REQUEST | {"severity": severity}) == ""
    (made,) = apprise.instances
    assert made.made == {"asset": {"app_id": "extralife", "app_desc": "extralife", "async_mode": False}}
    assert made.urls == ["x://me:hunter2@host"]
    assert made.sent == [{"body": "one\ntwo\nend", "title": "Pong", "notify_type": kind, "body_format": "text"}]


@pytest.mark.parametrize(
    ("sizes", "body"), [((15, 99), "one\ntwo\nend"), ((99, 15), "one\ntwo\nend"), ((99, 14), "one\nend")]
)
def test_a_text_must_fit_beside_its_title_into_the_smallest_service(apprise: Any, sizes: tuple[int, ...], body: str) -> None:
    apprise.kind.sizes = sizes
    child.send(REQUEST)
    assert apprise.instances[0].sent[0]["body"] == body


def test_a_refusal_is_told_by_the_last_warning_of_apprise_without_the_url(
    apprise: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def notify(self: Any, **_: Any) -> bool:
        for text in ("first %s", "POST to %s failed: hunter2 is wrong"):
            logging.getLogger("apprise").warning(text, "host")
        logging.getLogger("apprise").info("no warning")
        return False

    apprise.kind.notify = notify
    assert child.send(REQUEST) == "POST to *** failed: *** is wrong"
    assert caplog.records == [], "nothing of it reaches the error output, which may be a log"
    apprise.kind.notify = lambda *_, **__: False
    assert child.send(REQUEST) == "the service did not accept the alert"
    apprise.kind.known = False
    unknown = "Apprise does not know this URL: compare it with Apprise's documentation of that service"
    assert child.send(REQUEST) == unknown


def test_a_service_that_breaks_is_told_without_the_url(apprise: Any) -> None:
    def notify(self: Any, **_: Any) -> bool:
        raise RuntimeError("hunter2 at host")

    apprise.kind.notify = notify
    assert child.send(REQUEST) == "it failed with RuntimeError: *** at ***"


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
    assert child.fitting("one\ntwo\nend", 11) == "one\ntwo\nend"
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
