"""CIFAR-10, from its binary version, which holds nothing but bytes."""

from __future__ import annotations

import tarfile
import zlib
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gradlab.data.downloads.fetching import DownloadError
from gradlab.data.downloads.known import KnownImages

ARCHIVE = "cifar-10-binary.tar.gz"
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE  # a class, then the red, the green and the blue of an image


class CIFAR10(KnownImages):
    """50,000 and 10,000 photographs of 32 x 32 pixels in ten classes (Krizhevsky, 2009)."""

    folder = ""
    mirrors = ("https://www.cs.toronto.edu/~kriz",)
    files: ClassVar = {ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

    def read(self, train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        path, parts = self.file(ARCHIVE), []
        try:
            with tarfile.open(path) as archive:
                for member in sorted(archive.getmembers(), key=lambda m: m.name):
                    name = member.name.rsplit("/", 1)[-1]
                    wanted = name.endswith(".bin") and name.startswith("data" if train else "test")
                    if wanted and (content := archive.extractfile(member)) is not None:
                        parts.append(content.read())
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            raise DownloadError(f"{path} is damaged: {error}; remove it") from None
        if not parts or any(len(part) % RECORD for part in parts):
            raise DownloadError(f"{path} holds no {'data' if train else 'test'}_batch files of {RECORD:,} bytes an image; remove it")
        records = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, RECORD)
        images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        if records.size and records[:, 0].max() >= len(self.classes):
            raise DownloadError(f"{path}: classes are 0 to {len(self.classes) - 1}, not {records[:, 0].max()}")
        return np.ascontiguousarray(images), records[:, 0].astype(np.int64)
