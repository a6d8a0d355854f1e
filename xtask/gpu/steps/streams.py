"""Streams that the program makes and ends without a word, between requests for memory.

    streams.py native|expandable|plugin|compiled [STREAMS]

An allocator that keeps asking the driver about such a stream fails here, or ends the process. Tells
what was reserved at most, and the processor time of each request by tenths of the way: streams that
are gone should cost nothing.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

from cuda import MIB
from train import begin

TENTHS = 10
SIZE = 200 * MIB


class Streams:
    """Each is the program's own, and gone at the end of its block."""

    def __init__(self) -> None:
        self.cuda, self.handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

    def call(self, name: str, *arguments: object) -> None:
        if code := getattr(self.cuda, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")

    def once(self, size: int) -> float:
        """Processor time of a request and its free there, in microseconds."""
        import torch
        self.call("cuStreamCreate", ctypes.byref(self.handle), 1)
        with torch.cuda.stream(torch.cuda.ExternalStream(self.handle.value)):
            start = time.thread_time()
            kept = torch.empty(size, dtype=torch.uint8, device="cuda")
            del kept
            took = (time.thread_time() - start) * 1e6
        torch.cuda.synchronize()
        self.call("cuStreamDestroy_v2", self.handle)
        return took


def main() -> None:
    route = begin(sys.argv[1:])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    import torch
    torch.ones(1, device="cuda")
    streams = Streams()
    for number in range(1, 21):
        streams.once(number * MIB)
        # More than is there: a miss on the default stream.
        torch.empty(2 * number * MIB, dtype=torch.uint8, device="cuda").fill_(2)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    us = [sum(streams.once(SIZE) for _ in range(count // TENTHS)) / (count // TENTHS)
          for _ in range(TENTHS)]
    peak = torch.cuda.max_memory_reserved() // MIB
    torch.cuda.empty_cache()
    print(json.dumps({"way": route, "streams": count, "reserved MiB, peak": peak,
                      "us a request, by tenths": [round(one, 2) for one in us],
                      "reserved MiB at the end": torch.cuda.memory_reserved() // MIB}))


if __name__ == "__main__":
    main()
