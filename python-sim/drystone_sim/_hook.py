"""Watching PyTorch from its import on, in every interpreter of a dry run. It imports little, since
every start of an interpreter pays.
"""

from __future__ import annotations

import os
from types import ModuleType

from ._torch_import import when_imported
from ._variables import FOLDER


def install() -> None:
    """Waits for PyTorch, if this is a dry run."""
    if os.environ.get(FOLDER):
        when_imported(_before, _after)


def _before(_: ModuleType) -> None:
    from . import _libraries
    _libraries.load()


def _after(module: ModuleType) -> None:
    from . import _inside
    _inside.watch(module)
