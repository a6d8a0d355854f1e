"""What only the compiled route gives beside history: observers, pools, checkpoints and the rest."""

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import torch
from torch import nn

import simulated
from drystone._native import CXX20
from drystone._version import numbers
from native_device import OnDevice, empty, entries, record
from support import GIB, MIB, python, segments_of, since

# A preloaded library that has what `cudaMalloc` gives paused, such as torch_memory_saver's.
INTERPOSER = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stddef.h>
    static size_t out, back;
    int cudaMalloc(void** address, size_t bytes) {
        out += bytes;
        return ((int (*)(void**, size_t))dlsym(RTLD_NEXT, "cudaMalloc"))(address, bytes);
    }
    int cudaFree(void* address) {
        back += address != 0;
        return ((int (*)(void*))dlsym(RTLD_NEXT, "cudaFree"))(address);
    }
    size_t interposed(void) { return out; }
    size_t given_back(void) { return back; }
"""

# An allocator such as NCCL's, which has no memory beyond 1 GiB.
PROVIDER = """
    #include <stddef.h>
    int cudaMalloc(void** address, size_t bytes);
    int cudaFree(void* address);
    static int out, back;
    void* provide(ptrdiff_t bytes, int device, void* stream) {
        void* address = 0;
        if (bytes > 1 << 30 || cudaMalloc(&address, bytes) != 0) return 0;
        ++out;
        return address;
    }
    void give_back(void* address, size_t bytes, int device, void* stream) {
        ++back;
        cudaFree(address);
    }
    int provided(void) { return out; }
    int given_back(void) { return back; }
