"""Trains the models of the recorded GPU runs on the simulated device, many in one process.

    python truth.py timm|mlp TRUTH.csv ROWS SEED SHARE SHARES DONE.jsonl OUT.jsonl

Each row gives the peak that PyTorch reserved in a process of its own, forked before CUDA is used:
what cuDNN chose for one model is not known to the next. Some rows with convolutions run once more,
on a device that has what a dry run calls enough and no more, while engines that PyTorch tries first
ask for a part of all of it: whether that is enough is then known. A share has all rows of a model,
and takes models in the order of the seed: what an ended run leaves is a sample. Models are
described without weights first (`meta`), since filling them would take most of the time.
Invariant: one setting for all rows, stated in `docs/evidence/accuracy.md`; nothing here knows what
was measured.
"""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import random
import sys
from collections.abc import Callable

from drystone_sim import _libraries, _weights
from drystone_sim._beside import CACHED

# Before PyTorch looks for any.
_libraries.load()

import torch  # noqa: E402
from torch import nn  # noqa: E402

MIB = 1 << 20
STEPS = 3
# The data set of the timm runs: models with fewer classes end at its labels.
CLASSES = 1000
# What engines ask for that have no public size, as a part of the device.
GREED = 1 / 4
# One row in so many runs once more.
TRIED = 4
# Weights of so many elements get no values on the host, which would take minutes.
LARGE = 1 << 16
ACTIVATIONS = {
    "elu": nn.ELU, "gelu": nn.GELU, "identity": nn.Identity, "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish, "prelu": nn.PReLU, "relu": nn.ReLU, "selu": nn.SELU,
    "softplus": nn.Softplus, "swish": nn.SiLU, "tanh": nn.Tanh}

Row = dict[str, str]
Train = Callable[[nn.Module], None]


class Left(Exception):
    """A row that is left out, and why."""


def multilayer(row: Row, where: str) -> tuple[nn.Module, Train, str]:
    """A perceptron, Adam and cross entropy."""
    with torch.device(where):
        model = layers_of(row)
    wide, out, batch = int(row["input"]), int(row["output"]), int(row["batch"])

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
    return model, train, "perceptrons"


def layers_of(row: Row) -> nn.Module:
    """The perceptron of a row."""
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
    return model


@functools.lru_cache(maxsize=1)
def described(name: str, where: str) -> nn.Module:
    """A model of timm, once for the rows that have it."""
    import timm
    if name not in timm.list_models():
        raise Left("this version of timm has no such model")
    with torch.device(where):
        return timm.create_model(name)


def image_model(row: Row, where: str) -> tuple[nn.Module, Train, str]:
    """A model of timm, trained as its training script does without options."""
    from timm.data import resolve_data_config
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    model, batch = described(row["model"], where), int(row["batch"])
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
    """By the modules: attention, convolutions beyond the cutting into patches, both or neither."""
    parts = list(model.modules())
    has_attention = any(word in type(part).__name__ for part in parts
                        for word in ("Attention", "Attn"))
    spatial = [part for part in parts if isinstance(part, nn.Conv2d) and part.kernel_size[0] > 1]
    if len(spatial) > 1:
        return "both" if has_attention else "convolutions"
    return "transformers" if has_attention else "mixers"


def reserved(make: Callable[[Row, str], tuple[nn.Module, Train, str]],
             row: Row) -> dict[str, object]:
    """The peak of a row, in MiB, or why there is none; and whether that was enough."""
    try:
        work = functools.partial(trained, *make(row, "meta"), "meta")
        made = in_child(work)
    except Left as why:
        return {"left": str(why)}
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as why:
        made = {"failed": str(why)}
    if "failed" in made:
        # What is made beside the weights, or of their values, cannot be described.
        work = functools.partial(made_and_trained, make, row)
        made = in_child(work)
    if made.get("most_mib") and int(row["number"]) % TRIED == 0:
        limit = math.ceil(made["reserved_mib"] + CACHED * made["most_mib"])
        again = in_child(work, f"memory:{limit}MiB,overcommit:false,"
                               f"engine:{math.ceil(limit * GREED)}MiB")
        made["enough"] = "reserved_mib" in again
        if not made["enough"]:
            made["why_not"] = again
    return made


def trained(model: nn.Module, train: Train, kind: str, where: str) -> dict[str, object]:
    """Trains a model that was described or made there."""
    weights = 4 * sum(part.numel() for part in model.parameters()) / MIB
    train(model.to_empty(device="cuda") if where == "meta" else model.cuda())
    counted = _libraries.counted()
    likely, most = counted["convolution_bytes"]
    return {"class": kind, "weights_mib": weights,
            "reserved_mib": torch.cuda.max_memory_reserved() / MIB,
            "likely_mib": likely / MIB, "most_mib": most / MIB,
            "engine_mib": counted["engine_bytes"] / MIB}


def made_and_trained(make: Callable[[Row, str], tuple[nn.Module, Train, str]],
                     row: Row) -> dict[str, object]:
    """Trains a model that is made where it is trained from."""
    return trained(*make(row, "cpu"), "cpu")


def in_child(work: Callable[[], dict[str, object]], device: str = "") -> dict[str, object]:
    """What work in a process of its own gives, with more settings of the device."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.environ["SIMCUDA_CONF"] += f",{device}"
        try:
            made = work()
        except Left as why:
            made = {"left": str(why)}
        except torch.cuda.OutOfMemoryError:
            made = {"refused": True}
        except Exception as error:
            made = {"failed": f"{type(error).__name__}: {error}"[:200]}
        os.write(writing, json.dumps(made).encode())
        # Nothing of the parent's is to be ended twice.
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"failed": "it was killed"}


def chosen(what: str, truth: str, rows: int, seed: int) -> dict[str, list[Row]]:
    """Some rows of a file by what they train, in the order of the seed."""
    with open(truth, newline="", encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    random.Random(seed).shuffle(every)
    found: dict[str, list[Row]] = {}
    for number, row in enumerate(every[:rows]):
        found.setdefault(row.get("model", str(number)), []).append({"number": str(number), **row})
    return found


def main(what: str, truth: str, rows: str, seed: str, share: str, shares: str, done: str,
         out: str) -> None:
    """A share of the rows that are not done, to a file, a line each."""
    _weights.leave_out(torch, LARGE)
    models = list(chosen(what, truth, int(rows), int(seed)).values())[int(share)::int(shares)]
    with open(done, encoding="utf-8") as lines:
        ran = {json.loads(line)["number"] for line in lines}
    ours = [row for model in models for row in model if row["number"] not in ran]
    # What each child would import.
    from torch import _dynamo  # noqa: F401
    if what == "timm":
        import timm.loss
        import timm.optim  # noqa: F401
    with open(out, "w", encoding="utf-8") as file:
        for at, row in enumerate(ours, 1):
            made = reserved({"timm": image_model, "mlp": multilayer}[what], row)
            print(json.dumps({**row, **made}), file=file, flush=True)
            if share == "0":
                print(f"\r{what}: {at} of {len(ours)}", end="", file=sys.stderr, flush=True)
    if share == "0":
        print(file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
