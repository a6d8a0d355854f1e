"""Streams that the program makes and ends without a word, between requests for memory.

    streams.py native|expandable|plugin|compiled

An allocator that keeps asking the driver about such a stream fails here, or ends the process.
"""

from __future__ import annotations

import ctypes
import json
import sys

from cuda import MIB
from train import begin

STREAMS = 20


def main() -> None:
    route = begin(sys.argv[1:])
    import torch
    torch.ones(1, device="cuda")
    cuda, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    for number in range(1, STREAMS + 1):
        if code := cuda.cuStreamCreate(ctypes.byref(stream), 1):
            raise RuntimeError(f"cuStreamCreate returned {code}")
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.value)):
            torch.empty(number * MIB, dtype=torch.uint8, device="cuda").fill_(1)
        torch.cuda.synchronize()
        if code := cuda.cuStreamDestroy_v2(stream):
            raise RuntimeError(f"cuStreamDestroy returned {code}")
        # More than is there: a miss on the default stream.
        torch.empty(2 * number * MIB, dtype=torch.uint8, device="cuda").fill_(2)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    print(json.dumps({"way": route, "streams": STREAMS,
                      "reserved MiB at the end": torch.cuda.memory_reserved() // MIB}))


if __name__ == "__main__":
    main()
