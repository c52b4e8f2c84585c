"""Matrix products."""

from __future__ import annotations

import numpy as np

from gradlab.dtype import wide
from gradlab.kernel import Gemm
from gradlab.op import Op
from gradlab.spec import Spec, product


def wide_product(a: Spec, b: Spec) -> Spec:
    """Rule: as `product`; of half types in float32."""
    found = product(a, b)
    return Spec(found.shape, wide(found.dtype))


matmul = Op("matmul", product, cpu=np.matmul, cuda=Gemm(), promote="same", autocast="lower",
            grad={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g})  # fmt: skip
# Not rounded to a half type: a product that is only a part of the result.
wide_matmul = Op("wide_matmul", wide_product, cpu=np.matmul, cuda=Gemm(), promote="same", autocast="lower",
                 grad={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g})  # fmt: skip
