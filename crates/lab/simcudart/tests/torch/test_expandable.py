"""PyTorch with expandable segments: virtual memory mapped and unmapped in pieces."""

import gc
import unittest

import torch
from torch import nn

import simulated
from simulated import GIB, MIB


class Expandable(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)
        self.held = simulated.physical_bytes()

    def tearDown(self):
        self.assertEqual(simulated.violation_count(), 0, simulated.violations())

    def test_segments_grow_in_place_and_are_given_back(self):
        first = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        second = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(second.data_ptr() - first.data_ptr(), 30 * MIB)
        self.assertEqual(simulated.physical_bytes() - self.held, 60 * MIB)
        self.assertEqual(torch.cuda.memory_reserved(), 60 * MIB)
        segments = torch.cuda.memory_snapshot()
        self.assertEqual([s["is_expandable"] for s in segments], [True])
        del first, second
        torch.cuda.empty_cache()
        self.assertEqual(simulated.physical_bytes(), self.held)
        self.assertGreater(simulated.calls_of("cuMemUnmap"), 0)

    def test_what_is_copied_in_comes_back_across_pieces(self):
        host = torch.arange(13 * MIB)
        self.assertTrue(torch.equal(host.cuda().cpu(), host))

    def test_running_out_leaves_all_usable(self):
        kept = torch.empty(5 * GIB, dtype=torch.uint8, device="cuda")
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(simulated.physical_bytes() - self.held, 5 * GIB)
        del kept
        block = torch.empty(7 * GIB, dtype=torch.uint8, device="cuda")
        # Mapped in pieces of 20 MiB.
        self.assertEqual(torch.cuda.memory_reserved(), 359 * 20 * MIB)
        del block

    def test_a_model_trains_and_is_captured(self):
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        rows = torch.randn(64, 512).cuda()
        for _ in range(3):
            model(rows).sum().backward()
            optimizer.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(rows)
        graph.replay()
        torch.cuda.synchronize()
