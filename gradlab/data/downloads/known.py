"""What known data sets have in common: files with checksums, from mirrors or a folder, and samples of images and classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gradlab.data.downloads.fetching import DownloadError, data_folder, download
from gradlab.data.images.folder import fitted
from gradlab.utils.data import Dataset


class KnownImages(Dataset[tuple[Any, int]]):
    """Base class: `files` by name with their SHA-256, `mirrors` (addresses of folders), `classes`, and how the files are read.

    root: the folder in which the files are kept (default: `gl.data.data_folder()`). train: the training part, else the test part.
    transform, target_transform: called with an image, uint8 (height, width, channels), and its class. download: whether files that are not
    there are fetched. mirror: a folder or an address at which the files are, in place of the usual ones (`file:///data/mnist`, `https://…`).
    check: whether files have to be the known ones, by their SHA-256; without it any of the same format do.

    `data` holds the images, uint8, `targets` their classes, int64. DownloadError, in one line, where files are not to be had or damaged.
    """

    folder: ClassVar[str]
    mirrors: ClassVar[tuple[str, ...]]
    files: ClassVar[Mapping[str, str]]
    classes: ClassVar[Sequence[str]]

    data: NDArray[np.uint8]
    targets: NDArray[np.int64]

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, download: bool = True, *, mirror: str | os.PathLike[str] | None = None,
        check: bool = True,
    ) -> None:  # fmt: skip
        self.root = data_folder(root)
        self.train, self.transform, self.target_transform = train, transform, target_transform
        self._mirrors = self.mirrors if mirror is None else (os.fspath(mirror),)
        self._download, self._check = download, check
        self.data, self.targets = self.read(train)
        if not len(self.data):
            raise DownloadError(f"{self.root / self.folder}: there are no images in these files; remove them")
        if len(self.data) != len(self.targets):
            raise DownloadError(f"{self.root / self.folder}: {len(self.data)} images, but {len(self.targets)} classes; remove these files")

    def read(self, train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images and classes of a part, by means of `file`."""
        raise NotImplementedError

    def file(self, name: str) -> Path:
        """Where a file is: fetched where it is not there yet."""
        target = self.root / self.folder / name
        known = self.files[name] if self._check else None
        try:
            if target.is_file() or self._download:
                addresses = [f"{mirror.rstrip('/')}/{name}" for mirror in self._mirrors]
                return download(addresses, target.parent, name=name, sha256=known)
        except DownloadError as error:
            own = self._check and ("SHA-256" in str(error))
            raise DownloadError(f"{error}{', or pass check=False (--no-check) for files of your own' if own else ''}") from None
        raise DownloadError(f"{type(self).__name__}: {target} is not there; pass download=True, or put the file there")

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes)}

    @classmethod
    def fingerprint(cls) -> str:
        """A SHA-256 of the known files."""
        return sha256("".join(cls.files.values()).encode()).hexdigest()

    @property
    def channels(self) -> int:
        return 3 if self.data.ndim == 4 else 1

    def arrays(self, size: int | tuple[int, int], fit: Literal["crop", "stretch"] = "crop") -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All images at one size, uint8 (n, height, width, channels), and their classes; as of an `ImageFolder`."""
        height, width = (size, size) if isinstance(size, int) else size
        images = self.data.reshape(*self.data.shape[:3], self.channels)
        if images.shape[1:3] != (height, width):
            images = np.stack([fitted(image, height, width, fit) for image in images])
        return images, self.targets

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image, target = self.data[index], int(self.targets[index])
        image = image if image.ndim == 3 else image[..., None]
        found = image if self.transform is None else self.transform(image)
        return found, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        part = "training" if self.train else "test"
        return f"{type(self).__name__}({str(self.root)!r}: {len(self)} {part} images, {len(self.classes)} classes)"


