"""A service that makes pictures by graphs of the shapes that were asked for last.

A companion of `held_back_blind_engines.py`.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

attend = nn.functional.scaled_dot_product_attention
Graph = tuple[torch.cuda.CUDAGraph, list[torch.Tensor], torch.Tensor]


def halves(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.float16, device=DEVICE)


class Residual(nn.Module):
    """Two convolutions, told of the time where there is one, beside what was given."""

    def __init__(self, before: int, after: int, told: int = 0) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(told, after)) if told else None
        self.second = nn.Sequential(
            nn.GroupNorm(32, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.beside = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        made = self.first(x)
        if self.time is not None and time is not None:
            made = made + self.time(time)[:, :, None, None]
        return self.beside(x) + self.second(made)


class Attention(nn.Module):
    """Attention to the same places, or to words."""

    def __init__(self, width: int, told: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(one, width, bias=False) for one in (width, told, told))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (-1, 64)).transpose(1, 2)
                   for one in (self.q(x), self.k(told), self.v(told)))
        return self.out(attend(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.words = Attention(width, width), Attention(width, 2048)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        given = self.norms[0](x)
        x = self.own(given, given) + x
        x = self.words(self.norms[1](x), words) + x
        wide, gate = self.up(self.norms[2](x)).tensor_split(2, -1)
        return self.down(wide * nn.functional.gelu(gate)) + x


class Places(nn.Module):
    """Blocks over all places of a map."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.into, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        made = self.into(self.norm(x).flatten(2).transpose(1, 2))
        for block in self.blocks:
            made = block(made, words)
        made = self.out(made).transpose(1, 2).unflatten(2, x.shape[2:])
        return made.contiguous() + x


class Net(nn.Module):
    """Down over three levels and up again, beside all that was made on the way down."""

    WIDTHS, DEPTHS = (320, 640, 1280), (0, 2, 4)

    def __init__(self) -> None:
        super().__init__()
        told, last, kept = 1280, 320, [320]
        self.time = nn.Sequential(nn.Linear(320, told), nn.SiLU(), nn.Linear(told, told))
        self.more = nn.Sequential(nn.Linear(2816, told), nn.SiLU(), nn.Linear(told, told))
        self.first = nn.Conv2d(4, 320, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, (width, depth) in enumerate(zip(self.WIDTHS, self.DEPTHS)):
            for _ in range(2):
                self.down.append(self.level(last, width, depth))
                last = width
                kept.append(width)
            if level < 2:
                self.down.append(nn.ModuleList([nn.Conv2d(width, width, 3, 2, 1)]))
                kept.append(width)
        self.middle = nn.ModuleList([Residual(1280, 1280, told), Places(1280, 4),
                                     Residual(1280, 1280, told)])
        for level, (width, depth) in reversed(list(enumerate(zip(self.WIDTHS, self.DEPTHS)))):
            for number in range(3):
                parts = self.level(last + kept.pop(), width, depth)
                last = width
                if level and number == 2:
                    parts.append(nn.Sequential(
                        nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1)))
                self.up.append(parts)
        self.last = nn.Sequential(
            nn.GroupNorm(32, 320), nn.SiLU(), nn.Conv2d(320, 4, 3, padding=1))

    def level(self, before: int, width: int, depth: int) -> nn.ModuleList:
        own = [Places(width, depth)] if depth else []
        return nn.ModuleList([Residual(before, width, 1280), *own])

    def run(self, parts: nn.ModuleList, x: torch.Tensor, *told: torch.Tensor) -> torch.Tensor:
        for part in parts:
            if isinstance(part, Residual):
                x = part(x, told[0])
            else:
                x = part(x, told[1]) if isinstance(part, Places) else part(x)
        return x

    def forward(
        self, x: torch.Tensor, when: torch.Tensor, words: torch.Tensor, more: torch.Tensor,
    ) -> torch.Tensor:
        waves = when[:, None] * torch.arange(160, device=DEVICE).neg().exp()
        waves = torch.cat([waves.cos(), waves.sin()], -1).to(x.dtype)
        told = self.time(waves) + self.more(more)
        x = self.first(x)
        kept = [x]
        for parts in self.down:
            x = self.run(parts, x, told, words)
            kept.append(x)
        x = self.run(self.middle, x, told, words)
        for parts in self.up:
            x = self.run(parts, torch.cat([x, kept.pop()], 1), told, words)
        return self.last(x)


