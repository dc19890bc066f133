"""The registry of pages: what each one is made of, and what a query means."""

import json
import re
from dataclasses import replace

import pytest
from core_kit import WALL_S, Core, settings
from fakes import FakeSources

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.memory import Memory
from supervisor.model.state import State
from supervisor.reports.pages import BadQuery, Since, pages


class Sources(FakeSources):
    """What a daemon has after a few turns. `used` are the sources that a page has read."""

    def __init__(self, core, *, dead=False):
        memory = Memory() if dead else core.memory
        super().__init__(core.state, None if dead else core.settings, memory, core.journal, core.now_s, alive=not dead)
        self.used = []

    def __getattribute__(self, name):
        if name != "used" and "used" in super().__getattribute__("__dict__"):
            self.used.append(name)
        return super().__getattribute__(name)


@pytest.fixture
def core():
    made = Core(settings("Pong")).running("Pong")
    made.look(Pong={"steps": 1000})
    return made


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("name", sorted(pages()))
def test_every_page_is_json_of_both_sources(core, name, dead):
    assert json.loads(json.dumps(pages()[name].of(Sources(core, dead=dead), {})))


@pytest.mark.parametrize("name", [name for name, page in pages().items() if page.instant])
def test_an_instant_page_reads_no_disk(core, name):
    sources = Sources(core)
    pages()[name].of(sources, {})
    assert not {*sources.used} & {"closed", "facts", "results", "backups", "check_backup", "config"}


def test_the_price_and_the_newest_readings_are_in_the_bill(core):
    assert pages()["cost"].of(Sources(core), {})["left"][0]["name"] == "Pong"
    assert pages()["cost"].of(Sources(core, dead=True), {})["left"][0]["why"] == "the configuration cannot be read"


def test_a_dead_daemon_makes_no_backup(core):
    from supervisor.features.backups.record import BackupRecord, Making

    making = Making("b2", "", "operator", ("Pong",))
    core.state = replace(core.state, backups=BackupRecord(making=(making,)))
    assert pages()["backups"].of(Sources(core, dead=True), {})["making"] == []


def test_backups():
    from supervisor.features.backups.page import backups_view
    from supervisor.features.backups.record import BackupEnd, BackupRecord, Making, Rollback

    record = BackupRecord(
        making=(Making("b2", "", "operator", ("Pong",)),),
        rollback=Rollback("b1", ("Pong",), "kept", "alice", begun=True), ends=(BackupEnd("b1", ok=True, text="whole"),),
    )  # fmt: skip
    assert backups_view([{"name": "b1"}], record, {"name": "b2"}) == {
        "backups": [{"name": "b1"}], "making": ["b2"], "progress": {"name": "b2"},
        "rollback": {"backup": "b1", "kept_as": "kept", "begun": True, "programs": ["Pong"]},
        "ends": [{"name": "b1", "ok": True, "text": "whole"}],
    }  # fmt: skip
    assert backups_view([], BackupRecord(), None)["rollback"] is None


@pytest.mark.needs("backups")
def test_one_backup_is_checked_alone(core):
    found = pages()["backups"].of(Sources(core), {"check": "zzz"})
    assert found == {"name": "zzz", "error": "there is no backup 'zzz'"}


def test_facts_by_position_program_and_kind(core):
    def seqs(**query):
        return [row["seq"] for row in pages()["facts"].of(Sources(core), query)["facts"]]

    every = [item.seq for item in core.journal]
    kinds = {item.seq: type(item.fact).__name__ for item in core.journal}
    assert seqs() == every
    assert seqs(after=str(every[1]), limit="2") == every[2:4]
    assert seqs(limit="-2") == every[-2:]
    assert seqs(kinds="SpawnIntended,,BecameReady") == [
        seq for seq in every if kinds[seq] in {"SpawnIntended", "BecameReady"}
    ]
    assert seqs(program="Pong:*") == seqs(program="Pong") != []
    assert seqs(program="Nobody") == seqs(program="") == []


def test_a_fact_is_a_row_with_its_stamp_and_its_own_fields():
    """Those of several programs are told of each; those of another boot by the clock that was set later."""
    journal = [
        Stamped(7, 5.0, WALL_S + 5.0, "boot", facts.Finished("25 of 25 episodes", "Pong")),
        Stamped(8, 6.0, 6.0, "old", facts.HostRebooted("r", "a", "b", "moved", "", None, None, "", ("Pong", "Qbert"), {})),
        Stamped(9, 7.0, WALL_S + 7.0, "boot", facts.ClockStepped("moved by hand", -2.0)),
    ]
    sources = FakeSources(replace(State(), clock_steps={"old": WALL_S}), journal=journal)
    finished, rebooted, stepped = pages()["facts"].of(sources, {})["facts"]
    assert finished == {
        "seq": 7, "at_s": 5.0, "wall_s": WALL_S + 5.0, "boot_id": "boot", "kind": "Finished", "program": "Pong",
        "why": "25 of 25 episodes", "fields": {"doubtful": False},
    }  # fmt: skip
    assert (rebooted["program"], rebooted["wall_s"], rebooted["fields"]["programs"]) == (
        None,
        WALL_S + 6.0,
        ("Pong", "Qbert"),
    )
    assert stepped["fields"] == {"step_s": -2.0}
    for program, seqs in (("Pong", [7, 8]), ("Qbert", [8]), ("Breakout", [])):
        assert [row["seq"] for row in pages()["facts"].of(sources, {"program": program})["facts"]] == seqs
    assert [row["seq"] for row in pages()["facts"].of(sources, {"limit": "1"})["facts"]] == [7]
    assert [row["seq"] for row in pages()["facts"].of(sources, {"limit": "0"})["facts"]] == []


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("all", Since()), ("boot", Since(boot=True)), ("3600s", Since(ago_s=3600.0)), ("0s", Since(ago_s=0.0)),
        ("@1790000000", Since(wall_s=1_790_000_000.0)), ("1.5s", Since(ago_s=1.5)),
    ],
)  # fmt: skip
def test_since(text, since):
    assert pages()["accounts"].arguments({"since": text, "else": "ignored"}) == {"since": since, "until": Since(ago_s=0.0)}
    assert pages()["cost"].arguments({})["since"] == Since()


@pytest.mark.parametrize("text", ["", "yesterday", "3600", "@3600s", "-1s", "nans", "@inf", "all "])
def test_a_since_that_makes_no_sense(text):
    said = f"since must be all, boot, seconds as 3600s or a time as @1790000000, not {text!r}"
    with pytest.raises(BadQuery, match=f"^{re.escape(said)}$"):
        pages()["accounts"].arguments({"since": text})


@pytest.mark.parametrize(
    ("key", "text", "bounds"),
    [
        ("after", "-1", "0 to 4611686018427387904"), ("after", "x", "0 to 4611686018427387904"),
        ("limit", "10001", "-10000 to 10000"), ("limit", "-10001", "-10000 to 10000"), ("limit", "", "-10000 to 10000"),
        ("limit", "9" * 50, "-10000 to 10000"),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense(key, text, bounds):
    with pytest.raises(BadQuery, match=f"^{key} must be a whole number from {bounds}, not '{text[:40]}'$"):
        pages()["facts"].arguments({key: text})
    assert pages()["facts"].arguments({key: "3"})[key] == 3
