"""Real models on several allocators: prints each one's statistics as a line of JSON.

`models.py ALLOCATOR... [-- NAME...]` runs the named programs, or all, each from a device that holds
nothing of theirs, in a child per allocator: what they import is imported once. Weights are random,
and kernels need not run.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

import drystone
import simulated
from drystone import _library

DEVICE = "cuda"
# PyTorch's group of figures, and Drystone's gauge.
GAUGES = {"allocation": "allocations", "active": "active_blocks",
          "requested_bytes": "requested_bytes"}
SIZE_CLASSES = {"all": None, "small_pool": "small", "large_pool": "large"}
# Of a request that no device here can serve.
TOO_MANY = 1 << 22

Program = Callable[[], object]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """Adds a program, by the name of its function."""
    PROGRAMS[run.__name__] = run
    return run


def shapes(*choices: int) -> Iterator[int]:
    """Sizes in an order that is the same in every process."""
    return iter(random.Random(7).sample(choices, len(choices)))


def tokens(batch: int, length: int, vocabulary: int = 1000) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), device=DEVICE)


def train(model: nn.Module, losses: Iterator[torch.Tensor], **options: object) -> None:
    """Steps of AdamW, with clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    for loss in losses:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def imports() -> None:
    """Imports what the programs do, and keeps it from warning of its own ways."""
    import torchvision  # noqa: F401
    import transformers
    from transformers import (  # noqa: F401
        GPT2LMHeadModel, LlamaForCausalLM, LogitsProcessorList, ViTForImageClassification)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")


def llama(**changes: object) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**{
        "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "eos_token_id": None,
        "bos_token_id": None, "pad_token_id": None, **changes})
    with torch.device(DEVICE):
        return LlamaForCausalLM(config)


def resnet() -> nn.Module:
    from torchvision.models import resnet18
    with torch.device(DEVICE):
        return resnet18(num_classes=10)


@program
def resnet_training() -> None:
    """Convolutions, momentum, a last batch that is short, evaluation in between."""
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in (16, 16, 5, 16, 3):
        images = torch.randn(batch, 3, 96, 96, device=DEVICE)
        labels = torch.zeros(batch, dtype=torch.long, device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            model(torch.randn(24, 3, 96, 96, device=DEVICE)).argmax(1).cpu()
        model.train()


@program
def gpt2_training() -> None:
    """Lengths that vary, two steps' gradients added up, a fused optimiser."""
    from transformers import GPT2Config, GPT2LMHeadModel
    with torch.device(DEVICE):
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=1000, n_positions=512, n_embd=256, n_layer=4, n_head=4,
            bos_token_id=None, eos_token_id=None))

    def losses() -> Iterator[torch.Tensor]:
        for length in shapes(60, 500, 128, 311, 256):
            for _ in range(2):
                given = tokens(4, length)
                with torch.autocast(DEVICE, torch.bfloat16):
                    yield model(input_ids=given, labels=given).loss
    train(model, losses(), fused=True)


@program
def llama_with_checkpointing() -> None:
    """Activations that are made again in the backward pass, by the autograd engine's threads."""
    model = llama()
    model.gradient_checkpointing_enable()
    model.train()

    def losses() -> Iterator[torch.Tensor]:
        for length in shapes(64, 410, 133, 256):
            given = tokens(2, length)
            yield model(input_ids=given, labels=given, use_cache=False).loss
    train(model, losses())


@program
def vit_with_varying_batch() -> None:
    """Inference as a server does it: whatever has come is the batch."""
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(image_size=96, patch_size=16, hidden_size=192, num_hidden_layers=4,
                       num_attention_heads=4, intermediate_size=768)
    with torch.device(DEVICE):
        model = ViTForImageClassification(config).eval()
    with torch.inference_mode():
        for batch in shapes(*range(1, 65, 3)):
            model(torch.randn(batch, 3, 96, 96, device=DEVICE)).logits.argmax(-1).cpu()


