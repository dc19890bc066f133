"""Commands whose processes or files are not this machine's, or another user's: one warning each, with what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from config_kit import Place

from supervisor.config.elsewhere import warning

AWAY = [
    ("ssh -p 22 gpu1 python train.py", "run extralife on that machine"),
    ("sshpass -p x ssh gpu1 'python train.py'", ""),
    ("ssh -N -L 6006:localhost:6006 gpu1", ""),
    ("ssh gpu1 nvidia-smi; python train.py", ""),
    ("docker exec -i -e A=1 trainer python train.py", "write docker run"),
    ("docker --context x container exec trainer python train.py", "write docker run"),
    ("docker compose -f a.yml exec trainer python train.py", "write docker run"),
    ("kubectl -n x exec pod -- python train.py", "write docker run"),
    ("docker run --rm IMAGE exec train", ""),
    ("docker compose up --build trainer", "set stop_grace_period"),
    ("docker-compose -f a.yml up", "set stop_grace_period"),
    ("sudo mount /data; python train.py", ""),
    pytest.param("srun --gpus=1 python train.py", 'kind = "slurm"', marks=pytest.mark.needs("slurm")),
    (["bash", "-lc", "source a; exec ssh gpu1 train"], "run extralife on that machine"),
    ("CUDA_VISIBLE_DEVICES=0 nohup ssh gpu1 train", "run extralife on that machine"),
    ("python train.py --output_dir s3://bucket/run1", "save to a directory here"),
    ("python train.py --output_dir=gs://bucket/run1", "save to a directory here"),
    ("python train.py trainer.save_dir=s3://bucket/run1", "save to a directory here"),
    ("python train.py --data s3://bucket/train --train-data gs://b/x", ""),
    ("aws s3 sync s3://bucket/data data && python train.py", ""),
    ("python train.py --host ssh --exec sudo", ""),
    ("python ssh.py", ""),
    ("torchrun --rdzv_endpoint=h:1 train.py --url http://x/y", ""),
    ("python 'train.py", ""),
    (7, ""),
]


@pytest.mark.parametrize(("command", "do"), AWAY)
def test_a_command_whose_work_is_elsewhere_gets_its_remedy(command: object, do: str) -> None:
    found = warning(command, saves=False, remote=False)
    assert do in found
    assert bool(found) == bool(do)


def test_what_the_rest_of_the_section_says_makes_a_warning_needless() -> None:
    assert not warning("python train.py --out s3://bucket/x", saves=True, remote=False)
    assert not warning("srun python train.py", saves=False, remote=True)
    assert warning("srun --x; ssh gpu1 train", saves=True, remote=True)


def test_check_warns_once_of_the_command_the_script_it_names_and_the_pattern(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\nset -e\nsudo mkdir -p /data\nssh gpu1 python train.py\n")
    for command, more, told in [
        (["sudo", "python", "train.py"], "", ["sudo starts it as another user"]),
        ([str(script)], "", [f"program.mine.command: in {script}, ssh: a stop ends only this client"]),
        (["docker", "compose", "up", "-d"], "", ["program.mine.command: docker returns at once"]),
        (["ssh", "-L", "1:h:1", "h"], 'kind = "service"', []),
        (["python", "t.py"], 'checkpoint_glob = "s3://b/*.pt"', ["program.mine.checkpoint_glob: 's3://b/*.pt' is the addr"]),
    ]:
        validation = place.load(f"[program.mine]\ncommand = {json.dumps(command)}\n{more}")
        found = [each for each in validation.warnings if "is not found" not in each]
        assert len(found) == len(told), found
        assert all(what in each for what, each in zip(told, found, strict=True)), found
