"""Whole pages: every value of every page that the API serves after a story, against files in `stories/`.

Other tests of pages look at what they are about. A value that is missing, misspelled or of another thing shows here. After an
intended change: `EXTRALIFE_WRITE_STORIES=1 .venv/bin/pytest tests/core/test_whole_pages.py`, and read the diff.
"""

import json
from dataclasses import dataclass, field, replace

import pytest
import test_decide_box
import test_decide_clock
import test_decide_cluster
import test_decide_figures
import test_decide_foundations
import test_decide_gate
import test_decide_health
import test_decide_levels
import test_decide_notices
import test_decide_offsite
import test_decide_own_checkpoints
import test_decide_services
import test_decide_silence
import test_time_spent
from core_kit import Core, gpu, gpus, settings, spec
from fakes import FakeSources
from test_whole_stories import CORES, check, game, settled

from supervisor.model import facts
from supervisor.model.fold import fold_all
from supervisor.model.inputs import Sampled
from supervisor.model.memory import Memory
from supervisor.model.recording import FIGURES_OF_ITS_OWN, by_subject, folded
from supervisor.model.settings import Progress
from supervisor.model.snapshot import encoded
from supervisor.policy.box.gate import MB
from supervisor.policy.box.readings import Host, InPhase, Spread
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.upkeep.resolution import Held, Tier, bucket_of
from supervisor.reports.pages import PAGES
from supervisor.reports.recorded import readings

SCENES = {  # of other tests, with arguments where they take any: what the stories have not
    "box": (test_decide_box, "a_copied_box_begins_its_own_record"),
    "clock": (test_decide_clock, "the_times_of_the_boot_are_mended_once_it_is_set"),
    "cluster": (test_decide_cluster, "a_node_that_loses_jobs_again_and_again_is_avoided_for_a_while"),
    "foundations": (test_decide_foundations, "alerts_say_trouble_and_its_end"),
    "gate": (test_decide_gate, "it_may_wait_for_ever_or_be_given_up"),
    "health": (
        test_decide_health,
        "a_fallen_return_is_told_after_so_many_games_and_what_follows_is_the_programs_choice",
        "tell",
    ),
    "jobs": (test_decide_cluster, "a_job_is_on_record_when_the_queue_shows_it_and_again_when_it_has_a_node"),
    "levels": (test_decide_levels, "a_reboot_while_pinned_moves_nothing"),
    "notices": (test_decide_notices, "another_box_that_goes_on_knows_why_the_first_one_ended"),
    "offsite": (test_decide_offsite, "an_orderly_reboot_waits_for_a_last_copy"),
    "own_checkpoints": (test_decide_own_checkpoints, "a_torn_one_is_set_aside_after_three_deaths_with_it"),
    "preemption": (test_decide_notices, "two_minutes_are_used_to_the_last_second"),
    "preempted_jobs": (test_decide_cluster, "gpu_time_is_booked_on_the_account"),
    "services": (test_decide_services, "one_that_is_to_run_always_and_leaves_at_once_waits_longer_each_time"),
    "silence": (test_decide_silence, "a_restart_that_does_not_say_where_it_goes_on_is_put_on_record_once", Progress.AUTO),
    "slowness": (test_time_spent, "slow_time_is_told_as_such"),
    "suspended": (test_time_spent, "a_daemon_that_stood_still_tells_both_sides_of_it"),
    "unread": (test_decide_figures, "what_is_not_read_is_told_once_for_each_reason"),
}
PART = {"since": "90s", "until": "20s"}  # a window inside of the story
QUERIES = {  # what else a page is asked with
    "accounts": PART,
    "cost": PART,
    "curves": {"series": "env_steps,steps_per_s,loss", **PART},
    "days": PART,
    "incidents": {"chars": "20", "limit": "1", **PART},
    "report": PART,
    "timeline": PART,
}


