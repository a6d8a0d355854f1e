"""PyTorch's functions on memory, out of memory, streams and graphs with Drystone enabled.

Every test begins with a device that PyTorch holds nothing of, and ends without a violation.
"""

import ctypes
import pickle
import re
import sys
import tempfile
import threading
import unittest
import warnings

import torch
from torch import nn

import drystone
import simulated
from on_device import OnDevice, empty
from support import GIB, MIB, segments_of, since

if not drystone.is_enabled():
    drystone.enable(route="plugin")


class GrowsInPlace(OnDevice):
    def test_a_cache_grows_while_a_graph_replays(self):
        with drystone.reserve(4 * GIB) as cache:
            self.assertEqual((cache.bytes, cache.room_bytes), (0, 4 * GIB))
            self.assertEqual(cache.tensor().numel(), 0)
            cache.grow_to(8 * MIB)
            address = cache.address
            first = cache.tensor(torch.float32)
            total = torch.zeros(2 * MIB, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                total.copy_(first)
            for size in (100, 500, 2000):
                cache.grow_to(size * MIB)
                first.copy_(torch.full((2 * MIB,), float(size)))  # no kernel, which would not run
                graph.replay()
                self.assertEqual(total[-1].item(), size)
                self.assertEqual(cache.tensor().data_ptr(), address)
                self.assertEqual(cache.tensor(torch.int64).numel(), size * MIB // 8)
            self.assertEqual(cache.tensor(torch.float32)[5].item(), 2000)
            del graph, total, first
            cache.shrink_to(3 * MIB)
            torch.cuda.empty_cache()
            self.assertEqual(cache.bytes, 3 * MIB)
            self.assertEqual(torch.cuda.memory_reserved(), 8 * MIB)  # a whole handle

    def test_what_is_left_is_one_caches(self):
        kept = empty(100 * MIB)
        cache = drystone.reserve(16 * GIB)
        count = cache.commit_rest(200 * MIB)
        self.assertGreater(count, 7 * GIB)
        scratch = [empty(40 * MIB) for _ in range(4)]
        tensor = cache.tensor()
        del cache
        tensor[-1] = 7  # lives on
        self.assertEqual(tensor[-1].item(), 7)
        del kept, scratch, tensor

    def test_other_streams_and_refusals(self):
        other = torch.cuda.Stream()
        cache = drystone.reserve(64 * MIB, device="cuda:0")
        cache.grow_to(20 * MIB)
        cache.record_stream(other)
        with torch.cuda.stream(other):
            cache.tensor()[-1] = 1
        cache.shrink_to(1)
        cache.grow_to(20 * MIB)
        with self.assertRaisesRegex(drystone.DrystoneError, "room of 67108864 bytes"):
            cache.grow_to(65 * MIB)
        cache.free()
        cache.free()
        with self.assertRaisesRegex(drystone.DrystoneError, "not an address"):
            cache.grow_to(1)


class Memory(OnDevice):
    def test_figures_are_those_of_the_device(self):
        held = simulated.physical_bytes()
        block = empty(64 * MIB)
        self.assertEqual(torch.cuda.memory_allocated(), 64 * MIB)
        self.assertEqual(torch.cuda.memory_reserved(), simulated.physical_bytes() - held)
        free, total = torch.cuda.mem_get_info()
        self.assertEqual((free + simulated.physical_bytes(), total), (total, 8 * GIB))
        del block
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        self.assertEqual(torch.cuda.max_memory_allocated(), 64 * MIB)
        self.assertGreaterEqual(torch.cuda.max_memory_reserved(), 64 * MIB)
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)
        self.assertEqual(simulated.physical_bytes(), held)

    def test_peaks_and_totals_are_reset(self):
        kept = empty(4 * MIB)
        del_me = empty(32 * MIB)
        del del_me
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        figures = torch.cuda.memory_stats()
        self.assertEqual(figures["allocated_bytes.all.peak"], 4 * MIB)
        self.assertEqual(figures["allocated_bytes.all.current"], 4 * MIB)
        self.assertEqual(figures["allocation.all.allocated"], 0)
        self.assertEqual(figures["allocation.all.freed"], 0)
        del kept
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.freed"], 1)

    def test_the_summary(self):
        kept = empty(5 * MIB)
        text = torch.cuda.memory_summary()
        self.assertIn("GPU reserved memory", text)
        self.assertRegex(text, r"Allocated memory +\| +5120 KiB")
        del kept

    def test_devices_are_counted_apart(self):
        there = empty(7 * MIB, "cuda:1")
        self.assertEqual(torch.cuda.memory_allocated(0), 0)
        self.assertEqual(torch.cuda.memory_allocated(1), 7 * MIB)
        here = there.to("cuda:0")
        self.assertEqual(torch.cuda.memory_allocated(0), 7 * MIB)
        del here, there

    @since(2, 9)
    def test_tensors_go_from_each_device_to_the_other(self):
        """Copies reach memory that is open to their device alone; all of Drystone's is."""
        sent = torch.arange(5 << 20, dtype=torch.int64)
        here = sent.to("cuda:0")
        there = here.to("cuda:1")
        for back in (there.to("cuda:0"), there[::3].to("cuda:0"), here[::2].to("cuda:1")):
            self.assertEqual(back[0].item(), 0)
        self.assertTrue(torch.equal(there.to("cuda:0").cpu(), sent))
        self.assertGreater(torch.cuda.memory_allocated(1), 0)

    def test_the_accelerators_functions(self):
        kept = empty(3 * MIB)
        accelerator = torch.accelerator
        self.assertEqual(accelerator.memory_allocated(), 3 * MIB)
        self.assertEqual(accelerator.memory_reserved(), torch.cuda.memory_reserved())
        figures, cuda = accelerator.memory_stats(), torch.cuda.memory_stats()
        self.assertEqual(figures, {key: cuda[key] for key in figures})
        self.assertGreater(len(figures), 100)
        del kept
        self.assertEqual(accelerator.max_memory_allocated(), 3 * MIB)
        accelerator.reset_peak_memory_stats()
        self.assertEqual(accelerator.max_memory_allocated(), 0)
        accelerator.reset_accumulated_memory_stats()
        self.assertEqual(accelerator.memory_stats()["allocation.all.allocated"], 0)
        accelerator.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    @since(2, 10)
    def test_the_accelerator_tells_what_is_free(self):
        self.assertEqual(torch.accelerator.get_memory_info(), torch.cuda.mem_get_info())

    def test_a_fraction_that_is_set_while_the_program_runs_holds(self):
        with warnings.catch_warnings():
            # Of 2.11 on, that it has another name.
            warnings.simplefilter("ignore")
            torch.cuda.memory._set_allocator_settings("per_process_memory_fraction:0.25")
            self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.25)
            with self.assertRaises(torch.OutOfMemoryError):
                empty(3 * GIB)
            with self.assertRaises((RuntimeError, ValueError)):
                torch.cuda.memory._set_allocator_settings("per_process_memory_fraction:2.0")
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.25)

    def test_the_fraction_is_kept(self):
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 1.0)
        torch.cuda.set_per_process_memory_fraction(0.25)
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.25)
        kept = empty(1 * GIB)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "limit of 2.00 GiB"):
            empty(3 * GIB // 2)
        with self.assertRaises(ValueError):
            torch.cuda.set_per_process_memory_fraction(2.0)
        del kept

    def test_snapshots_tell_every_block(self):
        kept = [empty(1000), empty(3 * MIB)]
        segments = torch.cuda.memory_snapshot()
        blocks = [block for segment in segments for block in segment["blocks"]
                  if block["state"] == "active_allocated"]
        self.assertEqual({block["address"]: block["requested_size"] for block in blocks},
                         {one.data_ptr(): one.numel() for one in kept})
        for segment in segments:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]),
                             segment["total_size"])
        self.assertEqual(sum(segment["total_size"] for segment in segments),
                         torch.cuda.memory_reserved())
        with tempfile.NamedTemporaryFile() as file:
            torch.cuda.memory._dump_snapshot(file.name)
            self.assertEqual(pickle.load(file)["segments"], torch.cuda.memory_snapshot())
        from torch.cuda import _memory_viz
        snapshot = torch.cuda.memory._snapshot()
        self.assertIn("MiB", _memory_viz.segsum(snapshot))
        _memory_viz.segment_plot(snapshot)

    def test_raw_allocations(self):
        # Where a tensor of another size was before.
        before = empty(4 * MIB).data_ptr()
        address = torch.cuda.caching_allocator_alloc(5 * MIB)
        self.assertEqual(address, before)
        self.assertEqual(torch.cuda.memory_allocated(), 5 * MIB)
        torch.cuda.caching_allocator_delete(address)
        self.assertEqual(torch.cuda.memory_allocated(), 0)

    def test_nothing_of_size_zero(self):
        kept = [empty(0) for _ in range(10)]
        self.assertEqual([one.data_ptr() for one in kept], [0] * 10)
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"], 0)


