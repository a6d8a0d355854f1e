"""Tensors in other processes: under Drystone on both sides, or on one."""

import struct
import sys
import unittest

from support import FOLDER, answer, python

CONF = "memory:2GiB,backing:true,strict:true"
LARGE = "memory:80GiB,backing:true,strict:true"  # Where handles are large.
PLACES = 5  # of sharing.py's tensors


class Exchange(unittest.TestCase):
    def exchange(self, sender, receiver, conf=CONF):
        script = str(FOLDER / "sharing.py")
        return answer(sys.executable, "-B", script, sender, receiver, SIMCUDA_CONF=conf)

    def works(self, sender, receiver, conf=CONF):
        found = self.exchange(sender, receiver, conf)
        first, second, last = found["answers"]
        self.assertEqual(first, {"seen": [True] * PLACES, "one storage": True})
        self.assertEqual(second, {"seen": [True] * PLACES}, "while the sender moved memory about")
        self.assertEqual(found["written"], [True] * PLACES)
        self.assertEqual(found["unmoved"], True)
        self.assertEqual(last, {"kept": 0})
        self.assertEqual(found["exit"], 0)
        self.assertEqual(found["reserved"], 0)
        return found

    def test_from_drystone_to_drystone(self):
        found = self.works("drystone", "drystone")
        self.assertEqual(found["descriptors"], 0)

    def test_handles_of_several_sizes_go_from_drystone_to_drystone(self):
        found = self.works("drystone", "drystone", LARGE)
        self.assertIn("d", found["forms"])

    def test_handles_of_several_sizes_are_refused_by_native_at_once(self):
        found = self.exchange("drystone", "native", LARGE)
        self.assertIn("shareable handle type", found["answers"][0]["error"])
        self.assertEqual(found["exit"], 0)

    def test_from_where_memory_is_remapped(self):
        found = self.works("remapping", "drystone")
        self.assertEqual((found["descriptors"], found["forms"]), (0, ["e"]))

    def test_from_drystone_to_native(self):
        self.works("remapping", "native")

    def test_from_drystone_to_expandable_segments(self):
        self.works("remapping", "expandable")

    def test_from_expandable_segments_to_drystone(self):
        found = self.works("expandable", "drystone")
        self.assertEqual(found["forms"], ["e"])

    def test_plain_memory_goes_by_the_drivers_own_handle(self):
        for sender, receiver in [("plain", "drystone"), ("native", "drystone"),
                                 ("plain", "native")]:
            with self.subTest(sender=sender, receiver=receiver):
                self.works(sender, receiver)


class AllReduce(unittest.TestCase):
    """Captured buffers of two ranks, by handles of the driver's old calls."""

    def works(self, route, conf=CONF):
        from drystone import _library
        found = answer(
            sys.executable, "-B", str(FOLDER / "all_reduce.py"), route, SIMCUDA_CONF=conf,
            LD_PRELOAD=_library.to_preload(), DRYSTONE_PRELOAD=_library.GIVES_BACK)
        self.assertEqual(found["exits"], [0, 0])
        for rank in found["answers"]:
            self.assertEqual(rank, {"seen": [True] * 5, "same": True, "handles": 4})

    def test_on_the_compiled_route(self):
        self.works("compiled")

    def test_where_handles_are_large(self):
        self.works("compiled", LARGE)

    def test_on_the_plug_in(self):
        self.works("plugin")

    def test_between_two_devices(self):
        self.works("compiled", f"{CONF},devices:2")


# Leaves live tensors apart, lets each be registered, and moves what may move.
REGISTER = """
    import ctypes, sys, torch, drystone
    drystone.enable(route="compiled")
    driver, how, tensors = ctypes.CDLL("libcuda.so.1"), HOW, []
    try:
        while True:
            tensors.append(torch.empty(12 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        tensors = tensors[7::16]
    for tensor in tensors:
        start, word = tensor.data_ptr(), ctypes.c_uint64(1)
        for at in range(start, start + tensor.numel(), 1 << 20) if how == "handle" else ():
            assert driver.cuMemRetainAllocationHandle(
                ctypes.byref(word), ctypes.c_void_p(at)) == 0
        if how == "attribute":
            assert driver.cuPointerSetAttribute(
                ctypes.byref(word), 6, ctypes.c_uint64(start)) == 0
    calls = ("cuMemRetainAllocationHandle", "cuPointerSetAttribute")
    told = [call for call in calls if f"known to others by {call}" in drystone.report()]
    print(drystone.compact() > 0, *told)
"""


