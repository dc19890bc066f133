"""The load policy on a few simulated boxes keeps its figures; seeded, so that each run says the same. bench/load.py has the rest."""

import itertools

import pytest
from simulation.hosts import ARCHETYPES, NEVER, drawn
from simulation.play import DAY_S, Fixed, Play, World, oracle, rates
from simulation.policy_player import PolicyPlayer
from simulation.sensors import Sensors, Shown
from simulation.watched import VetoedPlayer, WatchedPlay

from supervisor.policy.level import load

WEEK = (DAY_S, 7 * DAY_S)


def share(name, seeds=(1, 2), world=World()):  # noqa: B008  frozen
    """Percent of the oracle after a day and after a week, and reboots a week."""
    host, ours, best, reboots = ARCHETYPES[name], [0.0, 0.0], [0.0, 0.0], 0
    for seed in seeds:
        played, known = Play(host, PolicyPlayer(), seed, world).run(WEEK), oracle(host, seed, world, WEEK)
        ours = [a + b for a, b in zip(ours, played.work, strict=True)]
        best = [a + b for a, b in zip(best, known.work, strict=True)]
        reboots += played.reboots[-1]
    return 100 * ours[0] / best[0], 100 * ours[1] / best[1], reboots / len(seeds)


@pytest.mark.parametrize(
    ("name", "day", "week", "reboots"),
    [("seed", 92, 95, 70), ("seedeps", 90, 96, 10), ("robust", 96, 99, 0), ("fixed", 88, 96, 30), ("diurnal", 90, 93, 130)],
)
def test_the_figures_of_a_week(name, day, week, reboots):
    first, whole, times = share(name)
    assert first > day
    assert whole > week
    assert times <= reboots


def test_readings_that_are_noisy_or_missing_cost_little():
    assert share("smooth", world=World(noise=0.25))[1] > 93
    assert share("seed", world=World(missing=1.0))[1] > 90


def test_reboots_that_are_mislabelled_cost_little():
    assert share("seed", world=World(mislabelled=0.1, unrelated_h=24.0))[1] > 92


def test_the_same_seed_gives_the_same_week():
    one, two = (Play(drawn(7), PolicyPlayer(), 3, World()).run((2 * DAY_S,)) for _ in range(2))
    assert one == two


# --- the simulator itself ------------------------------------------------------------------------------------------------


def test_a_box_that_never_reboots_keeps_all_work_of_a_fixed_level():
    played = Play(ARCHETYPES["robust"], Fixed(5), 1, World()).run((DAY_S,))
    assert played.work[0] == pytest.approx(2.5 * DAY_S)
    assert played.reboots == [0]


def test_a_fixed_level_is_worth_what_the_formula_says():
    """One reboot in 3 h at level 6, intervals of 5 min, 3.5 min down, a penalty of 5: 94.0 % is kept."""
    assert rates(ARCHETYPES["seed"], World())[0][4] == pytest.approx(2.1 * 0.940, rel=0.01)


def test_a_box_that_wears_out_dies_on_time():
    played = Play(ARCHETYPES["seed"], Fixed(5), 1, World()).run((DAY_S,))
    gaps_min = [(b - a) / 60 for (a, _), (b, _) in itertools.pairwise(played.deaths)]
    assert 58 <= len(gaps_min) <= 82, "as many as fit into a day"
    assert all(0.86 * 17.5 + 2.4 < gap < 1.14 * 17.5 + 4.6 for gap in gaps_min)


def test_the_plug_is_pulled_without_blame():
    class Told(Fixed):
        def reboot(self, at_s, up_s, weight):
            weights.append(weight)
            return self.level

    weights = []
    Play(ARCHETYPES["robust"], Told(2), 1, World(unrelated_h=2.0)).run((5 * DAY_S,))
    assert 40 < len(weights) < 85
    assert set(weights) == {0.0}


