"""Whether physical memory goes to another process as it is: its maker exports, releases and ends,
and who imported it maps it with its contents; whether that may be exported again, and what it
takes beside creating it.

Prints a row for each size of handle, and one of what came of them.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import socket
import subprocess
import sys

from cuda import MIB, Address, Cuda, skip, spread, tell

SIZES = (2 * MIB, 32 * MIB, 128 * MIB)
COUNT = 24
POSIX_FD = 1
WORD = 0xD5


def maker() -> None:
    """Makes memory, sends what leads to it, releases it, and ends."""
    cuda, sender = Cuda(), socket.socket(fileno=int(sys.argv[2]))
    created, exported = [], []
    for size in SIZES:
        start = cuda.reserve(size)
        for _ in range(COUNT):
            handle, took = cuda.create(size)
            created.append((size, took))
            cuda.map(start, size, handle)
            cuda.set_access(start, size)
            cuda("cuMemsetD8_v2", Address(start), WORD, ctypes.c_size_t(size))
            cuda("cuCtxSynchronize")
            cuda.unmap(start, size)
            number = ctypes.c_int()
            exported.append(cuda.timed("cuMemExportToShareableHandle", ctypes.byref(number),
                                       handle, POSIX_FD, ctypes.c_ulonglong(0)))
            cuda.release(handle)
            socket.send_fds(sender, [size.to_bytes(8, "little")], [number.value])
            os.close(number.value)
    print(json.dumps([created, exported]))


def taken(cuda: Cuda, receiver: socket.socket) -> tuple[int, Address, float, int]:
    """Size, handle and time of an import, and what an export of that would return."""
    message, numbers, _, _ = socket.recv_fds(receiver, 8, 1)
    handle, number = Address(), ctypes.c_int()
    took = cuda.timed("cuMemImportFromShareableHandle", ctypes.byref(handle),
                      ctypes.c_void_p(numbers[0]), POSIX_FD)
    os.close(numbers[0])
    again = cuda.code("cuMemExportToShareableHandle", ctypes.byref(number), handle, POSIX_FD,
                      ctypes.c_ulonglong(0))
    if again == 0:
        os.close(number.value)
    return int.from_bytes(message, "little"), handle, took, again


def is_whole(cuda: Cuda, size: int, handle: Address) -> bool:
    """Whether the first and the last bytes are what the maker wrote."""
    start, edge = cuda.reserve(size), 4096
    cuda.map(start, size, handle)
    cuda.set_access(start, size)
    read = array.array("B", bytes(edge))
    place = (ctypes.c_ubyte * edge).from_buffer(read)
    wrong = 0
    for at in (start, start + size - edge):
        cuda("cuMemcpyDtoH_v2", place, Address(at), ctypes.c_size_t(edge))
        wrong += sum(one != WORD for one in read)
    cuda.unmap(start, size)
    cuda.release_addresses(start, size)
    return wrong == 0


def main() -> None:
    cuda = Cuda()
    cuda.must_serve_several()
    if not cuda.attribute(103):
        skip("the device shares no memory by descriptors")
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = subprocess.Popen([sys.executable, "-B", __file__, "maker", str(sender.fileno())],
                             stdout=subprocess.PIPE, text=True, pass_fds=[sender.fileno()])
    sender.close()
    received = [taken(cuda, receiver) for _ in range(len(SIZES) * COUNT)]
    created, exported = json.loads(child.communicate()[0])
    # Its maker has ended by now.
    wrong = sum(not is_whole(cuda, size, handle) for size, handle, _, _ in received)
    for size in SIZES:
        tell({"MiB": size // MIB,
              **spread([took for of, took in created if of == size], "create us"),
              **spread([took for of, _, took, _ in received if of == size], "import us")})
    before = cuda.free_bytes()
    for _, handle, _, _ in received:
        cuda.release(handle)
    tell({"handles": len(received), "contents wrong": wrong, **spread(exported, "export us"),
          "exported again": sum(again == 0 for *_, again in received),
          "MiB free again": (cuda.free_bytes() - before) // MIB})
    if wrong and not cuda.is_simulated():
        sys.exit(f"{wrong} handles lost what their maker had written")


if __name__ == "__main__":
    maker() if sys.argv[1:2] == ["maker"] else main()
