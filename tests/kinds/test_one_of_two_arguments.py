"""Where two arguments say the same thing in two ways, giving both is an error: one of them would be passed over in silence."""

import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.utils.data import DataLoader, TensorDataset

F = nn.functional
X, AT = gl.arange(12.0).reshape(3, 4), gl.tensor([[0, 1], [1, 0]])
FUSED = [
    name for name in dir(optim)
    if isinstance(kind := getattr(optim, name), type) and issubclass(kind, optim.Optimizer) and "fused" in kind.__init__.__annotations__
]  # fmt: skip
BOTH = {
    "scatter": lambda: X.scatter(0, AT, src=X, value=1.0),
    "scatter of out": lambda: gl.scatter(X, 0, AT, X, value=1.0, out=gl.empty(3, 4)),
    "scatter_": lambda: X.clone().scatter_(0, AT, src=X, value=1.0),
    **{f"{name} {correction}": lambda name=name, correction=correction: getattr(gl, name)(X, unbiased=True, correction=correction)
       for name in ("std", "var", "std_mean", "var_mean") for correction in (0, 2)},
    "Tensor.std": lambda: X.std(unbiased=False, correction=2), "Tensor.var": lambda: X.var(unbiased=False, correction=2),
    "trapezoid": lambda: gl.trapezoid(X, X, dx=2.0), "trapz": lambda: gl.trapz(X, X, dx=2.0),
    "cumulative_trapezoid": lambda: gl.cumulative_trapezoid(X, X, dx=0.5),
    "searchsorted": lambda: gl.searchsorted(X[0], X[0], right=True, side="left"),
    "interpolate": lambda: F.interpolate(X[None, None], size=(2, 2), scale_factor=2.0),
    "sum": lambda: X.sum(dim=0, axis=1), "softmax": lambda: X.softmax(dim=0, axis=1),
    "DataLoader": lambda: DataLoader(TensorDataset(X), batch_sampler=[[0]], batch_size=2),
    "DataLoader of a sampler": lambda: DataLoader(TensorDataset(X), sampler=[0], shuffle=True),
    **{name: lambda name=name: getattr(optim, name)([nn.Parameter(X)], foreach=True, fused=True) for name in FUSED},
}  # fmt: skip
HALF = {
    "where": lambda: gl.where(X > 1, X), "where of other": lambda: gl.where(X > 1, other=X), "Tensor.where": lambda: X.where(X > 1, None),
    "scatter": lambda: X.scatter(0, AT), "clamp": lambda: X.clamp(), "interpolate": lambda: F.interpolate(X[None, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_both(name):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        BOTH[name]()


@pytest.mark.parametrize("name", HALF)
def test_a_part(name):
    """And where one of two is left out, nothing else is computed instead."""
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        HALF[name]()
