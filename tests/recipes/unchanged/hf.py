"""Hugging Face's Trainer as its users write it: its progress bar, the dictionaries that it prints, its own checkpoints."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
texts = [{"input_ids": (ids := torch.randint(64, (16,))), "labels": ids} for _ in range(512)]
arguments = TrainingArguments(
    "out", max_steps=100_000, logging_steps=20, save_steps=100, save_total_limit=3, use_cpu=True, report_to=sys.argv[1:],
)  # fmt: skip
Trainer(GPT2LMHeadModel(config), arguments, train_dataset=texts).train()
