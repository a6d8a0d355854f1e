"""Trainer of Lightning, on a perceptron, in mixed precision."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch, number):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


rows = TensorDataset(torch.zeros(640, 512), torch.zeros(640, dtype=torch.long))
lightning.Trainer(
    max_steps=10, precision="bf16-mixed", logger=False, enable_checkpointing=False,
).fit(Model(), DataLoader(rows, batch_size=64))
