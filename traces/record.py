"""Records traces of this folder anew: full-size models on PyTorch's own allocator.

    cargo xtask torch -- traces/record.py [NAME...]

makes NAME.csv.zst and NAME.json of each, or of all, with the `drystone` command on PATH. No GPU is
needed, nor memory for the models: they run on the simulated device. Invariant: the same versions of
PyTorch and transformers ask for the same again. So lengths come of fixed seeds, memory reads as
zero, and every event takes four microseconds; only the order in which a backward pass lets go of
its graph, all at one time, is left to chance.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Before PyTorch looks for a device.
os.environ["SIMCUDA_CONF"] = "memory:80GiB,backing:false"
os.environ.pop("PYTORCH_ALLOC_CONF", None)
os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
from torch import nn  # noqa: E402

HERE = Path(__file__).resolve().parent
DEVICE = "cuda"
NS_PER_EVENT = 4000
ENTRIES_MAX = 5_000_000

Step = Callable[[], object]
# What makes a model ready and returns its steps' function, with the number of steps and a note.
RECORDED: dict[str, tuple[Callable[[], Step], int, str]] = {}


def recorded(steps: int, note: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Adds a trace, by the name of its function."""
    def add(prepare: Callable[[], Step]) -> Callable[[], Step]:
        RECORDED[prepare.__name__] = (prepare, steps, note)
        return prepare
    return add


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device=DEVICE)


def training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """A step of AdamW on what of a model is trained."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def llama(layers: int, **changes: object) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**{
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "eos_token_id": None, **changes})
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model


@recorded(6, "GPT-2 medium training, batches of 8, random length 128..1024, AMP bf16, AdamW")
def gpt2_medium_train() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel
    choose = random.Random(1)
    with torch.device(DEVICE):
        model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16))

    def loss() -> torch.Tensor:
        given = tokens(8, choose.randrange(128, 1025))
        return model(input_ids=given, labels=given).loss
    return training(model, loss)


class LowRank(nn.Module):
    """A frozen layer, and a trained addition of low rank."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False, device=DEVICE)
        self.up = nn.Linear(rank, frozen.out_features, bias=False, device=DEVICE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


@recorded(3, "Llama-3-8B in bfloat16, low-rank additions of rank 16 to every layer's linears, "
             "checkpointing, batches of 4 of a log-normal longest length, AdamW")
def llama3_8b_low_rank_checkpointed() -> Step:
    choose, model = random.Random(2), llama(32)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear):
                    setattr(part, name, LowRank(linear, 16))
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model.train()

    def loss() -> torch.Tensor:
        length = min(max(int(choose.lognormvariate(6.5, 0.5)), 64), 2048)
        given = tokens(4, length)
        return model(input_ids=given, labels=given, use_cache=False).loss
    return training(model, loss)


@recorded(60, "ViT-L/16 inference in bfloat16, batches of 1..128 as they come")
def vit_large_varying_batch() -> Step:
    from transformers import ViTConfig, ViTForImageClassification
    choose = random.Random(3)
    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                       intermediate_size=4096, num_labels=1000)
    with torch.device(DEVICE):
        model = ViTForImageClassification(config).to(torch.bfloat16).eval()

    def step() -> None:
        images = torch.randn(choose.randrange(1, 129), 3, 224, 224, device=DEVICE)
        with torch.inference_mode():
            model(images.bfloat16()).logits.float().softmax(-1).topk(5).values.cpu()
    return step


@recorded(3, "a 16-layer Llama of width 2048 in bfloat16 makes 20 tokens for each of 3 batches of "
             "4..16 prompts, with a cache that grows by concatenation")
def llama_1b_growing_cache() -> Step:
    from transformers import DynamicCache
    choose = random.Random(4)
    model = llama(16, hidden_size=2048, intermediate_size=8192).eval()

    def step() -> None:
        batch, length = choose.randrange(4, 17), choose.randrange(100, 1500)
        cache, given = DynamicCache(config=model.config), tokens(batch, length)
        with torch.inference_mode():
            for _ in range(20):
                out = model(input_ids=given, past_key_values=cache, use_cache=True,
                            logits_to_keep=1)
                given = out.logits[:, -1:].argmax(-1)
    return step


@recorded(30, "a three-layer LSTM of width 2048 trained on batches of 32, random length 10..200, "
              "AMP bf16, AdamW")
def lstm_train() -> Step:
    choose = random.Random(9)
    with torch.device(DEVICE):
        words, lstm, guess = (
            nn.Embedding(50000, 1024), nn.LSTM(1024, 2048, 3, batch_first=True),
            nn.Linear(2048, 50000))

    def loss() -> torch.Tensor:
        given = tokens(32, choose.randrange(10, 200))
        out = guess(lstm(words(given))[0]).float()
        return nn.functional.cross_entropy(out.flatten(0, 1), given.flatten())
    return training(nn.ModuleList([words, lstm, guess]), loss)


