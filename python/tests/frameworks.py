"""Frameworks as a new user runs them, one a process: `frameworks.py NAME`; without a name it tells
the names.

Each trains or samples something small whose lengths vary; `ddp` and `fsdp2` are ranks, for
`torchrun`. The last line is JSON: the framework's version, what was requested and held at most, on
all devices of the process together, and counts, to compare between allocators; on the simulated
device also the driver's calls that do something, and how long they took. Nothing here names an
allocator: the environment chooses, and `compare_frameworks.py` compares.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import random
import sys
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version

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


def in_order(trainer):
    """A trainer that takes samples as they come."""
    return type(trainer.__name__, (trainer,), {"_get_train_sampler": lambda *_: None})


def transformers():
    """`Trainer`, which looks for the batch that fits."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, num_train_epochs=2, save_strategy="no",
            report_to=[], logging_steps=4, bf16=True, disable_tqdm=True, dataloader_num_workers=0,
            dataloader_pin_memory=False)
        in_order(Trainer)(llama(), arguments, train_dataset=InOrder(samples(8))).train()


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


def trl():
    """`SFTTrainer`, on sequences of many lengths."""
    from trl import SFTConfig, SFTTrainer
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            folder, per_device_train_batch_size=8, num_train_epochs=2, save_strategy="no",
            report_to=[], bf16=True, disable_tqdm=True, dataloader_pin_memory=False,
            max_length=None, dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False)
        kept = [{name: column.tolist() for name, column in one.items()}
                for one in samples(8)]
        in_order(SFTTrainer)(
            llama(), arguments, train_dataset=Dataset.from_list(kept),
            data_collator=lambda batch: {
                name: torch.tensor([one[name] for one in batch]) for name in batch[0]},
            processing_class=tokenizer()).train()


def tokenizer():
    """One that a trainer insists on; nothing is read by it."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    words = Tokenizer(models.WordLevel({"a": 0, "<end>": 1}, unk_token="a"))
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", pad_token="<end>")


def torchtune():
    """What its recipes are made of: bfloat16 throughout, checkpoints, the loss in chunks."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing)
    from torchtune.models.llama3 import llama3
    from torchtune.modules import TransformerSelfAttentionLayer
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    model = llama3(vocab_size=4096, num_layers=6, num_heads=8, num_kv_heads=8, embed_dim=512,
                   max_seq_len=1024, intermediate_dim=1536).to("cuda", torch.bfloat16)
    apply_activation_checkpointing(
        model, check_fn=lambda one: isinstance(one, TransformerSelfAttentionLayer))
    loss = CEWithChunkedOutputLoss()
    model.set_num_output_chunks(loss.num_output_chunks)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for length in lengths():
            tokens = torch.ones(8, length, dtype=torch.long, device="cuda")
            loss(model(tokens), tokens).backward()
            optimizer.step()
            optimizer.zero_grad()


