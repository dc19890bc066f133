"""Pre-checks: each rule with a reading that objects, one that does not, and none; and how vetoes come and go."""

from dataclasses import replace

import pytest

from supervisor.policy.box.prechecks import (  # fmt: skip
    BoxReadings,
    Change,
    Need,
    Objection,
    PrecheckSettings,
    Rung,
    StandingObjection,
    blind,
    objections,
    unseen,
    weigh,
)
from supervisor.policy.box.readings import Gpu, Gpus, Host

MB = 2**20
LADDER = (Rung("light", 2), Rung("medium", 4), Rung("heavy", 8))
SETTINGS = PrecheckSettings()


def of(**gpu):
    return BoxReadings(LADDER, 1, Gpus((Gpu(0, **gpu),)))


def on(**host):
    return BoxReadings(LADDER, 1, host=Host(**host))


def needing(count, gpu_mb=None, host_mb=None, *, index=0):
    per = [None if mb is None else mb * MB for mb in (gpu_mb, host_mb)]
    return tuple(Need(index, (per[0],) * 3, (per[1],) * 3) for _ in range(count))


def found(box):
    return [(each.rule, each.cap, each.why) for each in objections(SETTINGS, box)]


def test_nothing_is_known_and_nothing_objects():
    for box in (
        BoxReadings(LADDER, 1),
        BoxReadings(LADDER, 1, Gpus(None, "hung", 9.0), Host()),
        of(),
        BoxReadings(LADDER, 1, Gpus(())),
    ):
        assert objections(SETTINGS, box) == ()


SLOW = ("hw_slowdown", "hw_power_brake")
SICK = {"temperature_c": 88.0, "slowdown_c": 90.0, "reasons": SLOW, "lost": "no answer", "ecc_errors": 1200}


@pytest.mark.parametrize(
    ("box", "told"),
    [
        (of(temperature_c=87.0, slowdown_c=90.0), [("gpu_temperature", 1, "GPU 0 is at 87 C and slows down at 90 C")]),
        (of(reasons=("sw_thermal_slowdown",)), [("gpu_temperature", 1, "GPU 0 is slowed down because of heat")]),
        (of(reasons=("sw_power_cap", "hw_power_brake")), [("gpu_slowdown", 0, "the hardware slows GPU 0 down (hw_power_brake)")]),
        (of(ecc_errors=1), [("gpu_errors", 1, "GPU 0 has 1 uncorrected memory errors")]),
        (BoxReadings(LADDER, 2, Gpus((Gpu(0, **SICK), Gpu(1, **SICK), Gpu(2))), xids=(79, 31, 48)), [
            ("gpu_xid", 2, "the driver reported Xid 48, 79"),
            ("gpu_temperature", 2, "GPU 0 is at 88 C and slows down at 90 C; GPU 1 is at 88 C and slows down at 90 C"),
            ("gpu_slowdown", 1, "; ".join(f"the hardware slows GPU {n} down (hw_power_brake, hw_slowdown)" for n in (0, 1))),
            ("gpu_lost", 2, "GPU 0 does not answer (no answer); GPU 1 does not answer (no answer)"),
            ("gpu_errors", 2, "GPU 0 has 1,200 uncorrected memory errors; GPU 1 has 1,200 uncorrected memory errors"),
        ]),
        (on(memory_full=5.0), [("pressure", 1, "every process waited for memory during 5 % of a minute")]),
        (on(memory_full=1.0, io_full=50.0), [("pressure", 1, "every process waited for the disk during 50 % of a minute")]),
        (on(memory_full=6.4, io_full=60.0, disk_free_bytes=500 * MB - 1), [
            ("pressure", 1, "every process waited for memory during 6 % of a minute"),
            ("disk", 1, "only 500 MiB are free on the disk of the state directory"),
        ]),
        (on(swap_bytes=1000, swap_free_bytes=49, memory_bytes=1000, available_bytes=99),
            [("swap", 1, "swap is used up, and less than a tenth of the memory is left")]),
        (BoxReadings(LADDER, 1, save_error="[Errno 122] Disk quota exceeded"),
            [("disk", 1, "a checkpoint could not be written: [Errno 122] Disk quota exceeded")]),
        (on(cores=1), [("cores", 1, "heavy has 8 programs for 1 core")]),
        (BoxReadings((*LADDER, Rung("beast", 13)), 2, host=Host(cores=3)), [("cores", 2, "beast has 13 programs for 3 cores")]),
        (BoxReadings(LADDER, 0, Gpus((Gpu(0, reasons=("hw_slowdown",)),)), Host(cores=0)), [  # the lowest level stays
            ("gpu_slowdown", 0, "the hardware slows GPU 0 down (hw_slowdown)"), ("cores", 0, "medium has 4 programs for 0 cores"),
        ]),
    ],
)  # fmt: skip
def test_what_objects(box, told):
    assert found(box) == told


