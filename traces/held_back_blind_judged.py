"""Programs that judge what was trained: scans window by window, checkpoints one after another.

Companions of `held_back_blind_graphs.py`, of kinds that none before is of, both of one stream.
"""

from __future__ import annotations

import gc
import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, llama, recorded, tokens

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]


class Blocks(nn.Sequential):
    """Two convolutions of a volume, each with its norm."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        parts: list[nn.Module] = []
        for one, other, far in ((before, after, stride), (after, after, 1)):
            parts += [nn.Conv3d(one, other, 3, far, 1), nn.InstanceNorm3d(other, affine=True),
                      nn.LeakyReLU(0.01, inplace=True)]
        super().__init__(*parts)


class Volumes(nn.Module):
    """A U-Net of six levels; in training every level of the way up tells what it sees."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        widths = [32, 64, 128, 256, 320, 320]
        self.down = nn.ModuleList(
            Blocks(before, after, 1 if before == 1 else 2)
            for before, after in zip([1, *widths], widths))
        pairs = list(zip(widths[-2::-1], widths[:0:-1]))
        self.wider = nn.ModuleList(nn.ConvTranspose3d(low, high, 2, 2) for high, low in pairs)
        self.up = nn.ModuleList(Blocks(2 * high, high) for high, _ in pairs)
        self.tell = nn.ModuleList(nn.Conv3d(high, kinds, 1) for high, _ in pairs)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        kept, told = [], []
        for block in self.down:
            x = block(x)
            kept.append(x)
        kept.pop()
        for number, (wider, up, tell) in enumerate(zip(self.wider, self.up, self.tell)):
            x = up(torch.cat([wider(x), kept.pop()], 1))
            if self.training or number == len(self.up) - 1:
                told.append(tell(x))
        return told


