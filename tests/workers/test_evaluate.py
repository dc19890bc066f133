"""Test games in the middle of a training: when they are due, what is kept of them, and that nothing else notices them."""

import hashlib
import os
import threading

import pytest
from learners import learner, settings

from workers import contract, envs, evaluate, results, run
from workers.contract import Client, WorkerPhase
from workers.evaluate import EvaluationGames
from workers.listen import PendingRequests

GAMES = 5
CATCH = {
    "num_envs": 8, "batch_size": 32, "n_steps": 8, "threads": 1, "learning_starts": 200, "replay_size": 2_000,
    "replay_ratio": 1.0, "num_test_episodes": GAMES, "tensorboard": False,
}  # fmt: skip


def train(where, client=None, **changes):
    """A run of its own in the directory `runs/Catch` below `where`, from whatever is there."""
    os.chdir(where)
    return run.run(settings("Catch", **{**CATCH, **changes}), client or Client({}), PendingRequests())


@pytest.fixture(autouse=True)
def _back(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def recorded(where):
    return results.evaluations(results.read(where / "runs" / "Catch" / results.RESULTS_FILE))


def learned(where):
    """Digests of what was learned: every file of the newest checkpoint that holds tensors."""
    newest = max(
        (where / "runs" / "Catch" / contract.CHECKPOINTS_DIR).iterdir(),
        key=lambda p: contract.parse_checkpoint_name(p.name)[0],
    )
    return newest.name.split(".")[0], [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.iterdir()) if "tensors" in path.suffix
    ]


class Leaving(Client):
    """Asked to leave while it plays test games, after so many steps of them."""

    def __init__(self, after, phase=WorkerPhase.EVALUATING):
        super().__init__({})
        self.after, self.wanted, self.now = after, phase, None

    def phase(self, phase, **counters):
        self.now = phase
        super().phase(phase, **counters)

    def progress(self, **counters):
        if self.now is self.wanted:
            self.after -= 1
            self.leave_wanted = self.after < 0
        super().progress(**counters)


class Dying(Leaving):
    """Killed there instead: nothing is saved."""

    def progress(self, **counters):
        super().progress(**counters)
        if self.leave_wanted:
            raise KeyboardInterrupt


class DyingWithFastDisk(Dying):
    """Killed there, and what was being saved is on disk before each further step of the test games."""

    def progress(self, **counters):
        if self.now is self.wanted:
            for thread in threading.enumerate():
                if thread.name == "checkpoint":
                    thread.join()
        super().progress(**counters)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_a_tested_learner_equals_one_that_never_was(tmp_path, algo):
    (tmp_path / "tested").mkdir()
    (tmp_path / "plain").mkdir()
    assert train(tmp_path / "tested", algo=algo, steps=1600, test_period=500) == contract.EXIT_DONE
    assert train(tmp_path / "plain", algo=algo, steps=1600, num_test_episodes=0) == contract.EXIT_DONE
    assert learned(tmp_path / "tested") == learned(tmp_path / "plain")
    assert len(learned(tmp_path / "plain")[1]) == 1
    steps = [found.first.env_steps for found in recorded(tmp_path / "tested")]
    # The rollouts of ppo are 64 steps: tested is at the first moment of rest.
    assert steps == ([504, 1000, 1504, 1600] if algo == "dqn" else [512, 1024, 1536, 1600])
    assert all(found.whole and len(found.rows) == GAMES for found in recorded(tmp_path / "tested"))
    assert not recorded(tmp_path / "plain")


def test_what_is_recorded(tmp_path):
    assert train(tmp_path, steps=200, seed=4) == contract.EXIT_DONE
    (found,) = recorded(tmp_path)
    row = found.first
    assert (row.program, row.game, row.algo, row.seed, row.resolution) == ("Catch", "Catch", "dqn", 4, 84)
    assert (row.env_steps, row.frames, row.length, row.games, row.hns) == (200, 200, 9, GAMES, None)
    assert [row.episode for row in found.rows] == [1, 2, 3, 4, 5]
    assert {row.score for row in found.rows} <= {-1.0, 1.0}


def test_a_leave_in_the_middle_keeps_what_was_finished_and_goes_on_there(tmp_path):
    """One environment plays one game after the other, 9 steps and one that resets: after 25 steps 2 are finished."""
    one = {"num_envs": 1, "batch_size": 8, "test_period": 300, "learning_starts": 1_000}
    assert train(tmp_path, Leaving(25), steps=1000, **one) == contract.EXIT_LEFT
    (found,) = recorded(tmp_path)
    assert (found.first.env_steps, len(found.rows), found.whole) == (300, 2, False)
    assert train(tmp_path, steps=500, **one) == contract.EXIT_DONE
    first, last = recorded(tmp_path)
    assert first.rows[:2] == found.rows
    assert [row.episode for row in first.rows] == [1, 2, 3, 4, 5]
    assert (first.first.env_steps, last.first.env_steps) == (300, 500)


