"""Dual numbers: `gl.autograd.forward_ad` against `gl.func.jvp`, and against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import forward_ad as fwd


def run(x, y):
    z = gl.sin(x) * y
    return z, (z @ z.mT).logsumexp(1), x.softmax(-1)[0]


def test_tangents_are_those_of_jvp():
    x, y, dx, dy = (gl.tensor(np.random.default_rng(i).normal(size=(3, 4))) for i in range(4))
    want = gl.func.jvp(run, (x, y), (dx, dy))
    with fwd.dual_level():
        found = [fwd.unpack_dual(z) for z in run(fwd.make_dual(x, dx), fwd.make_dual(y, dy))]
        assert fwd.unpack_dual(y).tangent is None
    for (primal, tangent), value, moved in zip(found, *want, strict=True):
        assert not primal.requires_grad and not tangent.requires_grad
        assert gl.allclose(primal, value) and gl.allclose(tangent, moved)


def test_a_dual_tensor_unpacks_to_what_made_it():
    x, t = gl.ones(2), gl.tensor([3.0, 4.0])
    with fwd.dual_level():
        primal, tangent = fwd.unpack_dual(fwd.make_dual(x, t))
        assert tangent is t and gl.equal(primal, x)
        assert isinstance(fwd.unpack_dual(x), fwd.UnpackedDualTensor)
        constant = fwd.unpack_dual(fwd.make_dual(x, t).sign() + gl.ones(2).requires_grad_())
        assert constant.tangent is None or not constant.tangent.any()
    assert fwd.unpack_dual(x).tangent is None


def test_gradients_of_tangents():
    w = gl.tensor([2.0, 3.0], dtype=gl.float64, requires_grad=True)
    with fwd.dual_level():
        dual = fwd.make_dual(w, gl.ones(2, dtype=gl.float64))
        tangent = fwd.unpack_dual((dual**3).sum()).tangent
    assert tangent.item() == pytest.approx(3 * 4 + 3 * 9)
    (slope,) = gl.autograd.grad(tangent, w)
    assert slope.tolist() == [12.0, 18.0]


def test_complex_tangents():
    z, t = gl.tensor([1 + 2j]), gl.tensor([0.5 - 1j])
    with fwd.dual_level():
        found = fwd.unpack_dual(fwd.make_dual(z, t) ** 2).tangent
    assert gl.allclose(found, 2 * z * t)


def test_levels_and_what_is_refused():
    with pytest.raises(RuntimeError, match="no level exists"):
        fwd.make_dual(gl.ones(1), gl.ones(1))
    with pytest.raises(RuntimeError, match="exit a forward AD level"):
        fwd.exit_dual_level()
    with fwd.dual_level():
        with pytest.raises(RuntimeError, match="Nested"):
            fwd.enter_dual_level()
        with pytest.raises(ValueError, match="floating point"):
            fwd.make_dual(gl.ones(1, dtype=gl.int64), gl.ones(1))
        with pytest.raises(RuntimeError, match="shape"):
            fwd.make_dual(gl.ones(1), gl.ones(2))
        with pytest.raises(RuntimeError, match="dtype"):
            fwd.make_dual(gl.ones(1), gl.ones(1, dtype=gl.float64))
        with gl.no_grad(), pytest.raises(RuntimeError, match="no_grad"):
            fwd.make_dual(gl.ones(1), gl.ones(1))
    assert fwd.enter_dual_level() == 0
    fwd.exit_dual_level(level=0)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_module_as_in_pytorch():
    torch = pytest.importorskip("torch")
    fw = torch.autograd.forward_ad
    rng = np.random.default_rng(0)
    x, dx, w = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    with fw.dual_level():
        theirs = fw.unpack_dual(torch.tanh(fw.make_dual(torch.tensor(x), torch.tensor(dx)) @ torch.tensor(w).T)).tangent
    with fwd.dual_level():
        ours = fwd.unpack_dual(gl.tanh(fwd.make_dual(gl.tensor(x), gl.tensor(dx)) @ gl.tensor(w).T)).tangent
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


def test_nested_tensors_are_refused_with_what_to_use():
    with pytest.raises(AttributeError, match="pad_sequence or pack_sequence"):
        gl.nested
