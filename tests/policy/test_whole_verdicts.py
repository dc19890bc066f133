"""Verdicts of the rules as a whole: each sentence to its last letter, each figure, and the edge where a rule changes."""

import datetime as dt
import math
import statistics
import time
from dataclasses import replace

import pytest

from supervisor.policy.box import prechecks, reboot_pattern, visible
from supervisor.policy.box.gate import MB, Answer, Verdict, Wish, check
from supervisor.policy.box.prechecks import BoxReadings, Need, Objection, PrecheckSettings, Rung, StandingObjection
from supervisor.policy.box.readings import Gpu, Gpus, Host
from supervisor.policy.box.reboot_pattern import Struck
from supervisor.policy.level.attribution import Attribution, attribute
from supervisor.policy.upkeep import alerting, backups, calendars, cost
from supervisor.policy.upkeep.accounting import Account
from supervisor.policy.upkeep.alerting import AlertSettings, Gone
from supervisor.policy.worker import checkpointing, divergence, health, out_of_memory, stall
from supervisor.policy.worker.checkpointing import CheckpointSettings, History
from supervisor.policy.worker.divergence import DivergenceSettings

# --- the gate ------------------------------------------------------------------------------------------------------------

WISH = Wish(
    gpu=0, pinned=False, claimed=True, configured_bytes=12_000 * MB, learned_bytes=None, poll_s=1.0, timeout_s=600.0, on_timeout="start",
    fallback_batch=None, waited_s=None,
)  # fmt: skip
SHORT = "waited 10m for 12,000 MiB on GPU 0 (as configured); 3,000 MiB are free"


def gate(free_mb, gpus=None, **more):
    one = Gpu(0, total_bytes=80_000 * MB, free_bytes=free_mb * MB, free_by_second=(9_000 * MB, free_mb * MB))
    return check(replace(WISH, **more), Gpus((one,)) if gpus is None else gpus, reserved_bytes=0)


@pytest.mark.parametrize(
    ("free_mb", "wish", "verdict"),
    [
        (12_000, {}, Verdict(Answer.START, free_bytes=12_000 * MB)),
        (12_000, {"behind": "Qbert"}, Verdict(
            Answer.WAIT, "waits behind Qbert: needs 12,000 MiB on GPU 0 (as configured); 12,000 MiB are free", None, 12_000 * MB)),
        (80_000, {"configured_bytes": 80_000 * MB}, Verdict(Answer.START, free_bytes=80_000 * MB)),
        (3_000, {"waited_s": 600.0}, Verdict(Answer.START, f"{SHORT}: starts anyway", None, 3_000 * MB)),
        (3_000, {"waited_s": 600.0, "fallback_batch": 64},
            Verdict(Answer.START, f"{SHORT}: starts with batch 64", 64, 3_000 * MB)),
        (3_000, {"waited_s": 600.0, "on_timeout": "give_up"}, Verdict(Answer.GIVE_UP, SHORT, None, 3_000 * MB)),
    ],
)  # fmt: skip
def test_the_gate(free_mb, wish, verdict):
    assert gate(free_mb, **wish) == verdict


def test_the_gate_for_a_gpu_that_is_not_there():
    two = Gpus((Gpu(0), Gpu(1)))
    here = "this box has 2 GPUs, 0 to 1"
    assert gate(1, gpus=two, pinned=True, gpu=2) == Verdict(Answer.GIVE_UP, f"gpu = 2, but {here}: correct `gpu`")
    assert gate(1, gpu=None) == Verdict(Answer.START), "a GPU that cannot be watched keeps nobody waiting"


# --- pre-checks ----------------------------------------------------------------------------------------------------------

LADDER = (Rung("light", 2), Rung("medium", 4), Rung("heavy", 8))
SETTINGS = PrecheckSettings()


def objections(**box):
    return prechecks.objections(SETTINGS, BoxReadings(LADDER, **{"present": 2, **box}))


def test_a_gpu_that_slows_itself_down_says_so():
    assert objections(gpus=Gpus((Gpu(3, reasons=("sw_thermal_slowdown",)),))) == (
        Objection("gpu_temperature", 2, "GPU 3 is slowed down because of heat"),
    )


