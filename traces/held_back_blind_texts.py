"""Programs on texts, of kinds that none before is of, recorded to be judged blind.

With those of `held_back_blind_media.py` and `held_back_blind_space.py`: nothing was replayed while
they were written, and none was changed for what an allocator does on it. Both have several streams.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, llama, recorded, tokens

import torch
from torch import nn


@recorded(4, "a Llama of 16 layers learns which of two answers is preferred, in three batches "
             "of pairs a step; a reference judges a batch ahead on a stream, then follows",
          HELD_BACK)
def preferred_of_two_answers() -> Step:
    choose, beside, number = random.Random(92), torch.cuda.Stream(), 0
    shape = dict(hidden_size=2048, intermediate_size=8192)
    policy, reference = llama(16, **shape).train(), llama(16, **shape).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
    Pairs = tuple[torch.Tensor, torch.Tensor, int]
    ahead: list[tuple[Pairs, torch.Tensor]] = []

    def longest(count: int, mean: float) -> int:
        return max(min(700, int(choose.lognormvariate(mean, 0.6)) + 8) for _ in range(count))

    def likelihood(model: nn.Module, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each answer, row by row; and the mean logits of the preferred ones."""
        given, mask, answer = pairs
        logits = model(input_ids=given, attention_mask=mask, use_cache=False,
                       logits_to_keep=answer + 1).logits[:, :-1]
        said, rows = given[:, -answer:, None], []
        for row, right in zip(logits, said):
            rows.append(row.log_softmax(-1).gather(-1, right).squeeze(-1))
        kept = torch.stack(rows) * mask[:, -answer:]
        half = len(given) // 2
        return kept.sum(1), nn.functional.cross_entropy(
            logits[:half].flatten(0, 1).float(), said[:half].flatten())

    def look_ahead() -> None:
        count = choose.randrange(2, 4)
        prompt, answer = longest(count, 5.2), longest(2 * count, 5.2)
        given, mask = (torch.zeros(2 * count, prompt + answer, dtype=torch.long).to(
            DEVICE, non_blocking=True) for _ in range(2))
        pairs = given, mask, answer
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside), torch.no_grad():
            told, _ = likelihood(reference, pairs)
        for one in (given, mask):
            one.record_stream(beside)
        ahead.append((pairs, told))

    def microbatch() -> None:
        here = torch.cuda.current_stream()
        ahead or look_ahead()
        pairs, told = ahead.pop()
        look_ahead()
        found, usual = likelihood(policy, pairs)
        here.wait_stream(beside)
        told.record_stream(here)
        preferred, other = (found - told).tensor_split(2)
        loss = -nn.functional.logsigmoid(0.1 * (preferred - other)).mean() + 0.2 * usual
        (loss / 3).backward()
        torch.stack([preferred.detach().mean(), other.detach().mean(), loss.detach()]).cpu()

    def follow() -> None:
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside), torch.no_grad():
            for theirs, mine in zip(reference.parameters(), policy.parameters()):
                theirs.copy_(0.6 * mine + 0.4 * theirs)
        torch.cuda.current_stream().wait_stream(beside)

    def step() -> None:
        nonlocal number
        number += 1
        for _ in range(3):
            microbatch()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number % 2 == 0:
            follow()
    return step


@dataclass
class Request:
    """A prompt of which some is in the cache already, and what is still to be written."""

    seen: int
    unread: int
    unwritten: int
    tells_all: bool


