"""Live memory that moves together behind its addresses, with the compiled route."""

import ctypes
import gc
import threading
import time
import unittest

import torch

import drystone
from on_device import OnDevice

if not drystone.is_enabled():
    drystone.enable(route="compiled")

MIB = 1 << 20


class Moves(OnDevice):
    def tearDown(self):
        super().tearDown()
        torch.cuda.empty_cache()

    def sparse(self):
        """Fills the device, and keeps one tensor in 16."""
        tensors = []
        try:
            while True:
                tensors.append(torch.empty(12 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        kept = tensors[7::16]
        for at, tensor in enumerate(kept):
            # A copy from the host: kernels of the simulated device write nothing.
            tensor.copy_(torch.full((12 * MIB,), at % 251, dtype=torch.uint8))
        return kept

    def check(self, kept, addresses):
        self.assertEqual([tensor.data_ptr() for tensor in kept], addresses)
        for at, tensor in enumerate(kept):
            self.assertEqual(tensor[5 * MIB].item(), at % 251)
            self.assertEqual(tensor[-1].item(), at % 251)

    def test_a_request_is_served_by_what_lies_unused_between_live_tensors(self):
        kept = self.sparse()
        addresses = [tensor.data_ptr() for tensor in kept]
        side = torch.cuda.Stream()
        # Nothing was allocated there, when Drystone hears of it first.
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[0].add_(0)
        total = torch.cuda.mem_get_info()[1]
        rest = total - sum(14 * MIB for _ in kept)
        large = torch.empty(rest, dtype=torch.uint8, device="cuda")
        self.check(kept, addresses)
        del large

    def test_beside_a_stream_that_is_not_pytorchs(self):
        made = ctypes.c_void_p()
        non_blocking = 1
        driver = ctypes.CDLL("libcuda.so.1")
        self.assertEqual(driver.cuStreamCreate(ctypes.byref(made), non_blocking), 0)
        stream = torch.cuda.ExternalStream(made.value)
        with torch.cuda.stream(stream):
            own = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        kept = self.sparse()
        kept[0].record_stream(stream)
        addresses = [tensor.data_ptr() for tensor in kept]
        rest = torch.cuda.mem_get_info()[1] - sum(14 * MIB for _ in kept) - 20 * MIB
        large = torch.empty(rest, dtype=torch.uint8, device="cuda")
        self.check(kept, addresses)
        del kept, large, own
        self.assertEqual(driver.cuStreamDestroy_v2(made), 0)

    @unittest.skipIf(torch.cuda.device_count() < 2, "needs two devices")
    def test_another_device_copies_to_it_meanwhile(self):
        kept = self.sparse()
        addresses = [tensor.data_ptr() for tensor in kept]
        sources = [tensor.to("cuda:1") for tensor in kept]
        side, is_over, copies = torch.cuda.Stream(device="cuda:1"), threading.Event(), []

        def copy():
            with torch.cuda.stream(side):
                while not is_over.is_set():
                    for tensor, source in zip(kept, sources):
                        tensor[:MIB].copy_(source[:MIB])
                    copies.append(None)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            while len(copies) < 2:
                time.sleep(0.001)
            total = torch.cuda.mem_get_info()[1]
            rest = total - sum(14 * MIB for _ in kept)
            large = torch.empty(rest, dtype=torch.uint8, device="cuda")
        finally:
            is_over.set()
            thread.join()
        self.check(kept, addresses)
        del large

    def test_empty_cache_leaves_what_live_tensors_touch(self):
        kept = self.sparse()
        addresses = [tensor.data_ptr() for tensor in kept]
        gc.collect()
        torch.cuda.empty_cache()
        held = torch.cuda.memory_reserved()
        self.assertLessEqual(held, sum(14 * MIB for _ in kept))
        self.check(kept, addresses)

    def test_by_hand(self):
        kept = self.sparse()
        addresses = [tensor.data_ptr() for tensor in kept]
        self.assertGreater(drystone.compact(), 0)
        self.assertEqual(drystone.compact(), 0)
        self.check(kept, addresses)


if __name__ == "__main__":
    unittest.main()
