"""Data from addresses: files that are fetched once, checked and kept, and the known data sets that are made of such files."""

from __future__ import annotations

import os
from typing import Any

from gradlab.data.downloads.cifar import CIFAR10
from gradlab.data.downloads.fetching import DownloadError, data_folder, download
from gradlab.data.downloads.known import KnownImages
from gradlab.data.downloads.mnist import MNIST, FashionMNIST, read_idx

KNOWN: dict[str, type[KnownImages]] = {"mnist": MNIST, "fashion-mnist": FashionMNIST, "cifar-10": CIFAR10}  # as the shell calls them


def is_known(source: Any) -> bool:
    """Whether `source` names a known data set, and no folder."""
    return isinstance(source, str) and source in KNOWN and not os.path.exists(source)


__all__ = ["CIFAR10", "KNOWN", "MNIST", "DownloadError", "FashionMNIST", "KnownImages", "data_folder", "download", "is_known", "read_idx"]
