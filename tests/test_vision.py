"""Padding, interpolation, shuffles, im2col and grid sampling beyond their rows."""

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from samples import vision as reference
from slopes import check_slopes

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape)


# ---------------------------------------------------------------- padding


NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPY_MODES)
@pytest.mark.parametrize("pads", [(1, 2), (2, 0, 1, 3), (1, 1, 0, 2, 3, 1)])
def test_padding(mode, pads):
    x = numbers(2, 3, 4, 5, 4)[(..., *(0,) * (3 - len(pads) // 2))] if len(pads) < 6 else numbers(2, 3, 4, 5, 4)
    widths = [(0, 0)] * (x.ndim - len(pads) // 2) + [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    got = F.pad(gl.tensor(x), pads, mode=mode)
    np.testing.assert_array_equal(got.numpy(), np.pad(x, widths, mode=NUMPY_MODES[mode]))
    np.testing.assert_array_equal(F.pad(gl.tensor(x[0]), pads, mode=mode).numpy(), got.numpy()[0])
    check_slopes(lambda t: F.pad(t, pads, mode=mode), x)


def test_constant_padding_takes_any_dimensions_a_value_and_negative_numbers():
    x, ends = np.arange(12).reshape(3, 4), ((0, 0), (0, 0))
    want = np.pad(x[1:, :3], ((0, 1), (1, 0)), constant_values=7)
    np.testing.assert_array_equal(F.pad(gl.tensor(x), (1, -1, -1, 1), value=7).numpy(), want)
    np.testing.assert_array_equal(F.pad(gl.tensor(x), (0, 0)).numpy(), x)
    y = numbers(1, 2, 5)
    np.testing.assert_array_equal(F.pad(gl.tensor(y), (-1, 2), mode="circular").numpy(), np.pad(y[..., 1:], (*ends, (0, 2)), mode="wrap"))
    np.testing.assert_array_equal(F.pad(gl.tensor(y), (2, -2), mode="reflect").numpy(), np.pad(y, (*ends, (2, 0)), mode="reflect")[..., :5])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: F.pad(x, (1,)), RuntimeError, ("pairs", "(1,)")),
        (lambda x: F.pad(x, (1,) * 10), RuntimeError, ("at most 4 dimensions",)),
        (lambda x: F.pad(x, (4, 0), mode="reflect"), NotImplementedError, ("(1, 2, 3, 4)",)),
        (lambda x: F.pad(x, (4, 0, 0, 0), mode="reflect"), RuntimeError, ("reflect", "at most 3", "(1, 2, 3, 4)")),
        (lambda x: F.pad(x, (5, 0, 0, 0), mode="circular"), RuntimeError, ("circular", "at most 4")),
        (lambda x: F.pad(x, (-4, 0)), RuntimeError, ()),
        (lambda x: F.pad(x, (-5, 0)), RuntimeError, ("pad", "negative")),
        (lambda x: F.pad(x, (1, 1), mode="mirror"), NotImplementedError, ("mirror",)),
        (lambda x: F.pad(x, (1, 1, 0, 0), mode="reflect", value=2), ValueError, ("value",)),
    ],
)
def test_padding_errors(call, error, words):
    x = gl.ones(1, 2, 3, 4)
    if not words:
        assert call(x).shape == (1, 2, 3, 0)
        return
    with pytest.raises(error) as caught:
        call(x)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# ---------------------------------------------------------------- interpolation


@pytest.mark.parametrize(
    ("mode", "sizes", "options"),
    [
        ("nearest", (4,), {"size": 7}),
        ("nearest", (3, 4), {"scale_factor": 2}),
        ("nearest-exact", (5, 4), {"size": (3, 6)}),
        ("linear", (5,), {"size": 8}),
        ("linear", (5,), {"size": 1, "align_corners": True}),
        ("bilinear", (3, 4), {"scale_factor": (2, 1.5)}),
        ("bilinear", (5, 6), {"size": (3, 9), "align_corners": True}),
        ("bilinear", (7, 6), {"size": (3, 4), "antialias": True}),
        ("bicubic", (4, 5), {"size": (7, 3)}),
        ("bicubic", (4, 5), {"size": (7, 3), "align_corners": True}),
        ("bicubic", (9, 5), {"size": (4, 8), "antialias": True}),
        ("trilinear", (3, 2, 4), {"size": (4, 4, 3)}),
        ("area", (6, 5), {"size": (4, 2)}),
        ("area", (3, 4, 2), {"scale_factor": 2.0}),
    ],
)
def test_interpolation_is_a_matrix_for_each_dimension(mode, sizes, options):
    x = numbers(2, 3, *sizes)
    got = F.interpolate(gl.tensor(x), mode=mode, **options)
    want = x
    kind = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode) + "-antialias" * ("antialias" in options)
    for dim, n in enumerate(sizes):
        out, aligned = got.shape[2 + dim], options.get("align_corners", False)
        scale = options.get("scale_factor")
        per = n / out if scale is None else 1 / np.broadcast_to(scale, len(sizes))[dim]
        if aligned:
            per = (n - 1) / (out - 1) if out > 1 else 0.0
        rest = () if kind == "area" else (per,) if "nearest" in kind else (per, aligned)
        want = reference.resample(want, dim=2 + dim, table=(kind, n, out, *rest))
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)
    check_slopes(lambda t: F.interpolate(t, mode=mode, **options), x)


