"""Eigenvalues and eigenvectors of matrices that need not be symmetric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import into
from gradlab.tensor.solve import ready

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_eig = bind(ops.eigen.eig)


def eig(input: Tensor, *, out: Any = None) -> Any:
    """Eigenvalues (…, n) and eigenvectors, the columns of (…, n, n), of square matrices; complex, of real matrices too, in no order.

    The vectors have length 1, and their largest element is real. Their gradient needs distinct eigenvalues. Of symmetric or Hermitian
    matrices `eigh` is better. LinAlgError (a RuntimeError) for elements that are not finite.

    >>> gl.linalg.eig(gl.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j])
    """
    ready("eig", input)
    return _eig(input) if out is None else into("linalg.eig", out, _eig(input))


def eigvals(input: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues (…, n) of square matrices; complex, of real matrices too, in no order.

    >>> gl.linalg.eigvals(gl.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    tensor([0.+1.j, 0.-1.j])
    """
    ready("eigvals", input)
    return _eig(input)[0] if out is None else into("linalg.eigvals", out, _eig(input)[0])


named_functions(__name__)
