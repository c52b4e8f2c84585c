"""Images changed before they are learned from: names and meanings are those of `torchvision.transforms.v2`.

Transforms take tensors (…, channels, height, width) on any device, NumPy arrays (height, width, channels) and images of Pillow's, alone or
in a sample or batch with labels, and give what they took. What they draw comes of the default generator, so `gl.manual_seed` decides it;
within a DataLoader it depends on the epoch's seed and the sample's index alone, so that any number of workers,
and a resumed epoch, give the same images.

    training = gl.transforms.Compose([
        gl.transforms.RandomResizedCrop(32), gl.transforms.RandomHorizontalFlip(), gl.transforms.ToImage(),
        gl.transforms.ToDtype(gl.float32, scale=True), gl.transforms.Normalize([0.5] * 3, [0.25] * 3),
    ])

`functional` has what they do, without chance.
"""

from __future__ import annotations

from typing import Any

from gradlab.tensor.missing_names import absent as _absent
from gradlab.transforms import functional as functional
from gradlab.transforms.base import Transform as Transform
from gradlab.transforms.colour import (
    RGB as RGB,
    ColorJitter as ColorJitter,
    Grayscale as Grayscale,
    RandomAdjustSharpness as RandomAdjustSharpness,
    RandomAutocontrast as RandomAutocontrast,
    RandomChannelPermutation as RandomChannelPermutation,
    RandomEqualize as RandomEqualize,
    RandomGrayscale as RandomGrayscale,
    RandomInvert as RandomInvert,
    RandomPhotometricDistort as RandomPhotometricDistort,
    RandomPosterize as RandomPosterize,
    RandomSolarize as RandomSolarize,
)
from gradlab.transforms.containers import (
    Compose as Compose,
    Each as Each,
    Identity as Identity,
    Lambda as Lambda,
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
    RandomOrder as RandomOrder,
)
from gradlab.transforms.functional import InterpolationMode as InterpolationMode
from gradlab.transforms.geometry import (
    CenterCrop as CenterCrop,
    ElasticTransform as ElasticTransform,
    FiveCrop as FiveCrop,
    Pad as Pad,
    RandomAffine as RandomAffine,
    RandomCrop as RandomCrop,
    RandomHorizontalFlip as RandomHorizontalFlip,
    RandomPerspective as RandomPerspective,
    RandomResize as RandomResize,
    RandomResizedCrop as RandomResizedCrop,
    RandomRotation as RandomRotation,
    RandomVerticalFlip as RandomVerticalFlip,
    RandomZoomOut as RandomZoomOut,
    Resize as Resize,
    TenCrop as TenCrop,
)
from gradlab.transforms.mixing import CutMix as CutMix, MixUp as MixUp
from gradlab.transforms.numbers import (
    ConvertImageDtype as ConvertImageDtype,
    GaussianBlur as GaussianBlur,
    GaussianNoise as GaussianNoise,
    LinearTransformation as LinearTransformation,
    Normalize as Normalize,
    PILToTensor as PILToTensor,
    RandomErasing as RandomErasing,
    ToDtype as ToDtype,
    ToImage as ToImage,
    ToPILImage as ToPILImage,
    ToPureTensor as ToPureTensor,
    ToTensor as ToTensor,
)
from gradlab.transforms.policies import RandAugment as RandAugment, TrivialAugmentWide as TrivialAugmentWide


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.transforms", name)
