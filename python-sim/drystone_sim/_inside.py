"""What a dry run does inside the program: record every request, and mark what goes on meanwhile.

PyTorch's own history has the requests with their stacks. Beside it stand marks, in the order of
time: which module runs, where a backward pass and an optimizer's step begin and end, and at which
addresses parameters, gradients and optimizer state lie. Both are written when the program ends, or
after as many steps as were asked for.

Invariant: what the program asks for does not change. Nothing here allocates on the device, and
hooks are global ones that see tensors but keep none.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pickle
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from . import _libraries, _ranks, _sizes, _values, _weights
from ._variables import CONTEXT, FOLDER, STEPS

# How often a module at the root is asked for its parameters: they may be made in the first pass.
ROOT_PASSES = 3

_torch: Any = None
_marks: list[list[object]] = []
_owner = os.getpid()
# What it is told, before the program may change its environment.
_told = {name: os.environ.get(name, "") for name in (CONTEXT, FOLDER, STEPS)}
_module_hooks: list[Any] = []
_depth = 0
_root_passes: Counter[int] = Counter()
_names: dict[int, str] = {}
_steps: Counter[int] = Counter()
_is_written = False


def watch(torch: Any) -> None:
    """Begins with the program's first use of CUDA, and ends with the program."""
    global _torch
    if not hasattr(torch, "cuda") or torch.version.cuda is None:
        return
    _torch = torch
    _weights.leave_out(torch)
    torch.cuda.mem_get_info = torch.cuda.memory.mem_get_info = _less(torch.cuda.mem_get_info)
    # Programs that record, too, get this recording: theirs may be shorter, and end before it.
    record = torch.cuda.memory._record_memory_history
    torch.cuda.memory._record_memory_history = lambda *args, **kwargs: None
    torch.cuda._lazy_call(lambda: _begin(record))
    atexit.register(_write)
    os._exit = _writing(os._exit)


def step() -> None:
    """A step that the program tells."""
    if _torch is not None:
        _mark("step")
        _count(0)


