"""Installing Drystone as PyTorch's allocator: compiled, or where that cannot be as a plug-in.

Invariant: everything that can stand in the way is looked at before anything is changed, since
PyTorch's allocator can be changed once, and not back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping
from types import ModuleType

from . import _libraries, _library, _settings
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
    fraction = _settings.of_environment(os.environ).get(_settings.FRACTION)
    text = text_of(options) or os.environ.get("DRYSTONE_CONF", "")
    limited = _settings.with_fraction(text, fraction)
    if limited:
        # What is wrong with them is said here, not by the first tensor.
        _library.configure(limited)
    options_text = limited
    # Before CUDA is asked anything: the runtime looks up its functions once.
    _libraries.cover()
    if needs_device:
        _check_devices(torch)
    refused = _settings.refused_of_environment(torch, os.environ)
    shim = None if route == "plugin" else _compiled(torch, is_needed=route == "compiled")
    if shim is not None:
        from . import _native
        _native.install(shim, float(fraction or 1))
        if _libraries.sees_all():
            _library.library().drystone_know_all_streams()
        is_enabled = True
    else:
        _library.bind_to_torch()
        _install(torch)
        is_enabled = True
        from . import _parity
        _parity.install(torch, float(fraction or 1))
    from . import _available, _shortage
    _shortage.install()
    if _settings.counts_neighbours(text):
        _available.count_neighbours(torch)
    _libraries.log()
    _settings.tell_of_environment(os.environ, shim is None, refused)
    _settings.follow(
        torch, is_limited=_settings.has_limit(text), is_plug_in=shim is None)
    _write_metrics(os.environ.get("DRYSTONE_METRICS"))


def _write_metrics(pattern: str | None) -> None:
    """Writes a server's metrics to a file every ten seconds, with no call in its code; in forked
    children, too. The file goes with the process."""
    if pattern:
        _watch(pattern)
        os.register_at_fork(after_in_child=lambda: _watch(pattern))


def _watch(pattern: str) -> None:
    import atexit
    import logging

    from ._monitor import Monitor
    process = os.getpid()
    file = pattern.replace("%p", str(process))

    def remove() -> None:
        with contextlib.suppress(OSError):
            if os.getpid() == process:
                os.unlink(file)
    # Before the monitor's own, which ends it: the last comes first.
    atexit.register(remove)
    try:
        # A logger of its own, with no handler: nobody asked for lines.
        Monitor(10.0, logging.Logger("drystone", logging.WARNING), file, None, "")
    except Exception as error:
        tell(f"no metrics are written: {error}")


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
