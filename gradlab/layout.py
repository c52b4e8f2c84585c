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


NOT_TRACED = (
    "sparse tensors are not traced or compiled; call this function outside, or give it the dense form, or the indices and values, and use "
    "index_add or scatter_add on them"
)
strided = Layout("strided")
sparse_coo = Layout("sparse_coo")
sparse_csr = Layout("sparse_csr")
sparse_csc = Layout("sparse_csc")
