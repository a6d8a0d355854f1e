"""What is told to users as one line."""


class SimError(Exception):
    """Something is missing or wrong; the message says what, and the way out."""
