"""A service that speaks texts by graphs, a pool for each bucket of lengths.

A companion of `held_back_blind_engines.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from parts import DEVICE, HELD_BACK, Step, recorded

import torch
from torch import nn

BANDS, HOP, WIDTH = 100, 256, 1024
# Frames of 11 ms, and how many utterances of that length go together at most.
BUCKETS = {64: 24, 128: 16, 192: 12, 256: 10, 384: 8, 512: 6, 768: 4, 1024: 3}


def halves(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.float16, device=DEVICE)


class Block(nn.Module):
    """A block that is told how far the sound has come: what it adds is scaled and moved."""

    def __init__(self) -> None:
        super().__init__()
        self.told = nn.Linear(WIDTH, 6 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, when: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_wide, scale_wide, gate_wide = self.told(when).tensor_split(6, 1)
        q, k, v = self.qkv(self.norm(x) * (1 + scale[:, None]) + shift[:, None]).unflatten(
            -1, (3, 16, 64)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + gate[:, None] * self.out(seen.transpose(1, 2).flatten(2))
        wide = self.up(self.norm(x) * (1 + scale_wide[:, None]) + shift_wide[:, None])
        return x + gate_wide[:, None] * self.down(nn.functional.gelu(wide, approximate="tanh"))


class Flow(nn.Module):
    """Where noise is to move, to become the sound of letters in a voice: 18 blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(2 * BANDS + 512, WIDTH)
        self.near = nn.Sequential(*(part for _ in range(2) for part in (
            nn.Conv1d(WIDTH, WIDTH, 31, padding=15, groups=16), nn.Mish())))
        self.time = nn.Sequential(nn.Linear(256, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(18))
        self.last = nn.Linear(WIDTH, BANDS)

    def forward(
        self, noisy: torch.Tensor, voice: torch.Tensor, said: torch.Tensor, when: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        waves = when[:, None] * torch.arange(128, device=DEVICE).neg().exp()
        time = self.time(torch.cat([waves.sin(), waves.cos()], 1).half())
        x = self.into(torch.cat([noisy, voice, said], 2))
        x = self.near(x.transpose(1, 2)).transpose(1, 2) + x
        for block in self.blocks:
            x = block(x, time, mask)
        return self.last(x)


class Bent(nn.Module):
    """A curve at twice the rate and back, as one kernel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.steep = nn.Parameter(torch.empty(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)


class Wide(nn.Module):
    """Convolutions ever farther apart, each beside what it was given."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(nn.Sequential(
            Bent(channels), nn.Conv1d(channels, channels, size, dilation=apart, padding="same"),
            Bent(channels), nn.Conv1d(channels, channels, size, padding="same"))
            for apart in (1, 3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for pair in self.pairs:
            x = pair(x) + x
        return x


class Vocoder(nn.Module):
    """From frames to samples, 256 times as many: longer at each of six stages, half as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, 1536, 7, padding=3)
        self.up, self.parts = nn.ModuleList(), nn.ModuleList()
        for stage, times in enumerate((4, 4, 2, 2, 2, 2)):
            channels = 1536 >> stage
            self.up.append(nn.ConvTranspose1d(
                channels, channels // 2, 2 * times, times, padding=times // 2))
            self.parts.append(nn.ModuleList(Wide(channels // 2, size) for size in (3, 7, 11)))
        self.last = nn.Sequential(Bent(24), nn.Conv1d(24, 1, 7, padding=3, bias=False))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = self.first(frames)
        for up, parts in zip(self.up, self.parts):
            x = up(x)
            made = parts[0](x)
            for part in parts[1:]:
                made += part(x)
            x = made / 3
        return self.last(x).clamp(-1, 1)


class Bucket:
    """Utterances of up to so many frames: graphs for one and for many, in a pool of their own."""

    def __init__(self, flow: Flow, vocoder: Vocoder, frames: int, most: int) -> None:
        self.frames, pool, stream = frames, torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.of: dict[int, list[tuple[torch.cuda.CUDAGraph, list[torch.Tensor], torch.Tensor]]] = {}

        def capture(
            run: Callable[..., torch.Tensor], *given: torch.Tensor,
        ) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor], torch.Tensor]:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                run(*given)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                made = run(*given)
            return graph, list(given), made

        for count in (1, most):
            both = 2 * count
            mask = torch.zeros(both, 1, 1, frames, dtype=torch.bool, device=DEVICE)
            self.of[count] = [
                capture(flow, halves(both, frames, BANDS), halves(both, frames, BANDS),
                        halves(both, frames, 512), torch.zeros(both, device=DEVICE), mask),
                capture(vocoder, halves(count, BANDS, frames))]


@recorded(5, "texts are spoken in voices of short samples: 18 blocks move noise in eight to 32 "
             "steps, a vocoder of six stages makes 256 samples of each frame, both by graphs of "
             "eight lengths for one and many, a pool for each length; sent on a stream", HELD_BACK)
def voices_in_buckets() -> Step:
    choose, leaving = random.Random(205), torch.cuda.Stream()
    with torch.device("meta"):
        flow, vocoder, letters = Flow(), Vocoder(), nn.Embedding(2546, 512)
        spell = nn.Sequential(*(part for _ in range(4) for part in (
            nn.Conv1d(512, 512, 7, padding=3, groups=512), nn.Conv1d(512, 1024, 1), nn.GELU(),
            nn.Conv1d(1024, 512, 1))))
        filters = nn.Conv1d(1, 1026, 1024, HOP, bias=False)
        bands, again = nn.Linear(513, BANDS, bias=False), nn.Conv1d(1, 147, 480, 160, bias=False)
    for part in (flow, vocoder, letters, spell, filters, bands, again):
        part.half().to_empty(device=DEVICE).eval()
    buckets: dict[int, Bucket] = {}

    def sample() -> torch.Tensor:
        """Frames of a voice, from the sound that somebody brings: 2 to 12 seconds."""
        sound = torch.zeros(1, 1, int(24_000 * choose.uniform(2, 12))).to(
            DEVICE, non_blocking=True)
        loud = sound.square().mean().sqrt()
        sound = nn.functional.pad(sound * (0.1 / (loud + 1e-6)), (512, 512), mode="reflect")
        parts = filters(sound.half()).float().tensor_split(2, 1)
        power = (parts[0] ** 2 + parts[1] ** 2).sqrt().transpose(1, 2)
        return bands(power.half()).clamp(min=1e-5).log()

    def spelled(count: int, frames: int) -> torch.Tensor:
        """Letters of a text, as wide as its sound will be long."""
        x = letters(torch.zeros(1, count, dtype=torch.long).to(DEVICE, non_blocking=True))
        x = nn.functional.pad(x, (0, 0, 0, frames - count)) if count < frames else x[:, :frames]
        return spell(x.transpose(1, 2)).transpose(1, 2) + x

    def send(sound: torch.Tensor) -> None:
        """At 22,050 samples a second for some, as whole numbers."""
        here = torch.cuda.current_stream()
        if choose.random() < 0.3:
            sound = again(sound[None]).transpose(1, 2).flatten()[None]
        peak = sound.abs().amax().clamp(min=1e-4)
        coded = (sound.float() / peak * 32767 * 0.9).to(torch.int16)
        leaving.wait_stream(here)
        with torch.cuda.stream(leaving):
            coded.to("cpu", non_blocking=True)
        coded.record_stream(leaving)

    def speak(bucket: Bucket, said: list[tuple[torch.Tensor, int, int]]) -> list[torch.Tensor]:
        """Texts of about the same length in their voices; each is its voice's frames and on."""
        count = 1 if len(said) == 1 else max(bucket.of)
        (move, given, way), (decode, frames, sound) = bucket.of[count]
        noisy = torch.randn(count, bucket.frames, BANDS, device=DEVICE, dtype=torch.float16)
        voices = [nn.functional.pad(voice[:, :bucket.frames // 2], (
            0, 0, 0, bucket.frames - min(voice.shape[1], bucket.frames // 2)))
            for voice, _, _ in said]
        texts = [spelled(letter, bucket.frames) for _, letter, _ in said]
        for place, parts in ((1, voices), (2, texts)):
            both = torch.cat(parts)
            given[place].zero_()[:len(both)].copy_(both)
            del both
        del voices, texts
        lengths = torch.tensor([long for _, _, long in said]).to(DEVICE, non_blocking=True)
        given[4][:len(said), 0, 0].copy_(
            torch.arange(bucket.frames, device=DEVICE) < lengths[:, None])
        rounds = choose.choice([8, 16, 16, 32])
        times = torch.linspace(0, 1, rounds + 1, device=DEVICE)
        times = times - (torch.cos(torch.pi / 2 * times) - 1 + times)
        for number in range(rounds):
            given[0].copy_(torch.cat([noisy, noisy]))
            given[3].copy_(times[number].expand(2 * count))
            move.replay()
            with_text, without = way.tensor_split(2)
            noisy = noisy + (with_text + 2 * (with_text - without)) * (
                times[number + 1] - times[number]).half()
        frames[0].copy_(noisy.transpose(1, 2))
        decode.replay()
        return [sound[at, :, HOP * min(voice.shape[1], bucket.frames // 2):HOP * long].clone()
                for at, (voice, _, long) in enumerate(said)]

    def serve() -> None:
        """What came meanwhile: sorted into buckets; long texts go part by part, and are joined."""
        waiting: dict[int, list[tuple[torch.Tensor, int, int]]] = {}
        for _ in range(choose.choice([1, 1, 2, 4, 8, 20])):
            voice, letter = sample(), int(min(1500, choose.lognormvariate(4.2, 0.8))) + 4
            short, made = voice[:, :choose.randrange(80, 250)].clone(), []
            parts = -(-letter // 120)
            for _ in range(parts):
                frames = short.shape[1] + int(5 * letter / parts * choose.uniform(0.8, 1.2))
                long = min(1024, frames)
                room = next(room for room in BUCKETS if room >= long)
                one = short, letter // parts, long
                if parts > 1:
                    made.append(speak(buckets[room], [one])[0])
                else:
                    waiting.setdefault(room, []).append(one)
            if made:
                fade = torch.linspace(0, 1, 2048, device=DEVICE, dtype=torch.float16)
                for before, after in pairwise(made):
                    few = min(2048, before.shape[1], after.shape[1])
                    after[:, :few] = after[:, :few] * fade[:few] + before[:, -few:] * fade[-few:]
                send(torch.cat(made, 1))
        for room, said in sorted(waiting.items()):
            for at in range(0, len(said), BUCKETS[room]):
                for sound in speak(buckets[room], said[at:at + BUCKETS[room]]):
                    send(sound)

    @torch.inference_mode()
    def step() -> None:
        if not buckets:
            for room, most in BUCKETS.items():
                buckets[room] = Bucket(flow, vocoder, room, most)
        for _ in range(choose.randrange(4, 9)):
            serve()
    return step
