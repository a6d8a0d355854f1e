"""Engines that write texts by graphs, captured in other ways than those before.

With those of `held_back_blind_shapes.py` and `held_back_blind_solved.py`: nothing was replayed
while they were written, and none was changed for what an allocator does on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]


def loaded(*parts: nn.Module) -> None:
    """Puts parts that were made without memory on the device."""
    for part in parts:
        part.bfloat16().to_empty(device=DEVICE).eval()


class Layer(nn.Module):
    """A layer as engines run it: sums and norms in place, keys and values in pages."""

    def __init__(self, given: int, width: int, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(given, 128 * (heads + 16), bias=False)
        self.out = nn.Linear(128 * heads, width, bias=False)
        self.up = nn.Linear(width, 2 * wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def seen(self, x: torch.Tensor) -> torch.Tensor:
        q, k, _ = self.qkv(x).split([128 * self.heads, 1024, 1024], 1)
        q, k = (torch.empty_like(one, memory_format=torch.contiguous_format) for one in (q, k))
        return torch.empty_like(q)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.out(self.seen(x))
        shut = self.up(x)
        return self.down(noise(len(x), shut.shape[1] // 2))


@dataclass
class Asked:
    """A prompt, and how many words it has, are still to be read, and to be written."""

    words: int
    unread: int
    unwritten: int


class Guessing:
    """A model of 36 layers judges what one of a single layer guesses, three words ahead."""

    WIDTH, WORDS, FEW, AHEAD = 2560, 151936, 32000, 4
    SIZES = (*range(1, 9), *range(10, 17, 2), *range(20, 33, 4), *range(40, 97, 8),
             *range(112, 193, 16))

    def __init__(self) -> None:
        width = self.WIDTH
        with torch.device("meta"):
            self.layers = nn.ModuleList(Layer(width, width, 9728, 32) for _ in range(36))
            self.words, self.last = nn.Embedding(self.WORDS, width), nn.Linear(
                width, self.WORDS, bias=False)
            self.guess, self.into = Layer(2 * width, width, 9728, 32), nn.Linear(3 * width, width)
            self.guessed = nn.Linear(width, self.FEW, bias=False)
        loaded(self.layers, self.words, self.last)
        self.last.weight = self.words.weight
        loaded(self.guess, self.into, self.guessed)
        self.pages = [noise(2, 20_000, 8, 128) for _ in range(37)]
        most = self.AHEAD * self.SIZES[-1]
        self.given, self.places, self.told = tokens(1, most)[0], tokens(2, most), noise(
            most, 3 * width)
        self.best = tokens(2, self.SIZES[-1] * 4)
        self.graphs: dict[tuple[str, int], tuple[torch.cuda.CUDAGraph, Tensors]] = {}

    def judge(self, given: torch.Tensor) -> Tensors:
        """What may follow each word; and what the other model is told of three layers."""
        rest = self.words(given)
        x, kept = torch.empty_like(rest), []
        for number, layer in enumerate(self.layers):
            if number in (2, 18, 33):
                kept.append(x + rest)
            x = layer(x)
        return x, torch.cat(kept, 1)

    def judged(self, size: int) -> Tensors:
        hidden, told = self.judge(self.given[:self.AHEAD * size])
        return self.last(hidden), told

    def one(self, given: torch.Tensor, told: torch.Tensor) -> Tensors:
        x = torch.cat([torch.empty_like(told), torch.empty_like(self.words(given))], 1)
        made = self.guess(x)
        return self.guessed(made), made

    def likely(self, logits: torch.Tensor) -> Tensors:
        found = logits.float().softmax(-1).topk(4)
        return found.values, found.indices

    def guesses(self, size: int) -> Tensors:
        """Three rounds of the four likeliest each, and the best of all of them."""
        told = self.into(self.told[:size])
        scores, words = noise(size, 4, dtype=torch.float32), self.best[0, :4 * size].view(size, 4)
        kept = [(scores, words)]
        told = told.repeat_interleave(4, 0)
        for _ in range(2):
            logits, told = self.one(words.flatten(), told)
            more, found = self.likely(logits)
            every = (scores.unsqueeze(2) * more.view(size, 4, 4)).flatten(1)
            best = every.topk(4)
            scores, words = best.values, found.view(size, 16).gather(1, best.indices)
            rows = best.indices // 4 + torch.arange(0, 4 * size, 4, device=DEVICE)[:, None]
            told = told[rows.flatten()]
            kept.append((every, found.view(size, 16)))
        every, found = (torch.cat([one[at] for one in kept], 1) for at in range(2))
        chosen = every.topk(self.AHEAD - 1).indices.sort().values
        return found.gather(1, chosen), chosen

    def follow(self, size: int) -> Tensors:
        """The guessing model reads what was kept of its guesses."""
        given, ends = self.given[:self.AHEAD * size], self.places[0, :size]
        logits, made = self.one(given, self.into(self.told[:len(given)]))
        return *self.likely(logits[ends]), made[ends]

    def capture(self) -> None:
        """All sizes of each, the smallest first, in one pool: first the large model's."""
        pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        runs: list[tuple[str, Callable[[int], Tensors]]] = [
            ("judge", self.judged), ("guess", self.guesses), ("follow", self.follow)]
        for name, run in runs:
            for size in self.SIZES:
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    run(size)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    made = run(size)
                self.graphs[name, size] = graph, made

    def replay(self, name: str, size: int) -> Tensors:
        graph, made = self.graphs[name, size]
        graph.replay()
        return made

    def read(self, counts: list[int]) -> None:
        """Prompts, or parts of them, one after another; the words that follow them."""
        given = torch.zeros(sum(counts), dtype=torch.long).to(DEVICE, non_blocking=True)
        starts = torch.tensor(counts, dtype=torch.int32).to(DEVICE).cumsum(0)
        hidden, told = self.judge(given)
        self.last(hidden[starts - 1]).float().softmax(-1).argmax(-1).cpu()
        del hidden
        logits, _ = self.one(given, self.into(told))
        self.likely(logits[starts - 1])

    def write(self, lengths: list[int], drawn: bool, shaped: int) -> None:
        """A round for prompts of these lengths: guesses, their judgement, and what is kept."""
        rows = len(lengths)
        size = min(size for size in self.SIZES if size >= rows)
        held = torch.tensor(lengths, dtype=torch.int32).to(DEVICE, non_blocking=True)
        pages = torch.empty(sum(lengths) + 16 * rows, dtype=torch.int32, device=DEVICE)
        self.replay("guess", size)
        tree = torch.empty(4 * sum(lengths) + 16 * rows, dtype=torch.bool, device=DEVICE)
        after, beside, order = tokens(3, 4 * rows).view(3, rows, 4)
        self.given[:4 * rows] = order.flatten() + held.repeat_interleave(4)
        del pages, tree
        logits, told = (one[:4 * rows] for one in self.replay("judge", size))
        if shaped:
            allowed = torch.zeros(4 * shaped, self.WORDS // 32, dtype=torch.int32).to(DEVICE)
            logits[:4 * shaped].add_(allowed[:, :1])
        if drawn:
            warm = torch.ones(rows, 1, device=DEVICE).repeat_interleave(4, 0)
            likely = (logits / warm).softmax(-1)
            likely = torch.empty_like(likely).copy_(likely)
            likely = torch.empty_like(likely).copy_(likely)
            torch.rand(rows, 4, device=DEVICE)
        else:
            logits.argmax(-1)
        kept = torch.empty(rows, 4, dtype=torch.int32, device=DEVICE)
        count = kept.sum(1).clamp(min=1)
        self.told[:4 * rows] = told.index_select(0, (after + beside).flatten())
        _, found, _ = self.replay("follow", size)
        self.best[0, :4 * rows] = found[:rows].flatten().clone()
        count.cpu()


@recorded(4, "a server whose model of 36 layers judges what a layer of its own guesses three words "
             "ahead: graphs of 30 batch sizes, from one up to 192, in one pool, then those of what "
             "guesses, in the same; prompts are read without", HELD_BACK)
def small_batches_captured_first() -> Step:
    choose, engine = random.Random(201), Guessing()
    waiting: list[Asked] = []
    running: list[Asked] = []

    def come() -> None:
        words = int(min(6000, choose.lognormvariate(5.2, 1.1))) + 8
        waiting.append(Asked(words, words, int(min(400, choose.lognormvariate(3.9, 0.8))) + 4))

    def read() -> None:
        """Up to 4,096 words of those that wait; what does not fit is read next time."""
        left, counts = 4096, []
        while waiting and left and len(running) < 192:
            some = min(left, waiting[0].unread)
            counts.append(some)
            left -= some
            waiting[0].unread -= some
            if not waiting[0].unread:
                running.append(waiting.pop(0))
        engine.read(counts)

    @torch.inference_mode()
    def step() -> None:
        engine.graphs or engine.capture()
        for _ in range(60):
            if choose.random() < 0.2:
                for _ in range(choose.randrange(1, 30)):
                    come()
            if waiting and len(running) < 192:
                read()
            elif running:
                engine.write([one.words for one in running], choose.random() < 0.6,
                             choose.randrange(len(running) // 4 + 1))
                for one in list(running):
                    kept = choose.randrange(1, 5)
                    one.words, one.unwritten = one.words + kept, one.unwritten - kept
                    if one.unwritten <= 0:
                        running.remove(one)
    return step
