"""GPUs by name: what each tells a program of itself, each figure with its public source.

The table is `gpus.csv` beside this. Memory is told twice: by NVML, as `nvidia-smi` shows it, and by
CUDA, as `cuMemGetInfo` does; the driver keeps the difference. Invariant: a figure that nobody
published is not in the table. CUDA's memory is then a range below NVML's, and the range is shown.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ._errors import SimError

MIB = 1 << 20
GIB = 1 << 30
# What the driver keeps of NVML's figure where both are published: from 256 MiB (T4) to 640 MiB
# (RTX PRO 6000) in the table. Both ends rounded outwards.
KEPT_MIB = (250, 650)
# A bare context of PyTorch with modules loaded lazily, where nobody published that of the device:
# from 256 MiB (RTX 3090) to 555 MiB (RTX PRO 6000) in the table, both ends rounded outwards.
CONTEXT_MIB = (250, 600)
SIZE = re.compile(r"(\d+(?:\.\d+)?) *([kmgt]?)(i?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class Range:
    """Bytes that are known to lie between two figures; a figure that is known has both the same."""

    low: int
    high: int


# What the simulated driver takes as memory.
SIZES = Range(2 * MIB, 64 << 40)


@dataclass(frozen=True)
class Gpu:
    """One kind of device."""

    name: str
    model: str
    # What CUDA tells as its memory, and what NVML does, in bytes.
    cuda: Range
    nvml: int | None
    compute: str
    multiprocessors: int
    # What a context takes before anything is allocated.
    context: Range
    source: str

    def settings_of_running(self) -> str:
        """The device for a program that runs, rather than being asked what it needs: it meets the
        end of its memory. A context takes the most that it may, where the device is known; a size
        is what there is to use.
        """
        context = f",context:{self.context.high}" if self.source else ""
        return f"{self.settings()},overcommit:false{context}"

    def settings(self) -> str:
        """The device for `SIMCUDA_CONF`. It gives more than it has, so that the need is seen.

        A program that is to run on a machine's third device finds one.
        """
        return (f"name:{self.model},compute:{self.compute},multiprocessors:{self.multiprocessors},"
                f"memory:{self.cuda.low},overcommit:true,named_devices:true")


@cache
def table() -> tuple[Gpu, ...]:
    """Every GPU with a name, in order of memory."""
    with open(Path(__file__).with_name("gpus.csv"), newline="", encoding="utf-8") as file:
        rows = [_gpu(row) for row in csv.DictReader(file)]
    return tuple(sorted(rows, key=lambda gpu: gpu.cuda.low))


def _gpu(row: dict[str, str]) -> Gpu:
    nvml = int(row["nvml_mib"]) * MIB if row["nvml_mib"] else None
    if row["cuda_mib"]:
        cuda = Range(*[int(float(row["cuda_mib"]) * MIB)] * 2)
    elif nvml is not None:
        cuda = Range(nvml - KEPT_MIB[1] * MIB, nvml - KEPT_MIB[0] * MIB)
    else:
        raise SimError(f"{row['name']} in gpus.csv has no memory")
    known = (row["context_mib"],) * 2 if row["context_mib"] else CONTEXT_MIB
    return Gpu(row["name"], row["model"], cuda, nvml, row["compute"],
               int(row["multiprocessors"]), _mib(*known), row["source"])


def _mib(low: str | int, high: str | int) -> Range:
    return Range(int(low) * MIB, int(high) * MIB)


def find(wanted: str) -> Gpu:
    """A GPU by its name or the beginning of one, or any device of so much memory."""
    plain = _plain(wanted)
    exact = [gpu for gpu in table() if _plain(gpu.name) == plain]
    found = exact or [gpu for gpu in table() if plain and _plain(gpu.name).startswith(plain)]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise SimError(f"{wanted} may be {', '.join(gpu.name for gpu in found)}: say which")
    bytes = size(wanted)
    if bytes is None:
        raise SimError(f"{wanted!r} is no GPU of the table (`drystone-sim gpus` lists them) and "
                       "no size such as 24GiB")
    if not SIZES.low <= bytes <= SIZES.high:
        raise SimError(f"a simulated device has from 2 MiB to 64 TiB, not {wanted}")
    return Gpu(wanted, f"Simulated GPU of {wanted}", Range(bytes, bytes), None, "9.0", 132,
               _mib(*CONTEXT_MIB), "")


def size(text: str) -> int | None:
    """Bytes: `24GiB` and `24G` in powers of 1024, `24GB` in powers of 1000."""
    match = SIZE.fullmatch(text.strip())
    if match is None or not match[2]:
        return None
    is_decimal = text.strip().lower().endswith("b") and not match[3]
    power = "kmgt".index(match[2].lower()) + 1
    return int(float(match[1]) * (1000 if is_decimal else 1024) ** power)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
