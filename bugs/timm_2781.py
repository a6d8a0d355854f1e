"""A loader copies the next batch on a stream of its own, and makes that stream anew each epoch.
Images have another size each epoch.
https://github.com/huggingface/pytorch-image-models/issues/2781

Device: memory:16GiB,kernel_us:20,oracle:true
"""
import random

import torch
from common import GIB, block, say_held, use

order = random.Random(2781)
weights = block(2 * GIB)
for _ in range(40):
    side = order.randrange(160, 288, 32)
    prefetch, usual = torch.cuda.Stream(), torch.cuda.current_stream()
    for _ in range(6):
        prefetch.wait_stream(usual)
        with torch.cuda.stream(prefetch):
            images = block(256 * 3 * side * side * 4)
            use(images)
        usual.wait_stream(prefetch)
        activations = [block(256 * 64 * side * side // 4) for _ in range(6)]
        use(*activations)
        # In order by the waits alone, as in the loader: nothing is recorded.
        images.add_(1)
        del activations
    # The loss of the epoch is read.
    torch.cuda.synchronize()
say_held()
