"""The figures of every device in use, in Prometheus' text format (version 0.0.4).

Invariant: names keep Prometheus' conventions: bytes as unit, `_total` on what only grows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from . import _figures
from ._figures import Device

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Value = Callable[[Device], int]


def _gauge(name: str, part: str) -> Value:
    return lambda device: device.stats[name][part]


def _plain(name: str) -> Value:
    return lambda device: device.stats[name]


def _refusals(device: Device) -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return torch.cuda.memory_stats(device.ordinal)["num_ooms"]


# Name, kind, help, value.
FAMILIES: list[tuple[str, str, str, Value]] = []
for _name, _help in (
        ("requested", "Bytes that the program asked for, of blocks that are live or pending"),
        ("allocated", "Bytes of live blocks, after rounding"),
        ("active", "Bytes of live and pending blocks"),
        ("reserved", "Physical bytes held from the driver")):
    FAMILIES += [
        (f"{_name}_bytes", "gauge", _help, _gauge(f"{_name}_bytes", "current")),
        (f"{_name}_peak_bytes", "gauge", f"{_help}: the most there ever were, or since the reset",
         _gauge(f"{_name}_bytes", "peak")),
    ]
FAMILIES += [
    ("device_bytes", "gauge", "Physical memory of the device", _plain("device_bytes")),
    ("host_floor_bytes", "gauge", "Bytes that are left to a host whose memory the device has",
     _plain("host_floor_bytes")),
    ("largest_free_bytes", "gauge", "Bytes of the largest free block",
     lambda device: device.largest_free),
    ("quarantined_bytes", "gauge", "Bytes freed, but not used before the device was idle",
     _plain("quarantined_bytes")),
    ("pinned_bytes", "gauge", "Bytes that stay where they are while others know their address",
     _plain("pinned_bytes")),
    ("remapped_granules", "gauge", "Granules that are mapped away from home",
     _plain("remapped_granules")),
    ("aliases", "gauge", "Mappings of granules beyond those of their homes", _plain("aliases")),
    ("alias_bytes", "gauge", "Mapped addresses whose granules back other addresses",
     _plain("alias_bytes")),
    ("beside_live_bytes", "gauge", "Bytes unused in granules that live blocks keep",
     _plain("beside_live_bytes")),
    ("on_host_bytes", "gauge", "Bytes in the host's memory until they come back",
     _plain("on_host_bytes")),
    ("live_blocks", "gauge", "Number of live blocks", _gauge("allocations", "current")),
    ("segments", "gauge", "Number of segments", _gauge("segments", "current")),
    ("allocations_total", "counter", "Blocks allocated", _gauge("allocations", "total")),
    ("allocated_bytes_total", "counter", "Bytes of blocks allocated, after rounding",
     _gauge("allocated_bytes", "total")),
    ("driver_calls_total", "counter", "Memory, event, stream and synchronisation calls",
     _plain("driver_calls")),
    ("granule_remaps_total", "counter", "Granules of free blocks remapped to back a request",
     _plain("granule_remaps")),
    ("moves_total", "counter", "Handles emptied by moving live memory", _plain("moves")),
    ("moved_bytes_total", "counter", "Bytes copied by moving live memory", _plain("moved_bytes")),
    ("cross_stream_reuses_total", "counter", "Blocks taken from another stream's free memory",
     _plain("cross_stream_reuses")),
    *((f"{kind}_{pressure}_total", "counter", f"{text} {when}",
       lambda device, kind=kind, pressure=pressure: device.stats[pressure][kind])
      for pressure, when in (("with_room", "with room to spare"),
                             ("under_pressure", "without room to spare"))
      for kind, text in (("growths", "Requests served by memory created"),
                         ("remaps", "Requests served by a remap"),
                         ("waits", "Streams made to wait for others"))),
    ("device_looks_total", "counter", "Questions to the device about how much of it is free",
     _plain("device_looks")),
    *((f"{name}_total", "counter", text, _gauge("neighbours", name)) for name, text in (
        ("given_bytes", "Bytes given back for other processes"),
        ("taken_bytes", "Bytes that other processes gave back for this one"),
        ("idle_bytes", "Bytes given back since nobody used them for long"))),
    ("neighbours", "gauge", "Other processes on the device that hold memory",
     lambda device: len(device.stats["neighbours"]["others"])),
    ("out_of_memory_total", "counter", "Requests of PyTorch's that were refused for want of memory",
     _refusals),
]


def metrics() -> str:
    """See `drystone.metrics`."""
    return "".join(lines(_figures.totals()))


def lines(devices: list[Device]) -> Iterable[str]:
    """Each family with its help, kind and a sample per device."""
    for name, kind, text, value in FAMILIES:
        yield f"# HELP drystone_{name} {text}.\n# TYPE drystone_{name} {kind}\n"
        for device in devices:
            yield f'drystone_{name}{{device="{device.ordinal}"}} {value(device)}\n'
