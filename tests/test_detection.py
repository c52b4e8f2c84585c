"""`gl.detection` beside loops over pixels in float64, its gradients, what it refuses, and what an installed torchvision makes of it."""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import detection

RNG = np.random.default_rng(7)
BOXES = np.array([  # inside, beyond every side, as narrow as a point, turned around, outside
    [1, 1, 6.3, 7.2], [-3, -2.5, 4, 3], [5.2, 4.1, 14, 12], [2, 2, 2, 2], [5, 6, 3, 2], [20, 20, 30, 30], [0, 0, 8.5, 6.5],
])  # fmt: skip
REGIONS = np.concatenate([np.array([[0, 1, 0, 1, 1, 0, 1]]).T, BOXES], 1)


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    return request.param


def on(device, *arrays, grad=False, dtype=gl.float64):
    found = [gl.tensor(a, device=device, dtype=dtype, requires_grad=grad) for a in arrays]
    return found[0] if len(found) == 1 else found


def pixel(image, y, x):
    """An image (H, W) between its pixels; 0 more than a pixel outside."""
    high, wide = image.shape
    if y < -1 or y > high or x < -1 or x > wide:
        return 0.0
    y, x = min(max(y, 0), high - 1), min(max(x, 0), wide - 1)
    a, b = math.floor(y), math.floor(x)
    c, d = min(a + 1, high - 1), min(b + 1, wide - 1)
    above, below = (image[i, b] * (1 - x + b) + image[i, d] * (x - b) for i in (a, c))
    return above * (1 - y + a) + below * (y - a)


def aligned(images, regions, size, scale, ratio, half, least, apart):
    """Cells of regions by one sample after another."""
    channels = images.shape[1] // (size[0] * size[1] if apart else 1)
    out = np.zeros((len(regions), channels, *size))
    for r, (image, *box) in enumerate(regions):
        x0, y0, x1, y1 = (v * scale - half for v in box)
        wide, high = max(x1 - x0, least), max(y1 - y0, least)
        rows, columns = (ratio, ratio) if ratio > 0 else (max(0, math.ceil(high / size[0])), max(0, math.ceil(wide / size[1])))
        for c, i, j in np.ndindex(channels, *size):
            source = images[int(image), (c * size[0] + i) * size[1] + j if apart else c]
            found = [
                pixel(source, y0 + (i + (u + 0.5) / rows) * high / size[0], x0 + (j + (v + 0.5) / columns) * wide / size[1])
                for u in range(rows) for v in range(columns)
            ]  # fmt: skip
            out[r, c, i, j] = np.mean(found) if found else 0
    return out


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("ratio", [-1, 1, 3])
def test_aligned_regions(device, ratio, half):
    x, size = RNG.standard_normal((2, 3, 8, 9)), (3, 2)
    least = -math.inf if half else 1.0
    found = detection.roi_align(*on(device, x, REGIONS), size, 0.75, ratio, half)
    np.testing.assert_allclose(found.cpu().numpy(), aligned(x, REGIONS, size, 0.75, ratio, half / 2, least, False), atol=1e-12)
    x = RNG.standard_normal((2, 12, 8, 9))
    found = detection.ps_roi_align(*on(device, x, REGIONS), size, 0.75, ratio)
    np.testing.assert_allclose(found.cpu().numpy(), aligned(x, REGIONS, size, 0.75, ratio, 0.5, -math.inf, True), atol=1e-12)


def windows(box, size, scale, more, extent):
    """(rows, columns) of each cell of a box that is rounded to pixels."""
    x0, y0, x1, y1 = (math.floor(abs(v * scale) + 0.5) * (1 if v > 0 else -1) for v in box)
    high, wide = max(y1 - y0 + more, 1) / size[0], max(x1 - x0 + more, 1) / size[1]
    for i, j in np.ndindex(*size):
        ends = math.floor(i * high) + y0, math.ceil((i + 1) * high) + y0, math.floor(j * wide) + x0, math.ceil((j + 1) * wide) + x0
        top, bottom, left, right = (min(max(v, 0), n) for v, n in zip(ends, np.repeat(extent, 2), strict=True))
        yield (i, j), slice(top, bottom), slice(left, right)


