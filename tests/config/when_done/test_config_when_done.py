"""[when_done] and the limits of [cost]: every mistake at once, each with what to do."""

import pytest

from supervisor.features.when_done.settings import WhenDoneSettings
from supervisor.policy.upkeep.cost import CostSettings

PROGRAM = "[program.Pong]\n"


def test_every_key(place):
    assert place.settings(PROGRAM).when_done == WhenDoneSettings()
    text = (
        '[cost]\nusd_per_hour = 1.2\nbudget_usd = 50\nuntil = "2126-12-01T08:00:00+01:00"\n[when_done]\ncommand = ["true", "x"]\n'
        'when = ["budget", "stuck"]\nafter_s = 0\ntimeout_s = 5\nhold_while_logged_in = true\n'
    )
    loaded = place.load(PROGRAM + text)
    assert loaded.settings.when_done == WhenDoneSettings(
        ("true", "x"), ("budget", "stuck"), 0.0, 5.0, hold_while_logged_in=True
    )
    assert loaded.settings.cost == CostSettings(1.2, 50.0, "2126-12-01T08:00:00+01:00")
    assert loaded.warnings == ()
    assert loaded.values["when_done.when"] == ["budget", "stuck"]


def test_every_mistake_at_once(place):
    text = (
        '[cost]\nbudget_usd = 5\nuntil = "2026-12-01T08:00:00"\n[when_done]\ncommand = ["no-such-command"]\n'
        'when = ["dune", 1]\nafter_s = -1\nafter = 3\n'
    )
    assert sorted(place.errors(PROGRAM + text)) == [
        "FILE, line 3: cost.budget_usd needs cost.usd_per_hour, the price of an hour of this box",
        (
            "FILE, line 4: cost.until must be a time with its zone, such as 2026-12-01T08:00:00+01:00 or 2026-12-01T07:00:00Z, "
            "not '2026-12-01T08:00:00'"
        ),
        "FILE, line 6: when_done.command: 'no-such-command' is not found, or not executable",
        "FILE, line 7: when_done.when must be a list such as [\"done\"], not ['dune', 1]",
        "FILE, line 8: when_done.after_s must be at least 0, not -1.0",
        "FILE, line 9: when_done.after is not a setting; did you mean after_s?",
    ]
    assert place.errors(f'{PROGRAM}[when_done]\ncommand = ["true"]\nwhen = ["dune"]\n') == [
        "FILE, line 4: when_done.when: 'dune' is not a cause of an end; did you mean done?"
    ]
    (said,) = place.errors(f'{PROGRAM}[when_done]\ncommand = ["true"]\nwhen = []\n')
    assert said == "FILE, line 4: when_done.when is empty; name one or more of done, stuck, budget"
    said = place.errors(f'{PROGRAM}[cost]\nuntil = "tomorrow"\n')[0]
    assert said.startswith("FILE, line 3: cost.until must be a time with")


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such", "is not found, or not executable"), ("./stop", "is no whole path, and it is run in /")],
)
def test_a_missing_command_stops_no_start_of_the_daemon(place, tmp_path, monkeypatch, command, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stop").touch(0o755)
    text = f'{PROGRAM}[when_done]\ncommand = ["{command}"]\n'
    [said] = place.load(text, starting=True).warnings
    assert said.partition(": ")[2] == f"when_done.command: {command!r} {why}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[when_done]\nafter_s = 5\n", "when_done.command is missing, so this box is never stopped"),
        (
            '[when_done]\ncommand = ["true"]\nwhen = ["budget"]\n',
            'when_done.when has "budget", but [cost] has neither budget_usd nor until',
        ),
        (
            '[when_done]\ncommand = ["true"]\n[cost]\nuntil = "2126-12-01T08:00:00Z"\n',
            'the limit in [cost] stops nothing: add "budget" to when_done.when',
        ),
    ],
)
def test_what_has_no_effect_is_said(place, text, told):
    (said,) = place.load(PROGRAM + text).warnings
    assert said.partition(": ")[2] == told


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (["/bin/sh", "/opt/extralife/deploy/when_done/slurm"], True), (["sh", "-c", "./ctl shutdown"], True),
        (["sh", "-c", "/x/supervisorctl -c /x.toml shutdown"], True), (["sh", "-c", "shutdown -h now"], False),
    ],
)  # fmt: skip
def test_a_container_that_stays_does_not_end_with_the_daemon(place, command, refused):
    text = f"{PROGRAM}[when_done]\ncommand = {command}\n"
    assert place.errors(text) == []
    found = place.errors(text, {"EXTRALIFE_AFTER_SHUTDOWN": "stay"})
    assert [each.partition(" alone, because ")[0] for each in found] == (
        ["FILE, line 3: when_done.command: `shutdown` ends extralife"] if refused else []
    )
