"""Enabling Drystone as soon as a program imports PyTorch.

Lives here: what a started interpreter does (`install`), and what the environment of a program must
be for every interpreter in it to do so (`environment`). Imports little, since every start pays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._routes import ROUTES
from ._torch_import import when_imported

ENABLE = "DRYSTONE_ENABLE"
CONF = "DRYSTONE_CONF"
# What the variable may be where no route is meant.
WORDS = ("1", "true", "yes", "on")
# Holds nothing but a `sitecustomize`, which every interpreter imports at its start.
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_start")


def environment(
    given: Mapping[str, str], options: str | None, route: str | None = None,
) -> dict[str, str]:
    """The environment of a program that is to run with Drystone, and of all it starts: as it is, if
    that says no."""
    if given.get(ENABLE) == "0":
        return dict(given)
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
    if os.environ.get(ENABLE, "0") not in ("", "0"):
        when_imported(before=lambda _: None, after=lambda _: _enable())


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
