"""Programs of other kinds again, recorded once no constant of the policy changed any more.

Three of the six have several streams, one of these graphs.
"""

from __future__ import annotations

import random
from collections import OrderedDict

from parts import DEVICE, HELD_BACK, Step, recorded, training

import torch
from torch import nn

MIB = 1 << 20


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory of a shape: what it holds does not matter."""
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


@recorded(6, "a masked autoencoder of 24 blocks of width 1024 trained on clips of 8 to 32 frames, "
              "the share that is masked random, with an average of its weights", HELD_BACK)
def clips_masked_at_random() -> Step:
    choose = random.Random(61)

    def blocks(count: int, width: int, heads: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, count, enable_nested_tensor=False)

    with torch.device(DEVICE):
        tubes, into = nn.Conv3d(3, 1024, (2, 16, 16), (2, 16, 16)), nn.Linear(1024, 512)
        model = nn.ModuleList([tubes, into, blocks(24, 1024, 16), blocks(4, 512, 8),
                               nn.Linear(512, 1536)])
    average = torch.optim.swa_utils.AveragedModel(model)

    def loss() -> torch.Tensor:
        clips, frames = choose.randrange(2, 7), 2 * choose.randrange(4, 17)
        side = 16 * choose.randrange(8, 15)
        seen = tubes(noise(clips, 3, frames, side, side)).flatten(2).transpose(1, 2)
        count = seen.shape[1]
        order = torch.arange(count, device=DEVICE)[:int(count * (1 - choose.uniform(0.7, 0.9)))]
        wide = into(model[2](seen[:, order]))
        masked = torch.zeros(clips, count - len(order), 512, device=DEVICE)
        out = model[4](model[3](torch.cat([wide, masked], 1)))[:, len(order):]
        return (out - noise(*out.shape)).square().mean()

    train = training(model, loss)

    def step() -> None:
        train()
        average.update_parameters(model)
    return step


class Generator(nn.Module):
    """Images of 256 x 256 from a vector, by convolutions that each double the side."""

    def __init__(self) -> None:
        super().__init__()
        widths = [512, 512, 512, 256, 128, 64, 32]
        self.first = nn.Linear(512, 512 * 16)
        self.rest = nn.Sequential(*(one for before, after in zip(widths, widths[1:]) for one in (
            nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(16, after), nn.LeakyReLU(0.2))), nn.Conv2d(32, 3, 1))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(given).view(-1, 512, 4, 4))


@recorded(12, "a generator of images and its critic take turns, the critic's gradients themselves "
              "trained on every fourth time, batches of random size, images shown in between",
          HELD_BACK)
def generator_and_critic() -> Step:
    choose = random.Random(62)
    widths = [3, 32, 64, 128, 256, 512, 512]
    with torch.device(DEVICE):
        generator = Generator()
        critic = nn.Sequential(*(one for before, after in zip(widths, widths[1:]) for one in (
            nn.Conv2d(before, after, 3, 2, 1), nn.LeakyReLU(0.2))), nn.Flatten(),
            nn.Linear(512 * 16, 1))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4)
    turn = 0

    def step() -> None:
        nonlocal turn
        for _ in range(2):
            turn += 1
            batch = choose.randrange(16, 65)
            real = noise(batch, 3, 256, 256).requires_grad_(turn % 4 == 0)
            with torch.no_grad():
                made = generator(noise(batch, 512))
            judged = critic(real)
            cost = nn.functional.softplus(critic(made)).mean() + \
                nn.functional.softplus(-judged).mean()
            if turn % 4 == 0:
                slope, = torch.autograd.grad(judged.sum(), real, create_graph=True)
                cost = cost + 10 * slope.square().sum((1, 2, 3)).mean()
            cost.backward()
            of_critic.step()
            of_critic.zero_grad(set_to_none=True)
        nn.functional.softplus(-critic(generator(noise(choose.randrange(16, 65), 512)))) \
            .mean().backward()
        of_generator.step()
        of_generator.zero_grad(set_to_none=True)
        critic.zero_grad(set_to_none=True)
        if choose.random() < 0.4:
            with torch.inference_mode():
                torch.cat([generator(noise(16, 512)) for _ in range(8)]).clamp(-1, 1)
    return step


class Scan(nn.Module):
    """A layer with a state that is carried from one part of a text to the next."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.into = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.along = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.gates, self.out = nn.Linear(2 * width, 64), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner, gate = self.into(self.norm(x)).tensor_split(2, -1)
        inner = self.along(inner.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        inner = nn.functional.silu(inner)
        decay, mix = self.gates(inner).sigmoid().tensor_split(2, -1)
        state, parts = 0, []
        for at in range(0, x.shape[1], 256):
            now = slice(at, at + 256)
            kept = decay[:, now].cumprod(1)
            seen = mix[:, now].transpose(1, 2) @ inner[:, now]
            state = state * kept[:, -1, :, None] + seen
            parts.append(kept @ state)
        return x + self.out(torch.cat(parts, 1) * nn.functional.silu(gate))


@recorded(3, "a language model of 32 layers that carry a state from part to part, width 1280, "
             "trained on texts of 200 to 3,000 tokens", HELD_BACK)
def state_carried_through_texts() -> Step:
    choose = random.Random(63)
    with torch.device(DEVICE):
        model = nn.ModuleList(
            [nn.Embedding(50304, 1280), *(Scan(1280) for _ in range(32)), nn.Linear(1280, 50304)])

    def loss() -> torch.Tensor:
        length = choose.randrange(200, 3001)
        texts = max(1, 6000 // length)
        given = torch.zeros(texts, length, dtype=torch.long, device=DEVICE)
        x = given
        for layer in model:
            x = layer(x)
        return nn.functional.cross_entropy(x.flatten(0, 1).float(), given.flatten())
    return training(model, loss)


@recorded(8, "two towers, one for images and one for texts, trained side by side on a stream each, "
             "what 16 ranks found gathered on a third", HELD_BACK)
def towers_on_two_streams() -> Step:
    choose, beside, gathering = random.Random(64), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.device(DEVICE):
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
        images = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True)
        texts = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        patches, words = nn.Conv2d(3, 1024, 14, 14), nn.Embedding(49408, 768)
        model = nn.ModuleList([images, texts, patches, words, nn.Linear(1024, 768)])

    def loss() -> torch.Tensor:
        here, batch = torch.cuda.current_stream(), choose.randrange(24, 65)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            given = torch.zeros(batch, choose.randrange(16, 78), dtype=torch.long, device=DEVICE)
            of_texts = texts(words(given)).mean(1)
        side = 14 * choose.randrange(10, 19)
        of_images = model[4](images(patches(
            noise(batch, 3, side, side)).flatten(2).transpose(1, 2)).mean(1))
        here.wait_stream(beside)
        of_texts.record_stream(here)
        gathering.wait_stream(here)
        with torch.cuda.stream(gathering), torch.no_grad():
            others = torch.cat([of_texts.detach()] * 16).float()
        here.wait_stream(gathering)
        others.record_stream(here)
        found = of_images.float() @ torch.cat([of_texts.float(), others]).T
        return nn.functional.cross_entropy(found, torch.arange(batch, device=DEVICE))
    return training(model, loss)


@recorded(6, "a server of embeddings and answers loads 40 adapters of random rank on a copy stream, "
             "the one that was used longest ago leaves; batches of one to 48 texts", HELD_BACK)
def adapters_come_and_go() -> Step:
    choose, copying = random.Random(65), torch.cuda.Stream()
    adapters: OrderedDict[int, list[torch.Tensor]] = OrderedDict()
    with torch.device(DEVICE):
        layer = nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, norm_first=True)
        model = nn.TransformerEncoder(layer, 16, enable_nested_tensor=False).bfloat16().eval()
        words = nn.Embedding(64000, 2048).bfloat16()

    def adapter(number: int) -> list[torch.Tensor]:
        if number not in adapters:
            rank = random.Random(number).choice([8, 16, 32, 64, 128])
            with torch.cuda.stream(copying):
                adapters[number] = [noise(2048, rank, dtype=torch.bfloat16) for _ in range(64)]
            torch.cuda.current_stream().wait_stream(copying)
            while len(adapters) > 12:
                for weight in adapters.popitem(last=False)[1]:
                    weight.record_stream(torch.cuda.current_stream())
        adapters.move_to_end(number)
        return adapters[number]

    def step() -> None:
        kept = []
        with torch.inference_mode():
            for _ in range(16):
                weights = adapter(int(choose.paretovariate(0.6)) % 40)
                given = torch.zeros(choose.randrange(1, 49), choose.randrange(8, 512),
                                    dtype=torch.long, device=DEVICE)
                x = model(words(given))
                for down, up in zip(weights[::2], weights[1::2]):
                    x = x + x @ down @ up.T
                kept.append(x.float().mean(1))
                if choose.random() < 0.2:
                    (x[:, -1] @ words.weight.T).float().softmax(-1).sort(-1)
            torch.cat(kept).cpu()
    return step