def test_regimes_change_once_or_every_day():
    assert ARCHETYPES["degrade"].regime(0.0) == (0, pytest.approx(4.3 * DAY_S))
    assert ARCHETYPES["degrade"].regime(5 * DAY_S) == (1, NEVER)
    daily = ARCHETYPES["diurnal"]
    assert [daily.regime(DAY_S + hour * 3600.0)[0] for hour in (0, 9.9, 10, 19.9, 20, 23.9)] == [0, 0, 1, 1, 0, 0]
    assert daily.regime(DAY_S + 21 * 3600.0)[1] == 2 * DAY_S


def test_the_oracle_changes_with_the_box_and_nobody_beats_it_for_long():
    host = ARCHETYPES["degrade"]
    played = oracle(host, 1, World(), (7 * DAY_S,))
    assert played.path == [(0.0, 5), (pytest.approx(4.3 * DAY_S), 4)]
    for level in range(6):
        assert Play(host, Fixed(level), 1, World()).run((7 * DAY_S,)).work[0] <= played.work[0]


def test_fresh_boxes_differ_and_come_back():
    boxes = [drawn(seed) for seed in range(60)]
    assert len({box.speeds for box in boxes}) == 60
    assert boxes == [drawn(seed) for seed in range(60)]
    assert {len(box.regimes) for box in boxes} == {1, 2}
    assert any(box.daily for box in boxes)
    assert all(hours > 0 for box in boxes for regime in box.regimes for hours in (*regime.mtbf_h, *regime.wear_min))


# --- readings of the GPU --------------------------------------------------------------------------------------------------


def watched(name, sensors, days=3, seeds=(1, 2)):
    """Percent of the oracle, and vetoes by rule."""
    marks_s, ours, best, vetoes = (days * DAY_S,), 0.0, 0.0, {}
    for seed in seeds:
        checked = VetoedPlayer()
        ours += WatchedPlay(ARCHETYPES[name], checked, seed, World(), sensors).run(marks_s).work[0]
        best += oracle(ARCHETYPES[name], seed, World(), marks_s).work[0]
        vetoes |= checked.vetoed
    return 100 * ours / best, vetoes


def test_a_hot_box_is_vetoed_by_its_readings_and_loses_no_work_by_it():
    blind = watched("overheat", Sensors(missing=1.0))
    seen, vetoes = watched("overheat", Sensors())
    assert blind[1] == {}
    assert set(vetoes) == {"gpu_temperature", "gpu_slowdown"}
    assert seen > blind[0]


@pytest.mark.parametrize("sensors", [Sensors(missing=1 / 3), Sensors(gap_h=6.0, between_h=6.0), Sensors(missing=1.0)])
@pytest.mark.parametrize("name", ["seed", "overheat"])
def test_gpu_readings_that_are_missing_cost_no_more_than_having_none(name, sensors):
    none = share(name, world=World())[1]
    assert watched(name, sensors, days=7)[0] > none - 2.0


def test_a_box_that_is_cool_is_never_vetoed_whatever_is_missing():
    without = Play(ARCHETYPES["robust"], PolicyPlayer(), 1, World()).run((DAY_S,)).work[0]
    for sensors in (Sensors(), Sensors(missing=0.5, gap_h=1.0, between_h=1.0)):
        checked = VetoedPlayer()
        assert WatchedPlay(ARCHETYPES["robust"], checked, 1, World(), sensors).run((DAY_S,)).work[0] == pytest.approx(
            without
        )
        assert checked.vetoed == {}


def test_no_reading_of_a_cool_box_speaks_against_anything():
    """What `WatchedPlay` passes over is what the pre-checks would have said nothing to."""
    shown = Shown(Sensors(), 1)
    for level in range(6):
        checked = VetoedPlayer()
        checked.begin()
        checked.state = load.placed(checked.state, level)
        assert not checked.look(shown, 0.0, 0.6)
        assert checked.objected == {}
