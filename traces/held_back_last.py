"""Three programs that train, of kinds that none before is of, recorded when the policy stood.

With the three of `held_back_last_served.py` they judge it on what nobody tuned it for. One of the
three has several streams.
"""

from __future__ import annotations

import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, llama, recorded, tokens, training

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    """Three convolutions beside a fourth, then every other pixel."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, after, 3, padding=1, bias=False)
                                   for width in (before, after, after))
        self.norms = nn.ModuleList(nn.BatchNorm2d(after, track_running_stats=False)
                                   for _ in range(3))
        self.beside = nn.Conv2d(before, after, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            made = norm(conv(made))
            made = nn.functional.leaky_relu(made, 0.1) if number < 2 else made
        made = nn.functional.leaky_relu(made + self.beside(x), 0.1)
        return nn.functional.max_pool2d(made, 2)


@recorded(4, "a network of twelve convolutions learns to learn: for each of two tasks of 5 to 10 "
             "kinds it takes two or three steps, and gradients go through these steps", HELD_BACK)
def learns_to_learn() -> Step:
    choose, widths = random.Random(81), [3, 64, 160, 320, 640]
    with torch.device(DEVICE):
        net = nn.Sequential(*(Residual(*pair) for pair in zip(widths, widths[1:])),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def cost(weights: dict[str, torch.Tensor], images: int, side: int) -> torch.Tensor:
        found = torch.func.functional_call(net, weights, (noise(
            images, 3, side, side, dtype=torch.float32),))
        return nn.functional.cross_entropy(found, tokens(1, images)[0])

    def task() -> None:
        kinds, side = choose.randrange(5, 11), choose.choice([64, 72, 84])
        shown, asked = kinds * choose.randrange(1, 6), kinds * choose.randrange(2, 5)
        weights = dict(net.named_parameters())
        for _ in range(choose.randrange(2, 4)):
            loss = cost(weights, shown, side)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: torch.sub(weight, grad, alpha=0.01)
                       for (name, weight), grad in zip(weights.items(), grads)}
        (cost(weights, asked, side) / 2).backward()

    def step() -> None:
        for _ in range(2):
            task()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


class Field(nn.Module):
    """Density and colour at a point, of 16 tables by its cell at each resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = [int(16 * 1.45 ** level) for level in range(16)]
        self.tables = nn.ParameterList(
            torch.empty(min(side ** 3, 1 << 20), 2) for side in self.sides)
        self.density = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
        self.colour = nn.Sequential(nn.Linear(31, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                    nn.Linear(64, 3), nn.Sigmoid())
        corners = [[at >> 2 & 1, at >> 1 & 1, at & 1] for at in range(8)]
        self.register_buffer("corners", torch.tensor(corners))
        self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))

    def at(self, points: torch.Tensor) -> torch.Tensor:
        found = []
        for side, table in zip(self.sides, self.tables):
            scaled = points * (side - 1)
            cell = scaled.floor()
            places = (cell.long()[:, None] + self.corners) * self.primes
            places = (places[..., 0] ^ places[..., 1] ^ places[..., 2]) % len(table)
            share = (scaled - cell)[:, None]
            share = (self.corners * share + (1 - self.corners) * (1 - share)).prod(2)
            found.append((nn.functional.embedding(places, table) * share[..., None]).sum(1))
        return self.density(torch.cat(found, 1))

    def forward(
        self, points: torch.Tensor, towards: torch.Tensor, ray: torch.Tensor, rays: int,
    ) -> torch.Tensor:
        """The colours of rays, from samples of which each belongs to one."""
        told = self.at(points)
        opacity = nn.functional.softplus(told[:, 0].float()) * 0.01
        passed = opacity.cumsum(0) - opacity
        starts = torch.zeros(rays, device=DEVICE).index_reduce(0, ray, passed.detach(), "amin")
        share = (1 - torch.exp(-opacity)) * torch.exp(starts.index_select(0, ray) - passed)
        harmonics = torch.cat([towards.pow(power) for power in range(1, 6)], 1)
        colours = self.colour(torch.cat([told[:, 1:], harmonics, towards[:, :1]], 1)).float()
        return torch.zeros(rays, 3, device=DEVICE).index_add(0, ray, colours * share[:, None])


@recorded(8, "a field of radiance in tables of 16 resolutions is trained on rays, with fewer "
             "samples the emptier it is known to be; averaged weights render views in chunks on "
             "a stream beside", HELD_BACK)
