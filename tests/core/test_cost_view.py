"""The bill of a journal written by hand: what was kept, at which level, and what is left to do."""

from dataclasses import replace

import pytest
from test_accounts import WALL_S, Story

from supervisor.ctl.cost import page as cost_page
from supervisor.model import facts
from supervisor.model.codec import as_text
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold_all
from supervisor.model.inputs import Sample
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level, Paths, ProgramSpec, Rung, Settings
from supervisor.model.state import State
from supervisor.policy.upkeep.cost import spread_of
from supervisor.reports.accounts import summary
from supervisor.reports.accounts_view import since_s
from supervisor.reports.cost_view import Games, RemainingWork, cost_view, frames_per_step, games_left
from supervisor.reports.ledger import Ledger, fold_accounts
from supervisor.reports.pages import Since

GAME = ("--steps", "2000000")


def pong(name="P", game="Pong", argv=GAME, **more):
    return ProgramSpec(name, ("python", "-m", "workers", *argv), "d", builtin=True, game=game, **more)


def told(*specs, level=None):
    return Settings(Paths("/s", "/r"), level=level or Level("light", 1), programs=specs)


def view(story, now_s, *specs, samples=None, price=2.0, since=None, settings=None):
    games = Games(settings or told(*specs), fold_all(story.rows), samples or {})
    closed = fold_accounts(story.rows).closed(now_s)
    return cost_view(
        closed, games, summary(closed, since_s=since_s(closed, since or Since())), wall_s=WALL_S + now_s, usd_per_hour=price
    )


def an_hour():
    """Trains from 0 to an hour later, without a pause: 3,600,000 steps, of which the last 600,000 are lost."""
    story = Story("P").start(0, trains=0).resumed(0, 0).tallied(1800, 0, steps=1_800_000)
    story.tallied(3600, 1800, steps=3_600_000).dies(3600, steps=3_600_000)
    return story.start(3600, trains=3600).resumed(3600, 3_000_000, lost=600_000)


def test_dollars_follow_the_accounts_and_frames_are_those_that_were_kept():
    found = view(an_hour(), 3600, pong())
    assert found["usd"] == pytest.approx(2.0)
    usd = {each["name"]: each["usd"] for each in found["causes"]}
    assert usd == pytest.approx({"useful": 2.0 * 5 / 6, "lost work": 2.0 / 6})
    assert found["useful_frames"] == pytest.approx(4 * 3_000_000)
    assert found["usd_per_million_frames"] == pytest.approx(2.0 / 12)
    assert (found["frames_unknown"], found["says"], found["useful_share"]) == ([], "", pytest.approx(5 / 6))


def test_without_a_price_it_says_how_to_set_one():
    found = view(an_hour(), 3600, pong(), price=None)
    assert found["usd"] is None
    assert "usd_per_hour in [cost]" in found["says"]
    assert found["usd_per_million_frames"] is None
    assert [each["usd"] for each in found["levels"]] == [None]
    assert found["levels"][0]["steps_per_s"] == pytest.approx(3_000_000 / 3600)


def test_every_level_of_the_ladder_has_its_line():
    rungs = tuple(Rung(Level(name, slots), (pong(),)) for name, slots in (("light", 1), ("heavy", 8)))
    found = view(an_hour(), 3600, settings=replace(told(pong()), ladder=rungs))
    assert [(level["name"], level["slots"]) for level in found["levels"]] == [("light", 1), ("heavy", 8)]
    assert found["levels"][1]["why"] == "never measured"


def test_a_level_is_told_by_its_kept_steps_and_one_that_was_never_seen_is_not_guessed():
    story = an_hour().at(3600, facts.LevelChosen("now", "heavy", 2))
    found = view(story, 3600, pong("P", argv=("--steps", "6000000")), settings=None)
    levels = {level["name"]: level for level in found["levels"]}
    light, heavy = levels["light"], levels["heavy"]
    assert light["steps_per_s"] == pytest.approx(3_000_000 / 3600)
    assert light["days"] == pytest.approx(3_000_000 / (3_000_000 / 3600) / 86_400)
    assert light["usd"] == pytest.approx(2.0)
    assert (heavy["steps_per_s"], heavy["days"], heavy["usd"], heavy["why"]) == (None, None, None, "never measured")
    assert (heavy["in_force"], light["in_force"]) == (True, False)


def test_a_free_slot_that_nothing_wants_does_not_slow_a_level_down():
    story = Story("P", slots=2).start(0, trains=0).resumed(0, 0).tallied(3600, 0, steps=3_600_000)
    game = pong("P", argv=("--steps", "7200000"))
    light = view(story, 3600, settings=told(game, level=Level("light", 2)))["levels"][0]
    assert light["steps_per_s"] == pytest.approx(1000.0)
    assert light["days"] * 24 == pytest.approx(1.0), "its one program has the rate of its own slot"


