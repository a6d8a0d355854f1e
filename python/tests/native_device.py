"""Where tests of the compiled route begin, and what they look at."""

import torch

import drystone
import on_device
from on_device import empty  # noqa: F401

if not drystone.is_enabled():
    drystone.enable(route="compiled", prefer="memory")  # figures in the tests are exact


def record(enabled="all", **options):
    torch.cuda.memory._record_memory_history(enabled, **options)


def entries(device=0, *actions):
    found = torch.cuda.memory._snapshot()["device_traces"][device]
    return [entry for entry in found if not actions or entry["action"] in actions]


class OnDevice(on_device.OnDevice):
    def tearDown(self):
        record(None)
        super().tearDown()
