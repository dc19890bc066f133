"""What is recorded, how rows are folded, and how curves are drawn of them."""

import random
from dataclasses import replace

import pytest
from core_kit import WALL_S, Core, gpu, gpus, settings
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.recorder.page import curves_view, with_own
from supervisor.features.recorder.rules.readings import readings
from supervisor.features.recorder.rules.recording import (
    FIGURES_OF_ITS_OWN,
    GPUS,
    HOST,
    MOST_OF_ITS_OWN,
    PROGRAMS,
    Row,
    as_places,
    by_name,
    folded,
    in_periods,
    tag_of,
    tracks_of,
)  # fmt: skip
from supervisor.policy.box.readings import Gpus, Host, InPhase, Spread
from workers.contract import FIGURES


def row(at_s=0.0, token="a" * 8, readings=1, **values):
    return Row(at_s, WALL_S + at_s, ("Pong", token), ("RUNNING", "training", "light"), values, readings)


def point(steps, token, resumed=None):
    return row(0.0, token, env_steps=steps, resumed_step=resumed)


def kept_of(rows):
    return [verdict for track in tracks_of(PROGRAMS, rows).values() for verdict in (each.kept for each in track.fates())]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("mean_return", "play/mean_return"),
        ("steps_per_s", "speed/steps_per_s"),
        ("share_env", "time/env"),
        ("loss", "learn/loss"),
    ],
)
def test_a_series_has_the_tag_under_which_workers_draw_it(name, tag):
    assert tag_of(name) == tag


# --- the sheets --------------------------------------------------------------------------------------------------------


def test_every_figure_of_a_worker_is_a_series_unless_facts_have_it():
    recorded = {series.name for series in PROGRAMS.series}
    assert {*FIGURES} - recorded == {
        "target", "ckpt_step", "ckpt_ns", "ckpt_count", "ckpt_bad_count", "q_bound", "first_return", "best_spread",
    }  # fmt: skip


# --- folding -----------------------------------------------------------------------------------------------------------


def test_of_measurements_least_mean_and_most_are_kept_and_of_counts_the_newest():
    found = folded(
        PROGRAMS, 60.0,
        [row(60.0, env_steps=100, loss=1.0), row(70.0, env_steps=None, loss=4.0), row(80.0, env_steps=300, loss=None)],
    )  # fmt: skip
    assert found.values["loss"] == Spread(1.0, 2.5, 4.0)
    assert found.values["env_steps"] == 300
    assert (found.at_s, found.wall_s, found.readings) == (60.0, WALL_S + 80.0, 3)
    assert "entropy" not in found.values, "what nobody knows is not zero"


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=60), st.integers(1, 59))
def test_folding_twice_is_folding_once(losses, cut):
    rows = [row(float(at), loss=loss) for at, loss in enumerate(losses)]
    cut = min(cut, len(rows) - 1)
    once = folded(PROGRAMS, 0.0, rows).values["loss"]
    twice = folded(PROGRAMS, 0.0, [folded(PROGRAMS, 0.0, part) for part in (rows[:cut], rows[cut:])]).values["loss"]
    assert (twice.least, twice.most) == (once.least, once.most)
    assert twice.mean == pytest.approx(once.mean, rel=1e-9, abs=1e-3)


def test_of_several_attempts_the_newest_stands_for_all_and_the_lowest_beginning_counts():
    rows = [point(5000, "a", 100), point(4500, "b", 4000), point(4600, "c", 4500)]
    found = folded(PROGRAMS, 0.0, rows)
    assert (found.keys, found.values["env_steps"], found.values["resumed_step"]) == (("Pong", "c"), 4600, 100)
    again = folded(PROGRAMS, 0.0, rows[1:])
    assert kept_of([point(4400, "a", 100), again]) == [False, True], "what attempt b took back stays taken back"