def test_each_program_goes_on_at_its_own_rate_and_one_without_a_rate_at_that_of_its_kind():
    """P makes 1000 steps/s, the script F 10: all is done when F is, and what F's kind never showed stays unknown."""
    story = Story("P", "F", slots=2).start(0, trains=0).resumed(0, 0).start(0, "F", trains=0).resumed(0, 0, name="F")
    story.tallied(3600, 0, steps=3_600_000).tallied(3600, 0, steps=36_000, name="F")
    samples = {"P": Sample("P1", steps=3_600_000), "F": Sample("F1", steps=36_000, target=108_000, target_kind="env_steps")}
    programs = [pong("P", argv=("--steps", "3600000")), ProgramSpec("F", ("x",), "d")]

    def light(*more, **known):
        found = told(*programs, *more, level=Level("light", 2))
        return view(story, 3600, settings=found, samples=samples | known)["levels"][0]

    assert light()["days"] * 24 == pytest.approx(2.0), "not: 3,672,000 steps at 505 a second and slot"
    story.at(3600, facts.ProgramConfigured("new", "Q", "d"))
    assert light(pong("Q", argv=("--steps", "3600000")))["days"] * 24 == pytest.approx(2.0), "on P's slot, at P's rate"
    found = light(ProgramSpec("Q", ("y",), "d"), Q=Sample("Q1", steps=0, target=9, target_kind="env_steps"))
    assert found["days"] * 24 == pytest.approx(2.0), "one that is unknown does not take the others' forecast away"
    assert (found["without"], found["why"]) == ({"Q": "it was not measured at this level"}, "")
    alone = told(ProgramSpec("Q", ("y",), "d"), level=Level("light", 2))
    found = view(story, 3600, settings=alone, samples={"Q": Sample("Q1", steps=0, target=9, target_kind="env_steps")})[
        "levels"
    ][0]
    assert (found["days"], found["why"]) == (None, "Q was not measured at this level")


def test_how_far_off_the_end_may_be_is_told_after_two_hours_of_a_level():
    """Three stretches of light, with heavy for half an hour between them: light's three hours are six blocks, heavy has none."""
    per_half_hour = [480, 500, 700, 500, 700, 520, 480, 520]
    story = Story("P").start(0, trains=0).resumed(0, 0)
    steps = 0
    for number, rate in enumerate(per_half_hour, 1):
        steps += 1800 * rate
        story.tallied(1800 * number, 1800 * (number - 1), steps=steps)
        if number in (2, 3, 4, 5):
            story.at(1800 * number, facts.LevelChosen("now", "heavy" if number % 2 == 0 else "light", 1))
    found = view(story, 4 * 3600, pong("P", argv=("--steps", "36000000")), settings=None)
    light, heavy = ({level["name"]: level for level in found["levels"]}[name] for name in ("light", "heavy"))
    spread = spread_of([480, 500, 500, 520, 480, 520])
    assert light["days_more"] == pytest.approx(light["days"] * spread)
    assert light["days_more"] * 24 == pytest.approx(0.5, abs=0.1)
    assert heavy["days_more"] is None
    assert view(an_hour(), 3600, pong())["levels"][0]["days_more"] is None, "an hour is too short"


def test_a_level_of_a_few_minutes_or_without_a_step_is_not_known():
    story = Story("P").start(0, trains=0).resumed(0, 0).tallied(300, 0, steps=300_000)
    assert view(story, 300, pong())["levels"][0]["why"] == "only 5m measured"
    assert view(Story("P"), 3600, pong())["levels"][0]["why"] == "no step was kept there"


def test_the_newest_reading_counts_on_from_the_newest_mark():
    story = Story("P").start(0, trains=0).resumed(0, 0).tallied(600, 0, steps=600_000)
    live = {"P": Sample("P1", steps=1_000_000, frames=4_000_000)}
    assert view(story, 1000, pong(), samples=live)["useful_frames"] == pytest.approx(4_000_000)
    stale = {"P": Sample("another", steps=9_000_000, frames=36_000_000)}
    assert view(story, 1000, pong(), samples=stale)["useful_frames"] == pytest.approx(2_400_000)


