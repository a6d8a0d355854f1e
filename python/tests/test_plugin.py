"""What the plug-in alone does: which streams it asks the driver about, and what it says of profiles.

Memory is waited for on the device: of PyTorch's own streams, and of those that the program made,
whose end is seen. Where a device is nearly full, a call with a stream that is gone would end the
process.
"""

import sys
import unittest

from support import python


class StreamsThatEnd(unittest.TestCase):
    def waits_of_the_host(self, make, end=""):
        done = python(f"""
            import ctypes, torch, drystone, simulated
            drystone.enable(route="plugin", prefer="memory")
            def empty(mib): return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
            kept, runtime, handle = empty(20), torch.cuda.cudart(), ctypes.c_size_t()
            {make}
            for _ in range(2):
                with torch.cuda.stream(stream):
                    empty(150)
            {end}
            before = simulated.calls_of("cuCtxSynchronize")
            empty(200)
            print(simulated.calls_of("cuCtxSynchronize") - before, simulated.violation_count())
        """, SIMCUDA_CONF="memory:256MiB,strict:true,oracle:true,kernel_us:20")
        self.assertEqual(done.returncode, 0, done.stderr)
        waits, violations = done.stdout.split()
        self.assertEqual(violations, "0")
        return int(waits)

    def test_pytorchs_own_are_asked(self):
        self.assertEqual(self.waits_of_the_host("stream = torch.cuda.Stream()"), 0)
        self.assertEqual(self.waits_of_the_host("stream = torch.cuda.Stream(priority=-1)"), 0)

    def test_they_are_also_after_a_use_was_recorded(self):
        make = "stream = torch.cuda.Stream(); kept.record_stream(stream)"
        self.assertEqual(self.waits_of_the_host(make), 0)

    def test_the_programs_own_are_too_whose_end_is_seen(self):
        make = """assert runtime.cudaStreamCreate(ctypes.addressof(handle)).value == 0
            stream = torch.cuda.ExternalStream(handle.value)"""
        end = "assert runtime.cudaStreamDestroy(handle.value).value == 0"
        self.assertEqual(self.waits_of_the_host(make, end), 0)
        self.assertEqual(self.waits_of_the_host(make), 0)


class Profiles(unittest.TestCase):
    def test_that_memory_is_missing_is_said_once(self):
        done = python("""
            import torch, drystone
            drystone.enable(route="plugin")
            for _ in range(2):
                with torch.profiler.profile(profile_memory=True):
                    torch.empty(100, device="cuda")
            with torch.profiler.profile():
                torch.empty(100, device="cuda")
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("no memory events"), 1, done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
