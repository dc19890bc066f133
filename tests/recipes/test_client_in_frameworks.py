"""The client's layers for frameworks without a daemon: early stops, callbacks, ranks. The recipes are in test_recipes.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tools import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SB3 = """
import sys
import extralife.sb3
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

class Early(BaseCallback):
    def _on_step(self):
        return self.num_timesteps < 100

seen = []
kinds = {"list": [Early()], "callback": Early(), "function": lambda names, _: seen.append(1) or len(seen) < 100}
model, run = extralife.sb3.load(PPO, lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu"), total=100_000)
print("begins at", model.num_timesteps, flush=True)
extralife.sb3.learn(model, run, callback=kinds[sys.argv[1]])
"""

BUFFER = """
import sys
import extralife.sb3
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

envs, total = int(sys.argv[1]), int(sys.argv[2])
model, run = extralife.sb3.load(
    DQN, lambda: DQN("MlpPolicy", make_vec_env("CartPole-v1", n_envs=envs), buffer_size=1000, learning_starts=10), total=total,
)
print(model.num_timesteps, model.replay_buffer.size() * model.replay_buffer.n_envs, flush=True)
extralife.sb3.learn(model, run)
"""

LIGHTNING = """
import os, sys
import extralife, extralife.lightning, lightning, torch

class Early(lightning.Callback):
    def on_train_batch_end(self, trainer, *_):
        if sys.argv[1] == "early":
            trainer.should_stop = trainer.global_step >= 20
        elif trainer.global_step == 20:
            os.kill(os.getpid(), 15)

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        return self.net(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

run = extralife.init(total=1000)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(640, 1)), batch_size=64)
trainer = lightning.Trainer(
    max_steps=run.total, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[extralife.lightning.saver(run), Early()],
)
trainer.fit(Line(), data, ckpt_path=extralife.lightning.resume(run))
run.leave()
"""

HF = """
import os, sys
import extralife, extralife.hf, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

rank = int(os.environ["RANK"])

class Asked(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if rank == 1 and state.global_step == 6:
            os.kill(os.getpid(), 15)

run = extralife.init(total=1000, save_every_s=0.0)
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
texts = [{"input_ids": (ids := torch.randint(64, (16,))), "labels": ids} for _ in range(64)]
trainer = Trainer(
    GPT2LMHeadModel(config),
    TrainingArguments(
        "out", max_steps=run.total, per_device_train_batch_size=8, save_strategy="no", report_to=[], disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=texts,
    callbacks=[Asked(), extralife.hf.saver(run)],
)
trainer.train(resume_from_checkpoint=extralife.hf.resume(run))
print("rank", rank, "ends at", trainer.state.global_step, flush=True)
run.leave()
"""


def script(
    text: str, *args: str, place: Path, cwd: Path, launcher: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "client"), "OMP_NUM_THREADS": "1"}
    (cwd / "script.py").write_text(text)
    return subprocess.run(
        [str(place / "python"), *launcher, "script.py", *args], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def checkpoints(cwd: Path) -> list[int]:
    return [int(path.name[5:].partition(".")[0]) for path in (cwd / "extralife-run" / "checkpoints").glob("ckpt-*")]


@pytest.mark.parametrize("kind", ["list", "callback", "function"])
def test_a_callback_of_sb3_ends_the_training_and_the_model_is_saved(kind: str, place: Path, tmp_path: Path) -> None:
    done = script(SB3, kind, place=place, cwd=tmp_path)
    assert (done.returncode, done.stdout, checkpoints(tmp_path)) == (0, "begins at 0\n", [100]), done.stderr


def test_sb3_begins_an_empty_replay_buffer_when_the_environments_change(place: Path, tmp_path: Path) -> None:
    """A change of level changes their number; the buffer of the old one ended each start with a ValueError."""
    starts = [("1", "100", "0 0"), ("1", "200", "100 100"), ("2", "300", "200 0"), ("2", "400", "304 104")]
    for envs, total, begins in starts:
        done = script(BUFFER, envs, total, place=place, cwd=tmp_path)
        assert (done.returncode, done.stdout.strip()) == (0, begins), done.stderr


@pytest.mark.parametrize(("how", "code"), [("early", 0), ("sigterm", 75)])
def test_an_end_of_lightning_is_saved_and_only_an_early_stop_is_done(
    how: str, code: int, place: Path, tmp_path: Path
) -> None:
    """On SIGTERM, Lightning ends `fit` with a SystemExit without a code: `run.leave()` is never reached."""
    done = script(LIGHTNING, how, place=place, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert max(checkpoints(tmp_path)) >= 20


def test_all_ranks_of_the_trainer_save_and_stop_together(place: Path, tmp_path: Path) -> None:
    """Only rank 1 is asked to leave, and only rank 0 wants to save; each alone would make the other wait for ever."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = script(HF, place=place, cwd=tmp_path, launcher=launcher)
    ends = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert len(ends) == 2, done.stderr[-3000:]
    assert ends[0].partition("ends at ")[2] == ends[1].partition("ends at ")[2]
    newest = max((tmp_path / "extralife-run" / "checkpoints").glob("ckpt-*"), key=lambda path: path.stat().st_mtime)
    assert {path.name for path in (newest / "trainer").glob("rng_state_*")} == {"rng_state_0.pth", "rng_state_1.pth"}
