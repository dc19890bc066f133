"""The page `report`: what trained, what broke by cause, what waits for a person."""

from dataclasses import replace
from itertools import starmap

import pytest
from core_kit import WALL_S, Core, settings, spec
from fakes import FakeSources

from supervisor.api.night import headline
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.inputs import CheckpointsFound, ConfigFaulty, OwnCheckpoint
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Progress
from supervisor.model.state import Retry, Slowness, Starts, Veto
from supervisor.policy.box.readings import Gpus, Spread
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.worker.health import NO_LOSS, OFF_GPU
from supervisor.policy.worker.intervention import SLOW, STILL, Intervention
from supervisor.policy.worker.restart import Deaths
from supervisor.reports.accounts import summary
from supervisor.reports.accounts_view import since_s
from supervisor.reports.cost_view import Games, frames_in
from supervisor.reports.incidents import incidents
from supervisor.reports.incidents_view import incidents_view
from supervisor.reports.pages import Since
from supervisor.reports.report_view import report_view


class Sources(FakeSources):
    """With recorded returns of its own."""

    returns: tuple = ()

    def rows(self, sheet, tier, since_s, until_s, subjects):
        assert [each.name for each in sheet.series] == ["mean_return"]
        return [*self.returns]


def returned(name, value):
    from supervisor.features.recorder.rules.recording import Row

    return Row(0.0, WALL_S, (name, "t"), (None,) * 3, {"mean_return": value})


def report(core, since=None, *, returns=(), alive=True, known=True):
    sources = Sources(core.state, core.settings if known else None, core.memory, core.journal, core.now_s, alive=alive)
    sources.returns = returns
    closed, wall_s = sources.closed()
    return report_view(sources, closed, summary(closed, since_s=since_s(closed, since or Since())), wall_s=wall_s)


def by_name(found):
    return {row["name"]: row for row in found["programs"]}


def test_services_are_in_no_account_of_training():
    service = spec("board", progress=Progress.NONE, service=True)
    core = Core(settings("Pong", service, cost=CostSettings(2.0))).running("Pong", "board")
    core.look(core.report("Pong", "from_scratch"), Pong=None)
    steps = {"steps": int, "target": 100_000, "target_kind": "env_steps"}
    core.watch(3000, 10.0, Pong={**steps, "ckpt_count": 1, "ckpt_step": int, "ckpt_at_s": float}, board={})
    found = report(core)
    assert [row["name"] for row in found["programs"]] == ["Pong"]
    assert "1 of 1 trained" in headline(found)
    assert found["next"]["usd"] is not None, "the forecast does not wait for a target of the service"
    closed = FakeSources(core.state, core.settings, core.memory, core.journal, core.now_s).closed()[0]
    assert frames_in(closed, Games(core.settings, core.state, {}), 0.0, core.now_s)[1] == ["Pong"]
    alone = Core(settings(service)).running("board")
    assert "none is a training" in report(alone)["next"]["why"]


def test_a_forecast_counts_everybody_and_names_those_that_will_not_be_done():
    names = ("Pong", "Qbert", "Seaquest", "Asterix")
    core = Core(settings(*names, slots=4, cost=CostSettings(2.0))).running(*names)
    steps = {"steps": int, "target": 100_000, "target_kind": "env_steps"}
    core.look(core.report("Pong", "from_scratch"), Pong=None)
    saves = {**steps, "ckpt_count": 1, "ckpt_step": int, "ckpt_at_s": float}
    core.watch(3000, 10.0, Pong=saves, Qbert={"steps": int}, Seaquest=steps, Asterix=steps)
    core.ask("stop", "Asterix")
    core.ended("Asterix", code=75)
    core.ended("Seaquest", code=78)
    found = report(core)["next"]
    assert found["days"] is not None
    assert found["but"]["Seaquest"] == "was given up"
    assert found["but"]["Asterix"] == "is stopped"
    assert "target" in found["but"]["Qbert"]


@pytest.fixture
def core():
    made = Core(settings("Pong", "Qbert", cost=CostSettings(2.0))).running("Pong", "Qbert")
    made.look(Pong={"steps": 1000}, Qbert={"steps": 50})
    return made