class Latent(nn.Module):
    """A layer whose cache holds one short vector for a token, widened where a prompt needs it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(size) for size in (width, 512, width))
        self.asked, self.short = nn.Linear(width, 16 * 192), nn.Linear(width, 576)
        self.wide, self.out = nn.Linear(512, 16 * 256), nn.Linear(2048, width)
        self.router, self.shared = nn.Linear(width, 64), nn.Linear(width, 5632)
        self.last = nn.Linear(2816, width)
        self.experts = nn.ParameterList(nn.Parameter(torch.empty(
            64, *shape, dtype=torch.uint8), False) for shape in ((2816, width), (width, 1408)))

    def keys(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = self.wide(latent[:, :512]).view(-1, 16, 256).tensor_split(2, -1)
        turned = latent[:, None, 512:].expand(-1, 16, -1)
        return torch.cat([k, turned], -1), nn.functional.pad(v, (0, 64))

    def attend(self, q: torch.Tensor, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Keys and values are there until it is done.
        made = self.keys(latent), torch.empty_like(q), noise(16, len(q), dtype=torch.float32)
        return made[1:]

    def prompt(
        self, q: torch.Tensor, latent: torch.Tensor, parts: list[torch.Tensor],
    ) -> torch.Tensor:
        """Of what is new, and then of what is cached, part by part: two results become one."""
        seen, weight = self.attend(q, latent)
        for part in parts:
            other = self.attend(q, part)
            seen, weight = torch.empty_like(seen), torch.empty_like(weight)
            del other
        return seen[..., :128].flatten(1)

    def words(self, q: torch.Tensor, splits: int) -> torch.Tensor:
        """One token a request, in the short space."""
        k, v = self.wide.weight.view(16, 256, 512).tensor_split(2, 1)
        short = torch.bmm(q[..., :128].transpose(0, 1), k).transpose(0, 1)
        asked = torch.cat([short, q[..., 128:]], -1)
        parts = noise(len(q), 16, splits, 513, dtype=torch.float32)
        seen = torch.empty_like(asked[..., :512])
        del parts
        return torch.bmm(seen.transpose(0, 1), v.mT).transpose(0, 1).flatten(1)

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        best = self.router(x).float().softmax(-1).topk(6)
        best.values.div_(best.values.sum(-1, keepdim=True))
        rows, padded = 6 * len(x), 6 * len(x) + 64 * 63
        order = [noise(size, dtype=torch.int32) for size in (padded, padded // 64, 1)]
        both, made = noise(rows * 2816), noise(rows, 1408)
        for one in (x, made):
            one.to(torch.float8_e4m3fn), noise(len(one), 1, dtype=torch.float32)
        del best, order, made
        gate, wide = self.shared(x).tensor_split(2, -1)
        beside = self.last(nn.functional.silu(gate) * wide)
        return beside + both[:rows * 2048].view(len(x), 6, -1).sum(1)

    def forward(
        self, x: torch.Tensor, words: int, splits: int, parts: list[torch.Tensor],
    ) -> torch.Tensor:
        normal = self.norms[0](x)
        q, latent = self.asked(normal).view(-1, 16, 192), self.short(normal)
        latent = torch.cat([self.norms[1](latent[:, :512]), latent[:, 512:]], 1)
        seen = noise(len(x), 2048)
        if words:
            seen[:words] = self.words(q[:words], splits)
        if words < len(x):
            seen[words:] = self.prompt(q[words:], latent[words:], parts)
        x = x + self.out(seen)
        return x + self.mixed(self.norms[2](x))


@recorded(6, "an engine reads prompts of up to 60,000 tokens in chunks beside those it writes, 20 "
             "layers of 64 experts in bytes: what it has read before is found in pages, which go "
             "to the host and come back on two streams", HELD_BACK)
def prompts_read_in_chunks() -> Step:
    choose, leaving, coming = random.Random(96), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.device("meta"):
        layers = nn.ModuleList(Latent(2048) for _ in range(20))
        words, last = nn.Embedding(102400, 2048), nn.Linear(2048, 102400, bias=False)
    for part in (*layers, words, last):
        for one in part.parameters():
            one.data = one.data if one.dtype == torch.uint8 else one.data.bfloat16()
        part.to_empty(device=DEVICE).eval()
    pages = [noise(12000, 16, 576) for _ in layers]
    room = noise(16384, 576)
    requests: list[Request] = []

    def come() -> None:
        """Half of the prompts go on from what was read before; some of that is on the host."""
        length = int(min(60_000, choose.lognormvariate(8.6, 1.1))) + 16
        seen = int(length * choose.uniform(0.3, 0.95)) // 16 * 16 if choose.random() < 0.5 else 0
        requests.append(Request(seen, length - seen, choose.randrange(8, 60),
                                choose.random() < 0.08))
        away = seen // 16 - choose.randrange(1 + seen // 16)
        while away > 0 and choose.random() < 0.8:
            count = min(away, 256)
            with torch.cuda.stream(coming):
                brought = noise(len(pages), count, 16, 576)
            torch.cuda.current_stream().wait_stream(coming)
            brought.record_stream(torch.cuda.current_stream())
            places = tokens(1, count)[0]
            for page, one in zip(pages, brought):
                page.index_copy_(0, places, one)
            away -= count

    def go(request: Request) -> None:
        """What was read stays in pages, of which the oldest are written to the host."""
        here = torch.cuda.current_stream()
        count = min(1 + request.seen // 16, choose.randrange(16, 400))
        places = tokens(1, count)[0]
        gone = torch.stack([page.index_select(0, places) for page in pages])
        leaving.wait_stream(here)
        with torch.cuda.stream(leaving):
            gone.to("cpu", non_blocking=True)
        gone.record_stream(leaving)

    def choice(hidden: torch.Tensor) -> torch.Tensor:
        logits = last(hidden).float()
        if choose.random() < 0.5:
            ordered, order = (logits / 0.7).sort(-1)
            ordered.masked_fill_(ordered.softmax(-1).cumsum(-1) < 0.1, -1e9)
            logits = torch.empty_like(logits).scatter_(-1, order, ordered)
        likely = logits.softmax(-1)
        return (likely / torch.empty_like(likely).exponential_()).argmax(-1)

    def turn() -> None:
        """Every request that writes, and as much of the prompts as goes into 8,192 tokens."""
        writing = [one for one in requests if not one.unread]
        reading, left = [], 8192 - len(writing)
        for one in requests:
            if one.unread and left > 0:
                reading.append((one, min(one.unread, left)))
                left -= reading[-1][1]
        context, parts = sum(one.seen for one, _ in reading), []
        while context > 0:
            parts.append(room[:min(context, len(room))])
            context -= len(room)
        total = len(writing) + sum(count for _, count in reading)
        for size in (total, total, total, len(requests) * 4096):
            torch.zeros(size, dtype=torch.int32).to(DEVICE, non_blocking=True)
        splits = max(1, min(16, max((one.seen for one in writing), default=1) // 2048))
        x = words(tokens(1, total)[0])
        for layer in layers:
            x = layer(x, len(writing), splits, parts)
        for one, count in reading:
            if one.tells_all:
                last(x[-count:][:2048]).float().log_softmax(-1).topk(5)
            one.seen, one.unread = one.seen + count, one.unread - count
        ends = len(writing) + sum(not one.unread for one, _ in reading)
        if ends:
            choice(x.index_select(0, tokens(1, ends)[0])).cpu()
        for one in writing:
            one.seen, one.unwritten = one.seen + 1, one.unwritten - 1
            if not one.unwritten:
                requests.remove(one)
                go(one)

    @torch.inference_mode()
    def step() -> None:
        for _ in range(7):
            while len(requests) < 32 and (not requests or choose.random() < 0.55):
                come()
            turn()
    return step
