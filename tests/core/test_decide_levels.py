"""The level in force: what the rule says after so much training, after a reboot, and what the operator says against it."""

import itertools
from dataclasses import replace

import pytest
from core_kit import Core, facts, reply, settings, spec
from fakes import FakeSources

from supervisor import config
from supervisor.model import level_memory
from supervisor.model.codec import as_text
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold, fold_all
from supervisor.model.inputs import Asked, Sampled, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import DaemonSettings, Level, Progress, Rung
from supervisor.model.state import LastExit
from supervisor.policy.level.load import CLIMB, FIXED, LoadSettings
from supervisor.reports import climb_view

LEVELS = (Level("light", 2, 8, 64), Level("wide", 3, 8, 64), Level("heavy", 4, 16, 128))
RULE = {"dwell_s": 1200.0, "climb_s": 1200.0, "trial_s": 1800.0, "cool_s": 3600.0}  # whatever its defaults become
PACE = {"light": 100.0, "wide": 110.0, "heavy": 130.0}  # steps a second of each program


def rung(level, *names, veto="", **more):
    """Every program at one level: the load is in the digest, what is its own in the other."""
    specs = tuple(
        spec(name, digest=f"{name}-{level.num_envs}-{level.batch_size}", own_digest=f"{name}-own", **more) for name in names
    )
    return Rung(level, specs, veto)


def ladder(*names, levels=LEVELS, mode=CLIMB, vetoes=(), load=None, **more):
    names = names or ("Pong", "Breakout", "Qbert", "Seaquest")
    rungs = tuple(rung(level, *names, veto=dict(vetoes).get(level.name, "")) for level in levels)
    made = settings(*rungs[0].programs, daemon=DaemonSettings(sample_period_s=3.0), **more)
    load = load or LoadSettings(mode=mode, **RULE)
    return replace(made, level=rungs[0].level, ladder=rungs, load=load)


