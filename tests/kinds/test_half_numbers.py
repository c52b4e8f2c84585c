"""Half tensors and a Python number, a 0-d tensor or an integer tensor: none of these is rounded to the half type, the result is, once.

Eager, compiled (to machine code and to NumPy), traced, exported and on the GPU alike.
"""

import dataclasses
import math
import warnings

import deployed
import numpy as np
import pytest
from test_compile_numpy import executable_of, ran

import gradlab as gl
from gradlab import ops
from gradlab.nn import functional as F

from kinds.calls import CALLS, converted
from kinds.halves import HALVES, SIZES, apart, sized, ulps

NUMBERS = (65536.0, 1e5, 0.1, 1e-3, 3e-8, -1.0003, 70001)
# Functions of a number n and of tensors; where a tensor is used twice, its gradient has two parts, each rounded.
PLAIN = {
    "x + n": lambda n, x: x + n, "x - n": lambda n, x: x - n, "n - x": lambda n, x: n - x, "x * n": lambda n, x: x * n,
    "x / n": lambda n, x: x / n, "n / x": lambda n, x: n / x, "x // n": lambda n, x: x // n, "x % n": lambda n, x: x % n,
    "n % x": lambda n, x: n % x, "fmod": lambda n, x: gl.fmod(x, n), "x < n": lambda n, x: x < n, "x <= n": lambda n, x: x <= n,
    "x > n": lambda n, x: x > n, "x >= n": lambda n, x: x >= n, "x == n": lambda n, x: x == n, "x != n": lambda n, x: x != n,
    "x ** n": lambda n, x: x ** min(n, 2.5), "n ** x": lambda n, x: min(abs(n), 2.5) ** x, "copysign": lambda n, x: x.copysign(n),
    "trunc": lambda n, x: gl.div(x, n, rounding_mode="trunc"), "floor": lambda n, x: gl.div(x, n, rounding_mode="floor"),
    "xlogy": lambda n, x: gl.xlogy(x, abs(n)), "xlogy of n": lambda n, x: gl.xlogy(n, x), "clamp": lambda n, x: x.clamp(-abs(n), abs(n)),
    "where": lambda n, x: gl.where(x > 0, x, n), "masked_fill": lambda n, x: x.masked_fill(x > 0, n), "rsub": lambda n, x: gl.rsub(x, n),
    "pad": lambda n, x: F.pad(x, (1, 1), value=n / 2), "full_like": lambda n, x: gl.full_like(x, n / 2),
    "add of n": lambda n, x: gl.add(x, 3, alpha=n), "fill_": lambda n, x: x.clone().fill_(n / 2), "add_": lambda n, x: x.clone().add_(n),
    "sub_": lambda n, x: x.clone().sub_(n), "mul_": lambda n, x: x.clone().mul_(n), "div_": lambda n, x: x.clone().div_(n),
    "index_fill": lambda n, x: x.index_fill(0, gl.tensor([1]), n), "threshold": lambda n, x: F.threshold(x, n, n),
    "leaky_relu": lambda n, x: F.leaky_relu(x, n), "elu": lambda n, x: F.elu(x, n), "celu": lambda n, x: F.celu(x, abs(n)),
    "softplus": lambda n, x: F.softplus(x, abs(n)), "hardtanh": lambda n, x: F.hardtanh(x, -abs(n), abs(n)),
    "nan_to_num": lambda n, x: x.masked_fill(x > 0, math.nan).nan_to_num(n), "hardshrink": lambda n, x: F.hardshrink(x, abs(n)),
    "softshrink": lambda n, x: F.softshrink(x, abs(n)), "full": lambda n, x: x.new_full((2,), n / 2),
    "setitem": lambda n, x: _set(x.clone(), n), "scatter": lambda n, x: x.scatter(0, gl.tensor([1, 3]), n / 2),
    "scatter by product": lambda n, x: x.scatter(0, gl.tensor([1, 3, 1]), n, reduce="multiply"),
    "scatter_ by product": lambda n, x: x.clone().scatter_(0, gl.tensor([1, 3]), n, reduce="multiply"),
    "scatter by sum": lambda n, x: x.scatter(0, gl.tensor([1, 3, 1]), n, reduce="add"),
    "scatter_add": lambda n, x: x.scatter_add(0, gl.tensor([1, 3]), n),
    "scatter_add_": lambda n, x: x.clone().scatter_add_(0, gl.tensor([1, 3]), n),
    "scatter_reduce": lambda n, x: x.scatter_reduce(0, gl.tensor([1, 3]), n, "mean"),
}  # fmt: skip
OF_THREE = {
    "add": lambda n, x, y, z: gl.add(x, y, alpha=n), "sub": lambda n, x, y, z: x.sub(y, alpha=n), "lerp": lambda n, x, y, z: x.lerp(y, n),
    "rsub": lambda n, x, y, z: gl.rsub(x, y, alpha=n), "add_": lambda n, x, y, z: x.clone().add_(y, alpha=n),
    "addcmul": lambda n, x, y, z: gl.addcmul(x, y, z, value=n), "addcdiv": lambda n, x, y, z: gl.addcdiv(x, y, z, value=n),
    "addcmul_": lambda n, x, y, z: x.clone().addcmul_(y, z, value=n), "addcdiv_": lambda n, x, y, z: x.clone().addcdiv_(y, z, value=n),
    "index_add": lambda n, x, y, z: x.index_add(0, gl.tensor([1, 4]), y[:2], alpha=n),
    "index_add_": lambda n, x, y, z: x.clone().index_add_(0, gl.tensor([1, 4]), y[:2], alpha=n),
    "addr": lambda n, x, y, z: gl.addr(x.reshape(2, 3), y[:2], z[:3], alpha=n, beta=0.3),
    "addr of n": lambda n, x, y, z: x.reshape(2, 3).addr(y[:2], z[:3], beta=n),
}  # fmt: skip
SUMS = {  # whose terms may cancel: within the last place of the largest result
    "addmm": lambda n, x, y, z: gl.addmm(x.reshape(2, 3), y.reshape(2, 3), z[:3].diag(), alpha=n, beta=0.3),
    "addmm of n": lambda n, x, y, z: x.reshape(3, 2).addmm(y.reshape(3, 2), z[:4].reshape(2, 2), beta=n),
    "baddbmm": lambda n, x, y, z: gl.baddbmm(x.reshape(1, 2, 3), y.reshape(1, 2, 3), z[:3].diag().unsqueeze(0), alpha=0.3, beta=n),
    "addbmm": lambda n, x, y, z: gl.addbmm(x[:4].reshape(2, 2), y.reshape(3, 2, 1), z.reshape(3, 1, 2), alpha=n),
    "addmv": lambda n, x, y, z: gl.addmv(x[:2], y.reshape(2, 3), z[3:], alpha=n, beta=0.3),
    "linear": lambda n, x, y, z: F.linear(x.reshape(2, 3), y.reshape(2, 3), z[:2]),
    "conv_transpose1d": lambda n, x, y, z: F.conv_transpose1d(x.reshape(1, 2, 3), y.reshape(2, 1, 3), z[:1]),
    "conv_transpose1d with padding": lambda n, x, y, z: F.conv_transpose1d(
        x.reshape(1, 2, 3), y.reshape(2, 1, 3), z[:1], stride=2, dilation=3, output_padding=2),
}  # fmt: skip
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_size = pytest.mark.parametrize("size", SIZES)
DRAWS = [np.random.default_rng(seed).uniform(-1, 1, 6) for seed in range(3)]