def test_what_two_gpus_object_is_told_of_both():
    sick = {
        "temperature_c": 88.0, "slowdown_c": 90.0, "reasons": ("hw_slowdown", "hw_power_brake"), "lost": "no answer",
        "ecc_errors": 1200,
    }  # fmt: skip
    assert objections(gpus=Gpus((Gpu(0, **sick), Gpu(1, **sick), Gpu(2))), xids=(79, 48)) == (
        Objection("gpu_xid", 2, "the driver reported Xid 48, 79"),
        Objection("gpu_temperature", 2, "GPU 0 is at 88 C and slows down at 90 C; GPU 1 is at 88 C and slows down at 90 C"),
        Objection(
            "gpu_slowdown", 1,
            "the hardware slows GPU 0 down (hw_power_brake, hw_slowdown); the hardware slows GPU 1 down (hw_power_brake, hw_slowdown)",
        ),
        Objection("gpu_lost", 2, "GPU 0 does not answer (no answer); GPU 1 does not answer (no answer)"),
        Objection(
            "gpu_errors", 2, "GPU 0 has 1,200 uncorrected memory errors; GPU 1 has 1,200 uncorrected memory errors"
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({"memory_full": 5.4}, [("pressure", "every process waited for memory during 5 % of a minute")]),
        ({"io_full": 50.0}, [("pressure", "every process waited for the disk during 50 % of a minute")]),
        (
            {"memory_full": 6.0, "io_full": 60.0, "disk_free_bytes": 99 * MB},
            [
                ("pressure", "every process waited for memory during 6 % of a minute"),
                ("disk", "only 99 MiB are free on the disk of the state directory"),
            ],
        ),
        (
            {"swap_bytes": 1000, "swap_free_bytes": 49, "memory_bytes": 1000, "available_bytes": 99},
            [("swap", "swap is used up, and less than a tenth of the memory is left")],
        ),
    ],
)
def test_what_the_host_objects(host, told):
    assert objections(host=Host(**host)) == tuple(Objection(rule, 2, why) for rule, why in told)


def test_only_levels_above_the_present_one_are_objected_to_and_each_rule_names_its_lowest():
    told = objections(present=0, host=Host(cores=1, available_bytes=100 * MB), needs=needing(8, host_mb=40))
    assert told == (
        Objection("host_memory", 0, "medium needs 160 MiB of memory, but only 100 MiB are available"),
        Objection("cores", 1, "heavy has 8 programs for 1 core"),
    )
    assert prechecks._too_few(3, Rung("beast", 13)) == "beast has 13 programs for 3 cores"
    assert prechecks._too_few(3, Rung("beast", 12)) == ""
    assert objections(present=0, host=Host(available_bytes=160 * MB), needs=needing(4, host_mb=40)) == ()
    assert objections(present=0, host=Host(available_bytes=80 * MB), needs=(*needing(2, host_mb=40), *needing(6))) == ()


def test_a_gpu_that_tells_nothing_does_not_hide_the_next_one():
    gpus = Gpus((Gpu(0), Gpu(1, free_bytes=100 * MB)))
    told = objections(present=1, gpus=gpus, needs=needing(8, gpu_mb=100, index=1))
    assert told == (Objection("gpu_memory", 1, "heavy needs 800 MiB of GPU 1, but only 100 MiB are available"),)
    assert objections(present=1, gpus=Gpus((Gpu(0, free_bytes=800 * MB),)), needs=needing(9, gpu_mb=100)) == ()
    exact = Gpus((Gpu(0, free_bytes=800 * MB - 1),))
    assert len(objections(present=1, gpus=exact, needs=needing(9, gpu_mb=100))) == 1, "one byte is missing"


def needing(count, gpu_mb=None, host_mb=None, index=0):
    of_gpu, of_host = (None if mb is None else mb * MB for mb in (gpu_mb, host_mb))
    return tuple(Need(index, (of_gpu,) * 3, (of_host,) * 3) for _ in range(count))


def test_a_reading_of_two_that_is_missing_leaves_a_rule_blind():
    whole = {"memory_full": 0.0, "io_full": 0.0, "swap_free_bytes": 1, "available_bytes": 1}
    for missing, rule in (
        ("memory_full", "pressure"), ("io_full", "pressure"), ("swap_free_bytes", "swap"), ("available_bytes", "swap"),
    ):  # fmt: skip
        assert prechecks.unseen(BoxReadings(LADDER, 1, host=Host(**{**whole, missing: None}))) == {rule}
    assert prechecks.unseen(BoxReadings(LADDER, 1, host=Host(**whole))) == frozenset()


