"""Watching PyTorch from its import on, in every interpreter of a dry run.

Lives here: the import hook alone. It imports little, since every start of an interpreter pays.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ._variables import FOLDER


def install() -> None:
    """Waits for PyTorch, if this is a dry run."""
    if os.environ.get(FOLDER) and "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds PyTorch as the others do. Programs also ask for it without importing it."""

    def __init__(self) -> None:
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
            spec.loader = _Loader(spec)
        return spec


class _Loader:
    """Loads PyTorch and has it watched; in all else PyTorch's own loader."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._loader = spec.loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        from . import _inside, _libraries
        _libraries.load()
        self._loader.exec_module(module)
        _inside.watch(module)
