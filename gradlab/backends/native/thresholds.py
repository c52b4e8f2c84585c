"""From how many elements on a row's kernel is worth its call on the CPU, instead of NumPy's function. Measured (bench/eager.py).

A kernel's call costs about what one of NumPy's functions does (calling.py). So what NumPy does in several steps is a kernel's at any size,
and single functions where NumPy has no vectors for them, or where threads gain.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from gradlab import dispatch
from gradlab.kernel import Elementwise, is_dear
from gradlab.op import NEVER, Op

# Elementwise rows: additions, comparisons and the like; those of them for which NumPy has no vectors; exponentials and the like; and where
# NumPy takes several steps.
CHEAP, PLAIN, DEAR, STEPS = 1 << 15, 1 << 11, 1 << 9, 1
WITHOUT_VECTORS = frozenset({
    "copysign", "floor_divide", "fmod", "hypot", "logical_and", "logical_not", "logical_or", "logical_xor", "nextafter", "remainder",
    "sign",
})  # fmt: skip
# Of other rows: elements of the largest operand; of products and convolutions see `LARGE_PRODUCT` in the fast path.
ROWS = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "euclidean", "var"), 1),
    **dict.fromkeys(("prod", "any", "all", "argmax", "argmin", "max", "min", "cumsum", "cumprod", "sort", "topk"), 1),
    **dict.fromkeys(("cummax", "cummin", "median", "median_of_all", "mode", "searchsorted", "isin"), 1),
    **dict.fromkeys(("index", "index_put", "index_backward"), 1),
    **dict.fromkeys(("gather", "gather_backward", "scatter", "scatter_add", "scatter_reduce", "nll", "nll_backward"), 1),
    **dict.fromkeys(("clone",), 1 << 12),
    **dict.fromkeys(("cast",), 1 << 9),
    **dict.fromkeys(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"), 1),
    **dict.fromkeys(("cross_entropy", "cross_entropy_backward"), 1),
    **dict.fromkeys(("layer_norm", "layer_norm_backward", "rms_norm", "batch_norm", "batch_norm_backward", "mse"), 1),
    **dict.fromkeys(("convolution", "convolution_dx", "convolution_dw"), 1),
    **dict.fromkeys(("max_pool", "max_pool_backward", "adaptive_max_pool", "avg_pool", "avg_pool_backward"), 1),
    **dict.fromkeys(("embedding", "embedding_backward", "grid_sample", "grid_sample_backward", "ctc_loss", "ctc_loss_backward"), 1),
    **dict.fromkeys(("lu", "solve_triangular"), 1),
    **dict.fromkeys(("scaled_dot_product_attention", "scaled_dot_product_attention_backward"), 1),
    **dict.fromkeys(("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward"), 1),
    **dict.fromkeys(("lstm_sequence", "gru_sequence", "rnn_sequence"), 1),
    **dict.fromkeys(("lstm_sequence_backward", "gru_sequence_backward", "rnn_sequence_backward"), 1),
    **dict.fromkeys(("matmul", "linear"), 1 << 14),
    **dict.fromkeys(("quantized_linear", "quantized_linear4", "quantized_convolution"), 1),
    **dict.fromkeys(("dropout", "bernoulli", "random_uniform", "random_normal", "random_integers"), 1),
    **dict.fromkeys(("cat", "flip", "tril", "triu", "diagonal_embed", "diagonal_scatter"), 1),
    **dict.fromkeys(("im2col", "col2im", "resample", "resample_backward"), 1),
    **dict.fromkeys(("pad", "slice_backward", "slice_scatter"), 1 << 10),
    **dict.fromkeys(("sgd_update", "sgd_momentum_update", "adam_update", "amsgrad_update", "adagrad_update", "rmsprop_update"), 1),
    **dict.fromkeys(("adadelta_update", "adamax_update", "lion_update", "nadam_update", "radam_update"), 1),
}  # fmt: skip
# Elementwise rows that NumPy converts as fast, or that have no loop, and those whose NumPy function looks at values and refuses some.
LEFT = frozenset({"bce", "complex", "conj", "complex_abs", "complex_sgn", "complex_angle"})


def threshold(op: Op) -> int:
    """That of a row; NEVER where it has no kernel that pays."""
    if op.view or op.dynamic or op.foreign or op.name in LEFT or not op.inputs:
        return NEVER
    if isinstance(op.cuda, Elementwise) and op.name not in ROWS:
        if isinstance(op.cpu, np.ufunc):
            return DEAR if is_dear(op.cuda.expression) else PLAIN if op.name in WITHOUT_VECTORS else CHEAP
        return STEPS
    return ROWS.get(op.name, NEVER)


def attach(rows: Iterable[Op]) -> None:
    """Let large calls of these rows look for a kernel, unless GRADLAB_NATIVE=0."""
    on = os.environ.get("GRADLAB_NATIVE", "1") not in ("0", "off", "no")
    for op in rows:
        attached[op.name] = op
        op.pays = threshold(op) if on else NEVER
    dispatch.beside_kernels[0] = on


attached: dict[str, Op] = {}


@contextmanager
def kernels_for(every: bool) -> Iterator[None]:
    """Let all rows use their kernels at any size, or none, for the time being."""
    before = {op: op.pays for op in attached.values()}
    for op in before:
        op.pays = 1 if every and threshold(op) != NEVER else NEVER
    try:
        yield
    finally:
        for op, pays in before.items():
            op.pays = pays


def switched_on() -> bool:
    """Whether any row looks for a kernel."""
    return any(op.pays != NEVER for op in attached.values())


def switch_off() -> None:
    """Let NumPy compute from here on: nothing lies ready, or a run that is gone on with began so."""
    for op in attached.values():
        op.pays = NEVER
    dispatch.beside_kernels[0] = False
