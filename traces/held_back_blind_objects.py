"""A training run whose blocks are graphs, forward and backward, each on its neighbours' memory.

A companion of `held_back_blind_engines.py`.
"""

from __future__ import annotations

import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

WIDTH, SIDE, BATCH, ASKED, KINDS = 1024, 40, 4, 200, 133
Tensors = list[torch.Tensor]


class Block(nn.Module):
    """A block of a vision transformer, what it adds scaled, whole paths left out by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.scales = nn.ParameterList(torch.ones(WIDTH) for _ in range(2))

    def left(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.new_empty(len(x), 1, 1).bernoulli_(0.9).div_(0.9) if self.training else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 16, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.left(self.out(seen) * self.scales[0])
        return x + self.left(self.wide(self.norms[1](x)) * self.scales[1])


class Replayed(torch.autograd.Function):
    """All blocks at once: their graphs one after another, and back."""

    @staticmethod
    def forward(context: object, blocks: Graphed, x: torch.Tensor, *_: torch.Tensor) -> Tensors:
        context.blocks = blocks
        blocks.given.copy_(x)
        for graph in blocks.there:
            graph.replay()
        return tuple(one.detach() for one in blocks.told)

    @staticmethod
    def backward(context: object, *slopes: torch.Tensor) -> Tensors:
        blocks = context.blocks
        for mine, slope in zip(blocks.slopes, slopes):
            mine.copy_(slope)
        for graph in blocks.back:
            graph.replay()
        return None, blocks.first.detach(), *(one.detach() for one in blocks.moved)


class Graphed:
    """Two graphs of each block in one pool: a block's input is the output of that before."""

    TOLD = (5, 11, 17, 23)

    def __init__(self, blocks: nn.ModuleList) -> None:
        self.blocks = blocks
        self.weights = [weight for block in blocks for weight in block.parameters()]
        self.given = noise(BATCH, SIDE * SIDE, WIDTH).requires_grad_()
        self.there: list[torch.cuda.CUDAGraph] = []
        self.back: list[torch.cuda.CUDAGraph] = []
        self.slopes = [torch.zeros_like(self.given) for _ in self.TOLD]
        self.warm()
        self.capture()

    def warm(self) -> None:
        """Whatever libraries make at their first use is made now, on another stream."""
        stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream), torch.autocast(
                DEVICE, torch.bfloat16, cache_enabled=False):
            for _ in range(2):
                x = self.given
                for block in self.blocks:
                    x = block(x)
                torch.autograd.grad(x.sum(), [self.given, *self.weights])
                del x
        here.wait_stream(stream)
        torch.cuda.synchronize()

    def capture(self) -> None:
        pool, x, made = torch.cuda.graph_pool_handle(), self.given, []
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            for block in self.blocks:
                given, graph = x.detach().requires_grad_(), torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    x = block(given)
                made.append((given, x))
                self.there.append(graph)
        self.told = [made[number][1].detach() for number in self.TOLD]
        slope, moved = torch.zeros_like(self.given), []
        for number, block in reversed(list(enumerate(self.blocks))):
            given, out = made.pop()
            graph, weights = torch.cuda.CUDAGraph(), list(block.parameters())
            with torch.cuda.graph(graph, pool=pool):
                if number in self.TOLD:
                    slope = slope + self.slopes[self.TOLD.index(number)]
                slope, *own = torch.autograd.grad(out, [given, *weights], slope)
            moved = own + moved
            self.back.append(graph)
            del given, out, own
        self.first, self.moved = slope, moved

    def __call__(self, x: torch.Tensor) -> Tensors:
        return Replayed.apply(self, x, *self.weights)