def test_what_every_program_has_done_and_where_its_return_went(core):
    for steps in range(2000, 8000, 1000):
        core.later(10.0)
        saved = {"ckpt_count": 1, "ckpt_step": 2000, "ckpt_at_s": core.now_s}
        core.look(Pong={"steps": steps, "best_return": 3.0, **saved}, Qbert={"steps": 60})
    found = report(core, returns=[*starmap(returned, (("Pong", -20.0), ("Qbert", None), ("Pong", Spread(1.0, 2.0, 3.0))))])
    pong, qbert = by_name(found)["Pong"], by_name(found)["Qbert"]
    assert (pong["first_return"], pong["last_return"], pong["best_return"]) == (-20.0, 2.0, 3.0)
    assert (qbert["first_return"], qbert["last_return"], qbert["best_return"]) == (None, None, None)
    assert pong["kept_steps"] == 5000, "from its first checkpoint on: before it nobody knew where it was"
    assert found["kept_steps"] == pong["kept_steps"] + qbert["kept_steps"]
    assert pong["trained_s"] > 0
    assert found["usd"] == pytest.approx(2.0 * found["length_s"] / 3600)


def test_the_newest_return_is_that_of_status_and_an_earlier_window_has_the_recorded_one(core):
    core.later(60.0).look(Pong={"steps": 2000, "mean_return": 9.5})
    assert by_name(report(core, returns=[returned("Pong", -20.0), returned("Pong", 7.0)]))["Pong"]["last_return"] == 9.5
    sources = Sources(core.state, core.settings, core.memory, core.journal, core.now_s)
    sources.returns = [returned("Pong", -20.0), returned("Pong", 7.0)]
    closed, wall_s = sources.closed()
    before = report_view(sources, closed, summary(closed, until_s=core.now_s - 1.0), wall_s=wall_s)
    assert by_name(before)["Pong"]["last_return"] == 7.0


def test_what_needs_somebody_comes_first_and_is_named(core):
    assert report(core)["needs"] == []
    core.give(ConfigFaulty(core.now_s, ("line 1: a", "line 2: b"), by="SIGHUP"))
    core.ended("Qbert", code=78)
    found = report(core)
    assert [row["name"] for row in found["programs"]] == ["Qbert", "Pong"]
    assert found["needs"][0] == "the configuration cannot be used: line 1: a"
    assert found["needs"][1].startswith("Qbert was given up: the program reports a configuration that cannot work")


def test_who_waits_for_a_lost_gpu_is_one_line_for_each_reason():
    core = Core(settings(spec("Pong", min_free_mb=5), spec("Qbert", min_free_mb=5)))
    core.begin()
    core.see(Gpus(()))
    assert report(core)["needs"] == [f"Pong, Qbert: {core.program('Pong').why}"]


def test_a_program_that_fails_again_and_again_needs_somebody(core):
    core.state = replace(core.state, programs={**core.state.programs, "Pong": replace(
        core.state.programs["Pong"], retry=Retry(9.0, slow=True), phase=Phase.BACKOFF, why="exit code 1",
    )})  # fmt: skip
    found = report(core)
    assert "Pong fails again and again: exit code 1" in found["needs"]
    assert found["programs"][0]["name"] == "Pong"


def changed(core, **fields):
    pong = core.program("Pong")
    attempt = {name: fields.pop(name) for name in [*fields] if hasattr(pong.attempt, name)}
    pong = replace(pong, attempt=replace(pong.attempt, **attempt) if attempt else None, **fields)
    core.state = replace(core.state, programs={**core.state.programs, "Pong": pong})


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"save_error": "No space left on device"}, ["Pong: training, but cannot save: No space left on device"]),
        ({"stall": "uninterruptible"}, ["Pong: stalled (uninterruptible), no signal reaches it"]),
        ({"stall": "hung"}, []),
        ({"slow": Slowness(5.0, "x", 700)}, ["Pong: no step beyond 700 for long, although it works: see explain"]),
        ({"slow": Slowness(5.0, "x")}, []),
        (
            {"phase": Phase.BACKOFF, "deaths": Deaths(streak=8), "why": "exit code 1"},
            ["Pong fails again and again: exit code 1"],
        ),
        ({"phase": Phase.BACKOFF, "deaths": Deaths(streak=7)}, []),
        ({"phase": Phase.BACKOFF, "starts": Starts(failures=6), "why": "no x"}, ["Pong fails again and again: no x"]),
    ],
)
def test_a_trouble_of_a_program_that_an_alert_reports_and_nothing_heals_needs_somebody(core, fields, needs):
    changed(core, **fields)
    assert report(core)["needs"] == needs
    assert report(core, known=False)["needs"] == needs


