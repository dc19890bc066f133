"""`hours` of training as a target: counted in the checkpoint, so that restarts do not begin them anew."""

import json

import pytest
from learners import attempt

from workers import contract, run
from workers.args import make
from workers.contract import UNKNOWN, TargetKind
from workers.daemon_side import read_beat

STATE = {"env_steps": 500, "episodes": 300, "trained_s": 5 * 3600.0}


@pytest.mark.parametrize(
    ("limits", "target", "reached"),
    [
        ({}, (TargetKind.NONE, UNKNOWN), False),
        ({"hours": 10.0}, (TargetKind.SECONDS_LEFT, 18_000), False),
        ({"hours": 5.0}, (TargetKind.SECONDS_LEFT, 0), True),
        ({"hours": 4.0}, (TargetKind.SECONDS_LEFT, 0), True),
        ({"hours": 10.0, "episodes": 1_000}, (TargetKind.SECONDS_LEFT, 18_000), False),
        ({"hours": 100.0, "episodes": 1_000}, (TargetKind.EPISODES, 1_000), False),
        ({"hours": 100.0, "episodes": 300}, (TargetKind.EPISODES, 300), True),
        ({"hours": 100.0, "steps": 501, "episodes": 400}, (TargetKind.ENV_STEPS, 501), False),
    ],
)
def test_the_first_limit_ends_it_and_the_nearest_is_shown(limits, target, reached):
    args = make("Catch", **limits)
    assert run.nearest_target(args, STATE) == target
    assert run.is_reached(args, STATE) == reached


def test_a_checkpoint_of_before_there_was_a_clock_has_trained_no_time():
    old = {"env_steps": 500, "episodes": 300}
    assert not run.is_reached(make("Catch", hours=0.001), old)


def trained(run_dir, number, **settings):
    """(exit code, newest state) of a real run in this process."""
    code = attempt(run_dir, make("Catch", algo="ppo", num_envs=8, n_steps=8, batch_size=32, threads=1, **settings), number)
    checkpoints = (run_dir / contract.CHECKPOINTS_DIR).iterdir()
    newest = max(checkpoints, key=lambda path: contract.parse_checkpoint_name(path.name) or (-1,))
    return code, json.loads((newest / "state.json").read_text())


def test_they_go_on_where_the_last_attempt_left_them(tmp_path, capsys):
    code, state = trained(tmp_path, 1, steps=64, hours=1.0)
    assert code == contract.EXIT_DONE
    assert state["trained_s"] > 0.0
    first = dict(state)

    budget_s = state["trained_s"] + 1.0  # however long a busy machine took for the first steps, some time is left
    code, state = trained(tmp_path, 2, hours=budget_s / 3600)
    assert code == contract.EXIT_DONE
    assert state["env_steps"] > first["env_steps"]
    assert state["trained_s"] >= budget_s
    beat = read_beat(tmp_path / "beat")
    assert (beat.target, beat.target_kind) == (0, TargetKind.SECONDS_LEFT)
    assert "the target is reached" in capsys.readouterr().out.splitlines()

    code, again = trained(tmp_path, 3, hours=budget_s / 3600)
    assert code == contract.EXIT_DONE
    assert "the target is already reached" in capsys.readouterr().out.splitlines()
    assert again == state
