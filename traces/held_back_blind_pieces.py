"""An engine whose model is cut at its attention: each piece is a graph, attention is not.

A companion of `held_back_blind_engines.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

from held_back_blind_engines import Asked, Tensors, loaded
from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

WIDTH, WIDE, HEADS, GROUPS, WORDS, LAYERS = 3072, 8192, 24, 8, 128256, 28
SIZES = [1, 2, 4, *range(8, 129, 8), *range(144, 257, 16), *range(288, 513, 32)]


def borrowed(one: torch.Tensor) -> torch.Tensor:
    """The same memory, without keeping it: the graph's pool may give it to others meanwhile."""
    own = one.untyped_storage()
    alike = torch._C._construct_storage_from_data_pointer(
        own.data_ptr(), one.device, own.nbytes())
    place = one.storage_offset(), one.shape, one.stride()
    return torch.empty(0, dtype=one.dtype, device=DEVICE).set_(alike, *place)


class Part(nn.Module):
    """What is between two attentions, as a compiler joins its operations."""

    def __init__(self, begins: bool, ends: bool) -> None:
        super().__init__()
        self.begins, self.ends = begins, ends
        if not begins:
            self.out = nn.Linear(128 * HEADS, WIDTH, bias=False)
            self.up = nn.Linear(WIDTH, 2 * WIDE, bias=False)
            self.down = nn.Linear(WIDE, WIDTH, bias=False)
        if not ends:
            self.qkv = nn.Linear(WIDTH, 128 * (HEADS + 2 * GROUPS), bias=False)

    def forward(self, seen: torch.Tensor, rest: torch.Tensor) -> Tensors:
        if not self.begins:
            out = self.out(seen)
            rest, x = torch.empty_like(rest), torch.empty_like(rest)
            del out
            up = self.up(x)
            shut = noise(len(up), WIDE)
            del up
            down = self.down(shut)
            del shut
            rest = torch.empty_like(rest)
            x.copy_(down)
            del down
        else:
            x = torch.empty_like(rest)
        if self.ends:
            return (x,)
        q, k, v = self.qkv(x).split([128 * HEADS, 128 * GROUPS, 128 * GROUPS], 1)
        del x
        q, k = (one.contiguous() for one in (q, k))
        return q, k, v, torch.empty_like(q), rest


class Piece:
    """A part, with a graph of each number of words that it was captured for."""

    capturing, graphed = False, False
    pool: object
    stream: torch.cuda.Stream

    def __init__(self, run: Callable[..., Tensors], begins: bool, ends: bool) -> None:
        self.run, self.begins, self.ends = run, begins, ends
        self.of: dict[int, tuple[torch.cuda.CUDAGraph, Tensors]] = {}

    def __call__(self, *given: torch.Tensor) -> Tensors:
        count = len(given[0])
        if not Piece.graphed or not (Piece.capturing or count in self.of):
            return self.run(*given)
        if count in self.of:
            graph, made = self.of[count]
            graph.replay()
            return made
        graph = torch.cuda.CUDAGraph()
        # Once for each size is enough, and quicker.
        kept = nullcontext() if self.begins else mock.patch("torch.cuda.empty_cache")
        with kept, torch.cuda.graph(graph, pool=Piece.pool, stream=Piece.stream):
            made = self.run(*given)
            if self.ends:
                # Nobody asks for it but the host, before the next replay.
                made = tuple(map(borrowed, made))
        self.of[count] = graph, tuple(map(borrowed, made))
        return made