@pytest.mark.parametrize(
    ("record", "needs"),
    [
        ({"vetoes": {"disk": Veto("disk", "light", "only 3 MiB are free", 0.0, 0.0)}}, ["only 3 MiB are free"]),
        ({"vetoes": {"swap": Veto("swap", "light", "swap is used up", 0.0, 0.0)}}, []),
    ],
)
def test_a_trouble_of_the_box_that_an_alert_reports_needs_somebody_while_it_lasts(core, record, needs):
    core.state = replace(core.state, **record)
    assert report(core)["needs"] == needs


@pytest.mark.parametrize(("newest_is_whole", "needs"), [(False, ["the newest backup: no room"]), (True, [])])
def test_a_backup_that_failed_needs_somebody_until_one_is_made(core, newest_is_whole, needs):
    from supervisor.features.backups.record import BackupEnd, BackupRecord

    ends = (BackupEnd("a", True, "well"), BackupEnd("b", False, "no room"))
    core.state = replace(core.state, backups=BackupRecord(ends=ends[::-1] if newest_is_whole else ends))
    assert report(core)["needs"] == needs


def test_alerts_that_do_not_arrive_need_somebody_while_their_target_is_configured(core):
    from supervisor.features.alerts.record import AlertRecord, Failing
    from supervisor.features.alerts.settings import AlertSettings

    core.settings = replace(core.settings, alerts=AlertSettings(command=("x",)))
    core.state = replace(
        core.state, alerts=AlertRecord(failing={"command": Failing("404", 0.0), "removed": Failing("500", 0.0)})
    )
    assert report(core)["needs"] == ["alerts do not reach command: 404"]


@pytest.mark.parametrize(
    ("ails", "done", "needs"),
    [
        ({"slow": Slowness(50.0, "x")}, (Intervention(SLOW, -1.0),), "it is still slow after a restart for it"),
        ({"slow": Slowness(50.0, "x")}, (Intervention(STILL, -1.0),), ""),
        ({"slow": Slowness(50.0, "x")}, (Intervention(SLOW, -1.0, fruitless=0),), ""), ({}, (Intervention(SLOW, -1.0),), ""),
        ({"slow": Slowness(50.0, "0.5 steps/s, usually 20", anew=True, warning="no CUDA")}, (), "0.5 steps/s, usually 20; its last warning: no CUDA"),
        ({"illnesses": (NO_LOSS,)}, (), "no loss was finite since its start"),
        ({"illnesses": (OFF_GPU,)}, (), "it uses no GPU, and earlier attempts did"),
    ],
)  # fmt: skip
def test_a_program_that_trains_but_not_as_it_should_needs_somebody(core, ails, done, needs):
    changed(core, interventions=done, **ails)
    assert report(core)["needs"] == [f"Pong: {needs}; extralifectl explain Pong shows more"] * bool(needs)


@pytest.mark.parametrize(
    ("found", "needs"),
    [
        (OwnCheckpoint(note="nothing matches"), []), (OwnCheckpoint(sure=False), ["its checkpoints cannot be read"]),
        (OwnCheckpoint("/w/b.pt", torn="/w/a.pt"), []), (OwnCheckpoint(torn="/w/a.pt"), ["/w/a.pt is torn"]),
    ],
)  # fmt: skip
def test_a_start_from_nothing_beside_a_checkpoint_that_cannot_be_used_needs_somebody(found, needs):
    core = Core(settings(spec("Pong", progress=Progress.AUTO, checkpoint_glob="*.pt")))
    core.begin()
    core.give(CheckpointsFound(core.now_s, "Pong", core.token("Pong"), found, ()))
    core.spawned("Pong")
    then = "if you have a whole copy, stop Pong, put the copy there and start it"
    assert report(core)["needs"] == [f"Pong began from nothing, because {why}: {then}" for why in needs]


