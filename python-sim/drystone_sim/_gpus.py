"""GPUs by name: what each tells a program of itself, each figure with its public source.

The table is `gpus.csv` beside this. Memory is told twice: by NVML, as `nvidia-smi` shows it, and by
CUDA, as `cuMemGetInfo` does; the driver keeps the difference. Invariant: a figure that nobody
published is not in the table. CUDA's memory is then a range below NVML's, or below what NVIDIA's
specification says, and the range is shown.
"""

from __future__ import annotations

import csv
import difflib
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
# What it keeps of the specified size where only that is published: from 195 MiB (GTX 1660 Ti with
# 5.81 of 6 GiB, zhou13/lcnn#23) to 643 MiB (RTX 6000 Ada) of cards of up to 48 GB. The upper end
# rounded outwards; less is assumed of older cards and drivers.
KEPT_OF_SPECIFIED_MIB = (80, 650)
# Correction of errors takes a sixteenth of GDDR memory while it is on, as on T4, A10 and L4.
ECC_SHARE = 16
# Where processor and GPU share one memory, the system keeps a part: from 4.9 % (GB10, 121.69 of 128
# GiB) to 9 % (Jetson Orin Nano, 7,458 of 8,192 MiB); up to 16 % is assumed of those of 4 GB. CUDA
# tells the rest as its own, but the system and its programs live in it: 5 % of it (6.4 GiB of a
# GB10, leptonai/gpud#1170) to 17 % (on a GB10 never more than 102 of 121.69 GiB were free).
SHARED_KEPT = (0.03, 0.16)
SHARED_USED = (0.05, 0.17)
# A bare context of PyTorch with modules loaded lazily, where nobody published that of the device:
# from 256 MiB (RTX 3090) to 555 MiB (RTX PRO 6000) in the table, both ends rounded outwards.
CONTEXT_MIB = (250, 600)
# Words of a name that people leave out, and what sets devices of one name apart.
WORDS = re.compile(r"\b(nvidia|geforce|tesla|quadro|jetson|rtx|gtx)(?=\d|\b)|\bgpu\b")
SUFFIX = re.compile(r"[0-9]+gb")
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
    # Whether its memory is the processor's, too.
    is_shared: bool = False

    @property
    def architecture(self) -> int:
        """The number in `sm_89`."""
        return int(self.compute.replace(".", ""))

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
        cuda = _specified(int(row["specified_gib"]) * GIB, row["kind"])
    known = (row["context_mib"],) * 2 if row["context_mib"] else CONTEXT_MIB
    return Gpu(row["name"], row["model"], cuda, nvml, row["compute"],
               int(row["multiprocessors"]), _mib(*known), row["source"],
               row["kind"] == "shared")


def _specified(bytes: int, kind: str) -> Range:
    """What CUDA tells of a device of which only the specification is published."""
    if kind == "shared":
        return Range(*(int(bytes * (1 - kept)) for kept in reversed(SHARED_KEPT)))
    least = bytes - bytes // ECC_SHARE if kind == "ecc" else bytes
    return Range(least - KEPT_OF_SPECIFIED_MIB[1] * MIB, bytes - KEPT_OF_SPECIFIED_MIB[0] * MIB)


def _mib(low: str | int, high: str | int) -> Range:
    return Range(int(low) * MIB, int(high) * MIB)


def find(wanted: str) -> Gpu:
    """A GPU by its name, or any device of so much memory.

    A name may be as people write it (`4090`, `RTX 3080 Ti`), as NVIDIA's tools show it, or an
    unmistakable beginning.
    """
    found = _named(_plain(wanted))
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise SimError(f"{wanted} may be {', '.join(gpu.name for gpu in found)}: say which")
    bytes = size(wanted)
    if bytes is None:
        near = difflib.get_close_matches(
            _plain(wanted), [_plain(gpu.name) for gpu in table()], cutoff=0.75)
        hint = ", ".join(gpu.name for gpu in table() if _plain(gpu.name) in near)
        raise SimError(f"{wanted!r} is no GPU of the table (`drystone-sim gpus` lists them) and "
                       f"no size such as 24GiB{hint and '; near: ' + hint}")
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


def _named(plain: str) -> list[Gpu]:
    """Those of a plain name; else those that differ by their memory alone; else by more."""
    names = {gpu.name: _plain(gpu.name) for gpu in table()}
    ways = (
        lambda gpu: plain in (names[gpu.name], _plain(gpu.model)),
        lambda gpu: names[gpu.name].startswith(plain) and SUFFIX.fullmatch(
            names[gpu.name][len(plain):]),
        lambda gpu: names[gpu.name].startswith(plain),
    )
    found = ([gpu for gpu in table() if plain and way(gpu)] for way in ways)
    return next(filter(None, found), [])


def _plain(name: str) -> str:
    """A name without what people leave out."""
    return re.sub(r"[^a-z0-9.]", "", WORDS.sub("", name.lower()))