def test_a_track_has_the_columns_of_its_rows():
    rows = [row(0.0, "a", loss=Spread(1.0, 2.0, 3.0), entropy=0.5), row(10.0, "b", loss=4.0)]
    sheet = PROGRAMS.only({"loss", "entropy"})
    track = tracks_of(sheet, rows)["Pong",]
    assert (track.at_s, track.wall_s) == ([0.0, 10.0], [WALL_S, WALL_S + 10.0])
    assert (track.keys, track.words) == ([("Pong", "a"), ("Pong", "b")], [rows[0].words] * 2)
    assert track.values == {"loss": [2.0, 4.0], "entropy": [0.5, None]}
    assert track.ends == {"loss": ([1.0, 4.0], [3.0, 4.0])}
    assert track.first() == rows[0]._replace(values={"loss": 2.0, "entropy": 0.5})
    first, second = ([*tracks_of(sheet, [each]).values()] for each in rows)
    assert second[0].after(first[0]) == track


@pytest.mark.parametrize(("by_attempt", "kl"), [(True, [None, 2.0]), (False, [0.5, 2.0])])
def test_where_attempts_share_a_row_so_do_their_figures_of_own_names(by_attempt, kl):
    """The attempt that reported kl in the first period was not the newest one of that period."""
    tracks = tracks_of(PROGRAMS.only({"env_steps"}), [row(0.0, "b"), row(60.0, "b")])
    own = [
        as_places(0.0, 0.0, "Pong", "a", 1, {"kl": 0.5}), as_places(60.0, 0.0, "Pong", "b", 1, {"kl": 2.0}),
        as_places(90.0, 0.0, "Pong", "b", 1, {"kl": 9.0}), as_places(0.0, 0.0, "Qbert", "q", 1, {"kl": 1.0}),
    ]  # fmt: skip
    with_own(tracks, tracks_of(FIGURES_OF_ITS_OWN, own), ["kl", "lr"], by_attempt=by_attempt)
    assert tracks["Pong",].values == {"env_steps": [None, None], "kl": kl, "lr": [None, None]}


# --- what is recorded --------------------------------------------------------------------------------------------------


def recorded(core):
    return readings(core.state, core.memory, now_s=core.now_s, wall_s=WALL_S)


def test_a_running_program_is_recorded_with_its_figures_and_a_stopped_one_is_not():
    core = Core(settings("Pong", "Qbert", slots=2)).running("Pong", "Qbert")
    core.look(Pong={"steps": 1000, "loss": 0.5, "updates": 10.0}, Qbert={"steps": 7})
    core.ask("stop", "Qbert")
    core.ended("Qbert", code=75)
    (found,) = recorded(core)["programs"]
    attempt = core.state.programs["Pong"].attempt
    assert found.keys == ("Pong", attempt.token)
    assert found.words[2] == "light"
    assert (found.values["env_steps"], found.values["loss"], found.values["updates"]) == (1000, 0.5, 10.0)
    assert found.values["attempt"] == attempt.number
    assert found.values.get("entropy") is None


def test_what_was_read_of_a_worker_is_recorded_under_the_name_of_its_series():
    told = {
        "frames": 4000, "episodes": 3, "nan_count": 2, "steps_per_s": 336.0, "rss_bytes": 5, "cuda_bytes": 6, "num_envs": 8,
        "batch_size": 32, "memory_bytes": 7,
    }  # fmt: skip
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"steps": 1000, **told})
    (found,) = recorded(core)["programs"]
    assert {name: found.values.get(name) for name in told} == told
    assert {"attempt", "resumed_step", "env_steps"} <= {*found.values} <= {series.name for series in PROGRAMS.series}
    assert found.words == ("RUNNING", "training", core.state.level)


