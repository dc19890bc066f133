"""Commands that return at once while their work goes on elsewhere, and what to write instead."""

from __future__ import annotations

import pytest
from config_kit import Place

from supervisor.config.background import mistake


@pytest.mark.parametrize(
    ("command", "who", "instead"),
    [
        ("docker run --rm --gpus all -v /a:/b -e A=1 --name=x -itd IMAGE python train.py", "docker", "remove -d"),
        ("podman run --detach IMAGE", "podman", "remove -d"),
        ("docker --context x container run -d IMAGE", "docker", "remove -d"),
        ("docker compose -f a.yml up -d", "docker", "remove -d"),
        ("docker-compose up --build --detach trainer", "docker-compose", "remove -d"),
        ("docker start trainer", "docker", "--attach"),
        ("sbatch --gpus 1 train.sbatch", "sbatch", "srun"),
        ("sudo systemctl --user start train", "systemctl", "ExecStart"),
        ("/usr/bin/systemd-run --unit x python train.py", "systemd-run", "--scope"),
        ("tmux new -d -s t python train.py", "tmux", "without tmux"),
        ("tmux -L x new-session -ds t 'python train.py'", "tmux", "without tmux"),
        ("screen -dmS t python train.py", "screen", "without screen"),
        ("nohup setsid python train.py", "setsid", "remove setsid"),
        ("nohup python train.py > log 2>&1 &", "&", "remove the &"),
        ("python train.py & echo $! > pid", "&", "remove the &"),
        ("(cd x && python train.py &)\n", "&", "remove the &"),
        (["nohup", "python", "train.py", "&"], "&", "remove the &"),
        (["bash", "-lc", "source a && python train.py &"], "&", "remove the &"),
        (["sh", "-c", "cd x; CUDA_VISIBLE_DEVICES=0 docker run -d IMAGE"], "docker", "remove -d"),
    ],
)
def test_a_command_that_returns_at_once(command: object, who: str, instead: str) -> None:
    found = mistake(command)
    assert who in found.partition(";")[0]
    assert instead in found.partition(";")[2]


@pytest.mark.parametrize(
    "command",
    [
        "docker run --rm -it -e A=1 IMAGE serve -d",
        "docker run --rm IMAGE -d",
        "docker run IMAGE run -d",
        "docker compose up trainer",
        "docker start -ai trainer",
        "docker run -d --name x IMAGE; docker logs -f x",
        "sbatch --wait train.sbatch",
        "systemd-run --scope python train.py",
        "setsid -w python train.py",
        "screen -DmS t python train.py",
        "tensorboard --logdir x & python train.py",
        "python a.py & python b.py & wait",
        "nohup python train.py 2>&1 | tee log",
        "python -c 'a &'",
        "python 'train.py",
        "env A=1",
        "",
        ["bash", "-c"],
        ["python", 5],
        7,
    ],
)
def test_a_command_that_stays(command: object) -> None:
    assert mistake(command) == ""


def test_it_is_a_warning_and_part_of_the_advice_to_set_a_shell(place: Place) -> None:
    (warning,) = place.load('[program.x]\ncommand = "setsid sh"\n').warnings
    assert warning.endswith(
        "program.x.command: setsid returns at once, so the program ends while its work goes on unsupervised; remove setsid"
    )
    (error,) = place.errors('[program.x]\ncommand = "nohup sh &"\n')
    assert error.endswith(
        "; with & at its end it returns at once, so the program ends while its work goes on unsupervised; remove the &, and nohup"
    )
