"""Two processes share a device. The first has freed three quarters of it and holds them unused;
the second asks for half of it.
https://github.com/verl-project/verl/pull/5384

Device: memory:8GiB,shared:FILE,oracle:true
"""
import subprocess
import sys

import torch
from common import block, is_served, say_refused

_, total = torch.cuda.mem_get_info()
if sys.argv[1:] == ["second"]:
    sys.exit(0 if is_served(total / 2) else 1)
del (first := [block(total * 3 / 4)])[:]
torch.cuda.synchronize()
second = subprocess.run([sys.executable, __file__, "second"])
say_refused(second.returncode + (not is_served(total / 3)))
