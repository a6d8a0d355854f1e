"""Memory that one stream freed and another gets, with the compiled route and room to spare."""

import gc
import unittest

import torch

import drystone
from on_device import OnDevice

if not drystone.is_enabled():
    drystone.enable(route="compiled")

MIB = 1 << 20


def used(stream, *sizes):
    """Blocks that a stream uses, and frees."""
    with torch.cuda.stream(stream):
        blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in sizes]
        for block in blocks:
            block.add_(1)


def captured(stream, pool, *sizes):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        used(stream, *sizes)
    return graph


class Shared(OnDevice):
    def setUp(self):
        super().setUp()
        self.side, self.main = torch.cuda.Stream(), torch.cuda.current_stream()

    def grows(self, *sizes):
        """Whether the current stream makes memory grow for these."""
        before = torch.cuda.memory_reserved()
        used(self.main, *sizes)
        return torch.cuda.memory_reserved() > before

    def test_a_stream_that_waits_gets_what_the_other_freed_before(self):
        used(self.side, 256, 256, 256)
        self.main.wait_stream(self.side)
        self.assertFalse(self.grows(256, 256, 256))

    def test_one_that_does_not_wait_gets_nothing_of_a_stream_at_work(self):
        used(self.side, 256)
        self.assertTrue(self.grows(256))

    def test_what_is_freed_after_the_event_is_not_covered(self):
        used(self.side, 128)
        event = self.side.record_event()
        used(self.side, 128, 256)
        self.main.wait_event(event)
        self.assertTrue(self.grows(128, 256))

    def test_an_event_that_is_recorded_again_stands_for_its_last_record(self):
        event = torch.cuda.Event()
        event.record(self.main)
        used(self.side, 256)
        event.record(self.side)
        self.main.wait_event(event)
        self.assertFalse(self.grows(256))

    def test_a_host_that_waited_for_the_device_has_seen_all(self):
        used(self.side, 256, 256)
        torch.cuda.synchronize()
        self.assertFalse(self.grows(256, 256))

    def test_graphs_of_one_pool_share_memory_on_any_stream(self):
        pool = torch.cuda.graph_pool_handle()
        graphs = [captured(torch.cuda.Stream(), pool, 256, 128)]
        held = torch.cuda.memory_reserved()
        graphs += [captured(torch.cuda.Stream(), pool, size, 2 * size) for size in (120, 60, 30)]
        self.assertEqual(torch.cuda.memory_reserved(), held)
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()

    def test_graphs_of_a_pool_that_says_so_do_not(self):
        pool = drystone.graph_pool(exclusive=False)
        graphs = [captured(torch.cuda.Stream(), pool, 128) for _ in range(2)]
        self.assertGreaterEqual(torch.cuda.memory_reserved(), 256 * MIB)
        self.assertEqual(drystone.graph_pool().__class__, tuple)
        del graphs, pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved(), 128 * MIB)


if __name__ == "__main__":
    unittest.main()
