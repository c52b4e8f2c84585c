"""What goes wrong among processes, under PyTorch's names."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something went wrong among the processes of a program."""


class DistBackendError(DistError):
    """A message did not come, or another process did or gave something else; the text says which."""


class DistNetworkError(DistError):
    """The processes did not find each other."""


class DistStoreError(DistError):
    """A store could not be reached."""
