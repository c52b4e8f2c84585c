"""In-place methods: each function that PyTorch has in place, compared with its out-of-place form."""

import numpy as np
import pytest

import gradlab as gl

NAMES = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arcsin arctan asin asinh atan atan2 atanh baddbmm bitwise_and
ceil clamp clamp_max clamp_min clip copysign cos cosh cumprod cumsum deg2rad digamma div divide eq erf erfc erfinv exp exp2 expm1 fix
float_power floor floor_divide fmod frac ge greater greater_equal gt heaviside hypot index_add index_copy index_fill index_put ldexp le
lerp less less_equal lgamma log log10 log1p log2 logical_and logical_not logit lt masked_fill masked_scatter mul multiply mvlgamma
nan_to_num ne neg negative not_equal polygamma pow rad2deg reciprocal relu remainder renorm round rsqrt scatter scatter_add scatter_reduce
sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh tril triu trunc xlogy
copy_ zero fill bernoulli cauchy exponential geometric log_normal normal random uniform requires_grad detach
""".split()  # noqa: SIM905 - a table
ONE = [
    ("abs", ()), ("sin", ()), ("exp", ()), ("sigmoid", ()), ("tanh", ()), ("square", ()), ("digamma", ()), ("lgamma", ()),
    ("polygamma", (1,)), ("mvlgamma", (1,)), ("renorm", (2.0, 0, 1.0)), ("clamp", (0.6, 1.2)), ("lerp", (2.0, 0.3)), ("cumsum", (0,)),
    ("tril", ()), ("pow", (2,)),
]  # fmt: skip


def test_all_are_there():
    known = dir(gl.Tensor)
    assert [n for n in NAMES if n.rstrip("_") + "_" not in known] == []


@pytest.mark.parametrize(("name", "args"), ONE)
def test_value_memory_and_gradient(name, args):
    values = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4))
    x, z = (gl.tensor(values, requires_grad=True) for _ in range(2))
    args = tuple(gl.full((3, 4), a, dtype=gl.float64) if name == "lerp" and i == 0 else a for i, a in enumerate(args))
    y = x * 1
    address = y.data_ptr()
    assert getattr(y, name + "_")(*args) is y and y.data_ptr() == address
    plain = getattr(gl, name)(1, z * 1) if name == "polygamma" else getattr(z * 1, name)(*args)
    np.testing.assert_allclose(y.detach().numpy(), plain.detach().numpy())
    (y * y).sum().backward()
    (plain * plain).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy())


@pytest.mark.parametrize(("name", "args"), ONE)
def test_refusals(name, args):
    def call(t):
        return getattr(t, name + "_")(*[gl.ones(1, dtype=gl.float64) if name == "lerp" and i == 0 else a for i, a in enumerate(args)])

    with pytest.raises(RuntimeError, match="leaf"):
        call(gl.ones(3, 4, dtype=gl.float64, requires_grad=True))
    with pytest.raises(RuntimeError, match="expanded"):
        call(gl.ones(1, 4, dtype=gl.float64).expand(3, 4))
    with gl.inference_mode():
        made = gl.ones(3, 4, dtype=gl.float64) * 1
    with pytest.raises(RuntimeError, match="inference"):
        call(made)


def test_comparisons_in_place_keep_the_dtype():
    x = gl.tensor([1.0, 2.0, 3.0])
    assert x.greater_(2.0) is x and x.tolist() == [0.0, 0.0, 1.0] and x.dtype == gl.float32
    with pytest.raises(RuntimeError, match="cannot be stored"):
        gl.tensor([1, 2]).sin_()
