"""`gl.backends.cudnn`: graphs as its frontend wants them, results checked against our own kernels, what happens where there is none."""

from __future__ import annotations

import inspect
import warnings

import fake_cudnn
import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import cudnn_graphs
from gradlab.backends.cuda.cudnn_graphs import Cudnn, Operand, Problem, describe

F = gl.nn.functional


@pytest.fixture
def frontend(cuda, monkeypatch):
    """The emulated GPU with a stand-in of cuDNN, asked for."""
    if cuda.driver.name != "emulated":
        pytest.skip("the stand-in computes in the emulated GPU's memory")

    def make(**options):
        made = fake_cudnn.Frontend(cuda.driver, **options)
        library = Cudnn(made)
        monkeypatch.setattr(cudnn_graphs, "of", lambda driver: library)
        return made

    with gl.backends.cudnn.flags(enabled=True):
        yield make


def convolutions(dtype="float32", shape=(2, 4, 6, 5), rank=2, times=3, **options):
    """A convolution's result and gradients, some times; the last of each, as NumPy arrays."""
    gl.manual_seed(1)
    kind = getattr(gl, dtype)
    x, w, b = (
        gl.randn(*s, device="cuda").to(kind).requires_grad_() for s in (shape, (3, shape[1], *(3,) * rank), (3,))
    )  # fmt: skip
    for _ in range(times):
        y = getattr(F, f"conv{rank}d")(x, w, b, stride=2, padding=1, **options)
        grads = gl.autograd.grad((y * y).sum(), (x, w, b))
    return [np.asarray(t.float().numpy(force=True)) for t in (y, *grads)]


def attentions(dtype="float16", causal=True, times=3):
    gl.manual_seed(2)
    q, k, v = (gl.randn(2, 3, 7, 16, device="cuda").to(getattr(gl, dtype)).requires_grad_() for _ in range(3))
    for _ in range(times):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        grads = gl.autograd.grad((y * y).sum(), (q, k, v))
    return [np.asarray(t.float().numpy(force=True)) for t in (y, *grads)]


def near(got, want, tolerance):
    for a, b in zip(got, want, strict=True):
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize(("shape", "rank"), [((2, 4, 6, 5), 2), ((2, 4, 9), 1)])
def test_convolutions(frontend, dtype, tolerance, shape, rank):
    with gl.backends.cudnn.flags(enabled=False):
        want = convolutions(dtype, shape, rank)
    front = frontend()
    near(convolutions(dtype, shape, rank), want, tolerance)
    assert [front.log.count(k) for k in ("fprop", "dgrad", "wgrad")] == [3, 3, 3]
    exact = {fake_cudnn.numerical_note.TENSOR_CORE, fake_cudnn.numerical_note.DOWN_CONVERT_INPUTS}
    assert exact <= set(front.unwanted) if dtype == "float32" else not exact & set(front.unwanted)
    assert fake_cudnn.numerical_note.NONDETERMINISTIC in front.unwanted


def test_bias_and_relu_are_part_of_the_graph(frontend):
    front = frontend()
    x, w, b = gl.randn(2, 4, 6, 5, device="cuda"), gl.randn(3, 4, 3, 3, device="cuda"), gl.randn(3, device="cuda")
    for _ in range(2):
        y = F.conv_activation(x, w, b, padding=1)
    np.testing.assert_allclose(y.numpy(force=True), F.conv2d(x.cpu(), w.cpu(), b.cpu(), padding=1).relu().numpy(), rtol=1e-4, atol=1e-5)
    assert front.log == ["fprop", "fprop"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 6e-3), ("bfloat16", 4e-2)])
def test_attention(frontend, dtype, tolerance, causal):
    with gl.backends.cudnn.flags(enabled=False):
        want = attentions(dtype, causal)
    front = frontend()
    near(attentions(dtype, causal), want, tolerance)
    assert [front.log.count(k) for k in ("sdpa", "sdpa_backward")] == [3, 3]


