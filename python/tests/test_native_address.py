"""Storage that goes back to its address, with the compiled route."""

import sys
import unittest

import torch

from native_device import OnDevice, empty, entries, record
from support import segments_of, since


@since(2, 15)
class ExactAddress(OnDevice):
    def setUp(self):
        super().setUp()
        self.pool = torch.cuda.MemPool()

    def taken(self, *sizes):
        with torch.cuda.use_mem_pool(self.pool):
            return [empty(size) for size in sizes]

    def put_back(self, storage, address, size):
        with torch.cuda.use_mem_pool(self.pool):
            storage._resize_with_addr_(size, address)

    def test_what_was_given_up_comes_back_in_the_middle_of_a_free_block(self):
        storages = [one.untyped_storage() for one in self.taken(3729, 4017, 2738)]
        address = storages[1].data_ptr()
        for storage in storages:
            storage.resize_(0)
        record(context=None)
        self.put_back(storages[1], address, 4017)
        self.assertEqual((storages[1].data_ptr(), storages[1].nbytes()), (address, 4017))
        [segment] = segments_of(self.pool.id)
        states = [block["state"] for block in segment["blocks"]]
        self.assertEqual(states, ["inactive", "active_allocated", "inactive"])
        [entry] = entries(0, "alloc")
        self.assertEqual((entry["addr"], entry["size"]), (address, 4017))
        self.assertEqual(entry["internal_metadata"], "mallocWithAddress")
        other = self.taken(294)[0]
        self.assertNotEqual(other.data_ptr(), address)
        before = torch.cuda.memory_allocated()
        del storages, storage
        self.assertEqual(before - torch.cuda.memory_allocated(), 4096)

    def test_memory_in_use_is_not_given(self):
        kept, given_up = self.taken(4096, 2048)
        storage = given_up.untyped_storage()
        storage.resize_(0)
        with self.assertRaisesRegex(RuntimeError, "exact address"):
            self.put_back(storage, kept.data_ptr(), 4096)
        with self.assertRaisesRegex(RuntimeError, "exact address"):
            self.put_back(storage, kept.data_ptr() + (1 << 40), 4096)
        with self.assertRaisesRegex(RuntimeError, "aligned to kMinBlockSize"):
            self.put_back(storage, kept.data_ptr() + 1, 2048)

    def test_memory_of_another_stream_or_outside_of_pools_is_not_given(self):
        [block] = self.taken(4096)
        storage, address = block.untyped_storage(), block.data_ptr()
        storage.resize_(0)
        with self.assertRaisesRegex(RuntimeError, "under use_mem_pool"):
            storage._resize_with_addr_(4096, address)
        with torch.cuda.stream(torch.cuda.Stream()):
            with self.assertRaisesRegex(RuntimeError, "stream in use"):
                self.put_back(storage, address, 4096)
        self.put_back(storage, address, 4096)
        self.assertEqual(storage.data_ptr(), address)


if __name__ == "__main__":
    sys.exit(unittest.main())
