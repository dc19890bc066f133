"""Alerts of a real daemon: a changed boot, a killed daemon, a dead URL and a hanging hook; told to everybody in the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alert_receiver import Hook, Receiver
from box import PATIENCE, Box, until

SHORT = '[program.short]\ncommand = ["true"]\nprogress = "none"\n'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def configure(
    box: Box, *programs: str, hook: Hook | None = None, receiver: Receiver | None = None, timeout_s: float = 20
) -> None:
    lines = ["[alerts]", "same_within_s = 0.0", f"timeout_s = {timeout_s}"]
    if hook is not None:
        lines.append(f"command = {json.dumps(hook.argv)}")
    if receiver is not None:
        secrets = box.directory / "alert-urls"
        secrets.write_text(f"{receiver.url}\n")
        secrets.chmod(0o600)
        lines.append(f'urls_file = "{secrets}"')
    box.config("".join(programs), extra="\n".join(lines))


def told(hook: Hook, kind: str) -> list[dict[str, object]]:
    return [each["told"] for each in hook.got() if each["told"]["kind"] == kind]


def test_a_reboot_is_told_to_everybody_over_a_killed_daemon(box: Box, tmp_path: Path, receiver: Receiver) -> None:
    hook = Hook(tmp_path)
    configure(box, box.trainer("a"), hook=hook, receiver=receiver)  # nobody listens at the URL yet
    box.start()
    box.wait_phase("a", "RUNNING")
    box.power_cut()
    box.start()
    (reboot,) = until(lambda: told(hook, "reboot"), 30, "the hook to be told of the reboot")
    assert "unclean" in reboot["text"]
    assert "resuming: a" in reboot["text"]
    box.wait_fact("AlertTargetFailing")
    shown = json.loads(box.ctl("alerts", "--json").stdout)
    (url,) = [each for each in shown["targets"] if each["name"] != "command"]
    assert (url["state"], url["waiting"] >= 1) == ("failing", True)
    assert "FAILING" in box.ctl("alerts").stdout
    box.kill_daemon()
    assert "FAILING" in box.ctl("alerts").stdout, "the journal of a dead daemon knows it too"
    receiver.up()
    box.start()
    titles = until(
        lambda: [each["message"] for each in receiver.got if f"id {reboot['id']}" in each["message"]], 60, "the URL too"
    )
    assert len(titles) == 1
    assert titles[0].startswith(str(reboot["text"]))
    until(lambda: told(hook, "daemon"), 30, "the killed daemon to be told of")
    tried = json.loads(box.ctl("alerts", "test", "--json").stdout)["tried"]
    assert all(each["ok"] for each in tried), tried
    assert len(tried) == 2
    said = [box.ctl(*words).stdout for words in (("alerts",), ("config",), ("history", "--all"), ("status", "--json"))]
    kept = box.written()
    assert not any("hunter2" in text or "s3cret" in text for text in said)
    assert not any(b"hunter2" in data or b"s3cret" in data for data in [*kept, box.log.read_bytes()])


def test_a_hook_that_hangs_holds_up_nothing_and_what_it_had_is_told_by_the_next_daemon(box: Box, tmp_path: Path) -> None:
    hook = Hook(tmp_path, "import time; time.sleep(300)")
    configure(box, box.trainer("a"), SHORT, hook=hook, timeout_s=300)
    box.start()
    (finished,) = until(lambda: told(hook, "finished"), 60, "the hook to be called")
    assert box.wait_phase("a", "RUNNING")
    assert box.status()["worst_gap_s"] < 20.0 * PATIENCE, "the hook hangs for 300 s"
    began = time.monotonic()
    assert box.stop_daemon() == 0
    assert time.monotonic() - began < 20.0 * PATIENCE
    assert not box.facts("AlertDelivered")
    hook.write("")
    box.start()
    box.wait_fact("AlertDelivered")
    assert [each["id"] for each in told(hook, "finished")] == [finished["id"]] * 2, "at least once, and the id tells"
