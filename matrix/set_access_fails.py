"""The driver refuses access while memory is mapped. With expandable segments every later request
then ends in an internal assertion. Passes if requests are served again once the driver works.
https://github.com/pytorch/pytorch/issues/188008

Device: memory:8GiB,oracle:true
"""
import torch
from common import MIB, block, fault, judged, use

with judged():
    kept = [block(30 * MIB)]
    for error in (2, 999):
        fault("cuMemSetAccess", error)
        try:
            kept.append(block(300 * MIB))
        except RuntimeError:
            pass
        for size in (1, 64, 400):
            kept.append(block(size * MIB))
        use(*kept)
        torch.cuda.empty_cache()