class Refused(OnDevice):
    """What no plug-in can do says so."""

    def test_reasons(self):
        def pool():
            return torch.cuda.MemPool()

        def share():
            return torch.ones(3, device="cuda").untyped_storage()._share_cuda_()

        def trees():
            return torch.compile(torch.sin, backend="cudagraphs")(torch.ones(3, device="cuda"))

        for what, reason in (
                (pool, "MemPool"), (share, "another"), (trees, "tree of CUDA graphs")):
            with self.assertRaisesRegex(drystone.NotSupportedError, reason) as raised:
                what()
            self.assertIn("drystone.enable(route=\"compiled\"", str(raised.exception))
        self.assertTrue(issubclass(drystone.NotSupportedError, RuntimeError))

    def test_what_only_tells_is_said_once_to_be_missing_and_the_program_goes_on(self):
        def observer():
            torch._C._cuda_attach_out_of_memory_observer(print)

        for what, words in (
                (torch.cuda.memory._record_memory_history, "no history of allocations"),
                (observer, "catch torch.OutOfMemoryError")):
            with self.assertWarnsRegex(RuntimeWarning, words):
                what()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                what()
        # That it should stop needs no words.
        torch.cuda.memory._record_memory_history(enabled=None)
        self.assertEqual(torch.cuda.memory._snapshot()["device_traces"][0], [])

    def test_benchmarking_stays_off_aloud(self):
        with self.assertWarnsRegex(RuntimeWarning, "benchmark stays off"):
            torch.backends.cudnn.benchmark = True
        self.assertFalse(torch.backends.cudnn.benchmark)
        convolution = nn.Conv2d(3, 4, 3).cuda()
        self.assertEqual(convolution(torch.ones(1, 3, 8, 8, device="cuda")).shape, (1, 4, 6, 6))


