"""Imported by every interpreter that is started with this folder in `PYTHONPATH`.

Has the package beside it, whichever interpreter this is, wait for PyTorch; then imports the
`sitecustomize` that this one stands before, if there is one. Whatever fails here is a line on
standard error, and the program runs. Interpreters too old for the package import this, too.
"""

import importlib.machinery
import importlib.util
import os
import sys

OLDEST = (3, 10)


def _load(spec):
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _start(here):
    if sys.version_info < OLDEST:
        if importlib.util.find_spec("torch") is not None:
            _tell("Python %d.%d is too old, it needs %d.%d" % (sys.version_info[:2] + OLDEST))
        return
    if "drystone" in sys.modules:
        # That of another folder, which this one comes after.
        return
    # The one beside this, and not what else is called so on the way, such as a folder.
    package = os.path.dirname(here)
    _load(importlib.util.spec_from_file_location(
        "drystone", os.path.join(package, "__init__.py"), submodule_search_locations=[package]))
    from drystone._hook import install
    install()


def _tell(reason):
    try:
        sys.stderr.write("drystone: not enabled in process %d: %s\n" % (os.getpid(), reason))
    except (AttributeError, OSError, ValueError):
        # It is closed, or full: the program runs all the same.
        pass


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
    _start(_here)
except Exception as _error:
    _tell(_error)
_other(_here)
