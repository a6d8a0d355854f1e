"""Libraries beside PyTorch, as NCCL and cuBLAS, that ask the runtime or the driver for memory while
Drystone holds nearly all of it unused: by every route they get it."""

import json
import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from support import run

# What a library asks for, by the runtime and by the driver; 0 is success, 2 out of memory. The last
# is the runtime's last error.
ASKS = """
    import ctypes, json, torch
    free, _ = torch.cuda.mem_get_info()
    blocks = [torch.empty(int(free * 0.19), dtype=torch.uint8, device="cuda") for _ in range(5)]
    keep = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    LIVE = blocks if IS_FULL else keep
    del blocks
    asked, address, handle = ctypes.c_size_t(int(free * 0.3)), ctypes.c_void_p(), ctypes.c_void_p()
    maps = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart.so" in line]
    runtime, driver = ctypes.CDLL(maps[0]), ctypes.CDLL("libcuda.so.1")
    found = [runtime.cudaMalloc(ctypes.byref(address), asked), runtime.cudaGetLastError()]
    found.append(driver.cuMemAlloc_v2(ctypes.byref(address), asked))
    lookup = ctypes.c_void_p()
    driver.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(lookup), 12000, ctypes.c_uint64(0), None)
    by_lookup = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(lookup.value)
    # The fourth finds nothing unused.
    found.append(by_lookup(ctypes.byref(address), int(free * 0.3)))
    found.append(by_lookup(ctypes.byref(address), int(free * 0.3)))
    print(json.dumps([torch.cuda.get_allocator_backend(), *found]))
"""
ONE_DEVICE = {"SIMCUDA_CONF": "memory:8GiB,oracle:true"}
RUN = [sys.executable, "-B", "-c", "import drystone.__main__ as m; m.run()"]
MODULE = [sys.executable, "-B", "-m", "drystone"]
BESIDE = [0, 0, 0, 0, 2]


def program(is_full=False):
    return textwrap.dedent(ASKS.replace("IS_FULL", str(is_full)))


PRELOADED = str(Path(os.environ["DRYSTONE_LIBRARY"]).with_name("libdrystone_preload.so"))


