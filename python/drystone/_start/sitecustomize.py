"""Imported by every interpreter that is started with this folder in `PYTHONPATH`.

Finds the package beside it, whichever interpreter this is, and has it wait for PyTorch; then
imports the `sitecustomize` that this one stands before, if there is one.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _load(spec):
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _start():
    here = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(here)
    if importlib.util.find_spec("drystone") is None:
        init = os.path.join(package, "__init__.py")
        _load(importlib.util.spec_from_file_location(
            "drystone", init, submodule_search_locations=[package]))
    from drystone._hook import install
    install()
    others = [path for path in sys.path if os.path.abspath(path) != here]
    other = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if other is not None:
        _load(other)


_start()
