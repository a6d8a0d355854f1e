"""What only native=True gives: history, observers, pools, checkpoints, with Drystone's memory.

Every test begins with a device that PyTorch holds nothing of, and ends without a violation.
"""

import contextlib
import gc
import io
import pickle
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.cuda import _memory_viz

import drystone
import simulated
from support import FOLDER, GIB, MIB

if not drystone.is_enabled():
    drystone.enable(native=True)

VIEWER = FOLDER.parents[1] / "crates/trace/tests/memory_viz.py"


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


class History(OnDevice):
    def test_entries_tell_sizes_streams_and_who_asked(self):
        record()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            block = empty(1000)
        address = block.data_ptr()
        del block
        found = entries()
        self.assertEqual([entry["action"] for entry in found],
                         ["segment_map", "alloc", "free_requested", "free_completed"])
        segment, *rest = found
        self.assertEqual((segment["addr"], segment["size"]), (address, 2 * MIB))
        for entry in rest:
            self.assertEqual((entry["addr"], entry["size"], entry["stream"]),
                             (address, 1000, side.cuda_stream))
            self.assertEqual(entry["compile_context"], "N/A")
        names = [frame["name"] for frame in rest[0]["frames"]]
        self.assertIn("empty", names)
        self.assertIn("test_entries_tell_sizes_streams_and_who_asked", names)
        times = [entry["time_us"] for entry in found]
        self.assertEqual(times, sorted(times))

    def test_only_the_newest_entries_are_kept(self):
        record(max_entries=10)
        for size in range(1, 21):
            empty(size)
        found = entries()
        self.assertEqual(len(found), 10)
        self.assertEqual([entry["size"] for entry in found if entry["action"] == "alloc"],
                         [18, 19, 20])
        self.assertEqual(found[-1]["action"], "free_completed")

    def test_contexts(self):
        record("state", stacks="python", context="state")
        kept = empty(5 * MIB)
        self.assertFalse(any(entry.get("frames") for entry in entries()))
        blocks = torch.cuda.memory_snapshot()[0]["blocks"]
        frames = next(one["frames"] for one in blocks if one["state"] == "active_allocated")
        self.assertIn("test_contexts", [frame["name"] for frame in frames])
        record(None)
        self.assertFalse(torch._C._cuda_isHistoryEnabled())
        record("all", context="alloc", stacks="python")
        other = empty(5 * MIB)
        del other
        with_frames = {entry["action"] for entry in entries() if entry.get("frames")}
        self.assertEqual(with_frames, {"segment_map", "alloc", "free_requested", "free_completed"})
        record("all", context=None, clear_history=True)
        other = empty(6 * MIB)
        self.assertFalse(any(entry.get("frames") for entry in entries()))
        del kept, other

    def test_a_pending_block_is_completed_when_it_is_free(self):
        record(context=None)
        side = torch.cuda.Stream()
        block = empty(4 * MIB)
        simulated.launch(side, 50_000_000)
        block.record_stream(side)
        del block
        self.assertEqual(entries()[-1]["action"], "free_requested")
        states = [block["state"] for segment in torch.cuda.memory_snapshot()
                  for block in segment["blocks"]]
        self.assertEqual(states, ["active_pending_free"])
        side.synchronize()
        other = empty(30 * MIB)
        # The snapshots that were taken are entries, too.
        found = [entry["action"] for entry in entries() if entry["action"] != "snapshot"]
        self.assertEqual(found, ["segment_map", "alloc", "free_requested", "free_completed",
                                 "segment_map", "alloc"])
        del other

    def test_memory_is_what_its_entries_add_up_to(self):
        before = [empty(3 * MIB), empty(100)]
        record(context=None)
        held = ranges()
        sizes = [size * MIB // 3 for size in (1, 7, 30, 2, 90, 12, 5)]
        blocks = {}
        for step in range(300):
            blocks[step % 11] = empty(sizes[step * step % 7])
            if step % 50 == 49:
                torch.cuda.empty_cache()
        del before, blocks[3]
        try:
            empty(9 * GIB)
        except torch.OutOfMemoryError:
            pass
        snapshot = torch.cuda.memory._snapshot()
        for entry in snapshot["device_traces"][0]:
            pieces = set(range(entry.get("addr", 0), entry.get("addr", 0) + entry["size"], 2 * MIB))
            if entry["action"] in ("segment_map", "segment_alloc"):
                self.assertFalse(pieces & held, entry)
                held |= pieces
            elif entry["action"] in ("segment_unmap", "segment_free"):
                self.assertLessEqual(pieces, held, entry)
                held -= pieces
            elif entry["action"] == "alloc":
                first = entry["addr"] // (2 * MIB) * 2 * MIB
                self.assertLessEqual(
                    set(range(first, entry["addr"] + entry["size"], 2 * MIB)), held, entry)
        self.assertEqual(held, ranges())
        actions = {entry["action"] for entry in snapshot["device_traces"][0]}
        self.assertLessEqual({"segment_map", "segment_unmap", "oom"}, actions)

    def test_every_view_of_memory_viz_opens_it(self):
        record()
        model = nn.Sequential(nn.Linear(300, 3000), nn.GELU(), nn.Linear(3000, 10)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        before = torch.cuda.memory._snapshot()
        for step in range(4):
            model(torch.ones(100 + step, 300, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.empty_cache()
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            torch.cuda.memory._dump_snapshot(file.name)
            done = subprocess.run(
                [sys.executable, str(VIEWER), _memory_viz.__file__, file.name],
                capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file.name, "rb") as written:
                snapshot = pickle.load(written)
        segments = snapshot["segments"]
        self.assertIn("MiB", _memory_viz.segsum(snapshot))
        self.assertIn("alloc", _memory_viz.trace(snapshot))
        # These are drawn by a script that is fetched, from the lines that are looked at here.
        def lines(text, flamegraph_script=None):
            return text

        self.assertIn("test_every_view_of_memory_viz_opens_it", _memory_viz.memory(snapshot, lines))
        self.assertIn("active_allocated", _memory_viz.segments(snapshot, lines))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertIn("only_after", _memory_viz.compare(before["segments"], segments, lines))
        for segment in segments:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]),
                             segment["total_size"])
        del model, optimizer

    def test_annotations_and_metadata(self):
        record(context=None)
        with torch.autograd.profiler.record_function("a step"):
            pass
        torch.cuda.memory._set_memory_metadata("first")
        self.assertEqual(torch.cuda.memory._get_memory_metadata(), "first")
        kept = empty(100)
        torch.cuda.memory._set_memory_metadata("")
        [alloc] = entries(0, "alloc")
        self.assertEqual(alloc["user_metadata"], "first")
        del kept

    def test_devices_have_traces_of_their_own(self):
        record(context=None)
        there = empty(100, "cuda:1")
        self.assertEqual(entries(0), [])
        self.assertEqual([entry["action"] for entry in entries(1)][:2], ["segment_map", "alloc"])
        del there

    def test_actions_that_are_not_wanted(self):
        record(context=None, skip_actions=["free_requested", "free_completed"])
        empty(100)
        self.assertEqual([entry["action"] for entry in entries()], ["segment_map", "alloc"])


def ranges():
    """Every granule that is held."""
    return {piece for segment in torch.cuda.memory_snapshot() for piece in
            range(segment["address"], segment["address"] + segment["total_size"], 2 * MIB)}


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

    def test_memory_that_was_given_back_is_a_retry(self):
        kept = [empty(5 * GIB)]
        kept.clear()
        with torch.cuda.stream(torch.cuda.Stream()):
            simulated.launch(torch.cuda.default_stream(), 1000)
            other = empty(6 * GIB)
        figures = torch.cuda.memory_stats()
        self.assertEqual(figures["num_ooms"], 0)
        del other

    def test_sizes_beyond_every_device(self):
        for size in (1 << 50, 1 << 61):
            with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate"):
                empty(size)


class Pools(OnDevice):
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

    def test_a_pool_lends_its_memory_where_there_is_no_other(self):
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            inside = empty(5 * GIB)
        del inside
        kept = empty(4 * GIB)
        self.assertEqual(torch.cuda.memory_allocated(), 4 * GIB)
        del kept, pool

    def test_only_the_thread_that_uses_a_pool_takes_from_it(self):
        import threading
        pool, others = torch.cuda.MemPool(), []
        with torch.cuda.use_mem_pool(pool):
            thread = threading.Thread(target=lambda: others.append(empty(8 * MIB)))
            thread.start()
            thread.join()
        self.assertEqual(pool.snapshot(), [])
        others.clear()
        del pool

    def test_graphs(self):
        pool = torch.cuda.graph_pool_handle()
        static = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            out = static * 2
        self.assertTrue(torch.cuda.memory_snapshot(pool))
        with self.assertRaisesRegex(torch.OutOfMemoryError, "allocated in private pools"):
            empty(8 * GIB)
        graph.replay()
        del graph, out, static

    def test_what_no_pool_can_be(self):
        with self.assertRaisesRegex(NotImplementedError, "no_split"):
            torch.cuda.MemPool(no_split=True)


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
                for segment in torch.cuda.memory_snapshot(self.pool)
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

    def test_an_empty_state_frees_everything(self):
        state = self.state_of_nothing()
        count = torch.cuda.memory_stats()["allocation.all.current"]
        kept = self.captured(MIB, 4 * MIB)
        self.put_back(state, stale=kept)
        self.assertEqual(self.live(), {})
        del kept
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.current"], count)

    def state_of_nothing(self):
        for one in self.captured():
            del one
        return self.state()

    def test_what_the_state_holds_must_be_told(self):
        state = self.state_of_nothing()
        kept = self.captured(MIB)
        with self.assertRaisesRegex(RuntimeError, "stale tensors"):
            self.put_back(state)
        del kept

    def test_cudagraphs_of_torch_compile(self):
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
        compiled = torch.compile(model, backend="cudagraphs")
        x = torch.ones(16, 64, device="cuda")
        held = []
        with torch.no_grad():
            for _ in range(6):
                torch.compiler.cudagraph_mark_step_begin()
                self.assertEqual(compiled(x).shape, (16, 8))
                torch.cuda.synchronize()
                held.append(torch.cuda.memory_reserved())
        self.assertEqual(len(set(held[3:])), 1, held)
        torch._dynamo.reset()
        del model, compiled, x


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
        with self.assertRaisesRegex(RuntimeError, "source=\"malloc\""):
            torch.ones(3, device="cuda").untyped_storage()._share_cuda_()

    def test_figures_of_an_untouched_device_open_nothing(self):
        self.assertEqual(torch.cuda.memory_stats(1)["num_ooms"], 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