def test_pooled_regions(device, monkeypatch):
    monkeypatch.setattr(detection, "_MOST", 40)  # regions one after another
    x, size = RNG.integers(-3, 3, (2, 3, 8, 9)).astype(np.float64), (3, 2)
    parts = RNG.standard_normal((2, 12, 8, 9))
    most, slopes, means = np.zeros((7, 3, *size)), np.zeros(x.shape), np.zeros((7, 2, *size))
    for r, (image, *box) in enumerate(REGIONS):
        for (i, j), rows, columns in windows(box, size, 0.75, 1, (8, 9)):
            for c in range(3):
                cell = x[int(image), c, rows, columns]
                if cell.size:
                    most[r, c, i, j] = cell.max()
                    slopes[int(image), c, rows, columns][np.unravel_index(cell.argmax(), cell.shape)] += 1
        for (i, j), rows, columns in windows(box, size, 0.75, 0, (7, 8)):
            for c in range(2):
                cell = parts[int(image), (c * 3 + i) * 2 + j, rows, columns]
                means[r, c, i, j] = cell.mean() if cell.size else 0
    images, regions = on(device, x, grad=True), on(device, REGIONS)
    found = detection.roi_pool(images, regions, size, 0.75)
    found.sum().backward()
    np.testing.assert_array_equal(found.detach().cpu().numpy(), most)
    np.testing.assert_array_equal(images.grad.cpu().numpy(), slopes)  # of equal maxima the first
    found = detection.ps_roi_pool(on(device, parts), regions, size, 0.75)
    np.testing.assert_allclose(found.cpu().numpy(), means, atol=1e-14)


def bent(x, offset, weight, mask, stride, padding, dilation):
    n, (outputs, depth, high, wide) = len(x), weight.shape
    rows, columns = offset.shape[2:]
    parts = offset.shape[1] // (2 * high * wide)
    each, groups = x.shape[1] // parts, x.shape[1] // depth
    out = np.zeros((n, outputs, rows, columns))
    padded = np.pad(x, ((0, 0), (0, 0), (9, 9), (9, 9)))  # zeros that are read as any other pixel
    for b, o, i, j, c, u, v in np.ndindex(n, outputs, rows, columns, depth, high, wide):
        channel = o // (outputs // groups) * depth + c
        tap = (channel // each) * high * wide + u * wide + v
        y = i * stride[0] - padding[0] + u * dilation[0] + offset[b, 2 * tap, i, j]
        z = j * stride[1] - padding[1] + v * dilation[1] + offset[b, 2 * tap + 1, i, j]
        out[b, o, i, j] += weight[o, c, u, v] * mask[b, tap, i, j] * pixel(padded[b, channel], y + 9, z + 9)
    return out


def test_bent_convolutions(device):
    x, weight = RNG.standard_normal((2, 4, 6, 7)), RNG.standard_normal((6, 2, 3, 2))
    offset, mask = RNG.standard_normal((2, 2 * 2 * 6, 3, 7)), RNG.random((2, 2 * 6, 3, 7))
    how = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 2)}
    bias = RNG.standard_normal(6)
    given = on(device, x, offset, weight, bias)
    want = bent(x, offset, weight, np.ones_like(mask), *how.values()) + bias[:, None, None]
    np.testing.assert_allclose(detection.deform_conv2d(*given, **how).cpu().numpy(), want, atol=1e-10)
    found = detection.deform_conv2d(*given[:3], **how, mask=on(device, mask))
    np.testing.assert_allclose(found.cpu().numpy(), bent(x, offset, weight, mask, *how.values()), atol=1e-10)


def test_gradients():
    x = on("cpu", RNG.standard_normal((1, 4, 5, 5)), grad=True)
    regions = on("cpu", np.array([[0, 0.3, 0.2, 4.1, 3.7], [0, 1.1, 1.3, 2.2, 4.9]]))
    for function in (detection.roi_align, detection.ps_roi_align, detection.roi_pool, detection.ps_roi_pool):
        assert gl.autograd.gradcheck(lambda t, f=function: f(t, regions, 2), (x,))
    assert gl.autograd.gradgradcheck(lambda t: detection.roi_align(t, regions, 2).square(), (x,))
    offset = on("cpu", RNG.uniform(0.2, 0.4, (1, 18, 3, 3)), grad=True)
    weight, mask = (on("cpu", RNG.random(s), grad=True) for s in ((2, 2, 3, 3), (1, 9, 3, 3)))
    assert gl.autograd.gradcheck(lambda a, b, c, d: detection.deform_conv2d(a, b, c, mask=d), (x, offset, weight, mask))


