"""Trainer of transformers, on a small GPT-2."""

import tempfile

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

ROWS = [{"input_ids": list(range(64)), "labels": list(range(64))}] * 64

with tempfile.TemporaryDirectory() as folder:
    Trainer(
        GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000)),
        TrainingArguments(folder, max_steps=10, bf16=True, report_to="none"),
        train_dataset=ROWS).train()
