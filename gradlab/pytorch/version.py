"""The version of PyTorch whose names and meanings are offered; `torch.version`."""

from __future__ import annotations

import re
from typing import Any

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)((?:a|b|rc|\.dev)\d*)?.*?(\+.+)?", re.DOTALL)


def _key(value: Any) -> tuple[Any, ...] | None:
    """What orders versions: the numbers without zeros at their end, whether it is a release, whether it has a local part."""
    text = ".".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    numbers, before, local = found.groups()
    release = [int(number) for number in numbers.split(".")]
    while release and not release[-1]:
        release.pop()
    return release, not before, local is not None


class TorchVersion(str):
    """A version as a string that orders as versions do, beside strings and tuples: `torch.__version__ >= (2, 1)`, `> "1.13"`.

    A comparison with what is no version is one of strings.
    """

    __slots__ = ()

    def _keys(self, other: Any) -> tuple[Any, Any]:
        mine, theirs = _key(str(self)), _key(other)
        return (str(self), str(other)) if theirs is None else (mine, theirs)

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine < theirs)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __gt__(self, other: Any) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine > theirs)

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        mine, theirs = self._keys(other)
        return bool(mine == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


__version__ = TorchVersion("2.6.0+gradlab")
debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version = "gradlab"
