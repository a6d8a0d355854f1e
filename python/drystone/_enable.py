"""Installing Drystone as PyTorch's allocator: compiled, or where that cannot be as a plug-in.

Invariant: everything that can stand in the way is looked at before anything is changed, since
PyTorch's allocator can be changed once, and not back.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from types import ModuleType

from . import _library
from ._errors import DrystoneError
from ._routes import ROUTES
from ._tell import tell
from ._version import OLDEST, check_version, name, numbers

# PyTorch's setter, and what it is given.
# `drystone_init` is none of them: it would say of every stream that it stays, and a program may
# destroy its own.
HOOKS = {
    "set_reset_fn": "drystone_reset",
    "set_memory_fraction_fn": "drystone_set_memory_fraction",
    "set_base_alloc_fn": "drystone_base_allocation",
    "set_record_stream_fn": "drystone_record_stream",
    "set_begin_allocate_to_pool": "drystone_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "drystone_end_allocate_to_pool",
    "set_release_pool": "drystone_release_pool",
}

# Up to 2.8 PyTorch forgets no address that a tensor had: what is later freed there by its address
# alone, such as a sort's scratch, comes with the tensor's size, device and stream.
REMEMBERS = (2, 9)

# Settings of PyTorch's own allocator that hold here too, are of host memory, or are always so.
FRACTION = "per_process_memory_fraction"
HONOURED = (
    "expandable_segments", "use_cuda_host_register", "release_lock_on_cudamalloc", FRACTION)
# What others are there for, and why it is so without them.
NOT_NEEDED = {
    "max_split_size_mb": "pieces of any size are put together again",
    "garbage_collection_threshold": "cached memory never stands in the way of a request",
}
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"

is_enabled = False
# What was settled, as `DRYSTONE_CONF` has it.
options_text = ""


def enable(
    options: Mapping[str, object], route: str | None = None, needs_device: bool = True,
) -> None:
    """See `drystone.enable`. Without a device nothing is looked for, and CUDA not touched."""
    global is_enabled, options_text
    if is_enabled:
        raise DrystoneError(
            "drystone.enable() was called before, and its options are settled: call it once, or "
            "leave it out where DRYSTONE_ENABLE is set")
    if route not in (None, *ROUTES):
        raise DrystoneError(
            f"there is no route {route!r}: choose one of {', '.join(ROUTES)}, or none")
    torch = _torch()
    _library.library()
    fraction = settings(os.environ).get(FRACTION)
    text = text_of(options) or os.environ.get("DRYSTONE_CONF", "")
    limited = with_fraction(text, fraction)
    if options or limited != text:
        _library.configure(limited)
    options_text = limited
    if needs_device:
        _check_devices(torch)
    shim = None if route == "plugin" else _compiled(torch, is_needed=route == "compiled")
    if shim is not None:
        from . import _native
        _native.install(shim, float(fraction or 1))
        is_enabled = True
    else:
        if limited:
            # What is wrong with them is said here, not by the first tensor.
            _library.configure(limited)
        _library.bind_to_torch()
        _install(torch)
        is_enabled = True
        from . import _parity
        _parity.install(torch, float(fraction or 1))
    from . import _shortage
    _shortage.install()
    told = told_of_settings(os.environ, is_plug_in=shim is None)
    if told:
        tell(f"settings of PyTorch's own allocator: {'; '.join(told)}")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What was set for PyTorch's own allocator. The older variable counts, as for PyTorch."""
    text = environment.get("PYTORCH_CUDA_ALLOC_CONF") or environment.get("PYTORCH_ALLOC_CONF", "")
    found = {}
    # Lists of numbers have colons and commas of their own, within brackets.
    for setting in re.sub(r"\[[^]]*\]", "", text).split(","):
        key, _, value = setting.strip().partition(":")
        if key:
            found[key] = value.strip()
    return found


def told_of_settings(environment: Mapping[str, str], is_plug_in: bool) -> list[str]:
    """Why settings that were made have no effect of their own, a clause each."""
    given = settings(environment)
    if given.get("backend") == "native":
        del given["backend"]
    keys = [key for key in given if not key.startswith("pinned_") and key not in HONOURED]
    told = [f"{key} is not needed, {NOT_NEEDED[key]}" for key in keys if key in NOT_NEEDED]
    unknown = [key for key in keys if key not in NOT_NEEDED]
    if is_plug_in and environment.get(NO_CACHING) is not None:
        unknown.append(NO_CACHING)
    if unknown:
        told.append(f"{', '.join(unknown)} without effect, see DRYSTONE_CONF for what there is")
    return told


def _compiled(torch: ModuleType, is_needed: bool) -> ctypes.CDLL | None:
    """What is compiled for this PyTorch; if it need not be there, a line says what is missing."""
    from . import _native
    try:
        return _native.load(torch)
    except DrystoneError as error:
        if is_needed:
            raise
        tell(f"enabled as a plug-in of PyTorch, without history, MemPool, trees of graphs and "
              f"tensors for other processes: {error}")
        return None


def with_fraction(text: str, fraction: str | None) -> str:
    """Options, with the fraction that PyTorch's own allocator was given, if none limits memory."""
    if fraction is None or "limit" in text:
        return text
    # Of nothing is no fraction that an option takes; a byte serves as little.
    limit = f"limit_fraction:{fraction}" if fraction.strip("0.") else "limit:1"
    return ",".join(part for part in (text, limit) if part)


def text_of(options: Mapping[str, object]) -> str:
    """Options as `DRYSTONE_CONF` has them."""
    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)
    return ",".join(f"{key}:{text(value)}" for key, value in options.items())


def _torch() -> ModuleType:
    """PyTorch, if it is one that can be used."""
    try:
        import torch
    except ImportError as error:
        raise DrystoneError(
            f"PyTorch cannot be imported ({error}): install torch {name(OLDEST)} or newer "
            "beside drystone") from error
    check_version(torch.__version__)
    if torch.version.cuda is None:
        raise DrystoneError(
            f"PyTorch {torch.__version__} is built without CUDA: install a CUDA build from "
            "pytorch.org, or do not enable drystone")
    if torch.cuda.is_initialized():
        raise DrystoneError(
            "CUDA is in use already: call drystone.enable() right after importing torch, before "
            "the first tensor or query on a GPU, or start the program by python -m drystone")
    return torch


def _check_devices(torch: ModuleType) -> None:
    # Asks the monitor where it can, so that children may still be forked.
    if torch.cuda.device_count() == 0:
        raise DrystoneError(
            "there is no GPU, or no driver for it: see whether nvidia-smi lists one and whether "
            "CUDA_VISIBLE_DEVICES hides it, or do not enable drystone here")


def _install(torch: ModuleType) -> None:
    # The second one takes the address alone.
    free = "drystone_free" if numbers(torch.__version__) >= REMEMBERS else "drystone_deallocate"
    plug_in = torch.cuda.memory.CUDAPluggableAllocator(
        _library.path(), "drystone_torch_malloc", free)
    hooks = plug_in.allocator()
    for setter, function in HOOKS.items():
        getattr(hooks, setter)(_library.address(function))
    try:
        torch.cuda.memory.change_current_allocator(plug_in)
    except RuntimeError as error:
        raise DrystoneError(
            f"PyTorch keeps the allocator it has ({error}): call drystone.enable() right after "
            "importing torch, and let nothing else change the allocator") from error
