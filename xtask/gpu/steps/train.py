"""Trains a small GPT with one of the ways to have memory, and tells what came of it.

    train.py native|expandable|plugin|compiled|preload [NAME]

A name tells the same way under other settings (DRYSTONE_CONF) apart. Prints its losses bit by bit,
the time of steps, what was held, and how a CUDA graph and a growing cache fared.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable

from cuda import MIB, skip
from nvml import used_mib

#: With the last, whoever starts this preloads the library and chooses PyTorch's own async backend.
ROUTES = ("native", "expandable", "plugin", "compiled", "preload")
#: Where Drystone looks for one, if it brings nothing compiled for this PyTorch.
COMPILERS = [os.environ.get("CXX", "c++"), "c++", "g++", "clang++"]
#: How settings of PyTorch's allocator are given: before 2.9, and since.
SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
STEPS = 30
BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 8, 256, 512, 8, 6, 8192


def used_by_nvml() -> int | str:
    """MiB in use on the device, by all programs; or why nobody knows."""
    import torch
    used = used_mib(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    return used[0] if isinstance(used, list) else used


def choose(route: str) -> None:
    """Before CUDA is used."""
    if route not in ("plugin", "compiled"):
        return
    import drystone
    try:
        drystone.enable(route=route)
    except drystone.DrystoneError as error:
        if route == "plugin" or any(map(shutil.which, COMPILERS)):
            raise
        skip(" ".join(str(error).split()))


def model(longest: int = LENGTH):
    import torch
    from torch import nn

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.places = nn.Embedding(longest, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, text):
            places = torch.arange(text.shape[1], device=text.device)
            mask = nn.Transformer.generate_square_subsequent_mask(
                text.shape[1], device=text.device)
            x = self.words(text) + self.places(places)
            return self.head(self.layers(x, mask=mask, is_causal=True))

    torch.manual_seed(1)
    return Gpt().cuda()


def step(gpt, optimizer, length: int, texts) -> tuple[str, float]:
    """Its loss, bit by bit, and its milliseconds."""
    import torch
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel
    text = torch.randint(0, WORDS, (BATCH, length + 1), generator=texts).cuda()
    torch.cuda.synchronize()
    start = time.perf_counter()
    # The others may add up in any order.
    with sdpa_kernel(SDPBackend.MATH):
        words = gpt(text[:, :-1])
        loss = functional.cross_entropy(words.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    value = loss.item().hex()
    torch.cuda.synchronize()
    return value, (time.perf_counter() - start) * 1e3


def train() -> dict[str, object]:
    import torch
    gpt = model()
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)
    texts = torch.Generator().manual_seed(2)
    losses, times = [], []
    for _ in range(STEPS):
        loss, took = step(gpt, optimizer, LENGTH, texts)
        losses.append(loss)
        times.append(took)
    return {
        "losses": losses,
        "first step ms": round(times[0], 2),
        "step ms": round(statistics.median(times[5:]), 3),
        "worst later step ms": round(max(times[5:]), 3),
        "allocated MiB, peak": torch.cuda.max_memory_allocated() // MIB,
        "reserved MiB, peak": torch.cuda.max_memory_reserved() // MIB,
        "in use MiB, by NVML": used_by_nvml(),
    }


def checked(is_right: bool) -> str:
    """What a comparison says; a simulated device computes nothing that could be compared."""
    import torch
    if "Simulated" in torch.cuda.get_device_name(0):
        return "computed nothing"
    return "right" if is_right else "failed: differs"


def graph(is_watched: bool) -> str:
    """Captures a graph, while another thread reads statistics if it is watched, and replays it."""
    import threading

    import torch
    layer = torch.nn.Linear(256, 256).cuda()
    given = torch.ones(64, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(side):
            wanted = layer(given) * 2
        torch.cuda.synchronize()
        is_over = threading.Event()

        def look() -> None:
            while is_watched and not is_over.is_set():
                torch.cuda.memory_stats()
                time.sleep(0.001)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                found = layer(given) * 2
        finally:
            is_over.set()
            looker.join()
        for _ in range(3):
            captured.replay()
        torch.cuda.synchronize()
        is_right = torch.allclose(found, wanted)
        # Memory of a graph's is to go while the graph is there.
        del found
    return checked(is_right)


def grow() -> str:
    """A cache that grows row by row, as in generation: what is written must stay."""
    import torch
    cache = torch.empty(0, 1024, device="cuda")
    for step in range(300):
        cache = torch.cat([cache, torch.full((17, 1024), float(step), device="cuda")])
    wanted = torch.arange(300, device="cuda").repeat_interleave(17).float()
    return checked(torch.equal(cache[:, 5], wanted))


def said(step: Callable[[], object]) -> object:
    """What a part came to; its failure is no failure of the others."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001
        return f"failed: {type(error).__name__}: {str(error)[:500]}"


def begin(arguments: list[str]) -> str:
    """The way that the command line asks for, taken; skips where PyTorch cannot run."""
    route = arguments[0] if arguments else ""
    if route not in ROUTES:
        sys.exit(f"a way to have memory is needed: {', '.join(ROUTES)}")
    if route == "expandable":
        # Read when PyTorch is imported.
        os.environ.update(dict.fromkeys(SETTINGS, "expandable_segments:True"))
    try:
        import torch
    except ImportError as error:
        skip(f"no PyTorch: {error}")
    choose(route)
    if not torch.cuda.is_available():
        skip("PyTorch finds no device")
    return route


def main() -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    route = begin(sys.argv[1:])
    import torch
    torch.use_deterministic_algorithms(True, warn_only=True)
    answer: dict[str, object] = {
        "route": " ".join([route, *sys.argv[2:]]), "PyTorch": torch.__version__,
        "device": torch.cuda.get_device_name(0)}
    trained = said(train)
    answer.update(trained if isinstance(trained, dict) else {"training": trained})
    # Of the driver's pools PyTorch asks attributes, which captures forbid.
    answer["graph"] = said(lambda: graph(route != "preload"))
    answer["growing cache"] = said(grow)
    print(json.dumps(answer))
    return any(str(value).startswith("failed") for value in answer.values())


if __name__ == "__main__":
    sys.exit(main())
