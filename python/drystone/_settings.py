"""Settings of PyTorch's own allocator: which hold under Drystone, and what is told of the others.

They come by a variable of the environment before CUDA is used, and by a function of PyTorch's while
the program runs. Invariant: a setting that means something here holds, and any other is named, once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from types import ModuleType

from . import _library
from ._tell import tell

FRACTION = "per_process_memory_fraction"
EXPANDABLE = "expandable_segments"
# Those that hold here too, are of host memory, or are always so.
HONOURED = (
    EXPANDABLE, "use_cuda_host_register", "release_lock_on_cudamalloc", FRACTION)
# Those that hold with the compiled route.
HONOURED_COMPILED = ("throw_on_cudamalloc_oom",)
# What others are there for, and why it is so without them.
NOT_NEEDED = {
    "max_split_size_mb": "pieces of any size are put together again",
    "garbage_collection_threshold": "cached memory never stands in the way of a request",
    "throw_on_cudamalloc_oom": "what cannot be served is torch.OutOfMemoryError always",
}
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
# Who is told of settings while the program runs: from 2.9 on, and before.
SETTERS = (
    "_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")


def text_of_environment(environment: Mapping[str, str]) -> str:
    """What was set for PyTorch's own allocator: the older variable where both are set, even to
    nothing, as for PyTorch."""
    return environment.get("PYTORCH_CUDA_ALLOC_CONF", environment.get("PYTORCH_ALLOC_CONF", ""))


def of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The same by key."""
    return _parsed(text_of_environment(environment))


def _parsed(text: str) -> dict[str, str]:
    found = {}
    # Lists of numbers have colons and commas of their own, within brackets.
    for setting in re.sub(r"\[[^]]*\]", "", text).split(","):
        key, _, value = setting.strip().partition(":")
        if key:
            found[key] = value.strip()
    return found


def tell_of_environment(
    environment: Mapping[str, str], is_plug_in: bool, refused: list[str],
) -> None:
    """Names what was set and has no effect of its own, in a line, and what PyTorch refuses."""
    _tell([*refused, *told_of_environment(environment, is_plug_in)])


def refused_of_environment(torch: ModuleType, environment: Mapping[str, str]) -> list[str]:
    """PyTorch's words about settings that cannot be: its own allocator would end the program. They
    are asked for while that is still there, since a backend is one of the settings."""
    text = text_of_environment(environment)
    setter = next((getattr(torch._C, name) for name in SETTERS if hasattr(torch._C, name)), None)
    if setter is None or not text:
        return []
    try:
        setter(text)
    except (RuntimeError, ValueError) as error:
        return [f"PyTorch refuses {text}: {str(error).splitlines()[0]}"]
    return []


def told_of_environment(environment: Mapping[str, str], is_plug_in: bool) -> list[str]:
    """Why settings that were made have no effect of their own, a clause each."""
    more = (NO_CACHING,) if is_plug_in and environment.get(NO_CACHING) is not None else ()
    return _told(of_environment(environment), is_plug_in, more)


def _told(
    given: Mapping[str, str], is_plug_in: bool, more: tuple[str, ...] = (),
) -> list[str]:
    honoured = HONOURED if is_plug_in else HONOURED + HONOURED_COMPILED
    keys = [key for key in given if not key.startswith("pinned_") and key not in honoured
            and (key, given[key]) != ("backend", "native")]
    told = [f"{key} is not needed, {NOT_NEEDED[key]}" for key in keys if key in NOT_NEEDED]
    if given.get(EXPANDABLE) == "False":
        told.append(f"{EXPANDABLE}:False changes nothing here, for plain memory "
                    "there is backend:malloc in DRYSTONE_CONF")
    unknown = [*(key for key in keys if key not in NOT_NEEDED), *more]
    if unknown:
        told.append(f"{', '.join(unknown)} without effect, see DRYSTONE_CONF for what there is")
    return told


# What was told. Programs set the same again and again, around a sleep for example.
_said: set[str] = set()


def _tell(clauses: list[str]) -> None:
    fresh = [clause for clause in clauses if clause not in _said]
    _said.update(fresh)
    if fresh:
        tell(f"settings of PyTorch's own allocator: {'; '.join(fresh)}")


def counts_neighbours(options: str) -> bool:
    """Whether options of ours say that `torch.cuda.mem_get_info` counts what neighbours could give."""
    pairs = (piece.partition(":") for piece in options.split(","))
    return ("mem_get_info", "neighbours") in ((key.strip(), value.strip()) for key, _, value in pairs)


def with_fraction(options: str, fraction: str | None) -> str:
    """Options, with the fraction that PyTorch's own allocator was given, if none limits memory."""
    if fraction is None or has_limit(options):
        return options
    # Of nothing is no fraction that an option takes; a byte serves as little.
    limit = f"limit_fraction:{fraction}" if fraction.strip("0.") else "limit:1"
    return ",".join(part for part in (options, limit) if part)


def has_limit(options: str) -> bool:
    """Whether an option limits memory."""
    return "limit" in options


def follow(torch: ModuleType, is_limited: bool, is_plug_in: bool) -> None:
    """From now on settings that the program makes while it runs count as those before."""
    for name in SETTERS:
        if hasattr(torch._C, name):
            setter = _followed(torch, getattr(torch._C, name), is_limited, is_plug_in)
            setattr(torch._C, name, setter)


def _followed(
    torch: ModuleType, setter: Callable[[str], None], is_limited: bool, is_plug_in: bool,
) -> Callable[[str], None]:
    @functools.wraps(setter)
    def set_and_follow(text: str) -> None:
        # What cannot be is refused in PyTorch's words.
        setter(text)
        given = _parsed(text)
        told = _told(given, is_plug_in)
        if FRACTION in given and is_limited:
            told.append(f"{FRACTION} without effect, an option limits memory")
        elif FRACTION in given:
            torch.cuda._lazy_call(lambda: _limit(torch, float(given[FRACTION])))
        _tell(told)
    return set_and_follow


def _limit(torch: ModuleType, fraction: float) -> None:
    # No others: a limit would open them, and take the memory of a context.
    for device in {*_library.devices(), torch.cuda.current_device()}:
        torch.cuda.set_per_process_memory_fraction(fraction, device)
