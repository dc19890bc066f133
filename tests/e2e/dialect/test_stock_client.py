"""Supervisor's own client, unchanged: what docs/supervisor-compatibility.md says of it is what happens."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import stock_story
from box import ROOT, until
from environments import NotInstallable, stock_supervisor
from stock_sides import Ours

from supervisor import collision


@pytest.fixture(scope="module")
def stock() -> Path:
    try:
        return stock_supervisor()
    except NotInstallable as error:
        pytest.skip(f"supervisor 4.3.0 cannot be installed here to compare with: {error}")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_command_gives_what_the_document_says(stock: Path, tmp_path: Path) -> None:
    story = stock_story.record(tmp_path)
    assert stock_story.complaints(story) == []
    assert stock_story.document(story) == stock_story.DOCUMENT.read_text(), "stock_story.py writes it anew"


def test_a_stock_update_applies_the_whole_file_and_touches_only_what_changed(stock: Path, tmp_path: Path) -> None:
    side = Ours(tmp_path / "ours")
    try:
        side.configure({"a": (["sleep", "1000"], True), "b": (["sleep", "1000"], True)})
        side.start()
        for name in "ab":
            side.wait_state(name, "RUNNING")
        before = {name: side.pid(name) for name in "ab"}
        side.configure({"a": (["sleep", "1000"], True), "b": (["sleep", "1001"], True)})
        file = side.box.config_file
        file.write_text(
            file.read_text().replace("slots = 10", "slots = 9").replace("autostart = true", "autostart = false", 1)
        )
        assert side.ctl(("reread",)) == (0, "[level]: available\n[program.a]: available\nb: changed\n")
        told = "b: stopped\nb: updated process group\n[level]: added process group\n[program.a]: added process group\n"
        assert side.ctl(("update",)) == (0, told)
        assert side.ctl(("reread",)) == (0, "No config updates to processes\n")
        assert side.box.status()["daemon"]["level"]["slots"] == 9
        assert side.ctl(("avail",))[1].splitlines()[0].split() == ["a", "in", "use", "manual", "100:100"]
        side.wait_state("b", "STOPPED" if side.box.program("b")["wanted"] == "stop" else "RUNNING")
        assert side.pid("a") == before["a"]
        assert side.pid("b") != before["b"]
        began_s = side.box.status()["daemon"]["started_wall_s"]
        assert side.ctl(("reload",)) == (0, "Restarted supervisord\n")
        # The image before still answers for a moment, and a connection that it does not come to is closed.
        until(lambda: (side.box.status()["daemon"]["started_wall_s"] or 0) > began_s, 30, "the next image")
        side.wait_state("a", "RUNNING")
        assert side.pid("a") == before["a"], "workers outlive the daemon's image"
        asked = [(fact["request"], fact["args"]) for fact in side.box.facts("OperatorAsked")]
        assert ("update", ["[level]"]) in asked
    finally:
        side.close()


def test_supervisor_in_our_environment_is_named_and_does_not_hide_us(stock: Path) -> None:
    """An environment with PyPI's supervisor, in which extralife is installed too: its package is found first."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(stock / "python"), "-c", f"import sys; sys.path.append({str(ROOT)!r}); import {code}"],
            capture_output=True, text=True, timeout=60, check=True, cwd="/",
        )  # fmt: skip

    said = run(f"runpy; print(runpy.run_path({str(ROOT / 'supervisor/collision.py')!r})['sentence']())").stdout
    assert said.startswith(f"Supervisor 4.3.0 is installed in extralife's environment {stock.parent}, and ")
    assert "supervisord and supervisorctl are its own now: use extralife and extralifectl" in said
    client = "workers.commands as ours; sys.argv = ['extralifectl', 'help', 'explain']; sys.exit(ours.client())"
    assert run(client).stdout.startswith("usage: explain NAME")


def test_without_it_there_is_nothing_to_say() -> None:
    assert collision.sentence() == ""
