"""Two processes with allocators of two kinds: one sends tensors, the other writes into them.

    sharing.py SENDER RECEIVER

Kernels compute nothing on the simulated device, so every byte goes by copies.
"""

import gc
import json
import os
import queue
import sys
import warnings

import torch
import torch.multiprocessing

MIB = 1 << 20
SIZES = [100, 700 << 10, 5 * MIB, 30 * MIB, 90 * MIB]


def become(kind):
    if kind == "expandable":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A newer name is not in older versions.
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    elif kind != "native":
        import drystone
        backend = "malloc" if kind == "plain" else "vmm"
        drystone.enable(route="compiled", backend=backend, **(
            {"prefer": "memory"} if kind == "remapping" else {}))


def pattern(size, seed):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(256, (size,), dtype=torch.uint8, generator=numbers)


def on_device(size, seed):
    return torch.empty(size, dtype=torch.uint8, device="cuda").copy_(pattern(size, seed))


def is_pattern(tensor, seed):
    return bool(torch.equal(tensor.cpu(), pattern(tensor.numel(), seed)))


def churn(kept):
    """Fills and frees the device so that a later request needs pieces from everywhere."""
    pieces = [torch.empty(6 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
    del pieces[::2]
    large = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda").fill_(0)
    del pieces, large
    torch.cuda.empty_cache()
    return all(is_pattern(tensor, seed) for seed, tensor in enumerate(kept))


def receive(kind, tensors, answers):
    become(kind)
    torch.cuda.init()
    free_before = torch.cuda.mem_get_info()[0]
    try:
        received = [tensors.get(timeout=60) for _ in SIZES]
        halves = [tensors.get(timeout=60) for _ in range(2)]
    except RuntimeError as error:
        answers.put({"error": str(error)})
        return
    seen = [is_pattern(tensor, seed) for seed, tensor in enumerate(received)]
    addresses = [half.data_ptr() - half.storage_offset() for half in halves]
    answers.put({"seen": seen, "one storage": addresses[0] == addresses[1]})
    tensors.get(timeout=60)  # The sender has moved memory about.
    seen = [is_pattern(tensor, seed) for seed, tensor in enumerate(received)]
    for seed, tensor in enumerate(received):
        tensor.copy_(pattern(tensor.numel(), 100 + seed))
    torch.cuda.synchronize()
    answers.put({"seen": seen})
    tensors.get(timeout=60)  # The sender has looked.
    del received, tensor, halves
    gc.collect()
    answers.put({"kept": free_before - torch.cuda.mem_get_info()[0]})


def open_descriptors():
    """Those that lead to memory of the simulated device."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += "memfd:drystone-sim" in os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            pass  # It was the folder's own.
    return found


def note_forms():
    """The kinds of texts that are sent, as they come to be."""
    share, forms = torch.storage.TypedStorage._share_cuda_, set()

    def noted(storage, *rest):
        shared = share(storage, *rest)
        forms.add("c" if len(shared[1]) == 64 else shared[1][1:2].decode())
        return shared
    torch.storage.TypedStorage._share_cuda_ = noted
    return forms


def answer_of(child, answers):
    """The receiver's next answer; an error where it ended without one."""
    while True:
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            if not child.is_alive():
                raise SystemExit(f"the receiver ended with {child.exitcode}") from None


def send(kind, receiver):
    become(kind)
    forms = note_forms()
    context = torch.multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(receiver, tensors, answers))
    child.start()
    kept = [on_device(size, seed) for seed, size in enumerate(SIZES)]
    for tensor in kept:
        tensors.put(tensor)
    whole = on_device(4 * MIB, 50)
    tensors.put(whole[:MIB])
    tensors.put(whole[MIB:])
    found = {"answers": [answer_of(child, answers)]}
    if "error" not in found["answers"][0]:
        found["unmoved"] = churn(kept)
        tensors.put(0)
        found["answers"].append(answer_of(child, answers))
        found["written"] = [is_pattern(tensor, 100 + seed) for seed, tensor in enumerate(kept)]
        tensors.put(0)
        found["answers"].append(answer_of(child, answers))
    child.join()
    found["exit"] = child.exitcode
    del kept, tensor, whole
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    found["reserved"] = torch.cuda.memory_reserved()
    torch.cuda.mem_get_info()  # Looks for what is not held any more.
    found["forms"] = sorted(forms)
    found["descriptors"] = open_descriptors()
    print(json.dumps(found))


if __name__ == "__main__":
    send(*sys.argv[1:])
