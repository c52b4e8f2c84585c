"""What is wrong with data, in words for whoever has it."""

from __future__ import annotations


class DataError(ValueError):
    """Data that is missing, damaged, or cannot be learned from; the message names the file, the place in it, and the way out."""