@pytest.mark.parametrize(
    "box",
    [
        of(temperature_c=86.9, slowdown_c=90.0), of(temperature_c=95.0), of(slowdown_c=90.0), of(ecc_errors=0),
        of(reasons=("sw_power_cap", "idle")), BoxReadings(LADDER, 1, xids=(13, 31, 43, 45)),
        on(swap_bytes=1000, swap_free_bytes=50, memory_bytes=1000, available_bytes=99),
        on(memory_full=4.9, io_full=49.9), on(swap_bytes=1000, swap_free_bytes=49, memory_bytes=1000, available_bytes=100),
        on(swap_bytes=0, swap_free_bytes=0, memory_bytes=1000, available_bytes=9), on(disk_free_bytes=500 * MB), on(cores=2),
    ],
)  # fmt: skip
def test_what_does_not(box):
    assert objections(SETTINGS, box) == ()


FIFTEEN = Gpus((Gpu(0, free_bytes=15_000 * MB), Gpu(1, free_bytes=8 * MB - 1), Gpu(2)))
OURS = {0: 20_000 * MB}


@pytest.mark.parametrize(
    ("present", "needs", "ours", "told"),
    [
        # Four at medium hold 5,000 MiB each; eight at heavy need 40,000 at least, and 15,000 + 20,000 are for us.
        (1, (*needing(8, 5_000), *needing(1, 9, index=2)), OURS, [(1, "heavy needs 40,000 MiB of GPU 0, but only 35,000 MiB are available")]),
        (0, needing(8, 20_000), {}, [(0, "medium needs 80,000 MiB of GPU 0, but only 15,000 MiB are available")]),
        (1, needing(8, 5_000), {0: 25_000 * MB}, []),
        (1, needing(8, 5_000), {0: 25_000 * MB - 1}, [(1, "heavy needs 40,000 MiB of GPU 0, but only 40,000 MiB are available")]),
        (1, needing(9, 5_000), {0: 25_000 * MB}, []),  # eight of nine run there
        (1, needing(8, 1, index=1), {}, [(1, "heavy needs 8 MiB of GPU 1, but only 8 MiB are available")]),
        (1, needing(8, 5_000), {0: None}, []),  # what our own workers hold is not known
        (1, needing(8), {}, []),  # what nobody has seen is not guessed
    ],
)  # fmt: skip
def test_a_level_whose_programs_hold_more_than_the_gpu_has_for_us(present, needs, ours, told):
    box = BoxReadings(LADDER, present, FIFTEEN, needs=needs, ours_gpu_bytes=ours)
    assert found(box) == [("gpu_memory", *each) for each in told]


def test_a_budget_that_no_gpu_here_can_hold():
    ladder = (*LADDER, Rung("beast", 8, memory_bytes=90_000 * MB))
    needs = tuple(Need(0, (None,) * 4, (None,) * 4) for _ in range(8))
    gpus = Gpus((Gpu(3), Gpu(0, free_bytes=80_000 * MB)))  # the first one tells nothing
    (only,) = objections(SETTINGS, BoxReadings(ladder, 0, gpus, needs=needs))
    assert (only.rule, only.cap) == ("gpu_memory", 2)