def test_figures_of_other_names_have_a_row_and_are_found_again_by_name():
    core = Core(settings("Pong", "Qbert", slots=2)).running("Pong", "Qbert")
    core.look(Pong={"steps": 1000, "loss": 0.5, "share_env": 1.0, "success_rate": 0.25, "kl": 2.0}, Qbert={"loss": 1.0})
    (found,) = recorded(core)["figures"]
    assert found.keys == ("Pong", "kl\nsuccess_rate", core.state.programs["Pong"].attempt.token)
    assert by_name(found) == {"kl": 2.0, "success_rate": 0.25}
    later = found._replace(values={"env_steps": 3000.0, "value0": 4.0})
    assert by_name(folded(FIGURES_OF_ITS_OWN, 0.0, [found, later])) == {"kl": 3.0, "success_rate": 0.25}
    many = as_places(0.0, 0.0, "Pong", "a", None, {f"x{number:03}": 1.0 for number in range(200)})
    assert len(by_name(many)) == MOST_OF_ITS_OWN


def test_nothing_is_recorded_of_a_host_or_gpus_that_nobody_has_looked_at():
    core = Core(settings("Pong"))
    core.memory = replace(core.memory, host=None, gpus=None)
    assert recorded(core) == {"programs": [], "figures": [], "host": [], "gpus": []}
    core.memory = replace(core.memory, gpus=Gpus(None, error="no driver"))
    assert recorded(core)["gpus"] == []


def test_the_host_and_each_gpu_with_its_phases():
    core = Core(settings("Pong"))
    phases = (InPhase("acting", 3, Spread(1.0, 2.0, 3.0), None),)
    core.memory = replace(
        core.memory, host=Host(available_bytes=5, io_full=1.5, cpu_busy=62.5),
        gpus=gpus(
            gpu(0, free_mb=30_000, utilisation=80.0, reasons=("hw_slowdown", "sw_power_cap"), by_phase=phases),
            replace(gpu(1), uuid="", lost="fell off the bus"),
        ),
    )  # fmt: skip
    found = recorded(core)
    (host,) = found["host"]
    assert (host.values["available_bytes"], host.values["io_full"], host.values["swap_free_bytes"]) == (5, 1.5, None)
    assert host.values["cpu_busy"] == 62.5
    whole, acting, lost = found["gpus"]
    assert (whole.keys, whole.words) == (("GPU-0", ""), ("hw_slowdown sw_power_cap",))
    assert (whole.values["used_bytes"], whole.values["utilisation"]) == (50_000 << 20, 80.0)
    assert (acting.keys, acting.values) == (("GPU-0", "acting"), {"used_bytes": 2.0, "utilisation": None})
    assert (lost.keys, lost.words, lost.values["used_bytes"]) == (("1", ""), ("fell off the bus",), None)
    core.memory = replace(core.memory, gpus=gpus(gpu(0)))
    assert recorded(core)["gpus"][0].words == (None,), "its reasons are not known"


def test_a_rollback_takes_back_more_than_one_attempt():
    rows = [point(1000, "a"), point(2000, "b", 1000), point(3000, "c", 2000), point(1500, "d", 1200)]
    assert kept_of(rows) == [True, False, False, True]
    rows = [point(1000, "a"), point(3000, "b", 1000), point(2000, "c", 2000), point(2500, "d", 2400)]
    assert kept_of(rows) == [True, False, True, True]


def test_without_a_known_beginning_an_attempt_counts_from_its_first_row():
    assert kept_of([point(4000, "a"), point(4400, "a"), point(4200, "b"), point(4600, "b")]) == [True, False, True, True]
    assert kept_of([point(None, "a"), point(5, "b")]) == [True, True]
    assert kept_of([point(4000, "a"), point(None, "b")]) == [True, True]
    assert kept_of([]) == []


# --- curves ------------------------------------------------------------------------------------------------------------