class Convolutions(nn.Sequential):
    """Two convolutions, each with its norm."""

    def __init__(self, channels: int, out: int) -> None:
        one = [nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
        super().__init__(*one, nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())


class UNet(nn.Module):
    """Images of four channels to images: down three times, and up again beside what was kept."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(map(Convolutions, [4, *widths[:3]], widths))
        self.up = nn.ModuleList(
            Convolutions(widths[at] + widths[at + 1], widths[at]) for at in (2, 1, 0))
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down[:3]:
            kept.append(down(x))
            x = nn.functional.avg_pool2d(kept[-1], 2)
        x = self.down[3](x)
        for up in self.up:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, kept.pop()], 1))
        return self.out(x)


@recorded(8, "a U-Net of width 128 trained on batches of 4 crops, 128..512 pixels each way, AMP "
             "bf16, AdamW")
def unet_varying_crops() -> Step:
    choose = random.Random(7)
    with torch.device(DEVICE):
        model = UNet(128)

    def loss() -> torch.Tensor:
        height, width = (8 * choose.randrange(16, 65) for _ in range(2))
        images = torch.randn(4, 4, height, width, device=DEVICE)
        return nn.functional.mse_loss(model(images).float(), images)
    return training(model, loss)


@recorded(30, "inference of four models in half precision, each on a stream of its own, with "
              "batches of 1..64 that a fifth stream copies in")
def four_streams_inference() -> Step:
    from torchvision import models
    choose = random.Random(11)
    with torch.device(DEVICE):
        nets = [make().half().eval() for make in (
            models.resnet50, models.vit_b_16, models.efficientnet_b4, models.convnext_small)]
    streams, copies = [torch.cuda.Stream() for _ in nets], torch.cuda.Stream()

    def step() -> None:
        for net, stream in zip(nets, streams):
            with torch.cuda.stream(copies):
                images = torch.empty(choose.randrange(1, 65), 3, 224, 224, device=DEVICE).half()
            stream.wait_stream(copies)
            images.record_stream(stream)
            with torch.cuda.stream(stream), torch.inference_mode():
                net(images)
        if choose.random() < 0.5:
            torch.cuda.synchronize()
    return step


def record(name: str, snapshot: Path) -> None:
    """Runs a model's steps, and writes what PyTorch recorded of them."""
    prepare, steps, _ = RECORDED[name]
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(
        max_entries=ENTRIES_MAX, context=None, stacks="python", global_record_annotations=True)
    step = prepare()
    for number in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            step()
    torch.cuda.memory._dump_snapshot(str(snapshot))
    torch.cuda.memory._record_memory_history(enabled=None)


def evenly_timed(trace: str) -> str:
    """A trace whose every event takes the same time: the clock was that of this machine."""
    lines, at = [], -1
    for line in trace.splitlines():
        is_event = line[:2] in ("a,", "f,", "s,", "e,", "m,", "o,")
        at += is_event
        cells = line.split(",")
        if is_event:
            cells[4] = str(at * NS_PER_EVENT)
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def make(name: str, drystone: str) -> None:
    """Both files of a trace."""
    target = HERE / f"{name}.csv.zst"
    with tempfile.TemporaryDirectory() as folder:
        snapshot, text = Path(folder) / "recorded.pickle", Path(folder) / f"{name}.csv"
        # In a process of its own: nothing of one model is left for the next.
        subprocess.run([sys.executable, "-B", __file__, "--record", name, str(snapshot)], check=True)
        subprocess.run([drystone, "convert", str(snapshot), str(text)], check=True)
        text.write_text(evenly_timed(text.read_text()))
        subprocess.run([drystone, "convert", str(text), str(target)], check=True)
    done = subprocess.run(
        [drystone, "inspect", "--json", str(target)], check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout)["traces"][0]["summary"]
    about = {
        "name": name, "origin": "recorded by traces/record.py", "licence": "project's own",
        "note": RECORDED[name][2], "torch": torch.__version__, "transformers": _transformers(),
        "events": summary["events"], "allocs": summary["allocations"], "frees": summary["frees"],
        "peak_live_bytes": summary["peak_requested_bytes"],
        "distinct_sizes": summary["distinct_sizes"], "iterations": summary["iterations"],
        "streams": len(summary["streams"]), "file": target.name,
        "file_bytes": target.stat().st_size,
    }
    target.with_suffix("").with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{name}: {summary['events']} events, {about['file_bytes']} bytes")


def _transformers() -> str:
    import transformers
    return transformers.__version__


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--record"]:
        record(arguments[1], Path(arguments[2]))
        return
    unknown = [name for name in arguments if name not in RECORDED]
    if unknown:
        sys.exit(f"no trace {unknown[0]}; there are {', '.join(RECORDED)}")
    drystone = shutil.which("drystone")
    if drystone is None:
        sys.exit("the drystone command is not on PATH: cargo install --path crates/tools/cli")
    for name in arguments or RECORDED:
        make(name, drystone)


if __name__ == "__main__":
    main(sys.argv[1:])
