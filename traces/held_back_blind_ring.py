"""A program of a rank whose texts are cut over all ranks, of a kind that none before is of.

A companion of `held_back_blind_graphs.py`. It has two streams beside the default one.
"""

from __future__ import annotations

import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Tensors = tuple[torch.Tensor, ...]


class Ring(torch.autograd.Function):
    """Attention of a rank's part of the texts to all: keys and values go around, rank to rank."""

    ranks, rank = 8, 3
    beside: torch.cuda.Stream
    moving: torch.cuda.Stream

    @staticmethod
    def passed(sent: torch.Tensor) -> torch.Tensor:
        """What the rank before sends, as large; it is there once the stream was waited for."""
        come = torch.empty_like(sent)
        Ring.moving.wait_stream(torch.cuda.current_stream())
        for one in (sent, come):
            one.record_stream(Ring.moving)
        return come

    @staticmethod
    def rows(number: int, count: int) -> slice:
        """The second half alone looks at what comes from ranks whose texts lie between."""
        return slice(0 if number <= Ring.rank else count // 2, None)

    @staticmethod
    def forward(context: object, q: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
        """Every other step is on the stream beside, so that two steps overlap."""
        here, held, steps = torch.cuda.current_stream(), [both], []
        Ring.beside.wait_stream(here)
        for number in range(Ring.ranks):
            stream, asked = (here, Ring.beside)[number % 2], q[Ring.rows(number, len(q))]
            with torch.cuda.stream(stream):
                stream.wait_stream(Ring.moving)
                if number + 1 < Ring.ranks:
                    held.append(Ring.passed(held[-1]))
                steps.append((torch.empty_like(asked), noise(
                    len(asked), q.shape[1], 1, dtype=torch.float32)))
        here.wait_stream(Ring.beside)
        weight = steps[0][1].clone()
        for number, (_, share) in enumerate(steps[1:], 1):
            rows = Ring.rows(number, len(q))
            weight[rows] = torch.logaddexp(weight[rows], share)
        out = torch.zeros_like(q, dtype=torch.float32)
        for number, (seen, share) in enumerate(steps):
            rows = Ring.rows(number, len(q))
            out[rows] += seen * (share - weight[rows]).exp()
        made = out.to(q.dtype)
        context.save_for_backward(q, both, made, weight)
        return made

    @staticmethod
    def backward(context: object, grad: torch.Tensor) -> Tensors:
        q, both, made, _ = context.saved_tensors
        here, held, come, theirs = torch.cuda.current_stream(), both, None, None
        asked = torch.zeros_like(q, dtype=torch.float32)
        for number in range(Ring.ranks):
            here.wait_stream(Ring.moving)
            held = held if come is None else come
            come = Ring.passed(held) if number + 1 < Ring.ranks else None
            rows = Ring.rows(number, len(q))
            dots = (grad[rows] * made[rows]).float().sum(-1)
            of_q, of_both = torch.empty_like(q[rows]), torch.empty_like(both)
            asked[rows] += of_q
            # What was found of them so far goes around with them, and once more, to their own.
            theirs = Ring.passed(of_both.float() if theirs is None else theirs + of_both)
            del dots, of_q, of_both
        here.wait_stream(Ring.moving)
        return asked.to(q.dtype), theirs.to(both.dtype)


class Around(nn.Module):
    """A layer of a rank that has an eighth of each text."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, width + 1024, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (-1, 128)).split(
            [x.shape[1] // 128, 4, 4], 1)
        q, k = (one * cos + torch.cat([-one[..., 64:], one[..., :64]], -1) * sin for one in (q, k))
        x = x + self.out(Ring.apply(q, torch.stack([k, v])).flatten(1))
        gate, wide = self.up(self.norms[1](x)).tensor_split(2, -1)
        return x + self.down(nn.functional.silu(gate) * wide)


@recorded(5, "rank 3 of 8 trains a Llama of 14 layers on texts of 16,000 to 110,000 words cut over "
             "all ranks: keys and values go around on a stream, every other step of attention is "
             "on another; an eighth of the optimizer is here, long texts have layers computed "
             "again",
          HELD_BACK)
def texts_around_a_ring() -> Step:
    choose, width = random.Random(104), 2048
    Ring.beside, Ring.moving = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.device("meta"):
        layers = nn.ModuleList(Around(width, 7168) for _ in range(14))
        words, norm = nn.Embedding(128256, width), nn.RMSNorm(width)
    model = nn.ModuleList([layers, words, norm]).bfloat16().to_empty(device=DEVICE)
    weights = list(model.parameters())
    total = sum(one.numel() for one in weights)
    slopes = torch.zeros(total, device=DEVICE)
    mine = nn.Parameter(noise(total // 8 + 1, dtype=torch.float32))
    optimizer = torch.optim.AdamW([mine], lr=1e-4)

    def cost(x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        logits = nn.functional.linear(norm(x), words.weight).float()
        return nn.functional.cross_entropy(logits, right, reduction="sum")

    def microbatch() -> None:
        count = int(min(110_000, max(16_000, choose.lognormvariate(10.6, 0.6)))) // 128 * 16
        given = tokens(2, count)
        angles = noise(count, 1, 128, dtype=torch.float32)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        x = words(given[0])
        for number, layer in enumerate(layers):
            if count > 4000 and (count > 8000 or number % 2):
                x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
        parts = zip(x.split(2048), given[1].split(2048))
        losses = [checkpoint(cost, *part, use_reentrant=False) for part in parts]
        (torch.stack(losses).sum() / count).backward()
        at = 0
        for one in weights:
            slopes[at:at + one.numel()] += one.grad.flatten()
            at, one.grad = at + one.numel(), None

    def update() -> None:
        """Gradients of all ranks are summed part by part, each rank moves its own, all get it."""
        here = torch.cuda.current_stream()
        for bucket in slopes.split(1 << 27):
            come = Ring.passed(bucket[:len(bucket) // 8])
            here.wait_stream(Ring.moving)
            bucket[:len(come)] = come
        mine.grad = slopes[:len(mine)]
        nn.utils.clip_grad_norm_([mine], 1.0)
        optimizer.step()
        mine.grad = None
        slopes.zero_()
        sent = mine.detach().bfloat16()
        for part in sent.split(1 << 25):
            whole = noise(8 * len(part))
            Ring.moving.wait_stream(here)
            for one in (sent, whole):
                one.record_stream(Ring.moving)
            here.wait_stream(Ring.moving)
            torch.cat([whole[:128], whole[-128:]])

    def step() -> None:
        for _ in range(choose.randrange(2, 5)):
            microbatch()
        update()
    return step
