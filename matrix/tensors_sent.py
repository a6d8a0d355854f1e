"""`torch.multiprocessing` sends tensors to a spawned process, and gets others back, with the events
that order them. Passes if both sides open what they get.
https://github.com/NVIDIA-NeMo/RL/issues/2471

Device: memory:4GiB,shared:FILE
"""
import torch
from common import MIB, judged


def other(there, back):
    got = there.get(timeout=30)
    got.add_(1)
    own = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    back.put(own)
    there.get(timeout=30)
    del got


if __name__ == "__main__":
    with judged():
        context = torch.multiprocessing.get_context("spawn")
        there, back = context.Queue(), context.Queue()
        child = context.Process(target=other, args=(there, back), daemon=True)
        child.start()
        sent = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda").add_(1)
        event = torch.cuda.Event(interprocess=True)
        event.record()
        event.ipc_handle()
        there.put(sent)
        got = back.get(timeout=30)
        assert got.numel() == 64 * MIB, "another tensor came back"
        got.add_(1)
        del got
        there.put(None)
        child.join()
        assert child.exitcode == 0, f"the other process ended with {child.exitcode}"
