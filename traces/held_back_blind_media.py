"""Programs on speech and films, of kinds that none before is of, recorded to be judged blind.

Companions of `held_back_blind_texts.py`. Both have several streams, one of them graphs.
"""

from __future__ import annotations

import random

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens, training

import torch
from torch import nn


class Conformer(nn.Module):
    """A block of a speech encoder: half a wide layer, attention, a convolution, half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.halves = nn.ModuleList(nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1),
            nn.Linear(4 * width, width), nn.Dropout(0.1)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.into, self.past = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.along = nn.Sequential(nn.Conv1d(width, width, 9, padding=4, groups=width),
                                   nn.BatchNorm1d(width), nn.SiLU())
        self.far = nn.Parameter(torch.empty(heads, 2 * 512, width // heads))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        count = x.shape[1]
        far = q @ self.far[:, 512 - count:511 + count].transpose(1, 2)
        far = nn.functional.pad(far, (1, 0)).view(len(x), self.heads, -1, count)[:, :, 1:]
        far = far.reshape(len(x), self.heads, count, -1)[..., :count]
        scores = (q @ k.transpose(2, 3) + far) / 8
        seen = nn.functional.dropout(scores.softmax(-1), 0.1, self.training) @ v
        return self.out(seen.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.halves[0](x)
        x = x + self.attend(self.norms[0](x))
        given = nn.functional.glu(self.into(self.norms[1](x))).transpose(1, 2)
        x = x + self.past(self.along(given).transpose(1, 2))
        return self.norms[2](x + 0.5 * self.halves[1](x))


class Paths(torch.autograd.Function):
    """The loss over all paths through frames and letters, with its gradient as it is computed."""

    @staticmethod
    def forward(context: object, scores: torch.Tensor) -> torch.Tensor:
        below = scores.logsumexp(-1)
        ahead, behind = torch.empty_like(below), torch.empty_like(below)
        context.save_for_backward(torch.empty_like(scores).sub_((ahead + behind)[..., None]))
        return ahead[:, -1, -1].neg()

    @staticmethod
    def backward(context: object, grad: torch.Tensor) -> torch.Tensor:
        return context.saved_tensors[0] * grad[:, None, None, None]


@recorded(7, "speech recognised by a transducer: 14 blocks trained by graphs of three lengths in "
              "one pool, what joins frames and letters without, a few utterances at a time of "
              "random length; decoded in between", HELD_BACK)
def speech_joined_with_letters() -> Step:
    choose, width, frames = random.Random(93), 1024, (64, 125, 250)
    with torch.device("meta"):
        blocks = nn.ModuleList(Conformer(width, 8) for _ in range(14))
        first = nn.Sequential(nn.Conv2d(1, 256, 3, 2, 1), nn.ReLU(), *(part for _ in range(2) for (
            part) in (nn.Conv2d(256, 256, 3, 2, 1, groups=256), nn.Conv2d(256, 256, 1), nn.ReLU())))
        letters, told = nn.Embedding(1025, 640), nn.LSTM(640, 640, batch_first=True)
        into, of_frames, of_letters, join = parts = [nn.Linear(*pair) for pair in (
            (2560, width), (width, 640), (640, 640), (640, 1025))]
    model = nn.ModuleList([blocks, first, letters, told, *parts])
    model.bfloat16().to_empty(device=DEVICE)
    told.flatten_parameters()
    graphs: dict[int, tuple[nn.Module, ...]] = {}

    def capture() -> None:
        pool = torch.cuda.graph_pool_handle()
        for length in reversed(frames):
            given = ((noise(6000 // length, length, width).requires_grad_(),) for _ in blocks)
            graphs[length] = torch.cuda.make_graphed_callables(
                tuple(map(nn.Sequential, blocks)), tuple(given), pool=pool)

    def heard(batch: int, length: int) -> torch.Tensor:
        sound = torch.zeros(batch, 1, 8 * length, 80).to(DEVICE, non_blocking=True)
        sound = (sound - sound.mean(2, keepdim=True)) / (sound.std(2, keepdim=True) + 1e-5)
        return into(first(sound.bfloat16()).transpose(1, 2).flatten(2))

    def joined(x: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """The loss of a few utterances, with no more frames and letters than their longest has."""
        both = of_frames(x)[:, :, None] + of_letters(said)[:, None]
        return Paths.apply(join(nn.functional.dropout(both.relu(), 0.2)).float()).sum()

    def loss() -> torch.Tensor:
        length = choose.choice(frames)
        x = heard(6000 // length, length)
        for block in graphs[length]:
            x = block(x)
        longest = [int(length * choose.uniform(0.15, 0.45)) + 2 for _ in range(len(x))]
        said = told(letters(tokens(len(x), max(longest))))[0]
        losses, few = [], choose.choice([4, 8])
        for at in range(0, len(x), few):
            some, until = slice(at, at + few), int(length * choose.uniform(0.75, 1))
            losses.append(joined(x[some, :until], said[some, :max(longest[some])]))
        return torch.stack(losses).sum() / len(x)

    @torch.no_grad()
    def decode() -> None:
        model.eval()
        x = heard(choose.randrange(8, 40), choose.randrange(40, 240))
        for block in blocks:
            x = block(x)
        seen, state, last, written = of_frames(x), None, tokens(len(x), 1), []
        for at in range(0, x.shape[1], 3):
            out, state = told(letters(last), state)
            last = join((seen[:, at:at + 1] + of_letters(out)).relu()).float().argmax(-1)
            written.append(last)
        torch.cat(written, 1).cpu()
        model.train()

    train = training(model, loss)

    def step() -> None:
        graphs or capture()
        train()
        if choose.random() < 0.4:
            decode()
    return step


class Waiting:
    """A model whose weights wait on the host, and come to the device while it is used."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.bfloat16().to_empty(device="cpu").eval()
        self.weights = [(weight, weight.shape) for weight in model.parameters()]
        self.leave()

    def come(self) -> None:
        for weight, shape in self.weights:
            weight.data = noise(*shape)

    def leave(self) -> None:
        for weight, _ in self.weights:
            weight.data = torch.empty(0, dtype=torch.bfloat16)