def test_a_veto_of_before_the_daemon_began_is_lifted_from_its_first_clear_look_on():
    changes, held = prechecks.weigh(SETTINGS, [], present=1, now_s=50.0, vetoes={"disk": 1}, held={})
    assert (changes, held) == ((), {"disk": StandingObjection(clear_since_s=50.0, read_s=50.0)})
    changes, held = prechecks.weigh(SETTINGS, [], present=1, now_s=50.0 + SETTINGS.clear_s, vetoes={"disk": 1}, held=held)
    assert changes == (prechecks.Change("disk", None, "the reason has been gone for 30m"),)
    assert held == {}


# --- checkpoints ---------------------------------------------------------------------------------------------------------


def reference_hazard(uptimes_s, at_s, rate):
    """The same estimate by the textbook, with the standard library's deviation and density."""
    n = len(uptimes_s)
    width = max(30.0, 1.06 * statistics.stdev(uptimes_s) * n**-0.2)
    at_s = min(at_s, max(uptimes_s))
    kernel = sum(
        statistics.NormalDist(died_s, width).pdf(at_s) / sum(each >= died_s for each in uptimes_s)
        for died_s in sorted(uptimes_s)
    )
    return (n * kernel + 5 * rate) / (n + 5)


@pytest.mark.parametrize("uptime_s", [0.0, 700.0, 1500.0, 2600.0, 9000.0])
@pytest.mark.parametrize(
    "uptimes_s", [(600.0, 900.0, 1500.0, 2400.0, 2500.0), (1000.0, 1010.0, 1020.0, 1035.0, 1041.0, 1060.0)]
)
def test_the_hazard_is_the_textbooks(uptimes_s, uptime_s):
    assert checkpointing.hazard(uptimes_s, uptime_s, 1e-4) == pytest.approx(reference_hazard(uptimes_s, uptime_s, 1e-4))


def test_dalys_second_term():
    """By the formula with its ratio C / 2M written out: a save of 60 s, one failure in 10 min."""
    x = 60.0 / 1200.0
    assert checkpointing.daly_s(60.0, 600.0) == pytest.approx(math.sqrt(72_000.0) * (1 + math.sqrt(x) / 3 + x / 9) - 60.0)


def test_an_interval_says_what_it_is_made_of():
    settings = CheckpointSettings(min_s=1.0, max_s=1e6)
    verdict = checkpointing.choose(settings, History(), cost_s=0.25, current_s=None)
    assert verdict.interval_s == checkpointing.daly_s(0.25, 7200.0), "two priors of one failure in four hours"
    assert verdict.why == "a save costs 250ms, one failure in 2h on average: saves every 1m"
    aware = History(reboots=5, level_exposure_s=5e3, uptimes_s=(1000.0,) * 5, uptime_s=60.0)
    told = checkpointing.choose(settings, aware, cost_s=0.25, current_s=None)
    assert "at this uptime: saves every" in told.why
    few = replace(aware, uptimes_s=(1000.0,) * 4)
    assert "on average: saves every" in checkpointing.choose(settings, few, cost_s=0.25, current_s=None).why
    unknown = replace(aware, uptime_s=None)
    assert "on average: saves every" in checkpointing.choose(settings, unknown, cost_s=0.25, current_s=None).why


def test_an_interval_moves_by_more_than_a_fifth_of_the_present_one():
    settings = CheckpointSettings(min_s=100.0, max_s=100.0)  # so that it is 100 s
    moved = {
        now: checkpointing.choose(settings, History(), cost_s=0.25, current_s=now) for now in (83.0, 83.4, 125.0, 125.1)
    }
    assert {now: verdict is not None for now, verdict in moved.items()} == {
        83.0: True,
        83.4: False,
        125.0: False,
        125.1: True,
    }


# --- alerts --------------------------------------------------------------------------------------------------------------


