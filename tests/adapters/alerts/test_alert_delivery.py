"""Alerts that really arrive, or do not: a web server that is up, down, hanging, refusing; hooks that work, fail, hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apprise
import pytest
from alert_receiver import Hook, Mailbox, Receiver
from apprise.plugins import custom_json
from attempts_kit import eventually, gone
from fakes import FakeClock
from journald_kit import Journald
from leaks import nothing_stays_open
from structlog.testing import capture_logs
from tools import PATIENCE

from supervisor.adapters import last_config, leftovers, procfs
from supervisor.adapters.hooks import Unsure
from supervisor.config.whole_input import ConfigInput
from supervisor.features.alerts import failure as alert_failure
from supervisor.features.alerts.adapters import child
from supervisor.features.alerts.adapters import delivery as alert_delivery
from supervisor.features.alerts.adapters.delivery import AlertCourier, deliver, write_to_systemd_journal
from supervisor.features.alerts.messages import AlertTried
from supervisor.features.alerts.rules import KINDS, Notice, body, title
from supervisor.features.alerts.settings import AlertSettings
from supervisor.formats import span
from supervisor.model.settings import Paths
from supervisor.policy.upkeep.alarm import CRITICAL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Apprise's plugins
NOTICE = Notice("00ff00ff00ff00ff", "fatal", "critical", "Pong: no such game", 1_800_000_000.0, "Pong", more=2)
DO = "Do: extralifectl explain Pong, correct the cause, then extralifectl start Pong"


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def hook(tmp_path):
    return Hook(tmp_path)


def told_by(url, timeout_s=30.0 * PATIENCE, link=""):
    rules = AlertSettings(urls=(url,), timeout_s=timeout_s, link=link)
    return deliver(rules, rules.targets[0], NOTICE, "box")


def run_hook(hook, timeout_s=30.0 * PATIENCE):
    return deliver(AlertSettings(command=hook.argv, timeout_s=timeout_s), "command", NOTICE, "box")


# --- a URL -----------------------------------------------------------------------------------------------------------


def test_a_url_that_is_down_refuses_hangs_and_is_up_again(receiver):
    error = told_by(receiver.url)
    assert "connection" in error.lower()
    assert not re.search("hunter2|s3cret", error), "nothing of the URL"
    assert "500" in told_by(receiver.up("refuse").url)
    assert not isinstance(error, Unsure)
    error = told_by(receiver.up("hang").url, timeout_s=4.0)
    assert (error, isinstance(error, Unsure)) == ("no answer within 4s", True)
    assert receiver.asked == 2
    assert told_by(receiver.up("take").url, link="https://box.example/") == ""
    (got,) = receiver.got
    assert got["title"] == "Pong on box: given up"
    assert got["message"] == f"Pong: no such game\n{DO}.\nhttps://box.example/\n[critical, id 00ff00ff00ff00ff]"
    assert got["type"] == "failure"


@pytest.mark.parametrize(
    ("url", "severity", "priority", "click"),
    [
        ("ntfy://127.0.0.1:PORT/topic", "critical", "high", "https://box.example/?a=1&b"),
        ("ntfy://127.0.0.1:PORT/topic", "info", "low", "https://box.example/?a=1&b"),
        ("ntfy://127.0.0.1:PORT/topic?Priority=max&click=https://mine", "info", "max", "https://mine"),
        ("gotify://127.0.0.1:PORT/tok3ntok3ntok3n", "critical", 8, None),
        ("json://127.0.0.1:PORT/s3cret", "critical", None, None),
    ],
)
def test_the_severity_is_the_services_priority_and_the_dashboard_is_one_touch_away(receiver, url, severity, priority, click):
    url, link = url.replace("PORT", str(receiver.up().port)), "https://box.example/?a=1&b"
    assert (
        child.send({"url": url, "title": "Pong", "body": "died", "severity": severity, "link": link, "timeout_s": 30.0})
        == ""
    )
    (got,), (headers,) = receiver.got, receiver.headers
    assert (headers.get("X-Priority", got.get("priority")), headers.get("X-Click")) == (priority, click)


def test_the_url_is_in_nobodys_argument_list(receiver):
    receiver.up("hang")
    rules = AlertSettings(urls=(receiver.url,), timeout_s=100.0)
    sending = threading.Thread(target=deliver, args=(rules, rules.targets[0], NOTICE, "box"))
    sending.start()
    assert eventually(lambda: receiver.asked)
    seen = []
    children = (Path(f"/proc/{stat.pid}/environ") for stat in procfs.descendants([os.getpid()]))
    for path in (*Path("/proc").glob("[0-9]*/cmdline"), *children):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            seen.append(path.read_bytes())
    assert not any(b"hunter2" in each or b"s3cret" in each for each in seen)
    receiver._over.set()
    sending.join(30)


def test_without_apprise_a_sentence_says_what_to_install():
    code = "import sys; sys.modules['apprise'] = None; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    asked = '{"url": "ntfy://x", "title": "t", "body": "b", "severity": "info", "timeout_s": 5}'
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, alert_delivery._CHILD], input=asked, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == (
        '{"error": "the package apprise is not installed: pip install \'extralife[alerts]\' into extralife\'s environment"}\n'
    )


REQUEST = {
    "url": "json://me:hunter2@host",
    "title": "Pong",
    "body": "one\ntwo\nend",
    "severity": "critical",
    "link": "",
    "timeout_s": 30.0,
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Apprise was asked to send, to a service that takes 15 characters."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(custom_json.NotifyJSON, "body_maxlen", 15)
    monkeypatch.setattr(apprise.Apprise, "notify", lambda _, **notice: asked.append(notice) or True)
    return asked


def test_what_goes_wrong_is_reported_without_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = "Apprise does not know this URL: compare it with Apprise's documentation of that service"
    assert child.send(REQUEST | {"url": "x://me:hunter2@host"}) == unknown

    def notify(*_: Any, **__: Any) -> bool:
        raise RuntimeError("hunter2 at host")

    monkeypatch.setattr(apprise.Apprise, "notify", notify)
    assert child.send(REQUEST) == "it failed with RuntimeError: *** at ***"
    monkeypatch.setattr(apprise.Apprise, "notify", lambda *_, **__: False)
    assert child.send(REQUEST) == "the service did not accept the alert"


def test_each_kind_is_read_on_a_phone_in_a_mail_and_by_a_webhook(receiver: Receiver) -> None:
    """Each target shows what happened and where, what to do about it, and no name that only the code has."""
    mailbox, read = Mailbox(), []
    try:
        for name, kind in KINDS.items():
            program = (
                "nan-auto" if "{program}" in kind.do or name in {"quarantine", "unproven", "unhealthy", "finished"} else ""
            )
            sent = Notice("00ff", name, CRITICAL, f"{program or 'the box'}: the reason", 1_800_000_000.0, program)
            for url in (f"ntfy://127.0.0.1:{receiver.up().port}/topic", receiver.url, mailbox.url):
                request = {
                    "url": url,
                    "title": title(sent, "vm"),
                    "body": body(sent),
                    "severity": CRITICAL,
                    "link": "",
                    "timeout_s": 30.0,
                }
                assert child.send(request) == ""
            ntfy, hook, mail = *receiver.got[-2:], mailbox.got[-1]
            heads = {ntfy["title"], hook["title"], str(mail["Subject"])}
            texts = {
                each.replace("\r", "").strip()
                for each in (ntfy["message"], hook["message"], mail.get_body(("plain",)).get_content())
            }
            assert len(heads) == len(texts) == 1, (heads, texts)
            read.append((*heads, *texts))
    finally:
        mailbox.close()
    for (head, text), (name, kind) in zip(read, KINDS.items(), strict=True):
        assert re.match(r"(nan-auto on )?vm: [a-z]", head), head
        assert ("supervisorctl" in kind.do) <= ("supervisorctl" in text), text
        assert name not in {"breaker", "unproven", "ailing", "still", "unended", "foundation"} or name not in head + text
        print(f"| {head} | {text.replace(chr(10), ' ⏎ ')} |")


# --- a command -------------------------------------------------------------------------------------------------------


def test_a_hook_gets_the_alert_on_standard_input_and_in_its_environment(hook, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    assert run_hook(hook) == ""
    (got,) = hook.got()
    assert got["argv"] == ["an argument"]
    assert got["told"] == {
        "id": NOTICE.id, "kind": "fatal", "severity": "critical", "program": "Pong", "text": "Pong: no such game",
        "wall_s": 1_800_000_000.0, "more": 2, "dropped": 0, "host": "box", "title": "Pong on box: given up",
        "do": DO, "link": "",
    }  # fmt: skip
    assert got["env"] == {
        "EXTRALIFE_ALERT_ID": NOTICE.id, "EXTRALIFE_ALERT_KIND": "fatal", "EXTRALIFE_ALERT_SEVERITY": "critical",
        "EXTRALIFE_ALERT_PROGRAM": "Pong", "EXTRALIFE_ALERT_TEXT": "Pong: no such game", "EXTRALIFE_ALERT_HOST": "box",
        "EXTRALIFE_ALERT_MORE": "2", "EXTRALIFE_ALERT_DROPPED": "",
    }, "and nothing that systemd has told the daemon alone"  # fmt: skip


def test_a_hook_runs_in_a_group_and_a_place_of_its_own_with_the_daemons_mark(hook, monkeypatch):
    """The mark names this process, and the session that the hook stays in, by which a later daemon finds what is left."""
    monkeypatch.setenv("INVOCATION_ID", "of the daemon")
    monkeypatch.setenv("MINE", "for hooks too")
    hook.write(
        "mine = [os.environ.get(name) for name in ('EXTRALIFE_CHILD_OF', 'MINE', 'INVOCATION_ID')]\n"
        "sys.exit(json.dumps([os.getpgrp() == os.getpid(), os.getsid(0), os.getcwd(), *mine]))"
    )
    with nothing_stays_open():
        status, _, told = run_hook(hook).partition(": ")
    assert status == "it ended with status 1"
    mark = leftovers.mark(of_user=True)["EXTRALIFE_CHILD_OF"]
    assert json.loads(told) == [True, os.getsid(0), "/", mark, "for hooks too", None]


@pytest.mark.parametrize("hangs", [True, False])
def test_a_hook_that_hangs_is_ended_and_all_that_it_has_started_in_any_case(hook, tmp_path, hangs):
    child = tmp_path / "child"
    hook.write(
        "import signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"p = subprocess.Popen(['sleep', '300'])\nopen({str(child)!r}, 'w').write(str(p.pid))\n{'time.sleep(300)' * hangs}"
    )
    for timeout_s in (6.0, 60.0) if hangs else (60.0,):  # in the shorter time a busy machine may not have begun all of it
        told = run_hook(hook, timeout_s=timeout_s)
        assert told == (f"it did not end within {span(timeout_s)} and was killed" if hangs else "")
        assert isinstance(told, Unsure) == hangs
        if child.exists() and child.read_text():
            break
    pids = [int(child.read_text()), *(each["pid"] for each in hook.got())]
    assert len(pids) > 1
    assert eventually(lambda: all(gone(pid) for pid in pids))


# --- the courier: one contract, whatever the target is ------------------------------------------------------------------------


class Inbox:
    def __init__(self):
        self.items, self.changed = [], threading.Condition()

    def post(self, item):
        with self.changed:
            self.items.append(item)
            self.changed.notify_all()

    def wait(self, count, timeout_s=40.0 * PATIENCE):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.items) >= count, timeout_s), self.items
            return list(self.items)


@pytest.fixture
def sends():
    """Makes couriers, which end with the test."""
    couriers = []

    def make(rules, inbox=None, at_s=1_000.0):
        couriers.append(AlertCourier(lambda: rules, inbox or Inbox(), FakeClock(at_s=at_s)))
        return couriers[-1]

    yield make
    for each in couriers:
        each.stop()


class World:
    """A courier with one target that takes, refuses or hangs as it is told."""

    def __init__(self, kind, directory, receiver):
        self.kind, self.hook, self.receiver, self.inbox = kind, Hook(directory), receiver, Inbox()
        urls, command = ((receiver.url,), ()) if kind == "url" else ((), self.hook.argv)
        self.rules = AlertSettings(urls=urls, command=command, timeout_s=60.0)
        self.target = self.rules.targets[0]
        self.courier = AlertCourier(lambda: self.rules, self.inbox, FakeClock())

    def let(self, mode):
        if self.kind == "url":
            self.receiver.up(mode)
        else:
            self.hook.write({"take": "", "refuse": "sys.exit(1)", "hang": "import time; time.sleep(300)"}[mode])


@pytest.fixture(params=["command", "url"])
def world(request, tmp_path, receiver):
    made = World(request.param, tmp_path, receiver)
    yield made
    made.courier.stop()


def test_each_try_has_one_outcome_in_the_order_of_the_asking(world):
    world.let("refuse")
    world.courier.deliver(world.target, NOTICE)
    (refused,) = world.inbox.wait(1)
    assert isinstance(refused, AlertTried)
    assert (refused.target, refused.id) == (world.target, NOTICE.id)
    assert refused.error
    world.let("take")
    world.courier.deliver(world.target, NOTICE)
    assert world.inbox.wait(2)[1].error == ""


def test_a_hook_that_hangs_is_ended_at_the_end_of_the_daemon(hook, sends):
    hook.write("import time; time.sleep(300)")
    courier = sends(AlertSettings(command=hook.argv, timeout_s=300.0))
    courier.deliver("command", NOTICE)
    assert eventually(hook.got)
    courier.stop()
    assert eventually(lambda: gone(hook.got()[0]["pid"]))


def test_a_target_that_hangs_keeps_no_other_waiting(hook, receiver, sends):
    inbox, rules = Inbox(), AlertSettings(urls=(receiver.up("hang").url,), command=hook.argv, timeout_s=60.0)
    courier = sends(rules, inbox)
    courier.deliver(rules.targets[0], NOTICE)
    courier.deliver("command", NOTICE)
    first = inbox.wait(1)[0]
    assert (first.target, first.error) == ("command", "")


def test_an_alarm_is_sent_to_systemds_journal_and_to_those_who_want_its_severity(hook, sends, monkeypatch):
    inbox = Inbox()
    courier = sends(AlertSettings(command=hook.argv, min_severity="critical", timeout_s=30.0 * PATIENCE), inbox)
    with Journald() as journald:
        journald.sock.settimeout(30.0 * PATIENCE)
        monkeypatch.setattr(alert_delivery, "_JOURNAL_SOCKET", journald.path)
        courier.alarm(replace(NOTICE, id="1", severity="warning"))
        courier.alarm(replace(NOTICE, id="2"))
        courier.tell(replace(NOTICE, id="3"))
        assert [journald.entry()["EXTRALIFE_ALERT_ID"] for _ in range(3)] == ["1", "2", "3"]
        courier._put("command", lambda: inbox.post("it is over"))
        assert inbox.wait(1) == ["it is over"], "and nothing is recorded"
    assert [each["told"]["id"] for each in hook.got()] == ["2"]


def test_an_alarm_is_tried_again_until_it_arrives_or_the_daemon_ends_and_each_failure_is_logged(sends, monkeypatch):
    errors = ["no route", "", *["no route"] * 4]
    monkeypatch.setattr(alert_delivery, "_RETRY_PAUSES_S", (0.0, 0.01, 0.02))
    monkeypatch.setattr(alert_delivery, "deliver", lambda *_args, **_more: errors.pop(0))
    courier = sends(AlertSettings(command=("x",)))
    entry = {"event": "alarm_not_delivered", "target": "command", "alert": "fatal", "error": "no route"}
    for failures in (1, 3):
        with capture_logs() as logged:
            courier._retry_without_record("command", NOTICE)
        assert logged == [{**entry, "log_level": "warning"}] * failures
    courier.stop()
    courier._retry_without_record("command", NOTICE)
    assert errors == ["no route"]


# --- systemd's journal, and without a daemon -------------------------------------------------------------------------


def test_a_thread_that_cannot_be_started_is_an_error_of_its_target(monkeypatch):
    monkeypatch.setattr(alert_delivery.Thread, "start", Mock(side_effect=RuntimeError))
    (found,) = alert_delivery.deliver_to_all(AlertSettings(urls=("json://one",)), NOTICE)
    assert found.error == "its thread could not be started, or failed"


def test_systemds_journal_gets_the_message_id_of_the_kind(monkeypatch):
    with Journald() as journald:
        monkeypatch.setattr(alert_delivery, "_JOURNAL_SOCKET", journald.path.with_name("none"))
        write_to_systemd_journal(NOTICE)
        monkeypatch.setattr(alert_delivery, "_JOURNAL_SOCKET", journald.path)
        write_to_systemd_journal(NOTICE)
        fields = journald.entry()
        assert journald.empty(), "nothing is sent where there is no such journal"
    assert fields == {
        "MESSAGE": "Pong: no such game", "MESSAGE_ID": KINDS["fatal"].message_id, "PRIORITY": "2", "SYSLOG_IDENTIFIER": "extralife",
        "EXTRALIFE_ALERT_ID": NOTICE.id, "EXTRALIFE_ALERT_KIND": "fatal", "EXTRALIFE_ALERT_SEVERITY": "critical",
        "EXTRALIFE_ALERT_PROGRAM": "Pong", "EXTRALIFE_ALERT_MORE": "2",
    }, "and no field that is empty"  # fmt: skip


def test_without_a_daemon_it_is_tried_again_for_those_who_have_not_taken_it(tmp_path, monkeypatch):
    (first := tmp_path / "first").mkdir()
    hook = Hook(first, "sys.exit(len(open(__file__.replace('hook.py', 'notes.jsonl')).readlines()) < 3)")
    config, waited = tmp_path / "x.toml", []
    config.write_text(
        f'[alerts]\ncommand = ["{hook.file}"]\nurls = ["json://127.0.0.1:1"]\n[zzz]\n[daemon]\nstate_dir = 5\n'
    )
    (tmp_path / "child.py").write_text("""print('{"error": "no route"}')""")
    monkeypatch.setattr(alert_delivery, "_CHILD", str(tmp_path / "child.py"))
    (left,) = alert_failure.tell("it is over\x1b[2J", str(config), {}, pause=waited.append)
    assert (left.target[:5], left.error) == ("json-", "no route")
    assert waited == [0.0, 5.0, 30.0, 120.0], "and it is used although the rest of the file is wrong"
    tries = [each["told"] for each in hook.got()]
    texts = [(each["kind"], each["severity"], each["text"]) for each in tries]
    assert texts == [("service", "critical", "it is over\\x1b[2J")] * 3
    assert len({each["id"] for each in tries}) == 1


def test_without_a_daemon_and_with_a_broken_file_the_targets_of_the_last_good_configuration_get_the_alert(tmp_path):
    (state := tmp_path / "state").mkdir()
    hook, config = Hook(tmp_path), tmp_path / "x.toml"
    environ = {"XDG_STATE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    daemon = f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{tmp_path}/run"\n'
    text = f'[alerts]\ncommand = ["{hook.file}"]\n{daemon}[program.Pong]\n'
    given = ConfigInput(str(config), text, {}, {})
    assert last_config.keep(Paths(str(state), str(tmp_path / "run")), given, environ, 1.8e9) is None
    config.write_text("[alerts\n")
    assert alert_failure.tell("it is over", str(config), environ, pauses_s=(0.0,)) == []
    assert [each["told"]["text"] for each in hook.got()] == ["it is over"]


def test_without_a_daemon_the_alert_names_the_unit_and_how_it_ended(hook, tmp_path, monkeypatch, capsys):
    config = tmp_path / "x.toml"
    config.write_text(f'[alerts]\ncommand = ["{hook.file}"]\n')
    monkeypatch.setenv("MONITOR_SERVICE_RESULT", "exit-code")
    monkeypatch.delenv("MONITOR_EXIT_STATUS", raising=False)
    assert alert_failure.main(["extralife.service", str(config)]) == 0
    text = "extralife.service has failed (exit-code, status ?): journalctl -u extralife.service says why"
    assert [each["told"]["text"] for each in hook.got()] == [text]
    left = [alert_delivery.DeliveryResult("command", "no route", 0.1)]
    monkeypatch.setattr(alert_failure, "tell", lambda *_: left)
    assert alert_failure.main(["extralife.service", str(config)]) == 1
    assert capsys.readouterr().err == "<3>alert not delivered to command: no route\n"