class OutOfMemory(OnDevice):
    def test_words_and_figures_are_pytorchs(self):
        kept = empty(5 * GIB)
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            empty(6 * GIB)
        text = str(raised.exception)
        begin = ("CUDA out of memory. Tried to allocate 6.00 GiB. Use a smaller batch, or free "
                 "3.00 GiB more of this or another process on the device. GPU 0 has a total capacity of "
                 "8.00 GiB of which 3.00 GiB is free. ")
        self.assertTrue(text.startswith(begin), text)
        self.assertIn("Of the allocated memory 5.00 GiB is allocated by PyTorch, and ", text)
        self.assertIn("is reserved by PyTorch but unallocated. Drystone holds 5.00 GiB", text)
        self.assertEqual(text.count("CUDA out of memory"), 1)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 1)
        del kept

    def test_of_a_size_that_no_device_has_the_words_are_pytorchs(self):
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            empty(800_000_000 * GIB)
        begin = ("CUDA out of memory. Tried to allocate 800000000.00 GiB. The request is larger "
                 "than the device's memory. GPU 0 has a total capacity of 8.00 GiB. ")
        self.assertTrue(str(raised.exception).startswith(begin), raised.exception)

    def test_the_cause_is_told_first(self):
        def told(size):
            with self.assertRaises(torch.OutOfMemoryError) as raised:
                empty(size)
            return re.split(r"\sGPU 0 ", str(raised.exception))[0].split(". ", 2)[2]

        self.assertEqual(told(9 * GIB), "The request is larger than the device's memory.")
        # A graph's pool keeps what its graph has written to.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scratch = empty(3 * GIB)
            del scratch
        kept = empty(4 * GIB)
        self.assertRegex(told(2 * GIB), "^3.00 GiB are free in private pools.*drop graphs")
        del graph, kept
        # Another stream is at work on what was freed.
        side = torch.cuda.Stream()
        kept, late = empty(4 * GIB), empty(3 * GIB)
        late.record_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # A capture is no reason where nothing could have been given back.
            self.assertRegex(told(2 * GIB), "^Use a smaller batch, or free at least 1.00 GiB more")
        del graph, late
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assertRegex(told(2 * GIB), "^The limit of 4.00 GiB stands in the way")
        torch.cuda.set_per_process_memory_fraction(1.0)
        del kept
        # Pieces that are too small to be given back.
        kept = [empty(MIB + MIB // 2) for _ in range(5400)]
        self.assertRegex(told(GIB), "^Use a smaller batch")
        del kept

    def test_a_smaller_batch_is_found(self):
        batch, tried = 64, []
        while True:
            tried.append(batch)
            try:
                found = torch.empty(batch, 300 * MIB, dtype=torch.uint8, device="cuda")
                break
            except torch.OutOfMemoryError:
                batch //= 2
        self.assertEqual(tried, [64, 32, 16])
        self.assertEqual(torch.cuda.memory_allocated(), 4800 * MIB)
        self.assertNotEqual(found.data_ptr(), 0)
        del found

    def test_a_thousand_failures_leak_nothing(self):
        def fail(times):
            for _ in range(times):
                with self.assertRaises(torch.OutOfMemoryError):
                    empty(100 * GIB)
        fail(200)
        held, grown = simulated.physical_bytes(), []
        for _ in range(4):
            before = resident_bytes()
            fail(250)
            grown.append(resident_bytes() - before)
        # An exception's object of 1 KiB alone would be 256 KiB each time; a thread's first memory
        # may be some, once.
        self.assertLess(min(grown), 64 * 1024)
        self.assertEqual(simulated.physical_bytes(), held)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 1200)
        kept = empty(6 * GIB)
        self.assertEqual(torch.cuda.memory_allocated(), 6 * GIB)
        del kept

    def test_threads_fail_and_go_on(self):
        wrong = []

        def work():
            for _ in range(100):
                try:
                    empty(9 * GIB)
                    wrong.append("got 9 GiB")
                except torch.OutOfMemoryError:
                    kept = empty(MIB)
                    if kept.data_ptr() == 0:
                        wrong.append("null")
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 400)

    def test_in_a_capture(self):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with self.assertRaises(torch.OutOfMemoryError):
            with torch.cuda.graph(graph):
                empty(50 * GIB)
        del graph
        kept = empty(MIB)
        self.assertNotEqual(kept.data_ptr(), 0)


