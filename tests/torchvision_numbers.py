"""Writes tests/torchvision_numbers.json: what torchvision's functions make of a small image. Needs torchvision; the tests read the file.

    python tests/torchvision_numbers.py
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
CORNERS = [[0, 0], [5, 0], [5, 4], [0, 4]], [[1, 0], [5, 1], [4, 4], [0, 3]]
# Function, arguments, keywords; an interpolation is given by its name.
CASES = [
    ("resize", [[3, 4]], {}), ("resize", [[8, 9]], {}), ("resize", [3], {}), ("resize", [3], {"max_size": 4}),
    ("resize", [None], {"max_size": 4}), ("resize", [[3, 3]], {"interpolation": "bicubic"}),
    ("resize", [[7, 8]], {"interpolation": "bicubic"}),
    ("resize", [[3, 4]], {"interpolation": "nearest"}), ("resize", [[3, 4]], {"interpolation": "nearest-exact"}),
    ("resize", [[3, 4]], {"antialias": False}), ("center_crop", [3], {}), ("center_crop", [[8, 3]], {}), ("crop", [1, 2, 3, 3], {}),
    ("crop", [-1, -2, 4, 9], {}), ("crop", [3, 3, 6, 6], {}), ("resized_crop", [1, 1, 3, 4, [5, 5]], {}), ("horizontal_flip", [], {}),
    ("vertical_flip", [], {}), ("pad", [1], {}), ("pad", [[1, 2]], {"fill": 7}), ("pad", [[1, 0, 2, 3]], {"fill": [1.0, 2.0, 3.0]}),
    ("pad", [2], {"padding_mode": "reflect"}), ("pad", [2], {"padding_mode": "symmetric"}), ("pad", [2], {"padding_mode": "edge"}),
    ("rotate", [90], {}), ("rotate", [90], {"expand": True}), ("rotate", [25], {"interpolation": "bilinear"}),
    ("rotate", [-40], {"expand": True, "fill": [9.0]}),
    ("rotate", [33], {"center": [1.0, 2.0], "interpolation": "bilinear", "fill": [9.0]}),
    ("affine", [20, [1, -1], 1.3, [5.0, -8.0]], {"interpolation": "bilinear"}),
    ("affine", [-15, [0, 2], 0.7, [12.0, 0.0]], {"interpolation": "bilinear", "fill": [3.0, 4.0, 5.0], "center": [2.0, 1.0]}),
    ("perspective", [*CORNERS], {"interpolation": "bilinear"}), ("perspective", [*CORNERS], {"interpolation": "nearest", "fill": [4.0]}),
    ("adjust_brightness", [0.4], {}), ("adjust_brightness", [1.8], {}), ("adjust_contrast", [0.4], {}), ("adjust_contrast", [1.8], {}),
    ("adjust_saturation", [0.4], {}), ("adjust_saturation", [1.8], {}), ("adjust_hue", [0.2], {}), ("adjust_hue", [-0.45], {}),
    ("adjust_gamma", [0.6], {}), ("adjust_gamma", [2.2, 0.9], {}), ("adjust_sharpness", [0.0], {}), ("adjust_sharpness", [2.5], {}),
    ("rgb_to_grayscale", [], {}), ("rgb_to_grayscale", [3], {}), ("invert", [], {}), ("posterize", [3], {}), ("solarize", [0.4], {}),
    ("autocontrast", [], {}), ("equalize", [], {}), ("gaussian_blur", [3], {}), ("gaussian_blur", [[5, 3], [1.5, 0.7]], {}),
    ("permute_channels", [[2, 0, 1]], {}),
]  # fmt: skip


def image() -> np.ndarray:
    """uint8 (5, 6, 3), smooth and bright in places."""
    down, across, channel = np.meshgrid(np.arange(5), np.arange(6), np.arange(3), indexing="ij")
    return (40 + 37 * down + 61 * across * (channel + 1) + (down * across * 23) % 50).astype(np.uint8)


def arguments(name: str, args: list, kind: str) -> list:
    """A level that is given from 0 to 1 as one of 255, of bytes."""
    return [round(args[0] * 255)] if name == "solarize" and kind == "uint8" else args


if __name__ == "__main__":
    import torch
    import torchvision
    from torchvision.transforms import v2

    whole = torch.from_numpy(image()).permute(2, 0, 1).contiguous()
    found = []
    for name, args, keywords in CASES:
        named = {k: v2.InterpolationMode(v) if k == "interpolation" else v for k, v in keywords.items()}
        results = {}
        for kind, x in (("uint8", whole), ("float32", whole / 255)):
            result = getattr(v2.functional, name)(x, *arguments(name, args, kind), **named)
            results[kind] = [list(result.shape), [round(v, 6) for v in result.flatten().tolist()]]
        found.append(results)
    FILE.write_text(json.dumps({"torchvision": torchvision.__version__, "results": found}, separators=(",", ":")) + "\n")
