"""MNIST and Fashion-MNIST, and the format of their files."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradlab.data.downloads.fetching import DownloadError
from gradlab.data.downloads.known import KnownImages
from gradlab.data.files import content_of

KINDS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}  # the third byte of an IDX file


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in an IDX file (http://yann.lecun.com/exdb/mnist), which may be compressed by gzip. DownloadError where it is none."""
    content = content_of(Path(path), DownloadError)
    kind, rank = (KINDS.get(content[2]), content[3]) if len(content) >= 4 and content[:2] == b"\0\0" else (None, 0)
    if kind is None or not rank or len(content) < 4 + 4 * rank:
        raise DownloadError(f"{os.fspath(path)} is no IDX file: it begins with {content[:4].hex(' ') or 'nothing'}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", rank, 4))
    size = math.prod(shape) * np.dtype(kind).itemsize
    if len(content) != 4 + 4 * rank + size:
        raise DownloadError(f"{os.fspath(path)} is damaged: it is {len(content):,} bytes long, not the {4 + 4 * rank + size:,} of {shape}")
    try:
        found = np.frombuffer(content, kind, offset=4 + 4 * rank).reshape(shape)
    except ValueError as error:  # sizes of 0 beside ones that no array has
        raise DownloadError(f"{os.fspath(path)} is damaged: {error}") from None
    return found.astype(found.dtype.newbyteorder("="))


class MNIST(KnownImages):
    """60,000 and 10,000 handwritten digits of 28 x 28 greys (LeCun, Cortes and Burges, 1998).

        training = gl.data.MNIST(transform=gl.transforms.ToTensor())
    """

    folder = "MNIST/raw"  # where torchvision keeps them, too
    mirrors: ClassVar[tuple[str, ...]] = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
    files: ClassVar = {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }
    classes: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))

    def read(self, train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        part = "train" if train else "t10k"
        images, targets = (read_idx(self.file(f"{part}-{what}-ubyte.gz")) for what in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or images.dtype != np.uint8 or targets.ndim != 1:
            raise DownloadError(f"{self.root / self.folder}: images are bytes (n, height, width), not {images.dtype} {images.shape}")
        if targets.size and targets.max() >= len(self.classes):
            raise DownloadError(f"{self.root / self.folder}: classes are 0 to {len(self.classes) - 1}, there is {targets.max()}")
        return images, targets.astype(np.int64)


class FashionMNIST(MNIST):
    """60,000 and 10,000 pictures of clothes of 28 x 28 greys (Xiao, Rasul and Vollgraf, 2017)."""

    folder = "FashionMNIST/raw"
    mirrors = ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",)
    files: ClassVar = {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }
    classes = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
