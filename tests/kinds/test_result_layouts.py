"""Results lie in memory as PyTorch's do: every function on operands that are transposed, channels last, expanded or cut.

Strides of dimensions of one element say nothing and are not compared.
"""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

from kinds.calls import CALLS, TORCH, arrays_in, parts
from kinds.catalogue.giving import words


def transposed(T, t):
    return t.t().contiguous().t() if t.ndim == 2 else t.transpose(0, -1).contiguous().transpose(0, -1)


def channels_last(T, t):
    return t.contiguous(memory_format=T.channels_last if t.ndim == 4 else T.channels_last_3d) if t.ndim in (4, 5) else transposed(T, t)


def cut(T, t):
    wide = T.stack([t, t], -1).reshape(*t.shape[:-1], 2 * t.shape[-1])
    return wide[..., ::2]


LAYOUTS = {f.__name__: f for f in (transposed, channels_last, cut)}

# name: why its results lie otherwise than PyTorch's. The values are the same.
OTHERWISE = {
    **dict.fromkeys(words("addr isreal local_response_norm renorm put tensorinv"), "made of other functions"),
    **dict.fromkeys(words("index_fill mvlgamma multigammaln logsigmoid batch_norm"), "elementwise: as its operands"),
    **dict.fromkeys(words("pow __rpow__"), "the tensor exponent of a number is an operand, too"),
    **dict.fromkeys(
        words("""
            cholesky cholesky_ex cholesky_inverse cholesky_solve inverse inv inv_ex eigh lstsq lu_factor lu_factor_ex lu_solve matrix_power
            qr solve solve_ex solve_triangular svd geqrf lu lu_unpack orgqr ormqr householder_product ldl_factor ldl_factor_ex ldl_solve
        """),
        "row by row; PyTorch's are LAPACK's, column by column",
    ),
    **dict.fromkeys(words("adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d lp_pool3d"), "volumes of one batch"),
    **dict.fromkeys(words("conv3d conv_transpose3d"), "PyTorch's small volumes run by other code, row by row"),
    **dict.fromkeys(words("as_strided_scatter"), "from the start of memory on, in its order"),
    **dict.fromkeys(words("diagonal_scatter select_scatter slice_scatter"), "PyTorch's copy has the gaps of what it is a copy of"),
    **dict.fromkeys(words("index_add index_copy"), "as index_put"),
    **dict.fromkeys(words("fft fft2 fftn hfft ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft rfft"), "PyTorch's lie as its plans leave them"),
    **dict.fromkeys(words("native_batch_norm masked.logaddexp masked.normalize"), "made of other functions"),
    "kthvalue": "a view of what was sorted", "narrow_copy": "a copy lies as what it is a copy of", "__deepcopy__": "a copy has no gaps",
}


def steps(t):
    return tuple(t.shape), tuple(s for s, n in zip(t.stride(), t.shape) if n > 1)


def laid(engine, call, how, dtype):
    args, options = call.tensors(dtype) if engine is gl else call.reference_tensors(dtype)
    turn = lambda t: LAYOUTS[how](engine, t) if t.ndim > 1 else t
    change = lambda value: (
        turn(value) if isinstance(value, engine.Tensor) else type(value)(map(change, value)) if type(value) in (list, tuple)
        else {k: change(v) for k, v in value.items()} if isinstance(value, dict) else value
    )
    return change(args), change(options)


COMPARED = [
    call for call in CALLS
    if not {"random", "making"} & call.marks and any(a.ndim > 1 for a in arrays_in([*call.arguments, *call.options.values()]))
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [c for c in COMPARED if c.reference is not None], ids=repr)
def test_as_in_pytorch(call):
    for how in LAYOUTS:
        found = []
        for engine, function in ((gl, call.function), (TORCH, call.reference)):
            args, options = laid(engine, call, how, engine.float32)
            try:
                found.append([steps(t) for t in parts(call.on(args, options, function))])
            except (RuntimeError, TypeError, NotImplementedError):
                found.append(None)
        if None in found:
            continue
        assert found[0] == found[1] or {call.name, call.name.partition(".")[2]} & set(OTHERWISE), how


