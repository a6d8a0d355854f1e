"""What who started the program is told.

Invariant: each is one line on standard error, which begins with the package's name.
"""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """One line, whatever the text has."""
    print("drystone:", " ".join(text.split()), file=sys.stderr, flush=True)