@pytest.mark.parametrize(
    ("present", "needs", "ours_mb", "told"),
    [
        (0, needing(8, None, 500), 900, [(0, "medium needs 2,000 MiB of memory, but only 1,900 MiB are available")]),
        (1, needing(8, None, 500), 2_000, [(1, "heavy needs 4,000 MiB of memory, but only 3,000 MiB are available")]),
        (1, needing(8, None, 500), 3_000, []),
        (0, (*needing(2, None, 500), *needing(6)), 0, []),
    ],
)
def test_a_level_whose_programs_hold_more_than_the_host_has_for_us(present, needs, ours_mb, told):
    host = Host(available_bytes=1_000 * MB)
    box = BoxReadings(LADDER, present, host=host, needs=needs, ours_host_bytes=ours_mb * MB)
    assert found(box) == [("host_memory", *each) for each in told]


HOT = Objection("gpu_temperature", 1, "GPU 0 is at 88 C")
DISK = Objection("disk", 1, "9 MiB are left")


def test_heat_counts_once_it_lasts_and_is_lifted_half_an_hour_after_its_last_sign():
    vetoes, held, told = {}, {}, []
    for second in range(4000):
        changes, held = weigh(
            SETTINGS, [HOT] if second < 100 or second == 500 else [], present=1, now_s=second, vetoes=vetoes, held=held
        )
        for change in changes:
            told.append((second, change.cap))
            vetoes = {} if change.cap is None else {change.rule: change.cap}
    assert told == [(30, 1), (501 + 1800, None)]
    assert held == {}


def test_what_is_sure_counts_at_once_and_once():
    changes, held = weigh(SETTINGS, [DISK], present=1, now_s=5.0, vetoes={}, held={})
    assert changes == (Change("disk", 1, "9 MiB are left"),)
    assert held == {"disk": StandingObjection(5.0, 1, seen_s=5.0, read_s=5.0)}
    assert weigh(SETTINGS, [DISK], present=1, now_s=6.0, vetoes={"disk": 1}, held=held)[0] == ()


def test_heat_that_is_left_after_a_step_down_does_not_push_again_at_once():
    slow = Objection("gpu_slowdown", 0, "the hardware slows GPU 0 down")
    held = {"gpu_slowdown": StandingObjection(0.0, 2)}
    changes, held = weigh(SETTINGS, [slow], present=1, now_s=100.0, vetoes={"gpu_slowdown": 1}, held=held)
    assert changes == ()
    changes, held = weigh(SETTINGS, [slow], present=1, now_s=160.0, vetoes={"gpu_slowdown": 1}, held=held)
    assert changes == (Change("gpu_slowdown", 0, slow.why),), "it is too hot there too"


# --- readings that are missing ----------------------------------------------------------------------------------------------


def heat(missing, until_s=400):
    """The first second of a veto, where heat that lasts cannot be read in the seconds `missing`."""
    held = {}
    for second in range(until_s):
        blind = missing(second)
        changes, held = weigh(
            SETTINGS, [] if blind else [HOT], present=1, now_s=second, vetoes={}, held=held,
            unseen={"gpu_temperature"} if blind else (),
        )  # fmt: skip
        if changes:
            return second
    return None


def test_heat_lasts_over_looks_that_lack_its_reading():
    assert heat(lambda _: False) == 30
    assert heat(lambda second: second % 3 == 0) == 31, "from its first look, at second 1"
    assert heat(lambda second: 5 < second < 66) == 66
    assert heat(lambda second: second > 5) is None, "what is not seen any more is no veto"
    assert heat(lambda second: 5 < second < 67) == 97, "after more than a minute it is another heat"


def lifted(missing, until_s, *, step_s=10, held=None):
    """When and why a veto is lifted whose reason is gone, where no reading says so at the times `missing`."""
    vetoes = {"gpu_temperature": 1}
    held = {"gpu_temperature": StandingObjection(0.0, 1, seen_s=0.0, read_s=0.0)} if held is None else held
    for now_s in range(step_s, until_s, step_s):
        unread = {"gpu_temperature"} if missing(now_s) else set()
        changes, held = weigh(SETTINGS, [], present=1, now_s=now_s, vetoes=vetoes, held=held, blind=unread)
        if changes:
            (change,) = changes
            assert (change.rule, change.cap) == ("gpu_temperature", None)
            assert "gpu_temperature" not in held
            return now_s, change.why
    return None


