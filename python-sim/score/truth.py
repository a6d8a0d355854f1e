"""Trains the models of the recorded GPU runs on the simulated device, many in one process.

    python truth.py timm|mlp TRUTH.csv ROWS SEED OUT.json

Each row gives the peak that PyTorch reserved, as on a process of its own: what is cached and the
workspaces are given back before the next. Invariant: one setting for all rows, stated in
`docs/accuracy.md`; nothing here knows what was measured.
"""

from __future__ import annotations

import csv
import gc
import json
import random
import sys
from collections.abc import Callable

from drystone_sim import _libraries, _weights

# Before PyTorch looks for any.
_libraries.load()

import torch  # noqa: E402
from torch import nn  # noqa: E402

MIB = 1 << 20
STEPS = 3
# The data set of the timm runs: models with fewer classes end at its labels.
CLASSES = 1000
# Weights of so many elements get no values on the host, which would take minutes.
LARGE = 1 << 16
ACTIVATIONS = {
    "elu": nn.ELU, "gelu": nn.GELU, "identity": nn.Identity, "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish, "prelu": nn.PReLU, "relu": nn.ReLU, "selu": nn.SELU,
    "softplus": nn.Softplus, "swish": nn.SiLU, "tanh": nn.Tanh}

Row = dict[str, str]


class Left(Exception):
    """A row that is left out, and why."""


def multilayer(row: Row) -> tuple[nn.Module, Callable[[nn.Module], None], str]:
    """A perceptron, Adam and cross entropy."""
    wide, out, depth = int(row["input"]), int(row["output"]), int(row["depth"])
    given, layers = wide, []
    for _ in range(depth + (row["arch"] == "bottleneck")):
        if row["arch"] in ("pyramid", "bottleneck"):
            hidden = max(given // 2, out)
        elif row["arch"] == "gradual":
            hidden = max(given - (wide - out) // depth, out)
        else:
            hidden = given
        layers.append(nn.Linear(given, hidden))
        if row["use_batchnorm"] == "True":
            layers.append(nn.BatchNorm1d(hidden))
        layers.append(ACTIVATIONS[row["act"]]())
        if row["use_dropout"] == "True":
            layers.append(nn.Dropout(float(row["dropout"])))
        given = hidden
    model = nn.Sequential(*layers, nn.Linear(given, out), nn.Softmax(1))
    # The recording does not count the slopes of PReLU.
    slopes = sum(isinstance(layer, nn.PReLU) for layer in model)
    if sum(part.numel() for part in model.parameters()) - slopes != int(row["parameters"]):
        raise Left("another number of parameters than recorded")
    batch = int(row["batch"])

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.Adam(model.parameters())
        criterion = nn.CrossEntropyLoss() if out > 1 else nn.BCELoss()
        for _ in range(STEPS):
            images = torch.empty(batch, wide, device="cuda")
            labels = (torch.zeros(batch, dtype=torch.long, device="cuda") if out > 1
                      else torch.zeros(batch, 1, device="cuda"))
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()
    return model, train, "multilayer perceptrons"


def image_model(row: Row) -> tuple[nn.Module, Callable[[nn.Module], None], str]:
    """A model of timm, trained as its training script does without options."""
    import timm
    from timm.data import resolve_data_config
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    if row["model"] not in timm.list_models():
        raise Left("this version of timm has no such model")
    model, batch = timm.create_model(row["model"]), int(row["batch"])
    shape = batch, *resolve_data_config({}, model=model)["input_size"]

    def train(model: nn.Module) -> None:
        torch.backends.cudnn.benchmark = True
        optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1, momentum=0.9, weight_decay=2e-5)
        criterion = LabelSmoothingCrossEntropy(0.1).cuda()
        loader, following = torch.cuda.Stream(), None
        for _ in range(STEPS):
            with torch.cuda.stream(loader):
                raw = torch.empty(shape, dtype=torch.uint8, device="cuda")
                labels = torch.zeros(batch, dtype=torch.long, device="cuda")
                images = raw.to(torch.float32).sub_(0.5).div_(0.5)
            torch.cuda.current_stream().wait_stream(loader)
            now, following = following or (images, labels), (images, labels)
            out = model(now[0])
            if out.shape[-1] < CLASSES:
                raise Left("fewer classes than the data set")
            criterion(out, now[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
    return model, train, image_class(model)


def image_class(model: nn.Module) -> str:
    """By the modules: with attention, or convolutions beyond the cutting into patches."""
    parts = list(model.modules())
    if any("Attention" in type(part).__name__ or "Attn" in type(part).__name__ for part in parts):
        return "transformers"
    spatial = [part for part in parts if isinstance(part, nn.Conv2d) and part.kernel_size[0] > 1]
    return "convolutions" if len(spatial) > 1 else "mixers"


def reserved(make: Callable[[Row], tuple[nn.Module, Callable[[nn.Module], None], str]],
             row: Row) -> dict[str, object]:
    """The peak of a row, in MiB, or why there is none."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        model, train, kind = make(row)
        weights = 4 * sum(part.numel() for part in model.parameters()) / MIB
        train(model.cuda())
    except Left as why:
        return {"left": str(why)}
    except torch.cuda.OutOfMemoryError:
        return {"refused": True}
    return {"class": kind, "weights_mib": weights,
            "reserved_mib": torch.cuda.max_memory_reserved() / MIB}


def main(what: str, truth: str, rows: str, seed: str, out: str) -> None:
    """Some rows of a file, chosen by a seed, to a file."""
    _weights.leave_out(torch, LARGE)
    with open(truth, newline="", encoding="utf-8") as file:
        chosen = list(csv.DictReader(file))
    random.Random(int(seed)).shuffle(chosen)
    chosen = chosen[:int(rows)]
    found = []
    for number, row in enumerate(chosen):
        made = reserved({"timm": image_model, "mlp": multilayer}[what], row)
        found.append({**row, **made})
        print(f"\r{what}: {number + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
