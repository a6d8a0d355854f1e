"""Frameworks as a new user runs them, one a process: `frameworks.py NAME`.

Each trains or samples something small whose lengths vary. The last line is JSON: the framework's
version, what was requested and held at most, and counts, to compare between allocators. Nothing
here names an allocator: the environment chooses.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
import warnings
from importlib.metadata import version

import torch
from torch import nn

STEPS = 12
MODEL = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1536,
         "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(**MODEL))


def lengths():
    """Of the sequences in each batch: the same in every run."""
    order = random.Random(5)
    return [order.randrange(64, 1024) for _ in range(STEPS)]


def samples(batch):
    """Token sequences, as many as the steps take, of one length a batch."""
    return [{"input_ids": torch.ones(length, dtype=torch.long),
             "labels": torch.ones(length, dtype=torch.long),
             "attention_mask": torch.ones(length, dtype=torch.long)}
            for length in lengths() for _ in range(batch)]


class InOrder:
    """A data set whose batches have one length each, if it is not shuffled."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        return self.items[at]


def transformers():
    """`Trainer`, which looks for the batch that fits."""
    from transformers import Trainer, TrainingArguments

    class Ordered(Trainer):
        def _get_train_sampler(self, *_):
            return None

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, num_train_epochs=2, save_strategy="no",
            report_to=[], logging_steps=4, bf16=True, disable_tqdm=True, dataloader_num_workers=0,
            dataloader_pin_memory=False)
        Ordered(llama(), arguments, train_dataset=InOrder(samples(8))).train()


def accelerate():
    """Mixed precision and accumulated gradients."""
    from accelerate import Accelerator
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(2):
        for length in lengths():
            with accelerator.accumulate(model):
                tokens = torch.ones(8, length, dtype=torch.long, device=accelerator.device)
                accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
                optimizer.step()
                optimizer.zero_grad()


def lightning():
    """`Trainer.fit` with a module."""
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = llama()

        def training_step(self, batch):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.model.parameters())

    batches = torch.utils.data.DataLoader(InOrder(samples(8)), batch_size=8)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(accelerator="gpu", devices=1, max_epochs=2, precision="bf16-mixed", logger=False,
                enable_checkpointing=False, enable_progress_bar=False, default_root_dir=folder,
                enable_model_summary=False).fit(Module(), batches)


def peft():
    """LoRA with checkpointed activations."""
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(llama(), LoraConfig(r=8, target_modules="all-linear")).cuda().bfloat16()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    for _ in range(2):
        for length in lengths():
            tokens = torch.ones(8, length, dtype=torch.long, device="cuda")
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def diffusers():
    """A U-Net, trained on images of many sizes, then sampled from."""
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
    model = UNet2DModel(sample_size=64, block_out_channels=(64, 128, 256),
                        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")).cuda()
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths():
        side = 32 + length // 256 * 8
        images = torch.ones(8, 3, side, side, device="cuda")
        noise = torch.randn_like(images)
        steps = torch.zeros(8, dtype=torch.long, device="cuda")
        predicted = model(scheduler.add_noise(images, noise, steps), steps).sample
        nn.functional.mse_loss(predicted, noise).backward()
        optimizer.step()
        optimizer.zero_grad()
    pipeline = DDPMPipeline(model, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    pipeline(batch_size=4, num_inference_steps=3)


PROGRAMS = {program.__name__: program for program in (
    transformers, accelerate, lightning, peft, diffusers)}


def main(name):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(5)
    PROGRAMS[name]()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "framework": name,
        "version": version(name),
        "allocator": torch.cuda.get_allocator_backend(),
        "requested_mib": round(stats["requested_bytes.all.peak"] / 2**20, 1),
        "reserved_mib": round(stats["reserved_bytes.all.peak"] / 2**20, 1),
        "requests": stats["allocation.all.allocated"],
        "requested_in_all": stats["requested_bytes.all.allocated"],
        "refused": stats["num_ooms"],
    }))


if __name__ == "__main__":
    main(sys.argv[1])
