"""Human-normalised scores: the table, and what is made of it."""

import pytest

from workers import options, scores

# The ten of the README, (random, human) of Wang et al. 2016.
TEN = {
    "MsPacman": (307.3, 6951.6), "BeamRider": (363.9, 16926.5), "Asteroids": (719.1, 47388.7), "Enduro": (0.0, 860.5),
    "Pong": (-20.7, 14.6), "Freeway": (0.0, 29.6), "SpaceInvaders": (148.0, 1668.7), "Seaquest": (68.4, 42054.7),
    "Breakout": (1.7, 30.5), "Qbert": (163.9, 13455.0),
}  # fmt: skip


def test_the_57_games_are_named_as_we_name_them_and_a_human_beats_chance():
    assert len(scores.REFERENCES) == 57
    assert set(scores.REFERENCES) <= set(options.GAMES)
    assert all(random < human for random, human in scores.REFERENCES.values())


@pytest.mark.parametrize("game", TEN)
def test_the_ten_of_the_readme(game):
    random, human = TEN[game]
    assert scores.REFERENCES[game] == (random, human)
    assert scores.human_normalised(game, random) == 0.0
    assert scores.human_normalised(game, human) == 1.0


def test_the_worked_example_and_a_game_that_nobody_measured():
    assert scores.human_normalised("Breakout", 401.2) == pytest.approx(13.87, abs=0.005)
    assert scores.human_normalised("Catch", 1.0) is None
