"""The package's exceptions. Each message says what to do."""


class DrystoneError(RuntimeError):
    """Drystone cannot be enabled, or a call of it failed."""


class NotSupportedError(DrystoneError):
    """Something of PyTorch's that no plug-in allocator can do; the message gives the reason."""