def test_which_boxes_stay(device):
    boxes = RNG.uniform(0, 20, (60, 2))
    boxes = np.concatenate([boxes, boxes + RNG.uniform(0, 9, (60, 2))], 1)
    scores, groups = RNG.random(60), RNG.integers(0, 3, 60)
    given, numbers, kinds = on(device, boxes, scores, groups)
    share = detection.box_iou(given, given).cpu().numpy()
    want = []
    for i in np.argsort(-scores):
        if all(share[i, j] <= 0.3 for j in want):
            want.append(i)
    found = detection.nms(given, numbers, 0.3)
    assert found.dtype == gl.int64 and found.device.type == device and found.tolist() == want and len(want) < 60
    want = []
    for i in np.argsort(-scores):
        if all(share[i, j] <= 0.3 for j in want if groups[i] == groups[j]):
            want.append(i)
    assert detection.batched_nms(given, numbers, kinds, 0.3).tolist() == want
    assert detection.nms(given[:0], numbers[:0], 0.3).tolist() == []
    assert detection.batched_nms(given[:0], numbers[:0], kinds[:0], 0.3).tolist() == []
    # boxes without an area share nothing, and of equals the first comes first
    assert detection.nms(gl.zeros(3, 4), gl.tensor([1.0, 3.0, 3.0]), 0.5).tolist() == [1, 2, 0]
    assert detection.box_area(gl.tensor([[0, 0, 100, 3]], dtype=gl.int8)).tolist() == [300]
    assert detection.box_area(gl.tensor([[0, 0, 1000, 1000]], dtype=gl.float16)).tolist() == [1e6]


def test_dtypes_lists_and_none():
    x = gl.randn(2, 4, 6, 6)
    boxes = [gl.tensor([[0.0, 0, 4, 4]]), gl.tensor([[1.0, 1, 5, 3], [0, 0, 2, 2]])]
    regions = gl.tensor([[0.0, 0, 0, 4, 4], [1, 1, 1, 5, 3], [1, 0, 0, 2, 2]])
    for function in (detection.roi_align, detection.ps_roi_align, detection.roi_pool, detection.ps_roi_pool):
        assert function(x, boxes, 2).equal(function(x, regions, 2))
        for dtype in (gl.float16, gl.bfloat16):
            low = function(x.to(dtype), regions.to(dtype), 2)
            assert low.dtype == dtype and low.float().allclose(function(x.to(dtype).float(), regions, 2), atol=0.02, rtol=0.01)
        none = function(x.requires_grad_(), regions[:0], 2)
        assert none.shape == (0, 4 if "ps" not in function.__name__ else 1, 2, 2)
        none.sum().backward()
        assert function(x, [], 2).shape == none.shape
        x = x.detach()
    found = gl.compile(lambda t: detection.roi_align(t, regions, 2, sampling_ratio=2).square().sum())(x)
    assert found.allclose(detection.roi_align(x, regions, 2, sampling_ratio=2).square().sum())


@pytest.mark.parametrize("call, told", [
    (lambda x: detection.nms(x, x, 0.5), "nms: boxes have the shape"),
    (lambda x: detection.nms(gl.zeros(2, 4), gl.zeros(3), 0.5), "nms: each box has one score"),
    (lambda x: detection.batched_nms(gl.zeros(2, 4), gl.zeros(2), gl.zeros(3), 0.5), "batched_nms: each score"),
    (lambda x: detection.roi_align(x, gl.zeros(2, 4), 2), "roi_align: regions are a tensor"),
    (lambda x: detection.roi_align(x, [gl.zeros(2, 5)], 2), "roi_align: a list has the boxes"),
    (lambda x: detection.roi_align(x, gl.tensor([[3.0, 0, 0, 1, 1]]), 2), "roi_align: regions of images 3 to 3 in a batch of 2"),
    (lambda x: detection.roi_pool(x, gl.zeros(2, 5), 0), "roi_pool: output_size is one whole number or two"),
    (lambda x: detection.roi_pool(x.long(), gl.zeros(2, 5), 1), "roi_pool: input is images"),
    (lambda x: detection.ps_roi_pool(x, gl.zeros(2, 5), 3), "ps_roi_pool: 4 channels cannot be shared out among 3 x 3 cells"),
    (lambda x: detection.ps_roi_align(x[0], gl.zeros(2, 5), 2), "ps_roi_align: input is images"),
    (lambda x: detection.deform_conv2d(x, gl.zeros(2, 17, 4, 4), gl.zeros(2, 4, 3, 3)), "deform_conv2d: the offset is"),
    (lambda x: detection.deform_conv2d(x, gl.zeros(2, 18, 4, 4), gl.zeros(2, 3, 3, 3)), "deform_conv2d: a weight of shape"),
    (lambda x: detection.deform_conv2d(x, gl.zeros(2, 18, 4, 4), gl.zeros(2, 4, 3, 3), mask=gl.zeros(1)), "deform_conv2d: the mask is"),
])  # fmt: skip
def test_what_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call(gl.zeros(2, 4, 6, 6))
    with pytest.raises(TypeError, match="roi_align: expected a tensor, got"):
        detection.roi_align([[1.0]], gl.zeros(2, 5), 2)