class Registered(unittest.TestCase):
    def test_live_memory_that_a_library_registers_stays_where_it_is(self):
        from drystone import _library
        for how, *told in [("not", "True"), ("attribute", "False", "cuPointerSetAttribute"),
                           ("handle", "False", "cuMemRetainAllocationHandle")]:
            with self.subTest(how=how):
                done = python(
                    REGISTER.replace("HOW", repr(how)), SIMCUDA_CONF=CONF,
                    LD_PRELOAD=_library.to_preload(), DRYSTONE_PRELOAD=_library.GIVES_BACK)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.split(), told, done.stderr)

    def test_a_tensor_is_one_allocation_for_whoever_asks(self):
        from drystone import _library
        done = python(RANGE, SIMCUDA_CONF="memory:8GiB,backing:true",
                      LD_PRELOAD=_library.to_preload(), DRYSTONE_PRELOAD=_library.GIVES_BACK)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), ["True", "0", "True"], done.stderr)
        self.assertNotIn("drystone:", done.stderr)

    def test_no_part_of_a_captured_tensor_is_given_for_all_of_it(self):
        from drystone import _library
        done = python(CAPTURED, SIMCUDA_CONF="memory:8GiB", LD_PRELOAD=_library.to_preload(),
                      DRYSTONE_PRELOAD=_library.GIVES_BACK)
        self.assertEqual(done.stdout.split(), ["True", "0", "False", "1"], done.stderr)

    def test_what_a_library_keeps_in_place_is_told(self):
        from drystone import _library
        done = python(KEPT, SIMCUDA_CONF=CONF, LD_PRELOAD=_library.to_preload(),
                      DRYSTONE_PRELOAD=_library.GIVES_BACK)
        self.assertEqual(done.stdout.split(), ["False", "True", "False"], done.stderr)


# Asks for the handle of each tensor of a capture, as NCCL does to register what collectives use.
CAPTURED = """
    import ctypes, torch, drystone
    drystone.enable(route="compiled")
    driver, graph, found = ctypes.CDLL("libcuda.so.1"), torch.cuda.CUDAGraph(), []
    start, size, handle = (ctypes.c_uint64() for _ in range(3))
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        tensors = [torch.ones(mib << 20, dtype=torch.uint8, device="cuda") for mib in (2, 64)]
        for tensor in tensors:
            address, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel()
            assert driver.cuMemGetAddressRange_v2(
                ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address)) == 0
            status = driver.cuMemRetainAllocationHandle(ctypes.byref(handle), start)
            found += [start.value + size.value >= end, status]
    print(*found)
"""

# Maps the handle at a tensor's address elsewhere, over the range that the driver tells, as NCCL.
RANGE = """
    import ctypes, torch, drystone
    drystone.enable(route="compiled")
    driver = ctypes.CDLL("libcuda.so.1")
    start, size, handle, room = (ctypes.c_uint64() for _ in range(4))
    tensors = [torch.empty(mib << 20, dtype=torch.uint8, device="cuda").copy_(
        torch.arange(mib << 20, dtype=torch.int32).to(torch.uint8)) for mib in (7, 64, 200)]
    kept, failed, nothing = [tensor.cpu() for tensor in tensors], 0, ctypes.c_uint64(0)
    for tensor in tensors:
        address, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel()
        failed |= driver.cuMemGetAddressRange_v2(
            ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address))
        failed |= not start.value <= address < end <= start.value + size.value
        failed |= driver.cuMemRetainAllocationHandle(ctypes.byref(handle), start)
        failed |= driver.cuMemAddressReserve(ctypes.byref(room), size, nothing, nothing, nothing)
        failed |= driver.cuMemMap(room, size, nothing, handle, nothing)
        driver.cuMemUnmap(room, size)
        driver.cuMemAddressFree(room, size)
        driver.cuMemRelease(handle)
    print(all(torch.equal(one.cpu(), other) for one, other in zip(tensors, kept)), int(failed),
          "known to others by cuMemGetAddressRange" in drystone.report())
"""