FEW = {"curves": {"points": "10"}, "recorded": {"limit": "4"}}  # in place of hundreds
MORE = {  # the same, of one story
    "training": {
        "curves": (
            {"series": "loss,kl,success_rate,mean_return,env_steps", "points": "10"},
            {"series": "attempt,memory_bytes,share_env,kl", "subjects": "Pong,Nobody", **PART},
            {"sheet": "gpus", **PART}, {"sheet": "host", "series": "swap_free_bytes,io_full", "points": "10"},
        ),
        "recorded": (
            {"sheet": "figures", "limit": "5"}, {"sheet": "gpus", "after": "20", "limit": "3"}, {"sheet": "host", "limit": "2"},
            {"period_s": "60", "since": "100s"}, {"period_s": "21600"},
        ),
        "incidents": ({"program": "Pong"}, {"seq": "1"}),
        "backups": ({"check": "b1"},),
    },
}  # fmt: skip


@dataclass
class Recorded(FakeSources):
    """What a daemon has whose recorder wrote a row at each look."""

    rows: dict = field(default_factory=dict)

    def recorded(self, sheet, tier, since_s, until_s, subjects):
        rows = self.rows.get(sheet.name, [])
        if tier.period_s > 10.0:
            periods = {}
            for keys, own in by_subject(sheet, rows, by_attempt=tier.by_attempt).items():
                for row in own:
                    periods.setdefault((bucket_of(row.at_s, tier.period_s), keys), []).append(row)
            rows = [folded(sheet, at_s, own) for (at_s, _), own in sorted(periods.items())]
        return [row for row in rows if since_s <= row.at_s < until_s and (not subjects or row.keys[0] in subjects)]

    def recorded_held(self, sheet, since_s, until_s, subjects, enough):
        tiers = [Tier(10.0, 0.0), Tier(60.0, 0.0)]
        return [Held(0.0, len(self.recorded(sheet, tier, since_s, until_s, subjects))) for tier in tiers]

    def recorded_names(self):
        return {row.keys[1] for row in self.rows.get(FIGURES_OF_ITS_OWN.name, [])}

    def facts(self, after_seq, kinds):
        return [item for item in super().facts(after_seq, kinds) if not kinds or type(item.fact).__name__ in kinds]


def kept(rows, core, item):
    """Record as the daemon does, at each look."""
    if isinstance(item, Sampled):
        wall_s = core.wall_offset_s + core.now_s
        for name, new in readings(core.state, core.memory, now_s=core.now_s, wall_s=wall_s).items():
            rows.setdefault(name, []).extend(new)


def lines_of(name, page):
    """A line for each value, or for each item of a list."""
    for key, value in page.items():
        if isinstance(value, list) and value:
            yield from (f"{name}: {key}: {json.dumps(each)}" for each in value)
        else:
            yield f"{name}: {key}: {json.dumps(value)}"


def sources_of(core, rows, **more):
    known = {"settings": replace(core.settings, cost=CostSettings(usd_per_hour=2.0)), "memory": core.memory} | more
    return Recorded(
        **{
            "state": core.state, "journal": core.journal, "now_s": core.now_s, "wall_s": core.wall_offset_s + core.now_s,
            "worst_gap_s": 0.25, "rows": rows,
        }
        | known
    )  # fmt: skip


def pages_of(core, rows, more, *, but=()):
    sources = sources_of(core, rows, memory=replace(core.memory, boot_at_s=core.now_s - 40.0))
    for name in sorted({*PAGES} - {"facts", *but}):  # the stories are about facts
        for query in (FEW.get(name, {}), *([QUERIES[name]] if name in QUERIES else []), *more.get(name, ())):
            yield from lines_of(f"{name} {query}" if query else name, PAGES[name].of(sources, query))
    dead = sources_of(core, {}, settings=None, memory=Memory(), alive=False, worst_gap_s=None)
    for name in ("level", "nodes", "status", "report"):
        yield from lines_of(f"{name} of a dead daemon", PAGES[name].of(dead, {}))


