"""Six programs of yet other kinds, recorded next, to judge the policy on what nobody tuned it for.

Four of the six have several streams, one of these graphs.
"""

from __future__ import annotations

import random

from parts import DEVICE, HELD_BACK, Step, recorded, tokens, training

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


def noise(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Memory of a shape: what it holds does not matter."""
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


class CausalConv(nn.Module):
    """A convolution over frames that keeps the last two it saw for the frames that come next."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(16, before)
        self.conv = nn.Conv3d(before, after, 3, padding=(0, 1, 1))
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = nn.functional.silu(self.norm(x))
        last = torch.zeros_like(given[:, :, :2]) if self.last is None else self.last
        given = torch.cat([last, given], 2)
        self.last = given[:, :, -2:].clone()
        made = self.conv(given)
        return made + x if made.shape == x.shape else made


@recorded(5, "a decoder of videos works in tiles that overlap, two latent frames at a time beside "
             "what its convolutions keep, tiles blended and sent to the host on a stream",
          HELD_BACK)
def clips_decoded_in_tiles() -> Step:
    choose, leaving = random.Random(71), torch.cuda.Stream()
    with torch.device(DEVICE):
        parts = [CausalConv(16, 512)]
        for before, after in ((512, 512), (512, 256), (256, 128)):
            parts += [CausalConv(before, before), CausalConv(before, after),
                      nn.Upsample(scale_factor=(1 if after == 512 else 2, 2, 2))]
        decoder = nn.Sequential(*parts, CausalConv(128, 128), CausalConv(128, 3)).bfloat16().eval()

    def tile(latent: torch.Tensor) -> torch.Tensor:
        made = [decoder(pair) for pair in latent.split(2, 2)]
        for part in decoder:
            part.last = None
        return torch.cat(made, 2)

    def step() -> None:
        here = torch.cuda.current_stream()
        frames = 2 * choose.randrange(2, 6)
        height, width = (choose.randrange(48, 136) for _ in range(2))
        side = choose.choice([32, 40, 48, 64])
        with torch.inference_mode():
            latent = noise(1, 16, frames, height, width)
            canvas = torch.zeros(3, 4 * frames, 8 * height, 8 * width, device=DEVICE)
            share = torch.zeros_like(canvas[:1, :1])
            for top in range(0, height - 6, side - 6):
                for left in range(0, width - 6, side - 6):
                    made = tile(latent[..., top:top + side, left:left + side])[0].float()
                    place = (..., slice(8 * top, 8 * top + made.shape[-2]),
                             slice(8 * left, 8 * left + made.shape[-1]))
                    ramp = torch.linspace(0, 1, made.shape[-1], device=DEVICE).minimum(
                        torch.linspace(0, 1, made.shape[-2], device=DEVICE)[:, None])
                    canvas[place] += made * ramp
                    share[place] += ramp
            leaving.wait_stream(here)
            for some in canvas.div_(share).split(8, 1):
                with torch.cuda.stream(leaving):
                    sent = some.clamp(-1, 1).add(1).mul(127.5).byte()
                    sent.to("cpu", non_blocking=True)
            canvas.record_stream(leaving)
    return step


class Block(nn.Module):
    """A layer of a decoder; with a cache it returns keys and values of what it was given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 8 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def heads_of(self, x: torch.Tensor) -> torch.Tensor:
        return self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def rest(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        gate, wide = self.up(self.second(x)).tensor_split(2, -1)
        return x + self.down(nn.functional.silu(gate) * wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads_of(x)
        return self.rest(x, nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def beside(
        self, x: torch.Tensor, cache: torch.Tensor, mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.heads_of(x)
        new = torch.stack([k, v])
        k, v = torch.cat([cache, new], 3)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.rest(x, seen), new


class Drafter:
    """A small model that widens a tree by one level: a graph of every width, all in one pool."""

    def __init__(self, batch: int) -> None:
        with torch.device(DEVICE):
            self.model = nn.Sequential(nn.Embedding(64000, 768), Block(768, 12), Block(768, 12),
                                       nn.Linear(768, 64000, bias=False)).bfloat16().eval()
        self.graphs, pool = {}, torch.cuda.graph_pool_handle()
        for width in (16, 8, 4, 2, 1):
            given, graph = tokens(batch, width), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                found = self.model(given).float().log_softmax(-1).topk(4)
            self.graphs[width] = graph, given, found

    def widen(self, width: int, batch: int) -> torch.Tensor:
        graph, _, found = self.graphs[width]
        graph.replay()
        return found.indices[:batch].flatten(1).clone()


@recorded(4, "drafts in trees: a graph of each width widens them, a decoder of 10 layers judges "
             "all branches at once, what it keeps joins a cache, what it does not stays a while",
          HELD_BACK)
def drafts_in_trees() -> Step:
    choose = random.Random(72)
    with torch.device(DEVICE):
        words, blocks = nn.Embedding(64000, 1792), nn.ModuleList(Block(1792, 14) for _ in range(10))
        last = nn.Linear(1792, 64000, bias=False)
    for part in (words, blocks, last):
        part.bfloat16().eval()
    drafter: list[Drafter] = []

    def judge(caches: list[torch.Tensor], given: torch.Tensor) -> list[torch.Tensor]:
        x, nodes, news = words(given), given.shape[1], []
        mask = noise(len(given), 1, nodes, caches[0].shape[3] + nodes)
        for block, cache in zip(blocks, caches):
            x, new = block.beside(x, cache, mask)
            news.append(new)
        last(x).float().softmax(-1).argmax(-1)
        return news

    def step() -> None:
        drafter or drafter.append(Drafter(24))
        batch, rejected = choose.randrange(4, 25), []
        caches = [noise(2, batch, 14, 0, 128) for _ in blocks]
        caches = judge(caches, tokens(batch, choose.randrange(100, 900)))
        for _ in range(choose.randrange(16, 28)):
            levels, width = [], 1
            for _ in range(choose.randrange(2, 7)):
                levels.append(drafter[0].widen(width, batch))
                width = min(16, width * choose.choice([1, 2, 4]))
            news = judge(caches, torch.cat(levels, 1))
            nodes = news[0].shape[3]
            kept = torch.arange(choose.randrange(1, len(levels) + 1), device=DEVICE)
            again = torch.arange(choose.randrange(nodes), device=DEVICE)
            # A branch that was turned down may be what the next tree begins with.
            rejected.append([new.index_select(3, again) for new in news])
            if choose.random() < 0.3:
                taken = rejected.pop(choose.randrange(len(rejected)))
                news = [torch.cat([new, old], 3) for new, old in zip(news, taken)]
            caches = [torch.cat([cache, new.index_select(3, kept)], 3)
                      for cache, new in zip(caches, news)]
            del rejected[:-4]
            if batch > 2 and choose.random() < 0.25:
                batch, rejected = batch - 1, []
                caches = [cache[:, :batch].contiguous() for cache in caches]

    def inferred() -> None:
        with torch.inference_mode():
            step()
    return inferred


class Index:
    """Vectors in lists by the centre they are nearest to, each list with room to grow."""

    def __init__(self, lists: int, width: int) -> None:
        self.centres = noise(lists, width, dtype=torch.float16)
        self.rooms = [noise(64, width, dtype=torch.float16) for _ in range(lists)]
        self.counts = [0] * lists
        self.codes: list[list[torch.Tensor]] = [[] for _ in range(lists)]

    def add(self, vectors: torch.Tensor, shares: list[float]) -> None:
        nearest = torch.cat([(part @ self.centres.T).argmax(1) for part in vectors.split(16384)])
        order, total, at = nearest.argsort(), sum(shares), 0
        for number, share in enumerate(shares):
            count = int(share / total * len(vectors))
            need = self.counts[number] + count
            if need > len(self.rooms[number]):
                room = noise(max(need, int(1.4 * len(self.rooms[number]))), vectors.shape[1],
                             dtype=torch.float16)
                room[:self.counts[number]] = self.rooms[number][:self.counts[number]]
                self.rooms[number] = room
            self.rooms[number][self.counts[number]:need] = vectors[order[at:at + count]]
            self.counts[number], at = need, at + count

    def train(self) -> None:
        """Centres anew, from some vectors of every list."""
        some = torch.cat([room[:200] for room in self.rooms])
        for _ in range(6):
            nearest = (some @ self.centres.T).argmax(1)
            sums = torch.zeros(self.centres.shape, device=DEVICE)
            sums.index_add_(0, nearest, some.float())
            self.centres = nn.functional.normalize(sums).half()

    def compress(self, numbers: range) -> None:
        """Codes of a byte for eight dimensions in place of a list's vectors."""
        book = noise(96, 8, 256, dtype=torch.float16)
        for number in numbers:
            parts = self.rooms[number][:self.counts[number]].view(-1, 96, 8).transpose(0, 1)
            if parts.shape[1]:
                self.codes[number].append(torch.cat(
                    [(some @ words).argmax(-1).byte()
                     for some, words in zip(parts.split(24), book.split(24))]))
            self.rooms[number], self.counts[number] = self.rooms[number][:64].clone(), 0

    def search(self, queries: torch.Tensor, probed: list[int]) -> torch.Tensor:
        (queries @ self.centres.T).topk(len(probed))
        found = []
        for number in probed:
            for codes in self.codes[number]:
                table = (queries.float() @ noise(768, 256, dtype=torch.float32))
                found.append(table[:, codes.long().sum(0) % 256].topk(min(50, codes.shape[1]))[0])
            if self.counts[number]:
                scores = (queries @ self.rooms[number][:self.counts[number]].T).float()
                found.append(scores.topk(min(50, self.counts[number]))[0])
        return torch.cat(found, 1).sort(1)[0][:, :50].contiguous()


@recorded(9, "an index of vectors in 192 lists that grow as a stream brings more, searched in "
             "between by batches of 1 to 256; some lists become codes, centres are made anew",
          HELD_BACK)
def index_that_grows() -> Step:
    choose, bringing, index = random.Random(73), torch.cuda.Stream(), Index(192, 768)
    shares = [choose.paretovariate(1.5) for _ in range(192)]
    number = 0

    def grow() -> None:
        rows = torch.zeros(choose.randrange(10_000, 90_000), 768, dtype=torch.float16)
        with torch.cuda.stream(bringing):
            vectors = nn.functional.normalize(rows.to(DEVICE, non_blocking=True).float()).half()
        torch.cuda.current_stream().wait_stream(bringing)
        index.add(vectors, [share * choose.uniform(0.2, 2) for share in shares])
        vectors.record_stream(torch.cuda.current_stream())

    def step() -> None:
        nonlocal number
        number += 1
        with torch.inference_mode():
            for _ in range(3):
                grow()
            if number % 3 == 0:
                index.compress(range(choose.randrange(3), 192, 3))
                index.train()
            results = []
            for _ in range(24):
                queries = noise(choose.randrange(1, 257), 768, dtype=torch.float16)
                results.append(index.search(queries, choose.sample(range(192), 12)))
            torch.cat(results).cpu()
    return step


@recorded(8, "a student learns from two teachers of other widths, each on a stream of its own and "
             "a batch ahead; their layers' outputs and likeliest words are kept for it", HELD_BACK)
def taught_from_two_streams() -> Step:
    choose = random.Random(74)

    def decoder(layers: int, width: int) -> nn.ModuleList:
        return nn.ModuleList([nn.Embedding(32000, width), *(
            Block(width, width // 64) for _ in range(layers)), nn.Linear(width, 32000)])

    with torch.device(DEVICE):
        student = decoder(8, 640)
        teachers = [decoder(16, 1536).bfloat16().eval(), decoder(20, 1024).bfloat16().eval()]
        fits = nn.ModuleList([nn.Linear(640, 1536), nn.Linear(640, 1024)])
    streams = [torch.cuda.Stream() for _ in teachers]
    Answer = list[torch.Tensor]
    ahead: list[tuple[torch.Tensor, list[Answer]]] = []

    def ask(teacher: nn.ModuleList, given: torch.Tensor) -> Answer:
        x, kept = given, []
        with torch.no_grad():
            for number, layer in enumerate(teacher[:-1]):
                x = layer(x)
                if number and number % 8 == 0:
                    kept.append(nn.functional.layer_norm(x, x.shape[-1:]))
            values, words = zip(*((some.float() / 2).log_softmax(-1).topk(32) for some in (
                teacher[-1](part) for part in x.flatten(0, 1).split(2048))))
        return [torch.cat(values), torch.cat(words), *kept]

    def look_ahead() -> None:
        length = choose.randrange(64, 1025)
        given, told = tokens(max(1, choose.randrange(3000, 7500) // length), length), []
        for teacher, stream in zip(teachers, streams):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                told.append(ask(teacher, given))
            given.record_stream(stream)
        ahead.append((given, told))

    def loss() -> torch.Tensor:
        ahead or look_ahead()
        given, told = ahead.pop()
        here = torch.cuda.current_stream()
        look_ahead()
        x, middle = given, []
        for layer in student[:-1]:
            x = layer(x)
            middle.append(x)
        guess = student[-1](x).flatten(0, 1).float().log_softmax(-1)
        cost = nn.functional.nll_loss(guess, given.flatten())
        for stream, fit, (values, words, *kept) in zip(streams, fits, told):
            here.wait_stream(stream)
            for one in (values, words, *kept):
                one.record_stream(here)
            cost = cost + (values.exp() * (values - guess.gather(1, words))).sum(1).mean()
            for one, mine in zip(kept, middle[4::4]):
                cost = cost + nn.functional.mse_loss(fit(mine).float(), one.float())
        return cost
    return training(nn.ModuleList([student, fits]), loss)


class SparseConv(nn.Module):
    """A product for each of 27 neighbours, of the voxels that have one there."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(27, before, after))
        self.norm = nn.BatchNorm1d(after)

    def forward(self, x: torch.Tensor, pairs: list[torch.Tensor], count: int) -> torch.Tensor:
        made = torch.zeros(count, self.weights.shape[2], device=DEVICE)
        for weight, (source, into) in zip(self.weights, pairs):
            made.index_add_(0, into, (x.index_select(0, source) @ weight).float())
        return nn.functional.relu(self.norm(made))


@recorded(5, "a network on clouds of points in voxels: five levels of sparse convolutions, "
             "their maps of neighbours made anew for clouds of 20,000 to 160,000 points", HELD_BACK)
def points_in_voxels() -> Step:
    choose, widths = random.Random(75), [32, 64, 128, 192, 256]
    with torch.device(DEVICE):
        points, last = nn.Linear(6, 32), nn.Linear(256 + 32, 20)
        within = nn.ModuleList(nn.ModuleList(
            SparseConv(width, width) for _ in range(2)) for width in widths)
        down = nn.ModuleList(SparseConv(*pair) for pair in zip(widths, widths[1:]))
    model = nn.ModuleList([points, last, within, down])

    def neighbours(before: int, after: int) -> list[torch.Tensor]:
        keys = noise(before, 4, dtype=torch.int32).long().sum(1).sort()[0]
        pairs = []
        for _ in range(27):
            torch.searchsorted(keys, keys + 1)
            count = int(min(before, after) * choose.uniform(0.05, 0.7))
            pairs.append(torch.zeros(2, count, dtype=torch.long, device=DEVICE))
        return pairs

    def loss() -> torch.Tensor:
        total = sum(choose.randrange(20_000, 160_000) for _ in range(choose.randrange(1, 4)))
        count = int(total * choose.uniform(0.2, 0.6))
        of_points = torch.zeros(total, dtype=torch.long, device=DEVICE)
        given = points(noise(total, 6, dtype=torch.float32)).float()
        x = torch.zeros(count, 32, device=DEVICE).index_add_(0, of_points, given)
        for level, layers in enumerate(within):
            pairs = neighbours(count, count)
            for layer in layers:
                x = x + layer(x, pairs, count)
            if level < 4:
                coarse = int(count * choose.uniform(0.25, 0.5))
                x, count = down[level](x, neighbours(count, coarse), coarse), coarse
        out = last(torch.cat([x.index_select(0, of_points % count), given], 1))
        return nn.functional.cross_entropy(out.float(), of_points)
    return training(model, loss)


def orthogonal(moment: torch.Tensor) -> torch.Tensor:
    """Newton and Schulz's steps to the nearest orthogonal matrix, in half precision."""
    x = moment.bfloat16()
    x = x.mT if x.shape[-2] > x.shape[-1] else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.mT if moment.shape[-2] > moment.shape[-1] else x


@recorded(10, "a decoder of 14 layers whose matrices an orthogonal update moves, five at a time; "
              "texts grow, and with them the number of segments computed again", HELD_BACK)
def orthogonal_updates() -> Step:
    choose = random.Random(76)
    with torch.device(DEVICE):
        blocks = nn.Sequential(*(Block(1152, 9) for _ in range(14)))
        words, last = nn.Embedding(32000, 1152), nn.Linear(1152, 32000, bias=False)
    matrices = [one for one in blocks.parameters() if one.dim() == 2]
    others = [one for one in blocks.parameters() if one.dim() == 1]
    moments = [torch.zeros_like(one) for one in matrices]
    adam = torch.optim.AdamW([*others, *words.parameters(), *last.parameters()], lr=1e-4)
    by_shape: dict[torch.Size, list[int]] = {}
    for at, one in enumerate(matrices):
        by_shape.setdefault(one.shape, []).append(at)
    number = 0

    def update() -> None:
        for places in by_shape.values():
            for first in range(0, len(places), 5):
                some = places[first:first + 5]
                for at in some:
                    moments[at].lerp_(matrices[at].grad, 0.05)
                stacked = torch.stack([matrices[at].grad.lerp(moments[at], 0.95) for at in some])
                for at, change in zip(some, orthogonal(stacked)):
                    matrices[at].mul_(0.999).add_(change, alpha=-0.02)
                    matrices[at].grad = None

    def step() -> None:
        nonlocal number
        number += 1
        length = 256 * number + choose.randrange(-100, 100)
        for _ in range(2):
            given = tokens(choose.randrange(1, 4), length)
            with torch.autocast(DEVICE, torch.bfloat16):
                segments = min(14, 1 + number // 2 * len(given))
                x = checkpoint_sequential(blocks, segments, words(given), use_reentrant=False)
                cost = sum(nn.functional.cross_entropy(last(part).float(), right, reduction="sum")
                           for part, right in zip(x.flatten(0, 1).split(1500),
                                                  given.flatten().split(1500)))
            (cost / given.numel()).backward()
        with torch.no_grad():
            update()
        adam.step()
        adam.zero_grad(set_to_none=True)
    return step
