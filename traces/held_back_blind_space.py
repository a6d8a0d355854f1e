"""Programs on what lies in space, of kinds that none before is of, recorded to be judged blind.

Companions of `held_back_blind_texts.py`. Both have one stream.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

floats = partial(noise, dtype=torch.float32)


class Raster(torch.autograd.Function):
    """Splats that each tile has, in the order of their depth, to an image."""

    @staticmethod
    def forward(context: object, height: int, width: int, *splats: torch.Tensor) -> torch.Tensor:
        passed, last = floats(height, width), noise(height, width, dtype=torch.int32)
        context.save_for_backward(*splats, passed, last)
        return floats(height, width, 3)

    @staticmethod
    def backward(context: object, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        *splats, order, offsets, _, _ = context.saved_tensors
        return None, None, *(torch.zeros_like(one) for one in splats), None, None


class Project(torch.autograd.Function):
    """Where the splats that are in sight are in the image: places, shapes."""

    @staticmethod
    def forward(context: object, count: int, *splats: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.save_for_backward(*splats)
        return floats(count, 2), floats(count, 3)

    @staticmethod
    def backward(context: object, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *(torch.zeros_like(one) for one in context.saved_tensors)


class Splats:
    """What a scene is made of, with Adam's moments: its number changes."""

    SHAPES = {"centres": (3,), "scales": (3,), "turns": (4,), "opacity": (), "colour": (1, 3),
              "harmonics": (15, 3)}

    def __init__(self, count: int) -> None:
        self.of = {name: nn.Parameter(floats(count, *shape)) for name, shape in self.SHAPES.items()}
        self.adam = torch.optim.Adam([{"params": [one]} for one in self.of.values()], fused=True)
        self.forget()

    def __len__(self) -> int:
        return len(self.of["centres"])

    def forget(self) -> None:
        self.slopes, self.sights = (torch.zeros(len(self), device=DEVICE) for _ in range(2))

    def replace(self, change: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
        """Changes each weight, and likewise its moments."""
        for group, (name, old) in zip(self.adam.param_groups, list(self.of.items())):
            state = self.adam.state.pop(old)
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = change(state[moment], False)
            self.of[name] = nn.Parameter(change(old.detach(), True))
            group["params"] = [self.of[name]]
            self.adam.state[self.of[name]] = state

    def render(self, height: int, width: int, seen: int, crossed: int) -> torch.Tensor:
        which = tokens(1, seen)[0]
        opacity, scales = self.of["opacity"].sigmoid(), self.of["scales"].exp()
        places, shapes = Project.apply(
            seen, self.of["centres"], scales, nn.functional.normalize(self.of["turns"], dim=1))
        self.seen = which, places
        colours = torch.cat([self.of["colour"], self.of["harmonics"]], 1).index_select(0, which)
        ways = nn.functional.normalize(self.of["centres"].detach().index_select(0, which), dim=1)
        basis = torch.cat([ways, ways * ways, ways.pow(3), ways.pow(4), ways.pow(5)], 1)
        shades = ((colours[:, 1:] * basis[:, :, None]).sum(1) + colours[:, 0] + 0.5).clamp(min=0)
        noise(seen, dtype=torch.int32).cumsum(0)
        depth = noise(crossed, dtype=torch.long).sort()
        order = noise(crossed, dtype=torch.int32).index_select(0, depth.indices)
        offsets = noise(height // 16 + 1, width // 16 + 1, dtype=torch.int32)
        return Raster.apply(height, width, places, shapes, shades,
                            opacity.index_select(0, which), order, offsets)

    def grow(self, choose: random.Random) -> None:
        """Some splats are doubled, some become two smaller ones, those nearly empty go."""
        def more(one: torch.Tensor, which: torch.Tensor, is_weight: bool) -> torch.Tensor:
            return one[which] if is_weight else one.new_zeros(len(which), *one.shape[1:])

        steep = self.slopes / self.sights.clamp(min=1) > 0.0002
        steep & (self.of["scales"].exp().amax(1) > 0.01)
        doubled = tokens(1, int(len(self) * choose.uniform(0.05, 0.18)))[0]
        self.replace(lambda one, of_weight: torch.cat([one, more(one, doubled, of_weight)]))
        halves = int(len(self) * choose.uniform(0.04, 0.15))
        halved, rest = tokens(1, halves)[0], tokens(1, len(self) - halves)[0]
        moved = torch.einsum("nij,nj,bnj->bni", floats(halves, 3, 3),
                             self.of["scales"][halved].exp(), floats(2, halves, 3))
        self.replace(lambda one, of_weight: torch.cat(
            [one[rest], more(one, halved.repeat(2), of_weight)]))
        self.of["centres"].data[-2 * halves:] += moved.flatten(0, 1)
        kept = tokens(1, int(len(self) * choose.uniform(0.93, 0.99)))[0]
        self.of["opacity"].sigmoid() < 0.005
        self.replace(lambda one, _: one[kept])
        self.forget()


@recorded(14, "a scene of splats is trained on photos of four sizes, and grows from 200,000 to "
              "two million: some are doubled, some halved, some go, and Adam's moments with them; "
              "views are judged by VGG in between", HELD_BACK)
def splats_that_multiply() -> Step:
    from torchvision.models import vgg16
    choose, splats, window = random.Random(91), Splats(200_000), floats(3, 1, 11, 11)
    sizes = [(1060, 1600), (840, 1297), (1090, 1960), (546, 980)]
    with torch.device("meta"):
        vgg = vgg16().features
    vgg.to_empty(device=DEVICE).eval().requires_grad_(False)

    def view() -> tuple[torch.Tensor, torch.Tensor]:
        height, width = choose.choice(sizes)
        photo = torch.zeros(height, width, 3, dtype=torch.uint8).to(DEVICE).float() / 255
        seen = int(len(splats) * choose.uniform(0.12, 0.6))
        return splats.render(height, width, seen, int(seen * choose.uniform(2, 7))), photo

    def likeness(made: torch.Tensor, photo: torch.Tensor) -> torch.Tensor:
        def mean(image: torch.Tensor) -> torch.Tensor:
            return nn.functional.conv2d(image, window, padding=5, groups=3)
        one, other = (image.permute(2, 0, 1)[None] for image in (made, photo))
        mine, theirs = mean(one), mean(other)
        both, square = mine * theirs, mine.square() + theirs.square()
        spread = mean(one * one) + mean(other * other) - square
        found = (2 * both + 1e-4) * (2 * (mean(one * other) - both) + 9e-4)
        return (found / ((square + 1e-4) * (spread + 9e-4))).mean()

    def train() -> None:
        made, photo = view()
        which, places = splats.seen
        places.retain_grad()
        (0.8 * (made - photo).abs().mean() + 0.2 * (1 - likeness(made, photo))).backward()
        splats.slopes.index_add_(0, which, places.grad.norm(dim=1))
        splats.sights.index_add_(0, which, torch.ones(len(which), device=DEVICE))
        splats.adam.step()
        splats.adam.zero_grad(set_to_none=True)

    @torch.no_grad()
    def judge() -> None:
        for _ in range(3):
            made, photo = view()
            likeness(made.clamp(0, 1), photo)
            pair = torch.stack([made, photo]).permute(0, 3, 1, 2).contiguous()
            for layer in vgg:
                pair = layer(pair)
                if isinstance(layer, nn.MaxPool2d):
                    (nn.functional.normalize(pair[:1]) - nn.functional.normalize(pair[1:])).square()

    def step() -> None:
        for _ in range(choose.randrange(10, 19)):
            train()
        with torch.no_grad():
            splats.grow(choose)
        if choose.random() < 0.3:
            judge()
    return step


class Triangles(nn.Module):
    """A block on pairs of residues: edges learn from the third side of every triangle."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(7))
        self.sides = nn.ModuleList(nn.Linear(width, 5 * width, bias=False) for _ in range(2))
        self.made = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.asked = nn.ModuleList(nn.Linear(width, 4 * width + heads) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def multiply(self, pairs: torch.Tensor, at: int) -> torch.Tensor:
        one, two, gate, other, last = self.sides[at](self.norms[at](pairs)).tensor_split(5, -1)
        one, two = ((x * shut.sigmoid()).movedim(-1, 0) for x, shut in ((one, gate), (two, other)))
        made = one @ two.mT if at == 0 else one.mT @ two
        return self.made[at](self.norms[4 + at](made.movedim(0, -1))) * last.sigmoid()

    def attend(self, pairs: torch.Tensor, at: int) -> torch.Tensor:
        """Row by row, as many rows at once as a gigabyte of scores allows: they grow as cubes."""
        pairs = pairs.transpose(0, 1) if at else pairs
        *parts, bias = self.asked[at](self.norms[2 + at](pairs)).split(
            [pairs.shape[-1]] * 4 + [self.heads], -1)
        bias, rows = bias.permute(2, 0, 1), max(1, (1 << 28) // (self.heads * len(pairs) ** 2))
        seen = torch.empty_like(pairs)
        for first in range(0, len(pairs), rows):
            q, k, v, gate = (part[first:first + rows] for part in parts)
            q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
            shares = ((q @ k.mT).float() + bias).softmax(-1).to(v.dtype)
            seen[first:first + rows] = (shares @ v).transpose(1, 2).flatten(2) * gate.sigmoid()
        seen = self.out[at](seen)
        return seen.transpose(0, 1) if at else seen

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        for at in range(2):
            pairs = pairs + self.multiply(pairs, at)
        for at in range(2):
            pairs = pairs + self.attend(pairs, at)
        for some in pairs.split(max(1, (1 << 17) // len(pairs))):
            gate, wide = self.up(self.norms[6](some)).tensor_split(2, -1)
            some += self.down(nn.functional.silu(gate) * wide)
        return pairs


class Single(nn.Module):
    """A block on residues, or on windows of atoms, with attention that pairs shift."""

    def __init__(self, width: int, heads: int, of_pairs: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in (width, width, of_pairs))
        self.asked, self.bias = nn.Linear(width, 4 * width), nn.Linear(of_pairs, heads, bias=False)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        q, k, v, gate = self.asked(self.norms[0](x)).tensor_split(4, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for one in (q, k, v))
        scores = (q @ k.mT).float() + self.bias(self.norms[2](pairs)).movedim(-1, -3)
        seen = (scores.softmax(-1).to(v.dtype) @ v).transpose(-3, -2).flatten(-2)
        x = x + self.out(seen * gate.sigmoid())
        wide, shut = self.up(self.norms[1](x)).tensor_split(2, -1)
        return x + self.down(wide * nn.functional.silu(shut))


@recorded(5, "proteins of 80 to 900 residues are folded: 20 blocks of triangles, gone through "
             "again one to three times beside alignments of random depth, then a diffusion in "
             "windows places the atoms of five samples", HELD_BACK)
def proteins_folded() -> Step:
    choose = random.Random(94)
    with torch.device("meta"):
        aligned, blocks = (
            nn.ModuleList(Triangles(128, 4) for _ in range(count)) for count in (4, 20))
        outer = nn.ModuleList(nn.ModuleList(
            [nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(1024, 128)]) for _ in aligned)
        singles = nn.ModuleList(Single(384, 16, 128) for _ in blocks)
        residues = nn.ModuleList(Single(768, 16, 128) for _ in range(8))
        atoms = nn.ModuleList(Single(128, 4, 16) for _ in range(6))
        words, ends, far = nn.Embedding(32, 64), nn.Linear(384, 256), nn.Embedding(66, 128)
        again, wider, guess = nn.Linear(128, 128), nn.Linear(384, 768), nn.Linear(128, 64)
    for part in (aligned, blocks, outer, singles, residues, atoms, words, ends, far, again, wider,
                 guess):
        part.bfloat16().to_empty(device=DEVICE).eval()

    def learn(pairs: torch.Tensor, alignment: torch.Tensor) -> torch.Tensor:
        for (norm, sides, last), block in zip(outer, aligned):
            one, two = sides(norm(alignment)).tensor_split(2, -1)
            for at in range(0, len(pairs), 128):
                products = torch.einsum("sic,sjd->ijcd", one[:, at:at + 128], two)
                pairs[at:at + 128] += last(products.flatten(2))
            pairs = block(pairs)
        return pairs

    def place(single: torch.Tensor, pairs: torch.Tensor, count: int) -> torch.Tensor:
        """Five samples of where the atoms are, from noise."""
        found, near = noise(5, count // 32, 32, 128), noise(count // 32, 32, 32, 16)
        for _ in range(6):
            x = found * 0.5 + torch.randn_like(found)
            for number, block in enumerate(atoms):
                if number == 3:
                    told = wider(single).expand(5, -1, -1)
                    for whole in residues:
                        told = whole(told, pairs)
                    x = x + told.mean((1, 2))[:, None, None, None]
                x = block(x, near)
            found = found + 0.1 * (x - found)
        return found[..., :3].float()

    @torch.inference_mode()
    def step() -> None:
        count = int(min(900, 80 + choose.lognormvariate(5.3, 0.7)))
        depth = int(min(1024, choose.lognormvariate(5.5, 1.2) + 1))
        single, pairs = noise(count, 384), None
        places = torch.arange(count, device=DEVICE)
        apart = far((places[:, None] - places).clamp(-32, 32) + 32)
        for _ in range(choose.randrange(2, 5)):
            one, two = ends(single).tensor_split(2, -1)
            pairs = one[:, None] + two + (apart if pairs is None else apart + again(pairs))
            pairs = learn(pairs, words(tokens(int(depth * choose.uniform(0.4, 1)) + 1, count)))
            for block, alone in zip(blocks, singles):
                pairs = block(pairs)
                single = alone(single, pairs)
        place(single, pairs, int(count * choose.uniform(7, 8.5))).cpu()
        torch.cat([guess(part).float().softmax(-1).sum(-1)
                   for part in (pairs + pairs.transpose(0, 1)).split(64)]).cpu()
    return step
