"""Enabling Drystone as soon as a program imports PyTorch.

Lives here: what a started interpreter does (`install`), and what the environment of a program must
be for every interpreter in it to do so (`environment`). Imports little, since every start pays.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ._routes import ROUTES

ENABLE = "DRYSTONE_ENABLE"
CONF = "DRYSTONE_CONF"
# What the variable may be where no route is meant.
WORDS = ("1", "true", "yes", "on")
# Holds nothing but a `sitecustomize`, which every interpreter imports at its start.
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_start")


def environment(
    given: Mapping[str, str], options: str | None, route: str | None = None,
) -> dict[str, str]:
    """The environment of a program that is to run with Drystone, and of all it starts."""
    # An empty entry is the folder that the program runs in, unless there is nothing else.
    others = given["PYTHONPATH"].split(os.pathsep) if given.get("PYTHONPATH") else []
    paths = os.pathsep.join(dict.fromkeys([START, *others]))
    changed = {**given, ENABLE: route or "1", "PYTHONPATH": paths, **_preloading(given)}
    if options:
        changed[CONF] = options
    return changed


def _preloading(given: Mapping[str, str]) -> dict[str, str]:
    """What has the loader put the library before the driver; nothing if it does so already."""
    from ._library import GIVES_BACK, PRELOAD, to_preload
    library, others = to_preload(), given.get("LD_PRELOAD", "")
    if library is None or "libdrystone_preload" in others:
        return {}
    return {PRELOAD: GIVES_BACK, "LD_PRELOAD": f"{others}:{library}" if others else library}


def install() -> None:
    """Waits for PyTorch, if the environment says so."""
    if os.environ.get(ENABLE, "0") not in ("", "0") and "torch" not in sys.modules:
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
    """Loads PyTorch, and enables Drystone when that is done; in all else PyTorch's own loader."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._loader = spec.loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _enable()


def _enable() -> None:
    wanted = os.environ.get(ENABLE)
    try:
        from ._enable import enable
        if wanted not in (*ROUTES, *WORDS):
            from ._tell import tell
            tell(f"{ENABLE}={wanted} names no route; there are {', '.join(ROUTES)}, and 1 for any")
        # A program may start helpers that have no GPU, or fork before it uses one.
        enable({}, wanted if wanted in ROUTES else None, needs_device=False)
    except Exception as error:
        # PyTorch is there and works, only with its own allocator.
        from ._tell import tell
        tell(f"not enabled in process {os.getpid()}: {error}")