def test_scales_are_kept_unless_recomputed():
    x = gl.tensor(np.arange(5.0).reshape(1, 1, 5))
    kept = F.interpolate(x, scale_factor=1.5, mode="linear")
    anew = F.interpolate(x, scale_factor=1.5, mode="linear", recompute_scale_factor=True)
    assert kept.shape == anew.shape == (1, 1, 7)
    np.testing.assert_allclose(kept.numpy()[0, 0], np.clip((np.arange(7) + 0.5) / 1.5 - 0.5, 0, 4))
    np.testing.assert_allclose(anew.numpy()[0, 0], np.clip((np.arange(7) + 0.5) * 5 / 7 - 0.5, 0, 4))


def test_the_old_names():
    x = gl.tensor(numbers(1, 2, 3, 3))
    np.testing.assert_array_equal(F.upsample_nearest(x, scale_factor=2).numpy(), x.numpy().repeat(2, 2).repeat(2, 3))
    same = F.interpolate(x, size=5, mode="bilinear", align_corners=True)
    np.testing.assert_array_equal(F.upsample_bilinear(x, size=5).numpy(), same.numpy())
    np.testing.assert_array_equal(F.upsample(x, 5, mode="bilinear", align_corners=True).numpy(), same.numpy())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ValueError),
        ({"size": 4, "scale_factor": 2}, ValueError),
        ({"size": (4, 4, 4)}, ValueError),
        ({"size": 4, "align_corners": True}, ValueError),
        ({"size": 4, "mode": "linear"}, NotImplementedError),
        ({"size": 4, "mode": "cubic"}, NotImplementedError),
        ({"size": 4, "antialias": True}, ValueError),
        ({"size": 4, "recompute_scale_factor": True}, ValueError),
        ({"size": 0}, RuntimeError),
        ({"scale_factor": 0.1}, RuntimeError),
    ],
)
def test_interpolation_errors(options, error):
    with pytest.raises(error, match="interpolate"):
        F.interpolate(gl.ones(1, 1, 3, 3), **options)


# ---------------------------------------------------------------- shuffles and im2col


