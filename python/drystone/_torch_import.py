"""What is done around a program's import of PyTorch, whenever that is.

The package of the simulated device has this file, too, by a link: neither package depends on the
other. It imports little, since every start of an interpreter pays.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# What is done right before or after PyTorch is executed, with its module.
Step = Callable[[ModuleType], None]


def when_imported(before: Step, after: Step) -> None:
    """Waits for PyTorch, unless it is there."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder(before, after))


class _Finder:
    """Finds PyTorch as the others do. Programs also ask for it without importing it."""

    def __init__(self, before: Step, after: Step) -> None:
        self._steps = before, after
        # Threads whose question is being handed on.
        self._asking: set[int] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        asks = get_ident()
        # Another finder that hands on may ask this one.
        if name != "torch" or asks in self._asking:
            return None
        self._asking.add(asks)
        try:
            # As Python does, without those that are too old to be asked.
            others = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
            found = (finder.find_spec(name, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._asking.discard(asks)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec, *self._steps)
        return spec


class _Loader:
    """Loads PyTorch between two steps; in all else PyTorch's own loader."""

    def __init__(self, spec: ModuleSpec, before: Step, after: Step) -> None:
        self._loader, self._before, self._after = spec.loader, before, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._before(module)
        self._loader.exec_module(module)
        self._after(module)