class Libraries(unittest.TestCase):
    def told(self, *command, **changes):
        done = run(*command, **{**ONE_DEVICE, **changes})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_started_as_a_module(self):
        self.assertEqual(self.told(*MODULE, "-c", program()), ["drystone", *BESIDE])

    def test_started_as_a_module_by_the_plug_in(self):
        told = self.told(*MODULE, "--route", "plugin", "-c", program())
        self.assertEqual(told, ["pluggable", *BESIDE])

    def test_started_as_any_command(self):
        told = self.told(*RUN, "env", "A=b", sys.executable, "-B", "-c", program())
        self.assertEqual(told, ["drystone", *BESIDE])

    def test_beside_another_library_that_is_preloaded(self):
        self.assertEqual(
            self.told(*MODULE, "-c", program(), LD_PRELOAD="libm.so.6"), ["drystone", *BESIDE])

    def test_what_is_in_use_is_not_given(self):
        told = self.told(*MODULE, "-c", program(is_full=True))
        self.assertEqual(told, ["drystone", 2, 2, 2, 2, 2])

    def test_a_capture_is_not_broken(self):
        code = textwrap.dedent("""
            import ctypes, json, torch
            free, _ = torch.cuda.mem_get_info()
            static, address = torch.ones(1 << 20, device="cuda"), ctypes.c_void_p()
            block = torch.empty(int(free * 0.8), dtype=torch.uint8, device="cuda")
            del block
            driver, graph = ctypes.CDLL("libcuda.so.1"), torch.cuda.CUDAGraph()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # A `with` of PyTorch's would empty the cache before.
                graph.capture_begin(capture_error_mode="relaxed")
                static.add_(1)
                captured = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(free // 2))
                graph.capture_end()
            graph.replay()
            after = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(free // 2))
            print(json.dumps([captured, after]))
        """)
        enabled = f"import torch, drystone\ndrystone.enable()\n{code}"
        for command in ([*MODULE, "-c", code], [sys.executable, "-B", "-c", enabled]):
            self.assertEqual(self.told(*command), [2, 0])

    def test_code_that_a_kernel_needs_is_loaded(self):
        """The first launch of a kernel of PyTorch's own, on a device that is full."""
        told = self.told(*MODULE, "-c", textwrap.dedent("""
            import json, torch
            free, _ = torch.cuda.mem_get_info()
            other = torch.ones(1000, device="cuda")
            blocks = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(110)]
            try:
                while True:
                    blocks.append(torch.empty(16 << 20, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                pass
            del blocks
            other.sin_()
            side = torch.cuda.Stream()
            event = torch.cuda.Event()
            event.record(side)
            torch.cuda.synchronize()
            print(json.dumps(torch.cuda.get_allocator_backend()))
        """), SIMCUDA_CONF="memory:8GiB,driver_room:64MiB")
        self.assertEqual(told, "drystone")

    def test_enabled_by_itself(self):
        for route in ("compiled", "plugin"):
            enabled = f"import torch, drystone\ndrystone.enable(route={route!r})\n"
            told = self.told(sys.executable, "-B", "-c", enabled + program())
            backend = "drystone" if route == "compiled" else "pluggable"
            self.assertEqual(told, [backend, *BESIDE])

    def test_live_memory_stays_where_a_stream_was_made_before(self):
        code = """
            import ctypes, torch, drystone
            driver, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
            context = ctypes.c_void_p()
            def use():
                assert driver.cuInit(0) == 0
                assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
                assert driver.cuCtxSetCurrent(context) == 0
                assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
            %s
            drystone.enable(route="compiled")
            kept = []
            while True:
                try:
                    kept.append(torch.empty(12 << 20, dtype=torch.uint8, device="cuda"))
                except torch.OutOfMemoryError:
                    break
            del kept[1::2], kept[1::2]
            rest = torch.cuda.mem_get_info()[1] - len(kept) * (14 << 20)
            try:
                large = torch.empty(rest, dtype=torch.uint8, device="cuda")
                print("moves")
            except torch.OutOfMemoryError:
                print("stays")
        """
        for before, what in (("", "moves"), ("use()", "stays")):
            done = run(sys.executable, "-B", "-c", textwrap.dedent(code % before), **ONE_DEVICE)
            self.assertEqual((done.stdout, done.stderr), (what + "\n", ""))

    def test_the_log_says_which_libraries_get_it(self):
        """One that has found the driver before does not, and is named."""
        with tempfile.TemporaryDirectory() as folder:
            early = Path(folder) / "libcufft.so"
            done = run("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(early), input="""
                #include <dlfcn.h>
                static void *found;
                __attribute__((constructor)) static void find(void) {
                    found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
                }
            """)
            self.assertEqual(done.returncode, 0, done.stderr)
            code = textwrap.dedent("""
                import ctypes, logging, sys, torch, drystone
                logging.basicConfig(filename="/dev/stdout", level=logging.INFO, format="%(message)s")
                [ctypes.CDLL(library) for library in sys.argv[1:]]
                drystone.enable()
            """)
            said = [run(sys.executable, "-B", "-c", code, *libraries, **ONE_DEVICE)
                    for libraries in ([], [str(early)])]
        for done in said:
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^libraries get .* loaded later: libcu.*libcudart\.so")
            self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertNotIn("not lib", said[0].stdout)
        self.assertRegex(said[1].stdout, r"; not libcufft\.so, used before drystone\.enable\(\) ")


class Environment(unittest.TestCase):
    def test_a_library_that_serves_goes_on_serving(self):
        from drystone._hook import environment
        changed = environment({"LD_PRELOAD": PRELOADED}, None)
        told = changed["LD_PRELOAD"], changed.get("DRYSTONE_PRELOAD")
        self.assertEqual(told, (PRELOADED, None))
        self.assertEqual(environment({}, None)["LD_PRELOAD"], PRELOADED)
        changed = environment({"LD_PRELOAD": "libm.so.6"}, None)
        self.assertEqual(changed["LD_PRELOAD"], f"libm.so.6:{PRELOADED}")
        self.assertEqual(environment(changed, None)["LD_PRELOAD"], changed["LD_PRELOAD"])

    def test_programs_without_cuda_do_not_notice(self):
        done = run(*RUN, "sh", "-c", "echo $DRYSTONE_PRELOAD")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "gives-back\n", ""))


if __name__ == "__main__":
    sys.exit(unittest.main())