def test_only_what_broke_in_the_window_is_told(core):
    core.ended("Pong", code=1, last_lines=("ValueError: bad shape",))
    assert [(each["what"], each["count"], each["programs"]) for each in report(core)["broke"]] == [("crash", 1, ["Pong"])]
    core.later(1000.0)
    core.woke()
    assert report(core, Since(ago_s=60.0))["broke"] == []


def test_reboots_and_the_time_to_the_end():
    core = Core(settings(spec("Pong"))).running("Pong")
    core.later(100.0)
    core.reboot("b" * 32, down_s=30.0)
    found = report(core)
    assert found["reboots"] == 1
    assert found["broke"][0]["what"] == "reboot of the host, unclean"
    assert (found["next"]["level"], found["next"]["days"]) == ("light", None)
    assert found["next"]["why"] == "Pong: its target is unknown"


def test_without_a_configuration_and_before_anything_has_begun():
    core = Core(settings())
    found = report(core, known=False, alive=False)
    assert found["programs"] == found["broke"] == []
    assert (found["usd"], found["useful_share"]) == (None, None)
    assert found["next"]["why"] == "no level is in force"


def test_a_program_of_which_no_book_is_kept_is_unknown(core):
    core.state = replace(core.state, programs={**core.state.programs, "New": replace(
        core.state.programs["Pong"], name="New", attempt=None, phase=Phase.QUEUED,
    )})  # fmt: skip
    row = by_name(report(core))["New"]
    assert (row["trained_s"], row["lost_steps"], row["kept_steps"], row["failures"]) == (None, None, 0.0, 0)


def test_the_levels_of_the_ladder_are_in_it(core):
    assert [(each["name"], each["why"]) for each in report(core)["levels"]] == [("light", "only 1s measured")]


def exited(cause):
    return facts.Exited("why", "Pong", "t", cause, None, None, None, None)


def test_the_gravest_comes_first_and_the_newest_reason_is_told():
    disk, ready = replace(exited("crash"), why="exit code 1: OSError at 0x7f"), facts.BecameReady("trains", "Pong", "t", 1.0)
    other = replace(disk, why="exit code 1: OSError at 0x8a", program="Qbert")
    told = [disk, exited("killed"), exited("killed"), ready, other]
    journal = [Stamped(place, float(place), WALL_S + place, "boot", fact) for place, fact in enumerate(told)]
    crash, killed = incidents_view(incidents(journal), {})
    assert crash == {
        "what": "crash", "error": "OSError at #", "count": 2, "programs": ["Pong", "Qbert"], "why": "exit code 1: OSError at 0x8a",
        "first_wall_s": WALL_S, "newest_wall_s": WALL_S + 4, "lost_steps": None, "goes_on": True, "outage_s": 3.0,
    }  # fmt: skip
    assert (killed["what"], killed["count"], killed["goes_on"], killed["outage_s"]) == ("killed from outside", 2, False, 3.0)
    other = Stamped(5, 5.0, WALL_S + 5, "boot", replace(disk, why="exit code 1: KeyError: 'obs'"))
    assert [each["error"] for each in incidents_view(incidents([*journal, other]), {})[:2]] == [
        "OSError at #",
        "KeyError: 'obs'",
    ]


def test_gpus_that_cannot_be_read_need_somebody_if_the_box_had_some(core):
    core.memory = replace(core.memory, gpus=Gpus(None, "driver not loaded"))
    assert report(core)["needs"] == []
    core.state = replace(core.state, gpus=replace(core.state.gpus, most=1))
    assert report(core)["needs"] == ["the GPUs cannot be read: driver not loaded"]


def test_what_the_newest_copy_off_the_box_lacks_needs_somebody():
    from supervisor.features.offsite.record import Copied
    from supervisor.features.offsite.settings import OffsiteSettings

    core = Core(settings("Pong", offsite=OffsiteSettings("sftp:box:/store"))).running("Pong")
    copied = Copied("abc", "calendar", core.now_s, WALL_S, {}, 1, 1, 1.0, {"Pong": "nothing matches"})
    core.state = replace(core.state, offsite=replace(core.state.offsite, copied=copied))
    assert report(core)["needs"] == ["the newest copy off the box lacks Pong: nothing matches"]
