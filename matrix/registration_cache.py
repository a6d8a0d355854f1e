"""A registration cache (UCX, NIXL, Mooncake) keeps what it registered by address, also once it is
freed, and gives up the oldest when it is full. A network card then writes to memory that is no
longer there. Passes if the memory behind each registration is the one that was registered.
https://github.com/kvcache-ai/Mooncake/issues/2511

Device: memory:2300MiB,oracle:true
"""
import collections
import ctypes
import pathlib
import random
import subprocess
import tempfile

import torch
from common import MIB, block, judged, use

# Stands in for libibverbs; `behind` asks the driver itself, so that nobody else hears of it.
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
void *ibv_reg_mr(void *domain, void *address, size_t bytes, int access) { return malloc(48); }
int ibv_dereg_mr(void *region) { free(region); return 0; }
uint64_t behind(uint64_t address) {
    static int (*retain)(uint64_t *, uint64_t), (*release)(uint64_t);
    uint64_t handle = 0;
    retain = dlsym(RTLD_NEXT, "cuMemRetainAllocationHandle");
    release = dlsym(RTLD_NEXT, "cuMemRelease");
    return retain(&handle, address) ? 0 : (release(handle), handle);
}
"""
KEPT = 12


def stand_in():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "verbs.c").write_text(SOURCE)
    (driver,) = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").open()
                 if line.rstrip().endswith("libcuda.so.1")}
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-Wl,--no-as-needed", "-o",
                    folder / "verbs.so", folder / "verbs.c", driver, "-ldl"], check=True)
    library = ctypes.CDLL(str(folder / "verbs.so"))
    library.ibv_reg_mr.restype, library.behind.restype = ctypes.c_void_p, ctypes.c_uint64
    return library


torch.cuda.init()
verbs, cache = stand_in(), collections.OrderedDict()
with judged():
    sizes, live = random.Random(5), []
    for step in range(300):
        live.append(block(sizes.randrange(2, 200) * MIB))
        use(live[-1])
        while sum(one.numel() for one in live) > 1500 * MIB:
            del live[sizes.randrange(len(live) - 1)]
        start, size = live[-1].data_ptr(), live[-1].numel()
        pieces = range(start, start + size, 2 * MIB)
        if (start, size) not in cache:
            region = verbs.ibv_reg_mr(None, ctypes.c_void_p(start), ctypes.c_size_t(size), 7)
            cache[start, size] = region, [verbs.behind(ctypes.c_uint64(at)) for at in pieces]
        cache.move_to_end((start, size))
        if len(cache) > KEPT:
            region, _ = cache.popitem(last=False)[1]
            verbs.ibv_dereg_mr(ctypes.c_void_p(region))
        for (start, size), (_, registered) in cache.items():
            pieces = range(start, start + size, 2 * MIB)
            now = [verbs.behind(ctypes.c_uint64(at)) for at in pieces]
            assert now == registered, f"stale memory at step {step}"