def test_what_cudnn_is_not_asked_for(frontend):
    front = frontend()
    convolutions("float64")
    F.conv2d(gl.randn(1, 4, 5, 5, device="cuda"), gl.randn(4, 2, 3, 3, device="cuda"), groups=2)
    F.conv2d(gl.randn(0, 4, 5, 5, device="cuda"), gl.randn(4, 4, 3, 3, device="cuda"))
    attentions("float32")
    q = gl.randn(1, 2, 4, 16, device="cuda").half()
    F.scaled_dot_product_attention(q, q, q, attn_mask=gl.ones(4, 4, device="cuda").bool())
    assert not front.log


def test_no_engine_and_a_wrong_result_leave_it_to_our_own_kernels(frontend):
    with gl.backends.cudnn.flags(enabled=False):
        want = convolutions()
    front = frontend(refuses=("fprop", "dgrad", "wgrad"))
    near(convolutions(), want, 1e-6)
    assert not front.log
    front = frontend(spoil=lambda kind, y: y * 1.01 if kind == "fprop" else y)
    with pytest.warns(RuntimeWarning, match=r"cuDNN is not used for fprop of x \[2, 4, 6, 5\].*differs from our own kernel's by 0.01 "):
        near(convolutions(), want, 1e-5)
    assert [front.log.count(k) for k in ("fprop", "dgrad")] == [1, 3]


def test_a_result_with_strides_of_the_librarys_choice_is_found_out(frontend):
    """What a probe of ours met before strides were set: the numbers are right, their order is not."""
    frontend(keeps_strides=False)
    with pytest.warns(RuntimeWarning, match="differs from our own kernel's by 1"):
        convolutions(times=1)


def test_what_disagreed_by_0_6(frontend):
    """The probe's problem, smaller: uniform numbers, and the right result in channels-last order, read as if it were row-major. Between two
    places away from the edges that is a small difference; at the edges, where windows have fewer numbers, it is 0.6 of the largest."""
    x, w = gl.rand(2, 16, 12, 12, generator=gl.Generator().manual_seed(1)), gl.rand(32, 16, 3, 3, generator=gl.Generator().manual_seed(2))
    right = F.conv2d(x, w, padding=1).numpy()
    misread = np.ascontiguousarray(np.moveaxis(right, 1, -1)).reshape(right.shape)
    assert 0.55 < np.abs(misread - right).max() / right.max() < 0.7
    normal = np.random.default_rng(1).normal(size=right.shape)
    misread = np.ascontiguousarray(np.moveaxis(normal, 1, -1)).reshape(right.shape)
    assert np.linalg.norm(misread - normal) / np.linalg.norm(normal) > 1.3
    on_device = x.to("cuda"), w.to("cuda")
    frontend(keeps_strides=False)  # as frontends up to 1.26 do where nobody sets the result's strides
    with pytest.warns(RuntimeWarning, match=r"cuDNN is not used for fprop.*differs from our own kernel's by 0\.[23]"):
        found = F.conv2d(*on_device, padding=1)
    np.testing.assert_allclose(found.numpy(force=True), right, rtol=1e-4)  # our own result is what the caller got
    frontend()  # with the strides that our graphs set
    for _ in range(2):
        np.testing.assert_allclose(F.conv2d(*on_device, padding=1).numpy(force=True), right, rtol=1e-4)


def test_a_transposed_convolutions_bias_is_part_of_the_graph(frontend):
    front = frontend()
    x, w, b = gl.randn(2, 3, 6, 5, device="cuda"), gl.randn(3, 4, 3, 3, device="cuda"), gl.randn(4, device="cuda")
    for _ in range(2):
        y = F.conv_transpose2d(x, w, b, padding=1)
    np.testing.assert_allclose(y.numpy(force=True), F.conv_transpose2d(x.cpu(), w.cpu(), b.cpu(), padding=1).numpy(), rtol=1e-4, atol=1e-5)
    assert front.log == ["dgrad", "dgrad"]


