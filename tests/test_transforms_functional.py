"""Functions of images: torchvision's numbers, the same for every kind of image, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gradlab as gl
from gradlab.transforms import functional as F

import torchvision_numbers
from torchvision_numbers import CASES, arguments

RESULTS = json.loads(torchvision_numbers.FILE.read_text())["results"]
EXACT = {"uint8": 1, "float32": 3e-6}  # a level: torchvision's weights of bytes are whole numbers, too
IMAGE = torchvision_numbers.image()


def tensor_of(kind: str) -> gl.Tensor:
    x = gl.from_numpy(IMAGE.transpose(2, 0, 1).copy())
    return x if kind == "uint8" else x / 255


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_numbers_are_those_of_torchvision(number, kind):
    name, args, keywords = CASES[number]
    shape, values = RESULTS[number][kind]
    function = getattr(F, name)
    args = arguments(name, args, kind)
    found = function(tensor_of(kind), *args, **keywords)
    assert list(found.shape) == shape
    assert str(found.dtype) == f"gradlab.{kind}"
    expected = np.array(values, np.float64).reshape(shape)
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=0, atol=EXACT[kind])
    batch = function(tensor_of(kind)[None].repeat(2, 1, 1, 1), *args, **keywords)
    assert gl.equal(batch[1], found)
    array = function(IMAGE if kind == "uint8" else (IMAGE / np.float32(255)), *args, **keywords)
    assert array.dtype == found.numpy().dtype
    assert np.array_equal(np.moveaxis(array, -1, 0), found.numpy())


def test_every_public_function_is_compared_or_tested_here():
    compared = {name for name, *_ in CASES}
    others = {
        "convert_image_dtype", "elastic", "erase", "five_crop", "gaussian_noise", "get_dimensions", "get_num_channels", "get_size",
        "grayscale_to_rgb", "hflip", "normalize", "pil_to_tensor", "ten_crop", "to_dtype", "to_grayscale", "to_image", "to_pil_image",
        "to_tensor", "vflip",
    }  # fmt: skip
    public = {name for name in dir(F) if name[0].islower() and callable(getattr(F, name)) and name != "annotations"}
    assert public == compared | others


@pytest.mark.parametrize(("name", "args"), [
    ("resize", ([5, 9],)), ("resize", ([5, 9], "nearest")), ("rotate", (30,)), ("affine", (20, (1, 1), 1.2, 5)), ("gaussian_blur", (3,)),
    ("resized_crop", (1, 2, 4, 4, [6, 6])), ("elastic", (gl.full((1, 7, 6, 2), 0.3),)), ("invert", ()), ("posterize", (1,)), ("hflip", ()),
])  # fmt: skip
def test_masks_stay_masks(name, args):
    """Truth values go through as torchvision's do: as 0 and 1, rounded."""
    mask = gl.from_numpy(np.random.default_rng(1).random((1, 7, 6)) > 0.4)
    found = getattr(F, name)(mask, *args)
    expected = mask.float() if name == "posterize" else getattr(F, name)(mask.float(), *args)
    sure = (expected - 0.5).abs() > 1e-5  # of what lies half within, either will do
    assert found.dtype == gl.bool and gl.equal(found[sure], expected.round().bool()[sure])


def test_the_highest_bits_are_those_of_the_dtype():
    for dtype, bits in ((gl.uint8, 8), (gl.int32, 31), (gl.int64, 63)):
        x = gl.tensor([[[1, 1 << (bits - 1), (1 << bits) - 1]]], dtype=dtype)
        assert F.posterize(x, 2).tolist() == [[[0, 1 << (bits - 1), 3 << (bits - 2)]]]


