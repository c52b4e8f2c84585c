"""What `importlib.metadata` is told of a package named torch."""

from __future__ import annotations

from importlib.metadata import Distribution
from os import PathLike
from typing import Any

from gradlab.pytorch.version import __version__


class Torch(Distribution):
    """A package without files, of PyTorch's name and the version that is offered."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {__version__}\n" if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Any:
        raise FileNotFoundError(f"torch is gradlab in this process; it has no file {path!r}")
