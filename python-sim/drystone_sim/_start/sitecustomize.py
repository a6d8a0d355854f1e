"""Imported by every interpreter of a dry run: this folder is in its `PYTHONPATH`.

Has `drystone_sim` watch PyTorch once it is imported; then imports the `sitecustomize` that this one
stands before, if there is one. Whatever fails here is a line on standard error, and the program
runs.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _load(spec):
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _watch(here):
    # The one beside this, and not what else is called so on the way.
    package = os.path.dirname(here)
    _load(importlib.util.spec_from_file_location(
        "drystone_sim", os.path.join(package, "__init__.py"), submodule_search_locations=[package]))
    from drystone_sim._hook import install
    install()


def _other(here):
    # Behind this one: two that each found the other would go on for ever.
    paths = [os.path.abspath(path) for path in sys.path]
    after = paths.index(here) + 1 if here in paths else 0
    others = [path for path in sys.path[after:] if os.path.abspath(path) != here]
    other = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if other is not None:
        _load(other)


_here = os.path.dirname(os.path.abspath(__file__))
try:
    _watch(_here)
except Exception as _error:
    try:
        sys.stderr.write("drystone: process %d is not recorded: %s\n" % (os.getpid(), _error))
    except (AttributeError, OSError, ValueError):
        # It is closed, or full: the program runs all the same.
        pass
_other(_here)