def test_frames_are_known_of_games_and_of_what_tells_them():
    games = Games(told(pong(), pong("C", game="Catch"), ProgramSpec("F", ("x",), "d")), State())
    assert [frames_per_step(name, games) for name in ("P", "C", "F", "gone")] == [4, None, None, None]
    assert frames_per_step("C", Games(None, State(), {"C": Sample("t", steps=10, frames=10)})) == 1
    story = Story("F").start(0, "F", trains=0).resumed(0, 0, name="F").tallied(600, 0, steps=9, name="F")
    found = view(story, 600, ProgramSpec("F", ("x",), "d"))
    assert (found["useful_frames"], found["frames_unknown"]) == (None, ["F"])


# --- what is left ----------------------------------------------------------------------------------------------------------


def left(*specs, samples=None, phases=()):
    story = Story(*(spec.name for spec in specs if spec.name != "new"))
    state = fold_all(story.rows)
    for name, phase, attempts in phases:
        state = replace(
            state, programs={**state.programs, name: replace(state.programs[name], phase=phase, attempts=attempts)}
        )
    return games_left(Games(told(*specs), state, samples or {}))


def one(spec, sample=None, attempts=0):
    (found,), _ = left(
        spec, samples={} if sample is None else {spec.name: sample}, phases=[(spec.name, Phase.QUEUED, attempts)]
    )
    return found


def test_what_is_left_has_the_name_of_its_program_and_one_reason():
    """However it is known: by a live worker, by the command line, or not at all."""
    unknown = "it has not run long enough to measure"
    for sample, expected in (
        (Sample("t", target=100, target_kind="env_steps", steps=140), RemainingWork("P", steps=0.0)),
        (Sample("t", target=100, target_kind="env_steps", steps=40), RemainingWork("P", steps=60.0)),
        (Sample("t", target=100, target_kind="episodes", episodes=20, steps=1000), RemainingWork("P", steps=4000.0)),
        (Sample("t", target=100, target_kind="episodes", episodes=0, steps=5), RemainingWork("P", why=unknown)),
        (Sample("t", target=100, target_kind="seconds_left"), RemainingWork("P", seconds=100.0)),
        (Sample("t", target=100, target_kind="episodes", episodes=120, steps=1000), RemainingWork("P", steps=0.0)),
        (Sample("t", target=100, target_kind="episodes", episodes=1), RemainingWork("P", why=unknown)),
        (Sample("t", target=100, target_kind="env_steps"), RemainingWork("P", why=unknown)),
    ):
        assert one(pong(), sample) == expected
    assert one(pong(argv=("--hours", "2.0"))) == RemainingWork("P", seconds=7200.0)
    assert one(pong(argv=("--hours", "2.0")), attempts=1) == RemainingWork(
        "P", why="its target (hours) is known only once it runs"
    )
    both = RemainingWork("P", why="its target (hours or steps) is known only once it runs")
    assert one(pong(argv=("--steps", "5", "--hours", "2"))) == both
    assert one(pong(), attempts=1) == RemainingWork("P", why="its progress is unknown")
    assert one(pong()) == RemainingWork("P", steps=2_000_000)
    assert one(pong(argv=())) == RemainingWork("P", why="it has no target")
    assert one(ProgramSpec("P", ("sh", "--steps", "5"), "d")) == RemainingWork("P", why="its target is unknown")
    assert games_left(Games(None, State())) == ([RemainingWork("all programs", why="the configuration cannot be read")], {})


def test_hours_take_as_long_at_every_level_and_the_rest_goes_by_its_rate():
    assert one(pong(argv=("--hours", "2.0"))).length_s(None) == 7200
    assert one(pong()).length_s(1000.0) == 2000
    assert one(pong()).length_s(None) is None
    assert one(pong(argv=())).length_s(1000.0) is None


def test_what_is_not_going_to_run_is_left_out_aloud():
    specs = [pong(name) for name in ("a", "b", "c", "new")]
    found, apart = left(*specs, phases=[("a", Phase.DONE, 1), ("b", Phase.STOPPED, 1), ("c", Phase.FATAL, 1)])
    assert found == [RemainingWork("all programs", why="none runs until somebody starts it")], "not: all is done in 0s"
    assert left(*specs[:1], phases=[("a", Phase.DONE, 1)])[0] == []
    assert apart == {"a": "done", "b": "STOPPED: new", "c": "FATAL: new", "new": "not in use yet"}
    many = view(an_hour(), 3600, pong()) | {"left_out": {f"P{number}": "done" for number in range(10, 30)} | apart}
    assert cost_page(many)[-4:] == [
        "not counted: P10, P11, P12, P13, P14, P15, P16, P17 and 13 more, done", "not counted: b, STOPPED: new",
        "not counted: c, FATAL: new", "not counted: new, not in use yet",
    ]  # fmt: skip