def radiance_from_rays() -> Step:
    choose, viewing = random.Random(84), torch.cuda.Stream()
    with torch.device(DEVICE):
        field, averaged = Field(), Field()
        images, grid = noise(100, 800, 800, 3, dtype=torch.uint8), torch.zeros(128 ** 3)
    per_ray, rays, number = 180.0, 2048, 0

    def sampled(rays: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = int(rays * per_ray * choose.uniform(0.7, 1.3))
        starts, ways = (nn.functional.normalize(noise(rays, 3, dtype=torch.float32))
                        for _ in range(2))
        ray = torch.zeros(count, dtype=torch.long, device=DEVICE)
        way = ways.index_select(0, ray)
        far = noise(count, 1, dtype=torch.float32)
        return starts.index_select(0, ray) + way * far, way, ray

    def loss() -> torch.Tensor:
        nonlocal rays
        colours = field(*sampled(rays), rays)
        right = images.view(-1, 3).index_select(0, tokens(1, rays)[0]).float() / 255
        rays = int(350_000 / per_ray)
        return nn.functional.huber_loss(colours, right)

    def look_where_empty() -> None:
        some = torch.zeros(choose.randrange(100_000, 400_000), dtype=torch.long, device=DEVICE)
        density = field.at(noise(len(some), 3, dtype=torch.float32))[:, 0].float()
        grid.mul_(0.95).index_reduce_(0, some, density, "amax")
        (grid > grid.mean().clamp(max=0.01)).view(-1, 8).sum(1).byte()

    def view() -> None:
        viewing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(viewing):
            height, width = choose.choice([(400, 400), (540, 720), (800, 800)])
            lines = []
            for first in range(0, height * width, 65536):
                count = min(65536, height * width - first)
                share = choose.uniform(0.05, 1)
                seen = averaged(*sampled(max(1, int(count * share * 0.1))), count)
                lines.append(seen.clamp(0, 1).mul(255).byte())
            torch.cat(lines).view(height, width, 3).to("cpu", non_blocking=True)

    train = training(field, loss)

    def step() -> None:
        nonlocal per_ray, number
        for _ in range(5):
            train()
            per_ray, number = max(24.0, per_ray * 0.95), number + 1
        with torch.no_grad():
            torch.cuda.current_stream().wait_stream(viewing)
            for mine, one in zip(averaged.parameters(), field.parameters()):
                mine.lerp_(one, 0.05)
            look_where_empty()
            if number % 2:
                view()
    return step


class ByteAdam:
    """Adam whose moments are bytes, with a scale for each 1024."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.weights = weights
        self.states: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self.codes = torch.linspace(-1, 1, 256, device=DEVICE)

    def packed(self, moment: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = moment.flatten().view(-1, min(1024, moment.numel()))
        scale = blocks.abs().amax(1, keepdim=True)
        return ((blocks / (scale + 1e-12) + 1) * 127.5).round().byte(), scale

    def moment(self, state: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.codes[state[0].int()] * state[1]

    @torch.no_grad()
    def step(self) -> None:
        for number, weight in enumerate(self.weights):
            grad = weight.grad.float()
            if number not in self.states:
                self.states[number] = [self.packed(torch.zeros_like(grad)) for _ in range(2)]
            mean, square = (self.moment(one).view_as(grad) for one in self.states[number])
            mean.lerp_(grad, 0.1)
            square.lerp_(grad * grad, 0.05)
            self.states[number] = [self.packed(mean), self.packed(square)]
            weight.add_((mean / square.sqrt().add_(1e-8)).to(weight.dtype), alpha=-1e-4)
            weight.grad = None


@recorded(8, "a Llama of 7 layers is trained as texts lengthen in stages from 512 to 4096, over "
             "two microbatches a step, each layer computed again, the loss in chunks, Adam's "
             "moments in bytes", HELD_BACK)
def texts_lengthen_in_stages() -> Step:
    choose, number = random.Random(85), 0
    model = llama(7, hidden_size=3072, intermediate_size=8192, num_attention_heads=24,
                  vocab_size=64000)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = ByteAdam(list(model.parameters()))

    def cost(x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found = model.lm_head(x).float()
        return nn.functional.cross_entropy(found, right, reduction="sum")

    def microbatch(count: int, length: int) -> None:
        given = tokens(count, length)
        x = model.model(input_ids=given, use_cache=False).last_hidden_state.flatten(0, 1)
        right = given.flatten()
        total = sum(checkpoint(cost, *pair, use_reentrant=False)
                    for pair in zip(x.split(1024), right.split(1024)))
        (total / (2 * len(right))).backward()

    def step() -> None:
        nonlocal number
        longest = 512 << number // 2
        number += 1
        for _ in range(2):
            length = longest - 8 * choose.randrange(longest // 64)
            microbatch(max(1, choose.randrange(6000, 10000) // longest), length)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step
