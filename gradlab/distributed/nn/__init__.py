"""Collectives that are recorded, for use within a model: `gradlab.distributed.nn.functional`, and here by the same names."""

from gradlab.distributed.nn import functional as functional
from gradlab.distributed.nn.functional import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    broadcast as broadcast,
    gather as gather,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    scatter as scatter,
)
