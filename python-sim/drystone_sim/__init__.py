"""A simulated GPU for any CUDA program, and dry runs of PyTorch programs on it.

`drystone-sim dry-run train.py` says what a script would hold on a GPU, and whether it fits, before
one is paid for. `drystone-sim run CMD...` runs anything with the simulated driver in front.
Importing this imports neither PyTorch nor CUDA.
"""

from __future__ import annotations

import sys

from ._errors import SimError

__version__ = "0.1.0"
__all__ = ["SimError", "step"]


def step() -> None:
    """Says that a step of the program ends here, where no optimizer tells it: of inference, say.

    Outside a dry run it does nothing.
    """
    inside = sys.modules.get("drystone_sim._inside")
    if inside is not None:
        inside.step()
