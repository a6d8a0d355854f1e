"""A device of which PyTorch holds nothing: where tests of the compiled route begin."""

import gc
import unittest

import torch

import drystone
import simulated

if not drystone.is_enabled():
    drystone.enable(route="compiled", prefer="memory")  # figures in the tests are exact


def empty(size, device="cuda"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def record(enabled="all", **options):
    torch.cuda.memory._record_memory_history(enabled, **options)


def entries(device=0, *actions):
    found = torch.cuda.memory._snapshot()["device_traces"][device]
    return [entry for entry in found if not actions or entry["action"] in actions]


class OnDevice(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        self.violations = simulated.violation_count()

    def tearDown(self):
        record(None)
        torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(simulated.violation_count(), self.violations, simulated.violations())