class Organs:
    """Finds 15 kinds of organs in scans of any size: trained on patches, used window by window."""

    KINDS, PATCH = 15, (96, 160, 160)

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        with torch.device(DEVICE):
            self.net = Volumes(self.KINDS)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, 0.99, nesterov=True)
        self.weight = noise(*self.PATCH, dtype=torch.float16)

    def changed(self, scan: torch.Tensor, right: torch.Tensor) -> Tensors:
        """Some are turned and scaled, some blurred, some get noise or another contrast."""
        choose, odds = self.choose, self.choose.random
        if odds() < 0.4:
            grid = nn.functional.affine_grid(
                noise(1, 3, 4, dtype=torch.float32), [1, 1, *self.PATCH], align_corners=False)
            scan = nn.functional.grid_sample(scan, grid, align_corners=False)
            right = torch.cat([nn.functional.grid_sample(
                (right == kind).float(), grid, mode="nearest", align_corners=False)
                for kind in range(self.KINDS)], 1).argmax(1, keepdim=True)
        else:
            places = [choose.randrange(1 + max(0, have - want))
                      for have, want in zip(scan.shape[2:], self.PATCH)]
            cut = tuple(slice(at, at + want) for at, want in zip(places, self.PATCH))
            scan, right = (one[(..., *cut)] for one in (scan, right.long()))
        if odds() < 0.2:
            for axis, shape in enumerate(((9, 1, 1), (1, 9, 1), (1, 1, 9))):
                scan = nn.functional.conv3d(scan, noise(1, 1, *shape, dtype=torch.float32),
                                            padding=[4 * (at == axis) for at in range(3)])
        if odds() < 0.25:
            low = nn.functional.interpolate(scan, scale_factor=choose.uniform(0.5, 1))
            scan = nn.functional.interpolate(low, self.PATCH, mode="trilinear")
        if odds() < 0.3:
            least, most = scan.aminmax()
            scan = ((scan - least) / (most - least + 1e-7)).pow(0.9) * (most - least) + least
        if odds() < 0.15:
            scan = scan + 0.1 * torch.randn_like(scan)
        return scan, right

    def batch(self) -> Tensors:
        """A patch of each of two scans, cut out larger than needed, for what turns it."""
        made = []
        for _ in range(2):
            size = [want + self.choose.randrange(0, 60) for want in self.PATCH]
            scan = torch.zeros(1, 1, *size, dtype=torch.float16).to(DEVICE, non_blocking=True)
            right = torch.zeros(1, 1, *size, dtype=torch.int8).to(DEVICE, non_blocking=True)
            made.append(self.changed(scan.float(), right))
        return tuple(torch.cat(one) for one in zip(*made))

    def loss(self, told: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        likely = told.float().softmax(1)
        exact = torch.zeros_like(likely, dtype=torch.bool).scatter_(1, right, True)
        both = (likely * exact).sum((2, 3, 4))
        sizes = likely.sum((2, 3, 4)) + exact.sum((2, 3, 4))
        overlap = (2 * both / sizes.clamp(min=1)).mean()
        return nn.functional.cross_entropy(told.float(), right[:, 0]) - overlap

    def train(self) -> None:
        scan, right = self.batch()
        with torch.autocast(DEVICE, torch.bfloat16):
            told = self.net(scan)
        losses = []
        for number, one in enumerate(reversed(told)):
            exact = right if not number else nn.functional.interpolate(
                right.float(), one.shape[2:], mode="nearest").long()
            losses.append(self.loss(one, exact) / 2 ** number)
        torch.stack(losses).sum().backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 12)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        del told, losses

    @torch.inference_mode()
    def find(self) -> None:
        """A whole scan in windows that overlap by half, seen from two sides, made as it came."""
        choose = self.choose
        spaced = choose.uniform(0.7, 1.6)
        size = [int(want * choose.uniform(1, 1.9)) for want in self.PATCH]
        scan = torch.zeros(1, 1, *size).to(DEVICE)
        found = torch.zeros(self.KINDS, *size, dtype=torch.float16, device=DEVICE)
        weights = torch.zeros(size, dtype=torch.float16, device=DEVICE)
        starts = [[min(at, have - want) for at in range(0, have - want + want // 2, want // 2)]
                  for have, want in zip(size, self.PATCH)]
        for top, left, near in ((a, b, c) for a in starts[0] for b in starts[1] for c in starts[2]):
            cut = tuple(slice(at, at + want) for at, want in zip((top, left, near), self.PATCH))
            window = scan[(..., *cut)]
            with torch.autocast(DEVICE, torch.bfloat16):
                told = self.net(window)[0]
                told = (told + self.net(window.flip(4))[0].flip(4)) / 2
            found[(slice(None), *cut)] += told[0] * self.weight
            weights[cut] += self.weight
        found /= weights
        shape, best = [int(side / spaced) for side in size], None
        for kind, one in enumerate(found):
            whole = nn.functional.interpolate(one[None, None].float(), shape, mode="trilinear")
            if best is None:
                best, which = whole, torch.zeros_like(whole, dtype=torch.uint8)
            else:
                which[whole > best] = kind
                best = torch.maximum(best, whole)
        which.cpu()


@recorded(3, "organs are found in scans: a U-Net of volumes is trained on pairs of patches that "
             "are turned, scaled and blurred on the device, and judged on whole scans of random "
             "size, window by window, then scaled back", HELD_BACK)
def organs_in_scans() -> Step:
    choose = random.Random(105)
    organs = Organs(choose)

    def step() -> None:
        organs.net.train()
        for _ in range(choose.randrange(8, 13)):
            organs.train()
        organs.net.eval()
        for _ in range(choose.randrange(1, 3)):
            organs.find()
    return step


class Checkpoint:
    """A model that comes from files, tensor by tensor, each as its file has it and then as used."""

    def __init__(self, choose: random.Random, layers: int, **shape: int) -> None:
        self.choose = choose
        self.model = llama(layers, **shape).eval().requires_grad_(False)
        self.read()

    def read(self) -> None:
        is_long = self.choose.random() < 0.6
        for weight in self.model.parameters():
            stored = noise(*weight.shape, dtype=torch.float32 if is_long else torch.bfloat16)
            weight.data = stored.to(torch.bfloat16)

    def average(self, count: int) -> None:
        """The mean of some checkpoints of one training, summed in long numbers."""
        sums = [weight.data.float() for weight in self.model.parameters()]
        for _ in range(count - 1):
            for one in sums:
                one += noise(*one.shape)
        for weight, one in zip(self.model.parameters(), sums):
            weight.data = (one / count).bfloat16()

    def likelihoods(self, lengths: list[int], most: int) -> None:
        """Of answers after prompts: the longest first, as many at once as their words allow."""
        left = sorted(lengths, reverse=True)
        while left:
            count = max(1, min(len(left), most // left[0]))
            given = tokens(count, left[0])
            logits = self.model(input_ids=given, use_cache=False).logits
            likely = logits.float().log_softmax(-1)
            for row, length in zip(likely, left[:count]):
                said = self.choose.randrange(1, min(40, length))
                part = row[length - said:length]
                part.argmax(-1).eq(given[0, :said]).all().item()
                part.gather(1, given[0, :said, None]).sum().item()
            del logits, likely, row, part, left[:count]

    def windows(self, words: int) -> None:
        """How surprising a long text is, 2,048 words at a time."""
        for at in range(0, words, 2048):
            given = tokens(1, min(2048, words - at))
            logits = self.model(input_ids=given, use_cache=False).logits[0]
            nn.functional.cross_entropy(logits.float(), given[0]).item()

    def write(self, prompts: list[int], words: int) -> torch.Tensor:
        """Answers of some prompts at once, the shorter ones padded, with a cache that grows."""
        longest = max(prompts)
        given, mask, cache = tokens(len(prompts), longest), tokens(len(prompts), longest), None
        for _ in range(words):
            out = self.model(input_ids=given if cache is None else given[:, -1:], use_cache=True,
                             attention_mask=mask, past_key_values=cache, logits_to_keep=1)
            cache = out.past_key_values
            best = out.logits[:, -1].float().argmax(-1, keepdim=True)
            given = torch.cat([given, best], 1)
            mask = torch.cat([mask, torch.ones_like(best)], 1)
            (best == 0).all().item()
        return given


@recorded(5, "checkpoints are judged one after another: models of four sizes come tensor by "
             "tensor, some are averaged, answers are scored longest first, texts written, and "
             "judged by a model that stays; then the model goes and memory is given back",
          HELD_BACK)
def checkpoints_judged_in_turn() -> Step:
    choose = random.Random(106)
    shapes = [dict(layers=12, hidden_size=1024, intermediate_size=4096, num_attention_heads=16),
              dict(layers=16, hidden_size=1536, intermediate_size=6144, num_attention_heads=12,
                   num_key_value_heads=4),
              dict(layers=14, hidden_size=2048, intermediate_size=8192, num_attention_heads=32),
              dict(layers=16, hidden_size=2560, intermediate_size=9728, num_attention_heads=20,
                   num_key_value_heads=4)]
    judge = Checkpoint(choose, 10, hidden_size=1536, intermediate_size=6144,
                       num_attention_heads=12, num_key_value_heads=4)

    def lengths(count: int, mean: float, spread: float) -> list[int]:
        return [int(min(2000, choose.lognormvariate(mean, spread))) + 8 for _ in range(count)]

    def come_and_go() -> torch.Tensor:
        """What one checkpoint wrote, after two tasks of three."""
        model = Checkpoint(choose, **choose.choice(shapes))
        if choose.random() < 0.4:
            model.average(choose.randrange(2, 5))
        tasks = [
            lambda: model.likelihoods(lengths(choose.randrange(30, 80), 4.6, 0.5), 4096),
            lambda: model.likelihoods(lengths(choose.randrange(8, 20), 6.4, 0.4), 5120),
            lambda: model.windows(choose.randrange(3000, 9000)),
        ]
        for task in choose.sample(tasks, 2):
            task()
        return model.write(lengths(choose.randrange(4, 25), 5.2, 0.5), choose.randrange(6, 14))

    @torch.inference_mode()
    def step() -> None:
        written = come_and_go()
        gc.collect()
        torch.cuda.empty_cache()
        # Half of them at a time, beside nothing else.
        for part in written.split((len(written) + 1) // 2):
            judge.model.model(input_ids=part, use_cache=False).last_hidden_state[:, -1].cpu()
    return step