class FilmBlock(nn.Module):
    """Attention to the film and to its description, and a wide layer, moved by the time."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.shifts = nn.Parameter(torch.empty(6, 1, width))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(4))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.asked, self.told = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out_too = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)

    def turned(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """By the place in the film, in double precision as published."""
        pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 64, 2)))
        return torch.view_as_real(pairs * places).flatten(-3).to(x.dtype)

    def attend(self, *qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (-1, 128)).transpose(1, 2) for one in qkv)
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def moved(self, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (nn.functional.layer_norm(x.float(), x.shape[-1:]) * (1 + scale) + shift).bfloat16()

    def forward(
        self, x: torch.Tensor, time: torch.Tensor, places: torch.Tensor, text: torch.Tensor,
    ) -> torch.Tensor:
        shifts = (self.shifts.float() + time).unbind(1)
        q, k, v = self.qkv(self.moved(x, *shifts[:2])).tensor_split(3, -1)
        q, k = (self.turned(norm(one), places) for norm, one in zip(self.norms, (q, k)))
        x = (x.float() + self.out(self.attend(q, k, v)) * shifts[2]).bfloat16()
        k, v = self.told(text).tensor_split(2, -1)
        x = x + self.out_too(self.attend(self.norms[2](self.asked(x)), self.norms[3](k), v))
        wide = nn.functional.gelu(self.up(self.moved(x, *shifts[3:5])), approximate="tanh")
        return (x.float() + self.down(wide) * shifts[5]).bfloat16()


class Frames(nn.Module):
    """Two convolutions in space and time, beside their input."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for width in (before, after))
        self.convs = nn.ModuleList(
            nn.Conv3d(width, after, 3, padding=1) for width in (before, after))
        self.beside = nn.Conv3d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x
        for norm, conv in zip(self.norms, self.convs):
            made = conv(nn.functional.silu(norm(made)))
        return made + self.beside(x)


@recorded(5, "films from texts on a device that holds one stage at a time: an encoder of 24 layers "
             "comes whole and goes, 16 blocks come one ahead on a stream at each step, a decoder "
             "works in windows of time and sends frames to the host on another", HELD_BACK)
