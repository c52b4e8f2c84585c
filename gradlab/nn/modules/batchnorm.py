"""The batch norms, under the name of PyTorch's file, and their common class `_BatchNorm`, which scripts look for."""

from gradlab.nn.modules.norm import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    BatchNorm3d as BatchNorm3d,
    SyncBatchNorm as SyncBatchNorm,
    _BatchNorm as _BatchNorm,
    _LazyNormBase as _LazyNormBase,
    _NormBase as _NormBase,
)
