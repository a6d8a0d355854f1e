"""Programs of one stream."""

from __future__ import annotations

import random

from parts import DEVICE, Step, recorded, tokens, training

import torch
from torch import nn


@recorded(60, "ViT-L/16 inference in bfloat16, batches of 1..128 as they come")
def vit_large_varying_batch() -> Step:
    from transformers import ViTConfig, ViTForImageClassification
    choose = random.Random(3)
    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                       intermediate_size=4096, num_labels=1000)
    with torch.device(DEVICE):
        model = ViTForImageClassification(config).to(torch.bfloat16).eval()

    def step() -> None:
        images = torch.randn(choose.randrange(1, 129), 3, 224, 224, device=DEVICE)
        with torch.inference_mode():
            model(images.bfloat16()).logits.float().softmax(-1).topk(5).values.cpu()
    return step


@recorded(30, "a three-layer LSTM of width 2048 trained on batches of 32, random length 10..200, "
              "AMP bf16, AdamW")
def lstm_train() -> Step:
    choose = random.Random(9)
    with torch.device(DEVICE):
        words, lstm, guess = (
            nn.Embedding(50000, 1024), nn.LSTM(1024, 2048, 3, batch_first=True),
            nn.Linear(2048, 50000))

    def loss() -> torch.Tensor:
        given = tokens(32, choose.randrange(10, 200))
        out = guess(lstm(words(given))[0]).float()
        return nn.functional.cross_entropy(out.flatten(0, 1), given.flatten())
    return training(nn.ModuleList([words, lstm, guess]), loss)


class Convolutions(nn.Sequential):
    """Two convolutions, each with its norm."""

    def __init__(self, channels: int, out: int) -> None:
        one = [nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
        super().__init__(*one, nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())


class UNet(nn.Module):
    """Images of four channels to images: down three times, and up again beside what was kept."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(map(Convolutions, [4, *widths[:3]], widths))
        self.up = nn.ModuleList(
            Convolutions(widths[at] + widths[at + 1], widths[at]) for at in (2, 1, 0))
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down[:3]:
            kept.append(down(x))
            x = nn.functional.avg_pool2d(kept[-1], 2)
        x = self.down[3](x)
        for up in self.up:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, kept.pop()], 1))
        return self.out(x)


@recorded(8, "a U-Net of width 128 trained on batches of 4 crops, 128..512 pixels each way, AMP "
             "bf16, AdamW")
def unet_varying_crops() -> Step:
    choose = random.Random(7)
    with torch.device(DEVICE):
        model = UNet(128)

    def loss() -> torch.Tensor:
        height, width = (8 * choose.randrange(16, 65) for _ in range(2))
        images = torch.randn(4, 4, height, width, device=DEVICE)
        return nn.functional.mse_loss(model(images).float(), images)
    return training(model, loss)
