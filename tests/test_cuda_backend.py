"""The CUDA backend on the (emulated) GPU: devices, copies, creation, in-place writes, memory, streams, errors, faults that kernels
report."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.backends.cuda import catalogue, fallback

pytestmark = pytest.mark.usefixtures("cuda")


def array(*shape, dtype="float32"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def two_devices():
    if gl.cuda.device_count() < 2:
        pytest.skip("one device")


# ---------------------------------------------------------------- devices and copies


@pytest.mark.parametrize("number", range(5))
def test_copy_takes_a_source_from_elsewhere(number):
    """Into a result that is recorded, a part of one, and one that is not."""
    source = (gl.ones(3, 4), gl.ones(4, dtype=gl.float64), gl.tensor(1.0), gl.ones(3, 4).requires_grad_(), 1.0)[number]
    x = gl.zeros(3, 4, device="cuda", requires_grad=True)
    for y in (x * 1, (x * 1)[:, ::2], x.detach() * 1):
        part = source[..., ::2] if y.shape != x.shape and isinstance(source, gl.Tensor) and source.ndim else source
        y.copy_(part)
        assert y.device == x.device and y.dtype == x.dtype and (y == 1).all()


def test_copies_keep_values_dtype_and_shape():
    for dtype in (gl.float16, gl.bfloat16, gl.float32, gl.float64, gl.int64, gl.uint8, gl.bool):
        for shape in ((), (0, 3), (2, 3)):
            x = gl.tensor(array(*shape)).to(dtype)
            y = x.cuda()
            assert (y.device, y.dtype, y.shape) == (gl.device("cuda:0"), dtype, shape)
            np.testing.assert_array_equal(y.cpu().numpy(), x.numpy())


def test_strided_tensors_are_copied_by_value():
    x = array(3, 4)
    y = gl.tensor(x).cuda()
    np.testing.assert_array_equal(y.t()[1:].cpu().numpy(), x.T[1:])
    np.testing.assert_array_equal(gl.tensor(x).t().cuda().cpu().numpy(), x.T)


def test_moving_is_differentiable():
    x = gl.tensor([1.0, 2.0], requires_grad=True)
    y = (x.cuda() * 3).cpu()
    assert y.grad_fn is not None
    y.sum().backward()
    assert x.grad.device == gl.device("cpu")
    np.testing.assert_array_equal(x.grad.numpy(), [3, 3])


def test_same_device_gives_the_tensor_itself():
    x = gl.ones(2, device="cuda")
    assert x.cuda() is x
    assert x.to("cuda:0") is x


def test_mixed_devices_name_operation_and_places():
    x, y = gl.ones(2, device="cuda"), gl.ones(2)
    with pytest.raises(RuntimeError, match=r"add: inputs on different devices: a on cuda:0, b on cpu; move them with .to\(device\)"):
        x + y
    two_devices()
    with pytest.raises(RuntimeError, match="mul: inputs on different devices: a on cuda:0, b on cuda:1"):
        x * gl.ones(2, device="cuda:1")


def test_several_devices():
    two_devices()
    x = gl.ones(3, device="cuda:1")
    y = x * 2 + x.sum()
    assert y.device == gl.device("cuda:1")
    assert y.to("cuda:0").device == gl.device("cuda:0")
    assert gl.cuda.current_device() == 0
    with gl.cuda.device(1):
        assert gl.ones(1, device="cuda").device == gl.device("cuda:1")
    with pytest.raises(RuntimeError, match="cuda:7"):
        gl.ones(1, device="cuda:7")


def test_device_context_and_default_device():
    with gl.device("cuda"):
        made = [gl.zeros(2), gl.ones(2), gl.full((2,), 3.0), gl.arange(3), gl.rand(2), gl.tensor([1.0]), gl.eye(2), gl.linspace(0, 1, 3)]
        with gl.device("cpu"):
            assert gl.zeros(1).device == gl.device("cpu")
    assert {str(m.device) for m in made} == {"cuda:0"}
    assert gl.zeros(1).device == gl.device("cpu")
    gl.set_default_device("cuda")
    try:
        assert gl.zeros(1).device == gl.device("cuda:0")
    finally:
        gl.set_default_device(None)


def test_numpy_needs_the_cpu():
    x = gl.ones(2, device="cuda")
    with pytest.raises(TypeError, match=r"cuda:0; call .cpu\(\).numpy\(\)"):
        x.numpy()
    np.testing.assert_array_equal(x.numpy(force=True), [1, 1])
    assert (x.sum().item(), x.tolist()) == (2.0, [1.0, 1.0])


# ---------------------------------------------------------------- arithmetic beyond the rows' samples


def test_numbers_broadcasting_and_odd_sizes():
    for size in (1, 3, 255, 256, 257, 1025):
        x = array(size)
        y = gl.tensor(x).cuda()
        np.testing.assert_allclose((2 - y * 0.5).cpu().numpy(), 2 - x * 0.5, rtol=1e-6)
        np.testing.assert_allclose((y[1:] + 1).cpu().numpy(), x[1:] + 1, rtol=1e-6)  # not aligned to 16 bytes
    a, b = array(3, 1, 5), array(4, 1)
    np.testing.assert_allclose((gl.tensor(a).cuda() + gl.tensor(b).cuda()).cpu().numpy(), a + b, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3000,), (5, 4099), (300, 7), (7, 300, 3), (2, 3, 4, 5)])
def test_sums_over_any_dimensions(shape):
    x = array(*shape)
    y = gl.tensor(x).cuda()
    for dim in [None, 0, -1, (0, len(shape) - 1)]:
        if isinstance(dim, tuple) and len(set(dim)) < 2:
            continue
        want = x.sum(dim, dtype=np.float64)
        np.testing.assert_allclose((y.sum() if dim is None else y.sum(dim)).cpu().numpy(), want, rtol=1e-4, atol=1e-3)


def test_reductions_shared_by_several_blocks_are_repeatable():
    x = gl.tensor(array(40000)).cuda()
    assert x.sum().item() == x.sum().item()
    assert x.sum().item() == pytest.approx(float(array(40000).sum(dtype=np.float64)), rel=1e-4, abs=1e-2)


def test_matmul_shapes_and_strides():
    for a_shape, b_shape in (((3, 4), (4, 5)), ((70, 65), (65, 130)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 0), (0, 3))):
        a, b = array(*a_shape), array(*b_shape)
        np.testing.assert_allclose((gl.tensor(a).cuda() @ gl.tensor(b).cuda()).cpu().numpy(), a @ b, rtol=1e-4, atol=1e-4)
    a, b = array(5, 6), array(7, 6)
    np.testing.assert_allclose((gl.tensor(a).cuda() @ gl.tensor(b).cuda().t()).cpu().numpy(), a @ b.T, rtol=1e-4, atol=1e-5)


def test_views_and_in_place_writes():
    x = gl.zeros(3, 4, device="cuda")
    x[1] = 5
    x[:, 2] += 1
    x.t()[0].fill_(7)
    x[0].zero_()
    want = np.zeros((3, 4), np.float32)
    want[1], want[:, 2], want[:, 0], want[0] = 5, want[:, 2] + 1, 7, 0
    want[1, 2], want[2, 2] = 6, 1
    np.testing.assert_array_equal(x.cpu().numpy(), want)
    with pytest.raises(RuntimeError, match="view: shape"):
        x.t().view(12)
    np.testing.assert_array_equal(x.t().reshape(12).cpu().numpy(), want.T.reshape(12))


def test_gradients_accumulate_on_the_device():
    x = gl.ones(3, device="cuda", requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.device == gl.device("cuda:0")
    np.testing.assert_array_equal(x.grad.cpu().numpy(), [4, 4, 4])


def test_gradients_accumulate_where_somebody_sees_them():
    """Into the tensor that is held, into a view of a flat buffer; a graph that kept the gradient raises."""
    x, flat = gl.ones(2, device="cuda", requires_grad=True), gl.zeros(4, device="cuda")
    x.grad = flat[1:3]
    for _ in range(2):
        (x * 3).sum().backward()
    np.testing.assert_array_equal(flat.cpu().numpy(), [0, 6, 6, 0])
    held = x.grad
    y = (held * x).sum()
    (x * 2).sum().backward()
    assert held is x.grad
    np.testing.assert_array_equal(held.cpu().numpy(), [8, 8])
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        y.backward()


def test_a_training_step_is_the_same_on_both_devices():
    found = []
    for device in ("cpu", "cuda"):
        gl.manual_seed(3)
        model = gl.nn.Sequential(gl.nn.Linear(6, 8), gl.nn.ReLU(), gl.nn.Dropout(0.25), gl.nn.Linear(8, 4)).to(device)
        optimizer = gl.optim.Adam(model.parameters(), lr=0.05)
        x, target = gl.tensor(array(10, 6)).to(device), gl.arange(10, device=device) % 4
        before = dict(fallback.counts)
        for _ in range(3):
            loss = gl.nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert fallback.counts == before
        found.append([loss.item(), *(p.detach().cpu().numpy() for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda d: gl.rand(1001, device=d), lambda d: gl.randint(-5, 1000, (1001,), device=d), lambda d: gl.rand(77, device=d, dtype=gl.float16),
    lambda d: gl.randperm(50, device=d), lambda d: gl.nn.functional.dropout(gl.ones(1001, device=d), 0.3),
])  # fmt: skip
def test_random_bits_are_the_same_on_both_devices(make):
    gl.manual_seed(11)
    want = make("cpu")
    gl.manual_seed(11)
    np.testing.assert_array_equal(make("cuda").cpu().numpy(), want.numpy())


@pytest.mark.parametrize(
    ("mean", "std"),
    [(gl.ones(5), 1.0), (0.5, gl.ones(5)), (gl.ones(3, 1, dtype=gl.bfloat16), gl.ones(4)), (gl.tensor([1, 2]), gl.ones(2))],
)
def test_normals_of_means_and_deviations_of_different_types(mean, std):
    before = dict(fallback.counts)
    found = []
    for device in ("cpu", "cuda"):
        gl.manual_seed(3)
        found.append(gl.normal(*(x.to(device) if isinstance(x, gl.Tensor) else x for x in (mean, std))).cpu())
    assert found[0].dtype == found[1].dtype
    assert gl.allclose(found[0], found[1], rtol=1e-6)
    assert fallback.counts == before


def test_normals_are_nearly_the_same_on_both_devices():
    gl.manual_seed(1)
    want = gl.randn(4000).numpy()
    gl.manual_seed(1)
    got = gl.randn(4000, device="cuda").cpu().numpy()
    assert (got != want).mean() <= 1e-3
    np.testing.assert_array_max_ulp(got, want, 1)


# ---------------------------------------------------------------- what kernels report


def test_wrong_indices_raise_as_on_the_cpu():
    x = gl.tensor(array(4, 3)).cuda()
    bad = gl.tensor([0, 9]).cuda()
    with pytest.raises(IndexError, match="index 9 is out of range for dimension 0 of size 4"):
        x[bad].cpu()
    with pytest.raises(IndexError, match="embedding: index 9"):
        gl.nn.functional.embedding(bad, x).cpu()
    with pytest.raises(IndexError, match="gather: index 9"):
        x.gather(0, bad.reshape(2, 1)).cpu()
    with pytest.raises(IndexError, match="scatter_add: index 9"):
        x.scatter_add(0, bad.reshape(2, 1), gl.ones(2, 1, device="cuda")).cpu()
    with pytest.raises(IndexError, match=r"class 9 is not in \[0, 3\)"):
        gl.nn.functional.cross_entropy(x[:2], bad)
        gl.cuda.synchronize()
    assert x.sum().item() == pytest.approx(float(array(4, 3).sum()), rel=1e-5)  # and it goes on


# ---------------------------------------------------------------- gl.cuda


def test_memory_is_counted_and_running_out_is_survived():
    gl.cuda.reset_peak_memory_stats()
    before = gl.cuda.memory_allocated()
    x = gl.zeros(1 << 16, device="cuda")
    assert gl.cuda.memory_allocated() >= before + (1 << 18)
    del x
    assert gl.cuda.memory_allocated() == before
    assert gl.cuda.max_memory_allocated() >= before + (1 << 18)
    assert "allocated by tensors" in gl.cuda.memory_summary()
    with pytest.raises(gl.cuda.OutOfMemoryError, match=r"CUDA out of memory: cuda:0 cannot give .* in all, of which"):
        gl.zeros(1 << 44, device="cuda")
    assert gl.ones(2, device="cuda").sum().item() == 2
    gl.cuda.empty_cache()


def test_record_stream():
    stream, x = gl.cuda.Stream(), gl.ones(64, device="cuda")
    gl.cuda.synchronize()
    with gl.cuda.stream(stream):
        y = x + 1
    x.record_stream(stream)
    del x
    others = [gl.full((64,), 5.0, device="cuda") for _ in range(4)]  # one of them would be written into x's memory too early
    gl.cuda.current_stream().wait_stream(stream)
    assert (y.sum().item(), others[-1].sum().item()) == (128, 320)
    with pytest.raises(TypeError, match=r"takes a gl.cuda.Stream, not int"):
        y.record_stream(3)
    with pytest.raises(RuntimeError, match="the tensor is on cpu"):
        gl.ones(1).record_stream(stream)


def test_streams_and_events():
    stream, start, end = gl.cuda.Stream(), gl.cuda.Event(enable_timing=True), gl.cuda.Event(enable_timing=True)
    x = gl.ones(4, device="cuda")
    stream.wait_stream(gl.cuda.current_stream())
    with gl.cuda.stream(stream):
        start.record()
        y = x + 1
        end.record()
    gl.cuda.current_stream().wait_stream(stream)
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert stream.query()
    stream.synchronize()
    gl.cuda.synchronize()
    assert y.sum().item() == 8
    with pytest.raises(RuntimeError, match="enable_timing"):
        gl.cuda.Event().elapsed_time(end)


def test_questions_about_devices():
    assert gl.cuda.is_available()
    assert gl.cuda.is_initialized()
    assert gl.cuda.device_count() >= 1
    assert gl.cuda.get_device_name()
    with pytest.raises(ValueError, match="expected a CUDA device"):
        gl.cuda.synchronize("cpu")


def test_without_a_gpu_the_error_says_what_to_do():
    script = (
        "import sys; sys.modules['cupy'] = None\nimport gradlab as gl\nassert not gl.cuda.is_available() and gl.cuda.device_count() == 0\n"
        "try: gl.zeros(2, device='cuda')\nexcept RuntimeError as error: print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "GRADLAB_CUDA"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert 'pip install "gradlab-engine[cuda13]"' in done.stdout


# ---------------------------------------------------------------- the catalogue


def test_every_kernel_is_in_the_catalogue():
    found = list(catalogue.programs(ops.ROWS))
    assert len({p.label for p in found}) == len(found)
    assert all(p.names and p.source for p in found)
    labels, numbers = {p.label for p in found}, {p.label for p in found if any("Complex<" in n for n in p.names)}
    assert {f"elementwise {dtype} {form}" for dtype in ("complex64", "complex128") for form in ("contiguous", "strided")} <= labels
    assert {"gemm.cu", "scan.cu", "prefix.cu", "scatter.cu", "layout.cu"} <= numbers


def test_rows_without_a_kernel_are_known():
    """Linear algebra by LAPACK and little else: a row that loses its kernel shows here."""
    assert set(catalogue.fallbacks(ops.ROWS)) <= KNOWN_FALLBACKS


KNOWN_FALLBACKS = {
    "solve_triangular", "cholesky", "qr", "eigh", "svd", "lu", "nextafter", "gcd", "lcm", "lstm_cell", "lstm_cell_backward", "gru_cell",
    "gru_cell_backward", "lgamma", "digamma", "polygamma", "erfcx", "log_ndtr", "ndtri", "inverse", "solve", "det", "cofactor",
    "slogdet", "pinv", "matrix_exp", "var",
    "resample", "resample_backward", "grid_sample", "grid_sample_backward", "ctc_loss", "ctc_loss_backward", "ldl", "ldl_solve", "eig",
    *(name for name in ops.ROWS if "_sequence" in name),  # layers on a GPU take steps
    *(name for name in ops.ROWS if name.startswith("quantized_")),  # integer products are the CPU's
}  # fmt: skip