def test_a_target_is_named_by_its_scheme_and_a_mark():
    name = alerting.target_name("JSON://me:secret@host/x?to=http://other")
    assert name.startswith("json-")
    assert len(alerting.target_name("json://\udcff").partition("-")[2]) == len(name.partition("-")[2]), "no text is refused"


def test_an_alert_goes_out_at_once_with_a_whole_token_and_a_hair_late_without():
    rules = AlertSettings(at_most_per_h=12, same_within_s=60.0)
    assert alerting.due_s(rules, Gone(1.0, 500.0), "a/b", 500.0) == 500.0
    assert alerting.due_s(rules, Gone(0.0, 500.0), "a/b", 500.0) == 800.001
    assert alerting.summary(3, "x", 3600.0) == "3 alerts of this kind in the last hour, the newest: x"
    assert alerting.summary(3, "x", 7200.0) == "3 alerts of this kind in the last 2h, the newest: x"


# --- what a reboot says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"workers": 0}, Attribution(0.0, left=False, why=(
            "nothing that uses the level was training: does not count against the load"))),
        ({"sign_age_s": 6000.0}, Attribution(0.0, left=False, why=(
            "the last sign of life was 1h 40m old, so what ran is unknown: does not count against the load"))),
        ({"since_change_s": 59.0}, Attribution(1.0, left=False, why="unclean, with 2 workers training: counts against the level")),
        ({"since_change_s": 59.0, "stepped_down": True}, Attribution(
            1.0, left=True, why="unclean, with 2 workers training: counts against the level just left")),
        ({"since_change_s": 60.0, "stepped_down": True, "workers": 1}, Attribution(
            1.0, left=False, why="unclean, with 1 worker training: counts against the level")),
        ({"sign_age_s": None}, Attribution(
            0.5, left=False, why="unclean, and what ran is uncertain: half of it counts against the level")),
    ],
)  # fmt: skip
def test_what_a_reboot_says(known, told):
    assert attribute("unclean", **{"workers": 2, "sign_age_s": 5.0, **known}) == told


def struck(*minutes, level="heavy", after_s=900.0):
    return [Struck(60.0 * minute, level, after_s) for minute in minutes]


def hours_apart(*hours, after_s=900.0):
    return struck(*(60 * hour for hour in hours), after_s=after_s)


@pytest.mark.parametrize(
    ("reboots", "clause"),
    [
        (struck(100, 130, 170), "3 in 1h 10m, each 15m after heavy began"),
        (struck(100, 220, 340), "3 in 4h, each 15m after heavy began"),
        (struck(1, 50, 500, 510, 560), "3 in 1h, each 15m after heavy began"),  # a run of its own, not all of the day
        (hours_apart(1, 9, 24), "3 in 23h, each 15m after heavy began"),
        (hours_apart(0, 9, 24), "3 in 1d, each 15m after heavy began"),
        (hours_apart(0, 9, 24.1), ""),
        (struck(100, 101, after_s=300.0) + struck(102, after_s=600.0), "3 in 2m, each 5m to 10m after heavy began"),
        (struck(100, 101, after_s=1000.0) + struck(102, after_s=2500.0), "3 in 2m, all at heavy"),
        (struck(100, 101) + struck(102, after_s=None), "3 in 2m, all at heavy"),
        (struck(100, 101, 102) + struck(103, level="light"), "4 in 3m, 3 of them 15m after heavy began"),
        (struck(100, 101) + struck(103, level="light"), "3 in 3m"),
    ],
)
def test_the_pattern_of_reboots(reboots, clause):
    assert reboot_pattern.pattern(reboots, now_s=reboots[-1].at_s) == clause


# --- the others ----------------------------------------------------------------------------------------------------------


def test_a_backup_of_a_taken_name_is_numbered_from_two():
    assert backups.name_of(1_800_000_000.0, " -before heavy- ", []) == "20270115-080000-before-heavy"
    base = "20270115-080000-x"
    assert backups.name_of(1_800_000_000.0, "x", [base]) == f"{base}.2"
    assert backups.name_of(1_800_000_000.0, "x", [base, f"{base}.2"]) == f"{base}.3"


