"""What a program reads where there is no memory: the right cause first, then who holds most."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

import torch
from torch import nn

import drystone
from drystone import _holders, _library, _shortage
from native_device import OnDevice, empty, entries, record
from support import GIB, MIB, answer, since


def runtime():
    """CUDA's runtime, as a library beside PyTorch calls it."""
    version = torch.version.cuda.split(".")[0]
    packages = Path(torch.__file__).parents[1]
    [library, *_] = packages.glob(f"nvidia/*/lib/libcudart.so.{version}")
    return ctypes.CDLL(str(library))


# A thread is refused memory, and has the reason told, while the caller waits for it.
WAITS = """
    #include <pthread.h>
    typedef int (*allocate_fn)(void **, unsigned long, int, void *);
    typedef unsigned long (*shortage_fn)(int, unsigned long, char *, unsigned long);
    static allocate_fn allocate; static shortage_fn tell; static char *text; static unsigned long size;
    static void *is_refused(void *unused) {
        void *block = 0;
        if (allocate(&block, 1UL << 40, 0, 0) != 0) tell(0, 1UL << 40, text, size);
        return block;
    }
    int waits_for_a_refusal(void *a, void *t, char *to, unsigned long bytes) {
        pthread_t thread; void *block = &thread;
        allocate = (allocate_fn)a; tell = (shortage_fn)t; text = to; size = bytes;
        pthread_create(&thread, 0, is_refused, 0);
        pthread_join(thread, &block);
        return block != 0;
    }
"""


class Taken:
    """Memory that PyTorch knows nothing of."""

    def __init__(self, size):
        self._address = ctypes.c_void_p()
        assert runtime().cudaMalloc(ctypes.byref(self._address), ctypes.c_size_t(size)) == 0

    def give_back(self):
        runtime().cudaFree(self._address)


def refusal(size, device="cuda"):
    """What a request that cannot be served raises."""
    try:
        empty(size, device)
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"{size} bytes were there")


