"""What those who follow memory by its addresses are told with the compiled route, and when.

A tracker stays for as long as the process: these tests have one of their own.
"""

import ctypes
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

import simulated
from drystone import _native
from native_device import OnDevice, empty
from support import MIB, since

# It notes what it is told, and how much the device held by then.
TRACKER = """
    #include <c10/cuda/CUDACachingAllocator.h>
    #include <mutex>
    #include <vector>

    using c10::cuda::CUDACachingAllocator::TraceEntry;
    struct EntryRecord { int action; size_t address, bytes, pool, held; };
    static std::vector<EntryRecord> told;
    static std::mutex mutex;
    extern "C" size_t simcuda_physical_bytes(int device);

    extern "C" void follow() {
        c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
            std::lock_guard<std::mutex> lock(mutex);
            told.push_back({entry.action_, size_t(entry.addr_), entry.size_,
                            size_t(entry.mempool_.second), simcuda_physical_bytes(entry.device_)});
        });
    }
    extern "C" size_t count() { return told.size(); }
    extern "C" void take(EntryRecord* to) {
        std::copy(told.begin(), told.end(), to);
        told.clear();
    }
"""
COMES = {"segment_alloc", "segment_map"}
GOES = {"segment_free", "segment_unmap"}
# In the order of PyTorch's `TraceEntry::Action`.
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
           "segment_map", "segment_unmap", "snapshot", "oom")


class EntryRecord(ctypes.Structure):
    _fields_ = [("action", ctypes.c_int), *(
        (name, ctypes.c_size_t) for name in ("address", "bytes", "pool", "held"))]


def compiled():
    """The tracker's library, loaded."""
    packages = Path(torch.__file__).parent
    flags = [*_native.compiler(), *_native.flags(torch.__version__, True),
             "-fvisibility=default", f"-I{packages / 'include'}"]
    driver = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
                  if "libcuda.so" in line)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "tracker.cpp", Path(folder) / "tracker.so"
        source.write_text(TRACKER)
        subprocess.run([*flags, str(source), "-o", str(library), f"-L{packages / 'lib'}",
                        "-lc10_cuda", "-lc10", driver], check=True)
        return ctypes.CDLL(str(library))


class Trackers(OnDevice):
    @classmethod
    def setUpClass(cls):
        # What lies in idle windows by now comes into use again later.
        for _ in range(3):
            iteration()
        cls.tracker = compiled()
        cls.tracker.follow()
        # The first request tells who follows what is there.
        empty(MIB)

    def setUp(self):
        super().setUp()
        self.told()

    def told(self, *actions):
        """What was told since, of these actions or of segments."""
        room = (EntryRecord * self.tracker.count())()
        self.tracker.take(room)
        wanted = actions or COMES | GOES
        return [one for one in room if ACTIONS[one.action] in wanted]

    def test_blocks_are_told(self):
        block = empty(3 * MIB)
        address = block.data_ptr()
        del block
        told = [(ACTIONS[one.action], one.address, one.bytes)
                for one in self.told("alloc", "free_requested", "free_completed")]
        self.assertEqual(told, [(action, address, 3 * MIB) for action in
                                ("alloc", "free_requested", "free_completed")])

    def test_settled_iterations_tell_of_no_segment(self):
        for _ in range(3):
            iteration()
        self.assertTrue(self.told())
        calls = simulated.calls()
        for _ in range(10):
            iteration()
        self.assertEqual((simulated.calls() - calls, self.told()), (0, []))

    def test_what_goes_is_told_before_and_was_told_to_come(self):
        for _ in range(3):
            iteration()
        torch.cuda.empty_cache()
        told, there = self.told(), set()
        self.assertTrue(told)
        self.assertEqual(simulated.physical_bytes() % MIB, 0)
        for one in told:
            pages = set(range(one.address, one.address + one.bytes, 512))
            if ACTIONS[one.action] in COMES:
                self.assertFalse(pages & there)
                there |= pages
            else:
                self.assertLessEqual(pages, there)
                there -= pages
        self.assertFalse(there)
        first = next(one for one in told if ACTIONS[one.action] in GOES)
        self.assertGreaterEqual(first.held, 300 * MIB)

    def test_every_block_lies_where_memory_was_told_to_come(self):
        there = set()
        for _ in range(3):
            blocks = [empty(size * MIB) for size in (300, 8, 40)]
            for one in self.told():
                pages = set(range(one.address // 512, (one.address + one.bytes) // 512))
                there = there | pages if ACTIONS[one.action] in COMES else there - pages
            for block in blocks:
                start = block.data_ptr() // 512
                pages = set(range(start, start + block.nbytes // 512))
                self.assertLessEqual(pages, there)
            del blocks[0]
            blocks.append(empty(320 * MIB))
            blocks.clear()

    @since(2, 8)
    def test_memory_is_its_pools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = empty(8 * MIB)
        del inside
        number, actions = pool.id[1], COMES | GOES
        del pool
        torch.cuda.empty_cache()
        told = [(ACTIONS[one.action], one.pool) for one in self.told(*actions)]
        self.assertEqual({pool for _, pool in told}, {number})
        self.assertEqual({action for action, _ in told}, {"segment_map", "segment_unmap"})

    @since(2, 10)
    def test_plain_memory_comes_and_goes_as_a_whole(self):
        pool = torch.cuda.MemPool(no_split=True)
        with torch.cuda.use_mem_pool(pool):
            blocks = [empty(3 * MIB), empty(3 * MIB)]
        addresses = [one.data_ptr() for one in blocks]
        held = simulated.physical_bytes()
        del blocks, pool
        told = [(ACTIONS[one.action], one.address, one.bytes) for one in self.told()]
        came = [("segment_alloc", address, 4 * MIB) for address in addresses]
        self.assertEqual(told[:2], came)
        went = [("segment_free", address, 4 * MIB) for address in addresses]
        self.assertEqual(sorted(told[2:]), sorted(went))
        self.assertEqual(held - simulated.physical_bytes(), 8 * MIB)


def iteration():
    """Memory goes back and forth between two sizes."""
    large, kept = empty(300 * MIB), empty(8 * MIB)
    del large
    other = empty(320 * MIB)
    del other, kept


if __name__ == "__main__":
    sys.exit(unittest.main())