@recorded(4, "an agent that plays in a model of its world: what it has seen is kept on the device, "
             "it imagines on from random beginnings, and acts by a captured graph", HELD_BACK)
def agent_that_imagines() -> Step:
    choose = random.Random(66)
    with torch.device(DEVICE):
        eyes = nn.Sequential(*(one for before, after in ((3, 48), (48, 96), (96, 192), (192, 384))
                               for one in (nn.Conv2d(before, after, 4, 2, 1), nn.SiLU())),
                             nn.Flatten(), nn.Linear(384 * 16, 1024))
        memory = nn.GRUCell(1024 + 16, 2048)
        actor, worth = nn.Linear(2048, 16), nn.Linear(2048, 1)
        guess, picture = nn.Linear(2048, 1024), nn.Linear(2048, 3 * 64 * 64)
    model = nn.ModuleList([eyes, memory, actor, worth, guess, picture])
    seen: list[torch.Tensor] = []
    acting: list[object] = []

    def act() -> None:
        if not acting:
            given, state, graph = noise(32, 3, 64, 64), noise(32, 2048), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = memory(torch.cat([eyes(given), actor(state).softmax(-1)], -1), state)
            acting.extend([graph, given, state, out])
        for _ in range(40):
            acting[0].replay()
        seen.append(noise(choose.randrange(200, 1200), 3, 64, 64))

    def loss() -> torch.Tensor:
        batch, length = choose.randrange(16, 49), choose.randrange(16, 65)
        state, states = torch.zeros(batch, 2048, device=DEVICE), []
        looked = eyes(noise(batch * length, 3, 64, 64)).view(length, batch, -1)
        for now in looked:
            state = memory(torch.cat([now, actor(state).softmax(-1)], -1), state)
            states.append(state)
        told = picture(torch.cat(states)).square().mean()
        state = torch.cat(states).detach()[::choose.randrange(2, 6)]
        worths = []
        for _ in range(15):
            state = memory(torch.cat([guess(state), actor(state).softmax(-1)], -1), state)
            worths.append(worth(state))
        return told - torch.stack(worths).mean()

    train = training(model, loss)

    def step() -> None:
        with torch.inference_mode():
            act()
        for _ in range(choose.randrange(2, 6)):
            train()
        if sum(map(len, seen)) > 3000:
            del seen[0]
    return step
