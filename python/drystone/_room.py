"""What there is room for: how much more of the same a device could serve.

Invariant: what is told follows from figures of this process alone, and says what it takes for
granted.
"""

from __future__ import annotations

import os
import re
import sys

from . import _replay
from ._figures import Device, text_of_bytes
from ._holders import kinds

# What is held over what is in use on the smallest device that completes a program, at worst of the
# recorded ones: `docs/evidence/measurements.md`.
HELD_PER_USED = 1.045

_LIMIT = re.compile(r"(?:^|,)\s*limit\s*:\s*([0-9.]+)\s*([KMGT]?)(B?)", re.IGNORECASE)


def conclusion(
    device: Device, replayed: list[_replay.Replayed] | str, batch: int | None,
) -> str:
    """How far what grows with the batch could grow, in sentences."""
    peak, limit = device.stats["active_bytes"]["peak"], available(device)
    fixed = min(sum(kinds(device.ordinal).values()), peak)
    text = (f"GPU {device.ordinal}: at most {text_of_bytes(peak)} in use at one time, of "
            f"{text_of_bytes(limit)} that this process can have")
    if fixed:
        text += f"; {text_of_bytes(fixed)} are parameters, gradients and optimizer state"
    text += "."
    # Of a program that has hardly begun nothing follows.
    if peak - fixed > limit // 1000:
        factor = max(limit / HELD_PER_USED - fixed, 0) / (peak - fixed)
        grows = "The rest" if fixed else "All of it"
        text += f" {grows} could be {factor:.2f} times as large"
        if batch:
            text += (f": a batch of {int(batch * factor)} where {batch} was the largest, if memory "
                     "grows with it")
        text += "."
    for one in replayed if isinstance(replayed, list) else ():
        held = ", ".join(f"{each.name} {text_of_bytes(each.reserved)}" for each in one.held)
        text += f" For the requests that were recorded each would have held: {held}."
    return text


def available(device: Device) -> int:
    """What the device has beside memory of others, within this process's limit."""
    torch, total = sys.modules.get("torch"), device.stats["device_bytes"]
    if torch is None or not torch.cuda.is_initialized():
        return min(total, limit_of(os.environ.get("DRYSTONE_CONF", "")))
    from ._available import available as to_be_had
    from ._enable import options_text
    fraction = torch.cuda.get_per_process_memory_fraction(device.ordinal)
    return min(to_be_had(device.ordinal) + device.now("active_bytes"), int(total * fraction),
               limit_of(options_text))


def limit_of(options: str) -> int:
    """The bytes of a limit among options; more than any device has without."""
    found = _LIMIT.search(options)
    if found is None:
        return 1 << 62
    # GB are decimal; G, Gi and GiB are not.
    step = 1000 if found[3] else 1024
    return int(float(found[1]) * step ** " KMGT".index(found[2].upper() or " "))