class Finding(nn.Module):
    """Queries look at the maps of four blocks, and each says a kind and a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(4 * WIDTH, 256)
        self.larger = nn.Sequential(
            nn.ConvTranspose2d(256, 256, 2, 2), nn.GroupNorm(32, 256), nn.GELU(),
            nn.ConvTranspose2d(256, 256, 2, 2), nn.Conv2d(256, 256, 3, padding=1))
        self.queries = nn.Embedding(ASKED, 256)
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(
            256, 8, 2048, 0.0, batch_first=True, norm_first=True) for _ in range(6))
        self.norm, self.kind = nn.LayerNorm(256), nn.Linear(256, KINDS + 1)
        self.shape = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, told: Tensors, side: tuple[int, int]) -> list[tuple[torch.Tensor, ...]]:
        places = self.joined(torch.cat(list(told), 2))
        maps = self.larger(places.transpose(1, 2).unflatten(2, side))
        x, found = self.queries.weight.expand(len(places), -1, -1), []
        for layer in self.layers:
            x = layer(x, places)
            known = self.norm(x)
            found.append((self.kind(known).float(), torch.einsum(
                "bqc,bchw->bqhw", self.shape(known), maps)))
        return found


def at(masks: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """What masks are at points, the same of all masks or each its own."""
    points = points.expand(len(masks), -1, -1)[:, :, None] * 2 - 1
    return nn.functional.grid_sample(
        masks[:, None].float(), points, align_corners=False)[:, 0, :, 0]


def matched(kinds: torch.Tensor, masks: torch.Tensor, right: torch.Tensor, which: torch.Tensor,
            choose: random.Random) -> torch.Tensor:
    """The query of each object, by the cost of each with each; the host decides."""
    with torch.no_grad():
        points = torch.rand(1, 12544, 2, device=DEVICE)
        asked, wanted = at(masks, points), at(right, points)
        cost = -2 * kinds.softmax(-1)[:, which]
        on = nn.functional.softplus(-asked) @ wanted.T
        off = nn.functional.softplus(asked) @ (1 - wanted).T
        cost = cost + 5 * (on + off) / 12544
        likely = asked.sigmoid()
        both = likely.sum(1)[:, None] + wanted.sum(1)[None]
        (cost + 5 * (1 - (2 * likely @ wanted.T + 1) / (both + 1))).cpu()
    rows = choose.sample(range(ASKED), len(which))
    return torch.tensor(rows).to(DEVICE)


def missed(masks: torch.Tensor, right: torch.Tensor, count: int) -> torch.Tensor:
    """The loss of masks where they are least sure, three times as many points looked at."""
    with torch.no_grad():
        points = torch.rand(len(masks), 3 * 12544, 2, device=DEVICE)
        unsure = -at(masks, points).abs()
        best = unsure.topk(9408, 1).indices
        points = points.gather(1, best[:, :, None].expand(-1, -1, 2))
        points = torch.cat([points, torch.rand(len(masks), 3136, 2, device=DEVICE)], 1)
        wanted = at(right, points)
    asked = at(masks, points)
    cross = nn.functional.binary_cross_entropy_with_logits(asked, wanted, reduction="none")
    likely = asked.sigmoid()
    dice = 1 - (2 * (likely * wanted).sum(1) + 1) / (likely.sum(1) + wanted.sum(1) + 1)
    return (5 * cross.mean(1).sum() + 5 * dice.sum()) / count


@recorded(5, "objects are cut out of photos: 24 blocks of a vision transformer trained by two "
             "graphs each in one pool, on each other's memory; queries are matched with one to "
             "90 objects a photo without graphs; weights are averaged, photos of any shape judged",
          HELD_BACK)
def objects_cut_out() -> Step:
    choose, number = random.Random(204), 0
    with torch.device("meta"):
        first, blocks = nn.Conv2d(3, WIDTH, 16, 16), nn.ModuleList(Block() for _ in range(24))
        finding = Finding()
    model = nn.ModuleList([first, blocks, finding]).to_empty(device=DEVICE)
    places = nn.Parameter(noise(1, WIDTH, SIDE, SIDE, dtype=torch.float32))
    weights = [places, *model.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    averaged: Tensors = []
    graphs: list[Graphed] = []

    def photo() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A photo as it was taken, its objects, and their kinds."""
        high, wide = choose.choice([(480, 640), (640, 480), (427, 640), (640, 427), (
            choose.randrange(300, 640), 640)])
        count = int(min(90, choose.lognormvariate(2.0, 0.9))) + 1
        return (torch.zeros(3, high, wide, dtype=torch.uint8).to(DEVICE, non_blocking=True),
                torch.zeros(count, high, wide, dtype=torch.bool).to(DEVICE, non_blocking=True),
                tokens(1, count)[0])

    def cropped() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Enlarged or made smaller by chance, a part of it or with a margin, and its objects."""
        pixels, objects, kinds = photo()
        scale = choose.uniform(0.5, 2)
        high, wide = (max(64, int(scale * side)) for side in pixels.shape[1:])
        side = 16 * SIDE
        top, left = (choose.randrange(max(1, long - side + 1)) for long in (high, wide))
        part = slice(top, top + side), slice(left, left + side)
        pixels = nn.functional.interpolate(
            pixels[None].float(), (high, wide), mode="bilinear", antialias=True)[0]
        objects = nn.functional.interpolate(objects[None].half(), (high, wide))[0]
        margin = 0, max(0, side - wide), 0, max(0, side - high)
        pixels, objects = (nn.functional.pad(one[:, *part], margin) for one in (pixels, objects))
        if choose.random() < 0.5:
            pixels, objects = pixels.flip(2), objects.flip(2)
        # Those of which nothing is left are none.
        seen = choose.sample(range(len(objects)), max(1, int(len(objects) * min(1, 1.2 / scale))))
        rows = torch.tensor(sorted(seen)).to(DEVICE)
        return pixels, objects[rows], kinds[rows]

    def loss() -> torch.Tensor:
        batch = [cropped() for _ in range(BATCH)]
        x = torch.stack([one for one, _, _ in batch]).sub_(118).div_(58)
        told = graphs[0]((first(x) + places).flatten(2).transpose(1, 2))
        count, losses = sum(len(kinds) for _, _, kinds in batch), []
        for kinds, masks in finding(told, (SIDE, SIDE)):
            chosen, wanted = [], torch.full((BATCH, ASKED), KINDS, device=DEVICE)
            for row, (_, objects, which) in enumerate(batch):
                mine = matched(kinds[row], masks[row], objects, which, choose)
                wanted[row, mine] = which
                chosen.append(masks[row, mine])
            weight = torch.ones(KINDS + 1, device=DEVICE)
            losses.append(2 * nn.functional.cross_entropy(kinds.transpose(1, 2), wanted, weight))
            losses.append(missed(torch.cat(chosen), torch.cat([one for _, one, _ in batch]), count))
        return torch.stack(losses).sum()

    def train() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(weights, 0.1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not averaged:
            averaged.extend(one.detach().clone() for one in weights)
        torch._foreach_lerp_(averaged, [one.detach() for one in weights], 0.001)

    @torch.no_grad()
    def judge() -> None:
        """Photos as they are, padded to whole parts, one by one, without graphs."""
        model.eval()
        for _ in range(choose.randrange(3, 8)):
            pixels, _, _ = photo()
            high, wide = pixels.shape[1:]
            pixels = nn.functional.pad(pixels[None].float(), (0, -wide % 16, 0, -high % 16))
            side = pixels.shape[2] // 16, pixels.shape[3] // 16
            with torch.autocast(DEVICE, torch.bfloat16):
                x = first(pixels) + nn.functional.interpolate(places, side, mode="bicubic")
                x, told = x.flatten(2).transpose(1, 2), []
                for at_block, block in enumerate(blocks):
                    x = block(x)
                    if at_block in Graphed.TOLD:
                        told.append(x)
                kinds, masks = finding(told, side)[-1]
            best = kinds[0].softmax(-1)[:, :-1].flatten().topk(100)
            masks = masks[:, best.indices // KINDS]
            masks = nn.functional.interpolate(masks.float(), pixels.shape[2:], mode="bilinear")
            shapes = masks[0, :, :high, :wide]
            sure = (shapes.sigmoid() * (shapes > 0)).flatten(1).sum(1) / (
                (shapes > 0).flatten(1).sum(1) + 1e-6)
            (best.values * sure).cpu()
            (shapes > 0)[:choose.randrange(5, 60)].cpu()
        model.train()

    def step() -> None:
        nonlocal number
        number += 1
        graphs or graphs.append(Graphed(blocks))
        for _ in range(3):
            train()
        if number % 2 == 0:
            judge()
    return step