def test_of_a_long_row_the_part_that_was_taken_back_is_lost():
    """The example of `fates`."""
    (pong,) = curves_view(PROGRAMS, tracks_of(PROGRAMS, [point(1000, "a"), point(2000, "a"), point(2500, "b", 1900)]), [])
    assert (pong["env_steps"], pong["kept"], pong["lost"]) == ([1000, 1900, 2500], [True] * 3, [0.0, 100.0, 0.0])
    (pong,) = curves_view(PROGRAMS, tracks_of(PROGRAMS, [point(1000, "a"), point(2000, "a"), point(2500, "b", 1400)]), [])
    assert (pong["env_steps"], pong["kept"], pong["lost"]) == ([1000, 2000, 2500], [True, False, True], [0.0, 600.0, 0.0])


def test_an_attempt_without_steps_yet_takes_back_nothing():
    (track,) = tracks_of(PROGRAMS, [point(1000, "a"), point(2000, "a"), point(None, "b"), point(1700, "b", 1500)]).values()
    assert [each.lost for each in track.fates()] == [0.0, 500.0, None, 0.0]
    (track,) = tracks_of(PROGRAMS, [point(1000, "a"), point(2000, "a"), point(None, "b")]).values()
    assert [each.lost for each in track.fates()] == [0.0, 0.0, None]


READING_S = 600.0


def history(seed):
    """(readings, steps lost of each reading) of one program over some weeks: attempts, of which some resume far back."""
    chance, rows, lost, at_s, end = random.Random(seed), [], [], 0.0, 0
    for number in range(1, chance.randint(2, 40)):
        begin = end if number == 1 else chance.choice((end - 900, end - 20_000, end)) if end > 20_000 else end // 2
        behind = end - begin
        for place in reversed(range(len(rows))):  # the newest steps that are not lost yet
            taken = min(behind, rows[place][1] - lost[place])
            lost[place] += taken
            behind -= taken
        at_s += chance.choice((0.0, 0.0, 7200.0))
        end = begin
        for _ in range(chance.randint(1, 60)):
            at_s, computed = at_s + READING_S, chance.randint(0, 1000)
            end += computed
            known = {"env_steps": end, "resumed_step": begin, "attempt": number, "first_attempt": number}
            rows.append((row(at_s, f"{number:02}", **known), computed))
            lost.append(0)
    return [each for each, _ in rows], lost


@pytest.mark.parametrize("seed", range(30))
def test_what_is_drawn_as_lost_is_what_was_lost_at_every_resolution(seed):
    rows, lost = history(seed)
    hours = [*in_periods(PROGRAMS, 3600.0, rows, by_attempt=True)]
    quarters = [*in_periods(PROGRAMS, 21_600.0, hours, by_attempt=False)]
    days = [*in_periods(PROGRAMS, 86_400.0, quarters, by_attempt=False)]
    joined = [*in_periods(PROGRAMS, 129_600.0, days, by_attempt=False)]
    most = 1000 * len({each.keys for each in rows})  # the way from one reading to the first one of the next row is unknown
    for found, period_s in ((hours, 3600.0), (quarters, 21_600.0), (days, 86_400.0), (joined, 129_600.0)):
        fates = tracks_of(PROGRAMS, found)["Pong",].fates()
        assert sum(fate.lost for fate in fates) == pytest.approx(sum(lost), abs=most)
        assert fates[-1].kept, "the newest attempt"
        steps = [min(fate.end, fate.bound) for fate in fates if fate.kept]
        assert steps == sorted(steps), "the curve over steps never runs back"
        for each, fate in zip(found, fates, strict=True) if found is not joined else ():
            inside = [lost[place] for place, reading in enumerate(rows) if each.at_s <= reading.at_s < each.at_s + period_s
                      and (period_s > 3600.0 or reading.keys == each.keys)]  # fmt: skip
            assert fate.lost == pytest.approx(sum(inside), abs=most)