def test_who_is_not_known_is_named():
    found = view(an_hour(), 3600, pong(argv=()), pong("Q", argv=()))
    assert found["levels"][0]["why"] == "P: it has no target"
    two = an_hour().at(3600, facts.ProgramConfigured("new", "Q", "d"))
    assert view(two, 3600, pong(argv=()), pong("Q", argv=()))["levels"][0]["why"] == "P and 1 more: it has no target"


def test_without_a_configuration_or_a_journal_nothing_is_guessed():
    story = an_hour()
    games = Games(None, fold_all(story.rows))
    closed = fold_accounts(story.rows).closed(3600.0)
    found = cost_view(closed, games, summary(closed), wall_s=WALL_S, usd_per_hour=None)
    assert found["levels"][0]["why"] == "all programs: the configuration cannot be read"
    closed = fold_accounts([]).closed(0.0)
    empty = cost_view(closed, Games(told(pong()), State()), summary(closed), wall_s=WALL_S, usd_per_hour=2.0)
    assert (empty["usd"], empty["useful_frames"], empty["useful_share"]) == (0.0, None, None)
    assert [(level["days"], level["steps_per_s"]) for level in empty["levels"]] == [(0.0, None)], "nothing is left"


# --- jobs of a cluster -----------------------------------------------------------------------------------------------------


def job(story, at_s, *, gpus=2, account="lab", partition="a100"):
    return story.at(at_s, facts.JobStarted("it began", "P", story.token, "17", "a14", partition, account, gpus))


def three_jobs():
    """Two hours with two GPUs, one with unknown ones, and one on another partition that still runs."""
    story = job(Story("P").start(0, trains=10), 0).dies(7200, ended=7200)
    job(story.start(7200, trains=7210), 7200, gpus=None).dies(10_900, ended=10_800)
    return job(story.start(10_900, trains=10_950), 10_900, gpus=0, account="", partition="cpu")


def test_gpu_hours_are_by_account_and_partition_and_unknown_ones_are_not_zero():
    found = view(three_jobs(), 14_500, pong())["jobs"]
    assert found == [
        {"account": "default", "partition": "cpu", "jobs": 1, "hours": 1.0, "gpu_hours": 0.0, "hours_unknown": 0.0},
        {"account": "lab", "partition": "a100", "jobs": 2, "hours": 3.0, "gpu_hours": 4.0, "hours_unknown": 1.0},
    ]
    lines = cost_page(view(three_jobs(), 14_500, pong()))
    assert lines[-3].split() == ["ACCOUNT", "PARTITION", "JOBS", "HOURS", "GPU", "HOURS"]
    assert lines[-1].split() == "lab a100 2 3.00 4.00 at least: the GPUs of 1h are unknown".split()


def test_hours_of_jobs_are_those_of_the_window():
    (found,) = view(three_jobs(), 10_900, pong(), since=Since(ago_s=5500.0))["jobs"]
    assert (found["jobs"], found["hours"], found["gpu_hours"], found["hours_unknown"]) == (2, 1.5, 1.0, 1.0)
    (late,) = view(job(Story("P").start(0), 0, gpus=None), 3600, pong())["jobs"]
    assert (late["gpu_hours"], late["hours_unknown"]) == (None, 1.0)
    assert cost_page(view(job(Story("P").start(0), 0, gpus=None), 3600, pong()))[-1].split()[4] == "-"


def test_without_a_cluster_the_bill_has_no_word_of_jobs():
    from supervisor.features.slurm.settings import LauncherSettings

    assert "jobs" not in view(an_hour(), 3600, pong())
    slurm = replace(told(pong()), launcher=LauncherSettings(kind="slurm"))
    found = view(an_hour(), 3600, settings=slurm)
    assert found["jobs"] == []
    assert cost_page(found)[-1] == "no job has run in this time"


@pytest.mark.needs("slurm")
def test_a_job_that_began_before_the_journal_does_counts_from_there():
    story = job(Story("P", "Q").start(0, "Q").start(0), 0)
    story.at(5, facts.JobSubmitted("it waits", "Q", "Q1", "18"))
    state = fold_all(story.rows)
    ledger = Ledger()
    ledger.add(Stamped(1, 3600.0, WALL_S + 3600.0, "b", facts.Snapshot("state", as_text(state))))
    (found,) = ledger.closed(5400.0).all_jobs()
    assert (found.begin_s, found.end_s, found.gpus) == (3600.0, 5400.0, 2)
    ledger.add(Stamped(2, 7200.0, WALL_S + 7200.0, "b", facts.ProgramRemoved("gone", "P")))
    assert [each.end_s for each in ledger.all_jobs()] == [7200.0]