"""


def compiled(folder, code):
    """A library made of C, which finds the runtime that PyTorch has loaded."""
    source, library = folder / "code.c", folder / "library.so"
    source.write_text(code)
    version = torch.version.cuda.split(".")[0]
    packages = Path(torch.__file__).parents[1]
    [runtime, *_] = packages.glob(f"nvidia/*/lib/libcudart.so.{version}")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), str(runtime), "-o", str(library)],
                   check=True)
    return str(library)


def written_by(action):
    """What an action writes to standard error, C++ included."""
    shown = os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            action()
        finally:
            os.dup2(shown, 2)
            os.close(shown)
        file.seek(0)
        return file.read()


class OutOfMemory(OnDevice):
    def test_observers_are_told_first(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(
            lambda *figures: seen.append(figures))
        kept = empty(GIB)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(8 * GIB)
        self.assertEqual(len(seen), 1)
        device, asked, total, free = seen[0]
        self.assertEqual((device, asked, total), (0, 8 * GIB, 8 * GIB))
        self.assertEqual(free, 7 * GIB)
        torch.cuda.set_per_process_memory_fraction(0.5)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "4.00 GiB allowed; Of the allocated"):
            empty(5 * GIB)
        self.assertEqual(seen[-1][2], 4 * GIB)
        del kept

    def test_it_is_an_entry(self):
        record(context=None)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(9 * GIB)
        [entry] = entries(0, "oom")
        self.assertEqual((entry["size"], entry["device_free"]), (9 * GIB, 8 * GIB))

    def test_sizes_beyond_every_device(self):
        for size in (1 << 50, 1 << 61):
            with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate"):
                empty(size)


class Pools(OnDevice):
    @since(2, 8)
    def test_a_pools_memory_is_apart_and_goes_with_it(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = empty(8 * MIB)
        outside = empty(8 * MIB)
        [segment] = torch.cuda.memory_snapshot(pool.id)
        self.assertEqual(segment["address"], inside.data_ptr())
        self.assertEqual(tuple(segment["segment_pool_id"]), pool.id)
        self.assertEqual(pool.snapshot(), torch.cuda.memory_snapshot(pool.id))
        self.assertEqual(pool.use_count(), 1)
        del inside
        again = empty(8 * MIB)
        self.assertNotEqual(again.data_ptr(), segment["address"])
        del again, outside, pool
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    @since(2, 12)
    def test_what_would_pass_the_limit_is_rejected_where_that_is_asked_for(self):
        def counts():
            stats = torch.cuda.memory_stats()
            return stats["num_ooms"], stats["num_oom_rejections"]

        setting = "throw_on_cudamalloc_oom:{},per_process_memory_fraction:{}"
        torch.cuda.reset_accumulated_memory_stats()
        told = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
        torch._C._accelerator_setAllocatorSettings(setting.format(True, 0.5))
        cached = empty(2 * GIB)
        del cached
        # What is cached serves it.
        served = empty(3 * GIB)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "rejected .*_memory_fraction"):
            empty(2 * GIB)
        self.assertEqual((counts(), told), ((0, 1), []))
        torch._C._accelerator_setAllocatorSettings(setting.format(False, 0.5))
        with self.assertRaises(torch.OutOfMemoryError):
            empty(2 * GIB)
        self.assertEqual((counts(), len(told)), ((1, 1), 1))
        torch.cuda.reset_accumulated_memory_stats()
        self.assertEqual(counts(), (0, 0))
        torch._C._accelerator_setAllocatorSettings(setting.format(False, 1.0))
        del served

    @since(2, 13)
    def test_what_each_private_pool_holds_and_held(self):
        def figures(name):
            stats = torch.cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"]
            return {key: tuple(size // MIB for size in of.values())
                    for key, of in stats.get(name, {}).items()}

        pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
        name = pool.id
        self.assertEqual(figures(name), {})
        with torch.cuda.use_mem_pool(pool):
            kept, gone = [empty(64 * MIB), empty(1000)], empty(20 * MIB)
        del gone
        # Now, at most, added and taken away.
        self.assertEqual(figures(name), {
            "all": (86, 86, 86, 0), "small_pool": (2, 2, 2, 0), "large_pool": (84, 84, 84, 0)})
        with torch.cuda.graph(graph):
            inside = empty(10 * MIB)
        self.assertEqual(figures(graph.pool())["all"], (10, 10, 10, 0))
        torch.cuda.reset_accumulated_memory_stats()
        del kept, pool
        self.assertEqual(figures(name)["all"], (0, 86, 0, 86))
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(figures(name)["all"], (0, 0, 0, 86))
        self.assertEqual(figures(graph.pool())["all"], (10, 10, 0, 0))
        del inside, graph

    @since(2, 8)
    def test_empty_cache_while_a_pool_is_used_gives_back_what_is_cached_elsewhere(self):
        empty(32 * MIB)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            empty(MIB)
            torch.cuda.empty_cache()
            self.assertLess(torch.cuda.memory_reserved(), 32 * MIB)

    @since(2, 8)
    def test_the_end_of_a_pool_leaves_what_others_have_cached(self):
        pool, kept = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            empty(64 * MIB)
        with torch.cuda.use_mem_pool(kept):
            empty(64 * MIB)
        empty(32 * MIB)
        held = torch.cuda.memory_reserved()
        del pool
        self.assertEqual(torch.cuda.memory_reserved(), held - 64 * MIB)
        del kept
        self.assertEqual(torch.cuda.memory_reserved(), 32 * MIB)

    @since(2, 8)
    def test_a_pool_serves_others_where_there_is_no_other_memory(self):
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            inside = empty(5 * GIB)
        del inside
        kept = empty(4 * GIB)
        self.assertEqual(torch.cuda.memory_allocated(), 4 * GIB)
        del kept, pool

    def test_a_pool_over_another_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            library = compiled(Path(folder), PROVIDER)
            other = torch.cuda.memory.CUDAPluggableAllocator(library, "provide", "give_back")
            counts = ctypes.CDLL(library)
        pool = torch.cuda.MemPool(other.allocator())
        with torch.cuda.use_mem_pool(pool):
            blocks = [empty(size) for size in (1000, 3 * MIB, 5 * MIB, 1 << 20, 50 * MIB)]
            self.assertEqual((counts.provided(), counts.given_back()), (4, 0))
            segments = segments_of(pool.id)
            self.assertEqual([one["is_expandable"] for one in segments], [False] * 4)
            self.assertEqual(sum(one["total_size"] for one in segments),
                             torch.cuda.memory_reserved())
            with self.assertRaises(torch.OutOfMemoryError):
                empty(7 * GIB)
        address = blocks[1].data_ptr()
        del blocks
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(empty(3 * MIB).data_ptr(), address)
        outside = empty(3 * MIB)
        self.assertEqual(counts.provided(), 4)
        del pool
        self.assertEqual((counts.provided(), counts.given_back()), (4, 4))
        del outside

    def test_a_driver_that_fails_as_a_pool_ends_is_a_warning(self):
        driver = ctypes.CDLL("libcuda.so.1")

        def use():
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                empty(8 * MIB)
            for call in (b"cuMemUnmap", b"cuMemRelease"):
                driver.simcuda_fail(0, call, ctypes.c_uint64(1), 0, 999)
            del pool

        try:
            self.assertIn("not all of a pool's memory went back", written_by(use))
        finally:
            driver.simcuda_clear_faults(0)

    @since(2, 8)
    def test_only_the_thread_that_uses_a_pool_takes_from_it(self):
        pool, others = torch.cuda.MemPool(), []
        with torch.cuda.use_mem_pool(pool):
            thread = threading.Thread(target=lambda: others.append(empty(8 * MIB)))
            thread.start()
            thread.join()
        self.assertEqual(segments_of(pool.id), [])
        others.clear()
        del pool

    def test_graphs(self):
        pool = torch.cuda.graph_pool_handle()
        static = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            out = static * 2
        self.assertTrue(segments_of(pool))
        with self.assertRaisesRegex(torch.OutOfMemoryError, "allocated in private pools"):
            empty(8 * GIB)
        graph.replay()
        del graph, out, static

    @since(2, 10)
    def test_no_two_blocks_of_an_unsplit_pool_share_a_segment(self):
        pool = torch.cuda.MemPool(no_split=True)
        with torch.cuda.use_mem_pool(pool):
            kept = [empty(size) for size in (1000, 1000, 3 * MIB, 3 * MIB, 50 * MIB)]
            address = kept.pop(2).data_ptr()
            self.assertEqual(empty(2 * MIB).data_ptr(), address)
        segments = segments_of(pool.id)
        self.assertEqual(sorted(one["total_size"] // MIB for one in segments), [2, 2, 4, 4, 50])
        self.assertEqual([len(one["blocks"]) for one in segments], [1] * 5)
        kept.clear()
        del pool
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    @since(2, 10)
    def test_an_unsplit_pool_over_another_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            library = compiled(Path(folder), PROVIDER)
            other = torch.cuda.memory.CUDAPluggableAllocator(library, "provide", "give_back")
            counts = ctypes.CDLL(library)
        pool = torch.cuda.MemPool(other.allocator(), no_split=True)
        with torch.cuda.use_mem_pool(pool):
            blocks = [empty(size) for size in (1000, 1000, 3 * MIB, 3 * MIB)]
        self.assertEqual(counts.provided(), 4)
        del blocks, pool
        self.assertEqual(counts.given_back(), 4)


class Interposed(unittest.TestCase):
    @since(2, 8)
    def test_private_pools_have_their_memory_by_a_preloaded_cuda_malloc(self):
        with tempfile.TemporaryDirectory() as folder:
            library = compiled(Path(folder), INTERPOSER)
            done = python(f"""
                import ctypes, torch, drystone
                drystone.enable(route="compiled")
                counts = ctypes.CDLL({library!r})
                counts.interposed.restype = ctypes.c_size_t
                def empty(size): return torch.empty(size, dtype=torch.uint8, device="cuda")
                outside = empty(50 << 20)
                before = counts.interposed()
                pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
                with torch.cuda.use_mem_pool(pool):
                    inside = empty(64 << 20)
                print(before, counts.interposed() >> 20)
                with torch.cuda.graph(graph):
                    empty(32 << 20)
                print((counts.interposed() >> 20) - 64)
                given_back = counts.given_back()
                del inside, pool
                print(counts.given_back() - given_back)
            """, LD_PRELOAD=library)
        self.assertEqual(done.stdout.split(), ["0", "64", "32", "1"], done.stderr)


class Checkpoints(OnDevice):
    """As trees of CUDA graphs put a pool back to where it was after one of them."""

    def setUp(self):
        super().setUp()
        self.pool = torch.cuda.graph_pool_handle()
        self.static = torch.ones(3 * MIB, dtype=torch.uint8, device="cuda")
        self.graphs = []

    def tearDown(self):
        self.graphs.clear()
        del self.static
        super().tearDown()

    def captured(self, *sizes):
        """Blocks of these sizes, made in a graph; every second one is freed again within."""
        graph = torch.cuda.CUDAGraph()
        self.graphs.append(graph)
        with torch.cuda.graph(graph, pool=self.pool):
            kept = [self.static * 2]
            for size in sizes:
                kept.append(empty(size))
                empty(2 * size)
        return kept

    def live(self):
        return {block["address"]: block["requested_size"]
                for segment in segments_of(self.pool)
                for block in segment["blocks"] if block["state"] == "active_allocated"}

    def state(self):
        return torch._C._cuda_getCheckpointState(0, self.pool)

    def put_back(self, state, stale=(), alive=()):
        torch._C._cuda_setCheckpointPoolState(
            0, state, [one.untyped_storage()._cdata for one in stale],
            [one.untyped_storage()._cdata for one in alive])

    def test_live_blocks_come_back_where_they_were(self):
        first = self.captured(MIB, 7 * MIB, 1000)
        state, live = self.state(), self.live()
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(
            0, self.pool, {one.data_ptr() for one in first}))
        self.assertFalse(torch._C._cuda_checkPoolLiveAllocations(
            0, self.pool, {first[0].data_ptr()}))
        addresses = [one.data_ptr() for one in first]
        del first
        second = self.captured(3 * MIB, 2 * MIB)
        self.assertNotEqual(self.live(), live)
        self.put_back(state, stale=second)
        self.assertEqual(self.live(), live)
        del second
        self.assertEqual(self.live(), live)
        # Nobody owns them: they go as trees of graphs let them go.
        for address in addresses:
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)
        self.assertEqual(self.live(), {})

    def test_tensors_that_live_on_own_their_blocks_again(self):
        first = self.captured(5 * MIB)
        state, live = self.state(), self.live()
        again = [torch._C._construct_storage_from_data_pointer(
            one.data_ptr(), one.device, one.nbytes) for one in first]
        torch._C._cuda_setCheckpointPoolState(
            0, state, [one.untyped_storage()._cdata for one in first],
            [one._cdata for one in again])
        del first
        self.assertEqual(self.live(), live)
        del again
        self.assertEqual(self.live(), {})

    def test_blocks_that_come_back_are_entries_with_the_stack_of_the_call(self):
        first = self.captured(5 * MIB)
        state = self.state()
        del first
        record(stacks="python")
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        allocated = entries(0, "alloc")
        for entry in allocated:
            torch._C._cuda_cudaCachingAllocator_raw_delete(entry["addr"])
        self.assertTrue(allocated)
        for entry in allocated:
            self.assertIn("test_blocks_that_come_back", entry["frames"][0]["name"])

    def test_an_empty_state_frees_everything(self):
        def count():
            return torch.cuda.memory_stats()["allocation.all.current"]

        state = self.state_of_nothing()
        kept = self.captured(MIB, 4 * MIB)
        # Less those of the pool: from 2.12 on each graph keeps blocks for random numbers, too.
        others = count() - len(kept)
        self.put_back(state, stale=kept)
        self.assertEqual(self.live(), {})
        kept.clear()
        self.assertEqual(count(), others)

    def state_of_nothing(self):
        for one in self.captured():
            del one
        return self.state()

    def test_what_the_state_holds_must_be_told(self):
        state = self.state_of_nothing()
        kept = self.captured(MIB)
        with self.assertRaisesRegex(RuntimeError, "stale tensors"):
            self.put_back(state)
        # PyTorch looks at what was freed for the state, and finds tensors that still think they own
        # it: the two kept ones, each of which is freed once more.
        warnings = written_by(kept.clear)
        self.assertEqual(warnings.count(" is free already"), 2, warnings)
        self.assertEqual(len(warnings.splitlines()), 2, warnings)
        self.assertEqual(self.live(), {})


class Rest(OnDevice):
    def test_benchmarking_convolutions(self):
        torch.backends.cudnn.benchmark = True
        try:
            convolution = nn.Conv2d(3, 4, 3).cuda()
            out = convolution(torch.ones(1, 3, 8, 8, device="cuda"))
            self.assertEqual(out.shape, (1, 4, 6, 6))
        finally:
            torch.backends.cudnn.benchmark = False
        del convolution, out

    def test_the_profiler_sees_memory(self):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            block = empty(5 * MIB)
            del block
        cuda = torch.autograd.DeviceType.CUDA
        sizes = [one.nbytes() for one in seen.profiler.kineto_results.events()
                 if one.name() == "[memory]" and one.device_type() == cuda]
        self.assertEqual(sizes, [5 * MIB, -5 * MIB])

    def test_what_is_not_the_allocators(self):
        with self.assertRaisesRegex(RuntimeError, "invalid device pointer"):
            torch.cuda.caching_allocator_delete(0x1234000)

    def test_without_caching_memory_is_the_drivers_own(self):
        held = simulated.physical_bytes()
        torch.cuda.caching_allocator_enable(False)
        try:
            kept = empty(5 * MIB)
            self.assertEqual(torch.cuda.memory_allocated(), 0)
            self.assertGreaterEqual(simulated.physical_bytes() - held, 5 * MIB)
            other = empty(MIB)
            del other
            address = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, 0)
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)
            with self.assertRaisesRegex(torch.OutOfMemoryError, "caching turned off"):
                empty(9 * GIB)
        finally:
            torch.cuda.caching_allocator_enable(True)
        # It remembers whose it is.
        del kept
        self.assertEqual(simulated.physical_bytes(), held)
        empty(8 * MIB)
        self.assertGreater(torch.cuda.memory_reserved(), 0)

    def test_raw_memory_goes_as_it_came_while_caching_is_off(self):
        include, libraries = (Path(torch.__file__).with_name(name) for name in ("include", "lib"))
        standard = "c++20" if numbers(torch.__version__) >= CXX20 else "c++17"
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "raw.so")
            subprocess.run(
                ["c++", f"-std={standard}", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-o", made,
                 f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
                 f"-isystem{include}", f"-L{libraries}", "-lc10"], input="""
                #include <c10/core/Allocator.h>
                extern "C" void takes_and_gives(size_t bytes) {
                    c10::Allocator* cuda = c10::GetAllocator(c10::DeviceType::CUDA);
                    cuda->raw_deallocate(cuda->raw_allocate(bytes));
                }""", text=True, check=True)
            takes_and_gives = ctypes.CDLL(str(made)).takes_and_gives
        torch.cuda.caching_allocator_enable(False)
        held = simulated.physical_bytes()
        try:
            for _ in range(3):
                takes_and_gives(ctypes.c_size_t(5 * MIB))
        finally:
            torch.cuda.caching_allocator_enable(True)
        self.assertEqual(simulated.physical_bytes(), held)

    def test_of_a_stream_of_pytorchs_own_the_driver_is_asked_nothing(self):
        side, asked = torch.cuda.Stream(), []

        def request():
            with torch.cuda.stream(side):
                for _ in range(10):
                    empty(4096)

        def count():
            request()
            before = simulated.statistics()["functions"]
            request()
            after = simulated.statistics()["functions"]
            asked.extend(name for name in ("cuStreamGetId", "cuStreamIsCapturing")
                         if after.get(name) != before.get(name))

        count()
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        self.assertEqual(asked, [])

    def test_what_waits_for_all_streams_is_counted(self):
        def count():
            return torch.cuda.memory_stats()["num_sync_all_streams"]

        empty(8 * MIB)
        before = count()
        torch.cuda.empty_cache()
        self.assertEqual(count(), before + 1)
        torch.cuda.reset_accumulated_memory_stats()
        self.assertEqual(count(), 0)

    def test_figures_of_an_untouched_device_open_nothing(self):
        self.assertEqual(torch.cuda.memory_stats(1)["num_ooms"], 0)

    def test_a_history_and_trackers_open_no_device_that_nobody_uses(self):
        # As each rank of a node has them: a context takes hundreds of MiB of the device.
        done = python("""
            import torch, drystone, simulated
            drystone.enable(route="compiled")
            kept = torch.ones(10, device="cuda:0")
            # It follows memory, to register it.
            torch.distributed.init_process_group(
                "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1,
                device_id=torch.device("cuda:0"))
            torch.cuda.memory._record_memory_history()
            torch.cuda.memory._snapshot()
            torch.cuda.memory._record_memory_history(None)
            torch.cuda.memory._record_memory_history()
            print([one["context_bytes"] >> 20 for one in simulated.statistics()["devices"]])
            later = torch.ones(10, device="cuda:1")
            print([entry["action"] for entry in
                   torch.cuda.memory._snapshot()["device_traces"][1]])
            torch.distributed.destroy_process_group()
        """, SIMCUDA_CONF="memory:8GiB,devices:2,context:300MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "[300, 0]\n['segment_map', 'alloc']\n")


if __name__ == "__main__":
    sys.exit(unittest.main())