class Box(Core):
    """A core whose workers train at the pace of their level."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.steps = {}
        self.pace = dict(PACE)
        self.checks = 7

    def train(self, seconds, period_s=10.0, only=None):
        """Time passes: what is started comes up, what is asked to leave leaves, what runs trains."""
        told = []
        for _ in range(round(seconds / period_s)):
            self.now_s += period_s
            for name, program in sorted(self.state.programs.items()):
                if program.phase is Phase.STARTING and program.attempt.pid is None:
                    told += self.spawned(name).facts
                elif program.phase is Phase.STOPPING:
                    told += self.ended(name, code=75).facts
            seen = {}
            for name, program in sorted(self.state.live.items()):
                if program.phase in {Phase.STARTING, Phase.RUNNING} and (only is None or name in only):
                    if program.phase is Phase.RUNNING:
                        self.steps[name] = self.steps.get(name, 0) + int(period_s * self.pace.get(self.state.level, 100.0))
                    seen[name] = self.sample(name, steps=self.steps.get(name, 0))
            told += self.give(Sampled(self.now_s, seen)).facts
        return told

    def until_level(self, level, most_s=6 * 3600.0):
        began_s = self.now_s
        while self.state.level != level:
            assert self.now_s - began_s < most_s, f"still at {self.state.level}: {self.state.climb.said}"
            self.train(60.0)
        return self

    def pin(self, level, for_s=None):
        self.request += 1
        return reply(self.give(Asked(self.now_s, Verb.PIN, self.request, (level,), by="alice", for_s=for_s)))

    def unpin(self):
        self.request += 1
        return reply(self.give(Asked(self.now_s, Verb.UNPIN, self.request, by="alice")))

    def view(self):
        return climb_view.level(FakeSources(self.state, self.settings, now_s=self.now_s))

    def levels(self):
        return [(fact.level, fact.trial) for fact in self.told(facts.LevelChosen)]


def climbed(level="light", **more):
    core = Box(ladder(**more))
    core.begin()
    core.train(30.0)
    return core.until_level(level)


def power_cut(core, boot, up_s=50_000.0, **more):
    """The host goes down, a minute later the daemon begins again."""
    last_s = core.now_s
    core.later(60.0)
    return core.reboot(boot, up_s=up_s, last_sign_s=last_s, cause="unclean", **more)


# --- climbing ------------------------------------------------------------------------------------------------------------


def test_the_ladder_is_laid_and_the_lowest_level_is_in_force():
    core = climbed()
    assert core.state.level == "light"
    assert core.told(facts.LadderLaid)[0].levels == ("light", "wide", "heavy")
    assert sorted(core.state.live) == ["Breakout", "Pong"]


def test_after_ten_minutes_of_training_a_review_tells_what_was_kept():
    core = climbed()
    core.train(660.0)
    review = core.told(facts.Reviewed)[0]
    assert review.level == "light"
    assert review.up_s == pytest.approx(600.0, abs=10.0)
    assert review.reading == pytest.approx(2 * 100.0 * 60.0, rel=0.02)


def test_a_level_up_touches_only_what_it_changes():
    core = climbed("wide")
    assert core.levels() == [("light", False), ("wide", True)]
    assert not core.told(facts.StopIntended), "the same environments and batch: they train on"
    core.train(60.0)
    assert len(core.state.live) == 3
    assert core.told(facts.LevelSettled)[0].cost_s == 0.0


def test_a_level_that_changes_the_load_restarts_each_with_a_checkpoint_and_staggered():
    core = climbed("heavy")
    stops = core.told(facts.StopIntended)
    assert [stop.reason for stop in stops] == ["level"] * 3
    assert all("moves to level heavy" in stop.why for stop in stops)
    core.train(120.0)
    starts = [item.at_s for item in core.journal if isinstance(item.fact, facts.SpawnIntended)][-4:]
    assert len(starts) == 4
    assert all(later - sooner >= 2.0 for sooner, later in itertools.pairwise(starts))
    assert core.told(facts.LevelSettled)[-1].cost_s > 0.0
    assert level_memory.costs(core.state).change_s == pytest.approx(core.state.climb.costs_s[-1], abs=60.0)
    assert not any(program.by_level for program in core.state.programs.values())


def test_a_staggered_start_wakes_the_loop():
    core = climbed("heavy", load=LoadSettings(mode=CLIMB, stagger_s=20.0, **RULE))
    core.train(180.0)
    core.pin("light")
    stopping = [name for name in core.state.live if core.phase(name) is Phase.STOPPING]
    core.later(1.0)
    for name in stopping:
        core.ended(name, code=75)
    assert core.wake_at_s == pytest.approx(core.now_s + 20.0, abs=1.0)
    before = len(core.told(facts.SpawnIntended))
    core.to_wake()
    assert len(core.told(facts.SpawnIntended)) == before + 1


def test_a_trial_that_passes_is_home_and_the_record_says_so():
    core = climbed("wide")
    core.until_level("heavy")
    assert core.levels()[:3] == [("light", False), ("wide", True), ("heavy", True)]
    core.train(3 * 3600.0)
    assert core.levels()[-1] == ("heavy", False)
    assert "it is the highest level" in core.state.climb.said
    assert not core.state.climb.trial


def test_a_review_without_steps_or_with_less_than_none_knows_no_speed():
    core = climbed()
    core.pace["light"] = 0.0
    core.train(1300.0)
    assert core.told(facts.Reviewed)[1].reading is None


def test_slots_that_cannot_be_filled_are_read_as_they_are():
    core = Box(ladder("Pong", "Breakout"))
    core.begin()
    core.spawned("Pong")
    core.train(1900.0, only=("Pong",))
    assert [review.reading for review in core.told(facts.Reviewed)][:2] == [None, pytest.approx(6000.0, rel=0.05)]


def test_nothing_is_earned_while_nobody_looks_or_nothing_trains():
    core = climbed()
    core.train(300.0)
    core.later(3600.0)  # suspended: journal time runs on
    core.train(200.0)
    assert not core.told(facts.Reviewed)
    for name in list(core.state.live):
        core.ask("stop", name)
    core.train(30.0)
    for name in list(core.state.live):
        core.ask("stop", name)
    core.train(1200.0)
    assert not core.told(facts.Reviewed)


def test_a_daemon_that_was_away_counts_nothing_of_it():
    core = climbed()
    core.train(300.0)
    core.asleep(40.0).look(Pong={}, Breakout={})
    assert core.memory.tenure.marks == {}


def test_what_is_done_stays_done_at_another_level():
    core = Box(ladder())
    core.begin()
    core.train(30.0)
    core.ended("Pong", code=0)
    core.until_level("heavy")
    assert core.phase("Pong") is Phase.DONE
    assert core.program("Pong").digest == "Pong-16-128"


def test_what_was_given_up_for_memory_has_another_chance():
    core = Box(ladder())
    core.begin()
    core.train(30.0)
    core.ended("Pong", code=78)
    assert core.phase("Pong") is Phase.FATAL
    core.until_level("heavy")
    assert core.phase("Pong") is Phase.FATAL, "its configuration is as wrong as before"
    core.pin("light")
    core.state = replace(
        core.state, programs={**core.state.programs, "Pong": replace(core.program("Pong"), exit=LastExit("oom_killed"))}
    )
    core.pin("heavy")
    assert core.phase("Pong") in {Phase.QUEUED, Phase.STARTING}


def test_deaths_are_not_forgiven_by_a_move():
    core = climbed("wide")
    core.ended("Pong", signal=9)
    assert core.program("Pong").deaths.streak == 1
    core.until_level("heavy", 1500.0)
    assert core.program("Pong").restarts == 1
    assert core.told(facts.ProgramConfigured, "Pong")[-1].moved


def test_a_reboot_in_a_trial_leads_back_and_is_told():
    core = climbed("wide")
    core.train(1020.0)
    power_cut(core, "boot-2")
    judged = core.told(facts.RebootJudged)[-1]
    assert (judged.level, judged.weight) == ("wide", 1.0)
    assert judged.up_s <= 600.0, "what the review before has told is not told again"
    assert core.state.level == "light"
    assert "failed its trial after 17m" in core.state.climb.why
    assert core.levels()[-1] == ("light", False)
    assert core.state.levels["wide"].up_s == pytest.approx(1020.0, abs=65.0), "not the whole boot's"


def test_a_reboot_of_which_little_is_known_counts_half():
    core = climbed("wide")
    core.train(60.0)
    core.later(60.0).reboot("boot-2", cause="unclean", down_s=7200.0)
    judged = core.told(facts.RebootJudged)[-1]
    assert (judged.weight, judged.up_s) == (0.5, 0.0)


# --- reboots ---------------------------------------------------------------------------------------------------------------


def test_a_reboot_right_after_a_step_down_is_held_against_the_level_left():
    core = climbed("wide")
    core.train(60.0)
    core.pin("light")
    core.unpin()
    core.train(20.0)
    power_cut(core, "boot-2")
    assert core.told(facts.RebootJudged)[-1].level == "wide"


def test_one_step_down_is_charged_to_the_level_left_once():
    """The box goes down again seconds after each boot: heavy was left at the first of them, and has not run since."""
    core = climbed("heavy")
    core.train(60.0)
    for number in range(3):
        power_cut(core, f"boot-{number + 2}", up_s=50.0, down_s=1.0)
        core.train(20.0)
    judged = [fact.level for fact in core.told(facts.RebootJudged)]
    chosen = core.levels()
    assert judged[0] == "heavy"
    assert "heavy" not in judged[1:], (judged, chosen)


def test_a_container_killed_in_a_level_s_first_seconds_proves_nothing_about_it():
    core = climbed("wide")
    core.train(30.0)
    power_cut(core, "boot-1", kind="container")
    assert core.told(facts.RebootJudged)[-1].weight == 0.0
    assert (core.state.level, core.state.climb.trial) == ("wide", True)
    core.train(1020.0)
    power_cut(core, "boot-1", kind="container")
    assert core.told(facts.RebootJudged)[-1].weight == 1.0, "no such end at the level below"
    assert core.state.level == "light"


def test_kills_that_come_at_each_level_are_no_fault_of_the_load():
    core = climbed()
    core.train(300.0)
    power_cut(core, "boot-1", kind="container")
    assert core.told(facts.RebootJudged)[-1].weight == 1.0, "there is nothing below, and no level is left for it"
    core.until_level("wide")
    core.train(300.0)
    power_cut(core, "boot-1", kind="container")
    weight = core.told(facts.RebootJudged)[-1].weight
    assert 0.0 < weight < 1.0


def test_a_reboot_while_pinned_moves_nothing():
    core = climbed("wide")
    core.pin("heavy")
    core.train(900.0)
    power_cut(core, "boot-2")
    assert core.state.level == "heavy"
    assert level_memory.known(core.state).known[2].reboots == 1.0
    assert "pinned" in core.told(facts.RebootJudged)[-1].why
    assert core.view()["pin"] is not None


def test_a_reboot_at_a_level_that_is_gone_is_not_judged():
    core = climbed("wide")
    core.settings = ladder(levels=LEVELS[:1])
    power_cut(core, "boot-2")
    assert not core.told(facts.RebootJudged)
    assert core.state.level == "light"


def test_a_daemon_that_starts_again_goes_on_where_it_was():
    core = climbed("wide")
    core.settings = ladder()
    core.begin()
    assert core.state.level == core.settings.level.name == "wide"
    assert core.state.climb.trial
    assert len(core.told(facts.LadderLaid)) == 1


# --- the operator ----------------------------------------------------------------------------------------------------------


def test_a_pin_holds_until_it_is_ended_and_records_grow():
    core = climbed()
    assert core.pin("heavy") == ("heavy", 80, "pinned until further notice")
    core.train(4 * 3600.0)
    assert core.state.level == "heavy"
    assert "extralife measures it" in core.state.climb.said
    assert level_memory.known(core.state).known[2].up_s > 3.5 * 3600
    assert core.unpin() == ("heavy", 80, "the pin on heavy is ended")
    assert core.state.level == "heavy", "the rule goes on from there"
    assert core.unpin() == ("heavy", 80, "nothing was pinned")
    core.pin("wide", for_s=90.0)
    asked = [(fact.request, fact.args, fact.why) for fact in core.told(facts.OperatorAsked)]
    assert asked == [
        ("pin", ("heavy",), "alice requested pin heavy"), ("unpin", (), "alice requested unpin"),
        ("pin", ("wide", "1m 30s"), "alice requested pin wide"),
    ]  # fmt: skip


def test_a_pin_survives_a_restart_and_runs_out():
    core = climbed()
    assert core.pin("wide", for_s=3600.0)[2] == "pinned for 1h"
    core.settings = ladder()
    core.begin()
    assert core.settings.level.name == "wide"
    assert core.wake_at_s == core.state.climb.pin.until_s
    core.to_wake()
    assert core.state.climb.pin is None
    assert core.told(facts.LevelUnpinned)[-1].by == "the clock"


def test_a_pin_on_what_is_vetoed_is_obeyed_and_says_so():
    core = climbed(vetoes={"heavy": "8 cores are not 2"}.items())
    assert core.pin("heavy")[2] == "pinned until further notice, although 8 cores are not 2"
    core.train(60.0)
    assert core.state.level == "heavy"
    core.unpin()
    assert core.state.level == "wide", "left at once"
    assert "8 cores are not 2" in core.state.climb.why


def test_a_pin_on_nothing_names_the_nearest():
    core = climbed()
    assert core.pin("hevy") == ("hevy", 10, "no such level: hevy; did you mean heavy?")
    assert core.pin("42") == ("42", 10, "no such level: 42; there are light, wide, heavy")
    assert not core.told(facts.LevelPinned)


def test_nothing_is_pinned_while_all_ends():
    core = climbed()
    core.terminate()
    assert core.pin("heavy")[1] == 6
    core.train(10.0)
    assert core.state.level == "light"


def test_a_fixed_ladder_is_where_its_start_says_and_can_be_pinned():
    core = Box(ladder(load=LoadSettings(mode=FIXED, start="wide")))
    core.begin()
    core.train(700.0)
    assert core.state.level == "wide"
    assert not core.told(facts.Reviewed)
    assert core.pin("heavy")[1] == 80
    assert core.state.level == "heavy"
    core.unpin()
    assert core.state.level == "wide"


def test_a_pre_check_is_a_veto_until_it_is_lifted():
    core = climbed("wide")
    veto = facts.Vetoed("GPU 0 is within 3 C of its slowdown", "gpu_temperature", "light", "wide")
    core.state = fold(core.state, Stamped(0, core.now_s, 0.0, core.boot_id, veto))
    core.later(1.0).woke()
    assert core.state.level == "light"
    assert "within 3 C" in core.state.climb.why
    assert ["within 3 C" in level["veto"] for level in core.view()["levels"]] == [False, True, True]
    core.train(1800.0)
    assert core.state.level == "light"
    lifted = facts.VetoLifted("it has been cool for 30m", "gpu_temperature", 1800.0)
    core.state = fold(core.state, Stamped(0, core.now_s, 0.0, core.boot_id, lifted))
    core.until_level("wide", 3600.0)


def test_no_trial_of_what_is_vetoed():
    core = climbed(vetoes={"wide": "no room"}.items())
    core.train(3600.0)
    assert core.state.level == "light"
    assert "no trial of wide while no room" in core.state.climb.said


# --- the config ------------------------------------------------------------------------------------------------------------


def test_an_update_keeps_the_record_of_the_levels_that_stay():
    core = climbed("wide")
    core.until_level("heavy")
    more = (*LEVELS, Level("top", 4, 32, 256))
    core.load(ladder(levels=more))
    assert core.state.level == "heavy"
    assert "3 of them known" in core.told(facts.LadderLaid)[-1].why
    assert level_memory.known(core.state).known[0].up_s > 1000.0
    core.load(ladder(levels=(Level("other", 1, 8, 64),)))
    assert core.state.level == "other"


def test_a_pin_whose_level_is_gone_ends():
    core = climbed()
    core.pin("heavy")
    core.load(ladder(levels=LEVELS[:2]))
    assert core.state.climb.pin is None
    assert core.state.level == "light"


def test_a_pin_that_moved_elsewhere_meanwhile_is_followed_with_the_speeds_kept():
    core = climbed("wide")
    core.load(ladder(mode=FIXED))
    core.pin("heavy")
    core.load(ladder())
    assert level_memory.known(core.state).level == 2
    assert level_memory.known(core.state).speeds.readings[0] > 0


def test_a_partial_update_of_the_load_takes_the_ladder_and_leaves_the_programs():
    core = Box(settings("Pong"))
    core.begin()
    core.load(ladder("Pong"), only=("[levels]",))
    assert core.settings.ladder
    assert core.settings.climbs
    changed = ladder("Pong", levels=LEVELS[1:])
    core.load(changed, only=("Pong",))
    assert [rung.level.name for rung in core.settings.ladder] == ["light", "wide", "heavy"]


def test_a_record_that_nobody_can_read_is_begun_anew():
    core = climbed()
    lost = replace(core.state.climb, load='{"of":"another version"}')
    core.state = replace(core.state, climb=lost)
    assert level_memory.known(core.state) is None
    view = core.view()
    assert view["levels"][0]["readings"] == 0
    core.train(700.0)
    assert not core.told(facts.Reviewed), "until a start or an update lays the ladder anew"
    core.begin()
    assert level_memory.known(core.state) is not None


# --- rotation --------------------------------------------------------------------------------------------------------------


def test_a_slot_is_handed_on_after_its_hours():
    core = Box(ladder("A", "B", "C", load=LoadSettings(mode=FIXED, rotation_h=1.0)))
    core.begin()
    core.train(3500.0)
    assert sorted(core.state.live) == ["A", "B"]
    core.train(300.0)
    assert sorted(core.state.live) == ["B", "C"]
    assert core.phase("A") is Phase.QUEUED
    assert "others wait" in core.told(facts.StopIntended, "A")[0].why
    core.train(3600.0)
    assert "A" in core.state.live


def test_nobody_hands_on_to_the_less_important_and_a_crash_is_no_fresh_start():
    made = ladder("A", "B", load=LoadSettings(mode=FIXED, rotation_h=1.0), levels=(Level("one", 1, 8, 64),))
    first, second = made.programs
    low = (first, replace(second, priority=200))
    made = replace(made, programs=low, ladder=(Rung(made.level, low),))
    core = Box(made)
    core.begin()
    core.train(3 * 3600.0)
    assert list(core.state.live) == ["A"]
    core.ended("A", signal=9)
    assert core.program("A").slot_since_s is not None


# --- what people see -------------------------------------------------------------------------------------------------------


def test_the_ladder_as_people_see_it():
    core = climbed("wide")
    core.train(900.0)
    power_cut(core, "boot-2")
    core.train(700.0)
    view = core.view()
    light, wide, heavy = view["levels"]
    assert light["in_force"]
    assert light["steps_per_min"] == pytest.approx(12_000.0, rel=0.1)
    assert wide["reboots"] == 1.0
    assert wide["failed_trials"] == 1
    assert wide["next_trial_s"] == pytest.approx(3600.0 - 700.0, abs=60.0)
    assert heavy["mtbf_bound_s"] is None
    assert view["line"].startswith("light: 12.")
    assert "failed trials of wide: 1 (shortest 15m 20s)" in view["line"]
    assert "next trial in " in view["line"]
    core.pin("wide", for_s=7200.0)
    assert core.view()["line"].endswith("pinned for another 2h")
    assert core.view()["pin"]["by"] == "alice"
    core.pin("wide")
    assert core.view()["line"].endswith("; pinned")
    assert "a reboot every " in core.view()["line"]


def test_the_ladder_from_a_journal_alone():
    core = climbed("wide")
    state = fold_all(core.journal)
    view = climb_view.level(FakeSources(state, None, now_s=core.now_s))
    assert [level["name"] for level in view["levels"]] == ["light", "wide", "heavy"]
    assert view["levels"][0]["slots"] is None
    assert view["line"].startswith("wide on trial: ")
    assert climb_view.level(FakeSources(replace(state, level="gone"), None, now_s=0.0))["line"] == ""


def test_a_fixed_level_is_told_by_its_reboots():
    core = Core(settings("Pong"))
    core.begin()
    assert climb_view.level(FakeSources(core.state, core.settings, now_s=0.0))["line"] == "light: not measured yet"
    core.later(1000.0).reboot("boot-2", last_sign_s=900.0, cause="unclean", up_s=20 * 86_400.0)
    view = climb_view.level(FakeSources(core.state, core.settings, now_s=core.now_s))
    assert view["levels"][0]["reboots"] == 1.0
    assert view["levels"][0]["mtbf_s"] == 900.0
    vetoed = ladder(vetoes={"wide": "no room"}.items())
    assert "wide is vetoed: no room" in climb_view.level(FakeSources(core.state, vetoed, now_s=0.0))["line"]
    assert as_text(core.state)


# --- backups before risk -------------------------------------------------------------------------------------------------


def backed_up(core, told, error=""):
    """The backups that were intended among these facts, made (or failed)."""
    from supervisor.features.backups.messages import BackupMade

    intended = [fact for fact in told if isinstance(fact, facts.BackupIntended)]
    for fact in intended:
        core.give(BackupMade(core.now_s, fact.name, error, {"Pong": 5}, 1, "link"))
    return [fact.label for fact in intended]


def tried_again(core, boot="boot-2"):
    """A reboot ends the trial of wide; its cool-down passes, and it is tried again. The labels of backups since."""
    core.train(600.0)
    power_cut(core, boot)
    assert core.state.level == "light"
    count = len(core.told(facts.BackupIntended))
    core.until_level("wide", most_s=12 * 3600.0)
    return backed_up(core, core.told(facts.BackupIntended)[count:])


def test_a_backup_is_made_before_the_first_trial_of_a_level_and_before_no_other():
    core = climbed("wide")
    assert backed_up(core, core.told(facts.BackupIntended)) == ["before wide"]
    assert tried_again(core) == []
    assert backed_up(core, core.train(3 * 3600.0)) == ["before heavy"]


def test_one_that_failed_is_made_before_the_next_trial():
    core = climbed("wide")
    assert backed_up(core, core.told(facts.BackupIntended), error="the disk is full") == ["before wide"]
    assert tried_again(core) == ["before wide"]
    assert tried_again(core, "boot-3") == []


def test_a_level_of_another_shape_has_a_first_trial_of_its_own():
    core = climbed("wide")
    backed_up(core, core.told(facts.BackupIntended))
    core.train(600.0)
    power_cut(core, "boot-2")
    count = len(core.told(facts.BackupIntended))
    core.load(ladder(levels=(LEVELS[0], replace(LEVELS[1], num_envs=12), LEVELS[2])))
    core.until_level("wide")
    assert "before wide" in backed_up(core, core.told(facts.BackupIntended)[count:])


def test_another_ladder_is_read_anew_and_its_speeds_with_it():
    core = climbed("wide")
    core.train(1300.0)
    assert sum(level_memory.known(core.state).speeds.readings) > 1
    core.load(ladder(levels=(LEVELS[0], replace(LEVELS[1], num_envs=12), LEVELS[2])))
    assert level_memory.known(core.state).speeds.readings == (0, 0, 0)


def test_after_a_reboot_the_box_goes_no_higher_than_it_may_now():
    core = climbed("heavy")
    core.train(60.0)
    core.settings = ladder(vetoes={"wide": "no room"}.items())
    power_cut(core, "boot-2")
    assert "down to light: no room" in core.told(facts.RebootJudged)[-1].why


def test_what_was_trained_before_a_pin_is_on_record_once():
    core = climbed()
    core.train(300.0)
    core.pin("wide")
    before = level_memory.known(core.state).known[0].up_s
    assert before == pytest.approx(300.0, abs=45.0)
    core.pin("light")
    assert level_memory.known(core.state).known[0].up_s == before
    core = climbed()
    core.train(300.0)
    core.pin("light")
    core.pin("light")
    assert level_memory.known(core.state).known[0].up_s == pytest.approx(300.0, abs=45.0)


# --- scripts -------------------------------------------------------------------------------------------------------------


def scripts_box(*takes, **more):
    """Programs of which only `takes` take something of the level; the others have the same digest at every level."""
    made = ladder()
    rungs = tuple(
        replace(rung, programs=tuple(
            replace(each, **more) if each.name in takes else replace(each, digest=each.name, own_digest="") for each in rung.programs
        ))
        for rung in made.ladder
    )  # fmt: skip
    core = Box(replace(made, ladder=rungs, programs=rungs[0].programs))
    core.begin()
    core.train(30.0)
    return core


def test_a_reboot_under_such_scripts_counts_against_no_level():
    core = scripts_box()
    core.train(600.0)
    power_cut(core, "boot-2")
    assert [(fact.weight, fact.up_s) for fact in core.told(facts.RebootJudged)] == [(0.0, 0.0)]


def test_a_script_that_takes_of_the_level_is_measured_alone_and_moves_while_the_others_are_left_alone():
    core = scripts_box("Pong")
    assert sorted(core.state.live) == ["Breakout", "Pong"]
    core.train(660.0)
    assert core.told(facts.Reviewed)[0].reading == pytest.approx(100.0 * 60.0, rel=0.02), "Pong's steps, not Breakout's"
    core.until_level("heavy")
    stops = core.told(facts.StopIntended)
    assert [(stop.program, stop.reason) for stop in stops] == [("Pong", "level")]


def test_a_script_that_cannot_resume_trains_on_through_each_change_of_level(tmp_path):
    file = tmp_path / "extralife.toml"
    file.write_text(
        '[levels.light]\n[levels.heavy]\nnum_envs = 64\n[program.Pong]\n[program.it]\ncommand = "sleep {num_envs}"\n'
    )
    core = Box(config.load(str(file), {"HOME": str(tmp_path)}, look=False).settings)
    core.begin()
    core.train(60.0)
    for level in ("heavy", "light"):
        core.pin(level)
        core.train(60.0)
    assert [(stop.program, stop.reason) for stop in core.told(facts.StopIntended)] == [("Pong", "level")] * 2
    assert not core.program("it").takes_level


def test_a_script_that_is_to_follow_the_level_from_now_on_is_not_restarted_for_that():
    core = scripts_box("Pong")
    alone = core.settings.programs
    told = tuple(replace(each, own_digest="told") if each.name == "Breakout" else each for each in alone)
    for programs, takes in ((told, True), (alone, False)):
        core.load(replace(core.settings, programs=programs))
        assert core.program("Breakout").takes_level == takes
    assert [fact.why.partition(" (")[0] for fact in core.told(facts.ProgramConfigured)[-2:]] == [
        "follows the level", "does not follow the level",
    ]  # fmt: skip
    assert not core.told(facts.StopIntended)


@pytest.mark.parametrize(
    ("progress", "back", "kept"),
    [
        (Progress.NOTIFY, None, 60_000),  # it counts from zero again: that does not take back what was made
        (Progress.BEAT, 20_000, 60_000 - 20_000),  # the steps that a resume has lost are taken back
    ],
)
def test_only_steps_that_are_lost_are_taken_back(progress, back, kept):
    core = scripts_box("Pong", progress=progress)
    core.train(300.0)
    core.ended("Pong", code=1)
    core.steps["Pong"] -= core.steps["Pong"] if back is None else back
    core.train(360.0)
    assert core.told(facts.Reviewed)[0].reading == pytest.approx(kept / 10, rel=0.1)
