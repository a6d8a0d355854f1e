"""Drystone, a CUDA caching allocator, as PyTorch's allocator.

Lives here: what the package offers, and nothing that imports PyTorch or loads a library before it
is asked to.
"""

from ._errors import DrystoneError, NotSupportedError

__version__ = "0.1.0"
__all__ = ["DrystoneError", "NotSupportedError", "enable", "is_enabled", "library_path"]


def enable(**options: object) -> None:
    """Makes Drystone PyTorch's allocator for CUDA, for as long as the process lives.

    Must be called before CUDA is used, once. The options are those of ``DRYSTONE_CONF``, such as
    ``limit="20GiB"`` or ``source="vmm"``; without any that variable's hold. Whatever stands in the
    way is one `DrystoneError` that says what to do.
    """
    from ._enable import enable as enable_now
    enable_now(options)


def is_enabled() -> bool:
    """Whether Drystone is PyTorch's allocator in this process."""
    import sys
    enabling = sys.modules.get("drystone._enable")
    return enabling is not None and enabling.is_enabled


def library_path() -> str:
    """Where ``libdrystone.so`` is: what ``DRYSTONE_LIBRARY`` says, else inside this package."""
    from ._library import path
    return path()
