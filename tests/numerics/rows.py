"""Every row of the registry: which entries run it, or on what else it is measured, or why it is not."""

from __future__ import annotations

from gradlab.op import Op
from gradlab.ops import ROWS

# Rows that stand in no table, by the reason. Rows that round nothing (`Op.exact`, views) are found by themselves.
REASONS = {
    "draws random numbers, whose bits are held by tests/test_random.py": """
        random_uniform random_normal random_integers random_exponential random_permutation
        dropout bernoulli poisson multinomial normal_of""",
    "carries numbers between processes; sums have the bits of one process (tests/test_distributed.py)": """
        all_reduce reduce broadcast all_gather reduce_scatter all_to_all all_reduce_begin all_reduce_end""",
    "chooses, places, counts or copies elements, and computes none": """
        max_pool max_pool_backward max_pool_gather max_unpool adaptive_max_pool max min cummin cummax median median_of_all mode topk
        unique bincount isin searchsorted histc nonzero masked_scatter masked_gather scatter_reduce diagonal_scatter slice_scatter tril triu
        unfold unfold_backward repeated pad full complex conj imag amin amax sort argmax argmin all any heaviside""",
}
REASON_OF = {name: why for why, names in REASONS.items() for name in names.split()}
# Rows inside modules and optimizers, which PyTorch has no function for: measured on the samples of tests/samples/.
INSIDE = """
    quantized_linear quantized_linear4 quantized_convolution lstm_sequence lstm_sequence_backward gru_sequence gru_sequence_backward
    rnn_sequence rnn_sequence_backward
    grid_sample grid_sample_backward ctc_loss ctc_loss_backward ldl airy_ai_prime convolution_transpose linear_relu linear_gelu_tanh
    convolution_act convolution_act_sums embedding_add grouped_mm ldl_solve wide_matmul mse running var euclidean lstm_cell
    lstm_cell_backward gru_cell gru_cell_backward masked_softmax layer_norm_residual layer_norm_residual_backward rms_norm_residual
    rms_norm_residual_backward spmm sddmm sgd_update sgd_momentum_update adam_update amsgrad_update lion_update rmsprop_update
    rmsprop_centered_update rmsprop_momentum_update rmsprop_centered_momentum_update adagrad_update adadelta_update adamax_update
    nadam_update radam_update asgd_update rprop_update
"""
SAMPLED = INSIDE.split()


def rounds_nothing(row: Op) -> bool:
    """Views, and rows that compute the same in half types as in float64."""
    return bool(row.view or row.exact)


def missing(measured: set[str]) -> list[str]:
    """The rows that are nowhere: not among the measured ones, not exact, without a reason."""
    return [name for name, row in ROWS.items() if name not in measured and name not in REASON_OF and not rounds_nothing(row)]
