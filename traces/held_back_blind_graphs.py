"""Programs that serve by graphs, each captured in another way, of kinds that none before is of.

With those of `held_back_blind_robots.py`, `held_back_blind_ring.py` and
`held_back_blind_judged.py`: nothing was replayed while they were written, and none was changed for
what an allocator does on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn


class Seeing(nn.Module):
    """A block that looks at the parts of pictures of any size, side by side."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * wide), nn.Linear(wide, width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, _ = self.qkv(self.norms[0](x)).unflatten(-1, (3, 16, -1)).unbind(1)
        for one in (q, k):
            wide = one.float()
            turned = torch.cat([-wide[..., 40:], wide[..., :40]], -1)
            one.copy_(wide * cos + turned * sin)
        x = x + self.out(torch.empty_like(x))
        gate, wide = self.up(self.norms[1](x)).tensor_split(2, -1)
        return x + self.down(nn.functional.silu(gate) * wide)


class Writing(nn.Module):
    """A layer as engines run it: norms and turns in place, keys and values in pages."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, width + 512)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.qkv(x)
        seen = torch.empty_like(x)
        x = self.out(seen)
        del q, seen
        wide = self.up(x)
        shut = noise(len(x), self.down.in_features)
        del wide
        return self.down(shut)


@dataclass
class Question:
    """A prompt of texts and pictures, read in chunks, and the words still to be answered."""

    unread: int
    unwritten: int
    pictures: list[tuple[int, int]]
    seen: list[torch.Tensor] = field(default_factory=list)


class PictureEngine:
    """Decodes by graphs of 35 batch sizes, from large to small, in one pool; the rest without."""

    WIDTH, WORDS, AT_ONCE = 1536, 151936, 2048

    def __init__(self) -> None:
        with torch.device("meta"):
            self.layers = nn.ModuleList(Writing(self.WIDTH, 8960) for _ in range(28))
            self.eyes = nn.ModuleList(Seeing(1280, 3420) for _ in range(24))
            self.first, self.words = nn.Linear(1176, 1280), nn.Embedding(self.WORDS, self.WIDTH)
            self.last = nn.Linear(self.WIDTH, self.WORDS, bias=False)
            self.merge = nn.Sequential(nn.RMSNorm((4, 1280)), nn.Flatten(1), nn.Linear(5120, 5120),
                                       nn.GELU(), nn.Linear(5120, self.WIDTH))
        for part in (self.layers, self.eyes, self.first, self.words, self.last, self.merge):
            part.bfloat16().to_empty(device=DEVICE).eval()
        self.last.weight = self.words.weight
        self.given, self.told = tokens(1, self.AT_ONCE)[0], noise(self.AT_ONCE, self.WIDTH)
        self.made, self.places = noise(self.AT_ONCE, self.WIDTH), tokens(3, self.AT_ONCE)
        self.pages: list[torch.Tensor] = []
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def start(self) -> None:
        """Finds out what the largest batch takes, fills memory with pages, and captures."""
        seen = self.look([(70, 70)] * 3)
        self.choice(self.run(self.told), [1.0] * 256)
        del seen
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.pages = [noise(4096, 2, 16, 2, 128) for _ in self.layers]
        pool = torch.cuda.graph_pool_handle()
        for size in sorted([1, 2, 4, *range(8, 257, 8)], reverse=True):
            self.run(self.words(self.given[:size]))
            self.graphs[size] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graphs[size], pool=pool):
                self.made[:size] = self.run(self.words(self.given[:size]))

    def look(self, pictures: list[tuple[int, int]]) -> list[torch.Tensor]:
        """Pictures, given in parts of 14 pixels each way, to as many words as a fourth of them."""
        counts = [high * wide for high, wide in pictures]
        pixels = [torch.zeros(count, 1176).to(DEVICE, non_blocking=True) for count in counts]
        x = self.first(torch.cat(pixels).bfloat16())
        order = tokens(1, len(x) // 4)[0]
        angles = torch.cat([torch.outer(torch.arange(count, device=DEVICE), noise(
            40, dtype=torch.float32)) for count in counts])
        angles = angles.view(-1, 4, 40)[order].flatten(0, 1).repeat(1, 2)[:, None]
        x = x.view(-1, 4, 1280)[order].flatten(0, 1)
        cos, sin = angles.cos(), angles.sin()
        for block in self.eyes:
            x = block(x, cos, sin)
        made = self.merge(x.view(-1, 4, 1280))[order.argsort()]
        return list(made.split([count // 4 for count in counts]))

    def run(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def choice(self, hidden: torch.Tensor, cuts: list[float], told: int = 0) -> torch.Tensor:
        """A word of each row, some of them from the likeliest only; some rows want likelihoods."""
        logits = self.last(hidden[:len(cuts)]).float()
        if told:
            logits[:told].log_softmax(-1).topk(5)
        if min(cuts) < 1:
            ordered, order = logits.sort(-1)
            ordered.masked_fill_(ordered.softmax(-1).cumsum(-1) < 0.1, -1e9)
            logits = torch.empty_like(logits).scatter_(-1, order, ordered)
        likely = logits.softmax(-1)
        return likely.div_(torch.empty_like(likely).exponential_()).argmax(-1)


@recorded(4, "an engine answers questions about pictures: 28 layers decode by graphs of 35 batch "
             "sizes, from 256 down to one, in one pool; prompts are read in chunks of 2,048 words "
             "without, 24 blocks look at pictures of any size", HELD_BACK)
def pictures_asked_about() -> Step:
    choose, engine, asked = random.Random(101), PictureEngine(), []

    def picture() -> tuple[int, int]:
        area, shape = choose.uniform(200, 4900), choose.lognormvariate(0, 0.35)
        high = max(4, min(120, int((area * shape) ** 0.5) // 2 * 2))
        return high, max(4, min(120, int(area / high) // 2 * 2))

    def come() -> None:
        pictures = [picture() for _ in range(choose.choices([0, 1, 2, 4], [3, 5, 2, 1])[0])]
        words = int(min(3000, choose.lognormvariate(4.6, 1.0))) + 8
        words += sum(high * wide // 4 for high, wide in pictures)
        asked.append(Question(words, int(min(200, choose.lognormvariate(3.4, 0.7))) + 2, pictures))

    def look(budget: int) -> None:
        """Those that came first show their pictures first, as many parts as a turn allows."""
        new = []
        for one in asked:
            while one.pictures and one.pictures[0][0] * one.pictures[0][1] <= budget:
                new.append((one, one.pictures.pop(0)))
                budget -= new[-1][1][0] * new[-1][1][1]
        if new:
            for (one, _), seen in zip(new, engine.look([size for _, size in new])):
                one.seen.append(seen)

    def read(reading: list[tuple[Question, int]], writing: int) -> torch.Tensor:
        total = writing + sum(count for _, count in reading)
        engine.told[:total] = engine.words(engine.given[:total])
        shown = [seen for one, _ in reading for seen in one.seen]
        if shown:
            rows = torch.cat(shown)[:total]
            engine.told.index_copy_(0, torch.arange(len(rows), device=DEVICE), rows)
        for one, count in reading:
            one.unread -= count
            if not one.unread:
                one.seen.clear()
        return engine.run(engine.told[:total])

    def turn() -> None:
        writing = [one for one in asked if not one.unread]
        reading, left = [], engine.AT_ONCE - len(writing)
        look(4 * 4096)
        for one in asked:
            if one.unread and not one.pictures and left > 0 and len(reading) < 4:
                reading.append((one, min(one.unread, left)))
                left -= reading[-1][1]
        rows = len(writing) + len(reading)
        if not rows:
            return
        if reading:
            ends = tokens(1, rows)[0]
            hidden = read(reading, len(writing)).index_select(0, ends)
        else:
            engine.graphs[min(size for size in engine.graphs if size >= rows)].replay()
            hidden = engine.made[:rows]
        cuts = [choose.choice([1.0, 1.0, 0.9]) for _ in range(rows)]
        engine.choice(hidden, cuts, choose.choice([0, 0, 0, 1, 3])).cpu()
        for one in writing:
            one.unwritten -= 1
            if not one.unwritten:
                asked.remove(one)

    @torch.inference_mode()
    def step() -> None:
        if not engine.graphs:
            engine.start()
        for _ in range(45):
            # They come in bursts.
            if not asked or choose.random() < 0.12:
                for _ in range(choose.randrange(1, 12)):
                    come()
            turn()
    return step


class Graphs:
    """A graph of each shape, captured once the shape was seen before, in a pool of its own."""

    def __init__(self, net: Callable[[torch.Tensor], torch.Tensor], most: int) -> None:
        self.net, self.most, self.warming = net, most, torch.cuda.Stream()
        self.seen: dict[torch.Size, int] = {}
        self.of: dict[torch.Size, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[x.shape] = self.seen.get(x.shape, 0) + 1
        if x.shape not in self.of:
            if self.seen[x.shape] < 2 or len(self.of) == self.most:
                return self.net(x)
            self.capture(x)
        graph, given, made = self.of[x.shape]
        given.copy_(x)
        graph.replay()
        return made.clone()

    def capture(self, x: torch.Tensor) -> None:
        given, here = x.clone(), torch.cuda.current_stream()
        self.warming.wait_stream(here)
        with torch.cuda.stream(self.warming):
            for _ in range(2):
                self.net(given)
        here.wait_stream(self.warming)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = self.net(given)
        self.of[x.shape] = graph, given, made


class Finder(nn.Module):
    """Where lines of text are on a page: ResNet-50, four levels joined, and a map as large."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import resnet50
        net = resnet50()
        self.first = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
        self.levels = nn.ModuleList([net.layer1, net.layer2, net.layer3, net.layer4])
        self.beside = nn.ModuleList(nn.Conv2d(256 << at, 256, 1) for at in range(4))
        self.even = nn.ModuleList(nn.Conv2d(256, 64, 3, padding=1) for _ in range(4))
        self.last = nn.Sequential(
            nn.Conv2d(256, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(64, 64, 2, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(64, 1, 2, 2), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, found, above = self.first(x), [], None
        for level in self.levels:
            x = level(x)
            found.append(x)
        joined = []
        for at in (3, 2, 1, 0):
            side = self.beside[at](found[at])
            above = side if above is None else side + nn.functional.interpolate(
                above, scale_factor=2)
            joined.append(nn.functional.interpolate(
                self.even[at](above), scale_factor=float(1 << at)))
        return self.last(torch.cat(joined, 1))


class Reader(nn.Module):
    """What a line says: convolutions down to one row, then six layers along it."""

    def __init__(self) -> None:
        super().__init__()
        widths, parts = [3, 64, 128, 256, 384], []
        for at, (before, after) in enumerate(zip(widths, widths[1:])):
            parts += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.GELU(),
                      nn.MaxPool2d((2, 2 if at < 3 else 1))]
        self.rows = nn.Sequential(*parts)
        self.along = nn.ModuleList(nn.TransformerEncoderLayer(
            384, 6, 1536, batch_first=True, norm_first=True, activation="gelu") for _ in range(6))
        self.last = nn.Linear(384, 9000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.rows(x).mean(2).transpose(1, 2)
        for layer in self.along:
            x = layer(x)
        return self.last(x).float().softmax(-1).max(-1).indices


@recorded(4, "documents of any kind are read: a stream brings pages, lines are found at their "
             "shape, then read in batches by width; a shape that comes again is captured, each in "
             "a pool of its own, up to 10 shapes of pages and 7 of lines", HELD_BACK)
def pages_read_by_shape() -> Step:
    choose, coming = random.Random(102), torch.cuda.Stream()
    with torch.device("meta"):
        nets = [Finder(), Reader()]
    for net in nets:
        net.half().to_empty(device=DEVICE).eval()
        net.to(memory_format=torch.channels_last)
    find, read = Graphs(nets[0], 10), Graphs(nets[1], 7)

    def page() -> tuple[int, int]:
        """Pixels each way: sheets as scanners give them, a photo of one, a bill, a spread."""
        kind = choose.choices(["sheet", "photo", "bill", "spread"], [6, 2, 2, 1])[0]
        if kind == "sheet":
            return choose.choice([(2339, 1654), (2200, 1700), (1754, 1240), (1654, 2339)])
        if kind == "photo":
            wide = choose.randrange(1000, 3000)
            return int(wide * choose.choice([0.75, 1.33])), wide
        if kind == "bill":
            return choose.randrange(1100, 3000), choose.randrange(500, 900)
        return 1654, choose.randrange(2300, 2600)

    def come(high: int, wide: int) -> torch.Tensor:
        with torch.cuda.stream(coming):
            scan = torch.zeros(high, wide, 3, dtype=torch.uint8).to(DEVICE, non_blocking=True)
        here = torch.cuda.current_stream()
        here.wait_stream(coming)
        scan.record_stream(here)
        return scan.permute(2, 0, 1)[None].half().div_(255)

    def at_shape(scan: torch.Tensor) -> torch.Tensor:
        """No more than 1,536 pixels long, and a multiple of 128 each way."""
        scale = min(1.0, 1536 / max(scan.shape[2:]))
        size = [max(256, round(side * scale / 128) * 128) for side in scan.shape[2:]]
        return nn.functional.interpolate(scan, size, mode="bilinear", antialias=True)

    def lines(scan: torch.Tensor, widths: list[int]) -> None:
        """Cut out one by one, as long as they are; similar ones together, padded to a width."""
        batches: dict[int, list[torch.Tensor]] = {}
        for wide in widths:
            turned = noise(1, 2, 3, dtype=torch.float16)
            grid = nn.functional.affine_grid(turned, [1, 3, 48, wide], align_corners=False)
            cut = nn.functional.grid_sample(scan, grid, align_corners=False)
            room = next(room for room in (128, 256, 384, 512, 768, 1024, 1536) if room >= wide)
            batches.setdefault(room, []).append(nn.functional.pad(cut, (0, room - wide)))
        said = []
        for room, cuts in batches.items():
            for at in range(0, len(cuts), 24):
                batch = torch.cat(cuts[at:at + 24])
                count = len(batch)
                if count > 8:
                    batch = nn.functional.pad(batch, (0, 0, 0, 0, 0, 0, 0, 24 - count))
                    said.append(read(batch)[:count])
                else:
                    said.append(nets[1](batch))
        for one in said:
            one.cpu()

    def document() -> None:
        """One to seven pages of a kind, found four, two or one at a time."""
        size, left = page(), int(min(7, choose.lognormvariate(0.6, 0.8))) or 1
        column = choose.choice([1, 1, 2]) / choose.uniform(0.5, 1)
        while left:
            count = next(few for few in (4, 2, 1) if few <= left)
            scans, left = [come(*size) for _ in range(count)], left - count
            batch = torch.cat([at_shape(scan) for scan in scans])
            found = find(batch.contiguous(memory_format=torch.channels_last))
            (found > 0.3).cpu()
            for scan in scans:
                said = int(min(140, choose.lognormvariate(3.0, 0.9))) + 1
                lines(scan, sorted(int(min(1536, max(16, choose.betavariate(2, 1.2) * 1400 / column
                                                     ))) for _ in range(said)))

    @torch.inference_mode()
    def step() -> None:
        for _ in range(choose.randrange(5, 9)):
            document()
    return step