class TestOthers:
    def test_dtypes(self):
        x = gl.tensor([[[0, 128, 255]]], dtype=gl.uint8)
        assert F.to_dtype(x).tolist() == [[[0.0, 128.0, 255.0]]]
        scaled = F.convert_image_dtype(x)
        assert np.allclose(scaled.numpy(), [[[0, 128 / 255, 1]]])
        assert gl.equal(F.to_dtype(scaled, gl.uint8, scale=True), x)
        assert F.to_dtype(x, gl.int16, scale=True).tolist() == [[[0, 16384, 32640]]]
        assert gl.equal(F.to_dtype(F.to_dtype(x, gl.int16, scale=True), gl.uint8, scale=True), x)
        with pytest.raises(ValueError, match="numbers are not scaled between"):
            F.to_dtype(x, gl.bool, scale=True)

    def test_to_tensor(self):
        found = F.to_tensor(IMAGE)
        assert found.dtype == gl.float32
        assert np.allclose(found.numpy(), IMAGE.transpose(2, 0, 1) / 255)
        assert F.to_tensor(IMAGE / np.float32(7)).max() > 1
        with pytest.raises(TypeError, match="a tensor is one already"):
            F.to_tensor(found)
        made = F.to_image(IMAGE)
        made[0, 0, 0] = 1
        assert IMAGE[0, 0, 0] != 1, "a copy"
        assert F.pil_to_tensor(IMAGE[..., 0]).shape == (1, 5, 6)

    def test_normalize(self):
        x = tensor_of("float32")
        found = F.normalize(x, [0.1, 0.2, 0.3], [0.5, 0.25, 0.125])
        assert np.allclose(found.numpy(), (x.numpy() - [[[0.1]], [[0.2]], [[0.3]]]) / [[[0.5]], [[0.25]], [[0.125]]], atol=1e-6)
        assert F.normalize(x, [0.5], [0.5], inplace=True) is x
        for bad, message in (
            (lambda: F.normalize(tensor_of("uint8"), [0], [1]), r"ToDtype\(gradlab.float32, scale=True\)"),
            (lambda: F.normalize(x, [0, 0], [1, 1]), "a number for each of 3 channels, got 2 and 2"),
            (lambda: F.normalize(x, [0], [0]), "std is not 0"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                bad()

    def test_erase(self):
        x = gl.zeros(2, 3, 4, 4)
        found = F.erase(x, 1, 2, 2, 2, [[[1.0]], [[2.0]], [[3.0]]])
        assert x.sum() == 0
        assert found[:, :, 1:3, 2:4].sum() == found.sum() == 2 * 4 * 6
        assert F.erase(x, 0, 0, 1, 1, 5.0, inplace=True) is x
        assert x.sum() == 30

    def test_crops(self):
        x = gl.arange(16.0).reshape(1, 4, 4)
        assert [c[0, 0, 0].item() for c in F.five_crop(x, 2)] == [0, 2, 8, 10, 5]
        assert [c[0, 0, 0].item() for c in F.ten_crop(x, 2)[5:]] == [3, 1, 11, 9, 6]
        assert F.ten_crop(x, 2, vertical_flip=True)[5][0, 0, 0] == 12
        assert gl.equal(F.hflip(x), x.flip(-1))
        assert gl.equal(F.vflip(x), x.flip(-2))
        with pytest.raises(ValueError, match="5 x 5 is larger than the image, 4 x 4"):
            F.five_crop(x, 5)

    def test_elastic(self):
        x = gl.rand(3, 5, 6)
        still = gl.zeros(1, 5, 6, 2)
        assert gl.allclose(F.elastic(x, still), x, atol=1e-6)
        still[..., 0] = 2 / 6  # one pixel to the right
        assert gl.allclose(F.elastic(x, still)[..., :-1], x[..., 1:], atol=1e-5)
        with pytest.raises(ValueError, match=r"the shape \(1, 5, 6, 2\)"):
            F.elastic(x, still[0])

    def test_sizes(self):
        assert F.get_size(IMAGE) == F.get_size(tensor_of("uint8")) == [5, 6]
        assert F.get_dimensions(IMAGE[..., 0]) == [1, 5, 6]
        assert F.get_num_channels(gl.zeros(8, 3, 2, 2)) == 3
        assert F.grayscale_to_rgb(IMAGE[..., :1]).shape == (5, 6, 3)
        assert np.array_equal(F.to_grayscale(IMAGE), F.rgb_to_grayscale(IMAGE))

    def test_noise(self):
        gl.manual_seed(0)
        grey = gl.full((1, 50, 50), 0.5)
        found = F.gaussian_noise(grey, mean=0.1, sigma=0.05)
        assert abs(found.mean().item() - 0.6) < 0.01
        assert abs(found.std().item() - 0.05) < 0.01
        assert F.gaussian_noise(grey, sigma=9.0, clip=False).abs().max() > 1
        assert F.gaussian_noise(IMAGE).dtype == np.uint8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.resize(np.zeros((3, 32, 32)), 8), r"an array is an image .* not float64 of shape \(3, 32, 32\); make a tensor"),
        (lambda: F.resize("cat.png", 8), "an image is a tensor, a NumPy array or an image of Pillow's, not str"),
        (lambda: F.resize(gl.zeros(3), 8), r"not one of shape \(3,\)"),
        (lambda: F.resize(IMAGE, 0), "sizes are positive"),
        (lambda: F.resize(IMAGE, (1, 2, 3)), r"size is one number, for the shorter side, or \(height, width\)"),
        (lambda: F.resize(IMAGE, 8, max_size=8), "max_size .8. has to be greater"),
        (lambda: F.resize(IMAGE, 8, interpolation="cubic"), "interpolation is one of nearest"),
        (lambda: F.resize(IMAGE, 8, interpolation="lanczos"), "for images of Pillow's"),
        (lambda: F.rotate(IMAGE, 8, interpolation="bicubic"), "interpolation is one of nearest, bilinear"),
        (lambda: F.pad(IMAGE, [1, 2, 3]), "one, two or four whole numbers"),
        (lambda: F.pad(IMAGE, 1, padding_mode="wrap"), "padding_mode is one of"),
        (lambda: F.pad(IMAGE, 7, padding_mode="reflect"), "less padding than there are pixels"),
        (lambda: F.pad(IMAGE, 1, fill=[1, 2]), "one for each of 3 channels"),
        (lambda: F.adjust_contrast(gl.zeros(4, 2, 2), 1), "1 or 3 channels here, not 4"),
        (lambda: F.adjust_hue(IMAGE, 0.6), "from -0.5 to 0.5"),
        (lambda: F.adjust_brightness(IMAGE, -1), "not negative"),
        (lambda: F.gaussian_blur(IMAGE, 4), "odd and positive"),
        (lambda: F.posterize(IMAGE, 9), "from 0 to 8"),
        (lambda: F.permute_channels(IMAGE, [0, 0, 1]), "no order of 3 channels"),
        (lambda: F.affine(IMAGE, 0, [0, 0], 0, 0), "scale is positive"),
        (lambda: F.perspective(IMAGE, None, None), "four startpoints and four endpoints"),
        (lambda: F.center_crop(IMAGE, "3"), "one number, for a square"),
        (lambda: F.rgb_to_gray, "did you mean rgb_to_grayscale"),
    ],
)  # fmt: skip
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError, AttributeError), match=message):
        call()