def _set(x, n):
    x[1:3] = n
    return x


def halves(size, dtype, count):
    return [gl.tensor(sized(values, size, dtype), dtype=dtype) for values in DRAWS[:count]]


def compared(function, tensors, numbers=NUMBERS, number=lambda n: n):
    """For each number the results and gradients of half tensors, and of the same values in float32."""
    for n in numbers:
        found = []
        for wide in (False, True):
            leaves = [(t.float() if wide else t.clone()).requires_grad_() for t in tensors]
            y = function(number(n), *leaves)
            slopes = gl.autograd.grad(y, leaves, y.ones_like(), allow_unused=True) if y.requires_grad else []
            found.append((y.detach(), *[g for g in slopes if g is not None]))
        assert found[0][0].dtype == (tensors[0].dtype if found[1][0].dtype.is_floating_point else found[1][0].dtype)
        yield n, found


@each_half
@each_size
@pytest.mark.parametrize("name", PLAIN)
def test_a_number_is_not_rounded(name, size, dtype):
    for n, (half, wide) in compared(PLAIN[name], halves(size, dtype, 1)):
        for y, want in zip(half, wide, strict=True):
            assert ulps(y, want) <= 1, n


@each_half
@each_size
@pytest.mark.parametrize("name", OF_THREE)
def test_a_sum_with_a_multiple_is_rounded_once(name, size, dtype):
    for n, (half, wide) in compared(OF_THREE[name], halves(size, dtype, 3)):
        for y, want in zip(half, wide, strict=True):
            assert ulps(y, want) <= 1, n


