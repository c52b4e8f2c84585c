"""The old constructors of sparse tensors on a GPU: `torch.cuda.sparse.FloatTensor` and its kin. New code says `gl.sparse_coo_tensor`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above


def __getattr__(name: str) -> Any:
    """`gradlab.sparse` lies above this room, so it is looked up when it is asked for."""
    if name.endswith("Tensor"):
        return above("constructors of sparse tensors")(name, "cuda")
    raise AttributeError(f"module 'gradlab.cuda.sparse' has no attribute {name!r}: gl.sparse has all there is")