@program
def fsdp2_training() -> None:
    """Shards gathered and given back layer by layer, on streams of their own."""
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        model = llama()
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)

        def losses() -> Iterator[torch.Tensor]:
            for length in shapes(64, 300, 128):
                given = tokens(2, length)
                yield model(input_ids=given, labels=given, use_cache=False).loss
        train(model, losses(), foreach=True)
        torch.cuda.synchronize()
    finally:
        dist.destroy_process_group()


class Enough(Exception):
    """As many tokens are made as were asked for."""


class Counted:
    """Ends a generation from the host: the device, whose kernels do not run, never says so."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self, given: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.left == 0:
            raise Enough
        self.left -= 1
        return scores


@program
def generation() -> None:
    """A cache that grows by a token each step, for batches one after another."""
    from transformers import LogitsProcessorList
    model = llama().bfloat16().eval()
    for prompt in shapes(5, 90, 37):
        try:
            model.generate(
                tokens(3, prompt), attention_mask=torch.ones(3, prompt, device=DEVICE),
                max_new_tokens=1000, do_sample=False,
                logits_processor=LogitsProcessorList([Counted(24)]))
        except Enough:
            pass


@program
def prefetching() -> None:
    """The next batch is copied on a stream of its own while the model works on this one."""
    model, side = resnet(), torch.cuda.Stream()
    batches = [torch.randn(size, 3, 64, 64).pin_memory() for size in (8, 16, 4, 12)]

    def losses() -> Iterator[torch.Tensor]:
        for batch in batches * 2:
            with torch.cuda.stream(side):
                images = batch.to(DEVICE, non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
            yield model(images).square().mean()
    train(model, losses(), foreach=True)
    torch.cuda.synchronize()


@program
def graphs() -> None:
    """Inference and training captured once and replayed, with other memory between."""
    model = llama(num_hidden_layers=2).eval()
    static = tokens(2, 16)
    with torch.no_grad():
        model(input_ids=static, use_cache=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(input_ids=static, use_cache=False).logits
        kept = []
        for size in shapes(1, 7, 30):
            kept.append(torch.zeros(size << 18, device=DEVICE))
            graph.replay()
        out.float().sum().item()
    # A graph outlives what it gave out, to the libraries, too.
    torch._C._cuda_clearCublasWorkspaces()
    del out, graph
    block = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(DEVICE)
    given, side = torch.randn(8, 256, device=DEVICE), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        block(given).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    block.zero_grad(set_to_none=True)
    step, optimizer = torch.cuda.CUDAGraph(), torch.optim.SGD(block.parameters(), lr=0.1)
    with torch.cuda.graph(step):
        loss = block(given).square().mean()
        loss.backward()
    for _ in range(3):
        given.normal_()
        step.replay()
        optimizer.step()
    torch.cuda.synchronize()
    block.zero_grad(set_to_none=True)
    torch._C._cuda_clearCublasWorkspaces()
    del loss, step


@program
def out_of_memory_and_recovery() -> None:
    """A batch that no device holds, in the forward and in the backward pass, and on it goes."""
    model, tried = resnet(), []
    for batch in (TOO_MANY, 8):
        try:
            images = torch.empty(1, device=DEVICE).expand(batch, 3, 96, 96)
            model(images).square().mean().backward()
        except torch.OutOfMemoryError:
            tried.append(batch)

    class Huge(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return torch.empty(TOO_MANY << 20, device=DEVICE)
    try:
        Huge.apply(model(torch.randn(4, 3, 96, 96, device=DEVICE))).sum().backward()
    except torch.OutOfMemoryError:
        tried.append(TOO_MANY)
    assert tried == [TOO_MANY, TOO_MANY], tried
    model.zero_grad()
    model(torch.randn(4, 3, 96, 96, device=DEVICE)).sum().backward()


@program
def loading_by_workers() -> None:
    """Batches made by forked workers, pinned by a thread, copied while the last one is used."""
    from torch.utils.data import DataLoader, TensorDataset
    model = resnet()
    data = TensorDataset(torch.randn(40, 3, 64, 64), torch.zeros(40, dtype=torch.long))
    loader = DataLoader(data, 12, num_workers=2, pin_memory=True)

    def losses() -> Iterator[torch.Tensor]:
        for images, labels in loader:
            yield nn.functional.cross_entropy(
                model(images.to(DEVICE, non_blocking=True)), labels.to(DEVICE, non_blocking=True))
    train(model, losses())


@program
def threads() -> None:
    """One model served by four threads, each on a stream of its own."""
    model, failed = llama(num_hidden_layers=2).eval(), []

    def serve(lengths: list[int]) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()), torch.inference_mode():
                for length in lengths:
                    model(input_ids=tokens(1, length), use_cache=False).logits.argmax(-1).cpu()
        except Exception as error:  # noqa: BLE001  A thread's would be lost.
            failed.append(error)
    workers = [threading.Thread(target=serve, args=(list(shapes(*range(8 + at, 120, 9))),))
               for at in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed
    torch.cuda.synchronize()


class Figures:
    """The figures of one program that no layout changes, under PyTorch's names."""

    def __init__(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._before = self._now()

    def tell(self) -> dict[str, int]:
        # What is in cycles is freed whenever the collector runs: before the figures, always.
        gc.collect()
        torch.cuda.synchronize()
        now = self._now()
        return {key: value - (self._before[key] if key.endswith(("allocated", "freed")) else 0)
                for key, value in now.items()}

    def _now(self) -> dict[str, int]:
        if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
            keys = tuple(f"{group}." for group in GAUGES) + ("reserved_bytes.all.peak",)
            stats = torch.cuda.memory_stats()
            return {key: stats[key] for key in stats if key.startswith(keys)}
        # PyTorch keeps few of them with this backend, the library all.
        stats, found = _library.stats(0), {}
        for group, name in GAUGES.items():
            for size_class, part in SIZE_CLASSES.items():
                gauge = (stats if part is None else stats[part])[name]
                found |= {f"{group}.{size_class}.{key}": value for key, value in (
                    ("current", gauge["current"]), ("peak", gauge["peak"]),
                    ("allocated", gauge["total"]), ("freed", gauge["total"] - gauge["current"]))}
        return found | {"reserved_bytes.all.peak": stats["reserved_bytes"]["peak"]}


def drivers_own() -> int:
    """Allocations that the driver's memory pools served."""
    return sum(simulated.calls_of(name) for name in ("cuMemAllocAsync", "cuMemAllocFromPoolAsync"))


# How a child comes to its allocator; the one that the process was started with needs nothing.
ALLOCATORS: dict[str, Callable[[], None]] = {
    "as-started": lambda: None,
    "plug-in": lambda: drystone.enable(route="plugin"),
    "compiled": lambda: drystone.enable(route="compiled"),
}


def run(names: list[str]) -> None:
    """Runs programs in this process, and leaves something alive at its end."""
    found = {}
    torch.zeros(1, device=DEVICE)
    for name in names or PROGRAMS:
        torch.manual_seed(3)
        figures, before = Figures(), drivers_own()
        PROGRAMS[name]()
        gc.collect()
        found[name] = figures.tell() | {"drivers_own": drivers_own() - before}
    sys.kept = kept = [resnet(), torch.cuda.CUDAGraph()]
    kept[0](torch.randn(2, 3, 64, 64, device=DEVICE)).sum().backward()
    with torch.cuda.graph(kept[1]):
        kept.append(torch.ones(1000, device=DEVICE) * 2)
    kept[1].replay()
    print(json.dumps({"backend": torch.cuda.get_allocator_backend(), "programs": found,
                      "violations": simulated.violations()}))


def main(arguments: list[str]) -> None:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    imports()
    for name in arguments[:at]:
        child = os.fork()
        if child == 0:
            ALLOCATORS[name]()
            run(arguments[at + 1:])
            return
        _, status = os.waitpid(child, 0)
        if status != 0:
            sys.exit(f"{name}: ended with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(sys.argv[1:])
