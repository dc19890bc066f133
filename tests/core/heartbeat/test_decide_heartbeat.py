"""The heartbeat: which pings the deciding loop orders, when, and in which form each service gets them."""

from __future__ import annotations

import pytest
from core_kit import Core, of, settings

from supervisor.deciding.context import DecisionContext
from supervisor.features.heartbeat.decide import pursue
from supervisor.features.heartbeat.rules import DONE, FAIL, START, UP, Ping, Request, Target, request, targets
from supervisor.features.heartbeat.settings import HeartbeatSettings
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.model import facts
from supervisor.model.inputs import SupervisionLooked, Terminated
from supervisor.policy.box.supervision import Failing

HC = "https://hc-ping.com/5d1f0c2a"


def begun(every_s=60.0):
    core = Core(settings("Pong", heartbeat=HeartbeatSettings(HC, every_s=every_s)))
    assert pings(core.begin()) == [START]
    assert pings(core.later(1.0).woke()) == [UP]
    return core


def pings(decision):
    return [each.word for each in of(decision, Ping)]


def test_a_ping_is_ordered_every_period_and_by_no_turn_between():
    core = begun()
    assert core.wake_at_s == core.now_s + 60.0
    assert pings(core.later(59.0).woke()) == []
    assert pings(core.later(1.0).woke()) == [UP]
    assert pings(core.later(600.0).woke()) == [UP], "one, after a loop that stood"


def test_without_an_address_nothing_is_ordered():
    core = Core(settings("Pong"))
    assert pings(core.begin()) == pings(core.later(600.0).woke()) == []


def test_a_failing_thread_without_which_nothing_is_known_fails_at_once():
    core = begun()
    failing = Failing("sampler", "no descriptor", 1.0, vital=True)
    (ping,) = of(core.give(SupervisionLooked(core.now_s, (failing,))), Ping)
    assert (ping.word, "the thread sampler fails" in ping.text) == (FAIL, True)
    assert pings(core.later(3.0).give(SupervisionLooked(core.now_s, ()))) == [UP]
    assert pings(core.give(SupervisionLooked(core.now_s, (Failing("logs", "no room", 1.0, vital=False),)))) == []


def test_an_end_on_purpose_is_said_at_once():
    core = begun()
    (ping,) = of(core.give(Terminated(core.now_s, "SIGTERM")), Ping)
    assert ping == Ping(DONE, "extralife is shutting down")


def test_an_announced_end_is_said_until_it_is_withdrawn():
    core = begun()
    end = EndNotice("aws terminate", "aws", "end", "spot terminate", core.now_s + 3600.0)
    (ping,) = of(core.give(EndNoticesRead(core.now_s, (end,), {})), Ping)
    assert ping == Ping(DONE, "this box ends, as aws has announced")
    assert pings(core.later(60.0).woke()) == [DONE]
    assert pings(core.give(EndNoticesRead(core.now_s, (), {}))) == [UP]


def test_the_end_of_the_work_is_said_once_its_command_is_ordered_and_unsaid_if_it_is_called_off():
    core = begun()
    for step, word in (("begin", []), ("run", [DONE]), ("ended", []), ("call off", [UP])):
        context = DecisionContext(core.settings, core.state, core.memory, core.now_s, 0.0, "b")
        context.record(facts.WhenDoneStep("all is done", step))
        pursue(context)
        core.memory = context.memory
        assert [each.word for each in context.commands] == word, step


def test_a_daemon_that_replaces_itself_sends_nothing_more():
    core = begun()
    core.ask("reload")
    assert pings(core.later(600.0).woke()) == []


@pytest.mark.parametrize(
    ("url", "word", "wanted"),
    [
        (HC, UP, Request("POST", HC, "7 of 9 & more")),
        (HC, START, Request("POST", f"{HC}/start", "7 of 9 & more")),
        (HC, FAIL, Request("POST", f"{HC}/fail", "7 of 9 & more")),
        (HC, DONE, Request("POST", HC, "7 of 9 & more")),
        (f"{HC}?create=1", FAIL, Request("POST", f"{HC}/fail?create=1", "7 of 9 & more")),
        ("http://box:8000/ping/k/slug", FAIL, Request("POST", "http://box:8000/ping/k/slug/fail", "7 of 9 & more")),
        ("https://uptime.betterstack.com/api/v1/heartbeat/K", UP,
         Request("POST", "https://uptime.betterstack.com/api/v1/heartbeat/K", "7 of 9 & more")),
        ("https://uptime.betterstack.com/api/v1/heartbeat/K", START,
         Request("POST", "https://uptime.betterstack.com/api/v1/heartbeat/K", "7 of 9 & more")),
        ("https://uptime.betterstack.com/api/v1/heartbeat/K", FAIL,
         Request("POST", "https://uptime.betterstack.com/api/v1/heartbeat/K/fail", "7 of 9 & more")),
        ("https://kuma/api/push/T?status=up&msg=OK&ping=", UP,
         Request("GET", "https://kuma/api/push/T?status=up&msg=7+of+9+%26+more&ping=")),
        ("https://kuma/api/push/T", FAIL, Request("GET", "https://kuma/api/push/T?status=down&msg=7+of+9+%26+more")),
        ("https://cronitor.link/p/K/box", UP, Request("GET", "https://cronitor.link/p/K/box?message=7+of+9+%26+more")),
        ("https://cronitor.link/p/K/box", FAIL, Request("GET", "https://cronitor.link/p/K/box?state=fail&message=7+of+9+%26+more")),
        ("https://cronitor.link/p/K/box", DONE, Request("GET", "https://cronitor.link/p/K/box?state=complete&message=7+of+9+%26+more")),
        ("https://example.org/beat", UP, Request("POST", "https://example.org/beat", "7 of 9 & more")),
        ("https://example.org/beat", FAIL, None),
    ],
)  # fmt: skip
def test_each_service_gets_its_own_form(url, word, wanted):
    assert request(Target(url), word, "7 of 9 & more") == wanted


def test_an_address_that_pauses_a_check_is_used_at_the_end_only():
    (target,) = targets("done https://hc.example/api/v3/checks/U/pause X-Api-Key: s3cret")
    assert target == Target("https://hc.example/api/v3/checks/U/pause", True, ("X-Api-Key", "s3cret"))
    assert request(target, UP, "text") is None
    assert request(target, DONE, "text") == Request("POST", target.url)
    assert target.name == "hc.example"


def test_lines_that_are_no_addresses_are_left_out():
    assert targets(f"\n{HC}\nftp://x\ndone\nhttp://[::1/x\nhttps://\n") == [Target(HC)]
