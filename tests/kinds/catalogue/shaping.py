"""Views, reshaping, splitting, putting together, and writing and reading at indices."""

from __future__ import annotations

import numpy as np

from kinds.catalogue.giving import AT, CUBE, MASK, PLACES, SQUARE, B, I, J, V, W, X, Y, fixed, given, words

SRC = Y[:, :4]
ROW = np.array([2, 0])
JOINED = words("hstack vstack row_stack dstack column_stack concat concatenate")

CALLS = {
    "alias_copy": [given(X)], "detach_copy": [given(X)], "diagonal_copy": [given(X)],
    "expand_copy": [given(X[:1], (3, 4))], "permute_copy": [given(CUBE, (2, 0, 1))], "select_copy": [given(X, 1, 2)],
    "slice_copy": [given(X, 1, 0, 4, 2)], "split_copy": [given(X, 2, 1)], "split_with_sizes_copy": [given(X, (1, 2))],
    "squeeze_copy": [given(X[:, None])], "t_copy": [given(X)], "transpose_copy": [given(X, 0, 1)], "unbind_copy": [given(X)],
    "unfold_copy": [given(X, 1, 2, 1)], "unsqueeze_copy": [given(X, 1)], "view_copy": [given(X, (4, 3))],
    "reshape": [given(X, 4, 3), given(X, (2, -1))], "gl.reshape": [given(X, (4, 3))], "view": [given(X, 4, 3), given(X, -1)],
    "flatten": [given(X), given(CUBE, 1)],
    "ravel": [given(X)], "unflatten": [given(X, 1, (2, 2))], "squeeze": [given(X[:, None]), given(X[None], 0)],
    "unsqueeze": [given(X, 1)], "transpose": [given(X, 0, 1)], "swapaxes": [given(X, 0, 1)], "swapdims": [given(X, 0, 1)],
    "t": [given(X), given(V)], "permute": [given(CUBE, (2, 0, 1))], "Tensor.permute": [given(CUBE, 2, 0, 1)],
    "movedim": [given(CUBE, 0, 2)], "moveaxis": [given(CUBE, 0, 2)], "adjoint": [given(CUBE)],
    "expand": [given(X[:1], 3, 4), given(X, 2, -1, -1)], "broadcast_to": [given(X[:1], (3, 4))], "Tensor.expand_as": [given(X[:1], Y)],
    "Tensor.view_as": [given(X, Y.reshape(4, 3))], "Tensor.reshape_as": [given(X, Y.reshape(4, 3))],
    "Tensor.unfold": [given(X, 1, 2, 1)], "as_strided": [given(X, (2, 3), (4, 1), 1)],
    "Tensor.as_strided_": [given(X, (3, 2), (4, 1))], "as_strided_copy": [given(X, (5, 2), (2, 1))],
    "as_strided_scatter": [given(X, Y[:, :2], (3, 2), (4, 1), 1)],
    "broadcast_tensors": [given(X, Y[:1])], "meshgrid": [given(V, W[:3], indexing="ij"), given(V, W[:3], indexing="xy")],
    "atleast_1d": [given(X), given(np.array(0.5), X)], "atleast_2d": [given(V), given(X)], "atleast_3d": [given(X), given(CUBE)],
    "diagonal": [given(X), given(CUBE, 1, 0, 2)], "diag": [given(V), given(X)], "diagflat": [given(V)], "diag_embed": [given(X)],
    "tril": [given(X), given(X, -1)], "triu": [given(X), given(X, 1)], "flip": [given(X, (0,)), given(X, (0, 1))], "fliplr": [given(X)],
    "flipud": [given(X)], "roll": [given(X, 1), given(X, (1, 2), (0, 1))], "rot90": [given(X), given(CUBE, 2, (1, 2))],
    "Tensor.repeat": [given(X, 2, 3), given(X, 2, 1, 1)], "tile": [given(X, (2, 2)), given(X, (3,))],
    "repeat_interleave": [given(X, 2), given(X, np.array([1, 0, 2]), 0)],
    "narrow": [given(X, 1, 1, 2)], "narrow_copy": [given(X, 1, 1, 2)], "unsafe_chunk": [given(X, 2, 1)],
    "unsafe_split": [given(X, 2, 1)], "unsafe_split_with_sizes": [given(X, [1, 2])],
    "select": [given(X, 0, 1)], "split": [given(X, 2, 1), given(X, [1, 2])],
    "split_with_sizes": [given(X, [1, 2])], "chunk": [given(X, 2, 1)], "tensor_split": [given(X, 2), given(X, (1,), 1)],
    "unbind": [given(X), given(X, 1)], "hsplit": [given(X, 2)], "vsplit": [given(X, 3)], "dsplit": [given(CUBE, 2)],
    "cat": [given([X, Y]), given([X, Y], 1)], "stack": [given([X, Y]), given([X, Y], 2)], **{name: [given([X, Y])] for name in JOINED},
    "block_diag": [given(X, SQUARE)],
    "gather": [given(X, 0, PLACES), given(X, 1, PLACES[:, :2])], "take": [given(X, PLACES)], "take_along_dim": [given(X, PLACES, 0)],
    "index_select": [given(X, 0, AT), given(X, 1, ROW)], "masked_select": [given(X, MASK)],
    "masked_fill": [given(X, MASK, 0.5), given(X, MASK, np.array(0.5))], "masked_scatter": [given(X, MASK, Y)],
    "scatter": [given(X, 0, PLACES, SRC), given(X, 0, PLACES, 0.5), given(X, 0, PLACES, fixed(SRC), reduce="add")],
    "scatter_add": [given(X, 0, PLACES, SRC)],
    "scatter_reduce": [given(X, 0, PLACES, SRC, how) for how in ("sum", "prod", "mean", "amax", "amin")],
    "index_add": [given(X, 0, AT, Y), given(X, 0, AT, Y, alpha=0.5)], "index_copy": [given(X, 0, AT, Y)],
    "index_fill": [given(X, 1, ROW, 0.5), given(X, 1, ROW, fixed(np.array(0.5)))],
    "index_reduce": [given(X, 0, AT, Y, how) for how in ("prod", "mean", "amax", "amin")],
    "index_put": [given(X, (AT,), Y), given(X, (AT, AT), V[:3], accumulate=True)], "put": [given(X, AT, V[:3])],
    "select_scatter": [given(X, V, 0, 1)], "slice_scatter": [given(X, Y[:2], 0, 1, 3)], "diagonal_scatter": [given(X, V[:3])],
    "Tensor.fill_diagonal_": [given(SQUARE, 0.5)], "tril_indices": [given(3, 4)], "triu_indices": [given(3, 4)],
    "Tensor.__getitem__": [given(X, 1), given(X, slice(0, 2)), given(X, AT), given(X, MASK), given(X, (None, ..., 1))],
    "Tensor.__setitem__": [given(X, 1, V), given(X, slice(0, 2), 0.5), given(X, AT, Y), given(X, MASK, 0.5), given(X, (..., 1), V[:3])],
    "Tensor.__contains__": [given(I, 3)], "Tensor.__iter__": [given(X)], "Tensor.__reversed__": [given(X)], "Tensor.__len__": [given(X)],
    "Tensor.resize_": [given(X, 2, 3)], "Tensor.resize_as_": [given(X, Y[:2])],
    "Tensor.set_": [given(X, Y)], "one_hot": [given(AT, 4)],
    "Tensor.H": [given(X)], "Tensor.T": [given(X)], "Tensor.mH": [given(CUBE)], "Tensor.mT": [given(CUBE)], "Tensor.real": [given(X)],
    "Tensor.data": [given(X)], "Tensor.contiguous": [given(X)], "clone": [given(X), given(I), given(B)], "detach": [given(X)],
    "Tensor.detach_": [given(X)], "Tensor.resolve_conj": [given(X)], "Tensor.resolve_neg": [given(X)],
    "gl.isreal": [given(X), given(J)],
}  # fmt: skip
