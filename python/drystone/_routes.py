"""How Drystone may be PyTorch's allocator; without a choice, by the first that is possible."""

ROUTES = ("compiled", "plugin")