@each_half
@pytest.mark.parametrize("size", SIZES[:3])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_products_is_rounded_once(name, size, dtype):
    for n, (half, wide) in compared(SUMS[name], halves(size, dtype, 3), (0.1, 1.0003, -1e-3)):
        for y, want in zip(half, wide, strict=True):
            finite = want.to(dtype).isfinite()
            assert finite.equal(y.isfinite())
            apart, largest = ((v.masked_fill(~finite, 0)).abs().max().item() for v in (y.float() - want, want))
            assert apart <= 0.51 * gl.finfo(dtype).eps * largest + gl.finfo(dtype).tiny, n


@each_half
@each_size
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "fmod", "remainder", "floor_divide", "atan2", "hypot", "maximum", "minimum",
                                  "xlogy", "copysign", "pow", "logaddexp", "fmax"])  # fmt: skip
def test_a_tensor_beside_is_not_rounded(name, kind, size, dtype):
    """A 0-d tensor wider than the half type, or integers of any shape."""
    function, kind = getattr(gl, name), getattr(gl, kind)
    numbers = [n for n in (65536.0, 1e5, 1e-3, 0.1, -3.0, 70001) if kind.is_floating_point or n == int(n)]
    numbers = [min(n, 2) for n in numbers] if name == "pow" else numbers
    shapes = [()] if kind.is_floating_point else [(), (6,)]
    for shape in shapes:
        for swapped in (False, True):

            def call(n, x, swapped=swapped):
                return function(n, x) if swapped else function(x, n)

            def number(n, shape=shape):
                return gl.full(shape, n, dtype=kind)

            for n, (half, wide) in compared(call, halves(size, dtype, 1), numbers, number):
                for y, want in zip(half, wide, strict=True):
                    assert ulps(y, want) <= 1, (n, shape, swapped)


@each_half
@pytest.mark.parametrize("number", [0.7, 0.3, 1e5, 0.1])
@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("function", [F.hardshrink, F.softshrink, lambda x, n: F.threshold(x, n, 20.0)])
def test_a_limit_is_not_rounded(function, way, number, dtype):
    """What a number is rounded to is above or below it, and so is an element of that value."""
    x = gl.tensor([number, -number], dtype=dtype)
    found = (gl.compile(function) if way == "compiled" else function)(x, number)
    assert ulps(found, function(x.float(), number)) <= 1


@each_half
@pytest.mark.parametrize("number", [0.1, -0.3, 1e-3, -1e9, 3, 1 / 3, 70001])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_a_comparison_rounds_as_writing_does(number, way, dtype):
    """A tensor that was filled with a number, or cut at it, compares as equal to it: the one rule that PyTorch and NumPy share here."""

    def compared(x):
        filled = x.masked_fill(x > 0, number)
        cut = x.clamp(max=number)
        return [(c(filled, n), c(cut, n)) for c in (gl.eq, gl.le, gl.ge, gl.ne, gl.lt, gl.gt) for n in (number, gl.tensor(float(number)))]

    x = gl.tensor([float("inf")] * 3, dtype=dtype)
    found = (gl.compile(compared) if way == "compiled" else compared)(x)
    assert [(a.all().item(), b.all().item()) for a, b in found] == [(True, True)] * 6 + [(False, False)] * 6


def _awkward(value):
    """A number that no half type holds in place of one in a call's arguments."""
    if type(value) is float and math.isfinite(value) and value not in (0.0, 1.0):
        return value * (1 - 2**-10)
    return value


WITH_NUMBERS = [
    awkward
    for call in CALLS
    if not call.marks & {"random", "making", "integer"}
    for awkward in [dataclasses.replace(call, arguments=converted(call.arguments, lambda x: x, _awkward),
                                        options=converted(call.options, lambda x: x, _awkward))]
    if repr((awkward.arguments, awkward.options)) != repr((call.arguments, call.options))
]  # fmt: skip


@pytest.mark.parametrize("call", WITH_NUMBERS, ids=repr)
def test_every_call_that_takes_a_number(call):
    for dtype in HALVES:
        try:
            found = apart(call, "1", dtype)
        except RuntimeError as error:
            assert "needs float32 or float64" in str(error)
        else:
            assert max(found) <= 1


def test_there_are_such_calls():
    assert len(WITH_NUMBERS) > 100, len(WITH_NUMBERS)


# ---------------------------------------------------------------- other ways to run the same

FEW = ("x + n", "n - x", "x * n", "n / x", "x // n", "fmod", "x < n", "x == n", "x ** n", "where", "clamp", "xlogy", "leaky_relu", "add_")
SCALARS = (gl.tensor(0.1001), gl.tensor(1e5, dtype=gl.float64), gl.tensor(70001))


