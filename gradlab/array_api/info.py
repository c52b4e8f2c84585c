"""What `gradlab.array_api` can do, for programs that ask: the standard's inspection."""

from __future__ import annotations

from typing import Any

from gradlab.array_api.types import BY_NAME, of_kind
from gradlab.cuda import device_count, is_available
from gradlab.device import Device, default_device as _default_device
from gradlab.dtype import get_default_dtype, int64, named


class Info:
    """The answers of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and shapes that depend on data work; an array has at most 64 dimensions, as NumPy's."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays are made unless a device is given."""
        return _default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays of Python numbers, the same on every device."""
        found = {"real floating": get_default_dtype(), "integral": int64, "indexing": int64}
        if "complex64" in BY_NAME:
            found["complex floating"] = named("complex128" if get_default_dtype().itemsize == 8 else "complex64")
        return found

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes by name, all or those of a kind."""
        return {name: dtype for name, dtype in BY_NAME.items() if kind is None or of_kind(name, kind)}

    def devices(self) -> list[Device]:
        """The CPU, and every GPU there is."""
        return [Device("cpu"), *(Device("cuda", index) for index in range(device_count() if is_available() else 0))]
