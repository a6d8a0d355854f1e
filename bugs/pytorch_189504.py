"""The device is full; the block that fits was just freed, and another stream has yet to finish
with it. The same request succeeds when it is made again.
https://github.com/pytorch/pytorch/issues/189504

Device: memory:8GiB,kernel_us:200,oracle:true
"""
import torch
from common import GIB, block, is_served, say_refused, use

other, refused = torch.cuda.Stream(), 0
del (first := [block(7 * GIB)])[:]
for _ in range(10):
    # Parts of one segment, of which the small one stays.
    stays, large = block(GIB), block(6 * GIB)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        use(large)
    large.record_stream(other)
    del large
    refused += not is_served(6 * GIB)
    del stays
    torch.cuda.synchronize()
say_refused(refused)