def test_a_compiled_program_is_made_anew_for_the_switch(frontend):
    front = frontend()
    x, w = gl.randn(2, 4, 6, 5, device="cuda"), gl.randn(24, 4, 3, 3, device="cuda")
    run = gl.compile(lambda x: F.conv2d(x, w).relu())
    with gl.backends.cudnn.flags(enabled=False):
        want = run(x).numpy(force=True)
        run(x)
    assert not front.log
    for _ in range(3):
        np.testing.assert_allclose(run(x).numpy(force=True), want, rtol=1e-4, atol=1e-5)
    assert "fprop" in front.log


def test_it_is_off_and_says_what_is_missing(cuda, monkeypatch):
    assert gl.backends.cudnn.enabled is False

    class Real:
        name = "real"

    def missing(name):
        raise ImportError("No module named 'cudnn'")

    monkeypatch.setattr(cudnn_graphs.importlib, "import_module", missing)
    driver = Real()
    with pytest.warns(RuntimeWarning, match=r"enabled is True, but cuDNN is not there: pip install"):
        assert cudnn_graphs.of(driver) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cudnn_graphs.of(driver) is None  # once


# ---------------------------------------------------------------- the real frontend, where it is installed


def problem(kind, named, dtype="float32", **numbers):
    operands = tuple(Operand(n, s, tuple(int(np.prod(s[i + 1 :])) for i in range(len(s))), dtype) for n, s in named.items())
    return Problem(kind, operands, tuple(numbers.items()), True, True)


def test_the_real_frontend_takes_our_graphs_and_keeps_our_strides():
    """Without a GPU a graph can be described and validated, which infers shapes; building its plans needs one."""
    cudnn = pytest.importorskip("cudnn")
    numbers = {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "relu": True}
    x, w, y = (64, 32, 28, 28), (64, 32, 3, 3), (64, 64, 28, 28)
    head = {"q": (2, 3, 8, 16), "k": (2, 3, 8, 16), "v": (2, 3, 8, 16)}
    for made in [
        problem("fprop", {"x": x, "w": w, "b": (1, 64, 1, 1), ">y": y}, **numbers),
        problem("dgrad", {"dy": y, "w": w, ">dx": x}, **numbers),
        problem("dgrad", {"dy": y, "w": w, "b": (1, 32, 1, 1), ">dx": x}, **numbers),
        problem("wgrad", {"x": x, "dy": y, ">dw": w}, **numbers),
        problem("sdpa", {**head, ">y": head["q"], ">lse": (2, 3, 8, 1)}, "float16", scale=0.25, causal=True),
        problem(
            "sdpa_backward",
            {"g": head["q"], **head, "y": head["q"], "lse": (2, 3, 8, 1), ">dq": head["q"], ">dk": head["q"], ">dv": head["q"]},
            "float16", scale=0.25, causal=True,
        ),
    ]:  # fmt: skip
        graph, tensors = describe(cudnn, made)
        try:
            graph.validate()
        except RuntimeError as error:  # attention asks for the device's architecture
            assert made.kind.startswith("sdpa")
            assert "cuda_get_device" in str(error)
            continue
        for tensor, o in zip(tensors, made.operands, strict=True):
            assert (tuple(tensor.get_dim()), tuple(tensor.get_stride())) == (o.shape, o.strides)


def test_the_stand_in_has_the_real_names():
    cudnn = pytest.importorskip("cudnn")
    for name in ("create_handle", "set_stream", "cudnnGraphNotSupportedError"):
        assert hasattr(cudnn, name)
    for kind in ("data_type", "heur_mode", "numerical_note"):
        assert set(getattr(fake_cudnn, kind).__members__) <= set(getattr(cudnn, kind).__members__)
    for name, _ in inspect.getmembers(fake_cudnn.Graph, inspect.isfunction):
        assert name.startswith("_") or hasattr(cudnn.pygraph, name)
