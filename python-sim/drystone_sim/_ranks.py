"""What ranks tell each other as objects goes by the store at which they met.

Nothing is sent between simulated devices, and what a rank does next hangs on objects: the shapes
that a pipeline's stages expect, a seed, a folder's name. Invariant: objects that would not go by a
device go as ever. The few bytes on the device that would carry the others are not allocated.
"""

from __future__ import annotations

import functools
import pickle
from collections import Counter
from typing import Any

_sent: Counter[str] = Counter()
_c10d: Any = None


def watch(torch: Any) -> None:
    """From now on, for whoever asks PyTorch for these functions by its name."""
    global _c10d
    _c10d = torch.distributed.distributed_c10d
    for ours in (send_object_list, recv_object_list, broadcast_object_list, all_gather_object,
                 gather_object, scatter_object_list):
        name = ours.__name__
        if hasattr(_c10d, name):
            chosen = _by_device(ours, getattr(_c10d, name))
            setattr(_c10d, name, chosen)
            setattr(torch.distributed, name, chosen)


def _by_device(ours: Any, theirs: Any) -> Any:
    @functools.wraps(theirs)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        group = kwargs.get("group") or next(
            (one for one in args if isinstance(one, _c10d.ProcessGroup)), None)
        is_ours = (not _c10d._rank_not_in_group(group)
                   and str(_c10d._get_object_coll_device(group)).startswith("cuda"))
        return (ours if is_ours else theirs)(*args, **kwargs)
    return chosen


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None,
                     device: Any = None, group_dst: int | None = None, **_: Any) -> None:
    """As PyTorch's."""
    _send(group, f"{_mine()} to {_global(group, dst, group_dst)}", object_list)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None,
                     device: Any = None, group_src: int | None = None, **_: Any) -> int:
    """As PyTorch's, of a rank that is named."""
    source = _global(group, src, group_src)
    object_list[:] = _receive(group, f"{source} to {_mine()}")
    return source


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None,
                          device: Any = None, group_src: int | None = None) -> None:
    """As PyTorch's."""
    source = _global(group, src, group_src)
    if source == _mine():
        _send(group, f"{source} to all", object_list)
    else:
        object_list[:] = _receive(group, f"{source} to all")


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """As PyTorch's."""
    _send(group, f"{_mine()} gathered", obj)
    for at, rank in enumerate(_ranks(group)):
        object_list[at] = obj if rank == _mine() else _receive(group, f"{rank} gathered")


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
                  group: Any = None, group_dst: int | None = None) -> None:
    """As PyTorch's."""
    target = _global(group, dst, group_dst)
    if target != _mine():
        _send(group, f"{_mine()} gathered by {target}", obj)
    elif object_gather_list is not None:
        for at, rank in enumerate(_ranks(group)):
            object_gather_list[at] = (
                obj if rank == target else _receive(group, f"{rank} gathered by {target}"))


def scatter_object_list(scatter_object_output_list: list[Any],
                        scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Any = None,
                        group_src: int | None = None) -> None:
    """As PyTorch's."""
    source = _global(group, src, group_src)
    if source == _mine():
        for rank, one in zip(_ranks(group), scatter_object_input_list or [], strict=True):
            if rank == source:
                scatter_object_output_list[0] = one
            else:
                _send(group, f"{source} scattered to {rank}", one)
    else:
        scatter_object_output_list[0] = _receive(group, f"{source} scattered to {_mine()}")


def _send(group: Any, way: str, what: Any) -> None:
    _c10d._get_default_store().set(_key(group, way), pickle.dumps(what))


def _receive(group: Any, way: str) -> Any:
    # Waits for it. Ranks are processes of one program, which trust each other.
    return pickle.loads(_c10d._get_default_store().get(_key(group, way)))


def _key(group: Any, way: str) -> str:
    """What goes one way is numbered: both ends count alike."""
    way = f"drystone, group {_ranks(group)}, {way}"
    _sent[way] += 1
    return f"{way}, {_sent[way]}"


def _mine() -> int:
    return int(_c10d.get_rank())


def _ranks(group: Any) -> list[int]:
    return list(_c10d.get_process_group_ranks(group or _c10d.GroupMember.WORLD))


def _global(group: Any, rank: int | None, within: int | None) -> int:
    """A rank of all, from one of all or one within the group; the first where none is named."""
    if rank is not None:
        return rank
    return _ranks(group)[within or 0]