# NVSHMEM's calls by a stand-in: what report() tells before, between and after.
KEPT = """
    import ctypes, subprocess, tempfile, torch, drystone
    drystone.enable(route="compiled")
    folder = tempfile.mkdtemp()
    source = "".join(f"int nvshmemx_buffer_{one}(void *address) {{ return 0; }}"
                     for one in ("register", "unregister"))
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", f"{folder}/stand-in.so", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    library = ctypes.CDLL(f"{folder}/stand-in.so")
    tensor = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
    place = ctypes.c_void_p(tensor.data_ptr())
    def is_told():
        return "24.00 MiB kept in place by nvshmemx_buffer_register, 1 ranges" in drystone.report()
    print(is_told())
    library.nvshmemx_buffer_register(place, ctypes.c_size_t(tensor.numel()))
    del tensor
    print(is_told())
    library.nvshmemx_buffer_unregister(place)
    print(is_told())
"""


# Makes a tensor's text, and opens one as a receiver does.
OPEN = """
    import json, os, struct, sys, torch, drystone
    drystone.enable(route="compiled")
    def text_of(tensor):
        return tensor.untyped_storage()._share_cuda_()
    def open_text(text, size=1 << 20):
        device, _, _, _, *counters, _ = text_of(kept)
        # Without its event, which cannot be opened where it was made.
        torch.UntypedStorage._new_shared_cuda(device, text, size, 0, *counters, False)
    kept = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    def refusal(text):
        try:
            open_text(text)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return "opened"
"""


# Opens one, and is killed.
RECEIVER = """
import os, signal, sys, torch, drystone
drystone.enable(route="compiled")
got = torch.UntypedStorage._new_shared_cuda(*eval(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


class Refusals(unittest.TestCase):
    def answers(self, code, **changes):
        # What is no text of a sender's may lead to calls that no correct program makes.
        done = python(OPEN + code, SIMCUDA_CONF="memory:2GiB,backing:true", **changes)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_text_that_is_not_known_is_refused_at_once(self):
        said = self.answers("""
    whole = text_of(kept)[1]
    print(refusal(whole))
    for text in [b"e", whole[:-1], whole + b"x", whole[:2], b"\\x01z" + whole[2:],
                 b"\\x03" + whole[1:], b"\\x01d" + whole[2:], bytes(63)]:
        print(refusal(text))
    for process in [2 ** 22, 0]:
        print(refusal(whole[:2] + struct.pack("<i", process) + whole[6:]))
    print(refusal(whole[:-4] + struct.pack("<i", 100_000)))
    print(refusal(whole[:-4] + struct.pack("<i", 0)))
    print(refusal(whole[:10] + struct.pack("<Q", 6 << 20) + whole[18:]))
    print(refusal(whole[:18] + struct.pack("<Q", 2 ** 62) + whole[26:]))
        """).splitlines()
        self.assertEqual(said[0], "opened")
        self.assertEqual(len(said), 15, said)
        self.assertNotIn("opened", said[1:])
        text = "\n".join(said)
        for part in ["cut off", "has a form that is not known: 'z'", "PyTorch 2.13 or later",
                     "The process has ended.", "It has freed the tensor"]:
            self.assertIn(part, text)

    def test_memory_that_is_not_made_to_be_shared_says_what_to_do(self):
        said = self.answers("""
    try:
        text_of(kept)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
        """, DRYSTONE_CONF="shareable:false")
        self.assertIn("this memory cannot be shared with another process", said)
        self.assertIn("say shareable:true", said)

    def test_a_receiver_that_goes_away_leaves_the_sender_whole(self):
        said = self.answers("""
    command = [sys.executable, "-c", os.environ["RECEIVER"], repr(text_of(kept))]
    child = os.posix_spawn(sys.executable, command, os.environ)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    kept.fill_(0)
    large = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print(torch.cuda.memory_allocated() >> 20)
        """, RECEIVER=RECEIVER).splitlines()
        self.assertEqual(said, ["-9", "1025"])


if __name__ == "__main__":
    unittest.main()
