"""Three programs that run models and train none, of kinds that none before is of.

Companions of `held_back_last.py`. All have several streams, one of them graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn


class Layer(nn.Module):
    """A layer of an encoder, or of a decoder that attends to an encoder's output too."""

    def __init__(self, width: int, attends: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if attends:
            self.asked, self.told = nn.Linear(width, width), nn.Linear(width, 2 * width)
            self.out_too = nn.Linear(width, width)

    @staticmethod
    def heads(x: torch.Tensor, parts: int) -> torch.Tensor:
        return x.unflatten(-1, (parts, -1, 64)).permute(2, 0, 3, 1, 4)

    def forward(
        self, x: torch.Tensor, cache: torch.Tensor | None = None,
        source: torch.Tensor | None = None, mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, *kv = self.heads(self.qkv(self.norms[0](x)), 3)
        cache = torch.stack(kv, 1) if cache is None else torch.cat([cache, torch.stack(kv, 1)], 3)
        attend = nn.functional.scaled_dot_product_attention
        own_mask = mask if source is None else None
        x = x + self.out(attend(q, *cache.unbind(1), own_mask).transpose(1, 2).flatten(2))
        if source is not None:
            q = self.heads(self.asked(self.norms[1](x)), 1)[0]
            x = x + self.out_too(attend(q, *source.unbind(1), mask).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.relu(self.up(self.norms[2](x)))), cache


@recorded(4, "translation by an encoder of 12 layers and a decoder of 6, with five beams: caches "
             "grow by a word, are put in another order, and lose sentences that end; the next "
             "batch is encoded on a stream meanwhile", HELD_BACK)
def translated_by_beams() -> Step:
    choose, beams, vocabulary = random.Random(82), 5, 256206
    with torch.device("meta"):
        words = nn.Embedding(vocabulary, 1024)
        encoder = nn.ModuleList(Layer(1024, False) for _ in range(12))
        decoder = nn.ModuleList(Layer(1024, True) for _ in range(6))
    for part in (words, encoder, decoder):
        part.half().to_empty(device=DEVICE).eval()
    encoding = torch.cuda.Stream()
    Source = tuple[list[torch.Tensor], torch.Tensor]
    ahead: list[Source] = []

    def encode() -> None:
        """A batch of about as many words as any other; keys and values for every beam."""
        length = choose.randrange(12, 160)
        count = max(4, min(80, choose.randrange(4000, 8000) // length))
        given = torch.zeros(count, length, dtype=torch.long)
        with torch.cuda.stream(encoding):
            x = words(given.to(DEVICE, non_blocking=True))
            mask = noise(count, 1, 1, length, dtype=torch.float16)
            for layer in encoder:
                x, _ = layer(x, mask=mask)
            told = [torch.stack([*Layer.heads(layer.told(x), 2)], 1).repeat_interleave(beams, 0)
                    for layer in decoder]
            ahead.append((told, mask.repeat_interleave(beams, 0)))

    def take() -> Source:
        here = torch.cuda.current_stream()
        here.wait_stream(encoding)
        told, mask = ahead.pop()
        for one in (*told, mask):
            one.record_stream(here)
        return told, mask

    @torch.inference_mode()
    def step() -> None:
        ahead or encode()
        told, mask = take()
        encode()
        rows, caches, at = len(mask), [None] * 6, 0
        last, scores = tokens(rows, 1), torch.zeros(rows, 1, device=DEVICE)
        written = tokens(rows, 1)
        ends = sorted((int(mask.shape[-1] * choose.uniform(0.15, 0.5)) + 6
                       for _ in range(rows // beams)), reverse=True)
        while ends and at < 48:
            x, at = words(last), at + 1
            for number, layer in enumerate(decoder):
                x, caches[number] = layer(x, caches[number], told[number], mask)
            found = (x[:, -1] @ words.weight.T).float().log_softmax(-1) + scores
            best = found.view(-1, beams * vocabulary).topk(2 * beams)
            del found
            origin = best.indices[:, :beams].flatten() // vocabulary
            last = (best.indices[:, :beams] % vocabulary).reshape(-1, 1)
            scores = best.values[:, :beams].reshape(-1, 1).contiguous()
            written = torch.cat([written.index_select(0, origin), last], 1)
            caches = [cache.index_select(0, origin) for cache in caches]
            left = [end for end in ends if end > at]
            if len(left) < len(ends):
                ends, rows = left, beams * len(left)
                kept = torch.arange(rows, device=DEVICE)
                written[rows:].cpu()
                mask, last, scores, written = (
                    one.index_select(0, kept) for one in (mask, last, scores, written))
                caches = [cache.index_select(0, kept) for cache in caches]
                told = [one.index_select(0, kept) for one in told]
    return step


class Packed:
    """A weight in four bits, eight to an integer, with a scale and an offset for each 128."""

    def __init__(self, weight: torch.Tensor) -> None:
        groups = weight.view(len(weight), -1, 128)
        low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
        self.scale, self.low = ((high - low) / 15).clamp(1e-6).half(), low.half()
        steps = ((groups - low) / self.scale).round().clamp(0, 15).int().view(len(weight), -1, 8)
        self.bits = (steps << torch.arange(0, 32, 4, device=DEVICE)).sum(2, dtype=torch.int32)

    def weight(self) -> torch.Tensor:
        shifts = torch.arange(0, 32, 4, device=DEVICE, dtype=torch.int32)
        steps = (self.bits[..., None] >> shifts & 15).half().view(*self.scale.shape[:2], 128)
        return (steps * self.scale + self.low).flatten(1)


def quantised(weight: torch.Tensor, hessian: torch.Tensor) -> Packed:
    """What 128 columns lose by rounding is made good by those after them."""
    weight, width = weight.float(), len(hessian)
    order = hessian.diagonal().argsort(descending=True)
    weight, hessian = weight[:, order], hessian[order][:, order]
    hessian.diagonal().add_(0.01 * hessian.diagonal().mean())
    factor = torch.linalg.cholesky_ex(hessian)[0]
    factor = torch.linalg.cholesky_ex(torch.cholesky_inverse(factor), upper=True)[0]
    for first in range(0, width, 128):
        columns, last = weight[:, first:first + 128], first + 128
        scale = columns.abs().amax(1, keepdim=True) / 7
        lost = columns - (columns / (scale + 1e-6)).round().clamp(-8, 7) * scale
        lost = torch.linalg.solve_triangular(
            factor[first:last, first:last], lost, upper=True, left=False)
        weight[:, last:] -= lost @ factor[first:last, last:]
    return Packed(weight[:, order.argsort()])


@recorded(5, "a model of width 4096 is quantised layer by layer: weights come in on a stream, what "
             "48 texts give moves on from layer to layer, four bits leave on another", HELD_BACK)
def quantised_layer_by_layer() -> Step:
    choose, wide = random.Random(83), 11008
    shapes = {"q": (4096, 4096), "k": (4096, 4096), "v": (4096, 4096), "o": (4096, 4096),
              "gate": (wide, 4096), "up": (wide, 4096), "down": (4096, wide)}
    coming, leaving = torch.cuda.Stream(), torch.cuda.Stream()
    given: list[torch.Tensor] = []
    ahead: list[dict[str, torch.Tensor]] = []
    Multiply = Callable[[str, torch.Tensor], torch.Tensor]

    def bring() -> None:
        with torch.cuda.stream(coming):
            ahead.append({name: torch.empty(shape, dtype=torch.float16).to(
                DEVICE, non_blocking=True) for name, shape in shapes.items()})

    def layer(x: torch.Tensor, multiply: Multiply) -> torch.Tensor:
        normal = nn.functional.rms_norm(x, (4096,))
        q, k, v = (multiply(name, normal).unflatten(-1, (32, 128)).transpose(1, 2)
                   for name in "qkv")
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + multiply("o", seen.transpose(1, 2).flatten(2))
        normal = nn.functional.rms_norm(x, (4096,))
        gate = nn.functional.silu(multiply("gate", normal))
        return x + multiply("down", gate * multiply("up", normal))

    @torch.inference_mode()
    def step() -> None:
        here = torch.cuda.current_stream()
        if not given:
            given.extend(noise(1, choose.randrange(300, 2049), 4096, dtype=torch.float16)
                         for _ in range(48))
            bring()
        here.wait_stream(coming)
        weights, hessians = ahead.pop(), {}
        for one in weights.values():
            one.record_stream(here)
        bring()

        def watch(name: str, x: torch.Tensor) -> torch.Tensor:
            rows = x.flatten(0, 1).float()
            if name not in hessians:
                hessians[name] = torch.zeros(x.shape[2], x.shape[2], device=DEVICE)
            hessians[name].addmm_(rows.T, rows)
            return nn.functional.linear(x, weights[name])

        for x in given:
            layer(x, watch)
        packed = {name: quantised(weights.pop(name), hessians.pop(name)) for name in shapes}
        for number, x in enumerate(given):
            given[number] = layer(x, lambda name, rows: nn.functional.linear(
                rows, packed[name].weight()))
        leaving.wait_stream(here)
        for one in packed.values():
            for part in (one.bits, one.scale, one.low):
                with torch.cuda.stream(leaving):
                    part.to("cpu", non_blocking=True)
                part.record_stream(leaving)
    return step


class Dense(nn.Module):
    """Five convolutions, each of all that came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(64 + 32 * at, 64 if at == 4 else 32, 3, padding=1) for at in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for conv in self.convs[:4]:
            made.append(nn.functional.leaky_relu(conv(torch.cat(made, 1)), 0.2))
        return x + 0.2 * self.convs[4](torch.cat(made, 1))


@recorded(5, "photos of any size are enlarged four times by 45 dense blocks: a stream brings and "
             "decodes them, large ones go in tiles by graphs of one, two and four tiles, results "
             "leave on another", HELD_BACK)
def photos_enlarged() -> Step:
    choose, side = random.Random(86), 160
    coming, leaving = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.device(DEVICE):
        larger = [part for _ in range(2) for part in (
            nn.Upsample(scale_factor=2), nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.2))]
        net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *(Dense() for _ in range(45)), *larger,
                            nn.Conv2d(64, 3, 3, padding=1)).half().eval()
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def capture() -> None:
        pool = torch.cuda.graph_pool_handle()
        for count in (4, 2, 1):
            given = torch.zeros(count, 3, side, side, dtype=torch.float16, device=DEVICE)
            net(given)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                made = net(given)
            graphs[count] = graph, given, made

    def bring() -> torch.Tensor:
        height, width = (int(choose.choice([240, 400, 600, 900]) * choose.uniform(0.6, 1.3))
                         for _ in range(2))
        with torch.cuda.stream(coming):
            coded = torch.empty(height * width // 6, dtype=torch.uint8).to(
                DEVICE, non_blocking=True)
            planes = [coded.new_empty(1, 1, height // part, width // part) for part in (1, 2, 2)]
            photo = torch.cat([nn.functional.interpolate(plane.half(), (height, width))
                               for plane in planes], 1)
            return (torch.einsum("bchw,dc->bdhw", photo, photo.new_ones(3, 3)) / 255).clamp(0, 1)

    def in_tiles(photo: torch.Tensor) -> torch.Tensor:
        _, _, height, width = photo.shape
        made = photo.new_zeros(3, 4 * height, 4 * width)
        places = [(min(top, max(0, height - side)), min(left, max(0, width - side)))
                  for top in range(0, height, side - 16) for left in range(0, width, side - 16)]
        padded = nn.functional.pad(photo, (0, max(0, side - width), 0, max(0, side - height)))
        while places:
            count = 4 if len(places) >= 4 else 2 if len(places) >= 2 else 1
            some, places = places[:count], places[count:]
            graph, given, out = graphs[count]
            given.copy_(torch.cat([padded[:, :, top:top + side, left:left + side]
                                   for top, left in some]))
            graph.replay()
            for (top, left), tile in zip(some, out.float().clamp(0, 1).half()):
                room = made[:, 4 * top:4 * (top + side), 4 * left:4 * (left + side)]
                room.copy_(tile[:, :room.shape[1], :room.shape[2]])
        return made

    def enlarge(photo: torch.Tensor) -> None:
        here = torch.cuda.current_stream()
        photo.record_stream(here)
        large = photo.shape[2] * photo.shape[3] > 480_000
        made = in_tiles(photo) if large else net(photo)[0]
        leaving.wait_stream(here)
        with torch.cuda.stream(leaving):
            sent = made.float().clamp(0, 1).mul(255).byte().permute(1, 2, 0).contiguous()
            sent.to("cpu", non_blocking=True)
        made.record_stream(leaving)

    @torch.inference_mode()
    def step() -> None:
        graphs or capture()
        ahead = [bring(), bring()]
        for _ in range(choose.randrange(6, 10)):
            torch.cuda.current_stream().wait_stream(coming)
            ahead.append(bring())
            enlarge(ahead.pop(0))
        torch.cuda.synchronize()
    return step