def training(core):
    """Games and a script that report figures, on a GPU; a death that costs steps, and an end."""
    core.running("Pong", "Breakout", "script")
    for turn in range(1, 40):
        core.later(5.0)
        if turn == 20:
            core.ended("Pong", signal=9, steps=19_500, ckpt_step=15_000, ckpt_at_s=core.now_s - 20.0)
            core.later(2.0).woke()
            core.spawned("Pong")
            core.look(core.report("Pong", "resumed", step=15_000))
        steps = 1_000 * turn if turn < 20 else 15_000 + 1_000 * (turn - 20)
        used = Spread(1e9, 2e9 + turn, 3e9)
        seen = InPhase("training", 5, used, Spread(10.0, 50.0 + turn, 90.0))
        core.give(Sampled(
            core.now_s,
            {
                "Pong": core.sample(
                    "Pong", steps=steps, frames=4 * steps, steps_per_s=200.0 + turn, episodes=turn, rss_bytes=10**9 + turn,
                    memory_bytes=2 * 10**9, cuda_bytes=10**8, num_envs=8, batch_size=64, nan_count=0, loss=1.0 / turn,
                    mean_return=-21.0 + turn, best_return=float(turn), share_env=0.25, target=2_000_000,
                    target_kind="env_steps", ckpt_step=steps // 5_000 * 5_000, ckpt_count=turn, ckpt_stall_s=0.125,
                    ckpt_at_s=core.now_s - 1.0, pressure=(("cpu some", 12.5),),
                ),
                "Breakout": core.sample("Breakout", steps=50 * turn, target=900, target_kind="seconds_left", loss=2.0),
                "script": core.sample(
                    "script", steps=10 * turn, kl=0.5 + turn, **({"success_rate": 0.75} if turn % 3 else {}), status="epoch 3"
                ),
            },
            (), None, gpus(gpu(free_mb=70_000, utilisation=40.0 + turn, temperature_c=60.0, power_w=250.0, by_phase=(seen,))),
            Host(disk_free_bytes=9_000 * MB, available_bytes=8_000 * MB + turn, swap_free_bytes=7, memory_full=1.5, io_full=2.5),
        ))  # fmt: skip
    core.ended("Breakout", code=0)


STORIES = {
    **CORES,
    "training": (training, lambda: Core(settings(game("Pong"), game("Breakout"), spec("script"), slots=3))),
}


def after(name, monkeypatch):
    """The core at the end of a story, and the rows that were recorded in it."""
    give, rows, cores = Core.give, {}, []

    def noted(core, item):
        decision = give(core, item)
        cores.append(core)
        kept(rows, core, item)
        return decision

    monkeypatch.setattr(Core, "give", noted)
    if name in STORIES:
        story, make = STORIES[name]
        story(make())
    else:
        module, scene, *args = SCENES[name]
        getattr(module, f"test_{scene}")(*args)
    return cores[-1], rows


@pytest.mark.parametrize("name", [*STORIES, *SCENES])
def test_every_page_after_a_story(name, monkeypatch):
    but = () if name in STORIES else ("backups", "config", "curves", "recorded", "results")
    check(f"pages/{name}", settled([*pages_of(*after(name, monkeypatch), MORE.get(name, {}), but=but)]))


@pytest.mark.parametrize("name", ["starts", "training", "cluster"])
def test_every_page_of_a_journal_that_begins_with_a_snapshot(name, monkeypatch):
    """As after years: what came before is known from the snapshot alone."""
    core, rows = after(name, monkeypatch)
    older, newer = core.journal[: len(core.journal) // 2], core.journal[len(core.journal) // 2 :]
    begin = replace(older[-1], fact=facts.Snapshot("state after so many facts", encoded(fold_all(older))))
    sources = sources_of(core, rows, journal=[begin, *newer])
    lines = [
        line
        for page in ("accounts", "cost", "incidents", "timeline")
        for line in lines_of(page, PAGES[page].of(sources, {}))
    ]
    check(f"pages/{name}_after_a_snapshot", settled(lines))
