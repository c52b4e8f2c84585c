"""`gl.fft`, spectrograms and windows: against PyTorch and NumPy, gradients of both orders, and what is refused."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import gradlab as gl
from gradlab.ops import fourier

from repository import ROOT

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))
NAMES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_numpys_transforms(name, norm):
    for n in (None, 4, 7):
        found, want = (getattr(engine.fft, name)(x, n, norm=norm) for engine, x in ((gl, gl.tensor(X)), (np, X)))
        np.testing.assert_allclose(found.numpy(), want, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    real = name in ("rfft", "ihfft")
    x = gl.tensor(X if real else X + 1j * X[::-1], requires_grad=True)
    for function in (lambda t: getattr(gl.fft, name)(t, 5), lambda t: getattr(gl.fft, f"{name}n")(t, (4, 5), norm="ortho")):
        assert gl.autograd.gradcheck(function, (x,))
        assert gl.autograd.gradgradcheck(function, (x,))


def test_precision_follows_the_input():
    for dtype, found in ((gl.float32, gl.complex64), (gl.float64, gl.complex128), (gl.float16, gl.complex64), (gl.int64, gl.complex64)):
        assert gl.fft.fft(gl.ones(4, dtype=dtype)).dtype is found
    assert gl.fft.irfft(gl.ones(3, dtype=gl.complex64)).dtype is gl.float32


def test_what_is_refused():
    for call in (
        lambda: gl.fft.fft(gl.ones(0)), lambda: gl.fft.fft(gl.ones(3), 0), lambda: gl.fft.fftn(gl.ones(2, 2), dim=(0, 0)),
        lambda: gl.fft.rfft(gl.ones(3, dtype=gl.complex64)), lambda: gl.fft.fft(gl.ones(3), norm="wrong"),
        lambda: gl.fft.fftn(gl.ones(2, 2), (2,), (0, 1)), lambda: gl.stft(gl.ones(8), 4),
        lambda: gl.stft(gl.ones(3), 4, return_complex=True, center=False),
        lambda: gl.istft(gl.ones(3, 4), 4),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="ft"):
            call()
    with pytest.raises(IndexError):
        gl.fft.fft(gl.ones(3), dim=1)


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}{many}" for name in NAMES for many in "2n")])
@pytest.mark.parametrize("scipy", [True, False])
def test_both_libraries(monkeypatch, name, scipy):
    """SciPy's transforms, where it is installed, and NumPy's, which small arrays take, of odd sizes and dims in any order."""
    if not scipy:
        monkeypatch.setattr(fourier, "_scipy", lambda: None)
    x = RNG.normal(size=(9, 5, 16, 7))
    for dtype, close in (("float32", 2e-5), ("float64", 1e-12)):
        given = x.astype(dtype)
        if not name.startswith(("rfft", "ihfft")):
            given = (given + 1j * given[::-1]).astype(np.result_type(dtype, "complex64"))
        for norm in (None, "ortho", "forward"):
            for dim in (-1, 1) if name in NAMES else ((2, 0), (1, 3)):
                small = getattr(gl.fft, name)(gl.tensor(given[:, :, :2]), dim=dim, norm=norm)
                large = getattr(gl.fft, name)(gl.tensor(given), dim=dim, norm=norm)
                if name in NAMES:
                    np.testing.assert_allclose(large.numpy(), getattr(np.fft, name)(given, axis=dim, norm=norm), atol=close * 40)
                    np.testing.assert_allclose(small.numpy(), getattr(np.fft, name)(given[:, :, :2], axis=dim, norm=norm), atol=close * 40)
                elif hasattr(np.fft, name):
                    want = getattr(np.fft, name)(given, axes=dim, norm=norm)
                    np.testing.assert_allclose(large.numpy(), want, atol=close * 40 * np.abs(want).max())
                assert large.dtype is getattr(gl, np.dtype(large.numpy().dtype).name)


def test_sizes_as_pytorchs():
    x = gl.ones(2, 4)
    for name in NAMES:
        with pytest.raises(RuntimeError, match="Invalid number of data points"):
            getattr(gl.fft, name)(x, -1)
        with pytest.raises(RuntimeError, match="Invalid number of data points"):
            getattr(gl.fft, f"{name}n")(x, (-2,))
        assert gl.equal(getattr(gl.fft, f"{name}n")(x, (-1,)), getattr(gl.fft, name)(x))
    assert gl.fft.fftfreq(0).shape == (0,)
    assert gl.fft.rfftfreq(0).shape == (1,)
    assert gl.isnan(gl.fft.rfftfreq(0)).all()
    assert gl.fft.fftfreq(3, 0.0).tolist()[1:] == [float("inf"), -float("inf")]
    for n in (1, 2, 5, 6):
        np.testing.assert_array_equal(gl.fft.fftfreq(n, 0.5, dtype=gl.float64).numpy(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_array_equal(gl.fft.rfftfreq(n, 0.5, dtype=gl.float64).numpy(), np.fft.rfftfreq(n, 0.5))
    for function in (gl.fft.fftfreq, gl.fft.rfftfreq):
        with pytest.raises(RuntimeError, match="not negative"):
            function(-1)


def test_batches_and_programs():
    x = gl.tensor(X)
    assert gl.allclose(gl.func.vmap(lambda t: gl.fft.rfft(t).abs())(x), gl.fft.rfft(x).abs())
    compiled = gl.compile(lambda t: (gl.fft.rfft(t, norm="ortho").abs() ** 2).sum(-1))
    np.testing.assert_allclose(compiled(x).numpy(), (np.abs(np.fft.rfft(X, norm="ortho")) ** 2).sum(-1), rtol=1e-12)


def test_spectrograms_come_back():
    x, window = gl.tensor(RNG.normal(size=(2, 64))), gl.hann_window(16, dtype=gl.float64)
    for options in ({}, {"normalized": True}, {"onesided": False}, {"hop_length": 4, "pad_mode": "constant"}):
        back = {k: v for k, v in options.items() if k != "pad_mode"}
        assert gl.allclose(gl.istft(gl.stft(x, 16, window=window, return_complex=True, **options), 16, window=window, length=64, **back), x)
    assert gl.stft(x, 16, return_complex=False).shape == (2, 9, 17, 2)
    assert gl.autograd.gradcheck(lambda t: gl.stft(t, 16, 8, window=window, return_complex=True).abs(), (x[0].clone().requires_grad_(),))


@pytest.mark.parametrize("name", gl.signal.windows.__all__)
def test_windows(name):
    options = {"a": (0.5, 0.3, 0.2)} if name == "general_cosine" else {}
    function = getattr(gl.signal.windows, name)
    for sym in (True, False):
        window = function(7, sym=sym, dtype=gl.float64, **options)
        assert window.shape == (7,)
        assert gl.allclose(window.flip(0) if sym else window[1:].flip(0), window if sym else window[1:])
    assert function(1, **options).tolist() == [1.0]
    assert function(0, **options).shape == (0,)
    with pytest.raises(ValueError, match="not negative"):
        function(-1, **options)
    with pytest.raises(ValueError, match="float32 or float64"):
        function(4, dtype=gl.float16, **options)


@pytest.mark.torch
def test_spectrograms_and_windows_as_pytorch():
    torch = pytest.importorskip("torch")
    x, window = RNG.normal(size=(2, 50)), np.hanning(12)
    for options in ({"hop_length": 3}, {"onesided": False}, {"center": False}, {"n_fft": 16, "win_length": 12}, {"pad_mode": "circular"}):
        options = {"n_fft": 12, "return_complex": True, **options}
        ours = gl.stft(gl.tensor(x), window=gl.tensor(window), **options)
        np.testing.assert_allclose(ours.numpy(), torch.stft(torch.tensor(x), window=torch.tensor(window), **options).numpy(), atol=1e-12)
    for name in gl.signal.windows.__all__:
        options = {"a": (0.5, 0.3, 0.2)} if name == "general_cosine" else {}
        for sym in (True, False):
            theirs = getattr(torch.signal.windows, name)(9, sym=sym, dtype=torch.float64, **options).numpy()
            np.testing.assert_allclose(getattr(gl.signal.windows, name)(9, sym=sym, dtype=gl.float64, **options).numpy(), theirs, atol=1e-7)


def test_the_example_learns():
    spec = importlib.util.spec_from_file_location("mel_filters", ROOT / "examples" / "mel_filters.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(90) > 0.85