def stages_share_the_device() -> Step:
    from transformers import UMT5Config, UMT5EncoderModel
    choose, coming, leaving = random.Random(95), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.device("meta"):
        reader = UMT5EncoderModel(UMT5Config(
            vocab_size=256384, d_model=4096, d_ff=10240, num_layers=24, num_heads=64))
        layers = [nn.Conv3d(48, 512, 1)]
        for before, after, longer in ((512, 512, 1), (512, 384, 2), (384, 256, 2)):
            layers += [Frames(before, after), Frames(after, after),
                       nn.Upsample(scale_factor=(longer, 2, 2))]
        decoder = nn.Sequential(*layers, Frames(256, 128), nn.Conv3d(128, 12, 3, padding=1))
        blocks = [FilmBlock(3072, 14336) for _ in range(16)]
        outside = nn.ModuleList([nn.Linear(4096, 3072), nn.Linear(192, 3072), nn.Linear(3072, 192),
                                 nn.Linear(256, 18432)])
    reader, decoder, outside = Waiting(reader), Waiting(decoder), Waiting(outside)
    waiting = [Waiting(block) for block in blocks]

    def in_turn(stage: Waiting) -> nn.Module:
        for other in (reader, outside, decoder):
            other.leave()
        torch.cuda.empty_cache()
        stage.come()
        return stage.model

    def fetch(number: int) -> None:
        with torch.cuda.stream(coming):
            waiting[number].come()

    def through(x: torch.Tensor, *told: torch.Tensor) -> torch.Tensor:
        here = torch.cuda.current_stream()
        fetch(0)
        for number, stage in enumerate(waiting):
            here.wait_stream(coming)
            for weight, _ in stage.weights:
                weight.data.record_stream(here)
            if number + 1 < len(waiting):
                fetch(number + 1)
            x = stage.model(x, *told)
            stage.leave()
        return x

    def dream(text: torch.Tensor, film: torch.Tensor, steps: int, net: nn.Module) -> torch.Tensor:
        described, into, out_of, of_time = net
        frames, high, wide = film.shape[1:]
        angles = noise(frames * high * wide // 4, 1, 64, dtype=torch.float64)
        places, texts = torch.polar(torch.ones_like(angles), angles), described(text).split(1)
        for _ in range(steps):
            parts = nn.functional.pixel_unshuffle(film.transpose(0, 1), 2).flatten(2)
            x = into(parts.transpose(1, 2).flatten(0, 1)[None].bfloat16())
            time = of_time(noise(1, 256)).float().view(1, 6, 1, 3072)
            guesses = []
            for one in texts:
                made = out_of(through(x, time, places, one)).float()
                grid = made.view(frames, high // 2, wide // 2, 192).permute(0, 3, 1, 2)
                guesses.append(nn.functional.pixel_shuffle(grid, 2).transpose(0, 1))
            film = film - 0.1 * (guesses[-1] + 5.0 * (guesses[0] - guesses[-1]))
        return film

    def show(film: torch.Tensor, net: nn.Module) -> None:
        """Windows of five frames, two of each shared with the next, blended there."""
        here, last = torch.cuda.current_stream(), None
        for first in range(0, film.shape[1] - 2, 3):
            window = film[:, first:first + 5].bfloat16()[None]
            pieces = [window] if film[0, 0].numel() < 2400 else window.tensor_split(2, 3)
            made = torch.cat([net(piece) for piece in pieces], 3)[0].float()
            made = nn.functional.pixel_shuffle(made.transpose(0, 1), 2)
            if last is not None:
                share = torch.linspace(0, 1, len(last), device=DEVICE)[:, None, None, None]
                made[:len(last)] = last.lerp(made[:len(last)], share[:len(made)])
            shown, last = made[:12], made[12:].clone()
            leaving.wait_stream(here)
            with torch.cuda.stream(leaving):
                shown.clamp(-1, 1).add(1).mul(127.5).byte().to("cpu", non_blocking=True)
            made.record_stream(leaving)

    @torch.inference_mode()
    def step() -> None:
        high, wide = choose.choice([(44, 80), (80, 44), (30, 52), (36, 64), (48, 48)])
        frames, guided = choose.randrange(5, 26), choose.random() < 0.3
        net, texts = in_turn(reader), []
        for length in (choose.randrange(20, 300) for _ in range(1 + guided)):
            read = net(input_ids=tokens(1, length)).last_hidden_state
            texts.append(nn.functional.pad(read, (0, 0, 0, 512 - length)))
        film = noise(48, frames, high, wide, dtype=torch.float32)
        film = dream(torch.cat(texts), film, choose.randrange(2, 4), in_turn(outside))
        del texts
        show(film, in_turn(decoder))
        torch.cuda.synchronize()
    return step
