"""`axis` and `keepdims` for `dim` and `keepdim`, and `out=`: the same results, in the tensor that was given."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import gradlab as gl

X = (np.arange(16, dtype="float32").reshape(4, 4) * 7 % 16 + 1) / 17
Y = X.T.copy() + 0.5
I8 = np.array([[8, 12, 5], [9, 6, 1]])
PLACES = np.array([[0, 2, 1, 3]])
EYE = np.eye(4, dtype="float32") * 2

REFLECTIONS, FACTORS = (t.numpy() for t in gl.geqrf(gl.from_numpy(X)))
LU, PIVOTS = (t.numpy() for t in gl.linalg.lu_factor(gl.from_numpy(X)))

# Arguments of functions that do not take one matrix: arrays become tensors, lists of arrays lists of tensors.
ARGUMENTS = {
    "bitwise_not": (I8,), "polygamma": (1, X), "mvlgamma": (X + 5, 2), "gather": (X, 0, PLACES), "take_along_dim": (X, PLACES, 0),
    "index_select": (X, 0, PLACES[0]), "masked_select": (X, X > 0.5), "lerp": (X, Y, 0.5), "addcmul": (X, X, Y), "addcdiv": (X, X, Y),
    "bmm": (X[None], Y[None]), "dot": (X[0], Y[0]), "vdot": (X[0], Y[0]), "outer": (X[0], Y[0]), "ger": (X[0], Y[0]), "mv": (X, Y[0]),
    "addmm": (X, X, Y),
    "addmv": (X[0], X, Y[0]), "addr": (X, X[0], Y[0]), "baddbmm": (X[None], X[None], Y[None]), "addbmm": (X, X[None], Y[None]),
    "chain_matmul": (X, Y), "matrix_power": (X, 2), "cross": (X[:, :3], Y[:, :3]), "clamp": (X, 0.6), "clip": (X, 0.6),
    "where": (X > 0.5, X, Y),
    "cat": ([X, Y],), "concat": ([X, Y],), "concatenate": ([X, Y],), "stack": ([X, Y],), "hstack": ([X, Y],), "vstack": ([X, Y],),
    "row_stack": ([X, Y],), "dstack": ([X, Y],), "column_stack": ([X, Y],), "cholesky": (EYE,), "cholesky_solve": (X, EYE),
    "cholesky_inverse": (EYE,), "topk": (X, 2), "kthvalue": (X, 2), "searchsorted": (np.sort(X[0]), X),
    "bucketize": (X, np.sort(X[0])), "renorm": (X, 2, 0, 1.0), "quantile": (X, 0.5), "nanquantile": (X, 0.5),
    "softmax": (X, 0), "log_softmax": (X, 0), "cumsum": (X, 0), "cumprod": (X, 0), "logcumsumexp": (X, 0),
    "cummax": (X, 0), "cummin": (X, 0), "logsumexp": (X, 0), "unsqueeze": (X, 0), "split": (X, 2), "split_with_sizes": (X, [1, 3]),
    "unsafe_split": (X, 2), "unsafe_split_with_sizes": (X, [1, 3]), "unsafe_chunk": (X, 2),
    "tensor_split": (X, 2), "chunk": (X, 2), "squeeze": (X,), "repeat_interleave": (X, 2), "inverse": (EYE,),
    "zeros": (4,), "ones": (4,), "empty": (4,), "full": ((2,), 7.0), "arange": (4,), "linspace": (0.0, 1.0, 3), "logspace": (0.0, 1.0, 3),
    "eye": (3,), "rand": (4,), "randn": (4,), "randint": (5, (3,)), "randperm": (4,), "bernoulli": (X / 2,), "multinomial": (X, 2),
    "normal": (X, Y), "threshold": (X, 0.5, 1.0), "take": (X, PLACES), "isin": (X, X),
    "scatter": (X, 0, PLACES, X[:1]), "scatter_add": (X, 0, PLACES, X[:1]), "scatter_reduce": (X, 0, PLACES, X[:1], "sum"),
    "index_add": (X, 0, PLACES[0], Y), "index_copy": (X, 0, PLACES[0], Y), "index_fill": (X, 0, PLACES[0], 1.0),
    "index_reduce": (X, 0, PLACES[0], Y, "prod"), "narrow": (X, 0, 1, 2), "select": (X, 0, 1), "select_scatter": (X, Y[0], 0, 1),
    "slice_scatter": (X, Y, 0, 0, 4), "unflatten": (X, 0, (2, 2)),
    "expand_copy": (X[:1], (3, 4)), "permute_copy": (X, (1, 0)), "select_copy": (X, 0, 1), "split_copy": (X, 2),
    "split_with_sizes_copy": (X, [1, 3]), "transpose_copy": (X, 0, 1), "unfold_copy": (X, 0, 2, 1), "unsqueeze_copy": (X, 0),
    "lu_solve": (Y, LU, PIVOTS), "lu_unpack": (LU, PIVOTS), "orgqr": (REFLECTIONS, FACTORS), "ormqr": (REFLECTIONS, FACTORS, Y),
    "native_batch_norm": (X, Y[0], Y[1], None, None, True, 0.1, 1e-5),
    "as_strided_copy": (X, (2, 3), (4, 1)), "narrow_copy": (X, 0, 1, 2), "view_copy": (X, (2, 8)), "range": (1, 4),
}  # fmt: skip
INTEGERS = {
    "bitwise_and": (I8, I8 + 1), "bitwise_or": (I8, I8 + 1), "bitwise_xor": (I8, I8 + 1), "gcd": (I8, I8 + 4), "lcm": (I8, I8 + 4),
    "bitwise_left_shift": (I8, I8 * 0 + 1), "bitwise_right_shift": (I8, I8 * 0 + 1), "ldexp": (X, np.ones((4, 4), "int64")),
}  # fmt: skip


def taking(name):
    """Public functions with a parameter of that name."""
    every = {key: getattr(gl, key) for key in dir(gl)}  # those that come when they are asked for, too
    known = {key: getattr(value, "plain", value) for key, value in every.items()}  # as no class of another test's answers for it
    public = {key: value for key, value in known.items() if inspect.isfunction(value) and not key.startswith("_")}
    return {key: value for key, value in public.items() if name in inspect.signature(value).parameters}


def tensors(arguments):
    return [
        gl.from_numpy(a) if isinstance(a, np.ndarray) else [gl.from_numpy(b) for b in a] if type(a) is list and len(a[:1]) and not
        isinstance(a[0], int) else a
        for a in arguments
    ]  # fmt: skip


def arguments_of(name, function):
    known = {**ARGUMENTS, **INTEGERS}.get(name)
    if known is not None:
        return tensors(known)
    needed = [p for p in inspect.signature(function).parameters.values() if p.kind < 2 and p.default is p.empty]
    return tensors([X, Y][: len(needed)])


OUT, AXIS = taking("out"), taking("axis")
OUT.pop("nonzero_static", None)  # it takes size= by name alone
for named in ("segment_reduce", "fake_quantize_per_channel_affine"):  # PyTorch has no other name for it
    AXIS.pop(named)
WRITES_ALONE = {"split_copy", "split_with_sizes_copy", "unbind_copy"}  # give nothing where there is an `out`, as in PyTorch


def parts(result):
    return [result] if isinstance(result, gl.Tensor) else list(result)


def test_there_are_many():
    assert len(OUT) > 150, len(OUT)
    assert len(AXIS) > 40
    assert not [name for name in taking("keepdim") if "keepdims" not in inspect.signature(getattr(gl, name)).parameters]


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("name", OUT)
def test_out_holds_the_result(name):
    function, arguments = OUT[name], arguments_of(name, OUT[name])
    gl.manual_seed(0)  # some draw random numbers
    expected = function(*arguments)
    targets = [gl.zeros(e.shape, dtype=e.dtype) for e in parts(expected)]
    out = targets[0] if isinstance(expected, gl.Tensor) else tuple(targets)
    memory = [t.data_ptr() for t in targets]
    gl.manual_seed(0)
    found = function(*arguments, out=out)
    if name in WRITES_ALONE:
        assert found is None
        found = out
    assert type(found) is type(expected)
    assert [id(f) for f in parts(found)] == [id(t) for t in targets]
    assert [t.data_ptr() for t in targets] == memory
    for f, e in zip(parts(found), parts(expected), strict=True):
        np.testing.assert_array_equal(f.numpy(), e.numpy())
    empty = [gl.empty(0, dtype=e.dtype) for e in parts(expected)]
    gl.manual_seed(0)
    function(*arguments, out=empty[0] if isinstance(expected, gl.Tensor) else empty)
    for f, e in zip(empty, parts(expected), strict=True):
        assert f.shape == e.shape
        np.testing.assert_array_equal(f.numpy(), e.numpy())


@pytest.mark.parametrize("name", AXIS)
def test_axis_is_dim(name):
    function, arguments = AXIS[name], arguments_of(name, AXIS[name])
    signature = inspect.signature(function)
    bound = signature.bind(*arguments).arguments
    bound.pop("dim", None)
    dim = 1 if name not in ("unique", "unique_consecutive", "take_along_dim") else 0
    expected, found = function(**bound, dim=dim), function(**bound, axis=dim)
    for f, e in zip(parts(found), parts(expected), strict=True):
        np.testing.assert_array_equal(f.numpy(), e.numpy())
    with pytest.raises(TypeError, match="axis"):
        function(**bound, dim=-2, axis=dim)


@pytest.mark.parametrize("name", [n for n in gl.fft.__all__ if not n.endswith("freq")])
def test_axis_of_transforms(name):
    function, x = getattr(gl.fft, name), gl.from_numpy(X)
    axis = (0,) if name.endswith(("2", "n")) else 0
    np.testing.assert_array_equal(function(x, axis=axis).numpy(), function(x, dim=axis).numpy())
    np.testing.assert_array_equal(getattr(gl.fft, name)(x, axis=None).numpy(), function(x).numpy())
    for given in ((x, None, 0), (x,)):
        with pytest.raises(TypeError, match=f"{name}.*both dim=0 and axis=1" if "shift" not in name else name):
            function(*given, axis=1, **({"dim": 0} if len(given) == 1 else {}))


def test_each_dim_has_its_axis():
    """But for what PyTorch writes in Python."""
    of_python = {"unflatten", "segment_reduce", "scan"}
    assert not [name for name in taking("dim") if "axis" not in inspect.signature(getattr(gl, name)).parameters and name not in of_python]


def test_required_dim_is_missed_by_name():
    for name in ("softmax", "cumsum", "logsumexp", "unsqueeze"):
        with pytest.raises(TypeError, match="'dim'"):
            getattr(gl, name)(gl.ones(2))


def test_keepdims():
    x = gl.from_numpy(X)
    assert x.sum(axis=1, keepdims=True).shape == (4, 1)
    assert gl.amax(x, axis=(0, 1), keepdims=True).shape == (1, 1)
    assert x.std(axis=0, keepdims=True).shape == (1, 4)
    assert x.max(axis=1, keepdims=True).indices.shape == (4, 1)


def test_out_may_be_an_argument():
    x = gl.from_numpy(X.copy())
    assert gl.add(x, x, out=x) is x
    np.testing.assert_array_equal(x.numpy(), 2 * X)
    gl.matmul(x, x, out=x)
    np.testing.assert_allclose(x.numpy(), 4 * X @ X, rtol=1e-6)
    gl.exp(x[0], out=x[1])  # through a view
    np.testing.assert_array_equal(x[1].numpy(), x[0].exp().numpy())


def test_out_converts_and_refuses():
    x = gl.from_numpy(X)
    double = gl.empty(0, dtype=gl.float64)
    np.testing.assert_array_equal(gl.exp(x, out=double).numpy(), x.exp().double().numpy())
    with pytest.raises(RuntimeError, match="can't be cast"):
        gl.exp(x, out=gl.zeros(4, 4, dtype=gl.int64))
    with pytest.raises(RuntimeError, match="can't be cast"):
        gl.mm(x, x, out=double)
    with pytest.raises(TypeError, match="'out'"):
        gl.exp(x, out=X)
    with pytest.raises(TypeError, match="2 tensors"):
        gl.sort(x, out=gl.empty(0))
    with pytest.raises(RuntimeError, match="view"):
        gl.exp(x, out=gl.zeros(8)[2:6])


def test_out_warns_where_it_resizes():
    with pytest.warns(UserWarning, match=r"resized since it had shape \[3\]"):
        assert gl.exp(gl.zeros(2, 2), out=gl.ones(3)).shape == (2, 2)


def test_out_records_nothing():
    x = gl.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        gl.exp(x, out=gl.empty(0))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        gl.exp(gl.ones(2), out=x)
    with gl.no_grad():
        assert not gl.exp(x, out=gl.empty(0)).requires_grad


def test_out_in_a_compiled_function():
    @gl.compile
    def step(x, y):
        out = gl.zeros(2)
        gl.add(x, y, out=out)
        return out * 2

    for _ in range(3):
        np.testing.assert_array_equal(step(gl.ones(2), gl.ones(2)).numpy(), [4, 4])


# PyTorch takes other types here for some kinds only, warns of the function itself, or takes `out` only together with `dim`.
APART = {"all", "any", "max", "min", "sum", "prod", "cholesky", "chain_matmul", "ger", "ldexp"}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("name", [name for name in OUT if name not in APART])
def test_out_of_another_type_as_torch(name):
    """What converts there converts here, what raises there raises here."""
    torch = pytest.importorskip("torch")
    theirs = getattr(torch, name)
    arguments = arguments_of(name, OUT[name])
    expected = OUT[name](*arguments)
    other = {
        gl.float32: "float64", gl.float64: "float32", gl.int64: "int32", gl.int32: "int64", gl.bool: "uint8", gl.complex64: "complex128",
    }

    def attempt(engine, function, given):
        outs = [engine.empty(0, dtype=getattr(engine, other[e.dtype])) for e in parts(expected)]
        try:
            function(*given, out=outs[0] if isinstance(expected, gl.Tensor) else tuple(outs))
        except (RuntimeError, TypeError) as error:
            return type(error) is TypeError or "out" in str(error), False
        return True, True

    def converted(a):
        return [torch.from_numpy(b.numpy()) for b in a] if isinstance(a, list) and isinstance(a[0], gl.Tensor) else (
            torch.from_numpy(a.numpy()) if isinstance(a, gl.Tensor) else a
        )  # fmt: skip

    assert attempt(gl, OUT[name], arguments)[1] == attempt(torch, theirs, [converted(a) for a in arguments])[1]


def test_out_that_shares_memory_is_refused():
    x, at = gl.arange(6.0), gl.tensor([0, 2])
    for call in (
        lambda: gl.cat([x[:3], x[:3]], out=x),
        lambda: gl.gather(x, 0, gl.arange(6), out=x),
        lambda: gl.index_select(x, 0, at, out=x[4:]),
        lambda: gl.masked_select(x, x > 3, out=x[:2]),
    ):
        with pytest.raises(RuntimeError, match="out shares memory with an input"):
            call()
    same = gl.from_numpy(np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (6,), (0,)))
    with pytest.raises(RuntimeError, match="lie in one place"):
        gl.exp(x, out=same)
    np.testing.assert_array_equal(x.numpy(), np.arange(6, dtype=np.float32))


def test_out_of_functions_that_make_tensors():
    """Without a dtype that of `out`; another one, or another shape, as in PyTorch."""
    out = gl.ones(2, dtype=gl.float64)
    assert gl.arange(3, out=out) is out
    assert out.tolist() == [0.0, 1.0, 2.0]  # no warning: the shape is the function's to say
    assert gl.randint(0, 5, (4,), out=out).dtype == gl.float64
    assert gl.full((2,), 7, out=out).tolist() == [7.0, 7.0]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        gl.zeros(2, out=out, dtype=gl.float32)
    with pytest.raises(TypeError, match="'out' must be a tensor"):
        gl.ones(2, out=[1.0, 2.0])
    with pytest.raises(RuntimeError, match="result type"):
        gl.multinomial(gl.ones(2), 1, out=out)
    with pytest.raises(RuntimeError, match="requires grad"):
        gl.zeros(2, out=gl.ones(2, requires_grad=True))
