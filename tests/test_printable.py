"""No text, from whomever it comes, steers the terminal that it is printed on."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import unicodedata

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.adapters.host.reboot_log import reboot_line
from supervisor.model import facts
from supervisor.model.commands import AlertReboot
from supervisor.model.settings import DaemonSettings
from supervisor.policy.worker.loss import Loss
from supervisor.printable import printable
from supervisor.shell import logs

ATTACKS = [
    "\x1b]0;title\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b[2J\x1b[H", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "\x9b31m", "\x9d0;t\x9c",
    "a\rb", "safe\x08\x08\x08\x08evil", "abc\u202edef\u202c", "\u2066x\u2069", "\u2028\u2029\x85", "\ufeff\u200b", "\x00\x7f", "\ud800", "\U000e0041",
    "\x1bP+q544e\x1b\\", "\x1b[6n", "\x0e\x0f", "\x1b(0",
]  # fmt: skip
texts = (
    st.text(st.characters(exclude_categories=[]))
    | st.sampled_from(ATTACKS)
    | st.lists(st.sampled_from(ATTACKS)).map("".join)
)
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}


def steers(text: str, allowed: str = "") -> bool:
    return any(unicodedata.category(char) in STEERING and char not in allowed for char in text)


@settings(deadline=None)
@given(texts)
@example("".join(map(chr, [*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0080)])))
def test_nothing_that_a_terminal_would_obey_is_left(text: str) -> None:
    shown, block = printable(text), printable(text, lines=True)
    assert shown.isprintable()
    assert not steers(shown)
    assert not steers(block, "\n\t")
    assert len(shown) <= 10 * len(text)
    shown.encode()
    assert printable(shown) == shown, "shown twice it is the same"


@settings(deadline=None)
@given(st.text(st.characters(categories=("L", "M", "N", "P", "S"), include_characters=" ")))
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert printable(text) == printable(text, lines=True) == text


@settings(deadline=None)
@given(texts, texts, texts)
def test_a_line_of_the_alert_log_is_one_line(evidence: str, level: str, name: str) -> None:
    fact = facts.HostRebooted("it rebooted", "a" * 32, "b" * 32, "unclean", evidence, 1.0, None, level, (name,), {})
    line = reboot_line(AlertReboot(fact, 1, {name: Loss(5)}, (name,)), wall_s=1e9)
    assert line.isprintable()


@settings(deadline=None)
@given(texts, texts)
def test_the_log_on_a_terminal_and_the_log_in_the_file(text: str, key: str) -> None:
    """The console has harmless text; the file is ASCII, and exact."""
    shared: list[object] = [structlog.stdlib.add_log_level]
    console = logs._formatter(structlog.dev.ConsoleRenderer(colors=False), shared, logs._printable)
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, {"event": text, "_record": None, f"k{key}": text}, None, None)
    record._logger, record._name = None, "info"  # type: ignore[attr-defined]
    assert not steers(console.format(record), "\n")
    written = structlog.processors.JSONRenderer()(None, "info", {"event": text})
    assert isinstance(written, str)
    assert written.isascii()
    assert written.isprintable()
    assert json.loads(written)["event"] == text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_configured_log_is_harmless_too(log_format, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    before, level, configured = logging.getLogger().handlers, logging.getLogger().level, structlog.get_config()
    try:
        logs.configure(str(tmp_path / "main.log"), DaemonSettings(log_format=log_format), to_stdout=True)
        log = structlog.get_logger("test", at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC).isoformat())
        log.warning("said", why="\x1b]52;c;ZXZpbA==\x07 \u202e", attack="\r\nforged")
        try:
            raise RuntimeError("\x1b[2J")
        except RuntimeError:
            log.exception("failed")
    finally:
        for handler in logging.getLogger().handlers:
            handler.close()
        logging.getLogger().handlers = before
        logging.getLogger().setLevel(level)
        structlog.configure(**configured)  # tests of the API in the same process have one of their own
    assert not steers(out.getvalue(), "\n")
    assert "RuntimeError: \\x1b[2J" in out.getvalue()
    data = (tmp_path / "main.log").read_bytes()
    assert b"\x1b" not in data
    assert data.isascii()
    assert b"\\x1b]52" in data or json.loads(data.splitlines()[0])["why"].startswith("\x1b]52")
    assert not [line for line in data.splitlines() if line.startswith(b"forged")]