# ---------------------------------------------------------------- without PyTorch

LAST, ROWS = (60, 1, 15, 3), (60, 20, 5, 1)
X = gl.arange(120.0).reshape(2, 3, 4, 5)
FORMATTED = [
    (lambda x: x.clone(), LAST), (lambda x: x.clone(memory_format=gl.contiguous_format), ROWS), (lambda x: x.contiguous(), ROWS),
    (lambda x: x.double(), LAST), (lambda x: x.to(gl.float64, memory_format=gl.contiguous_format), ROWS), (gl.zeros_like, LAST),
    (gl.rand_like, LAST), (lambda x: gl.empty_like(x, memory_format=gl.preserve_format), LAST), (lambda x: x * 2, LAST),
    (lambda x: gl.where(x > 3, x, -x), LAST), (lambda x: gl.nn.functional.gelu(x.half()), LAST),
    (lambda x: x + X, LAST), (lambda x: X + x, ROWS), (lambda x: gl.nn.functional.pad(x, (1, -1)), LAST), (lambda x: x.softmax(1), ROWS),
    (lambda x: x.flip(1), LAST),
    (lambda x: X.to(memory_format=gl.channels_last), LAST), (lambda x: gl.empty(2, 3, 4, 5, memory_format=gl.channels_last), LAST),
    (lambda x: nn.BatchNorm2d(3)(x), LAST), (lambda x: nn.Conv2d(3, 3, 3, padding=1)(x), LAST),
    (lambda x: nn.Conv2d(3, 3, 3, padding=1).to(memory_format=gl.channels_last)(X), LAST), (lambda x: gl.from_numpy(x.numpy()), LAST),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMATTED)))
@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_steps(number, device, request):
    if device == "cuda":
        request.getfixturevalue("cuda")
    function, expected = FORMATTED[number]
    if number == len(FORMATTED) - 1 and device != "cpu":
        pytest.skip("NumPy's memory is the CPU's")
    x = X.contiguous(memory_format=gl.channels_last).to(device)
    with gl.device(device):
        if number in (11, 12, 16, 20) and device != "cpu":
            pytest.skip("takes an image of the CPU")
        assert function(x).stride() == expected


def test_formats_are_asked_for_and_refused():
    x = X.contiguous(memory_format=gl.channels_last)
    assert x.is_contiguous(memory_format=gl.channels_last) and not x.is_contiguous() and x.dim_order() == (0, 2, 3, 1)
    assert x.contiguous(memory_format=gl.channels_last) is x and x.to(memory_format=gl.channels_last) is x
    assert x.tolist() == X.tolist() and repr(gl.channels_last) == "gradlab.channels_last"
    assert gl.ones(2, 1, 4, 4).to(memory_format=gl.channels_last).stride() == (16, 1, 4, 1)
    with pytest.raises(RuntimeError, match="4 dimensions"):
        gl.ones(2, 3).contiguous(memory_format=gl.channels_last)
    with pytest.raises(TypeError, match="memory format"):
        x.clone(memory_format="channels_last")
    with pytest.raises(RuntimeError, match="preserve_format"):
        x.contiguous(memory_format=gl.preserve_format)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_net_whose_images_have_channels_last_trains_as_one_whose_have_not(compiled):
    found = []
    for chosen in (gl.contiguous_format, gl.channels_last):
        gl.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4))
        net = net.to(memory_format=chosen)
        optimizer = gl.optim.Adam(net.parameters(), lr=0.01)

        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = gl.compile(step) if compiled else step
        x, y = gl.randn(6, 3, 4, 4).to(memory_format=chosen), gl.randint(0, 4, (6,))
        found.append([run(x, y).item() for _ in range(5)])
        assert net[0].weight.is_contiguous(memory_format=chosen) and (compiled or net[0].weight.grad.is_contiguous(memory_format=chosen))
    np.testing.assert_allclose(*found, rtol=1e-5)
