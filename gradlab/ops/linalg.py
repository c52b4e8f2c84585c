"""Matrix products."""

from __future__ import annotations

import numpy as np

from gradlab.kernel import Gemm
from gradlab.op import Op
from gradlab.spec import product

matmul = Op("matmul", product, cpu=np.matmul, cuda=Gemm(), promote="same", autocast="lower",
            grad={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g})  # fmt: skip
