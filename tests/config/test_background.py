"""Commands that return at once while their work goes on elsewhere, and what to write instead."""

import json

import pytest

from supervisor.config.background import as_another_user, in_shell, mistake


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
        ("for s in 1 2; do python train.py --seed $s & done", "&", "remove the &"),
        ("kubectl -n x apply -f job.yaml", "kubectl", "wait"),
        ("kubectl run x --image=y", "kubectl", "wait"),
        ("ssh -p 22 -nf host python train.py", "ssh", "remove -f"),
        ("pm2 start train.py", "pm2", "without pm2"),
        (["sh", "-c", "cd x; CUDA_VISIBLE_DEVICES=0 docker run -d IMAGE"], "docker", "remove -d"),
    ],
)
def test_a_command_that_returns_at_once(command, who, instead):
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
        "kubectl run -it x --image=y",
        "kubectl logs -f apply",
        "ssh -p 22 host python train.py -f x",
        "pm2 start train.py --no-daemon",
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
def test_a_command_that_stays(command):
    assert mistake(command) == ""


@pytest.mark.parametrize("command", ["bash run", "./run", ["./run", "-x"]])
def test_a_shell_script_that_the_command_names(place, tmp_path, command):
    script = tmp_path / "run"
    for text, leaves in (
        ("python train.py \\\n  --x &\n", True),
        ("python train.py &\ntail -f log\n", False),
        ("it's 'open", False),
    ):
        script.write_text(f"#!/usr/bin/env bash\n# a 'comment\n{text}")
        script.chmod(0o755)
        told = place.load(f'[program.x]\ncommand = {json.dumps(command)}\ndirectory = "{tmp_path}"\n').warnings
        assert [f"{script.name}, with & at its end" in each for each in told] == [True] * leaves
    script.write_text("#!/usr/bin/env python3\nx &\n")
    assert in_shell(["./run"], str(tmp_path)) == ""
    assert in_shell(["docker", "--context", "x", "run", "IMAGE"], "").startswith("if its client")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("while true; do\n  python3 train.py\n  sleep 5\ndone", "its loop"),
        ("until python train.py; do sleep 1; done", "its loop"),
        ("while ! python train.py; do sleep 1; done", "its loop starts"),
        ("until nc -z db 5432; do sleep 1; done; python train.py", ""),
        ("while true; do nvidia-smi; sleep 60; done & python train.py", ""),
        ("python a.py & python b.py & wait", "wait ends with 0"),
        ("python train.py\necho Done\n", "its last command hides"),
        ("set -euo pipefail\npython train.py\necho Done\n", ""),
        ("python train.py && echo Done", ""),
        ("echo begins; python train.py", ""),
        ("set -e\npython train.py 2>&1 | tee log", "its pipe"),
        ("set -eo pipefail\npython train.py 2>&1 | tee log", ""),
        ("python train.py || python train.py --resume", ""),
        ("for s in 1 2 3; do python train.py --seed $s; done", "its loop goes on after a crash"),
        ("set -e; for s in 1 2 3; do python train.py --seed $s; done", ""),
        ("for f in *.zip; do unzip $f; done; python train.py", ""),
        ("cd x; docker run --rm --gpus all IMAGE python train.py", "if its client is killed"),
        ("docker rm -f x; exec docker run --init --name x IMAGE", ""),
        ("trap 'trap - SIGTERM && kill -- -$$' EXIT\npython train.py", "its trap"),
        ("trap 'kill 0' SIGINT SIGTERM EXIT; python train.py", "its trap"),
        ("trap 'kill $(jobs -p)' EXIT; python train.py", ""),
    ],
)
def test_a_shell_that_hides_how_its_training_ended(text, told):
    for words in (["bash", "-c", text], ["/bin/bash", "-o", "pipefail", "-c", text]):
        found = in_shell(words, "")
        expected = "" if told == "its pipe" and "pipefail" in words else told
        assert found.startswith(expected)
        assert bool(found) is bool(expected)


def test_it_is_a_warning_and_part_of_the_advice_to_set_a_shell(place):
    (warning,) = place.load('[program.x]\ncommand = "setsid sh"\n').warnings
    assert warning.endswith(
        "program.x.command: setsid returns at once, so the program ends while its work goes on unsupervised; remove setsid"
    )
    (warning,) = place.load('[program.x]\ncommand = ["sh", "x", "&"]\n').warnings
    assert warning.endswith("remove the &, and nohup"), "one piece of advice"
    (error,) = place.errors('[program.x]\ncommand = "nohup sh &"\n')
    assert error.endswith(
        "; with & at its end it returns at once, so the program ends while its work goes on unsupervised; remove the &, and nohup"
    )


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sudo", "-u", "bob", "python", "train.py"], "sudo"),
        (["/usr/bin/env", "A=b", "nice", "runuser", "-u", "bob", "python", "train.py"], "runuser"),
        (["setpriv", "--reuid=65534", "python", "train.py"], "setpriv"),
        (["bash", "-c", "cd x && exec su - bob -c 'python train.py'"], "su"),
        (["bash", "-c", "doas python train.py; echo done"], "doas"),
        (["bash", "-c", "sudo mount /data; python train.py"], ""),
        (["bash", "-c", "python train.py --as 'sudo"], ""),
        (["setpriv", "--nnp", "python", "train.py"], ""),
        (["python", "train.py", "sudo"], ""),
    ],
)
def test_a_training_that_another_user_runs(words, name):
    found = as_another_user(words, "/usr/bin")
    assert found.startswith(f"{name} starts it as another user") if name else found == ""