def deepspeed():
    """Its engine with parameters' states in its own flat buffers (ZeRO 2), of one rank."""
    import deepspeed as engine
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="0")
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0,
                                         world_size=1)
    model = llama()
    model, *_ = engine.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()),
                                  config={
        "train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 4_000_000}})
    for _ in range(2):
        for length in lengths():
            tokens = torch.ones(8, length, dtype=torch.long, device="cuda")
            model.backward(model(input_ids=tokens, labels=tokens).loss)
            model.step()


def steps(model, device, forward=None):
    """Trains on a batch of each length."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for length in lengths():
            tokens = torch.ones(8, length, dtype=torch.long, device=device)
            with torch.autocast("cuda", torch.bfloat16):
                loss = (forward or model)(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def rank():
    """This process's device, once it is one of a group."""
    torch.distributed.init_process_group("gloo" if sys.argv[1] == "ddp" else "nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def ddp():
    """`DistributedDataParallel`."""
    device = rank()
    model = nn.parallel.DistributedDataParallel(llama().to(device), device_ids=[device.index])
    steps(model, device)


def fsdp2():
    """`fully_shard`, layer by layer."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    device = rank()
    model, policy = llama().to(device), MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    steps(model, device)


def two_devices():
    """A model on each device of one process, in turns, and what one sends to the other."""
    models = [llama().to(f"cuda:{index}") for index in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    for length in lengths():
        tokens = torch.ones(8, length, dtype=torch.long, device="cuda:0")
        for index, (model, optimizer) in enumerate(zip(models, optimizers)):
            there = tokens.to(f"cuda:{index}")
            with torch.autocast("cuda", torch.bfloat16):
                out = model(input_ids=there, labels=there)
            out.loss.backward()
            out.logits.detach().to(f"cuda:{1 - index}")
            optimizer.step()
            optimizer.zero_grad()


def compiled(mode):
    """`torch.compile` of one layer's kind, at three lengths."""
    model = nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 512)).cuda()
    forward = torch.compile(model, mode=mode, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (lengths()[:3] * 4):
        forward(torch.ones(8, length, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def compile_default():
    compiled("default")


def compile_reduce_overhead():
    compiled("reduce-overhead")


def compile_max_autotune():
    compiled("max-autotune")


def saver(hook_mode):
    """Memory that is given up while it is not needed, and comes back at its addresses."""
    from torch_memory_saver import torch_memory_saver
    torch_memory_saver.hook_mode = hook_mode
    kept = torch.ones(10 << 20, dtype=torch.uint8, device="cuda")
    with torch_memory_saver.region():
        paused = [torch.ones(size << 20, dtype=torch.uint8, device="cuda") for size in (2, 512)]
    TOLD["paused_mib"] = sum(one.nbytes for one in paused) >> 20
    addresses = [one.data_ptr() for one in paused]
    awake = free_mib()
    torch_memory_saver.pause()
    TOLD["freed_mib"] = free_mib() - awake
    torch_memory_saver.resume()
    if free_mib() != awake or [one.data_ptr() for one in (*paused, kept)][:2] != addresses:
        raise RuntimeError("what was paused did not come back as it was")


def free_mib():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0] >> 20


def saver_torch():
    saver("torch")


def saver_preload():
    """Its library must be there before any other."""
    from torch_memory_saver import configure_subprocess
    if "torch_memory_saver" not in os.environ.get("LD_PRELOAD", ""):
        with configure_subprocess():
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    saver("preload")


PROGRAMS = {program.__name__: program for program in (
    transformers, accelerate, lightning, trl, deepspeed, torchtune, peft, diffusers, ddp, fsdp2,
    two_devices, compile_default, compile_reduce_overhead, compile_max_autotune, saver_torch,
    saver_preload)}
# What a program has to say beside what all have.
TOLD = {}


def driver():
    """Calls of the simulated driver's, and their time; nothing with another driver."""
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "simcuda_stats_json"):
        return {}
    library.simcuda_stats_json.restype = ctypes.c_uint64
    size = library.simcuda_stats_json(None, ctypes.c_uint64(0)) + 4096
    room = ctypes.create_string_buffer(size)
    library.simcuda_stats_json(room, ctypes.c_uint64(size))
    devices = json.loads(room.value)["devices"]
    return {"driver_calls": sum(one["calls"] for one in devices),
            "driver_ms": round(sum(one["driver_time_us"] for one in devices) / 1000, 1)}


def total():
    """Statistics of all devices together."""
    found = [torch.cuda.memory_stats(index) for index in range(torch.cuda.device_count())]
    return {name: sum(one.get(name, 0) for one in found) for name in found[0]}


def version_of(name):
    """Of the package that a program shows, which is PyTorch itself where it is no other."""
    package = "torch_memory_saver" if name.startswith("saver") else name
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"torch {torch.__version__}"


def main(name):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(5)
    PROGRAMS[name]()
    torch.cuda.synchronize()
    stats = total()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    print(json.dumps({
        "framework": name,
        "version": version_of(name),
        "allocator": torch.cuda.get_allocator_backend(),
        "requested_mib": round(stats["requested_bytes.all.peak"] / 2**20, 1),
        "reserved_mib": round(stats["reserved_bytes.all.peak"] / 2**20, 1),
        "refused": stats["num_ooms"],
        **TOLD,
        **driver(),
        # What no allocator has a say in.
        "asked": {key: value for key, value in stats.items()
                  if key.startswith(("allocation.", "requested_bytes."))},
    }), flush=True)
    if TOLD:
        # Torch_memory_saver ends a process, under any allocator, that gives its memory back last.
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        main(sys.argv[1])
    else:
        sys.exit(f"frameworks.py NAME, which is one of: {', '.join(PROGRAMS)}")
