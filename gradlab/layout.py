"""Layouts as plain data: how a tensor keeps its elements."""

from __future__ import annotations

from gradlab.dtype import DType


class Layout:
    """A layout. There is one object of each."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{DType.package}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = Layout("strided")
sparse_coo = Layout("sparse_coo")
sparse_csr = Layout("sparse_csr")
sparse_csc = Layout("sparse_csc")
