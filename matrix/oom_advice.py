"""The message of an out of memory advises to set `expandable_segments:True`, which is set.
Passes if the message does not advise what is on already, or has no effect.
https://github.com/pytorch/pytorch/issues/173049

Device: memory:2GiB
"""
import os

import torch
from common import GIB, block, judged

with judged():
    try:
        block(4 * GIB)
    except torch.OutOfMemoryError as error:
        said = "expandable_segments:True" in str(error)
        is_on = "expandable" in os.environ["PYTORCH_ALLOC_CONF"] or "drystone" in str(error).lower()
        assert not (said and is_on), "it advises expandable segments, which are on"
