"""Sizes that depend on values, where no kernel made any: how many elements are not zero, or differ.

On values that read as zero an operator finds the least. Where the most is asked for, it gives as
many as there can be; at random, a share that goes by the shape alone, since a backward pass asks
again and must find the same. Operators are caught where PyTorch chooses their code for a device.
So masks in an index, `where`, `argwhere` and `masked_select`, which ask `nonzero`, are caught with
it, whoever calls them. Invariant: the operator itself runs first, with all that it asks for.
"""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

from . import _values
from ._variables import SIZES

REPEATS = "repeat_interleave.Tensor"
LEAST, MOST, SHARE = "least", "most", "share"

# Elements, where each of the given is among them, and how often it is there.
Unique = tuple[Any, Any, Any]

_library: Any = None
_is_met = False
_is_endless = False


def chosen() -> str:
    """Which sizes this program gets."""
    given = os.environ.get(SIZES)
    return given or {"zeros": LEAST, "ones": MOST}.get(_values.kind(), SHARE)


def met() -> dict[str, bool]:
    """Whether any size depended on values, and whether there was one that has no most."""
    return {"met": _is_met, "endless": _is_endless}


def watch(torch: Any) -> None:
    """From now on. A PyTorch that does not tell its own code of an operator is left as it is."""
    global _library
    if not hasattr(torch.library, "get_kernel"):
        return
    _library = torch.library.Library("aten", "IMPL")
    for name, told, sized in (
            ("nonzero", "nonzero", functools.partial(_rows, torch)),
            ("_unique2", "unique", _distinct), ("unique_dim", "unique", _slices),
            ("unique_consecutive", "unique_consecutive", _consecutive)):
        own = torch.library.get_kernel(f"aten::{name}", "CUDA")
        _replace(name, functools.partial(_found, own, told, sized))
    own = torch.library.get_kernel(f"aten::{REPEATS}", "CUDA")
    _replace(REPEATS, functools.partial(_repeated, own))


def _replace(name: str, code: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        # That an operator's code is replaced is what is meant.
        warnings.simplefilter("ignore")
        _library.impl(name, code, "CUDA", with_keyset=True)


def _found(own: Any, told: str, sized: Callable[..., Any], keys: Any, given: Any, *args: Any,
           **kwargs: Any) -> Any:
    """As PyTorch finds it, and then as large as it shall be."""
    made = own.call_boxed(keys, given, *args, **kwargs)
    return sized(made, given, *args, **kwargs) if _is_met_by(given, told) else made


def _repeated(own: Any, keys: Any, repeats: Any, *, output_size: int | None = None) -> Any:
    """As long as the sum of the values, so there is no most. PyTorch would look at each of them."""
    global _is_endless
    if output_size is None and _is_met_by(repeats, "repeat_interleave"):
        _is_endless, output_size = True, 0
    return own.call_boxed(keys, repeats, output_size=output_size)


def _is_met_by(given: Any, told: str) -> bool:
    global _is_met
    if not _values.is_watched(given):
        return False
    _values.note(told)
    _is_met = True
    return True


def _count(most: int, shape: object) -> int:
    """How many of at most so many, beyond what zeros gave."""
    if chosen() == SHARE:
        return int(most * random.Random(f"{_values.seed()} {shape}").random())
    return most if chosen() == MOST else 0


def _rows(torch: Any, made: Any, given: Any) -> Any:
    """Of `nonzero`: a row for each that is found, laid out as PyTorch does, by columns."""
    count = _count(given.numel(), given.shape)
    if count <= made.shape[0]:
        return made
    return torch.empty(given.dim(), count, dtype=made.dtype, device=made.device).t()


def _distinct(made: Unique, given: Any, ordered: bool = True, inverse: bool = False,
              counts: bool = False) -> Unique:
    return _grown(made, _count(given.numel(), given.shape), 0, counts)


def _consecutive(made: Unique, given: Any, inverse: bool = False, counts: bool = False,
                 dim: int | None = None) -> Unique:
    if dim is None:
        return _distinct(made, given, counts=counts)
    return _slices(made, given, dim, counts=counts)


def _slices(made: Unique, given: Any, dim: int, ordered: bool = True, inverse: bool = False,
            counts: bool = False) -> Unique:
    return _grown(made, _count(given.shape[dim], given.shape), dim, counts)


def _grown(made: Unique, count: int, dim: int, has_counts: bool) -> Unique:
    """As many elements, and counts if asked for. PyTorch has room for all of them, mostly."""
    values, inverse, counts = made
    if count > values.shape[dim]:
        shape = list(values.shape)
        shape[dim] = count
        values.resize_(shape)
        if has_counts:
            counts.resize_(count)
    return values, inverse, counts
