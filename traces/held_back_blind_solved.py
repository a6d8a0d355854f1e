"""A program that solves equations of air, without graphs, of a kind that none before is of.

A companion of `held_back_blind_engines.py`.
"""

from __future__ import annotations

import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

SIZE = 8
# The whole domain in blocks, at the coarsest of the levels that have blocks.
DOMAIN = (32, 16, 8)
AT_ONCE = 8192
Tensors = list[torch.Tensor]


def floats(*shape: int) -> torch.Tensor:
    return noise(*shape, dtype=torch.float32)


class Level:
    """Blocks of eight cells each way, who is beside whom, and what of the air is in them."""

    def __init__(self, count: int) -> None:
        self.speed, self.smoke = floats(count, 3, SIZE, SIZE, SIZE), self.cells(count, 1)
        self.pressure, self.solid = self.cells(count, 1), self.cells(count, 1)
        self.keys = torch.empty(count, dtype=torch.long, device=DEVICE)
        self.find()

    @staticmethod
    def cells(count: int, channels: int) -> torch.Tensor:
        return torch.zeros(count, channels, SIZE, SIZE, SIZE, device=DEVICE)

    def find(self) -> None:
        """Blocks beside each by their keys in order; cells of the level below that it covers."""
        self.keys, order = self.keys.sort()
        count, places = len(order), []
        for axis in range(3):
            for move in (-1, 1):
                wanted = self.keys + (move << (20 * axis))
                found = torch.searchsorted(self.keys, wanted).clamp_(max=count - 1)
                places.append(torch.where(self.keys[found] == wanted, found, order))
        self.sides = torch.stack(places, 1).clamp_(0, count - 1)
        self.below = tokens(count, 64)

    def padded(self, field: torch.Tensor, margin: int = 1) -> torch.Tensor:
        """With cells of those beside around: six faces."""
        inner = slice(margin, margin + SIZE)
        around = field.new_zeros(*field.shape[:2], *[SIZE + 2 * margin] * 3)
        around[:, :, inner, inner, inner] = field
        for side in range(6):
            axis, last = 2 + side // 2, side % 2
            theirs = field.narrow(axis, 0 if last else SIZE - margin, margin)[self.sides[:, side]]
            face: list[slice] = [inner] * 3
            face[axis - 2] = slice(SIZE + margin, None) if last else slice(0, margin)
            around[:, :, *face] = theirs
        return around

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """The operator that is to be inverted, where there is no wall."""
        return around_less(self.padded(x), x).mul_(1 - self.solid)

    def smooth(self, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return x + (right - self.spread(x)) * (-0.8 / 6)

    def coarse(self, fine: torch.Tensor, below: torch.Tensor) -> None:
        """Puts means of eight cells where the level below has one."""
        means = fine.view(-1, 4, 2, 4, 2, 4, 2).mean((2, 4, 6)).view(-1, 64)
        below.view(-1)[self.below] = means

    def fine(self, below: torch.Tensor) -> torch.Tensor:
        """What one cell of the level below has, for each of eight."""
        x = below.view(-1)[self.below].view(-1, 1, 4, 4, 4)
        return nn.functional.interpolate(x, scale_factor=2)


def around_less(around: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The sum of six cells beside each, less six times its own."""
    inner = slice(1, -1)
    total = around[..., 2:, inner, inner] + around[..., :-2, inner, inner]
    total += around[..., inner, 2:, inner]
    total += around[..., inner, :-2, inner]
    total += around[..., inner, inner, 2:]
    total += around[..., inner, inner, :-2]
    return total - 6 * x


def whole_cycle(right: torch.Tensor) -> torch.Tensor:
    """One cycle over the whole domain: half as many cells each way until few are left."""
    if min(right.shape[2:]) <= 4:
        x = torch.zeros_like(right)
        for _ in range(8):
            x = x + (right - around_less(nn.functional.pad(x, [1] * 6, "replicate"), x)) * -0.13
        return x
    x = right * -0.13
    left = right - around_less(nn.functional.pad(x, [1] * 6, "replicate"), x)
    x = x + nn.functional.interpolate(whole_cycle(nn.functional.avg_pool3d(left, 2)),
                                      scale_factor=2)
    return x + (right - around_less(nn.functional.pad(x, [1] * 6, "replicate"), x)) * -0.13


class Air:
    """Air on four levels; where it whirls there are blocks of the finer ones."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        whole = DOMAIN[0] * DOMAIN[1] * DOMAIN[2]
        self.levels = [Level(count) for count in (whole, 5200, 8800, 15_000)]
        self.sum, self.squares = (torch.zeros_like(self.levels[0].speed) for _ in range(2))
        self.grains = floats(200_000, 7)

    def cycle(self, rights: Tensors) -> Tensors:
        """One cycle of multigrid: from the finest blocks to the whole domain, and back."""
        kept: Tensors = []
        rights = list(rights)
        for number in (3, 2, 1):
            level, x = self.levels[number], rights[number] * (-0.8 / 6)
            x = level.smooth(x, rights[number])
            below = rights[number - 1].clone()
            level.coarse(rights[number] - level.spread(x), below)
            rights[number - 1] = below
            kept.append(x)
        blocks = rights[0].view(*DOMAIN, SIZE, SIZE, SIZE).permute(0, 3, 1, 4, 2, 5)
        whole = blocks.reshape(1, 1, *(SIZE * side for side in DOMAIN))
        x = whole_cycle(whole).view(DOMAIN[0], SIZE, DOMAIN[1], SIZE, DOMAIN[2], SIZE)
        made = [x.permute(0, 2, 4, 1, 3, 5).reshape(-1, 1, SIZE, SIZE, SIZE)]
        for number in (1, 2, 3):
            level = self.levels[number]
            x = kept.pop() + level.fine(made[-1])
            made.append(level.smooth(x, rights[number]))
        return made

    def dot(self, these: Tensors, those: Tensors) -> torch.Tensor:
        return torch.stack([(this * that).sum() for this, that in zip(these, those)]).sum()

    def solve(self, rights: Tensors) -> None:
        """Pressure by conjugate gradients, each step bettered by a cycle; until it is right."""
        left = [one - level.spread(level.pressure) for one, level in zip(rights, self.levels)]
        better = self.cycle(left)
        way, before = better, self.dot(left, better)
        for _ in range(self.choose.choice([2, 3, 3, 4, 5, 7])):
            spread = [level.spread(one) for one, level in zip(way, self.levels)]
            far = before / (self.dot(way, spread) + 1e-20)
            for level, one in zip(self.levels, way):
                level.pressure += far * one
            left = [one - far * other for one, other in zip(left, spread)]
            del spread
            self.dot(left, left).sqrt().item()
            better = self.cycle(left)
            now = self.dot(left, better)
            way = [one + now / (before + 1e-20) * other for one, other in zip(better, way)]
            before = now

    def moved(self, level: Level, far: torch.Tensor) -> None:
        """What the air brings, there and back to know the error, some blocks at a time."""
        both = torch.cat([level.speed, level.smoke], 1)
        around, made = level.padded(both, 3), torch.empty_like(both)
        grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, SIZE, device=DEVICE)] * 3,
                                          indexing="ij"), -1)
        for at in range(0, len(both), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            way = level.speed[some].permute(0, 2, 3, 4, 1) * far
            there = nn.functional.grid_sample(around[some], grid - way, align_corners=True)
            back = nn.functional.grid_sample(around[some], grid + way, align_corners=True)
            fixed = there + 0.5 * (both[some] - back)
            low = -nn.functional.max_pool3d(-around[some, :, 2:-2, 2:-2, 2:-2], 3, 1)
            high = nn.functional.max_pool3d(around[some, :, 2:-2, 2:-2, 2:-2], 3, 1)
            made[some] = torch.where((fixed < low) | (fixed > high), there, fixed)
        level.speed, level.smoke = made[:, :3].contiguous(), made[:, 3:].contiguous()

    def slopes(self, level: Level, field: torch.Tensor) -> Tensors:
        around, inner, made = level.padded(field), slice(1, -1), []
        for axis in range(3):
            after, before = [inner] * 3, [inner] * 3
            after[axis], before[axis] = slice(2, None), slice(None, -2)
            made.append((around[:, :, *after] - around[:, :, *before]) * 0.5)
        return made

    def tick(self) -> None:
        fastest = torch.stack([level.speed.abs().amax() for level in self.levels]).amax()
        far = 0.8 / (fastest + 1e-6)
        far.item()
        rights = []
        for level in self.levels:
            self.moved(level, far)
            slopes = self.slopes(level, level.speed)
            strain = sum((one ** 2).sum(1, keepdim=True) for one in slopes)
            del slopes
            rough = strain.sqrt() * 0.03
            level.speed += far * rough * around_less(level.padded(level.speed), level.speed)
            level.speed[:, 2:] += far * level.smoke * 0.1
            level.speed *= 1 - level.solid
            rights.append(sum(self.slopes(level, level.speed[:, axis:axis + 1])[axis]
                              for axis in range(3)))
        self.solve(rights)
        for level in self.levels:
            level.speed -= torch.cat(self.slopes(level, level.pressure), 1)
        self.sum += self.levels[0].speed
        self.squares += self.levels[0].speed ** 2
        self.drift(far)

    def drift(self, far: torch.Tensor) -> None:
        """Grains of dust: more come from the street, some leave, all are carried along."""
        new = self.choose.randrange(4000, 30_000)
        self.grains = torch.cat([self.grains, floats(new, 7)])
        speed = self.levels[3].speed.flatten(2).transpose(1, 2).reshape(-1, 3)
        cells = (self.grains[:, :3] * SIZE).long().clamp(min=0)
        at = (cells[:, 0] * 64 + cells[:, 1] * 8 + cells[:, 2]).clamp_(max=len(speed) - 1)
        pushed = speed[at] - self.grains[:, 3:6]
        self.grains[:, 3:6] += far * pushed
        self.grains[:, :3] += far * self.grains[:, 3:6] + 0.01 * torch.randn_like(pushed)
        stay = torch.randperm(len(self.grains), device=DEVICE)
        self.grains = self.grains[stay[:int(len(stay) * self.choose.uniform(0.94, 0.99))]]

    def refine(self) -> None:
        """Blocks come where the air whirls, and go where it does not, level by level."""
        for number in (1, 2, 3):
            level, slopes = self.levels[number], self.slopes(
                self.levels[number], self.levels[number].speed)
            whirl = torch.stack([slopes[1][:, 2] - slopes[2][:, 1], slopes[2][:, 0] - slopes[0][
                :, 2], slopes[0][:, 1] - slopes[1][:, 0]]).square().sum(0).flatten(1).amax(1)
            del slopes
            (whirl > whirl.mean() * 0.2).cpu()
            count = len(level.keys)
            stay = int(count * self.choose.uniform(0.82, 0.97))
            room = (0, 12_000, 22_000, 46_000)[number]
            new = min(room - stay, int(count * self.choose.uniform(0.08, 0.34)))
            kept, asked = whirl.topk(stay).indices.sort().values, tokens(1, new)[0]
            level.keys = torch.cat([level.keys[kept], torch.empty_like(asked)])
            for name in ("speed", "smoke", "pressure", "solid"):
                # New blocks begin with what the level below has there.
                old, below = getattr(level, name), getattr(self.levels[number - 1], name)
                few = below[asked.clamp(max=len(below) - 1), :, :4, :4, :4]
                few = nn.functional.interpolate(few, scale_factor=2, mode="trilinear")
                setattr(level, name, torch.cat([old[kept], few]))
                del old, few
            level.find()


@recorded(6, "air around buildings on four levels of blocks that come and go where it whirls: "
             "pressure by conjugate gradients and multigrid, as many steps as it takes, grains of "
             "dust carried along, slices and probes to the host on a stream", HELD_BACK)
def air_around_buildings() -> Step:
    choose, leaving, number = random.Random(206), torch.cuda.Stream(), 0
    air = Air(choose)

    def send(one: torch.Tensor) -> None:
        leaving.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(leaving):
            one.to("cpu", non_blocking=True)
        one.record_stream(leaving)

    def show() -> None:
        """A slice through all levels, and what 2,000 probes measure."""
        for level in air.levels:
            cut = tokens(1, choose.randrange(len(level.keys) // 60, len(level.keys) // 15))[0]
            send(torch.cat([level.speed[cut, :, :, :, 3], level.smoke[cut, :, :, :, 3]], 1).half())
        probes = floats(2000, 3)
        near = torch.cdist(probes, air.grains[:20_000, :3]).topk(16, largest=False)
        send(near.values.mean(1))

    @torch.no_grad()
    def step() -> None:
        nonlocal number
        for _ in range(4):
            number += 1
            air.tick()
            if number % 2 == 0:
                air.refine()
            if number % 3 == 0:
                show()
    return step
