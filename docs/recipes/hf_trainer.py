"""Hugging Face's Trainer: two lines around `train`."""

import extralife
import extralife.hf
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

run = extralife.init(total=100_000, identity={"model": "gpt2-tiny"})
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
texts = [{"input_ids": (ids := torch.randint(64, (16,))), "labels": ids} for _ in range(512)]
trainer = Trainer(
    GPT2LMHeadModel(config),
    TrainingArguments(
        "out", max_steps=run.total, per_device_train_batch_size=run.batch_size(8), save_strategy="no", report_to=[],
        logging_steps=20, disable_tqdm=True, use_cpu=True,
    ),
    train_dataset=texts,
    callbacks=[extralife.hf.saver(run)],
)  # fmt: skip
trainer.train(resume_from_checkpoint=extralife.hf.resume(run))
run.leave()