def test_a_backup_is_called_by_its_time_in_utc_wherever_the_box_is(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert backups.name_of(1_800_000_000.0, "", []) == "20270115-080000"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("calendar", ["hourly", "daily 09:00", "weekly wed 09:00"])
def test_the_newest_time_of_a_calendar_is_a_whole_minute_and_may_be_now(calendar):
    due = dt.datetime(2026, 7, 1, 9, 0, tzinfo=dt.UTC)  # a Wednesday
    assert calendars.last_due(calendar, due) == due
    assert calendars.last_due(calendar, due.replace(minute=7, second=8, microsecond=9)) == due


def test_what_little_is_seen_costs():
    assert cost.rate(cost.LEAST_S, cost.LEAST_S) == 1.0
    assert cost.usd_per_million(2.0, 500_000.0) == 4.0
    found = cost.bill(3600.0, {Account.PRODUCTIVE: 0.25, Account.LOST: 0.75}, 4.0)
    assert [(each.name, each.share, each.usd) for each in found.causes] == [("useful", 0.25, 1.0), ("lost work", 0.75, 3.0)]


@pytest.mark.parametrize(
    ("visible_devices", "found"),
    [
        ("GPU-aa", 0),
        ("GPU-", None),
        ("GPU-a", None),
        ("aa", None),
        ("MIG-GPU-bb/1/0", 1),
        ("MIG-bb", None),
        ("bb-GPU-aa", None),
    ],
)
def test_the_gpu_that_a_uuid_names(visible_devices, found):
    gpus = Gpus((Gpu(0, uuid="GPU-aa1"), Gpu(1, uuid="GPU-bb2"), Gpu(2, uuid="GPU-ac3")))
    assert visible.gpu_seen(visible_devices, 0, gpus) == found


@pytest.mark.parametrize(
    ("state", "live_at_s", "told"),
    [
        ("D", 100.0, "it waits inside the kernel or a driver (state D), where no signal reaches it"),
        ("S", None, "it sends no beats"),
        ("S", 100.0, "its other threads run, so a call in Python, the environment or CUDA never returned"),
        ("S", 50.0, "none of its threads ran for 50s: something holds the GIL"),
    ],
)
def test_what_a_worker_without_progress_does(state, live_at_s, told):
    reading = stall.Reading(now_s=100.0, spawned_at_s=0.0, proc_state=state, live_at_s=live_at_s)
    assert stall._classify(stall.StallSettings(), reading)[2] == told


def test_what_follows_divergence_without_a_checkpoint():
    settings = DivergenceSettings(rollbacks=3)
    none = divergence.after(settings, number=1, newest_step=None, fine_step=None, resumed_step=None)
    assert none == divergence.RollBack(
        None, give_up=False, why="rollback 1 of 3: there is no checkpoint yet; restarts with another random seed"
    )
    some = divergence.after(settings, number=1, newest_step=12_000, fine_step=None, resumed_step=5_000)
    assert (some.from_step, some.why) == (
        12_000, "rollback 1 of 3: checkpoints from step 12,000 on are set aside; restarts with another random seed",
    )  # fmt: skip


def test_a_share_of_entropy_at_its_edges():
    settings = health.HealthSettings()
    low, lost = settings.entropy_share, health.Returns(0.0, 1.0, 0.0, 0.1)
    assert health.collapsed(settings, lost, share=2.0 * low) is False
    assert health.collapsed(settings, lost, share=1.999 * low) is None
    assert health.collapsed(settings, lost, share=low) is None
    assert health.collapsed(settings, lost, share=0.999 * low) is True


def test_what_speaks_for_the_oom_killer():
    assert (
        out_of_memory.oom_kill(line="", oom_kills=(3, 4), accounted=None)
        == "it acted in a cgroup that the worker shares, while it ran"
    )
    assert out_of_memory.accounted_after(None, 7, killed=True) == 7
    assert out_of_memory.accounted_after((3, 3), None, killed=False) == 3


def test_a_rule_that_could_not_look_keeps_its_time_for_a_minute():
    old = StandingObjection(since_s=0.0, present=1, seen_s=100.0)
    for now_s, kept in ((160.0, {"pressure": old}), (160.1, {})):
        found = prechecks.weigh(
            SETTINGS, [], present=1, now_s=now_s, vetoes={}, held={"pressure": old}, unseen=frozenset({"pressure"})
        )
        assert found == ((), kept)