def everything(x, y, z):
    """All of the functions above on one number each, and tensors without dimensions."""
    found = [f(n, x) for i, f in enumerate(PLAIN.values()) for n in (NUMBERS[i % 5], -1.0003)]
    found += [f(0.1001, x, y, z) for f in (*OF_THREE.values(), *SUMS.values())]
    found += [op(x, s.to(x.device)) for s in SCALARS for op in (gl.mul, gl.div, gl.add, gl.sub, gl.remainder, gl.lt)]
    slopes = gl.autograd.grad([t for t in found if t.requires_grad], (x, y, z), [t.ones_like() for t in found if t.requires_grad])
    return [*(t.detach() for t in found), *slopes]


def leaves_of(dtype):
    return [t.requires_grad_() for t in halves("1", dtype, 3)]


def alike(found, expected, most=1):
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert ulps(gl.tensor(f) if isinstance(f, np.ndarray) else f, e) <= most, (i, f, e)


@each_half
def test_compiled(dtype):
    compiled, tensors = gl.compile(everything), leaves_of(dtype)
    expected = everything(*tensors)
    for _ in range(3):
        alike(compiled(*tensors), expected)


@each_half
def test_compiled_to_numpy(dtype):
    tensors = leaves_of(dtype)
    alike(ran(executable_of(everything, tensors), tensors), everything(*tensors))


@each_half
def test_traced(dtype, tmp_path):
    tensors = leaves_of(dtype)
    gl.jit.trace(everything, tensors).save(tmp_path / "program.gl")
    alike(gl.jit.load(tmp_path / "program.gl")(*tensors), everything(*tensors))


def forward(x, y, z):
    """The functions of numbers that are no writes in place. ONNX Runtime's Celu loses digits for large numbers."""
    found = [f(n, x) for name, f in PLAIN.items() if name[-1] != "_" and name not in ("setitem", "celu") for n in (0.1001, 65536.0)]
    return found + [f(0.1001, x, y, z) for name, f in {**OF_THREE, **SUMS}.items() if not name.endswith("_")]


def test_exported_to_onnx(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    tensors = halves("1", gl.float16, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gl.onnx.ExportWarning)
        gl.onnx.export(forward, tuple(tensors), tmp_path / "m.onnx", tolerance=2e-3)
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {i.name: t.numpy() for i, t in zip(session.get_inputs(), tensors, strict=True)})
    alike(found, forward(*tensors))


@pytest.mark.skipif(deployed.compiler() is None, reason="no C compiler")
def test_exported_to_c(tmp_path):
    tensors = halves("1", gl.float16, 3)
    built = gl.deploy.build(gl.jit.trace(forward, tensors), tmp_path / "numbers")
    alike(deployed.ran(deployed.compiled(built, "-O1"), built, tensors), forward(*tensors))


def on_the_gpu(x, y, z, *scalars):
    found = [PLAIN[name](n, x) for name in FEW for n in (0.1001, 65536.0)]
    found += [f(0.1001, x, y, z) for f in SUMS.values()]
    return [*found, *(x * s for s in scalars)]


@pytest.mark.parametrize("dtype", [pytest.param(HALVES[0], marks=pytest.mark.whole), *HALVES[1:]], ids=str)
def test_on_the_gpu(dtype, cuda):
    tensors = [*halves("1", dtype, 3), *SCALARS]
    expected, there = on_the_gpu(*tensors), [t.cuda() for t in tensors]
    alike([t.cpu() for t in on_the_gpu(*there)], expected)
    compiled = gl.compile(on_the_gpu)
    for _ in range(3):
        found = compiled(*there)
    alike([t.cpu() for t in found], expected)


# ---------------------------------------------------------------- what is kept from call to call

OPTIMIZERS = {
    name: kind for name, kind in vars(gl.optim).items()
    if isinstance(kind, type) and issubclass(kind, gl.optim.Optimizer) and name not in ("Optimizer", "LBFGS", "SparseAdam")
}  # fmt: skip


@each_half
@pytest.mark.parametrize("decay", [0.0, 0.1003])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_is_rounded_once(name, decay, dtype):
    options = {"eps": (1e-4, 1e-3)} if name == "Adafactor" else {}  # by default the type's own
    if name != "Rprop":
        options["weight_decay"] = decay
    values, slopes = (t.reshape(2, 3) for t in halves("1", dtype, 2))
    found = []
    for kind in (dtype, gl.float32):
        p = values.clone().to(kind).requires_grad_()
        p.grad = slopes.to(kind)
        optimizer = OPTIMIZERS[name]([p], lr=0.1003, **options)
        optimizer.step()
        found.append([p.detach(), *(s for s in optimizer.state[p].values() if isinstance(s, gl.Tensor))])
    for half, wide in zip(*found, strict=True):
        assert ulps(half, wide) <= (2 if name == "Muon" else 1)  # its iteration, in bfloat16, begins with the momentum as it is kept


