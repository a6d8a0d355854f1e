"""What who started the program is told.

Invariant: each is one line on standard error, which begins with the package's name. Where that is
closed, full or broken the program goes on without it.
"""

from __future__ import annotations

import contextlib
import sys


def tell(text: str) -> None:
    """One line, whatever the text has."""
    # Without one, `print` would take standard output.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print("drystone:", " ".join(text.split()), file=sys.stderr, flush=True)
