"""Functions of neural networks, without state; names and meanings follow PyTorch's `torch.nn.functional`."""

from __future__ import annotations

from typing import Any

from gradlab.nn.functional.activation import *
from gradlab.nn.functional.adaptive_pool import *
from gradlab.nn.functional.attention import *
from gradlab.nn.functional.class_loss import *
from gradlab.nn.functional.conv import *
from gradlab.nn.functional.ctc import *
from gradlab.nn.functional.dropout import *
from gradlab.nn.functional.embedding_bag import *
from gradlab.nn.functional.fractional_pool import *
from gradlab.nn.functional.fused import *
from gradlab.nn.functional.grid import *
from gradlab.nn.functional.linear import *
from gradlab.nn.functional.loss import *
from gradlab.nn.functional.margin_loss import *
from gradlab.nn.functional.multi_head import *
from gradlab.nn.functional.norm import *
from gradlab.nn.functional.pool import *
from gradlab.nn.functional.residual import *
from gradlab.nn.functional.unpool import *
from gradlab.nn.functional.vision import *
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.numerics import pdist as pdist


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn.functional", name)