class Pieces:
    """Llama of 28 layers in 29 pieces, with pages, and what chooses words."""

    AT_ONCE, ROWS = 2048, 256

    def __init__(self) -> None:
        with torch.device("meta"):
            parts = [Part(at == 0, at == LAYERS) for at in range(LAYERS + 1)]
            self.words = nn.Embedding(WORDS, WIDTH)
        loaded(self.words, *parts)
        self.given, self.places = tokens(1, self.AT_ONCE)[0], tokens(1, self.AT_ONCE)[0]
        first, *others = parts
        self.pieces = [Piece(lambda given: first(given, self.words(given)), True, False)]
        self.pieces += [Piece(part, False, part.ends) for part in others]
        self.pages: list[torch.Tensor] = []

    def attend(self, q: torch.Tensor, seen: torch.Tensor, longest: int) -> None:
        """Without a graph: its own memory depends on who asks, too."""
        if not longest:
            seen.fill_(0)
            return
        noise(HEADS, len(q), dtype=torch.float32)
        parts = min(32, longest // 512) if len(q) <= 64 else 1
        if parts > 1:
            noise(parts, HEADS, len(q), 128, dtype=torch.float32)
            noise(parts, HEADS, len(q), dtype=torch.float32)

    def run(self, count: int, longest: int) -> torch.Tensor:
        made = self.pieces[0](self.given[:count])
        for piece in self.pieces[1:]:
            q, _, _, seen, rest = made
            self.attend(q, seen, longest)
            del q, made
            made = piece(seen, rest)
            del seen, rest
        return made[0]

    def start(self) -> None:
        """What the most takes, then pages, then a graph of each size, the largest first."""
        hidden = self.run(self.AT_ONCE, 0)
        self.choose(self.logits(hidden[:self.ROWS]), self.ROWS, True)
        del hidden
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.pages = [noise(2, 2400, 16, GROUPS, 128) for _ in range(LAYERS)]
        Piece.pool, Piece.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        with torch.cuda.stream(Piece.stream):
            for size in reversed(SIZES):
                Piece.graphed = Piece.capturing = False
                self.run(size, 0)
                Piece.graphed = Piece.capturing = True
                self.run(size, 0)
        Piece.capturing = False
        torch.cuda.synchronize()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(hidden, self.words.weight)

    def choose(self, logits: torch.Tensor, drawn: int, cut: bool) -> torch.Tensor:
        """The likeliest words, and words drawn by chance for those who want that."""
        logits = logits.float()
        best = logits.argmax(-1)
        if not drawn:
            return best
        logits.div_(torch.ones(len(logits), 1, device=DEVICE))
        if cut:
            ordered, order = logits.sort(-1, descending=False)
            below = ordered.softmax(-1).cumsum_(-1) <= 0.1
            ordered.masked_fill_(below, -1e9)
            logits = ordered.scatter(-1, order, ordered)
        likely = logits.softmax(-1, dtype=torch.float32)
        rolled = torch.empty_like(likely).exponential_()
        return torch.where(best < drawn, best, likely.div_(rolled).argmax(-1))


@recorded(5, "an engine whose Llama of 28 layers is cut at its attention: 29 pieces, each a graph "
             "for each of 35 numbers of words, in one pool, attention between them without; turns "
             "of more than 512 words run without graphs", HELD_BACK)
def pieces_between_attention() -> Step:
    choose, engine = random.Random(202), Pieces()
    asked: list[Asked] = []

    def come() -> None:
        """A turn of a long talk: most of it was read before, and is found in pages."""
        words = int(min(20_000, choose.lognormvariate(6.6, 1.2))) + 16
        new = words if choose.random() < 0.3 else min(words, int(choose.lognormvariate(4.5, 1)) + 4)
        asked.append(Asked(words, new, int(min(250, choose.lognormvariate(3.7, 0.8))) + 2))

    def turn() -> None:
        left, counts = engine.AT_ONCE, []
        for one in asked[:engine.ROWS]:
            some = min(left, one.unread or 1)
            if not some:
                break
            counts.append(some)
            left -= some
        served = asked[:len(counts)]
        words = sum(counts)
        fitting = [size for size in SIZES if size >= words]
        count = min(fitting) if fitting else words
        starts = torch.tensor(counts, dtype=torch.int32).to(DEVICE, non_blocking=True).cumsum(0)
        longest = max(one.words for one in served)
        hidden = engine.run(count, longest)
        if choose.random() < 0.02:
            # Somebody wants to know how likely the words of the prompt were.
            told = engine.logits(hidden[:max(counts)]).float().log_softmax(-1)
            told.gather(1, tokens(len(told), 1)).cpu()
            del told
        logits = engine.logits(hidden[starts - 1])
        del hidden
        if choose.random() < 0.2:
            told = torch.log_softmax(logits, -1, dtype=torch.float32)
            torch.cat([told.topk(5).values, told[:, :1]], 1).cpu()
        made = engine.choose(logits, choose.randrange(len(counts) + 1), choose.random() < 0.4)
        made.to(torch.int32).cpu()
        for one, some in zip(served, counts):
            if one.unread:
                one.unread -= some
            if not one.unread:
                one.words, one.unwritten = one.words + 1, one.unwritten - 1
                if not one.unwritten:
                    asked.remove(one)

    @torch.inference_mode()
    def step() -> None:
        engine.pages or engine.start()
        for _ in range(70):
            if choose.random() < 0.25 or not asked:
                for _ in range(choose.randrange(1, 16)):
                    come()
            turn()
    return step