GONE = "the reason has been gone for 30m"


def test_a_missing_reading_does_not_show_that_the_reason_of_a_veto_is_gone():
    assert lifted(lambda _: False, 9000) == lifted(lambda _: False, 9000, held={}) == (1810, GONE)
    assert lifted(lambda now_s: now_s % 30 == 0, 9000) == (1810, GONE), "one look in three fails"
    assert lifted(lambda now_s: now_s < 1000, 9000) == (2800, GONE), "the time begins with the first reading"
    assert lifted(lambda now_s: 1500 < now_s <= 1600, 9000) == (3410, GONE), "after more than a minute it begins anew"
    assert lifted(lambda now_s: now_s > 1700, 80_000) is None
    assert lifted(lambda now_s: 1800 < now_s < 1850, 9000) == (1850, GONE), "nothing is lifted at a look without a reading"


def test_a_veto_without_readings_for_a_day_is_lifted():
    """A sensor that is lost for ever keeps the box at a low level for a day, not for ever; also after a daemon's restart."""
    day = 86_400
    assert lifted(lambda _: True, day + 1000) == (day, "no reading for 1d")
    assert lifted(lambda _: True, day + 1000, held={}) == (day + 10, "no reading for 1d")
    assert lifted(lambda now_s: now_s > 500, day + 9000) == (day + 500, "no reading for 1d")


def test_which_rules_can_judge_nothing():
    whole = Gpu(0, temperature_c=60.0, reasons=())
    host = Host(memory_full=0.0, io_full=0.0, swap_free_bytes=0, available_bytes=1, disk_free_bytes=1)
    assert blind(BoxReadings(LADDER, 1, Gpus((whole,)), host)) == set()
    assert blind(BoxReadings(LADDER, 1, Gpus((Gpu(0, reasons=()),)), host)) == set(), "it is not slowed by heat"
    assert blind(BoxReadings(LADDER, 1, Gpus((whole, Gpu(1, temperature_c=60.0))), host)) == {"gpu_slowdown"}
    assert blind(BoxReadings(LADDER, 1, Gpus((whole, Gpu(1))), host)) == {"gpu_temperature", "gpu_slowdown"}
    gpu_rules = {"gpu_temperature", "gpu_slowdown", "gpu_lost", "gpu_errors", "gpu_xid"}
    assert blind(BoxReadings(LADDER, 1, Gpus(None, "hung"), host)) == gpu_rules
    assert blind(BoxReadings(LADDER, 1)) == {"pressure", "swap", "disk"}
    assert blind(BoxReadings(LADDER, 1, None, Host(io_full=0.0, available_bytes=1))) == {"swap", "disk"}


def test_which_rules_could_not_look():
    whole = Gpu(0, temperature_c=60.0, reasons=())
    host = Host(memory_full=0.0, io_full=0.0, swap_free_bytes=0, available_bytes=1)
    assert unseen(BoxReadings(LADDER, 1, Gpus((whole,)), host)) == set()
    assert unseen(BoxReadings(LADDER, 1, Gpus((Gpu(0, reasons=()),)), host)) == {"gpu_temperature"}
    assert unseen(BoxReadings(LADDER, 1, Gpus((Gpu(0, temperature_c=60.0),)), host)) == {"gpu_temperature", "gpu_slowdown"}
    assert unseen(BoxReadings(LADDER, 1, Gpus(None, "hung"), host)) == {"gpu_temperature", "gpu_slowdown"}
    assert unseen(BoxReadings(LADDER, 1)) == {"pressure", "swap"}
    for one_of_two, rule in (
        ("memory_full", "pressure"), ("io_full", "pressure"), ("swap_free_bytes", "swap"), ("available_bytes", "swap"),
    ):  # fmt: skip
        assert unseen(BoxReadings(LADDER, 1, host=replace(host, **{one_of_two: None}))) == {rule}
