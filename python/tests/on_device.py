"""A device of which PyTorch holds nothing: where tests of any route begin, and end without a
violation."""

import gc
import unittest

import torch

import simulated


def empty(size, device="cuda"):
    return torch.empty(size, dtype=torch.uint8, device=device)


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
        torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(simulated.violation_count(), self.violations, simulated.violations())
