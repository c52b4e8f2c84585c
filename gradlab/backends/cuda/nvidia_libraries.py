"""NVIDIA's libraries by ctypes: where they are, and their functions with the prototypes that we declare."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from typing import Any


class LibraryMissing(RuntimeError):
    """A library that is not there, or that cannot be loaded."""


def load(name: str, title: str, package: str, prototypes: Mapping[str, tuple[Any, Any]]) -> Any:
    """The library (`name` as NVIDIA's own finder knows it, "cublasLt"), from wheels, conda environments, the toolkit or the system.

    LibraryMissing says what to install: `package` for CUDA 13, the same with -cu12 for CUDA 12.
    """
    try:
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
    except ImportError:
        raise LibraryMissing(
            "cuda.pathfinder is not installed, which finds CUDA's libraries (CuPy 14 depends on it): pip install cuda-pathfinder"
        ) from None
    try:
        path = str(pathfinder.load_nvidia_dynamic_lib(name).abs_path)
    except RuntimeError as error:  # DynamicLibNotFoundError is one
        lines = str(error).strip().splitlines()
        raise LibraryMissing(
            f"{title} is not installed: pip install {package} (CUDA 13) or {package}-cu12, or install CUDA's toolkit"
            + (f" ({lines[0]})" if lines else "")
        ) from None
    return opened(path, title, prototypes)


def opened(path: str, title: str, prototypes: Mapping[str, tuple[Any, Any]]) -> Any:
    """The library at a path. LibraryMissing where it cannot be loaded, or lacks a function."""
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in prototypes.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryMissing(f"{title} at {path} cannot be used: {error}") from None
    return library
