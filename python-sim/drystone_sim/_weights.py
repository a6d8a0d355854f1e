"""Large weights that are made on the host are given no values.

No kernel reads them, and filling those of a model that is meant for a GPU takes minutes and as much
memory of the host as they are large. Left as they are, no page of the host lies behind them.
"""

from __future__ import annotations

import functools
from typing import Any

# Elements. Smaller ones are filled as ever: programs look into tables and schedules.
LARGE = 1 << 20
FILLS = ("normal_", "uniform_", "erfinv_")
INITS = ("normal_", "uniform_", "trunc_normal_", "constant_", "kaiming_uniform_",
         "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "orthogonal_")


def leave_out(torch: Any, large: int = LARGE) -> None:
    """From now on, for tensors of so many elements. Before anyone imports the functions by name."""
    for name in FILLS:
        setattr(torch.Tensor, name, _unless_large(getattr(torch.Tensor, name), large))
    for name in INITS:
        setattr(torch.nn.init, name, _unless_large(getattr(torch.nn.init, name), large))


def _unless_large(fill: Any, large: int) -> Any:
    @functools.wraps(fill)
    def filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        is_left = tensor.device.type == "cpu" and tensor.numel() >= large
        return tensor if is_left else fill(tensor, *args, **kwargs)
    return filled
