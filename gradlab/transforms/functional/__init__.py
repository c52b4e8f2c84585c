"""Functions of images, whose names and meanings are those of `torchvision.transforms.v2.functional`.

Each takes a tensor (…, channels, height, width) on any device, a NumPy array (height, width, channels), or an image of Pillow's, and gives
one of the same kind. Nothing here draws random numbers but `gaussian_noise`.
"""

from __future__ import annotations

from typing import Any

from gradlab.tensor.missing_names import absent as _absent
from gradlab.transforms.functional.colour import *
from gradlab.transforms.functional.geometry import *
from gradlab.transforms.functional.kinds import (
    InterpolationMode as InterpolationMode,
    get_dimensions as get_dimensions,
    get_num_channels as get_num_channels,
    get_size as get_size,
)
from gradlab.transforms.functional.numbers import *
from gradlab.transforms.functional.warping import *


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.transforms.functional", name)
