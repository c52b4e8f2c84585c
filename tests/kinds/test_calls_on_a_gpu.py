"""Every public call with strided tensors of the (emulated) GPU gives what it gives on the CPU: values, dtypes, devices, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, Fixed, converted, parts

pytestmark = pytest.mark.slow

HOST = {"Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tobytes"}  # the host reads there, so a GPU's refuse
SHARES = 16


def ran(call, device):
    """A call's results, and the gradients of what its strided tensors are parts of."""
    leaves = []

    def tensor(array):
        made = gl.tensor(np.asarray(array), device=device)
        made = made.float() if array.dtype == np.float64 else made
        wide = made if not made.ndim else made.new_zeros((*made.shape[:-1], 2 * made.shape[-1] + 1))
        if made.ndim:
            wide[..., 1::2] = made
        if array.dtype == np.float64 and not isinstance(array, Fixed) and not call.marks & {"plain", "no_gradient"}:
            leaves.append(wide.requires_grad_())
        return wide[..., 1::2] if made.ndim else wide

    gl.manual_seed(0)
    results = parts(call.on(converted(call.arguments, tensor), converted(call.options, tensor)))
    total = None
    for result in results:
        if result.requires_grad and result.grad_fn is not None:
            flat = (gl.view_as_real(result) if result.is_complex() else result).reshape(-1)
            part = (flat * gl.linspace(0.5, 1.5, max(len(flat), 1)).to(flat.dtype).to(flat.device)[: len(flat)]).sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()
    return results, [x.grad for x in leaves]


def array(tensor):
    return None if tensor is None else (tensor.to_dense() if tensor.is_sparse else tensor).detach().cpu().numpy()


def near(a, b):
    """Equal dtype and shape; numbers within what float32 rounds."""
    if a is None or b is None:
        return a is b
    scale = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind in "fc" else 0
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and np.allclose(a, b, rtol=2e-4, atol=2e-4 * scale, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_calls(cuda, share):
    wrong, number = [], 0
    for call in [c for c in CALLS if c.name not in HOST and "making" not in c.marks][share::SHARES]:
        try:
            want, slopes = ran(call, "cpu")
        except Exception:  # it takes no such strides
            continue
        number += 1
        try:
            got, found = ran(call, "cuda")
        except Exception as error:
            wrong.append((call, error))
            continue
        moved = all(a.device == b.device or a.is_cuda for a, b in zip(got, want, strict=True))
        pairs = [*([] if "random" in call.marks else zip(got, want, strict=True)), *zip(found, slopes, strict=True)]
        if not moved or not ("random" in call.marks or all(near(array(a), array(b)) for a, b in pairs)):
            wrong.append((call, "other results"))
    assert number > 50
    assert not wrong, "\n".join(map(str, wrong))