class Causes(OnDevice):
    """Each stages one reason. Devices have 8 GiB."""

    def setUp(self):
        super().setUp()
        _shortage._next_s = 0.0
        self.kept = []

    def tearDown(self):
        self.kept.clear()
        gc.collect()
        super().tearDown()

    def keep(self, *sizes, device="cuda"):
        self.kept += [empty(size, device) for size in sizes]

    def assert_cause(self, words, text):
        self.assertRegex(text, r"^CUDA out of memory\. Tried to allocate [0-9.]+ \w+\. " + words)

    def test_01_in_use(self):
        self.keep(6 * GIB)
        self.assert_cause("Use a smaller batch, or free 1.00 GiB more", refusal(3 * GIB))

    def test_02_larger_than_the_device(self):
        self.assert_cause("The request is larger than the device", refusal(9 * GIB))

    def test_03_larger_than_any_block(self):
        self.assert_cause("The request is larger than the device", refusal(1 << 50))

    def test_04_a_limit_of_what_is_in_use(self):
        self.keep(3 * GIB // 2)
        torch.cuda.set_per_process_memory_fraction(0.25)
        self.assert_cause("The limit of 2.00 GiB stands in the way", refusal(GIB))

    def test_05_larger_than_the_limit(self):
        torch.cuda.set_per_process_memory_fraction(0.25)
        text = refusal(3 * GIB)
        self.assert_cause("The limit of 2.00 GiB .* set_per_process_memory_fraction", text)
        self.assertIn("2.00 GiB allowed; Of the allocated", text)

    def graph(self, size):
        """Leaves a graph's pool with so much that is free."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            empty(size)
            self.kept.append(empty(MIB))
        self.kept.append(graph)

    def test_06_free_in_a_graphs_pool(self):
        self.graph(5 * GIB)
        self.assert_cause("5.00 GiB are free in private pools", refusal(4 * GIB))

    def test_07_free_in_a_graphs_pool_under_a_limit(self):
        self.graph(3 * GIB)
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assert_cause("3.00 GiB are free in private pools", refusal(2 * GIB))

    def test_08_a_limit_that_graphs_pools_would_not_meet(self):
        self.graph(GIB)
        self.keep(2 * GIB)
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assert_cause("The limit of 4.00 GiB", refusal(3 * GIB))

    @since(2, 8)
    def test_09_free_in_a_users_pool(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.keep(5 * GIB, MIB)
        del self.kept[0]
        self.assert_cause("5.00 GiB are free in private pools", refusal(4 * GIB))

    @since(2, 8)
    def test_10_pieces_of_the_pool_that_is_asked(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.pieces()
            self.assert_cause("3.[0-9]+ GiB are free in the private pool that was asked",
                              refusal(4 * GIB))

    def test_11_pieces_that_live_blocks_keep(self):
        self.pieces()
        self.assert_cause("3.[0-9]+ GiB are unused, in pieces that live blocks", refusal(4 * GIB))

    def pieces(self):
        """Every granule is half in use."""
        blocks = [empty(5 * MIB // 4) for _ in range(5000)]
        self.kept += blocks[::2]

    def test_12_pieces_under_a_limit(self):
        self.pieces()
        torch.cuda.set_per_process_memory_fraction(7 / 8)
        self.assert_cause("3.[0-9]+ GiB are unused, in pieces", refusal(3 * GIB))

    def test_13_pinned_pieces(self):
        self.pieces()
        with drystone.pin_mapping(self.kept[0]):
            self.assert_cause(".* in pieces .* pinned and do not move", refusal(4 * GIB))

    def capture(self, size):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                return refusal(size)
            finally:
                graph.capture_end()

    def test_14_cached_while_a_graph_is_captured(self):
        self.keep(6 * GIB)
        self.kept.clear()
        self.assert_cause("A graph is being captured", self.capture(4 * GIB))

    def test_15_in_use_while_a_graph_is_captured(self):
        self.keep(6 * GIB)
        self.assert_cause("Use a smaller batch, or free at least 2.00 GiB more",
                          self.capture(4 * GIB))

    def test_16_held_beside_pytorch(self):
        taken = Taken(5 * GIB)
        try:
            self.keep(GIB)
            text = refusal(5 * GIB // 2)
            self.assert_cause("Most of the device, 5.00 GiB, is held by other processes, or", text)
            self.assertIn("Beside PyTorch: this process 5.00 GiB", text)
        finally:
            taken.give_back()

    def test_17_larger_than_what_others_leave(self):
        taken = Taken(6 * GIB)
        try:
            self.assert_cause("The request is larger than the 2.00 GiB .* 6.00 GiB held outside",
                              refusal(3 * GIB))
        finally:
            taken.give_back()

    def test_18_another_device(self):
        self.keep(7 * GIB, device="cuda:1")
        text = refusal(2 * GIB, "cuda:1")
        self.assert_cause("Use a smaller batch, or free 1.00 GiB more", text)
        self.assertIn("GPU 1 has a total capacity of 8.00 GiB of which 1024.00 MiB is free", text)

    def test_19_cached_for_other_streams_is_no_reason(self):
        for _ in range(3):
            with torch.cuda.stream(torch.cuda.Stream()):
                empty(5 * GIB // 2)
        self.keep(8 * GIB)

    def test_20_used_by_another_stream_is_no_reason(self):
        side = torch.cuda.Stream()
        for _ in range(3):
            empty(5 * GIB // 2).record_stream(side)
        self.keep(8 * GIB)

    def test_21_missing_beside_what_is_cached(self):
        self.keep(2 * GIB)
        empty(5 * GIB)
        self.assert_cause("Use a smaller batch, or free at least 1.00 GiB more", refusal(7 * GIB))

    def test_22_pinned_beside_too_little(self):
        blocks = [empty(64 * MIB) for _ in range(120)]
        pins = [drystone.pin_mapping(block) for block in blocks[::2]]
        self.kept += blocks[::2]
        del blocks
        text = refusal(5 * GIB)
        for pin in pins:
            pin.unpin()
        self.assert_cause("Use a smaller batch, or free at least 768.00 MiB more .* 3.75 GiB are "
                          "pinned and do not move", text)

    def test_23_free_in_pieces_of_a_graphs_pool(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            blocks = [empty(size * MIB) for _ in range(30) for size in (100, 2)]
            self.kept += blocks[1::2]
            del blocks
        self.kept.append(graph)
        self.keep(3 * GIB)
        self.assert_cause("2.9[0-9] GiB are free in private pools", refusal(3 * GIB))

    @since(2, 8)
    def test_24_in_use_in_a_users_pool(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.keep(7 * GIB)
        self.assert_cause("Use a smaller batch, or free 1.00 GiB more", refusal(2 * GIB))

    def test_25_pinned_host_memory_is_no_reason(self):
        self.kept.append(torch.empty(GIB, dtype=torch.uint8, pin_memory=True))
        self.keep(6 * GIB)
        self.assert_cause("Use a smaller batch, or free 1.00 GiB more", refusal(3 * GIB))


class Holders(OnDevice):
    def setUp(self):
        super().setUp()
        # The tests before may have taken their time.
        _shortage._next_s = 0.0

    def test_kinds(self):
        model = nn.Linear(1024, 1024, bias=False).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        kept = empty(3 * MIB)
        text = refusal(9 * GIB)
        self.assertRegex(
            text, "By kind: parameters 4.00 MiB, gradients 4.00 MiB, optimizer state 8.00 MiB, "
            "everything else, such as activations, 3.[0-9]+ MiB.")
        del model, optimizer, kept

    def test_tags_the_most_first(self):
        few, many = empty(MIB), empty(3 * MIB)
        drystone.tag(few, "few")
        drystone.tag(many, "many")
        self.assertIn("By tag: many 3.00 MiB, few 1.00 MiB.", refusal(9 * GIB))
        del few, many
        self.assertNotIn("By tag", refusal(9 * GIB))

    def test_lines_while_history_is_recorded(self):
        self.assertNotIn("Held most", refusal(9 * GIB))
        _shortage._next_s = 0.0
        record(stacks="python", context="state")
        kept = empty(5 * MIB)
        self.assertRegex(
            refusal(9 * GIB),
            r"Held most: 5.00 MiB at [^;]*on_device.py:\d+ empty \(1 blocks\)")
        # What was looked at for that is no snapshot of the program's.
        self.assertEqual([entry["action"] for entry in entries()], [
            "segment_map", "alloc", "oom"])
        del kept

    def test_what_an_exception_keeps(self):
        def fail(size):
            scratch, _batch = empty(size), [empty(MIB)]
            raise ValueError(scratch)

        try:
            fail(GIB)
        except ValueError as error:
            error.args = ()
            text = refusal(9 * GIB)
        self.assertRegex(
            text, r"1.00 GiB are in variables of functions that an exception ended, ValueError at "
            r"[^ ]*test_shortage.py:\d+ fail, as long as it is kept")
        _shortage._next_s = 0.0
        # The handler is over, and the exception with it.
        self.assertNotIn("exception", refusal(9 * GIB))
        try:
            fail(MIB)
        except ValueError:
            _shortage._next_s = 0.0
            self.assertNotIn("exception", refusal(9 * GIB))

    def test_what_the_handler_keeps_is_told_right_after_another_refusal(self):
        def fails():
            scratch = empty(GIB)
            empty(9 * GIB)
            del scratch

        def fails_in_another():
            try:
                fails()
            except torch.OutOfMemoryError:
                raise KeyError

        text = "1.00 GiB are in variables of functions that an exception ended, OutOfMemoryError at"
        for fail in (fails, fails_in_another):
            with mock.patch.object(_shortage, "_next_s", float("inf")):
                try:
                    fail()
                except (torch.OutOfMemoryError, KeyError):
                    self.assertIn(text, refusal(9 * GIB))
                self.assertNotIn("exception", refusal(9 * GIB))

    def test_no_code_of_the_program_runs_to_tell(self):
        class Proxy:
            def __getattr__(self, name):
                raise AssertionError(name)

            @property
            def __class__(self):
                raise AssertionError("class")

        def fails():
            proxy, kept = Proxy(), empty(16 * MIB)
            raise RuntimeError(f"with {id(proxy)} and {id(kept)}")

        try:
            fails()
        except RuntimeError as error:
            raised = error
        self.assertEqual(_holders.kept_by(_holders.exceptions(), 0)[0].held, 16 * MIB)
        del raised

    def test_a_signal_meanwhile_reaches_the_program(self):
        def ends(number, frame):
            raise SystemExit(number)

        def takes_long(*_):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
            return []

        before = signal.signal(signal.SIGTERM, ends)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        _shortage._next_s = 0.0
        with mock.patch.object(_shortage, "_sentences", takes_long), self.assertRaises(SystemExit):
            refusal(9 * GIB)

    def test_whoever_has_pythons_lock_may_wait_for_the_thread_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "waits.so")
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", made, "-lpthread"],
                           input=WAITS, text=True, check=True)
            # Keeps Python's lock, as functions of extensions do unless they let it go.
            waits = ctypes.PyDLL(str(made)).waits_for_a_refusal
        began_s = time.monotonic()
        library, text = _library.library(), ctypes.create_string_buffer(4096)
        functions = (ctypes.cast(function, ctypes.c_void_p) for function in (
            library.drystone_allocate, library.drystone_torch_shortage))
        self.assertEqual(waits(*functions, text, ctypes.c_size_t(len(text))), 0)
        self.assertIn(b"Tried to allocate 1024.00 GiB", text.value)
        self.assertLess(time.monotonic() - began_s, 60)
        # For a while nobody is asked.
        self.assertNotIn("By kind", refusal(9 * GIB))

    def test_no_compiler_of_the_programs_frames_sees_what_is_told(self):
        told = answer(sys.executable, "-B", "-c", textwrap.dedent("""
            import json, torch, drystone
            drystone.enable()
            from torch._dynamo.utils import counters

            @torch._dynamo.disable(recursive=False)
            def fails():
                return torch.empty(1 << 42, dtype=torch.uint8, device="cuda")

            @torch.compile(backend="eager")
            def step(x, is_last):
                y = x + 1
                torch._dynamo.graph_break()
                return fails() if is_last else y

            x = torch.nn.Linear(4, 4).cuda()(torch.ones(2, 4, device="cuda"))
            step(x, False)
            before = counters["frames"]["total"]
            try:
                step(x, True)
            except torch.OutOfMemoryError as error:
                print(json.dumps(["By kind" in str(error), counters["frames"]["total"] - before]))
        """))
        self.assertEqual(told[0], True)
        # Those of the program's own: of the package there would be more than a hundred.
        self.assertLess(told[1], 6)

    def test_telling_takes_a_small_share_of_the_time(self):
        model = nn.Linear(64, 64).cuda()
        texts = [refusal(9 * GIB) for _ in range(5)]
        self.assertIn("By kind", texts[0])
        self.assertNotIn("By kind", texts[1])
        del model

    def test_a_refusal_counts_once(self):
        torch.cuda.reset_accumulated_memory_stats()
        kept = empty(GIB)
        for _ in range(3):
            refusal(15 * GIB // 2)
        figures = torch.cuda.memory_stats()
        self.assertEqual(figures["num_ooms"], 3)
        self.assertLessEqual(figures["num_alloc_retries"], 3)
        del kept


if __name__ == "__main__":
    sys.exit(unittest.main())