class Streams(OnDevice):
    def test_a_recorded_use_delays_reuse(self):
        side = torch.cuda.Stream()
        block = empty(32 * MIB)
        address = block.data_ptr()
        simulated.launch(side, 50_000_000)
        block.record_stream(side)
        del block
        other = empty(32 * MIB)
        self.assertNotEqual(other.data_ptr(), address)
        self.assertEqual(torch.cuda.memory_stats()["active_bytes.all.current"], 64 * MIB)
        side.synchronize()
        again = empty(32 * MIB)
        self.assertEqual(again.data_ptr(), address)
        del other, again

    def test_two_streams_work_in_turns(self):
        streams = [torch.cuda.Stream() for _ in range(2)]
        for step in range(50):
            for at, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    part = empty((step % 7 + 1) * MIB)
                    simulated.launch(stream, 1000)
                    part.record_stream(streams[1 - at])
                    del part
        torch.cuda.synchronize()
        self.assertEqual(torch.cuda.memory_allocated(), 0)

    def test_a_stream_of_the_programs_own_ends_without_a_word(self):
        """A handle that is gone is asked about by nobody: the simulated driver would end here."""
        driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        for size in range(1, 6):
            self.assertEqual(driver.cuStreamCreate(ctypes.byref(handle), 1), 0)
            with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
                empty(size * MIB)
            torch.cuda.synchronize()
            self.assertEqual(driver.cuStreamDestroy_v2(handle), 0)
            empty(20 * size * MIB)
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    def test_what_one_of_pytorchs_streams_freed_serves_another(self):
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            empty(100 * MIB)
        torch.cuda.set_per_process_memory_fraction(
            192 * MIB / torch.cuda.get_device_properties(0).total_memory)
        # Neither waits for the device: that is asked of the first stream, which stays.
        simulated.launch(torch.cuda.default_stream(), 1_000_000_000)
        before = simulated.now_ns()
        with torch.cuda.stream(second):
            empty(100 * MIB)
        self.assertLess(simulated.now_ns() - before, 1_000_000_000)


class Graphs(OnDevice):
    def test_a_graphs_memory_is_apart_until_it_is_dropped(self):
        static = torch.ones(4 * MIB, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = static * 2
            scratch = out * 3
            del scratch
        pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
        self.assertEqual(len(pools), 2)
        mine = segments_of(graph.pool())
        self.assertTrue(mine)
        inside = range(mine[0]["address"], mine[0]["address"] + mine[0]["total_size"])
        outside = [empty(4 * MIB) for _ in range(8)]
        self.assertFalse(any(one.data_ptr() in inside for one in outside))
        graph.replay()
        torch.cuda.synchronize()
        del graph, out, outside, static
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    @since(2, 8)
    def test_a_snapshot_of_one_pool(self):
        static = torch.ones(4 * MIB, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = static * 2
        self.assertEqual(torch.cuda.memory_snapshot(graph.pool()), segments_of(graph.pool()))
        self.assertTrue(segments_of(graph.pool()))
        del graph, out, static

    def test_graphs_share_a_pool(self):
        pool = torch.cuda.graph_pool_handle()
        kept = []
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                kept.append((graph, torch.empty(MIB, device="cuda")))
        self.assertEqual({graph.pool() for graph, _ in kept}, {pool})
        for graph, _ in kept:
            graph.replay()
        del kept, graph


class Training(OnDevice):
    def test_every_step_takes_the_same_memory(self):
        layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True)
        model = nn.Sequential(
            nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
            nn.Linear(256, 1000)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        held = []
        for _ in range(5):
            tokens = torch.zeros(4, 128, dtype=torch.long, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = nn.functional.cross_entropy(
                    model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            del loss, tokens
            torch.cuda.synchronize()
            held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
        self.assertEqual(len(set(held[2:])), 1, held)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 0)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(unittest.main())