def _mark(what: str, *details: object) -> None:
    _marks.append([time.time_ns() // 1000, what, *details])


def _begin(record: Any) -> None:
    torch = _torch
    record(context="alloc", stacks="python")
    _values.watch(torch)
    _sizes.watch(torch)
    from torch.nn.modules import module
    from torch.optim import optimizer
    optimizer.register_optimizer_step_pre_hook(_before_step)
    optimizer.register_optimizer_step_post_hook(_after_step)
    _module_hooks.append(module.register_module_forward_pre_hook(_enter))
    _module_hooks.append(module.register_module_forward_hook(_leave, always_call=True))
    torch.autograd.backward = _marked(torch.autograd.backward)
    torch.autograd.grad = _marked(torch.autograd.grad)
    torch.compile = _unhooked(torch.compile)
    if torch.distributed.is_available():
        # It would hold what it received, zeros, against the shapes of the parameters.
        from torch.nn.parallel import distributed
        distributed._verify_param_shape_across_processes = lambda *args, **kwargs: True
        _ranks.watch(torch)


def _writing(leave: Any) -> Any:
    """Programs that end without what was registered for their end are written, too."""
    @functools.wraps(leave)
    def write_and_leave(code: int) -> None:
        try:
            _write()
        finally:
            leave(code)
    return write_and_leave


def _marked(backward: Any) -> Any:
    @functools.wraps(backward)
    def marked(*args: Any, **kwargs: Any) -> Any:
        _mark("backward")
        try:
            return backward(*args, **kwargs)
        finally:
            _mark("backward ends")
    return marked


def _unhooked(compile: Any) -> Any:
    """Compiled code would break at the hooks of its modules: they go."""
    @functools.wraps(compile)
    def unhooked(*args: Any, **kwargs: Any) -> Any:
        while _module_hooks:
            _module_hooks.pop().remove()
        return compile(*args, **kwargs)
    return unhooked


def _less(mem_get_info: Any) -> Any:
    """What is left as where a context takes what a real one does, if the simulated one does not."""
    @functools.wraps(mem_get_info)
    def less(*args: Any, **kwargs: Any) -> tuple[int, int]:
        _values.note("mem_get_info")
        free, total = mem_get_info(*args, **kwargs)
        return max(free - int(_told[CONTEXT] or 0), 0), total
    return less


def _enter(module: Any, given: object) -> None:
    global _depth
    if threading.current_thread() is not threading.main_thread():
        return
    if _depth == 0 and _root_passes[id(module)] < ROOT_PASSES:
        _root_passes[id(module)] += 1
        _names.update({id(part): name for name, part in module.named_modules()})
        _tell("parameters", module.parameters())
        _tell("buffers", module.buffers())
    _depth += 1
    _mark("enter", _names.get(id(module)) or type(module).__name__)


def _leave(module: Any, given: object, made: object) -> None:
    global _depth
    if threading.current_thread() is not threading.main_thread():
        return
    _depth -= 1
    _mark("leave")


def _before_step(optimizer: Any, args: object, kwargs: object) -> None:
    trained = [part for group in optimizer.param_groups for part in group["params"]]
    _tell("parameters", trained)
    _tell("gradients", (part.grad for part in trained if part.grad is not None))
    _know_steps(optimizer)
    _mark("update")


def _know_steps(optimizer: Any) -> None:
    """A count of steps that was loaded to the device is read there, and divided by."""
    for state in optimizer.state.values():
        step = state.get("step") if isinstance(state, dict) else None
        if isinstance(step, _torch.Tensor) and step.is_cuda:
            # At least that many were made, and this one.
            _values.know(step, _steps[id(optimizer)] + 1)


def _after_step(optimizer: Any, args: object, kwargs: object) -> None:
    _mark("step")
    _values.forget()
    held = (value for state in optimizer.state.values() if isinstance(state, dict)
            for value in state.values())
    _tell("optimizer state", (value for value in held if isinstance(value, _torch.Tensor)))
    _count(id(optimizer))


def _tell(kind: str, tensors: Any) -> None:
    """Marks where tensors lie, by device."""
    places: list[tuple[int, int]] = []
    for tensor in tensors:
        # A shard of a distributed tensor is a tensor within.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.is_cuda and tensor.layout is _torch.strided:
            places.append((tensor.device.index, tensor.data_ptr()))
    if places:
        _mark(kind, places)


def _count(whose: int) -> None:
    _steps[whose] += 1
    wanted = int(_told[STEPS] or 0)
    if wanted and _steps[whose] >= wanted:
        _write()
        sys.stdout.flush()
        sys.stderr.flush()
        # Whatever else the program would do at its end, such as saving, is not waited for.
        os._exit(0)


def _write() -> None:
    """Leaves what was recorded in the folder; once, and not in a forked child."""
    global _is_written
    if _is_written or os.getpid() != _owner or not _torch.cuda.is_initialized():
        return
    _is_written = True
    _values.ends()
    name = Path(_told[FOLDER], f"{os.getpid()}")
    told = {
        "rank": int(os.environ.get("RANK", "0")), "torch": _torch.__version__,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "architectures": [int(name[3:]) for name in _torch.cuda.get_arch_list()
                          if name.startswith("sm_") and name[3:].isdecimal()],
        "cuda": _torch.version.cuda, "steps": max(_steps.values(), default=0), "marks": _marks,
        "layers": bool(_module_hooks), "searches": _torch.backends.cudnn.benchmark,
        "values": _values.read(), "sizes": _sizes.met(), "calls": _libraries.counted(),
        "allocated": _torch.cuda.max_memory_allocated(),
        "reserved": _torch.cuda.max_memory_reserved(),
    }
    with open(name.with_suffix(".pickle"), "wb") as file:
        pickle.dump(_torch.cuda.memory._snapshot(), file)
    # Written last: whoever finds it finds both.
    name.with_suffix(".tmp").write_text(json.dumps(told))
    name.with_suffix(".tmp").rename(name.with_suffix(".json"))