def test_what_older_rows_of_several_attempts_lost_is_unknown_and_not_drawn_as_lost():
    old = [
        row(at_s, token, env_steps=steps, resumed_step=100, attempt=number)
        for at_s, token, steps, number in (
            (0.0, "a", 5000, 1),
            (1e5, "a", 9000, 1),
            (2e5, "c", 8000, 3),
            (3e5, "c", 9500, 3),
        )
    ]
    (pong,) = curves_view(PROGRAMS, tracks_of(PROGRAMS, old), [])
    assert pong["kept"] == [True] * 4
    assert pong["lost"] == [None, None, None, 0.0], "attempt 1 went on in the second row, but nobody knows when it began"
    again = folded(PROGRAMS, 0.0, [old[0], old[1]._replace(values={**old[1].values, "first_attempt": 1})])
    assert again.values["first_attempt"] is None
    assert again.values["lost_steps"] is None


def test_neighbours_of_a_track_become_one_point():
    rows = [
        row(at_s, token, env_steps=at_s, loss=Spread(at_s - 1, at_s, at_s + 2), entropy=value, attempt=1.0)
        for at_s, token, value in ((0.0, "a", None), (60.0, "a", 2.0), (120.0, "b", 4.0), (300.0, "b", None))
    ]
    found = tracks_of(PROGRAMS.only({"env_steps", "loss", "entropy"}), rows)["Pong",].thinned(PROGRAMS, 180.0)
    assert (found.at_s, found.wall_s) == ([0.0, 180.0], [WALL_S + 120.0, WALL_S + 300.0])
    assert (found.keys, found.words) == ([("Pong", "b")] * 2, [rows[0].words] * 2)
    assert found.values == {"env_steps": [120.0, 300.0], "loss": [60.0, 300.0], "entropy": [3.0, None]}
    assert found.ends == {"loss": ([-1.0, 299.0], [122.0, 302.0])}


@pytest.mark.parametrize("seed", range(10))
def test_what_was_lost_is_the_same_in_neighbours_that_become_one_point(seed):
    track = tracks_of(PROGRAMS, in_periods(PROGRAMS, 3600.0, history(seed)[0], by_attempt=True))["Pong",]
    found = track.thinned(PROGRAMS, 7200.0)
    most = 1000 * len({*track.keys})
    assert sum(fate.lost for fate in found.fates()) == pytest.approx(sum(fate.lost for fate in track.fates()), abs=most)
    assert len(set(found.at_s)) == len(found.at_s) < len(track.at_s)


def test_the_attempts_of_a_program_are_one_curve_and_unknown_stays_unknown():
    rows = [row(0.0, "a", env_steps=1, loss=Spread(1.0, 2.0, 3.0), attempt=1), row(60.0, "b", env_steps=2, attempt=2)]
    (found,) = curves_view(PROGRAMS, tracks_of(PROGRAMS, rows), ["loss", "env_steps"])
    assert found["program"] == "Pong"
    assert "token" not in found
    assert (found["at_s"], found["attempt"], found["env_steps"]) == ([0.0, 60.0], [1, 2], [1, 2])
    assert found["level"] == ["light", "light"]
    assert found["series"] == {
        "env_steps": {"newest": [1, 2]}, "loss": {"least": [1.0, None], "mean": [2.0, None], "most": [3.0, None]},
    }  # fmt: skip


def test_the_host_and_the_phases_of_a_gpu_are_curves_too():
    (found,) = curves_view(HOST, tracks_of(HOST, [Row(0.0, 1.0, (), ("light",), {"io_full": 0.5})]), ["io_full"])
    assert found == {
        "at_s": [0.0], "wall_s": [1.0], "level": ["light"],
        "series": {"io_full": {"least": [0.5], "mean": [0.5], "most": [0.5]}},
    }  # fmt: skip
    rows = [Row(0.0, 1.0, ("GPU-0", phase), (None,), {}) for phase in ("", "acting")]
    assert [each["worker_phase"] for each in curves_view(GPUS, tracks_of(GPUS, rows), ["power_w"])] == ["", "acting"]