def test_what_was_tested_before_a_crash_is_not_tested_again_and_nothing_is_skipped(tmp_path):
    """Killed during the test at 1000, when 504 was recorded and nothing was saved: it begins at 0 once more."""
    killed = Dying(70)  # of them some 10 are in the first test
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, killed, steps=1200, test_period=500, num_test_episodes=40)
    before = recorded(tmp_path)
    assert [found.first.env_steps for found in before] == [504]
    assert train(tmp_path, steps=1200, test_period=500, num_test_episodes=40) == contract.EXIT_DONE
    after = recorded(tmp_path)
    assert [found.first.env_steps for found in after] == [504, 1000, 1200]
    assert after[0] == before[0]


def test_games_of_a_learner_that_no_longer_exists_are_dropped(tmp_path):
    directory = tmp_path / "runs" / "Catch"
    directory.mkdir(parents=True)
    stale = results.Row("Catch", "Catch", 504, 1, 0.5, "dqn", 1, 84, 504, None, 9, None, GAMES)
    results.write(directory / results.RESULTS_FILE, [stale])
    assert train(tmp_path, steps=600, test_period=500) == contract.EXIT_DONE
    assert [(found.first.env_steps, len(found.rows)) for found in recorded(tmp_path)] == [(504, GAMES), (600, GAMES)]
    assert stale not in recorded(tmp_path)[0].rows, "half a point is none of Catch's scores"


def test_a_test_of_another_seed_does_not_count_although_it_is_at_the_same_step(tmp_path):
    """A rollback gave the program another seed, with which it comes by the same steps once more."""
    directory = tmp_path / "runs" / "Catch"
    directory.mkdir(parents=True)
    of_it = [
        results.Row("Catch", "Catch", 504, n, 1.0, "dqn", 99, 84, 504, None, 9, None, GAMES) for n in range(1, GAMES + 1)
    ]
    results.write(directory / results.RESULTS_FILE, of_it)
    assert train(tmp_path, steps=520, test_period=500) == contract.EXIT_DONE
    found = sorted((each.first.env_steps, each.first.seed, len(each.rows)) for each in recorded(tmp_path))
    assert found == sorted([(504, 99, GAMES), (504, 1, GAMES), (520, 1, GAMES)])


def test_a_full_disk_costs_nothing_but_a_sentence(tmp_path, monkeypatch, capfd):
    write, fails = results.write, [True, False, False]

    def sometimes(path, rows):
        if fails.pop(0):
            raise OSError(28, "No space left on device")
        write(path, rows)

    monkeypatch.setattr(results, "write", sometimes)
    assert train(tmp_path, steps=1200, test_period=500) == contract.EXIT_DONE
    assert (
        "results.csv was not written (No space left on device): it is tried again with the next test"
        in capfd.readouterr().err
    )
    assert [found.first.env_steps for found in recorded(tmp_path)] == [504, 1000, 1200]


def test_the_last_test_must_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write", full)
    assert train(tmp_path, steps=200) == run.EXIT_FAILED


def test_another_owner_ends_a_test_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "FENCE_S", 0.0)

    class Overtaken(Leaving):
        def progress(self, **counters):
            super().progress(**counters)
            self.leave_wanted = False

        def fence_holds(self):
            return self.after >= 0

    client = Overtaken(5)
    assert train(tmp_path, client, steps=1000, test_period=500) == contract.EXIT_FENCED
    assert client.after == -1, "at the very next step"
    assert not recorded(tmp_path)


def test_a_save_that_is_due_is_made_while_games_are_played(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ALONE_SAVE_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, DyingWithFastDisk(40), steps=2000, test_period=500, num_test_episodes=200)
    assert learned(tmp_path)[0] == "ckpt-504"


def test_what_a_test_plays_does_not_depend_on_the_tests_before_it(tmp_path, monkeypatch):
    """The second test of a run, in environments that have played, and the first after a resume, in new ones."""
    monkeypatch.setattr(envs, "MOST_GAME_FRAMES", 300)
    monkeypatch.setattr(evaluate, "EPSILON", 0.5)  # so that every chance there is would show
    args = settings("Breakout", num_envs=2, batch_size=8, threads=1, replay_size=1_000, resolution=44, num_test_episodes=3)
    found = []
    for tests_at in ((500, 1000), (1000,)):
        (tmp_path / str(tests_at)).mkdir()
        made = learner(args)
        trials = EvaluationGames(made, tmp_path / str(tests_at))
        for made.env_steps in tests_at:
            found.append([(row.score, row.length) for row in trials.run(Client({}), lambda: True).rows])
        trials.close()
        made.replay.close()
    another, uninterrupted, resumed = found
    assert uninterrupted == resumed
    assert another != resumed, "another test plays other games"
