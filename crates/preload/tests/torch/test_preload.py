"""PyTorch with `backend:cudaMallocAsync` and Drystone preloaded: its statistics, Drystone's memory."""

import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[3] / "lab/simcudart/tests/torch"))

import torch

import simulated
from simulated import GIB, MIB


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def native_allocations() -> int:
    names = ("cuMemAllocAsync", "cuMemAllocFromPoolAsync")
    return sum(simulated.calls_of(name) for name in names)


class Preloaded(unittest.TestCase):
    def setUp(self) -> None:
        self.native = native_allocations()

    def tearDown(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(simulated.violation_count(), 0, simulated.violations())


class Memory(Preloaded):
    def test_pytorch_keeps_its_statistics_and_no_block_is_the_drivers(self) -> None:
        self.assertEqual(torch.cuda.get_allocator_backend(), "cudaMallocAsync")
        torch.cuda.reset_peak_memory_stats()
        first, second = block(64 * MIB), block(10 * MIB)
        self.assertEqual(torch.cuda.memory_allocated(), 74 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), 74 * MIB)
        self.assertEqual(torch.cuda.memory_reserved(), simulated.physical_bytes())
        del first, second
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        self.assertEqual(torch.cuda.max_memory_allocated(), 74 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), 74 * MIB)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), 0)
        self.assertIn("PyTorch CUDA memory summary", torch.cuda.memory_summary())
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved(), 8 * MIB)
        self.assertEqual(native_allocations(), self.native)

    def test_running_out_leaves_all_usable(self) -> None:
        kept = block(5 * GIB)
        for _ in range(3):
            with self.assertRaises(torch.OutOfMemoryError) as raised:
                block(6 * GIB)
            self.assertIn("6.00 GiB", str(raised.exception))
        torch.cuda.synchronize()  # No error was left behind.
        del kept
        again = block(6 * GIB)  # Nothing has to be given back before.
        self.assertEqual(again.numel(), 6 * GIB)

    def test_a_batch_size_is_found(self) -> None:
        size, tried = 64, []
        while True:
            tried.append(size)
            try:
                parts = [block(320 * MIB) for _ in range(size)]
                break
            except torch.OutOfMemoryError:
                size //= 2
        self.assertEqual((tried, len(parts)), ([64, 32, 16], 16))

    def test_a_fraction_limits_this_process(self) -> None:
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        torch.cuda.set_per_process_memory_fraction(0.25)
        with self.assertRaises(torch.OutOfMemoryError):
            block(3 * GIB)
        self.assertEqual(block(GIB).numel(), GIB)

    def test_what_is_copied_in_comes_back(self) -> None:
        host = torch.arange(100_000)
        self.assertTrue(torch.equal(host.cuda().cpu(), host))


class Streams(Preloaded):
    def test_a_recorded_stream_keeps_a_block_until_it_is_done(self) -> None:
        side = torch.cuda.Stream()
        kept = block(16 * MIB)
        address = kept.data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        simulated.launch(side, 500_000_000)
        kept.record_stream(side)
        del kept
        next_one = block(16 * MIB)
        self.assertNotEqual(next_one.data_ptr(), address)
        side.synchronize()

    def test_threads_with_streams_of_their_own(self) -> None:
        def work(seed: int) -> None:
            choose = random.Random(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                held: list[torch.Tensor] = []
                for _ in range(200):
                    held.append(block(choose.randrange(1, 4 * MIB)))
                    if len(held) > 8:
                        held.pop(choose.randrange(len(held)))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        self.assertEqual(native_allocations(), self.native)

    def test_a_graph_has_memory_of_its_own_and_replays(self) -> None:
        given = torch.ones(1 << 20, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = given * 2
        self.assertGreater(native_allocations(), self.native)
        for _ in range(3):
            graph.replay()
            beside = block(4 * MIB)
            self.assertNotEqual(beside.data_ptr(), result.data_ptr())
        torch.cuda.synchronize()
        del result, graph


class Training(Preloaded):
    def test_a_model_trains_in_the_same_memory_each_step(self) -> None:
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
        model = model.cuda()
        peaks = []
        optimizer = None
        for _ in range(6):
            torch.cuda.reset_peak_memory_stats()
            loss = model(torch.randn(32, 3, 32, 32, device="cuda")).square().mean()
            optimizer = optimizer or torch.optim.AdamW(model.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            peaks.append(torch.cuda.max_memory_allocated())
        self.assertEqual(len(set(peaks[2:])), 1, peaks)
        self.assertEqual(native_allocations(), self.native)

    def test_lengths_that_vary_take_less_memory_than_from_the_drivers_pool(self) -> None:
        ours, drivers = (varied(preload) for preload in (os.environ["LD_PRELOAD"], ""))
        self.assertEqual((ours["native"], ours["count"]), (0, drivers["count"]))
        self.assertGreater(drivers["native"], 1000)
        self.assertLess(ours["peak"], drivers["peak"])


def varied(preload: str) -> dict[str, int]:
    """What a process of its own takes for tensors of lengths that vary."""
    environment = {**os.environ, "LD_PRELOAD": preload}
    ran = subprocess.run([sys.executable, "-B", __file__, "vary"], env=environment,
                         check=True, capture_output=True, timeout=100)
    return json.loads(ran.stdout)


def vary() -> None:
    choose = random.Random(7)
    held: list[torch.Tensor] = []
    for _ in range(3000):
        held.append(block(choose.randrange(1, 60) * MIB))
        while sum(tensor.numel() for tensor in held) > 2 * GIB:
            held.pop(choose.randrange(len(held)))
    torch.cuda.synchronize()
    peak = simulated.statistics()["devices"][0]["peak_physical_bytes"]
    print(json.dumps({"peak": peak, "native": native_allocations(), "count": len(held)}))


if __name__ == "__main__":
    vary() if sys.argv[1:] == ["vary"] else unittest.main()