class Decoder(nn.Module):
    """From a map of four channels to a picture of eight times its size each way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, last = nn.Conv2d(4, 512, 3, padding=1), 512
        self.middle = nn.ModuleList([Residual(512, 512), Residual(512, 512)])
        self.norm, self.attention = nn.GroupNorm(32, 512), Attention(512, 512)
        parts: list[nn.Module] = []
        for level, width in enumerate((512, 512, 256, 128)):
            parts += [Residual(last if number == 0 else width, width) for number in range(3)]
            last = width
            if level < 3:
                parts += [nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1)]
        self.up = nn.Sequential(*parts, nn.GroupNorm(32, 128), nn.SiLU(),
                                nn.Conv2d(128, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.middle[0](self.first(x / 0.13))
        given = self.norm(x).flatten(2).transpose(1, 2)
        x = self.attention(given, given).transpose(1, 2).unflatten(2, x.shape[2:]) + x
        return self.up(self.middle[1](x))


class Shapes:
    """Graphs of the shapes asked for last: net and decoder in one pool, for each shape its own."""

    def __init__(self, net: nn.Module, decoder: nn.Module, most: int) -> None:
        self.net, self.decoder, self.most, self.warming = net, decoder, most, torch.cuda.Stream()
        self.of: OrderedDict[tuple[int, int, int], list[Graph]] = OrderedDict()

    def get(self, count: int, high: int, wide: int) -> list[Graph]:
        shape = count, high, wide
        if shape not in self.of:
            if len(self.of) == self.most:
                self.drop()
            pool, both = torch.cuda.graph_pool_handle(), 2 * count
            given = [halves(both, 4, high, wide), torch.zeros(both, device=DEVICE),
                     halves(both, 77, 2048), halves(both, 2816)]
            self.of[shape] = [self.capture(self.net, given, pool),
                              self.capture(self.decoder, [halves(1, 4, high, wide)], pool)]
        self.of.move_to_end(shape)
        return self.of[shape]

    def capture(
        self, run: Callable[..., torch.Tensor], given: list[torch.Tensor], pool: object,
    ) -> Graph:
        here = torch.cuda.current_stream()
        self.warming.wait_stream(here)
        with torch.cuda.stream(self.warming):
            run(*given)
        here.wait_stream(self.warming)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self.warming):
            made = run(*given)
        return graph, given, made

    def drop(self) -> None:
        """The shape that nobody asked for longest, and all memory that it held."""
        torch.cuda.synchronize()
        _, graphs = self.of.popitem(last=False)
        for graph, _, _ in graphs:
            graph.reset()
        del graph, graphs
        torch.cuda.empty_cache()


@recorded(4, "pictures are made of words by a U-Net, a graph of each shape and number that was "
             "asked for, in a pool of its own with that of what decodes them; of more than five, "
             "the one used longest ago goes; texts are read without, pictures leave on a stream",
          HELD_BACK)
def pictures_by_recent_shapes() -> Step:
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection
    choose, leaving = random.Random(203), torch.cuda.Stream()
    with torch.device("meta"):
        readers = [CLIPTextModelWithProjection(CLIPTextConfig(
            hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
            num_attention_heads=width // 64, projection_dim=width, vocab_size=49408))
            for width, layers in ((768, 12), (1280, 32))]
        net, decoder = Net(), Decoder()
    for part in (*readers, net, decoder):
        part.half().to_empty(device=DEVICE).eval()
    shapes, known, last = Shapes(net, decoder, 5), OrderedDict(), (1, 128, 128)
    sizes = [(128, 128), (104, 152), (152, 104), (96, 168), (112, 144), (144, 112), (168, 96),
             (80, 192), (160, 96)]

    def read(texts: list[int]) -> list[torch.Tensor]:
        """Words of texts, those known from before as they are kept on the device."""
        new = [text for text in texts if text not in known]
        if new:
            told = [reader(tokens(len(new), 77), output_hidden_states=True) for reader in readers]
            both = torch.cat([one.hidden_states[-2] for one in told], -1)
            for at, text in enumerate(new):
                known[text] = both[at].clone(), told[1].text_embeds[at].clone()
        words, whole = (torch.stack(one) for one in zip(*(known[text] for text in texts)))
        while len(known) > 64:
            known.popitem(last=False)
        sizes = halves(len(texts), 6, 256).flatten(1)
        return [words, torch.cat([whole, sizes], -1)]

    def answer() -> None:
        nonlocal last
        if choose.random() < 0.5:
            # Often somebody tries other words at the same shape.
            last = (choose.choices([1, 2, 4], [6, 3, 2])[0],
                    *choose.choices(sizes, [9, 5, 4, 3, 2, 2, 1, 1, 1])[0])
        (count, high, wide), rounds = last, choose.choice([4, 8, 20, 28])
        texts = [choose.randrange(12) if choose.random() < 0.6 else choose.randrange(12, 10**6)]
        told = read([0] * count + texts * count)
        (graph, given, made), (decode, small, large) = shapes.get(count, high, wide)
        given[2].copy_(told[0])
        given[3].copy_(told[1])
        del told
        noisy = torch.randn(count, 4, high, wide, device=DEVICE)
        times, before = torch.linspace(14, 0.03, rounds + 1, device=DEVICE), None
        for number in range(rounds):
            scaled = noisy / (times[number] ** 2 + 1) ** 0.5
            given[0].copy_(torch.cat([scaled, scaled]).half())
            given[1].fill_(float(number))
            graph.replay()
            off, on = made.float().tensor_split(2)
            clean = noisy - times[number] * (off + 6 * (on - off))
            moved = clean if before is None else 1.5 * clean - 0.5 * before
            noisy = moved + (noisy - moved) * (times[number + 1] / times[number])
            before = clean
        for one in noisy.half().split(1):
            small[0].copy_(one)
            decode.replay()
            picture = (large / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).mul(255).byte()
            leaving.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(leaving):
                picture.to("cpu", non_blocking=True)
            picture.record_stream(leaving)

    @torch.inference_mode()
    def step() -> None:
        for _ in range(choose.randrange(6, 10)):
            answer()
    return step
