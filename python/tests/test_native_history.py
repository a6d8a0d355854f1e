"""History with the compiled route: entries, stacks, and that they add up to what is held."""

import contextlib
import io
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
from torch import nn
from torch.cuda import _memory_viz

import simulated
from native_device import OnDevice, empty, entries, record
from support import FOLDER, MIB, since

GRANULE = 2 * MIB
VIEWER = FOLDER.parents[1] / "crates/tools/trace/tests/memory_viz.py"


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
            # Before 2.8 it is not told.
            self.assertEqual(entry.get("compile_context", "N/A"), "N/A")
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
        del kept

    def test_no_stack_outlives_a_block_where_those_of_live_blocks_alone_are_wanted(self):
        for context in ("state", "all"):
            record("all", stacks="python", context=context)
            block = empty(5 * MIB)
            del block
            told = str(torch.cuda.memory._snapshot()["segments"])
            self.assertEqual("test_no_stack_outlives" in told, context == "all", context)
            record(None)
            torch.cuda.empty_cache()

    @since(2, 8)
    def test_a_history_is_cleared(self):
        record("all", context="alloc", stacks="python")
        kept = empty(5 * MIB)
        self.assertTrue(any(entry.get("frames") for entry in entries()))
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
        # The rest of its handle is beside it.
        self.assertEqual(states[:1], ["active_pending_free"])
        side.synchronize()
        other = empty(30 * MIB)
        # The snapshots that were taken are entries, too.
        found = [entry["action"] for entry in entries() if entry["action"] != "snapshot"]
        self.assertEqual(found, ["segment_map", "alloc", "free_requested", "free_completed",
                                 "segment_map", "alloc"])
        del other

    def test_a_pending_block_knows_where_it_was_allocated(self):
        record(stacks="python")
        side = torch.cuda.Stream()
        block = empty(4 * MIB)
        simulated.launch(side, 50_000_000)
        block.record_stream(side)
        del block
        [pending] = [block for segment in torch.cuda.memory_snapshot()
                     for block in segment["blocks"] if block["state"] == "active_pending_free"]
        self.assertEqual(pending["frames"][0]["name"], "empty")
        side.synchronize()

    def test_a_free_block_has_the_size_that_was_asked_for_there_last(self):
        def blocks():
            [segment] = torch.cuda.memory_snapshot()
            return segment["requested_size"], [one["requested_size"] for one in segment["blocks"]]

        record()
        for size in (5 * MIB - 700, 3 * MIB - 300):
            block = empty(size)
            self.assertEqual(blocks(), (size, [size, 0][:len(blocks()[1])]))
            del block
            self.assertEqual(blocks(), (0, [size]))
        record(None)
        self.assertEqual(blocks(), (0, [0]))

    def test_memory_is_what_its_entries_add_up_to(self):
        """Threads and streams near the end of a device's memory, with pools and recorded uses."""
        kept = [empty(3 * MIB), empty(100)]
        torch.cuda.set_per_process_memory_fraction(0.125)
        record(context=None, max_entries=10**6)
        before = torch.cuda.memory._snapshot()
        streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(2))]
        workers = [threading.Thread(target=churn, args=(seed, streams)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        del kept[0]
        after = torch.cuda.memory._snapshot()
        held, live, pending = granules(before), blocks(before, "active_allocated"), {}
        for entry in after["device_traces"][0]:
            action, size = entry["action"], entry["size"]
            address = entry.get("addr", 0)
            pieces = set(range(address // GRANULE * GRANULE, address + size, GRANULE))
            if action in ("segment_map", "segment_alloc"):
                self.assertFalse(pieces & held, entry)
                held |= pieces
            elif action in ("segment_unmap", "segment_free"):
                self.assertLessEqual(pieces, held, entry)
                self.assertFalse([one for one in {**live, **pending} if one // GRANULE * GRANULE
                                  in pieces], entry)
                held -= pieces
            elif action == "alloc":
                self.assertLessEqual(pieces, held, entry)
                self.assertNotIn(address, {**live, **pending})
                live[address] = size
            elif action == "free_requested":
                self.assertEqual(live.pop(address), size)
                pending[address] = size
            elif action == "free_completed":
                self.assertEqual(pending.pop(address), size)
        self.assertEqual(held, granules(after))
        self.assertEqual(live, blocks(after, "active_allocated"))
        self.assertEqual(set(pending), set(blocks(after, "active_pending_free")))
        actions = {entry["action"] for entry in after["device_traces"][0]}
        self.assertLessEqual({"segment_map", "segment_unmap", "oom", "free_completed"}, actions)

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

    @since(2, 10)
    def test_annotations_and_metadata(self):
        record(context=None)
        with torch.autograd.profiler.record_function("a step"):
            pass
        torch.cuda.memory._set_memory_metadata("first")
        self.assertEqual(torch.cuda.memory._get_memory_metadata(), "first")
        kept = empty(100)
        # Of this thread alone.
        others = []
        thread = threading.Thread(target=lambda: others.append(empty(200)))
        thread.start()
        thread.join()
        torch.cuda.memory._set_memory_metadata("")
        texts = [entry["user_metadata"] for entry in entries(0, "alloc")]
        self.assertEqual(texts, ["first", ""])
        del kept, others

    @since(2, 14)
    def test_a_block_is_annotated_after_its_request(self):
        record(context=None)
        kept = empty(100)
        torch._C._cuda_annotateMemory(kept.data_ptr(), "of no use")
        with self.assertRaisesRegex(RuntimeError, "no live allocation"):
            torch._C._cuda_annotateMemory(kept.data_ptr() + (1 << 30), "of nothing")
        [entry] = entries(0, "annotate")
        self.assertEqual((entry["addr"], entry["size"], entry["user_metadata"]),
                         (kept.data_ptr(), 100, "of no use"))
        del kept

    @since(2, 15)
    def test_settings_of_pinned_memory_are_pytorchs_own(self):
        def told():
            settings = torch.cuda.memory._snapshot()["allocator_settings"]
            return settings["max_round_threshold"], settings["max_cached_size"]

        self.assertEqual(told(), (-1, -1))
        torch._C._accelerator_setAllocatorSettings("pinned_max_round_threshold_mb:128")
        self.assertEqual(told(), (128 * MIB, -1))

    def test_devices_have_traces_of_their_own(self):
        record(context=None)
        there = empty(100, "cuda:1")
        self.assertEqual(entries(0), [])
        self.assertEqual([entry["action"] for entry in entries(1)][:2], ["segment_map", "alloc"])
        del there

    @since(2, 11)
    def test_actions_that_are_not_wanted(self):
        record(context=None, skip_actions=["free_requested", "free_completed"])
        empty(100)
        self.assertEqual([entry["action"] for entry in entries()], ["segment_map", "alloc"])


def granules(snapshot):
    """Every granule that is held."""
    return {piece for segment in snapshot["segments"] for piece in
            range(segment["address"], segment["address"] + segment["total_size"], GRANULE)}


def blocks(snapshot, state):
    """The blocks in a state, with what was asked for."""
    return {block["address"]: block["requested_size"] for segment in snapshot["segments"]
            for block in segment["blocks"] if block["state"] == state}


def churn(seed, streams):
    """Takes and gives memory of all sizes, on all streams, until there is none, and again."""
    choose, live = random.Random(seed), []
    for _ in range(250):
        if live and choose.random() < 0.45:
            live.pop(choose.randrange(len(live)))
            continue
        stream = choose.choice(streams)
        try:
            with torch.cuda.stream(stream):
                block = empty(int(2 ** choose.uniform(5, 28.5)))
        except torch.OutOfMemoryError:
            del live[::2]
            torch.cuda.empty_cache()
            continue
        simulated.launch(stream, choose.randrange(100, 20_000))
        if choose.random() < 0.3:
            block.record_stream(choose.choice(streams))
        live.append(block)


if __name__ == "__main__":
    sys.exit(unittest.main())