def test_there_are_such_optimizers():
    assert len(OPTIMIZERS) >= 14, list(OPTIMIZERS)


@each_half
@pytest.mark.parametrize("module", ["BatchNorm1d", "InstanceNorm1d"])
@pytest.mark.parametrize("momentum", [0.1003, None])
def test_running_statistics_are_rounded_once(module, momentum, dtype):
    values = gl.tensor(sized(np.random.default_rng(3).uniform(-1, 1, (8, 3, 5)), "3e2", dtype), dtype=dtype)  # squares overflow float16
    found = []
    for kind in (dtype, gl.float32):
        norm = getattr(gl.nn, module)(3, momentum=momentum, track_running_stats=True).to(kind)
        for function in (norm, gl.compile(norm)):
            norm.reset_running_stats()
            function(values.to(kind))
            function(values.to(kind))
            found.append([norm.running_mean.clone(), norm.running_var.clone()])
    eager, compiled, wide, _ = found
    for half in (eager, compiled):
        for a, b in zip(half, wide, strict=True):
            assert ulps(a, b) <= 2  # each of two steps rounds


@each_half
def test_statistics_of_norms_stay_float32(dtype):
    x = halves("3e2", dtype, 1)[0].reshape(2, 3)
    for row, params in (("layer_norm", {"k": 1}), ("rms_norm", {"k": 1}), ("batch_norm", {})):
        op = ops.ROWS[row]
        y, *statistics = op.call(x, *[None] * (len(op.inputs) - 1), eps=1e-5, **params)
        assert y.dtype == dtype
        assert {s.dtype for s in statistics} == {gl.float32}


@each_half
def test_more_elements_than_a_half_type_counts(dtype):
    x = gl.full((70_000,), 0.5, dtype=dtype)
    assert x.mean().item() == 0.5
    assert x.to(gl.float32).sum().to(dtype).equal(x.sum())
    assert (x.std().item(), x.var().item()) == (0, 0)
    mean = gl.zeros(1, dtype=dtype).scatter_reduce(0, gl.zeros(70_000, dtype=gl.int64), x, "mean", include_self=False)
    assert mean.item() == 0.5


# ---------------------------------------------------------------- vmap: rules that take several rows

OF_EACH = {  # functions of three tensors with samples of these shapes
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (5, 4), (4,), (4,)),
    "rms_norm": (lambda x, w, b: F.rms_norm(x, (4,), w), (5, 4), (4,), (4,)),
    "linear": (F.linear, (5, 4), (3, 4), (3,)),
    "conv1d": (F.conv1d, (2, 3, 7), (2, 3, 3), (2,)),
    "conv_transpose1d": (F.conv_transpose1d, (2, 3, 7), (3, 2, 3), (2,)),
    "mse_loss": (lambda x, w, b: F.mse_loss(x, w), (5, 4), (5, 4), (1,)),
    "cross_entropy": (lambda x, w, b: F.cross_entropy(x, gl.tensor([1, 0, 3, 2, 2])), (5, 4), (1,), (1,)),
    "addmm": (lambda x, w, b: gl.addmm(b, x, w, alpha=0.3), (5, 1), (1, 3), (3,)),
}  # fmt: skip


@each_half
@pytest.mark.parametrize("mapped", [(0, 0, 0), (0, 0, None), (None, None, 0)], ids=str)
@pytest.mark.parametrize("name", OF_EACH)
def test_a_rule_of_several_rows_is_rounded_once(name, mapped, dtype):
    function, *shapes = OF_EACH[name]
    draws = np.random.default_rng(8)
    tensors = []
    for shape, dim in zip(shapes, mapped, strict=True):
        values = draws.uniform(-1, 1, shape if dim is None else (3, *shape))
        tensors.append(gl.tensor(sized(values, "3e2" if name == "mse_loss" else "1", dtype), dtype=dtype))
    found, expected = ([gl.func.vmap(function, mapped)(*given)] for given in (tensors, [t.float() for t in tensors]))
    for half, wide in zip(found, expected, strict=True):
        finite, largest = wide.to(dtype).isfinite(), wide.abs().max().item()
        assert half.dtype == dtype
        assert finite.equal(half.isfinite())
        assert (half.float() - wide).masked_fill(~finite, 0).abs().max().item() <= 0.51 * gl.finfo(dtype).eps * largest
