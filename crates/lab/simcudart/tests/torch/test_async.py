"""PyTorch with the driver's own pools: `backend:cudaMallocAsync`."""

import unittest

import torch

import simulated
from simulated import GIB, MIB


class Async(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(simulated.violation_count(), 0, simulated.violations())

    def test_memory_comes_from_the_drivers_pool(self):
        self.assertEqual(torch.cuda.get_allocator_backend(), "cudaMallocAsync")
        before = simulated.calls_of("cuMemAllocAsync")
        block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(simulated.calls_of("cuMemAllocAsync"), before + 1)
        self.assertEqual(simulated.calls_of("cuMemAlloc_v2"), 0)
        self.assertEqual(torch.cuda.memory_allocated(), 64 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), 64 * MIB)
        del block
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    def test_running_out_leaves_all_usable(self):
        kept = torch.empty(5 * GIB, dtype=torch.uint8, device="cuda")
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
        del kept
        torch.cuda.empty_cache()
        block = torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
        del block

    def test_a_recorded_stream_is_waited_for(self):
        side = torch.cuda.Stream()
        block = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        simulated.launch(side, 50_000_000)
        block.record_stream(side)
        waits = simulated.calls_of("cuStreamWaitEvent")
        del block
        self.assertGreater(simulated.calls_of("cuStreamWaitEvent"), waits)
        torch.cuda.synchronize()

    def test_what_is_copied_in_comes_back(self):
        host = torch.arange(100_000)
        self.assertTrue(torch.equal(host.cuda().cpu(), host))