class TestPillow:
    """Images of Pillow's come back as such, of the mode they had."""

    @pytest.fixture
    def library(self):
        return pytest.importorskip("PIL.Image")

    @pytest.mark.parametrize("name", ["horizontal_flip", "vertical_flip", "crop", "pad", "center_crop", "resize", "rotate"])
    @pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1", "CMYK", "I;16"])
    def test_modes_stay(self, library, mode, name):
        image = library.fromarray(IMAGE).convert("L" if mode == "I;16" else mode)
        if mode == "I;16":
            image = library.fromarray(np.asarray(image).astype(np.uint16) * 257)
        args = {"crop": (1, 1, 3, 3), "pad": (1,), "center_crop": (3,), "resize": (4,), "rotate": (90,)}.get(name, ())
        found = getattr(F, name)(image, *args)
        assert found.mode == image.mode
        if name == "horizontal_flip":
            assert np.array_equal(np.asarray(found), np.asarray(image)[:, ::-1])
        if mode == "P":
            assert found.getpalette() == image.getpalette()

    def test_palettes_become_colours_where_brightness_counts(self, library):
        image = library.fromarray(IMAGE).quantize(8)
        assert image.mode == "P"
        for function in (lambda x: F.adjust_brightness(x, 0.5), F.invert, lambda x: F.gaussian_blur(x, 3), F.autocontrast):
            assert np.array_equal(np.asarray(function(image)), np.asarray(function(image.convert("RGB"))))
        bits = image.convert("1")
        assert np.array_equal(np.asarray(F.adjust_brightness(bits, 0.5)), np.asarray(F.adjust_brightness(bits.convert("L"), 0.5)))

    def test_numbers_are_those_of_arrays(self, library):
        image = library.fromarray(IMAGE)
        for name, args, keywords in CASES:
            if name in ("resize", "resized_crop", "rotate", "affine", "perspective"):
                continue  # these are Pillow's own
            args = arguments(name, args, "uint8")
            found = np.asarray(getattr(F, name)(image, *args, **keywords))
            expected = getattr(F, name)(IMAGE, *args, **keywords)
            assert np.array_equal(found, expected[..., 0] if found.ndim == 2 else expected), name

    @pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("size", [(17, 11), (60, 50), (3, 40)])
    def test_tensors_are_resized_as_pillow_does(self, library, size, mode):
        photograph = np.random.default_rng(0).integers(0, 256, (31, 23, 3), np.uint8)
        expected = np.asarray(F.resize(library.fromarray(photograph), size, interpolation=mode))
        assert np.array_equal(
            expected, np.asarray(library.fromarray(photograph).resize(size[::-1], {"bilinear": 2, "bicubic": 3}[mode]))
        )
        assert abs(F.resize(photograph, size, interpolation=mode).astype(int) - expected).max() <= (1 if mode == "bilinear" else 2)

    def test_there_and_back(self, library):
        x = gl.from_numpy(IMAGE.transpose(2, 0, 1).copy())
        assert np.array_equal(np.asarray(F.to_pil_image(x)), IMAGE)
        assert np.array_equal(np.asarray(F.to_pil_image(x / 255)), IMAGE)
        assert gl.equal(F.to_image(F.to_pil_image(x)), x)
        assert F.to_pil_image(x[:1]).mode == "L"
        assert F.to_pil_image(x, mode="YCbCr").mode == "YCbCr"
        assert F.to_pil_image(x[:1] / 255, mode="F").mode == "F"
        with pytest.raises(ValueError, match="takes one image of 1 to 4 channels"):
            F.to_pil_image(x[None])
        with pytest.raises(TypeError, match="make a tensor of it first"):
            F.to_dtype(F.to_pil_image(x))