def test_pixel_shuffle_and_its_inverse():
    x = np.arange(2 * 8 * 2 * 3).reshape(2, 8, 2, 3)
    y = F.pixel_shuffle(gl.tensor(x), 2).numpy()
    assert y.shape == (2, 2, 4, 6)
    for n, c, h, w in np.ndindex(*y.shape):
        assert y[n, c, h, w] == x[n, 4 * c + 2 * (h % 2) + w % 2, h // 2, w // 2]
    np.testing.assert_array_equal(F.pixel_unshuffle(gl.tensor(y), 2).numpy(), x)
    np.testing.assert_array_equal(F.pixel_shuffle(gl.tensor(x[0]), 2).numpy(), y[0])
    with pytest.raises(RuntimeError, match=r"pixel_shuffle: .*\(2, 8, 2, 3\)"):
        F.pixel_shuffle(gl.tensor(x), 3)
    with pytest.raises(RuntimeError, match=r"pixel_unshuffle: .*\(2, 8, 2, 3\)"):
        F.pixel_unshuffle(gl.tensor(x), 2)


def test_channel_shuffle():
    x = np.arange(6).reshape(1, 6, 1, 1)
    assert F.channel_shuffle(gl.tensor(x), 2).numpy().ravel().tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(RuntimeError, match=r"channel_shuffle: .*groups=4"):
        F.channel_shuffle(gl.tensor(x), 4)


def test_unfold_then_a_product_is_a_convolution():
    x, w = numbers(2, 3, 5, 6), numbers(4, 3, 2, 3)
    columns = F.unfold(gl.tensor(x), (2, 3), padding=1, stride=2)
    want = F.conv2d(gl.tensor(x), gl.tensor(w), padding=1, stride=2).numpy()
    np.testing.assert_allclose(np.matmul(w.reshape(4, -1), columns.numpy()).reshape(want.shape), want, atol=1e-12)
    np.testing.assert_array_equal(F.unfold(gl.tensor(x[0]), (2, 3), padding=1, stride=2).numpy(), columns.numpy()[0])


def test_fold_counts_how_often_windows_overlap():
    ones = gl.ones(1, 1, 4, 4)
    assert F.fold(F.unfold(ones, 2), 4, 2).numpy()[0, 0].tolist() == [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]]
    assert F.fold(F.unfold(ones, 2)[0], 4, 2).shape == (1, 4, 4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.unfold(gl.ones(1, 1, 2, 4), 3), ("unfold", "(1, 1, 2, 4)", "(3, 3)")),
        (lambda: F.unfold(gl.ones(4, 4), 2), ("unfold", "(4, 4)")),
        (lambda: F.fold(gl.ones(1, 4, 8), 4, 2), ("9", "8", "(1, 4, 8)")),
        (lambda: F.fold(gl.ones(1, 5, 9), 4, 2), ("(1, 5, 9)", "multiple")),
    ],
)
def test_im2col_errors(call, words):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    ("mode", "padding"), [("bilinear", "zeros"), ("bicubic", "zeros"), ("nearest", "border"), ("bilinear", "reflection")]
)
def test_the_identity_grid_reads_every_pixel(mode, padding, align_corners):
    x = numbers(2, 3, 4, 5)
    theta = np.broadcast_to(np.eye(2, 3), (2, 2, 3))
    grid = F.affine_grid(gl.tensor(theta), (2, 3, 4, 5), align_corners=align_corners)
    got = F.grid_sample(gl.tensor(x), grid, mode, padding, align_corners)
    np.testing.assert_allclose(got.numpy(), x, atol=1e-12)


def test_points_between_and_outside():
    x = gl.tensor(np.array([[[[1.0, 3.0], [5.0, 9.0]]]]))
    grid = gl.tensor(np.array([[[[0.0, 0.0], [-1.0, 0.0], [3.0, -1.0]]]]))
    for padding, want in (("zeros", [4.5, 3, 0]), ("border", [4.5, 3, 3]), ("reflection", [4.5, 3, 1])):
        assert F.grid_sample(x, grid, padding_mode=padding, align_corners=True).numpy().ravel().tolist() == want


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_gradients(mode, padding):
    x, grid = numbers(2, 2, 4, 5), RNG.uniform(-1.4, 1.4, (2, 3, 2, 2))
    check_slopes(lambda a, g: F.grid_sample(a, g, mode, padding, False), x, grid)
    if mode == "bilinear":
        check_slopes(lambda a, g: F.grid_sample(a, g, mode, padding, True), numbers(1, 2, 3, 4, 2), RNG.uniform(-1.4, 1.4, (1, 2, 2, 2, 3)))
    check_slopes(lambda t: F.affine_grid(t, (2, 1, 3, 4)), numbers(2, 2, 3))


def test_grid_errors():
    x = gl.ones(1, 1, 3, 3)
    with pytest.raises(RuntimeError, match=r"grid_sample: .*\(1, 1, 3, 3\) and \(1, 2, 2, 3\)"):
        F.grid_sample(x, gl.ones(1, 2, 2, 3))
    with pytest.raises(ValueError, match="mode"):
        F.grid_sample(x, gl.ones(1, 2, 2, 2), mode="cubic")
    with pytest.raises(ValueError, match="padding_mode"):
        F.grid_sample(x, gl.ones(1, 2, 2, 2), padding_mode="circular")
    with pytest.raises(RuntimeError, match="dtype"):
        F.grid_sample(x, gl.ones(1, 2, 2, 2, dtype=gl.float64))
    with pytest.raises(RuntimeError, match=r"affine_grid: .*\(1, 2, 2\)"):
        F.affine_grid(gl.ones(1, 2, 2), (1, 1, 3, 3))
