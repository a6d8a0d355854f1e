"""What the recorded programs share: the simulated device, the list of them, models and steps.

Imported before anything else that imports PyTorch: the device is chosen here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

# Before PyTorch looks for a device.
os.environ["SIMCUDA_CONF"] = "memory:80GiB,backing:false"
os.environ.pop("PYTORCH_ALLOC_CONF", None)
os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
from torch import nn  # noqa: E402

DEVICE = "cuda"

Step = Callable[[], object]
# What makes a model ready and returns its steps' function, with the number of steps and a note.
Programs = dict[str, tuple[Callable[[], Step], int, str]]
RECORDED: Programs = {}
# Those that the policy was not made on; their files are in a folder of their own.
HELD_BACK: Programs = {}


def recorded(
    steps: int, note: str, into: Programs = RECORDED,
) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Adds a trace, by the name of its function."""
    def add(prepare: Callable[[], Step]) -> Callable[[], Step]:
        into[prepare.__name__] = (prepare, steps, note)
        return prepare
    return add


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device=DEVICE)


def training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """A step of AdamW on what of a model is trained."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def llama(layers: int, **changes: object) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**{
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "eos_token_id": None, **changes})
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model
