"""A small UNet of diffusers, trained as its examples do, with accelerate."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader

accelerator = Accelerator(mixed_precision="fp16")
model = UNet2DModel(sample_size=32, block_out_channels=(64, 128), layers_per_block=1,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                    up_block_types=("AttnUpBlock2D", "UpBlock2D"))
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(torch.zeros(256, 3, 32, 32), batch_size=8))
for images in loader:
    noise = torch.randn_like(images)
    times = torch.randint(0, 1000, (len(images),), device=images.device)
    with accelerator.accumulate(model):
        made = model(scheduler.add_noise(images, noise, times), times).sample
        accelerator.backward(torch.nn.functional.mse_loss(made, noise))
        optimizer.step()
        optimizer.zero_grad()
